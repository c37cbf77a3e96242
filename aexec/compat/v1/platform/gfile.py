"""`tf.gfile` and `tf.io.gfile`: local files, with TensorFlow's names and errors.

Next to read: Python's `pathlib` and `shutil`, which they call.
"""

from __future__ import annotations

import glob as _glob
import os
import shutil
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import IO, Any

from aexec.compat.v1.namespace import namespace
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
    return kind(f"{error.filename}; {error.strerror}")


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
            binary = "b" in self.mode
            try:
                text: dict[str, Any] = {} if binary else {"encoding": "utf-8", "newline": ""}
                self._file = open(self.name, self.mode, **text)  # noqa: SIM115
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
        mtime_nsec: time of the last change.
        is_directory: True for a folder.
    """

    def __init__(self, found: os.stat_result, is_directory: bool) -> None:
        self.length = found.st_size
        self.mtime_nsec = found.st_mtime_ns
        self.is_directory = is_directory


def Exists(filename: Any) -> bool:  # noqa: N802
    """True if there is a file or folder."""
    return os.path.exists(filename)


def IsDirectory(dirname: Any) -> bool:  # noqa: N802
    """True for a folder."""
    return os.path.isdir(dirname)


def Glob(filename: Any) -> list[str]:  # noqa: N802
    """Files whose names match a pattern, or one of several."""
    patterns = filename if isinstance(filename, list | tuple) else [filename]
    return [found for pattern in patterns for found in sorted(_glob.glob(os.fspath(pattern)))]


@_raising
def ListDirectory(dirname: Any) -> list[str]:  # noqa: N802
    """The sorted names in a folder.  Raises NotFoundError."""
    if not os.path.isdir(dirname):
        raise errors.NotFoundError(f"Could not find directory {os.fspath(dirname)}")
    return sorted(os.listdir(dirname))


@_raising
def MkDir(dirname: Any) -> None:  # noqa: N802
    """Make a folder; its parent must exist."""
    os.mkdir(dirname)


@_raising
def MakeDirs(dirname: Any) -> None:  # noqa: N802
    """Make a folder and its missing parents."""
    os.makedirs(dirname, exist_ok=True)


@_raising
def Remove(filename: Any) -> None:  # noqa: N802
    """Delete a file."""
    os.remove(filename)


@_raising
def DeleteRecursively(dirname: Any) -> None:  # noqa: N802
    """Delete a folder with its contents."""
    shutil.rmtree(dirname)


@_raising
def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Copy a file.  Raises AlreadyExistsError if the new name exists, unless `overwrite`."""
    _check_free(newpath, overwrite)
    shutil.copyfile(oldpath, newpath)


@_raising
def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:  # noqa: N802
    """Rename a file or folder.  Raises as `Copy`."""
    _check_free(newname, overwrite)
    os.replace(oldname, newname)


def _check_free(path: Any, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise errors.AlreadyExistsError(f"file already exists: {os.fspath(path)}")


@_raising
def Stat(filename: Any) -> Any:  # noqa: N802
    """Length and time of a file."""
    return _Statistics(os.stat(filename), os.path.isdir(filename))


def Walk(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:  # noqa: N802
    """Yield folder, its folders, and its files, for a folder and all below."""
    return os.walk(Path(top), topdown=in_order)


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
