"""`tf.train.MonitoredTrainingSession` and its kin: blocking sessions that initialise themselves and call hooks.

Next to read: `aexec/training/training_session.py`, which these sessions run on their own event loop.
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
from aexec.compat.v1.running.session import Session, name_operation
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

_DEFAULT = object()  # stands for an interval that is not given, which is not the same as None


class SessionCreator:
    """`tf.train.SessionCreator`: the base of session creators.

    `MonitoredSession` accepts only a `ChiefSessionCreator`, and does not call `create_session`.
    """

    def create_session(self) -> Session:
        """Make a session.  A subclass overrides it; the base raises NotImplementedError."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class ChiefSessionCreator(SessionCreator):
    """`tf.train.ChiefSessionCreator`: makes a session that is restored from a checkpoint or else initialised.

    Args:
        scaffold: initialisers and saver; by default a new `Scaffold`.
        config: a `tf.ConfigProto`.
        checkpoint_dir: folder whose latest checkpoint is restored, if it has one.
        checkpoint_filename_with_path: prefix of the checkpoint to restore.

    Raises:
        ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` are given.
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
        """A new session, restored from the folder or else initialised.  Raises as `SessionManager.prepare_session`."""
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
    """Runs steps of a `MonitoredSession` without calling hooks; hooks use it in their threads."""

    def __init__(self, owner: MonitoredSession) -> None:
        self._owner = owner
        self.graph = owner.graph

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run a step; `options` and `run_metadata` as of `MonitoredSession.run`."""
        return self._owner.reported(partial(self._owner.ours.session.run, fetches, feed_dict), options, run_metadata)


class StepContext:
    """The argument of a function that `run_step_fn` calls.

    Attributes:
        session: runs steps without calling hooks.
        run_with_hooks: `MonitoredSession.run`.
    """

    def __init__(self, owner: MonitoredSession) -> None:
        self.session = owner.plain
        self.run_with_hooks = owner.run
        self._owner = owner

    def request_stop(self) -> None:
        """Stop the training.  Raises StopIteration, which leaves the session's block without an error."""
        self._owner.ours.request_stop()
        raise StopIteration("step_fn has requested the iterations to stop.")


class MonitoredSession:
    """`tf.train.MonitoredSession`: initialises or restores variables, and calls hooks around each step.

    The session is open once it is constructed.  Use it in a `with` block, or call `close`.

    Args:
        session_creator: a `ChiefSessionCreator`; by default one for the default graph.
        hooks: `SessionRunHook`s, of this package or of aexec.
        stop_grace_period_secs: ignored.

    Raises:
        UnimplementedError: the creator is of another class.

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
            make_session=lambda graph: self._made(graph, settings),
            handle_signals=False,
        )
        try:
            self.wait(self.ours.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        self._open = True

    def _made(self, graph: Any, settings: SessionConfig) -> Any:
        session = _Session(graph, config=settings)
        session.own_loop(self._thread.has_one_caller)
        return session

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
        try:
            found = self.wait(run(options=settings, metadata=metadata))
        except errors.OpError as error:
            name_operation(error, self.graph)
            raise
        if metadata is not None:
            run_metadata.CopyFrom(metadata.to_proto())
        return writable(found)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call a function with a `StepContext`; return its result.

        Raises:
            ValueError: the function has other parameters than one named `step_context`.
        """
        names = [name for name in inspect.signature(step_fn).parameters if name != "self"]
        if names != ["step_context"]:
            raise errors.InvalidValueError(f"'step_fn' must have one argument, step_context, and has {names}.")
        return step_fn(StepContext(self))

    def should_stop(self) -> bool:
        """True if a hook or the end of the input has requested the stop, or the session is closed."""
        return not self._open or self.ours.should_stop()

    def close(self) -> None:
        """Close the session, if it is not used in a `with` block."""
        if self._open:
            self.__exit__(None, None, None)


def _called(scaffold: Scaffold, session: Any) -> Callable[[Any], Any]:
    """Adapt a scaffold's `init_fn`, which blocks on runs of the session: call it in a thread."""

    async def call(_: Any) -> None:
        assert scaffold.init_fn is not None
        await asyncio.to_thread(scaffold.init_fn, scaffold, session)

    return call


class SingularMonitoredSession(MonitoredSession):
    """`tf.train.SingularMonitoredSession`: a `MonitoredSession` with the arguments of a `ChiefSessionCreator`."""

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
    """Resolve an interval in steps or seconds: `otherwise` if neither is given, (None, None) for never."""
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
    """`tf.train.MonitoredTrainingSession`: a `MonitoredSession` that also writes checkpoints and summaries.

    Args:
        checkpoint_dir: folder to restore from and to write checkpoints to; None for no checkpoints.
        scaffold: initialisers and saver; by default a new `Scaffold`.
        hooks, chief_only_hooks: called around each step.
        save_checkpoint_secs, save_checkpoint_steps: seconds or steps between two checkpoints; by default 600 seconds,
            None for both for never.
        save_summaries_steps, save_summaries_secs: steps or seconds between two summaries; by default 100 steps, None
            for both for never.
        config: a `tf.ConfigProto`.
        log_step_count_steps: steps between two reports of the steps per second, as a log line and an event; None for
            never.  Needs a folder of summaries.
        summary_dir: folder of summaries; by default `checkpoint_dir`.

    Raises:
        UnimplementedError: `master` is given, or `is_chief` is False.
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
