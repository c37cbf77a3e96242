"""Savers, training sessions and hooks with TensorFlow's arguments, over `aexec.training`.

Next to read: `train.py`, which is their namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from aexec import proto, training
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.results import writable
from aexec.compat.v1.running.session import in_session, waited
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.graph.collections import GraphKeys
from aexec.graph.meta_graph import MetaGraph
from aexec.queues.coordinator import Coordinator
from aexec.runtime.config import SessionConfig
from aexec.runtime.session.session import Session as _Session
from aexec.runtime.threads.loop_thread import LoopThread
from aexec.saved_model import graph_collections
from aexec.training.session_run_hook import Training
from aexec.variables.initialization import global_variables

__all__ = [
    "CheckpointSaverHook",
    "ExponentialMovingAverage",
    "LoggingTensorHook",
    "MonitoredTrainingSession",
    "NanTensorHook",
    "Saver",
    "Scaffold",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "SummarySaverHook",
    "checkpoint_exists",
    "get_checkpoint_state",
    "global_step",
    "import_meta_graph",
    "latest_checkpoint",
]


class Saver:
    """`tf.train.Saver`.

    Attributes:
        ours: the `aexec.training.Saver`.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: Any = None,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        refuse("Saver", reshape=reshape, builder=builder, defer_build=defer_build, pad_step_number=pad_step_number)
        if var_list is None and saver_def is None:
            var_list = global_variables()
        self.ours = training.Saver(
            var_list,
            sharded=sharded,
            max_to_keep=max_to_keep or 0,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            name=name or "save",
            saver_def=saver_def,
        )

    def save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
    ) -> Any:
        """Write a checkpoint; return its path, which `restore` takes, or an awaitable with an `AsyncSession`."""
        refuse("Saver.save", meta_graph_suffix=None if meta_graph_suffix == "meta" else meta_graph_suffix)
        settings: dict[str, Any] = {} if latest_filename is None else {"latest_filename": latest_filename}
        if write_meta_graph:
            settings["meta_graph"] = graph_collections.export_meta_graph(graph=sess.graph)
        return in_session(
            sess,
            self.ours.save,
            save_path,
            global_step,
            write_meta_graph=write_meta_graph,
            write_state=write_state,
            **settings,
        )

    def restore(self, sess: Any, save_path: str) -> Any:
        """Restore the variables from a checkpoint; with an `AsyncSession` returns an awaitable."""
        return in_session(sess, self.ours.restore, save_path)

    @property
    def last_checkpoints(self) -> list[str]:
        """The kept checkpoints, oldest first."""
        return list(self.ours.last_checkpoints)

    @property
    def saver_def(self) -> proto.SaverDef:
        """The message that a MetaGraph holds."""
        return self.ours.saver_def

    def as_saver_def(self) -> proto.SaverDef:
        """The message that a MetaGraph holds."""
        return self.ours.saver_def


def import_meta_graph(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None, **kwargs: Any
) -> Saver | None:
    """`tf.train.import_meta_graph`: returns the MetaGraph's saver; without one, a saver of the variables; without any,
    None.
    """
    input_map = kwargs.pop("input_map", None)
    refuse("import_meta_graph", **kwargs)
    source = MetaGraph.from_proto(meta_graph_or_file) if isinstance(meta_graph_or_file, Message) else meta_graph_or_file
    found = graph_collections.import_meta_graph(
        source, input_map=input_map, clear_devices=clear_devices, import_scope=import_scope or ""
    )
    if found.saver_def is None or not found.saver_def.restore_op_name:
        scope = import_scope and f"{import_scope}/"
        return Saver() if get_default_graph().collections.get(GraphKeys.GLOBAL_VARIABLES, scope) else None
    definition = proto.SaverDef()
    definition.CopyFrom(found.saver_def)
    if import_scope:
        for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
            setattr(definition, field, f"{import_scope}/{getattr(definition, field)}")
    return Saver(saver_def=definition)


def latest_checkpoint(checkpoint_dir: str, latest_filename: str = "checkpoint") -> str | None:
    """`tf.train.latest_checkpoint`, which blocks; on an event loop, await aexec's."""
    found: str | None = waited(training.latest_checkpoint(checkpoint_dir, latest_filename))
    return found


def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """`tf.train.checkpoint_exists`, which blocks."""
    return bool(waited(training.checkpoint_exists(checkpoint_prefix)))


class _State(NamedTuple):
    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...]


def get_checkpoint_state(checkpoint_dir: str, latest_filename: str = "checkpoint") -> _State | None:
    """`tf.train.get_checkpoint_state`, which blocks."""
    found = waited(training.get_checkpoint_state(checkpoint_dir, latest_filename))
    return None if found is None else _State(found.latest, found.paths)


