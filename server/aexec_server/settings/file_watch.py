"""`FileWatch`: tells whether files have changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FileWatch"]


class FileWatch:
    """Detects changes of files by their modification time, size and inode.

    Args:
        paths: of the files, which need not exist.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._paths = list(paths)
        self._seen = self._look()

    def _look(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found

    def changed(self) -> bool:
        """Return True if a file has changed since the last call, or since construction."""
        seen, self._seen = self._seen, self._look()
        return seen != self._seen
