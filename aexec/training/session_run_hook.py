"""`SessionRunHook`: what a `TrainingSession` calls around each step, to look at it or to stop the training.

Next to read: `hooks.py`, the ones that are there; then `training_session.py`, which calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from aexec.graph.nodes.node import Tensor
from aexec.queues.coordinator import Coordinator
from aexec.runtime.session.session import Session
from aexec.training.saver import Saver

__all__ = ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues", "Training"]


class Training(Protocol):
    """What hooks know of a `TrainingSession`."""

    @property
    def session(self) -> Session:
        """The session of now."""

    @property
    def saver(self) -> Saver | None:
        """Of what checkpoints have."""

    def request_stop(self) -> None:
        """Ask for the stop."""

    def should_stop(self) -> bool:
        """Has anybody asked for the stop?"""

    async def wait_for_stop(self) -> None:
        """Wait until somebody has."""

    def changing(self) -> AbstractAsyncContextManager[None]:
        """A block that changes variables, other than a step: snapshots wait for its end, and it for theirs."""

    async def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Run a step."""

    async def global_step(self) -> int | None:
        """The number of steps, or None if the graph has no global step."""

    async def snapshot(self) -> tuple[dict[Tensor, Any], int | None]:
        """What the saver would save, and the global step, of a moment at which no step runs."""


@dataclass(frozen=True)
class SessionRunArgs:
    """What a hook adds to a step.

    Attributes:
        fetches: as for `Session.run`.
        feeds: as for `Session.run`; what others feed too is an error.
    """

    fetches: Any
    feeds: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionRunValues:
    """What came of it.

    Attributes:
        results: of the hook's own fetches; None if it had none.
        global_step: its number after the step, or None if the graph has no global step.
    """

    results: Any
    global_step: int | None


class SessionRunContext:
    """A step, as hooks see it.

    Attributes:
        fetches: what the caller asked for.
        feeds: what the caller feeds.
        session: runs the step.
    """

    def __init__(self, session: Training, fetches: Any, feeds: Mapping[Any, Any]) -> None:
        self.session = session
        self.fetches = fetches
        self.feeds = feeds

    def request_stop(self) -> None:
        """Let this step be the last."""
        self.session.request_stop()


class SessionRunHook:
    """The base of hooks, which does nothing.  What a method raises ends the training.

    Attributes:
        changes_in_rounds: not the steps change the variables, but this hook, in blocks of `Training.changing`.
    """

    changes_in_rounds: ClassVar[bool] = False

    def begin(self) -> None:
        """Called once, while nodes may still be added to the graph, which is the one being built."""

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        """The session is initialised: at first, and again whenever it had to be made anew."""

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs | None:
        """A step begins: what should it compute besides?"""
        return None

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        """A step has ended, without an error."""

    async def end(self, session: Training) -> None:
        """The training has ended, without an error; steps may still be run."""
