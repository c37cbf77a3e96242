"""Imports modules that register something by name, when one of their names is first used.

The op registry and the kernel registry each have one table of these, so that a program imports only the families of the
ops in its graphs.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterable, Iterator

__all__ = ["FirstUse", "import_family"]


class FirstUse:
    """Name → the module that registers it, until the module is imported.

    An entry is removed after the import, so a thread that needs the name meanwhile waits, by the import system's own
    lock; that lock also lets a module use names while it is being imported.
    """

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        self._loading = threading.local()

    def add(self, module: str, names: Iterable[str]) -> None:
        """Import `module` at the first use of one of `names`, which it registers."""
        self._modules.update(dict.fromkeys(names, module))

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._modules))

    @property
    def loading(self) -> bool:
        """True if this thread is importing one of the modules."""
        return getattr(self._loading, "depth", 0) > 0

    def load(self, name: str) -> None:
        """Import the module of a name, unless that was done."""
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
    """Import the modules of a package whose names have this ending; they register something."""
    for module in pkgutil.iter_modules(path):
        if module.name.endswith(ending):
            importlib.import_module(f"{package}.{module.name}")
