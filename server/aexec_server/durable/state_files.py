"""`StateFiles`: the files of a store: large tensors, each in a file of its own that never changes.

A file is written under a temporary name, flushed to the disk, and renamed; `sync_folder` makes the names durable,
before the transaction that refers to them.  All methods block, and are called in the store's thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from collections.abc import Collection
from pathlib import Path

from aexec import errors

__all__ = ["StateFiles"]

_TEMPORARY = ".tmp"
_FOLDER = "tensors"


class StateFiles:
    """The files in the folder of a store.

    Args:
        folder: the store's folder, which exists.

    Raises:
        OSError: the folder for the files cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._sync(folder)

    def write(self, data: bytes | memoryview) -> str:
        """Write a file; return its name.  Raises OSError."""
        name = secrets.token_hex(12)
        temporary = self._folder / f"{name}{_TEMPORARY}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                self.sync(file.fileno())
            temporary.rename(self._folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return name

    def sync(self, descriptor: int) -> None:
        """Wait until a file is on the disk.  Raises OSError."""
        os.fsync(descriptor)

    def sync_folder(self) -> None:
        """Wait until the names of written files are on the disk.  Raises OSError."""
        self._sync(self._folder)

    def _sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, name: str, crc: int) -> bytearray:
        """The contents of a file.  Raises DataLossError if it is missing or not what was written."""
        try:
            data = bytearray((self._folder / name).read_bytes())
        except OSError as error:
            raise errors.DataLossError(f"The file {self._folder / name} cannot be read: {error.strerror}") from None
        if zlib.crc32(data) != crc:
            raise errors.DataLossError(f"The file {self._folder / name} is damaged")
        return data

    def remove(self, names: Collection[str]) -> None:
        """Delete files, as far as possible; `sweep` deletes those that are left."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def sweep(self, used: Collection[str]) -> int:
        """Delete all files that are not used; return their number.  No other process may write."""
        unused = [path.name for path in self._folder.iterdir() if path.name not in used]
        self.remove(unused)
        return len(unused)
