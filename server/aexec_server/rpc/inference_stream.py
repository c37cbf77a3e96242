"""`answer_stream`: answers a stream of inference requests in their order.

Several requests of a stream run at once, so that they can share a batch. An error is sent as an answer, and the stream
goes on. The next request is read when there is room for it, and the next answer is written when the client has taken
the one before: a client that does not read keeps no more than a few requests in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aexec import errors
from aexec.hosting import wire_format
from aexec.proto import inference
from aexec_server.http.error_responses import public_error
from aexec_server.rpc.rpc_status import status_message

__all__ = ["WhenTaken", "answer_stream"]

# Requests of a stream that may be read and not yet answered.
_AT_ONCE = 16
_RESPONSE = inference.ModelStreamInferResponse.DESCRIPTOR.fields_by_name["infer_response"].number
# Added to each response, which is the only one of its request.
_FINAL = inference.ModelInferResponse(
    parameters={"triton_final_response": inference.InferParameter(bool_param=True)}
).SerializeToString()


# Calls a function once the answer was taken, or given up.
WhenTaken = Callable[[Callable[[], object]], object]
Infer = Callable[[inference.ModelInferRequest, WhenTaken], Awaitable[bytes]]
Requests = AsyncIterator[inference.ModelInferRequest]


class _Answer:
    """The answer to one request of a stream, from when that is read until the client has taken it."""

    def __init__(self, request: inference.ModelInferRequest, infer: Infer) -> None:
        self._taken: list[Callable[[], object]] = []
        self.task = asyncio.create_task(self._make(request, infer))

    async def _make(self, request: inference.ModelInferRequest, infer: Infer) -> bytes:
        try:
            response = await infer(request, self._taken.append)
        except errors.OpError as error:
            shown = public_error(error, "an inference of a stream")
            failed = inference.ModelInferResponse(id=request.id, model_name=request.model_name)
            return inference.ModelStreamInferResponse(
                error_message=status_message(shown), infer_response=failed
            ).SerializeToString()
        return b"".join(wire_format.enclosed(_RESPONSE, [response, _FINAL]))

    def taken(self) -> None:
        """Give back the memory and shares that count for the answer."""
        for call in self._taken:
            call()
        self._taken.clear()


async def answer_stream(requests: Requests, infer: Infer) -> AsyncIterator[bytes]:
    """Yield a ModelStreamInferResponse for each request.

    Args:
        infer: returns a ModelInferResponse.
    """
    answers: deque[_Answer] = deque()
    reading: asyncio.Task[inference.ModelInferRequest | None] | None = _read_next(requests)
    try:
        while answers or reading is not None:
            await _first_of(answers, reading)
            if reading is not None and reading.done() and len(answers) < _AT_ONCE:
                request = reading.result()
                reading = None
                if request is not None:
                    answers.append(_Answer(request, infer))
                    reading = _read_next(requests)
            while answers and answers[0].task.done():
                yield answers[0].task.result()
                answers.popleft().taken()
    finally:
        tasks: list[asyncio.Task[Any]] = [answer.task for answer in answers]
        if reading is not None:
            tasks.append(reading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for answer in answers:
            answer.taken()


async def _first_of(answers: deque[_Answer], reading: asyncio.Task[Any] | None) -> None:
    """Wait for the first answer, or for a request if there is room for one."""
    awaited: list[asyncio.Task[Any]] = [answers[0].task] if answers else []
    if reading is not None and len(answers) < _AT_ONCE:
        awaited.append(reading)
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def _read_next(requests: Requests) -> asyncio.Task[inference.ModelInferRequest | None]:
    """The next request; None at the end of the stream."""

    async def read() -> inference.ModelInferRequest | None:
        return await anext(requests, None)

    return asyncio.create_task(read())
