"""`tf.gfile` and `tf.io.gfile`: files with TensorFlow's names and errors, here or in a store that fsspec reaches.

Next to read: `file_systems.py`, where the files are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import wraps
from typing import IO, Any

from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.platform.file_systems import Files, Folder, find_files
from aexec.framework import errors

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
    "join",
]

join = os.path.join

_KINDS: dict[type[OSError], type[errors.OpError]] = {
    FileNotFoundError: errors.NotFoundError,
    FileExistsError: errors.AlreadyExistsError,
    PermissionError: errors.PermissionDeniedError,
    NotADirectoryError: errors.FailedPreconditionError,
    IsADirectoryError: errors.FailedPreconditionError,
}


def _ours(error: OSError) -> errors.OpError:
    kind = next((found for of, found in _KINDS.items() if isinstance(error, of)), errors.UnknownError)
    return kind(str(error) if error.strerror is None else f"{error.filename}; {error.strerror}")


def _raising(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise _ours(error) from None

    return call


class GFile:
    """A file that is opened when it is first read or written."""

    def __init__(self, name: Any, mode: str = "r") -> None:
        self.name = os.fspath(name)
        self.mode = mode
        self._file: IO[Any] | None = None

    @property
    def _opened(self) -> IO[Any]:
        if self._file is None:
            files, name = find_files(self.name)
            try:
                self._file = files.open(name, self.mode)
            except OSError as error:
                raise _ours(error) from None
        return self._file

    def read(self, n: int = -1) -> Any:
        """Read the rest, or at most `n` bytes or characters."""
        return self._opened.read(n)

    def readline(self) -> Any:
        """Read a line with its end."""
        return self._opened.readline()

    def readlines(self) -> list[Any]:
        """Read the remaining lines."""
        return self._opened.readlines()

    def write(self, file_content: Any) -> None:
        """Write text, or bytes."""
        self._opened.write(file_content)

    def seek(self, offset: int = 0, whence: int = 0) -> None:
        """Move the position."""
        self._opened.seek(offset, whence)

    def tell(self) -> int:
        """The present position."""
        return self._opened.tell()

    def size(self) -> int:
        """The file's size in bytes."""
        return int(Stat(self.name).length)

    def seekable(self) -> bool:
        """True if the position can be moved."""
        return self._opened.seekable()

    def flush(self) -> None:
        """Write buffered data to the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close it; it is opened again if it is used again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self._opened.readline()
        if not line:
            raise StopIteration
        return line

    def next(self) -> Any:
        """The next line.  Raises StopIteration at the end."""
        return next(self)


class _Statistics:
    """Statistics of a file.

    Attributes:
        length: bytes.
        is_directory: True for a folder.
    """

    def __init__(self, files: Files, name: str) -> None:
        self.length = files.size(name)
        self.is_directory = files.is_folder(name)
        self._files = files
        self._name = name

    @property
    def mtime_nsec(self) -> int:
        """The time of the last change in nanoseconds since 1970.

        Raises:
            UnimplementedError: the store keeps no such times.
        """
        return self._files.changed_at(self._name)


def Exists(filename: Any) -> bool:  # noqa: N802
    """True if there is a file or folder."""
    files, name = find_files(filename)
    return files.exists(name)


def IsDirectory(dirname: Any) -> bool:  # noqa: N802
    """True for a folder."""
    files, name = find_files(dirname)
    return files.is_folder(name)


def Glob(filename: Any) -> list[str]:  # noqa: N802
    """Files whose names match a pattern, or one of several."""
    patterns = filename if isinstance(filename, list | tuple) else [filename]
    found = []
    for pattern in patterns:
        files, name = find_files(pattern)
        found += [files.full_name(match) for match in sorted(files.glob(name))]
    return found


@_raising
def ListDirectory(dirname: Any) -> list[str]:  # noqa: N802
    """The sorted names in a folder.  Raises NotFoundError."""
    files, name = find_files(dirname)
    if not files.is_folder(name):
        raise errors.NotFoundError(f"Could not find directory {os.fspath(dirname)}")
    return sorted(files.list_names(name))


@_raising
def MkDir(dirname: Any) -> None:  # noqa: N802
    """Make a folder; its parent must exist."""
    files, name = find_files(dirname)
    files.make_folder(name)


@_raising
def MakeDirs(dirname: Any) -> None:  # noqa: N802
    """Make a folder and its missing parents."""
    files, name = find_files(dirname)
    files.make_folders(name)


@_raising
def Remove(filename: Any) -> None:  # noqa: N802
    """Delete a file."""
    files, name = find_files(filename)
    files.remove(name)


@_raising
def DeleteRecursively(dirname: Any) -> None:  # noqa: N802
    """Delete a folder with its contents."""
    files, name = find_files(dirname)
    files.remove_tree(name)


@_raising
def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Copy a file, also from one store to another.

    Raises:
        AlreadyExistsError: the new name exists, unless `overwrite`.
    """
    _check_free(newpath, overwrite)
    with GFile(oldpath, "rb") as source, GFile(newpath, "wb") as target:
        shutil.copyfileobj(source, target)
        target.write(b"")  # of an empty file, too, a copy is made


@_raising
def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Rename a file or folder.

    Raises:
        AlreadyExistsError: the new name exists, unless `overwrite`.
        UnimplementedError: the names lead to different stores.
    """
    _check_free(newname, overwrite)
    (files, old), (others, new) = find_files(oldname), find_files(newname)
    if not files.is_same(others):
        raise errors.UnsupportedError(f"Renaming {os.fspath(oldname)} to {os.fspath(newname)} not implemented")
    files.rename(old, new)


def _check_free(path: Any, overwrite: bool) -> None:
    if not overwrite and Exists(path):
        raise errors.AlreadyExistsError(f"file already exists: {os.fspath(path)}")


@_raising
def Stat(filename: Any) -> Any:  # noqa: N802
    """Length and time of a file.  Raises NotFoundError."""
    return _Statistics(*find_files(filename))


def Walk(top: Any, in_order: bool = True) -> Iterator[Folder]:  # noqa: N802
    """Yield folder, its folders, and its files, for a folder and all below."""
    files, name = find_files(top)
    for folder, folders, names in files.walk(name, parents_first=in_order):
        yield files.full_name(folder), folders, names


__getattr__, __dir__ = namespace(
    __name__,
    {
        "FastGFile": "platform.gfile:GFile",
        "Open": "platform.gfile:GFile",
        "copy": "platform.gfile:Copy | src=oldpath dst=newpath overwrite",
        "exists": "platform.gfile:Exists | path=filename",
        "glob": "platform.gfile:Glob | pattern=filename",
        "isdir": "platform.gfile:IsDirectory | path=dirname",
        "listdir": "platform.gfile:ListDirectory | path=dirname",
        "makedirs": "platform.gfile:MakeDirs | path=dirname",
        "mkdir": "platform.gfile:MkDir | path=dirname",
        "remove": "platform.gfile:Remove | path=filename",
        "rename": "platform.gfile:Rename | src=oldname dst=newname overwrite",
        "rmtree": "platform.gfile:DeleteRecursively | path=dirname",
        "stat": "platform.gfile:Stat | path=filename",
        "walk": "platform.gfile:Walk | top topdown=in_order onerror!",
    },
)
