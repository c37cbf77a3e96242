"""`SessionRunHook`: called by a `TrainingSession` around each step, to watch it or to stop the training.

Next to read: `hooks.py`, the hooks of aexec; then `training_session.py`, which calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from aexec.graph.nodes.node import Tensor
from aexec.queues.coordinator import Coordinator
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.session.session import Session
from aexec.training.saver import Saver

__all__ = ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues", "Training"]


class Training(Protocol):
    """The part of a `TrainingSession` that hooks use."""

    @property
    def session(self) -> Session:
        """The present session."""

    @property
    def saver(self) -> Saver | None:
        """The saver of the checkpoints' variables."""

    def request_stop(self) -> None:
        """Request the stop."""

    def should_stop(self) -> bool:
        """True if a stop was requested."""

    async def wait_for_stop(self) -> None:
        """Wait until a stop is requested."""

    def changing(self) -> AbstractAsyncContextManager[None]:
        """Context manager for changing variables other than by a step: it and snapshots exclude each other."""

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """Run a step."""

    async def global_step(self) -> int | None:
        """The number of steps, or None if the graph has no global step."""

    async def snapshot(self, saver: Saver | None = None) -> tuple[dict[Tensor, Any], int | None]:
        """Return what a saver would save, by default the session's, and the global step, while no step runs."""


@dataclass(frozen=True)
class SessionRunArgs:
    """Fetches, feeds and options that a hook adds to a step.

    Attributes:
        fetches: as for `Session.run`.
        feeds: as for `Session.run`; feeding a tensor twice is an error.
        options: None for none; those of all hooks and of the caller are joined.
    """

    fetches: Any
    feeds: Mapping[Any, Any] = field(default_factory=dict)
    options: RunOptions | None = None


@dataclass(frozen=True)
class SessionRunValues:
    """A hook's results of a step.

    Attributes:
        results: of the hook's own fetches; None if it had none.
        global_step: its value after the step, or None if the graph has no global step.
        options, metadata: those of the step; None if neither the caller nor a hook gave options.
    """

    results: Any
    global_step: int | None
    options: RunOptions | None = None
    metadata: RunMetadata | None = None


class SessionRunContext:
    """A step, as hooks see it.

    Attributes:
        fetches: the caller's fetches.
        feeds: the caller's feeds.
        session: runs the step.
    """

    def __init__(self, session: Training, fetches: Any, feeds: Mapping[Any, Any]) -> None:
        self.session = session
        self.fetches = fetches
        self.feeds = feeds

    def request_stop(self) -> None:
        """Make this step the last."""
        self.session.request_stop()


class SessionRunHook:
    """The base of hooks, which does nothing.  An error of a method ends the training.

    Attributes:
        changes_in_rounds: True if not the steps change the variables, but this hook, in blocks of `Training.changing`.
    """

    changes_in_rounds: ClassVar[bool] = False

    def begin(self) -> None:
        """Called once, while nodes may still be added to the graph, which is the one being built."""

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        """Called when the session is initialised: at first, and each time it was made anew."""

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs | None:
        """Called when a step begins; returns the fetches and feeds to add to it."""
        return None

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        """Called when a step has ended without an error."""

    async def end(self, session: Training) -> None:
        """Called when the training has ended without an error; steps may still be run."""
