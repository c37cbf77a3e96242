"""`PartialStep`: a step that clients feed and fetch in several requests; `partial_runs.py` answers these."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aexec import errors
from aexec.hosting import DType, PartialRun, StepState, canonical_name, listed, near_names
from aexec_server.run_table import Run
from aexec_server.served_call import AnswerForm, ServedCall

__all__ = ["PartialStep"]

# After so long without a request it is given up.
IDLE_SECONDS = 600.0


class PartialStep:
    """A step in parts, and what is known of its feeds and fetches.

    Attributes:
        run: by which it is listed and cancelled.
        step: itself.
    """

    def __init__(self, run: Run, step: PartialRun, served: ServedCall) -> None:
        self.run = run
        self.step = step
        self._feeds = dict(zip(map(canonical_name, served.inputs), served.input_dtypes, strict=True))
        self._fetches = dict(zip(map(canonical_name, served.names), served.dtypes, strict=True))
        self._timer: asyncio.TimerHandle | None = None

    def feed_dtypes(self, names: Sequence[str]) -> list[DType]:
        """Raises InvalidArgumentError for what was not set up."""
        return [_known(self._feeds, name, "feed") for name in names]

    def form(self, names: Sequence[str]) -> AnswerForm:
        """How such fetches are answered.  Raises InvalidArgumentError for what was not set up."""
        return AnswerForm(names, [_known(self._fetches, name, "fetch") for name in names])

    def keep(self) -> None:
        """Somebody has asked for a part: it is given up after a while from now."""
        self.let_go()
        reason = f"nobody asked for a part of it for {IDLE_SECONDS:g} s"
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.run.cancel, reason)

    def let_go(self) -> None:
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
