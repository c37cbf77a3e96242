"""Local files: their errors in canonical codes, and writes that a crash cannot leave half done."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from io import BufferedReader
from typing import BinaryIO

from aexec.framework import errors
from aexec.framework.waiting.thrown_errors import forget_frames

__all__ = [
    "fsync_directory",
    "make_directories",
    "open_regular",
    "os_error",
    "read_file",
    "reporting",
    "temporary_name",
    "text_path",
    "write_atomically",
]

# Canonical codes of the system's errors; any other is UNKNOWN.
_CODES: dict[int, errors.Code] = {
    code: getattr(errors.Code, canonical)
    for canonical, codes in {
        "INVALID_ARGUMENT": (errno.EINVAL, errno.ENAMETOOLONG, errno.E2BIG, errno.EDESTADDRREQ, errno.EILSEQ),
        "NOT_FOUND": (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ESRCH),
        "ALREADY_EXISTS": (errno.EEXIST,),
        "PERMISSION_DENIED": (errno.EPERM, errno.EACCES, errno.EROFS),
        "FAILED_PRECONDITION": (errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.EBUSY, errno.ETXTBSY, errno.EBADF),
        "RESOURCE_EXHAUSTED": (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EMLINK),
        "OUT_OF_RANGE": (errno.EFBIG, errno.EOVERFLOW, errno.ESPIPE),
        "UNAVAILABLE": (errno.EAGAIN, errno.EINTR),
        "UNIMPLEMENTED": (errno.ENOSYS, errno.ENOTSUP, errno.EXDEV),
    }.items()
    for code in codes
}


def text_path(path: str | bytes | os.PathLike[str]) -> str:
    """A path as text; the bytes in a string tensor are decoded as the file system does.

    Raises:
        InvalidArgumentError: it contains a NUL, which no file name can.
    """
    text = os.fsdecode(path)
    if "\0" in text:
        raise errors.InvalidArgumentError(f"a path with a NUL byte names no file: {text!r}")
    return text


def os_error(error: OSError, path: str) -> errors.OpError:
    """The system's error as an OpError: `path; No such file or directory`."""
    code = _CODES.get(error.errno or 0, errors.Code.UNKNOWN)
    return errors.from_code(code, f"{path}; {error.strerror or error}")


@contextlib.contextmanager
def reporting(path: str) -> Iterator[None]:
    """Context manager: the system's errors inside are raised as OpErrors that name `path`."""
    try:
        yield
    except OSError as error:
        forget_frames(error)
        raise os_error(error, path) from error


def open_regular(path: str) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        FailedPreconditionError: it is a directory, or a device or pipe, whose data may have no end or never come; and
            other errors of the system.
    """
    with reporting(path):
        # Opening a pipe without a writer would block the thread.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise errors.FailedPreconditionError(f"{path}; Not a regular file")
            return open(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def read_file(path: str) -> bytes:
    """The contents of a file.  Raises as `open_regular` does."""
    with open_regular(path) as file, reporting(path):
        return file.read()


def make_directories(path: str) -> None:
    """Create a directory and its missing parents; "" is the current one.

    Raises:
        FailedPreconditionError: a file is in the way; and other errors of the system.
    """
    try:
        with reporting(path):
            os.makedirs(path or ".", exist_ok=True)
    except errors.AlreadyExistsError:
        raise errors.FailedPreconditionError(f"{path} is not a directory") from None


def temporary_name(path: str) -> str:
    """A random name beside `path`, not used by another file."""
    return f"{path}.tempstate{secrets.randbits(64)}"


@contextlib.contextmanager
def write_atomically(path: str) -> Iterator[BinaryIO]:
    """Context manager: a file to write, which replaces `path` atomically at the end of the block.

    Until then, and if the block raises, `path` is unchanged.

    Raises:
        OpError: of the class that corresponds to the system's error.
    """
    temporary = temporary_name(path)
    try:
        with reporting(path):
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            fsync_directory(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def fsync_directory(path: str) -> None:
    """Make renames in a directory durable against a crash of the machine, if the system supports it."""
    try:
        directory = os.open(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)