def global_step(sess: Any, global_step_tensor: Any) -> Any:
    """`tf.train.global_step`: returns the number, or an awaitable with an `AsyncSession`."""
    return in_session(sess, training.global_step, global_step_tensor)


class ExponentialMovingAverage(training.ExponentialMovingAverage):
    """`tf.train.ExponentialMovingAverage`."""

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        super().__init__(decay, num_updates, zero_debias=zero_debias, name=name)

    def apply(self, var_list: Iterable[Any] | None = None) -> Any:
        """An operation that updates the averages."""
        return super().apply(var_list)

    def average(self, var: Any) -> Any:
        """The average of a variable, or None."""
        return super().average(var)


# Training sessions


class Scaffold:
    """`tf.train.Scaffold`: how a `MonitoredTrainingSession` prepares itself.

    Its `init_op` initialises variables, or the graph's own initialisers if it has none; the session itself checks
    readiness.
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Saver | None = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        refuse("Scaffold", init_fn=init_fn, ready_op=ready_op, ready_for_local_init_op=ready_for_local_init_op)
        refuse("Scaffold", local_init_feed_dict=local_init_feed_dict)

        def given(name: str, value: Any) -> Any:
            return getattr(copy_from_scaffold, name, None) if value is None else value

        self.init_op: Any = given("init_op", init_op)
        self.init_feed_dict: Mapping[Any, Any] | None = given("init_feed_dict", init_feed_dict)
        self.local_init_op: Any = given("local_init_op", local_init_op)
        self.summary_op: Any = given("summary_op", summary_op)
        self.saver: Saver | None = given("saver", saver)

    def finalize(self) -> Scaffold:
        """Return itself; the session makes missing parts."""
        return self


class SessionRunArgs(NamedTuple):
    """`tf.train.SessionRunArgs`."""

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """`tf.train.SessionRunValues`."""

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """`tf.train.SessionRunContext`."""

    def __init__(self, original_args: SessionRunArgs, session: Any, stop: Any) -> None:
        self.session = session
        self.original_args = original_args
        self._stop = stop

    def request_stop(self) -> None:
        """Make this step the last one."""
        self._stop()


class SessionRunHook:
    """`tf.train.SessionRunHook`: a hook of a program without coroutines.

    Its methods are called in a worker thread, and may run steps of the session that they get.
    """

    def begin(self) -> None:
        """Called once, while nodes may still be added."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called once the session is initialised."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before a step; returns what it should compute besides."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after a step."""

    def end(self, session: Any) -> None:
        """Called at the end of the training."""


class _Awaited(training.SessionRunHook):
    """Adapts a hook of the program to aexec's interface."""

    def __init__(self, hook: SessionRunHook, owner: MonitoredTrainingSession) -> None:
        self._hook = hook
        self._owner = owner

    def begin(self) -> None:
        self._hook.begin()

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        await asyncio.to_thread(self._hook.after_create_session, self._owner, coordinator)

    def _context(self, context: training.SessionRunContext) -> SessionRunContext:
        asked = SessionRunArgs(context.fetches, context.feeds)
        return SessionRunContext(asked, self._owner.plain, context.request_stop)

    async def before_run(self, context: training.SessionRunContext) -> training.SessionRunArgs | None:
        asked = await asyncio.to_thread(self._hook.before_run, self._context(context))
        return None if asked is None else training.SessionRunArgs(asked.fetches, asked.feed_dict or {})

    async def after_run(self, context: training.SessionRunContext, values: training.SessionRunValues) -> None:
        results = SessionRunValues(values.results)
        await asyncio.to_thread(self._hook.after_run, self._context(context), results)

    async def end(self, session: Training) -> None:
        await asyncio.to_thread(self._hook.end, self._owner.plain)


class _Plain:
    """The session without hooks, for use in a hook's thread."""

    def __init__(self, owner: MonitoredTrainingSession) -> None:
        self._owner = owner
        self.graph = owner.graph

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, **settings: Any) -> Any:
        """Run a step."""
        return writable(self._owner.wait(self._owner.ours.session.run(fetches, feed_dict or {})))


