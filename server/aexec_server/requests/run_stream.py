"""`RunStream`: what a run tells while it is under way, for any number of readers: outputs, progress, its end.

`run_events.py` writes it to clients.  Nothing is kept for a reader that is slow: outputs are kept by the run itself,
which answers for them, and progress is what it is when the reader gets to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from aexec import errors
from aexec.hosting import DType, canonical_name
from aexec_server.requests.run_response import check_answer_size
from aexec_server.requests.run_table import Run
from aexec_server.requests.served_call import AnswerForm
from aexec_server.requests.tensors import size_of

__all__ = ["Event", "Output", "RunStream"]

PROGRESS_SECONDS = 1.0
PING_SECONDS = 15.0


class Output(NamedTuple):
    """A fetched tensor that is there."""

    name: str
    dtype: DType
    value: Any


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        kind: `output`, `progress`, `error`, `done` or `ping`.
        what: an `Output`, members of an object, an error, or None.
    """

    kind: str
    what: Any


class RunStream:
    """The outputs, progress and end of a run under way, for any number of readers.

    Args:
        progress: says what a run is doing now.
        most: bytes that its outputs may have together.

    Attributes:
        watched: its outputs are told of as they come.
        as_list: they are wanted as V2 tensors.
        begun: something of it can be told, or it has ended.
        run: whose it is, once that is there.
    """

    def __init__(self, progress: Callable[[Run], dict[str, Any]], most: int, *, watched: bool = False) -> None:
        self.watched = watched
        self.as_list = False
        self.begun = asyncio.Event()
        self.run: Run | None = None
        self._progress = progress
        self._most = most
        self._size = 0
        self._names: dict[str, list[tuple[str, DType]]] = {}
        self._outputs: list[Output] = []
        self._ended = False
        self._error: errors.OpError | None = None
        self._changed = asyncio.Event()

    def attach(self, run: Run) -> None:
        """It is of this run."""
        self.run = run
        run.stream = self

    def begin(self, tensors: tuple[str, ...], form: AnswerForm, *, as_list: bool) -> None:
        """It runs from now on.

        Args:
            tensors: names of what is fetched, in the graph.
            form: how an answer calls these.
        """
        self.as_list = as_list
        for tensor, name, dtype in zip(tensors, form.names, form.dtypes, strict=True):
            self._names.setdefault(canonical_name(tensor), []).append((name, dtype))
        self.begun.set()

    def output(self, tensor: str, value: Any) -> None:
        """A fetched tensor is there; if they are too large together the run ends."""
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
        """It has ended, well or with an error."""
        self._ended = True
        self._error = self._error or error
        self.begun.set()
        self._tell()

    @property
    def told_anything(self) -> bool:
        """Has it begun, and not only failed?"""
        return bool(self._names)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def events(
        self, progress_seconds: float = PROGRESS_SECONDS, ping_seconds: float = PING_SECONDS
    ) -> AsyncIterator[Event]:
        """What happens, from its outputs so far to its end.

        Args:
            progress_seconds: how often it is looked at what it is doing; that is told if it has changed.
            ping_seconds: after so long with nothing to tell, that is told.
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
