"""Reports what the workers of a cluster do: their sessions, the sessions' steps, their memory.

`aexec cluster status` prints it, to show who uses which worker, and which steps hang.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aexec.distributed.cluster_messages import Message
from aexec.distributed.engine import Engine
from aexec.framework import errors

__all__ = ["cluster_status"]


async def cluster_status(engine: Engine, timeout: float = 10.0) -> dict[str, Any]:
    """Return the state of all workers, as plain values.

    Args:
        engine: an end of the cluster.
        timeout: seconds to wait for a worker's answer.

    Returns:
        `workers`: for each `address`, `pid`, `bytes` of memory (None if unknown) and `sessions`, or `error`.  For each
        session `session`, `client`, `task`, `graphs`, `resources`, and `steps`: each step's number, and the `seconds`
        that it has run.
    """
    addresses = await engine.workers()
    return {"workers": await asyncio.gather(*(_asked(engine, address, timeout) for address in addresses))}


async def _asked(engine: Engine, address: str, timeout: float) -> dict[str, Any]:
    try:
        async with asyncio.timeout(timeout):
            answer = await engine.call(address, "describe", Message())
    except TimeoutError:
        return {"address": address, "error": f"no answer within {timeout:g} s"}
    except errors.OpError as error:
        return {"address": address, "error": error.message}
    fields = answer.fields
    sessions = [{"session": handle, **session} for handle, session in sorted(fields["sessions"].items())]
    return {"address": address, "pid": fields["pid"], "bytes": fields["bytes"], "sessions": sessions}
