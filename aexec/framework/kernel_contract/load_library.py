"""Loads libraries of ops and kernels beyond those of aexec.

A library is a Python module that calls `register_op` and `@kernel` when it is imported.  The registries are watched
during the import, so that what it registers is known, and is removed if the import fails.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from aexec import proto
from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract import op_registry

__all__ = ["ENTRY_POINT_GROUP", "Library", "load_library"]

# Distributions announce a library by an entry point of this group.
ENTRY_POINT_GROUP = "aexec.libraries"


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library.

    Attributes:
        name: the name it was loaded by: absolute path, or module name.
        handle: the module.
        op_list: definitions of the ops that it registered.
        kernel_list: the kernels that it registered.
    """

    name: str
    handle: ModuleType
    op_list: proto.OpList
    kernel_list: proto.KernelList


_lock = threading.RLock()
_loaded: dict[str, Library] = {}


def load_library(library: str | os.PathLike[str]) -> Library:
    """Load a library once; later calls return the result of the first.

    Args:
        library: path of a Python file, extension module or package folder; or name of an entry point of the group
            `aexec.libraries`; or dotted name of a module.  Of a module that was imported before by other means, the
            lists are empty.

    Raises:
        NotFoundError: there is no such file or module.
        OpError: a registration is refused; nothing of the library stays registered.
        UnknownError: the module raises another exception; nothing of it stays registered.
    """
    name = _canonical_name(library)
    with _lock:
        known = _loaded.get(name)
        if known is None:
            known = _loaded[name] = _load(name)
        return known


def _canonical_name(library: str | os.PathLike[str]) -> str:
    text = os.fspath(library)
    is_path = isinstance(library, os.PathLike) or os.sep in text or text.endswith(".py")
    if is_path:
        return os.path.realpath(text)
    import importlib.metadata  # imported here, because it takes long

    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=text):
        return entry_point.module
    return text


def _load(name: str) -> Library:
    ops, kernels = op_registry.global_registry, kernel_registry.global_registry
    path = Path(name) if os.path.isabs(name) else None
    module_name = name if path is None else _module_name(path)
    # The watch of ops checks their definitions when it ends, so it must be the inner one.
    with _all_or_nothing(name, module_name), kernels.watch() as registrations, ops.watch() as op_names:
        module = importlib.import_module(name) if path is None else _import_file(path, module_name)
    return Library(
        name,
        module,
        proto.OpList(op=[ops.lookup(op).op_def.to_proto() for op in op_names]),
        proto.KernelList(kernel=[registration.to_proto() for registration in registrations]),
    )


def _module_name(path: Path) -> str:
    # Not for import statements; it only has to differ from all others.
    return f"aexec_library_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"


def _import_file(path: Path, module_name: str) -> ModuleType:
    file = path / "__init__.py" if path.is_dir() else path
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None or not file.exists():
        raise errors.NotFoundError(f"{path}: no such Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _all_or_nothing(name: str, module_name: str) -> Iterator[None]:
    """If loading fails, forget the module, so that it can be tried again, and raise an OpError."""
    before = set(sys.modules)
    try:
        yield
    except BaseException as error:
        for imported in set(sys.modules) - before:
            if imported == module_name or imported.startswith(f"{module_name}."):
                del sys.modules[imported]
        if isinstance(error, errors.OpError) or not isinstance(error, Exception):
            raise
        if isinstance(error, ModuleNotFoundError):
            raise errors.NotFoundError(f"Library {name} cannot be loaded: {error}") from error
        raise errors.UnknownError(f"Library {name} failed to load: {type(error).__name__}: {error}") from error
