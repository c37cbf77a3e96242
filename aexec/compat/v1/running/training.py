"""Savers and hooks with TensorFlow's arguments, over `aexec.training`.

Next to read: `monitored_session.py`, which calls hooks; then `train.py`, which is the namespace of both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.message import Message

from aexec import proto, summary, training
from aexec.client.building import group
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.graph_util import write_graph
from aexec.compat.v1.running.results import writable
from aexec.compat.v1.running.session import in_session, waited
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node
from aexec.saved_model import graph_collections
from aexec.summary import merge_all
from aexec.training.session_run_hook import Training
from aexec.variables.initialization import global_variables, local_variables_initializer

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ExponentialMovingAverage",
    "LoggingTensorHook",
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
    "export_meta_graph",
    "get_checkpoint_state",
    "global_step",
    "import_meta_graph",
    "latest_checkpoint",
]


# The logger of `tf.logging`.
_LOGGER = logging.getLogger("tensorflow")


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
        write_version: int = 2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        refuse("Saver", write_version=None if write_version == 2 else write_version)
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
            relative_paths=save_relative_paths,
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

    def to_proto(self, export_scope: str | None = None) -> proto.SaverDef | None:
        """The message, with the scope left out of its names; None if its nodes are not inside the scope."""
        made = proto.SaverDef()
        made.CopyFrom(self.ours.saver_def)
        if export_scope:
            scope = f"{export_scope}/"
            if not made.restore_op_name.startswith(scope):
                return None
            _rename(made, lambda name: name.removeprefix(scope))
        return made

    @staticmethod
    def from_proto(saver_def: proto.SaverDef, import_scope: str | None = None) -> Saver:
        """The saver of a message, whose nodes were imported into a scope."""
        return Saver(saver_def=_scoped(saver_def, import_scope))

    def build(self) -> None:
        """Nothing: its nodes are made with it."""

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Iterable[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> proto.MetaGraphDef:
        """Return the default graph, its collections and this saver as a message, as `export_meta_graph` does."""
        refuse("Saver.export_meta_graph", export_scope=export_scope, clear_extraneous_savers=clear_extraneous_savers)
        refuse("Saver.export_meta_graph", save_debug_info=save_debug_info)
        return export_meta_graph(
            filename,
            collection_list=collection_list,
            as_text=as_text,
            clear_devices=clear_devices,
            saver_def=self.ours.saver_def,
            strip_default_attrs=strip_default_attrs,
        )

    def set_last_checkpoints(self, last_checkpoints: list[str]) -> None:
        """Make these the checkpoints that are kept, oldest first, as if they were written now."""
        self.set_last_checkpoints_with_time([(path, time.time()) for path in last_checkpoints])

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: list[tuple[str, float]]) -> None:
        """Make these the checkpoints that are kept, oldest first: paths, and times in seconds since 1970."""
        self.ours.keep(last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[str]) -> None:
        """Make those of these checkpoints that exist the kept ones, with the times of their files."""
        found = [
            (path, os.path.getmtime(index)) for path in checkpoint_paths if os.path.exists(index := f"{path}.index")
        ]
        self.ours.keep(found)


def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: proto.SaverDef | None = None,
    collection_list: Iterable[str] | None = None,
    as_text: bool = False,
    graph: Any = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    **kwargs: Any,
) -> proto.MetaGraphDef:
    """`tf.train.export_meta_graph`: return a graph and its collections as a message.

    Args:
        filename: also write the message there; folders are created.
        saver_def: of the saver that the message names.
        collection_list: the collections to include; by default all.
        as_text: write protobuf text, not bytes.
        graph: by default the default graph.
        clear_devices: leave out the devices that nodes request.
        strip_default_attrs: leave out the attributes of nodes that have their op's default value.

    Raises:
        UnimplementedError: another argument is given.
    """
    refuse("export_meta_graph", meta_info_def=meta_info_def, graph_def=graph_def, export_scope=export_scope)
    refuse("export_meta_graph", clear_extraneous_savers=clear_extraneous_savers, save_debug_info=save_debug_info)
    refuse("export_meta_graph", **kwargs)
    made = graph_collections.export_meta_graph(graph=graph, collection_list=collection_list, saver_def=saver_def)
    message = made.to_proto(clear_devices=clear_devices, strip_default_attrs=strip_default_attrs)
    if filename is not None:
        data = text_format.MessageToString(message).encode() if as_text else message.SerializeToString()
        os.makedirs(os.path.dirname(filename) or ".", exist_ok=True)
        with open(filename, "wb") as file:
            file.write(data)
    return message


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
    return Saver.from_proto(found.saver_def, import_scope)


def _scoped(definition: proto.SaverDef, scope: str | None) -> proto.SaverDef:
    """A copy with its names inside a scope."""
    made = proto.SaverDef()
    made.CopyFrom(definition)
    if scope:
        _rename(made, lambda name: f"{scope}/{name}")
    return made


def _rename(definition: proto.SaverDef, renamed: Callable[[str], str]) -> None:
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        setattr(definition, field, renamed(getattr(definition, field)))


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

    Args:
        init_op: initialises variables that no checkpoint has; by default all of them.
        init_feed_dict: for it.
        init_fn: of the scaffold and a session; called after it.
        ready_op: names of what is not initialised, a vector of strings; by default of the variables.
        local_init_op: run in each new session; by default initialises local variables and tables.
        summary_op: by default all summaries.
        saver: by default of all global variables.
        copy_from_scaffold: its parts are used where none is given.

    Raises:
        UnimplementedError: `ready_for_local_init_op` or `local_init_feed_dict` is given.
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
        refuse("Scaffold", ready_for_local_init_op=ready_for_local_init_op, local_init_feed_dict=local_init_feed_dict)

        def given(name: str, value: Any) -> Any:
            return getattr(copy_from_scaffold, name, None) if value is None else value

        self.init_op: Any = given("init_op", init_op)
        self.init_feed_dict: Mapping[Any, Any] | None = given("init_feed_dict", init_feed_dict)
        self.init_fn: Callable[[Scaffold, Any], Any] | None = given("init_fn", init_fn)
        self.ready_op: Any = given("ready_op", ready_op)
        self.local_init_op: Any = given("local_init_op", local_init_op)
        self.summary_op: Any = given("summary_op", summary_op)
        self.saver: Saver | None = given("saver", saver)

    @staticmethod
    def get_or_default(arg_name: str, collection_key: str, default_constructor: Callable[[], Any]) -> Any:
        """The one item of a collection; if there is none, what the function makes, which is added.

        Raises:
            RuntimeError: there are several.
        """
        collections = get_default_graph().collections
        found = collections.get(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f"More than one item in the collection {collection_key!r}. Please pass {arg_name} to set one"
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            collections.add(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Node:
        """An operation that initialises local variables and fills tables."""
        tables = get_default_graph().collections.get(GraphKeys.TABLE_INITIALIZERS)
        return group(local_variables_initializer(), *tables)

    def finalize(self) -> Scaffold:
        """Make a saver and a summary of all, if the graph has something to save or to say; returns itself."""
        if self.saver is None and global_variables():
            self.saver = Saver()
        if self.summary_op is None:
            self.summary_op = merge_all()
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
        self.stop_requested = False
        self._stop = stop

    def request_stop(self) -> None:
        """Make this step the last one."""
        self.stop_requested = True
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


class CheckpointSaverListener:
    """`tf.train.CheckpointSaverListener`: told of each checkpoint that a `CheckpointSaverHook` writes.

    Its methods but `begin` are called in a worker thread, and may run steps of the session that they get.
    """

    def begin(self) -> None:
        """Called once, while nodes may still be added."""

    def before_save(self, session: Any, global_step_value: Any) -> None:
        """Called before the values of a checkpoint are read."""

    def after_save(self, session: Any, global_step_value: Any) -> bool | None:
        """Called when a checkpoint is written; returns True to end the training."""
        return None

    def end(self, session: Any, global_step_value: Any) -> None:
        """Called at the end of the training."""


class _BlockingSession:
    """The session of a training, for use in a listener's thread."""

    def __init__(self, session: Training) -> None:
        self._session = session.session
        self._loop = asyncio.get_running_loop()
        self.graph = self._session.graph

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Run a step."""
        running = self._session.run(fetches, feed_dict or {})
        return writable(asyncio.run_coroutine_threadsafe(running, self._loop).result())


class _AwaitedListener(training.CheckpointSaverListener):
    """Adapts a listener of the program to aexec's interface."""

    def __init__(self, listener: CheckpointSaverListener) -> None:
        self._listener = listener

    def begin(self) -> None:
        self._listener.begin()

    async def before_save(self, session: Training, global_step: int | None) -> None:
        await asyncio.to_thread(self._listener.before_save, _BlockingSession(session), global_step)

    async def after_save(self, session: Training, global_step: int | None) -> bool | None:
        return await asyncio.to_thread(self._listener.after_save, _BlockingSession(session), global_step)

    async def end(self, session: Training, global_step: int | None) -> None:
        await asyncio.to_thread(self._listener.end, _BlockingSession(session), global_step)


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
        if saver is not None and scaffold is not None:
            raise errors.InvalidValueError("You cannot provide both saver and scaffold.")
        self._given, self._scaffold = saver, scaffold
        self._graph_dir = checkpoint_dir if save_graph_def else None
        super().__init__(
            checkpoint_dir,
            save_steps=save_steps,
            save_secs=save_secs,
            basename=checkpoint_basename,
            listeners=[_AwaitedListener(listener) for listener in listeners or ()],
        )

    def add_listeners(self, listeners: Iterable[CheckpointSaverListener]) -> None:
        """Tell more listeners, after the others, of each checkpoint."""
        self._listeners += tuple(_AwaitedListener(listener) for listener in listeners)

    def begin(self) -> None:
        super().begin()
        saver = self._given if self._scaffold is None else self._scaffold.finalize().saver
        self._saver = (saver or Saver()).ours
        self._graph = get_default_graph()

    async def after_create_session(self, session: Training, coordinator: Any) -> None:
        if self._graph_dir is not None:
            await asyncio.to_thread(write_graph, self._graph, self._graph_dir, "graph.pbtxt")
        await super().after_create_session(session, coordinator)


