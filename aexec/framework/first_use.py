"""Modules that register something by name, imported when one of their names is first asked for.

The op registry and the kernel registry each have one table of these, so that a program imports
the families of the ops that its graphs are made of and no others.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterable, Iterator

__all__ = ["FirstUse", "import_family"]


class FirstUse:
    """Name → the module that registers it, while that is still to be imported.

    A module is taken off only after its import, so a thread that asks meanwhile waits for it: by the
    import system's own lock, which also lets a module ask for names while it is being imported.
    """

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        self._loading = threading.local()

    def add(self, module: str, names: Iterable[str]) -> None:
        """`module` registers `names` when it is imported."""
        self._modules.update(dict.fromkeys(names, module))

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._modules))

    @property
    def loading(self) -> bool:
        """Is this thread importing one of the modules?"""
        return getattr(self._loading, "depth", 0) > 0

    def load(self, name: str) -> None:
        """Import the module of a name, if it is still to be imported."""
        module = self._modules.get(name)
        if module is None:
            return
        self._loading.depth = getattr(self._loading, "depth", 0) + 1
        try:
            importlib.import_module(module)
        finally:
            self._loading.depth -= 1
        self._modules = {n: m for n, m in self._modules.items() if m != module}

    def load_all(self) -> None:
        for name in self:
            self.load(name)


def import_family(package: str, path: Iterable[str], *, ending: str = "_ops") -> None:
    """Import the modules of a package that register something: those whose names have this ending."""
    for module in pkgutil.iter_modules(path):
        if module.name.endswith(ending):
            importlib.import_module(f"{package}.{module.name}")
