"""The available memory, and returning freed memory to the system.

Linux grants nearly any allocation, and kills the process when its pages are touched.  So code that is about to make
something large at a client's request asks here first.  Next to read: `freed_memory.py`.
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

# Files with limit and use of the process's control group (version 2, version 1).
_CGROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


# NumPy's messages for arrays that are too large for it.
_TOO_LARGE = (
    "Maximum allowed dimension exceeded",
    "array is too big",
    "maximum supported dimension for an ndarray",
)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an exception of NumPy's says that an array is too large."""
    return isinstance(error, MemoryError) or str(error).startswith(_TOO_LARGE)


def available_memory() -> float:
    """The bytes that the process can still get; infinity if the system does not tell."""
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
    """The bytes of the machine, or the limit of the process's control group; infinity if the system does not tell.

    The result is remembered, because it takes reading files.
    """
    total = math.inf
    with suppress(AttributeError, ValueError, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total


def return_freed_memory() -> None:
    """Return freed memory to the system, which glibc would otherwise keep.

    To be called after large structures of many parts were freed; takes some milliseconds per hundred megabytes.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
