"""Runs of models, the same for all protocols of HTTP: reads a request, runs it, times it, and answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from aiohttp import web

import aexec
from aexec import errors
from aexec_server.clients.callers import Caller
from aexec_server.core.direct_call import DirectRun
from aexec_server.handlers.run_execution import RunExecution
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.http.compression import compress
from aexec_server.http.json_style import JsonStyle, json_style
from aexec_server.models.models import Model, ModelVersion
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer, tensors_response
from aexec_server.requests.run_table import Run
from aexec_server.requests.served_call import AnswerForm, ServedCall
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["DirectModelCall", "ModelRequest", "Read", "execute_model_run", "model_names", "run_model"]


def model_names(models: Iterable[Model]) -> web.Response:
    """Answer with the names of all models, in any state."""
    return bodies.json_response({"models": sorted(model.name for model in models)})


class ModelRequest(Protocol):
    """A decoded request that knows how it is answered."""

    @property
    def asked(self) -> RunRequest: ...

    @property
    def rows(self) -> int:
        """Number of rows, for the model's statistics."""
        ...

    def check(self, served: ServedCall) -> None:
        """Check before the run that the answer can hold the outputs.  Raises OpError."""

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write the answer; called in a thread if it is large."""


Read = Callable[[bodies.Body, HostedSession], Awaitable[ModelRequest]]


async def run_model(
    runs: RunHandlers,
    request: web.Request,
    version: ModelVersion,
    read: Read,
    on_run: Callable[[Run], object] | None = None,
) -> web.Response:
    """Answer a request to a model.

    Args:
        read: decodes the body.
        on_run: called with the run before it begins.

    Raises:
        NotFoundError, UnavailableError: the version does not serve.
        ResourceExhaustedError: too many runs are in flight.
    """

    async def answer(
        request: web.Request, hosted: HostedSession, run: Run, body: bodies.Body, arrival: float
    ) -> web.Response:
        async def styled() -> ModelRequest:
            wanted = await read(body, hosted)
            wanted.asked.style = json_style(request)
            return wanted

        written = await execute_model_run(runs.execution, version, hosted, run, styled(), len(body), arrival)
        return await compress(request, tensors_response(*written))

    return await runs.serve(request, version.hosted, answer, on_run=on_run)


async def execute_model_run(
    execution: RunExecution,
    version: ModelVersion,
    hosted: HostedSession,
    run: Run,
    reading: Awaitable[ModelRequest],
    size: int,
    arrival: float,
) -> Answer:
    """Read a request of `size` bytes, execute its run, and write the answer; the model's statistics count the
    request.
    """
    began = int(arrival * 1e9)
    ran = 0

    def write(
        run_id: str,
        asked: RunRequest,
        served: AnswerForm,
        values: Sequence[Any],
        metadata: aexec.RunMetadata | None,
    ) -> Answer:
        nonlocal ran
        ran = time.monotonic_ns()
        return wanted.write(version, served, values)

    try:
        wanted = await bodies.in_time(reading, run.deadline)
        asked = wanted.asked
        wanted.check(hosted.served(asked, by_admin=run.by_admin))
        decoded = time.monotonic_ns()
        written = await execution.execute(hosted, run, asked, size, arrival, write)
    except errors.OpError:
        version.statistics.count_failure(began)
        raise
    finished = ran or time.monotonic_ns()
    version.statistics.count_success(began, decoded, finished, wanted.rows, int(run.queued * 1e9))
    return written


class DirectModelCall:
    """A `DirectCall` of a model.

    Args:
        version: returns the version that serves; raises OpError if there is none.
        read: decodes a body; returns None if that would take too long, and raises OpError if the body is not valid.
        style: how numbers are written in the answer's JSON.
    """

    media = "application/json"
    compresses = True

    def __init__(
        self,
        version: Callable[[], ModelVersion],
        read: Callable[[bytes, HostedSession], ModelRequest | None],
        style: JsonStyle | None,
    ) -> None:
        self._version = version
        self._read = read
        self._style = style

    def read(self, body: bytes, caller: Caller) -> DirectRun | None:
        version = self._version()
        hosted = version.hosted
        wanted = self._read(body, hosted)
        if wanted is None:
            return None
        wanted.asked.style = self._style
        return _DirectModelRun(version, hosted, wanted)


class _DirectModelRun:
    """`DirectRun` of a model."""

    __slots__ = ("_version", "_wanted", "asked", "check", "hosted")

    def __init__(self, version: ModelVersion, hosted: HostedSession, wanted: ModelRequest) -> None:
        self._version = version
        self._wanted = wanted
        self.hosted = hosted
        self.asked = wanted.asked
        self.check = wanted.check

    def write(self, run_id: str, served: ServedCall, values: Sequence[Any]) -> Answer:
        return self._wanted.write(self._version, served, values)

    def passed(self, arrival: float, decoded: float, ran: float) -> None:
        began, read, values = (int(seconds * 1e9) for seconds in (arrival, decoded, ran))
        self._version.statistics.count_success(began, read, values, self._wanted.rows, 0)
