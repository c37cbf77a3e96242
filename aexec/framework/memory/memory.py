"""The memory that there is, and giving back what is not used any more.

Linux grants nearly any allocation and kills the process when its pages are touched, so who is
about to make something large, on a client's word, asks here first.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["available_memory", "is_out_of_memory", "return_freed_memory", "total_memory"]

# Limit and use of the control group that the process runs in (version 2, version 1).
_CGROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


# How NumPy says that it has no arrays of such a size.
_TOO_LARGE = (
    "Maximum allowed dimension exceeded",
    "array is too big",
    "maximum supported dimension for an ndarray",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Does an exception of NumPy's say that an array is too large?"""
    return isinstance(error, MemoryError) or str(error).startswith(_TOO_LARGE)


def available_memory() -> float:
    """Bytes that the process can still get, as far as the system tells; infinity if it does not."""
    available = math.inf
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    for limit, used in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            available = min(available, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return available


@cache
def total_memory() -> float:
    """Bytes that the machine has, or the process's control group may have; infinity if the system does not tell.

    Asked once: it reads files.
    """
    total = math.inf
    with suppress(AttributeError, ValueError, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total


def return_freed_memory() -> None:
    """Give the system back what was freed, where the C library would keep it for later (glibc).

    For use after large things of many pieces were let go of: it takes some milliseconds per hundred megabytes.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
