"""Cancels the step of a client that disconnects, in ASGI frameworks, which let its handler run on.

::

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        x = (await request.json())["x"]
        y = await cancel_on_disconnect(request.receive, session.run("y:0", {"x:0": x}))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aexec.framework import errors

__all__ = ["cancel_on_disconnect"]

T = TypeVar("T")

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


async def cancel_on_disconnect(receive: Receive, work: Awaitable[T]) -> T:
    """Return the result of `work`; if the client disconnects first, cancels `work` and waits for its end.

    Args:
        receive: the request's ASGI channel: `request.receive` of Starlette, FastAPI and Litestar.  Read the body
            before, since messages with parts of it are dropped.
        work: what the client waits for, `session.run(...)` or a `Step`.

    Raises:
        CancelledError: aexec's, of code CANCELLED: the client has disconnected, so no response is needed.
        BaseException: whatever `work` raises.
    """
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait([running, leaving], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        leaving.result()
        raise errors.CancelledError("The client who asked for it has gone")
    finally:
        running.cancel()
        leaving.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
