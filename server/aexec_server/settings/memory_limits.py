"""Memory limits of this process: for all sessions together, for each session, for each run.

A limit that is not configured is a share of the memory that exists: of the machine, of its control group, or of what a
session host may have. The account of all sessions together is `SessionStore.memory`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from aexec.hosting import total_memory
from aexec_server.settings.server_config import ServerConfig

__all__ = ["MemoryLimits", "memory_limits"]

# Fraction of the memory that the tensors of all sessions may take.  The rest is for what is not counted: the program,
# bodies and answers, scratch of kernels.
_OF_ALL = 0.5
# Fraction of that limit for one session, and for one run.
_OF_ONE = 0.5

total_memory()  # cached: later calls read no files on an event loop


class MemoryLimits(NamedTuple):
    """Bytes that tensors may take in all sessions, in one session of a client, and in one run; None for no limit."""

    server: int | None
    session: int | None
    run: int | None


def memory_limits(config: ServerConfig) -> MemoryLimits:
    """Return the limits of a process that serves with this configuration."""
    server = config.max_memory_bytes
    if server is None:
        server = _OF_ALL * (config.max_host_bytes or total_memory())
    limits = [
        server,
        *(_OF_ONE * server if limit is None else limit for limit in (config.max_session_bytes, config.max_run_bytes)),
    ]
    return MemoryLimits(*[None if math.isinf(limit) else int(limit) for limit in limits])
