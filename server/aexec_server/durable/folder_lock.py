"""Locks on the folder of a store: one server owns it, and session hosts of that server use it besides.

The hosts of a server that was killed end a moment after it.  The next owner waits for them.  The owner's lock names its
start, so that no host of another server begins to use the folder.  A server that is to take the folder over has a lock
of its own, which tells the owner to give the folder up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from aexec_server.durable.state_errors import StateStoreError, StoreInUseError
from aexec_server.http.not_begun import HandedOverError

__all__ = ["FolderLock", "SuccessorLock", "has_successor"]

_OWNER, _USERS, _NEXT = "lock", "users", "next"
_WAIT_SECONDS = 5.0
_RETRY_SECONDS = 0.02
_MAX_RUN = 100


class FolderLock:
    """A lock that ends with the process that has it.  Waits up to five seconds for the hosts of an earlier owner.

    Args:
        folder: the folder to lock.
        is_owner: True for its owner, False for a session host of the owner.
        run: identifies the start of the server that owns the folder, which for a session host is that of its front; ""
            for any owner.

    Raises:
        StoreInUseError: another process has it.
        HandedOverError: the owner is another server than that of the host.
        OSError: the file of the lock cannot be made.
    """

    def __init__(self, folder: Path, *, is_owner: bool, run: str = "") -> None:
        self._is_owner = is_owner
        self._descriptor = _locked(folder, _OWNER if is_owner else _USERS, exclusive=is_owner)
        try:
            if is_owner:
                os.ftruncate(self._descriptor, 0)  # hosts of another start begin no more, and those of this one later
                _wait_for_users(folder)
                os.pwrite(self._descriptor, run.encode(), 0)
            elif run and _owner_of(folder) != run:
                raise HandedOverError
        except BaseException as error:
            self.release()
            if isinstance(error, BlockingIOError):
                raise _in_use(folder) from None
            raise

    def release(self) -> None:
        if self._is_owner:
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


class SuccessorLock:
    """The lock of the server that is to take the folder over.

    Raises:
        StoreInUseError: another one is to do that.
        OSError: the file of the lock cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = _locked(folder, _NEXT, exclusive=True)

    def release(self) -> None:
        os.close(self._descriptor)


def has_successor(folder: Path) -> bool:
    """True if a server waits to take the folder over."""
    try:
        os.close(_locked(folder, _NEXT, exclusive=False))
    except StoreInUseError:
        return True
    except OSError:
        return False
    return False


def _locked(folder: Path, name: str, *, exclusive: bool) -> int:
    """The descriptor of a file that is locked now.  Raises StoreInUseError, OSError."""
    import fcntl  # not on Windows

    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise _in_use(folder) from None
    return descriptor


def _in_use(folder: Path) -> StateStoreError:
    return StoreInUseError(f"The store {folder} is used by another server: end it first, or give another folder")


def _owner_of(folder: Path) -> str:
    """The start of the server that owns the folder; "" if it does not yet, or does no more."""
    try:
        with (folder / _OWNER).open("rb") as file:
            return file.read(_MAX_RUN).decode(errors="replace")
    except OSError:
        return ""


def _wait_for_users(folder: Path) -> None:
    """Return when no process but the owner uses the folder.  Raises BlockingIOError after a while."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            os.close(_locked(folder, _USERS, exclusive=True))
            return
        except StoreInUseError:
            if time.monotonic() > until:
                raise BlockingIOError from None
        time.sleep(_RETRY_SECONDS)
