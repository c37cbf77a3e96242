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

# Seconds without a request after which a step is cancelled: in general, and if its last connection is closed.
IDLE_SECONDS = 600.0
LEFT_SECONDS = 60.0


class PartialStep:
    """A step in parts, with the types of its feeds and fetches.

    Args:
        blind: a closed connection does not mean that the client has left: it is a front's, a proxy's, or gRPC's.

    Attributes:
        run: the entry under which it is listed and cancelled.
        step: the step itself.
    """

    def __init__(self, run: Run, step: PartialRun, served: ServedCall, *, blind: bool = False) -> None:
        self.run = run
        self.step = step
        self._blind = blind
        self._feeds = dict(zip(map(canonical_name, served.inputs), served.input_dtypes, strict=True))
        self._fetches = dict(zip(map(canonical_name, served.names), served.dtypes, strict=True))
        self._timer: asyncio.TimerHandle | None = None
        self._asked = 0.0
        self._waiting = 0  # number of requests that wait for a part
        self._connection: asyncio.BaseTransport | None = None

    def feed_dtypes(self, names: Sequence[str]) -> list[DType]:
        """Return the types of feeds.  Raises InvalidArgumentError for one that was not set up."""
        return [_known(self._feeds, name, "feed") for name in names]

    def form(self, names: Sequence[str]) -> AnswerForm:
        """Return the answer's form for fetches.  Raises InvalidArgumentError for one that was not set up."""
        return AnswerForm(names, [_known(self._fetches, name, "fetch") for name in names])

    def keep(self, connection: asyncio.BaseTransport | None) -> None:
        """Note a request for a part on this connection, and start the idle time anew."""
        self.let_go()
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._asked = loop.time()
        self._timer = loop.call_at(self._asked + min(LEFT_SECONDS, IDLE_SECONDS), self._look)

    @contextmanager
    def waited_for(self, connection: asyncio.BaseTransport | None) -> Iterator[None]:
        """Context manager for a request that waits for a part: if its client leaves, the run is cancelled by the
        request, not by the idle timer.
        """
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
        """True if nothing more can be fed or fetched."""
        return self.step.exhausted or (self.step.done and self.step.state is not StepState.SUCCEEDED)


def _known(dtypes: dict[str, DType], name: str, what: str) -> DType:
    dtype = dtypes.get(canonical_name(name))
    if dtype is None:
        raise errors.InvalidArgumentError(
            f"The {what} {name[:200]} was not specified in partial_run_setup: there are {listed(dtypes)}"
            f"{near_names(name, dtypes)}"
        )
    return dtype
