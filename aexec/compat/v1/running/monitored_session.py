"""`tf.train.MonitoredTrainingSession` and its kin: sessions that prepare themselves and call hooks, without coroutines.

Next to read: `aexec/training/training_session.py`, which they run on an event loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from aexec import summary, training
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.results import writable
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.running.session_manager import SessionManager
from aexec.compat.v1.running.training import (
    CheckpointSaverHook,
    Scaffold,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    SummarySaverHook,
)
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.queues.coordinator import Coordinator
from aexec.runtime.config import RunMetadata, RunOptions, SessionConfig
from aexec.runtime.session.session import Session as _Session
from aexec.runtime.threads.loop_thread import LoopThread
from aexec.training.session_run_hook import Training
from aexec.variables.initialization import global_variables_initializer

__all__ = [
    "ChiefSessionCreator",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "SessionCreator",
    "SingularMonitoredSession",
    "StepContext",
]

_DEFAULT = object()  # in place of an interval: TensorFlow's


class SessionCreator:
    """`tf.train.SessionCreator`: says how a `MonitoredSession` is made; only aexec's own are used."""

    def create_session(self) -> Session:
        """A new session.  Raises NotImplementedError: a subclass makes it."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class ChiefSessionCreator(SessionCreator):
    """`tf.train.ChiefSessionCreator`: a session of this process, restored from a folder if that has a checkpoint.

    Args:
        checkpoint_filename_with_path: a checkpoint that is restored in any case.

    Raises:
        ValueError: both a folder and a checkpoint are given.
        UnimplementedError: `master` is given.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        refuse("ChiefSessionCreator", master=master or None)
        if checkpoint_dir and checkpoint_filename_with_path:
            raise errors.InvalidValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        self.scaffold = scaffold or Scaffold()
        self.config = config
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_path = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """A new session, which is restored from the folder or else initialised."""
        scaffold = self.scaffold.finalize()
        local = Scaffold.default_local_init_op() if scaffold.local_init_op is None else scaffold.local_init_op
        return SessionManager(local, scaffold.ready_op).prepare_session(
            "",
            global_variables_initializer() if scaffold.init_op is None else scaffold.init_op,
            scaffold.saver,
            self.checkpoint_dir,
            config=self.config,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=None if scaffold.init_fn is None else partial(scaffold.init_fn, scaffold),
        )


class _Awaited(training.SessionRunHook):
    """Adapts a hook of the program to aexec's interface."""

    def __init__(self, hook: SessionRunHook, owner: MonitoredSession) -> None:
        self._hook = hook
        self._owner = owner

    def begin(self) -> None:
        self._hook.begin()

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        await asyncio.to_thread(self._hook.after_create_session, self._owner.plain, coordinator)

    def _context(self, context: training.SessionRunContext) -> SessionRunContext:
        asked = SessionRunArgs(context.fetches, context.feeds)
        return SessionRunContext(asked, self._owner.plain, context.request_stop)

    async def before_run(self, context: training.SessionRunContext) -> training.SessionRunArgs | None:
        asked = await asyncio.to_thread(self._hook.before_run, self._context(context))
        if asked is None:
            return None
        options = None if asked.options is None else RunOptions.of(asked.options)
        return training.SessionRunArgs([] if asked.fetches is None else asked.fetches, asked.feed_dict or {}, options)

    async def after_run(self, context: training.SessionRunContext, values: training.SessionRunValues) -> None:
        found = values.results
        results = SessionRunValues(
            None if isinstance(found, list) and not found else found,
            (values.options or RunOptions()).to_proto(),
            (values.metadata or RunMetadata()).to_proto(),
        )
        await asyncio.to_thread(self._hook.after_run, self._context(context), results)

    async def end(self, session: Training) -> None:
        await asyncio.to_thread(self._hook.end, self._owner.plain)


