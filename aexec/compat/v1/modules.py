"""Import hooks: find modules by TensorFlow's names inside the rooms, and explain modules that are missing.

Next to read: `namespace.py`, which finds the names inside modules.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from aexec.compat.v1.namespace import unknown

__all__ = ["MissingModules", "ModulesOfRooms", "SecondName"]


class SecondName(Loader):
    """Loads a module under a second name: importing either gives the same object.

    Args:
        name: the module's first name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, imported under its first name."""
        found = importlib.import_module(self._name)
        spec.loader_state = found.__spec__  # `import` is about to replace it
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module back the spec of its first name; it was executed under that."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


class ModulesOfRooms(MetaPathFinder):
    """Finds a package's modules by TensorFlow's names, which do not mention the room.

    Args:
        package: its name.
        rooms: names of the packages inside it that are searched.
    """

    def __init__(self, package: str, rooms: Iterable[str]) -> None:
        self._package = package
        self._rooms = tuple(rooms)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called after the finders of files.  None for what is in no room."""
        package, _, name = fullname.rpartition(".")
        if package != self._package or name in self._rooms:
            return None
        for room in self._rooms:
            place = f"{package}.{room}.{name}"
            if importlib.util.find_spec(place) is not None:
                return ModuleSpec(fullname, SecondName(place))
        return None


class MissingModules(MetaPathFinder):
    """Explains why a package lacks some of TensorFlow's modules, where `import` would only name them.

    Args:
        package: its name.
        missing: name of a module → what to use instead, or why it is missing.
    """

    def __init__(self, package: str, missing: Mapping[str, str]) -> None:
        self._package = package
        self._missing = missing

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Called after all other finders.  Raises ModuleNotFoundError for a module of the package."""
        package, _, name = fullname.rpartition(".")
        if package != self._package:
            return
        why = self._missing.get(name) or unknown(package, name)
        # With the full name, `from package import name` would pass over this error and say less itself.
        raise ModuleNotFoundError(f"{package} has no module {name!r}: {why}", name=name)
