"""Steps of clients that leave, in frameworks of ASGI: these let handlers run on, so somebody has to look.

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
    """What `work` gives, unless the client leaves before: then it is cancelled, and has ended when this raises.

    Args:
        receive: the request's channel in ASGI: `request.receive` of Starlette, FastAPI and Litestar.  The body has to
            be read before, since what comes of it meanwhile is passed over.
        work: what the client waits for, `session.run(...)` or a `Step`.

    Raises:
        CancelledError: aexec's, of code CANCELLED: the client has gone, and whatever is answered, nobody reads it.
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