class MonitoredTrainingSession:
    """`tf.train.MonitoredTrainingSession`: a session that initialises or restores itself, and calls hooks.

    It is open when it is made.  Leave its `with` block, or call `close`.

    Attributes:
        ours: the `aexec.training.TrainingSession`, on an event loop of its own.
    """

    def __init__(
        self,
        master: str = "",
        is_chief: bool = True,
        checkpoint_dir: str | None = None,
        scaffold: Any = None,
        hooks: Sequence[Any] | None = None,
        chief_only_hooks: Sequence[Any] | None = None,
        save_checkpoint_secs: float | None = None,
        save_summaries_steps: int | None = None,
        save_summaries_secs: float | None = None,
        config: Any = None,
        stop_grace_period_secs: float = 120,
        log_step_count_steps: int | None = None,
        max_wait_secs: float = 7200,
        save_checkpoint_steps: int | None = None,
        summary_dir: str | None = None,
        save_graph_def: bool = True,
    ) -> None:
        refuse("MonitoredTrainingSession", master=master or None, is_chief=None if is_chief else is_chief)
        refuse("MonitoredTrainingSession", summary_dir=summary_dir)
        refuse("MonitoredTrainingSession", save_summaries_steps=save_summaries_steps)
        refuse("MonitoredTrainingSession", save_summaries_secs=save_summaries_secs)
        scaffold = scaffold or Scaffold()
        self.graph = get_default_graph()
        self.plain = _Plain(self)
        given = [*(hooks or ()), *(chief_only_hooks or ())]
        if log_step_count_steps is not None:
            given.append(training.StepCounterHook(every_n_steps=log_step_count_steps))
        settings = SessionConfig.of(config)
        self._thread = LoopThread("aexec.compat.training")
        self.ours = training.TrainingSession(
            self.graph,
            checkpoint_dir=checkpoint_dir,
            hooks=[_Awaited(hook, self) if isinstance(hook, SessionRunHook) else hook for hook in given],
            save_checkpoint_steps=save_checkpoint_steps,
            save_checkpoint_secs=save_checkpoint_secs,
            saver=None if scaffold.saver is None else scaffold.saver.ours,
            init_op=scaffold.init_op,
            init_feeds=scaffold.init_feed_dict,
            local_init_op=scaffold.local_init_op,
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

    def __enter__(self) -> MonitoredTrainingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._open = False
        try:
            return bool(self.wait(self.ours.__aexit__(kind, error, traceback)))
        finally:
            self._thread.stop()

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run a step, with the additional fetches of hooks."""
        refuse("MonitoredTrainingSession.run", options=options, run_metadata=run_metadata)
        return writable(self.wait(self.ours.run(fetches, feed_dict)))

    def should_stop(self) -> bool:
        """True if a hook, or the end of input, requested the stop."""
        return self.ours.should_stop()

    def close(self) -> None:
        """Close the session, if it is not used in a `with` block."""
        if self._open:
            self.__exit__(None, None, None)


# aexec's hooks, with TensorFlow's arguments


class CheckpointSaverHook(training.CheckpointSaverHook):
    """`tf.train.CheckpointSaverHook`."""

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Any = None,
        save_graph_def: bool = True,
    ) -> None:
        refuse("CheckpointSaverHook", saver=saver, scaffold=scaffold, listeners=listeners)
        super().__init__(checkpoint_dir, save_steps=save_steps, save_secs=save_secs, basename=checkpoint_basename)


class NanTensorHook(training.NanTensorHook):
    """`tf.train.NanTensorHook`."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        super().__init__(loss_tensor, fail_on_nan_loss=fail_on_nan_loss)


class LoggingTensorHook(training.LoggingTensorHook):
    """`tf.train.LoggingTensorHook`."""

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Any = None,
    ) -> None:
        refuse("LoggingTensorHook", at_end=at_end, formatter=formatter)
        named = tensors if isinstance(tensors, Mapping) else {getattr(item, "name", item): item for item in tensors}
        super().__init__(named, every_n_iter=every_n_iter, every_n_secs=every_n_secs)


class StepCounterHook(training.StepCounterHook):
    """`tf.train.StepCounterHook`, which logs."""

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        refuse("StepCounterHook", output_dir=output_dir, summary_writer=summary_writer)
        super().__init__(every_n_steps=None if every_n_secs else every_n_steps, every_n_secs=every_n_secs)


class SummarySaverHook(training.SummarySaverHook):
    """`tf.train.SummarySaverHook`, of a `tf.summary.FileWriter`, and of the summaries of the graph by default."""

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        from aexec import summary

        if summary_op is None and scaffold is not None:
            summary_op = scaffold.summary_op
        self._own = summary.FileWriter(output_dir or "") if summary_writer is None else None
        writer = summary_writer.ours if self._own is None else self._own
        super().__init__(
            writer,
            summary.merge_all() if summary_op is None else summary_op,
            save_steps=save_steps,
            save_secs=save_secs,
        )

    async def end(self, session: Training) -> None:
        await super().end(session)
        if self._own is not None:
            await self._own.close()