class _Plain:
    """The session without hooks, for use in a hook's thread."""

    def __init__(self, owner: MonitoredSession) -> None:
        self._owner = owner
        self.graph = owner.graph

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run a step; `options` and `run_metadata` as of `MonitoredSession.run`."""
        return self._owner.reported(partial(self._owner.ours.session.run, fetches, feed_dict), options, run_metadata)


class StepContext:
    """What a function of `run_step_fn` gets.

    Attributes:
        session: runs without hooks.
        run_with_hooks: `MonitoredSession.run`.
    """

    def __init__(self, owner: MonitoredSession) -> None:
        self.session = owner.plain
        self.run_with_hooks = owner.run
        self._owner = owner

    def request_stop(self) -> None:
        """End the training: leaves the block of the session, without an error."""
        self._owner.ours.request_stop()
        raise StopIteration("step_fn has requested the iterations to stop.")


class MonitoredSession:
    """`tf.train.MonitoredSession`: initialises or restores itself, and calls hooks.

    It is open when it is made.  Leave its `with` block, or call `close`.

    Args:
        session_creator: a `ChiefSessionCreator`; by default one of the default graph.
        hooks: the program's or aexec's, called around each step.

    Attributes:
        ours: the `aexec.training.TrainingSession`, on an event loop of its own.
    """

    StepContext = StepContext

    def __init__(
        self,
        session_creator: Any = None,
        hooks: Sequence[Any] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        creator = session_creator or ChiefSessionCreator()
        if not isinstance(creator, ChiefSessionCreator):
            raise errors.UnsupportedError(f"MonitoredSession: session_creator={creator!r} is not supported")
        scaffold = creator.scaffold
        self.graph = get_default_graph()
        self.plain = _Plain(self)
        settings = SessionConfig.of(creator.config)
        self._thread = LoopThread("aexec.compat.training")
        self.ours = training.TrainingSession(
            self.graph,
            checkpoint_dir=creator.checkpoint_dir,
            checkpoint_path=creator.checkpoint_path,
            hooks=[_Awaited(hook, self) if isinstance(hook, SessionRunHook) else hook for hook in hooks or ()],
            save_checkpoint_secs=0,
            saver=None if scaffold.saver is None else scaffold.saver.ours,
            init_op=scaffold.init_op,
            init_feeds=scaffold.init_feed_dict,
            init_fn=None if scaffold.init_fn is None else _called(scaffold, self.plain),
            local_init_op=scaffold.local_init_op,
            ready_op=scaffold.ready_op,
            make_session=lambda graph: _Session(graph, config=settings),
            handle_signals=False,
        )
        try:
            self.wait(self.ours.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        self._open = True

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the session's loop; return its result."""
        return self._thread.wait(coroutine)

    def __enter__(self) -> MonitoredSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._open = False
        if isinstance(error, StopIteration) and self.ours.should_stop():
            error = kind = traceback = None
        try:
            return bool(self.wait(self.ours.__aexit__(kind, error, traceback))) or error is None
        finally:
            self._thread.stop()

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run a step, with the additional fetches and options of hooks.

        Args:
            options: a `tf.RunOptions`.
            run_metadata: a `tf.RunMetadata`, which is filled.
        """
        return self.reported(partial(self.ours.run, fetches, feed_dict), options, run_metadata)

    def reported(self, run: Callable[..., Any], options: Any, run_metadata: Any) -> Any:
        """The values of a coroutine function that takes aexec's options, with TensorFlow's."""
        metadata = None if run_metadata is None else RunMetadata()
        settings = None if options is None else RunOptions.of(options)
        found = self.wait(run(options=settings, metadata=metadata))
        if metadata is not None:
            run_metadata.CopyFrom(metadata.to_proto())
        return writable(found)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call a function with a `StepContext`; return its result.

        Raises:
            ValueError: its one argument is not named `step_context`.
        """
        names = [name for name in inspect.signature(step_fn).parameters if name != "self"]
        if names != ["step_context"]:
            raise errors.InvalidValueError(f"'step_fn' must have one argument, step_context, and has {names}.")
        return step_fn(StepContext(self))

    def should_stop(self) -> bool:
        """True if a hook, or the end of input, requested the stop, or the session is closed."""
        return not self._open or self.ours.should_stop()

    def close(self) -> None:
        """Close the session, if it is not used in a `with` block."""
        if self._open:
            self.__exit__(None, None, None)


def _called(scaffold: Scaffold, session: Any) -> Callable[[Any], Any]:
    """A scaffold's function, which may wait for runs of the session, in a thread."""

    async def call(_: Any) -> None:
        assert scaffold.init_fn is not None
        await asyncio.to_thread(scaffold.init_fn, scaffold, session)

    return call


class SingularMonitoredSession(MonitoredSession):
    """`tf.train.SingularMonitoredSession`: a `MonitoredSession` by its parts."""

    def __init__(
        self,
        hooks: Sequence[Any] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """The session without hooks."""
        return self.plain


def _intervals(steps: Any, secs: Any, otherwise: tuple[int | None, float | None]) -> tuple[int | None, float | None]:
    """Steps and seconds between two savings: TensorFlow's if neither is given; None for never."""
    if steps is _DEFAULT and secs is _DEFAULT:
        return otherwise
    found = [None if value is _DEFAULT or (value is not None and value <= 0) else value for value in (steps, secs)]
    return (None, found[1]) if found[1] is not None else (found[0], None)


def MonitoredTrainingSession(  # noqa: N802
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Any = None,
    hooks: Sequence[Any] | None = None,
    chief_only_hooks: Sequence[Any] | None = None,
    save_checkpoint_secs: Any = _DEFAULT,
    save_summaries_steps: Any = _DEFAULT,
    save_summaries_secs: Any = _DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = _DEFAULT,
    summary_dir: str | None = None,
    save_graph_def: bool = True,
) -> MonitoredSession:
    """`tf.train.MonitoredTrainingSession`: a `MonitoredSession` that also saves and counts.

    Args:
        checkpoint_dir: checkpoints are restored from there, and saved there every `save_checkpoint_steps` steps or
            `save_checkpoint_secs` seconds, 600 by default; None for both for never.
        summary_dir: summaries are written there every `save_summaries_steps` steps, 100 by default, or
            `save_summaries_secs` seconds; by default into `checkpoint_dir`.
        log_step_count_steps: how often the steps per second are logged and written, if there is a folder of summaries.
    """
    refuse("MonitoredTrainingSession", is_chief=None if is_chief else "False")
    scaffold = scaffold or Scaffold()
    creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    found: list[Any] = list(chief_only_hooks or ())
    if folder := summary_dir or checkpoint_dir:
        writer = summary.FileWriter(folder)
        found.append(_Closing(writer))
        if log_step_count_steps is not None and log_step_count_steps > 0:
            found.append(StepCounterHook(log_step_count_steps, summary_writer=writer))
        steps, secs = _intervals(save_summaries_steps, save_summaries_secs, (100, None))
        if steps or secs:
            found.append(SummarySaverHook(steps, secs, summary_writer=writer, scaffold=scaffold))
    if checkpoint_dir:
        steps, secs = _intervals(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
        if steps or secs:
            found.append(CheckpointSaverHook(checkpoint_dir, secs, steps, scaffold=scaffold))
    return MonitoredSession(creator, [*found, *(hooks or ())], stop_grace_period_secs)


class _Closing(training.SessionRunHook):
    """Closes a writer when the training ends."""

    def __init__(self, writer: summary.FileWriter) -> None:
        self._writer = writer

    async def end(self, session: Training) -> None:
        await self._writer.close()
