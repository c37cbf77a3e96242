"""`RemoteRuns`: the runs of a session in a server that this program has started, and their cancellation."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.remote.remote_graph import RemoteGraph
from aexec.remote.remote_partial_run import RemotePartialRun
from aexec.remote.remote_step import GRACE, RemoteStep
from aexec.remote.run_messages import (
    both_fed_and_fetched,
    fed_once,
    options_message,
    read_response,
    run_message,
    sent_feeds,
)
from aexec.remote.service import Service
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds, to_values
from aexec.runtime.session.callable import Request, canonical_name
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["RemoteRuns"]

T = TypeVar("T")

# Larger messages, in bytes, are written and read in a thread.
_LARGE = 1 << 20


class RemoteRuns:
    """Sends runs of a session to its server.

    Args:
        service: the server.
        handle: returns the session's handle there; raises FailedPreconditionError before the session is entered.
        graph: the session's graph.

    Attributes:
        closed: True once the session is closed, or about to be.
    """

    def __init__(self, service: Service, handle: Callable[[], str], graph: RemoteGraph) -> None:
        self._service = service
        self._handle = handle
        self._graph = graph
        self.closed = False
        self._steps: dict[str, RemoteStep] = {}
        self._partial_runs: dict[str, RemotePartialRun] = {}

    @property
    def steps(self) -> tuple[RemoteStep, ...]:
        """The steps in flight, oldest first."""
        return tuple(self._steps.values())

    async def close(self) -> None:
        """Refuse new runs, cancel all steps, and wait for their end."""
        self.closed = True
        steps = self.steps
        for step in steps:
            step.cancel("the session was closed")
        for step in steps:
            await step.settle()
        for partial_run in self._partial_runs.values():
            await partial_run.settle()

    def check_open(self) -> None:
        """Raise CancelledError if the session is closed."""
        if self.closed:
            raise errors.CancelledError("Session has been closed.")

    def start(
        self,
        fetches: Sequence[str],
        feeds: dict[str, Any],
        targets: Sequence[str],
        build: Callable[[Sequence[Any]], Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        run_id: str | None = None,
    ) -> RemoteStep:
        """Start a run.

        Args:
            build: makes the step's result from the fetched values.
            run_id: name of the run in the server; by default one that cannot be guessed.

        Raises:
            AlreadyExistsError: a run of that name is in flight.
            CancelledError: the session is closed.
        """
        self.check_open()
        settings = options_message(options)
        name = secrets.token_hex(8) if run_id is None else run_id

        async def run() -> Any:
            try:
                values = await self._values(name, fetches, feeds, targets, settings, metadata)
                return build(to_values([values[each] for each in fetches]))
            finally:
                del self._steps[name]

        if name in self._steps:
            raise errors.AlreadyExistsError(f"Run '{name}' is in flight")
        seconds = settings.timeout_in_ms / 1e3 if settings.timeout_in_ms else None
        step = self._steps[name] = RemoteStep(name, run, lambda reason: self.cancel(name, reason), seconds)
        return step

    async def _values(
        self,
        run_id: str,
        fetches: Sequence[str],
        feeds: dict[str, Any],
        targets: Sequence[str],
        settings: proto.RunOptions,
        metadata: RunMetadata | None,
    ) -> dict[str, Any]:
        """Return fetch → value for one run, which the server executes unless all fetches are fed."""
        # A server does not return fed values.
        fed = both_fed_and_fetched(feeds, fetches)
        asked = [each for each in fetches if each not in fed]
        handle = self._handle()
        await self._graph.send_new_nodes(handle)
        known = self._graph.known(feeds)
        beginning = self._service.beginning(handle)
        size = sum(getattr(value, "nbytes", 0) for value in feeds.values())
        body = await _beside(size, lambda: run_message(beginning, feeds, known, asked, targets, settings))
        values = _answered(fed, body) if fed else {}
        if asked or targets:
            timeout = settings.timeout_in_ms / 1e3 + GRACE if settings.timeout_in_ms else None
            answer = await self._service.run(handle, body, run_id, timeout)
            got = await _beside(len(answer), lambda: read_response(answer, asked, metadata))
            values.update(zip(asked, got, strict=True))
        return values

    async def cancel(self, run_id: str, reason: str) -> bool:
        """Cancel a run by its name, started by any client; return True unless it has ended."""
        try:
            return await self._service.cancel(self._handle(), run_id, reason)
        except errors.NotFoundError:
            return True  # the server remembers it

    async def set_up_partial_run(
        self, fetches: Any, feeds: Iterable[Any], targets: Iterable[Any], options: RunOptions | Message | None
    ) -> RemotePartialRun:
        """Start a step that is fed and fetched in several calls of `go_on`.

        Raises:
            UnimplementedError: options other than a deadline.
        """
        settings = options_message(options)
        timeout, settings.timeout_in_ms = settings.timeout_in_ms, 0
        if settings != options_message(None):
            raise errors.UnimplementedError("Of the options of a partial run in a server the timeout counts")
        session = self._handle()
        await self._graph.send_new_nodes(session)
        request = Request(self._graph.names, FetchMapper(fetches), feeds, targets)
        message = proto.PartialRunSetupRequest(feed=request.feeds, fetch=request.fetches, target=request.targets)
        handle = await self._service.set_up(session, message, timeout)
        step = self._partial_runs[handle] = RemotePartialRun(handle, lambda reason: self.cancel(handle, reason))
        return step

    async def go_on(self, handle: str, fetches: Any, feeds: Mapping[Any, Any]) -> Any:
        """Feed and fetch the next part of a partial run."""
        given = flat_feeds(feeds)
        mapper = FetchMapper(fetches)
        request = Request(self._graph.names, mapper, given, ())
        if request.targets:
            raise errors.InvalidArgumentError("partial_run() requires empty target_list.")
        values = fed_once(request.feeds, given.values())
        session, known = self._handle(), self._graph.known(values)
        beginning = self._service.beginning(session)
        body = run_message(beginning, values, known, request.fetches, (), proto.RunOptions(), handle)
        answer = await self._service.run(session, body, None)
        return mapper.build(to_values(read_response(answer, request.fetches, None)))


def _answered(fetches: Sequence[str], body: bytes) -> dict[str, Any]:
    """Return fetch → its value, for fetches that are fed in a run's message."""
    sent = sent_feeds(body)
    return {name: sent[canonical_name(name)] for name in fetches}


async def _beside(size: int, work: Callable[[], T]) -> T:
    """Do work on this many bytes; in a thread if it would block the event loop."""
    if size <= _LARGE:
        try:
            return work()
        except NeedsThreadError:
            pass
    return await run_in_thread(work, on_cancel=OnCancel.ABANDON)
