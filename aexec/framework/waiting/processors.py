"""The number of processors that this process may use."""

from __future__ import annotations

import os

__all__ = ["num_processors"]


def num_processors() -> int:
    """The number of processors that this process may run on, or, if the system does not tell, of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
