"""`FolderLock`: only one server writes to the folder of a store."""

from __future__ import annotations

import os
from pathlib import Path

from aexec_server.durable.state_errors import StateStoreError

__all__ = ["FolderLock"]


class FolderLock:
    """A lock that ends with the process that has it.

    Args:
        folder: the folder to lock.

    Raises:
        StateStoreError: another process has it.
        OSError: the file of the lock cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        import fcntl  # not on Windows

        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StateStoreError(
                f"The store {folder} is used by another server: end it first, or give another folder"
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)
