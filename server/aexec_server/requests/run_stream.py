"""`RunStream`: outputs, progress and end of a run under way, for any number of readers.

`run_events.py` writes them to clients.  A slow reader costs no memory: the outputs are kept by the run itself, whose
answer needs them, and progress is that of the moment at which the reader asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from aexec import errors
from aexec.hosting import DType, canonical_name
from aexec_server.requests.run_response import check_answer_size
from aexec_server.requests.run_table import Run
from aexec_server.requests.run_traces import Phases
from aexec_server.requests.served_call import AnswerForm
from aexec_server.requests.tensors import size_of

__all__ = ["PING_SECONDS", "Event", "Output", "RunStream"]

PROGRESS_SECONDS = 1.0
PING_SECONDS = 15.0


class Output(NamedTuple):
    """A fetched tensor whose value is known."""

    name: str
    dtype: DType
    value: Any


class Event(NamedTuple):
    """An event of a run.

    Attributes:
        kind: `output`, `progress`, `error`, `done` or `ping`.
        what: an `Output`, members of an object, an error, or None.
    """

    kind: str
    what: Any


class RunStream:
    """The outputs, progress and end of a run under way, for any number of readers.

    Args:
        progress: returns what a run is doing now.
        most: limit of the outputs' bytes together.
        settled: returns once what an event may tell of is on the disk, if the run's session is durable.

    Attributes:
        watched: report outputs as they come.
        as_list: write outputs as V2 tensors.
        begun: set once there is an event to read, or the run has ended.
        run: the run, once it is known.
        phases: to which the time of writing outputs is added; None if the run is not traced.
    """

    def __init__(
        self,
        progress: Callable[[Run], dict[str, Any]],
        most: int,
        settled: Callable[[], Awaitable[None]],
        *,
        watched: bool = False,
    ) -> None:
        self.watched = watched
        self.as_list = False
        self.begun = asyncio.Event()
        self.run: Run | None = None
        self.phases: Phases | None = None
        self._progress = progress
        self._most = most
        self._settled = settled
        self._size = 0
        self._names: dict[str, list[tuple[str, DType]]] = {}
        self._outputs: list[Output] = []
        self._ended = False
        self._error: errors.OpError | None = None
        self._changed = asyncio.Event()

    def attach(self, run: Run) -> None:
        """Connect the stream with its run."""
        self.run = run
        run.stream = self

    def begin(self, tensors: tuple[str, ...], form: AnswerForm, *, as_list: bool) -> None:
        """Note that the run has begun.

        Args:
            tensors: names of the fetched tensors in the graph.
            form: their names and types in the answer.
        """
        self.as_list = as_list
        for tensor, name, dtype in zip(tensors, form.names, form.dtypes, strict=True):
            self._names.setdefault(canonical_name(tensor), []).append((name, dtype))
        self.begun.set()

    def output(self, tensor: str, value: Any) -> None:
        """Add a fetched tensor.  Cancels the run if its outputs become too large together."""
        for name, dtype in self._names.get(canonical_name(tensor), ()):
            self._size += size_of(value)
            try:
                check_answer_size(self._size, self._most)
            except errors.ResourceExhaustedError as error:
                self._error = error
                assert self.run is not None
                self.run.cancel("its outputs are too large")
                return
            self._outputs.append(Output(name, dtype, value))
        self._tell()

    def end(self, error: errors.OpError | None) -> None:
        """Note that the run has ended, with `error` if it failed."""
        self._ended = True
        self._error = self._error or error
        self.begun.set()
        self._tell()

    @property
    def told_anything(self) -> bool:
        """True if the run has begun, so that failure is not all there is to tell."""
        return bool(self._names)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def settled(self, event: Event) -> Event:
        """The event, once what it may tell of is on the disk; an error if that cannot be written."""
        try:
            await self._settled()
        except errors.OpError as error:
            return Event("error", error)
        return event

    async def events(
        self, progress_seconds: float = PROGRESS_SECONDS, ping_seconds: float = PING_SECONDS
    ) -> AsyncIterator[Event]:
        """Iterate over the events, from the outputs so far to the run's end.

        Args:
            progress_seconds: interval at which progress is looked at; it is an event if it has changed.
            ping_seconds: seconds without another event after which a `ping` comes.
        """
        clock = asyncio.get_running_loop().time
        told = 0
        last: dict[str, Any] = {}
        quiet_since = clock()
        while True:
            changed = self._changed
            while told < len(self._outputs):
                told += 1
                yield Event("output", self._outputs[told - 1])
                quiet_since = clock()
            if self._ended and told == len(self._outputs):
                yield Event("done", None) if self._error is None else Event("error", self._error)
                return
            progress = {} if self.run is None else self._progress(self.run)
            if progress != last:
                last = progress
                yield Event("progress", progress)
                quiet_since = clock()
            elif clock() - quiet_since >= ping_seconds:
                yield Event("ping", None)
                quiet_since = clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(progress_seconds):
                    await changed.wait()