class NanTensorHook(training.NanTensorHook):
    """`tf.train.NanTensorHook`."""

    logger = _LOGGER

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        super().__init__(loss_tensor, fail_on_nan_loss=fail_on_nan_loss)


class LoggingTensorHook(training.LoggingTensorHook):
    """`tf.train.LoggingTensorHook`."""

    logger = _LOGGER

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Any = None,
    ) -> None:
        named = tensors if isinstance(tensors, Mapping) else {getattr(item, "name", item): item for item in tensors}
        super().__init__(
            named, every_n_iter=every_n_iter, every_n_secs=every_n_secs, at_end=at_end, formatter=formatter
        )


class StepCounterHook(training.StepCounterHook):
    """`tf.train.StepCounterHook`, which logs, and writes events."""

    logger = _LOGGER

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        self._own = summary.FileWriter(output_dir) if summary_writer is None and output_dir else None
        super().__init__(
            every_n_steps=None if every_n_secs else every_n_steps,
            every_n_secs=every_n_secs,
            writer=self._own if summary_writer is None else getattr(summary_writer, "ours", summary_writer),
        )

    async def end(self, session: Training) -> None:
        await super().end(session)
        if self._own is not None:
            await self._own.close()


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
        self._own = summary.FileWriter(output_dir or "") if summary_writer is None else None
        self._op, self._scaffold = summary_op, scaffold
        super().__init__(
            getattr(summary_writer, "ours", summary_writer) if self._own is None else self._own,
            summary_op,
            save_steps=save_steps,
            save_secs=save_secs,
        )

    def begin(self) -> None:
        if self._op is None:
            self._summary = merge_all() if self._scaffold is None else self._scaffold.finalize().summary_op

    async def before_run(self, context: training.SessionRunContext) -> training.SessionRunArgs | None:
        return None if self._summary is None else await super().before_run(context)

    async def end(self, session: Training) -> None:
        await super().end(session)
        if self._own is not None:
            await self._own.close()
