"""`HostFigures`: a process's memory, and its wait for a processor, as Linux reports them.

On other systems both are 0, so that no limit is ever exceeded.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["HostFigures"]

_NAMES = ("statm", "schedstat")


class HostFigures:
    """A process's memory, and its wait for a processor, as Linux reports them; 0 on other systems.

    Args:
        pid: the id of the process.
    """

    def __init__(self, pid: int) -> None:
        self._files: dict[str, int] = {}
        for name in _NAMES:
            with contextlib.suppress(OSError):
                self._files[name] = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)

    def resident_bytes(self) -> int:
        return self._second_field("statm") * os.sysconf("SC_PAGE_SIZE")

    def waited(self) -> float:
        """Seconds for which the process's main thread was ready and had no processor."""
        return self._second_field("schedstat") * 1e-9

    def _second_field(self, name: str) -> int:
        file = self._files.get(name)
        if file is not None:
            with contextlib.suppress(OSError, IndexError):
                return int(os.pread(file, 200, 0).split()[1])
        return 0

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files = {}
