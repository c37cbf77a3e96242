"""Where the files of `tf.gfile` are: on this machine, or in a store that fsspec reaches by the scheme of their names.

`find_files("s3://bucket/key")` gives the store and the name that it has there.  Of fsspec only what is installed can be
reached: https://filesystem-spec.readthedocs.io.
"""

from __future__ import annotations

import glob
import importlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from aexec.framework import errors

__all__ = ["Files", "Folder", "find_files"]

# A folder with the names of its folders and its files.
Folder = tuple[str, list[str], list[str]]

_SCHEME = re.compile(r"([a-zA-Z][\w.+-]*)://")


class Files(Protocol):
    """The files of one store, by their names in it.  Errors are OSErrors."""

    def full_name(self, name: str) -> str:
        """The name with its scheme."""
        ...

    def is_same(self, other: Files) -> bool:
        """True if both are one store."""
        ...

    def open(self, name: str, mode: str) -> IO[Any]: ...

    def exists(self, name: str) -> bool: ...

    def is_folder(self, name: str) -> bool: ...

    def glob(self, pattern: str) -> list[str]: ...

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder, without the folder's."""
        ...

    def make_folder(self, name: str) -> None: ...

    def make_folders(self, name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def remove_tree(self, folder: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def size(self, name: str) -> int:
        """Bytes.  Raises FileNotFoundError."""
        ...

    def changed_at(self, name: str) -> int:
        """The time of the last change in nanoseconds since 1970."""
        ...

    def walk(self, folder: str, *, parents_first: bool) -> Iterator[Folder]: ...


def find_files(path: Any) -> tuple[Files, str]:
    """The store that a name leads to, and the name there.

    Raises:
        UnimplementedError: fsspec does not know the name's scheme, or a package that it needs is not installed.
    """
    name = os.fspath(path)
    scheme = _SCHEME.match(name) if isinstance(name, str) else None
    if scheme is None:
        return _LocalFiles(""), name
    if scheme[1] == "file":
        return _LocalFiles(scheme[0]), name.removeprefix(scheme[0])
    try:
        # Names come and go while a program runs: lists of them are not kept.
        system, stripped = importlib.import_module("fsspec.core").url_to_fs(name, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise errors.UnsupportedError(
            f"File system scheme '{scheme[1]}' not implemented (file: '{name}'): {error}"
        ) from None
    return _StoredFiles(system, name, stripped), stripped


class _LocalFiles:
    """Files of this machine.

    Args:
        prefix: before the names that are given back.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def full_name(self, name: str) -> str:
        return self._prefix + name

    def is_same(self, other: Files) -> bool:
        return isinstance(other, _LocalFiles)

    def open(self, name: str, mode: str) -> IO[Any]:
        return open(name, mode, **_text_options(mode))

    def exists(self, name: str) -> bool:
        return os.path.exists(name)

    def is_folder(self, name: str) -> bool:
        return os.path.isdir(name)

    def glob(self, pattern: str) -> list[str]:
        return glob.glob(pattern)

    def list_names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def make_folder(self, name: str) -> None:
        os.mkdir(name)

    def make_folders(self, name: str) -> None:
        os.makedirs(name, exist_ok=True)

    def remove(self, name: str) -> None:
        os.remove(name)

    def remove_tree(self, folder: str) -> None:
        shutil.rmtree(folder)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def size(self, name: str) -> int:
        return os.stat(name).st_size

    def changed_at(self, name: str) -> int:
        return os.stat(name).st_mtime_ns

    def walk(self, folder: str, *, parents_first: bool) -> Iterator[Folder]:
        return os.walk(Path(folder), topdown=parents_first)


class _StoredFiles:
    """Files of a store that fsspec reaches.

    Args:
        system: fsspec's file system.
        name: a name with its scheme.
        stripped: the same name as the store has it.
    """

    def __init__(self, system: Any, name: str, stripped: str) -> None:
        self._system = system
        name = name.rstrip("/")
        # Hosts in names are no part of those in the store, so fsspec alone cannot give them back.
        self._prefix = name.removesuffix(stripped) if stripped and name.endswith(stripped) else None

    def full_name(self, name: str) -> str:
        full: str = self._system.unstrip_protocol(name) if self._prefix is None else self._prefix + name
        return full

    def is_same(self, other: Files) -> bool:
        return isinstance(other, _StoredFiles) and self._system == other._system

    def open(self, name: str, mode: str) -> IO[Any]:
        opened: IO[Any] = self._system.open(name, mode, **_text_options(mode))
        return opened

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(name))

    def is_folder(self, name: str) -> bool:
        return bool(self._system.isdir(name))

    def glob(self, pattern: str) -> list[str]:
        found: list[str] = self._system.glob(pattern)
        return found

    def list_names(self, folder: str) -> list[str]:
        return [name.rstrip("/").rpartition("/")[2] for name in self._system.ls(folder, detail=False)]

    def make_folder(self, name: str) -> None:
        self._system.mkdir(name, create_parents=False)

    def make_folders(self, name: str) -> None:
        self._system.makedirs(name, exist_ok=True)

    def remove(self, name: str) -> None:
        self._system.rm_file(name)

    def remove_tree(self, folder: str) -> None:
        self._system.rm(folder, recursive=True)

    def rename(self, old: str, new: str) -> None:
        self._system.mv(old, new, recursive=self.is_folder(old))

    def size(self, name: str) -> int:
        return int(self._system.info(name)["size"] or 0)

    def changed_at(self, name: str) -> int:
        try:
            return int(self._system.modified(name).timestamp() * 1e9)
        except NotImplementedError:
            raise errors.UnsupportedError(f"{self.full_name(name)}: this store keeps no times of changes") from None

    def walk(self, folder: str, *, parents_first: bool) -> Iterator[Folder]:
        found: Iterator[Folder] = self._system.walk(folder, topdown=parents_first)
        return found


def _text_options(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
