"""Locks on the folder of a store: one server owns it, and session hosts of that server use it besides.

The hosts of a server that was killed end a moment after it.  The next owner waits for them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from aexec_server.durable.state_errors import StateStoreError

__all__ = ["FolderLock"]

_OWNER, _USERS = "lock", "users"
_WAIT_SECONDS = 5.0
_RETRY_SECONDS = 0.02


class FolderLock:
    """A lock that ends with the process that has it.  Waits up to five seconds for the hosts of an earlier owner.

    Args:
        folder: the folder to lock.
        is_owner: True for its owner, False for a session host of the owner.

    Raises:
        StateStoreError: another process has it.
        OSError: the file of the lock cannot be made.
    """

    def __init__(self, folder: Path, *, is_owner: bool) -> None:
        import fcntl  # not on Windows

        self._descriptor = os.open(folder / (_OWNER if is_owner else _USERS), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_EX if is_owner else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            if is_owner:
                _wait_for_users(folder)
        except BlockingIOError:
            self.release()
            raise StateStoreError(
                f"The store {folder} is used by another server: end it first, or give another folder"
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)


def _wait_for_users(folder: Path) -> None:
    """Return when no process but the owner uses the folder.  Raises BlockingIOError after a while."""
    import fcntl

    descriptor = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + _WAIT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
            time.sleep(_RETRY_SECONDS)
    finally:
        os.close(descriptor)
