"""`PartialStep`: a step that clients feed and fetch in several requests; `handlers/partial_runs.py` answers these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aexec import errors
from aexec.hosting import DType, PartialRun, StepState, canonical_name, listed, near_names
from aexec_server.requests.run_table import Run
from aexec_server.requests.served_call import AnswerForm, ServedCall

__all__ = ["PartialStep"]

# After so long without a request it is given up; sooner, if the connection of the last one is closed.
IDLE_SECONDS = 600.0
LEFT_SECONDS = 60.0


class PartialStep:
    """A step in parts, and what is known of its feeds and fetches.

    Args:
        blind: connections say nothing of whether the client is still there: they are a front's, or gRPC's.

    Attributes:
        run: by which it is listed and cancelled.
        step: itself.
    """

    def __init__(self, run: Run, step: PartialRun, served: ServedCall, *, blind: bool = False) -> None:
        self.run = run
        self.step = step
        self._blind = blind
        self._feeds = dict(zip(map(canonical_name, served.inputs), served.input_dtypes, strict=True))
        self._fetches = dict(zip(map(canonical_name, served.names), served.dtypes, strict=True))
        self._timer: asyncio.TimerHandle | None = None
        self._asked = 0.0
        self._waiting = 0  # how many wait for a part
        self._connection: asyncio.BaseTransport | None = None

    def feed_dtypes(self, names: Sequence[str]) -> list[DType]:
        """Raises InvalidArgumentError for what was not set up."""
        return [_known(self._feeds, name, "feed") for name in names]

    def form(self, names: Sequence[str]) -> AnswerForm:
        """How such fetches are answered.  Raises InvalidArgumentError for what was not set up."""
        return AnswerForm(names, [_known(self._fetches, name, "fetch") for name in names])

    def keep(self, connection: asyncio.BaseTransport | None) -> None:
        """Somebody has asked for a part, on this connection: it is given up after a while from now."""
        self.let_go()
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._asked = loop.time()
        self._timer = loop.call_at(self._asked + min(LEFT_SECONDS, IDLE_SECONDS), self._look)

    @contextmanager
    def waited_for(self, connection: asyncio.BaseTransport | None) -> Iterator[None]:
        """Somebody asks for a part on this connection, and waits for it: whoever leaves then cancels the run."""
        self.keep(connection)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        idle = loop.time() - self._asked
        gone = self._connection is None or self._connection.is_closing()
        left = gone and not (self._blind or self._waiting)
        if left or idle >= IDLE_SECONDS:
            where = " and its client has left" if left else ""
            self.run.cancel(f"nobody asked for a part of it for {idle:.0f} s{where}")
        else:
            self._timer = loop.call_at(min(loop.time() + LEFT_SECONDS, self._asked + IDLE_SECONDS), self._look)

    def let_go(self) -> None:
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()

    @property
    def over(self) -> bool:
        """Is there nothing more to ask for?"""
        return self.step.exhausted or (self.step.done and self.step.state is not StepState.SUCCEEDED)


def _known(dtypes: dict[str, DType], name: str, what: str) -> DType:
    dtype = dtypes.get(canonical_name(name))
    if dtype is None:
        raise errors.InvalidArgumentError(
            f"The {what} {name[:200]} was not specified in partial_run_setup: there are {listed(dtypes)}"
            f"{near_names(name, dtypes)}"
        )
    return dtype
