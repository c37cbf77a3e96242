"""Temporary folders of a server: deleted when it ends, or by the next server if it was killed.

Each folder has a file that its process holds locked.  The system releases the lock when the process ends, even if it
is killed; so a folder whose lock can be taken is abandoned.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders of killed servers stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["OwnFolder", "remove_abandoned_folders"]

logger = logging.getLogger(__name__)

_PREFIX = "aexec-"  # short, because sockets lie in it and their paths are limited
_LOCK = ".lock"


class OwnFolder:
    """A new temporary folder; a context manager that returns its path and deletes it at the end.

    Attributes:
        path: of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it is renamed: without a file of the final name nobody takes the folder for abandoned.
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / "new", self.path / _LOCK)

    def close(self) -> None:
        """Delete the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def remove_abandoned_folders() -> None:
    """Delete folders that killed servers of this user have left."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _abandoned(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder)
                logger.info("deleted %s, which a server that was killed had left", folder)


@contextlib.contextmanager
def _abandoned(folder: Path) -> Iterator[bool]:
    """Context manager: True if a folder is ours and its process has ended; its lock is held inside.  Raises OSError."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        yield False
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process is alive
        yield True
    finally:
        os.close(lock)
