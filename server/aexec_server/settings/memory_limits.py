"""How much memory graphs may take in this process: all sessions together, each of them, each run.

What the configuration leaves open is a share of what there is: of the machine or its control group, or of what a
session host may have.  The account of all sessions together is `SessionStore.memory`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from aexec.hosting import total_memory
from aexec_server.settings.server_config import ServerConfig

__all__ = ["MemoryLimits", "memory_limits"]

# Of the memory that there is, for the tensors of all sessions.  The rest is for what is not counted: the program,
# bodies and answers, what kernels need within a call.
_OF_ALL = 0.5
# Of that, for one session, and for one run.
_OF_ONE = 0.5

total_memory()  # it remembers that: no files are read on an event loop


class MemoryLimits(NamedTuple):
    """Bytes that tensors may take: of all sessions, of one session of a client, of one run; None for no limit."""

    server: int | None
    session: int | None
    run: int | None


def memory_limits(config: ServerConfig) -> MemoryLimits:
    """The limits of a process that serves with this configuration."""
    server = config.max_memory_bytes
    if server is None:
        server = _OF_ALL * (config.max_host_bytes or total_memory())
    limits = [
        server,
        *(_OF_ONE * server if limit is None else limit for limit in (config.max_session_bytes, config.max_run_bytes)),
    ]
    return MemoryLimits(*[None if math.isinf(limit) else int(limit) for limit in limits])
