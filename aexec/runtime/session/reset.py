"""`aexec.reset`: closes all sessions of the process and clears containers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, check_container
from aexec.runtime.session.session import Session

__all__ = ["reset"]


async def reset(containers: Iterable[str] = ()) -> None:
    """Clear containers and close every live session, whichever event loop it belongs to.

    All steps are cancelled, and have ended, before any container is cleared, so that no step waits for a deleted
    resource. (TensorFlow's Reset hangs if an operation waits in a queue.)  A session whose event loop no longer runs is
    left alone.

    Args:
        containers: their names; empty for the default container.

    Raises:
        InvalidArgumentError: a name is not valid for a container.
    """
    names = tuple(containers) or (DEFAULT_CONTAINER,)
    for name in names:
        check_container(name)
    await asyncio.gather(*(_reset(session, names) for session in Session.live() if not session.closed))


async def _reset(session: Session, containers: Iterable[str]) -> None:
    loop = session.loop
    if loop is None or loop is asyncio.get_running_loop():
        await session.close(containers)
    elif loop.is_running():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(containers), loop))
