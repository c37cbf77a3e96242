"""Readings of this process's memory, and of the time for which it had no processor, that cost some microseconds each:
the files of `/proc` stay open.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["OwnReadings"]

_PEAK = b"VmHWM:"
_ENOUGH = 4096


class OwnReadings:
    """Reads what the kernel says of this process; the thread that makes it is the one whose waits are counted."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def close(self) -> None:
        for file in (self._status, self._clear, self._schedule):
            os.close(file)

    def peak_kib(self) -> int:
        """Return the peak of the resident memory since it was reset."""
        text = os.pread(self._status, _ENOUGH, 0)
        return int(text[text.index(_PEAK) + len(_PEAK) :].split(None, 1)[0])

    def reset_peak_kib(self) -> int:
        """Give free memory back, make the peak what is resident now, and return it."""
        self._libc.malloc_trim(0)
        os.pwrite(self._clear, b"5", 0)
        return self.peak_kib()

    def seconds_waited(self) -> float:
        """Return the seconds for which the thread was runnable without a processor."""
        return int(os.pread(self._schedule, _ENOUGH, 0).split()[1]) * 1e-9
