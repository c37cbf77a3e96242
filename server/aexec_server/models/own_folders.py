"""Temporary folders of a server, which are gone when it ends; the next server deletes those of one that was killed.

Each has a file that its process holds locked.  The system lets go of the lock when the process ends, however that is,
and gives it to whoever asks next, so a folder whose lock can be had is nobody's.
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

_PREFIX = "aexec-"  # short, as paths of sockets in it are
_LOCK = ".lock"


class OwnFolder:
    """A new folder among the temporary files; a context manager that gives its path, and deletes it.

    Attributes:
        path: of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it has its name: without a lock, or a file to lock, nobody takes the folder for abandoned.
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / "new", self.path / _LOCK)

    def close(self) -> None:
        """Delete it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def remove_abandoned_folders() -> None:
    """Delete the folders of this user's servers that have ended without doing so."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _abandoned(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder)
                logger.info("deleted %s, which a server that was killed had left", folder)


@contextlib.contextmanager
def _abandoned(folder: Path) -> Iterator[bool]:
    """Is a folder ours, and its process gone?  Meanwhile it stays so.  Raises OSError if that cannot be told."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        yield False
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process lives
        yield True
    finally:
        os.close(lock)
