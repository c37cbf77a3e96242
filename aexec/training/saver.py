"""`Saver`: writes the variables of a session to checkpoints, restores them, and keeps the latest few.

::

    with graph:
        saver = aexec.training.Saver(max_to_keep=3)
    path = await saver.save(session, "run/model.ckpt", global_step=100)
    await saver.restore(session, await aexec.training.latest_checkpoint("run"))

Saving is safe against crashes at every point.  The checkpoint appears atomically (see
`aexec/io/tensor_bundle.py`); then the `checkpoint` file is replaced atomically; only then are
old checkpoints deleted.  So the file always names a complete checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import create_node, require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.runtime.session.session import Session
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.training.checkpoint_state import (
    DEFAULT_FILE,
    CheckpointState,
    checkpoint_exists,
    get_checkpoint_state,
    remove_checkpoint,
    update_checkpoint_state,
)
from aexec.variables.partitioned_variable import parts_or_self
from aexec.variables.save_slices import SaveSliceInfo
from aexec.variables.variable import Variable

__all__ = ["VARIABLE_OPS", "Saver"]

VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")


@dataclass(frozen=True, slots=True)
class _Saved:
    """A variable under its name in checkpoints; `spec` says which slice of that it is, if not all."""

    name: str
    node: Node
    spec: str = ""


class Saver:
    """Saves and restores variables.

    It adds its own nodes to the graph (under `save/`), unless a SaverDef names the nodes.

    Args:
        variables: the variables to save (their nodes, tensors or names), or a mapping from the name in checkpoints to
            these. By default all variables of the graph, by node name.  Partitioned variables, and lists of their parts
            in a mapping, are slices of one tensor in checkpoints.
        graph: the graph; by default the one being built.
        max_to_keep: how many checkpoints to keep; 0 for all.
        keep_checkpoint_every_n_hours: besides these, one checkpoint per this many hours is kept for ever.
        sharded: write one data file per device.
        relative_paths: write paths relative to the folder of checkpoints into its `checkpoint` file, so that it may be
            moved.
        saver_def: nodes that save and restore, as a MetaGraph names them; its settings are used.
        meta_graph: what to write beside checkpoints, with the graph of the session; by default the graph only.
        clock: seconds since 1970.

    Raises:
        InvalidArgumentError: there is nothing to save, something is not a variable, or a name is used twice.
        FailedPreconditionError: no graph is given and none is being built.
    """

    def __init__(
        self,
        variables: Iterable[Any] | Mapping[str, Any] | None = None,
        *,
        graph: Graph | None = None,
        max_to_keep: int = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        sharded: bool = False,
        name: str = "save",
        saver_def: proto.SaverDef | None = None,
        meta_graph: MetaGraph | None = None,
        relative_paths: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if saver_def is None:
            graph = require_graph() if graph is None else graph
            saved = _variables_of(graph) if variables is None else _given_variables(graph, variables)
            saver_def = _build(graph, saved, name, sharded=sharded)
            saver_def.max_to_keep = max_to_keep
            saver_def.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self.saver_def = saver_def
        self._meta_graph = meta_graph
        self._relative_paths = relative_paths
        self._clock = clock
        self._kept: list[tuple[str, float]] = []
        self._last_preserved = clock()
        self._lock = asyncio.Lock()

    @classmethod
    def from_meta_graph(cls, meta_graph: MetaGraph, **settings: Any) -> Saver:
        """The saver of a MetaGraph: by its SaverDef, or else of the variables in its collections.

        Raises:
            InvalidArgumentError: it has neither.
        """
        if meta_graph.saver_def is not None and meta_graph.saver_def.restore_op_name:
            return cls(saver_def=meta_graph.saver_def, meta_graph=meta_graph, **settings)
        saved = _collected_variables(meta_graph)
        definition = _build(meta_graph.graph, saved, "save", sharded=False)
        return cls(saver_def=definition, meta_graph=meta_graph, **settings)

    @property
    def last_checkpoints(self) -> tuple[str, ...]:
        """The checkpoints that are kept, oldest first."""
        return tuple(path for path, _ in self._kept)

    def keep(self, checkpoints: Iterable[tuple[str, float]]) -> None:
        """Make these the checkpoints that are kept: paths and the times, in seconds since 1970, oldest first."""
        self._kept = list(checkpoints)

    async def recover(self, directory: str, latest_filename: str = DEFAULT_FILE) -> None:
        """Continue another saver's work in a directory: the checkpoints there become this one's.

        Raises:
            DataLossError: the `checkpoint` file is corrupt.
        """
        state = await get_checkpoint_state(directory, latest_filename)
        if state is None:
            return
        times = state.timestamps or itertools.repeat(self._clock())
        entries = list(zip(state.paths, times, strict=False))
        self.keep([entry for entry in entries if await checkpoint_exists(entry[0])])
        self._last_preserved = state.last_preserved or self._last_preserved

    async def values(self, session: Session) -> dict[Tensor, Any]:
        """The values to save, for a later call of `save`; consistent if no step runs meanwhile.

        Raises:
            FailedPreconditionError: a variable is not initialised.
        """
        graph = session.graph
        pending = [graph.node(self.saver_def.save_tensor_name.partition(":")[0])]
        seen, tensors = set(pending), []
        while pending:
            node = pending.pop()
            sources = [graph.nodes[source] for source in (*(s for s, _ in node.in_edges), *node.control_edges)]
            if node.op == "SaveV2":
                tensors += [graph.nodes[source].output(port) for source, port in node.in_edges[3:]]
                continue
            pending += [source for source in sources if source not in seen]
            seen.update(sources)
        return dict(zip(tensors, await session.run(tensors), strict=True))

    async def save(
        self,
        session: Session,
        prefix: str,
        global_step: Any = None,
        *,
        latest_filename: str = DEFAULT_FILE,
        write_meta_graph: bool = True,
        write_state: bool = True,
        values: Mapping[Tensor, Any] | None = None,
        meta_graph: MetaGraph | None = None,
    ) -> str:
        """Write a checkpoint.

        Args:
            session: whose variables to save.
            prefix: path of the checkpoint; missing directories are made.
            global_step: a number to append to the path, or the tensor (or its name) that has it.
            latest_filename: name of the file that lists the checkpoints.
            write_meta_graph: write the graph beside it, as `.meta`.
            write_state: update that file, and delete checkpoints that are too many.
            values: the values to write, a result of `values`; by default the present values of the variables.
            meta_graph: what to write beside it, with the graph: collections, as of `aexec.export_meta_graph`.  By
                default what the saver was given.

        Returns:
            The checkpoint's prefix, which `restore` takes.

        Raises:
            FailedPreconditionError: a variable is not initialised.
            OpError: another error of the step or the system.  Existing checkpoints are still complete.
        """
        if global_step is not None:
            if isinstance(global_step, str | Tensor | Node | TensorProxy):
                global_step = await session.run(global_step)
            prefix = f"{prefix}-{int(global_step)}"
        async with self._lock:
            feeds: dict[Any, Any] = {self.saver_def.filename_tensor_name: os.fsencode(prefix), **(values or {})}
            written: Any = await session.run(self.saver_def.save_tensor_name, feeds)
            path = os.fsdecode(written)
            if write_meta_graph:
                write = partial(self._write_meta_graph, meta_graph, session.graph, f"{path}.meta")
                await run_in_thread(write, on_cancel=OnCancel.WAIT)
            if write_state:
                await self._record(path, latest_filename)
        return path

    def _write_meta_graph(self, meta_graph: MetaGraph | None, graph: Graph, path: str) -> None:
        replace(meta_graph or self._meta_graph or MetaGraph(graph), graph=graph, saver_def=self.saver_def).save(path)

    async def _record(self, path: str, latest_filename: str) -> None:
        """Record a new checkpoint: first on disk, then delete those that are too old."""
        kept = [entry for entry in self._kept if entry[0] != path] + [(path, self._clock())]
        surplus = len(kept) - self.saver_def.max_to_keep if self.saver_def.max_to_keep > 0 else 0
        doomed, preserved = [], self._last_preserved
        for old, written in kept[: max(surplus, 0)]:
            if written > preserved + self.saver_def.keep_checkpoint_every_n_hours * 3600:
                preserved = written
            else:
                doomed.append(old)
        kept = kept[max(surplus, 0) :]
        state = CheckpointState(path, tuple(p for p, _ in kept), tuple(t for _, t in kept), preserved)
        await update_checkpoint_state(os.path.dirname(path), state, latest_filename, relative=self._relative_paths)
        self._kept, self._last_preserved = kept, preserved
        for old in doomed:
            await remove_checkpoint(old)

    async def restore(self, session: Session, path: str) -> None:
        """Restore the variables of a session from a checkpoint.

        Raises:
            InvalidArgumentError: there is no checkpoint of that path, or a variable has another type or shape.
            NotFoundError: the checkpoint lacks a variable.
            DataLossError: it is corrupt.
        """
        if not path or not await checkpoint_exists(path):
            raise errors.InvalidValueError(f"The passed save_path is not a valid checkpoint: {path}")
        feeds = {self.saver_def.filename_tensor_name: os.fsencode(path)}
        await session.run([], feeds, [self.saver_def.restore_op_name])

    def __repr__(self) -> str:
        return f"<Saver {self.saver_def.restore_op_name!r}, {len(self._kept)} checkpoints kept>"


# Choosing the variables


def _variables_of(graph: Graph) -> list[_Saved]:
    slices = _slices(graph)
    return [_saved(node, slices.get(node)) for node in graph if node.op in VARIABLE_OPS]


def _given_variables(graph: Graph, variables: Iterable[Any] | Mapping[str, Any]) -> list[_Saved]:
    slices = _slices(graph)
    if not isinstance(variables, Mapping):
        nodes = [_variable_node(graph, part) for variable in variables for part in parts_or_self(variable)]
        return [_saved(node, slices.get(node)) for node in nodes]
    saved = []
    for name, variable in variables.items():
        parts = variable if isinstance(variable, list | tuple) else parts_or_self(variable)
        for part in parts:
            node = _variable_node(graph, part)
            info = slices.get(node) if part is not variable else None
            saved.append(_Saved(name, node, "" if info is None else info.spec))
    return saved


def _saved(node: Node, info: SaveSliceInfo | None) -> _Saved:
    return _Saved(node.name, node) if info is None else _Saved(info.full_name, node, info.spec)


def _slices(graph: Graph) -> dict[Node, SaveSliceInfo]:
    """The slice infos of those of the variables in the graph's collections that are parts."""
    variables = [item for name in graph.collections.keys for item in graph.collections.get(name)]
    return {
        variable.op: variable.save_slice_info
        for variable in variables
        if isinstance(variable, Variable) and variable.save_slice_info is not None
    }


def _variable_node(graph: Graph, variable: Any) -> Node:
    """The node of a variable that is given as variable, node, tensor or name."""
    variable = variable.reference if isinstance(variable, TensorProxy) else variable
    node = graph.node(variable.partition(":")[0]) if isinstance(variable, str) else variable
    if isinstance(node, Tensor):
        node = node.node
    if not isinstance(node, Node) or node.op not in VARIABLE_OPS or node.graph is not graph:
        raise errors.InvalidTypeError(f"Variable to save is not a Variable: {variable!r} is no variable of the graph")
    return node


def _collected_variables(meta_graph: MetaGraph) -> list[_Saved]:
    """The variables in a MetaGraph's collections; partitioned ones as slices of the whole."""
    saved = []
    for item in meta_graph.collections.get("variables", ()):
        try:
            definition = proto.VariableDef.FromString(item if isinstance(item, bytes) else b"")
        except DecodeError:
            raise errors.InvalidValueError("collection 'variables' holds something that is no VariableDef") from None
        node = _variable_node(meta_graph.graph, definition.variable_name)
        saved.append(_saved(node, SaveSliceInfo.from_proto(definition.save_slice_info_def)))
    return saved


# The nodes that save and restore


def _build(graph: Graph, saved: list[_Saved], name: str, *, sharded: bool) -> proto.SaverDef:
    if not saved:
        raise errors.InvalidValueError("No variables to save")
    keys = [(entry.name, entry.spec) for entry in saved]
    twice = next((n for n, s in keys if keys.count((n, s)) > 1), None) if len(set(keys)) < len(keys) else None
    if twice is not None:
        raise errors.InvalidValueError(f"At least two variables have the same name: {twice}")
    saved = sorted(saved, key=lambda entry: entry.name)
    with graph, graph.build_state.name_scope(name):
        default = _op("PlaceholderWithDefault", input=b"model", shape=[], name="filename")
        filename = _op("PlaceholderWithDefault", input=default, shape=[], name="Const")
        written = _save_sharded(graph, filename, saved) if sharded else _save(graph, filename, saved)
        with graph.build_state.control_dependencies([written]):
            path = _op("Identity", input=filename, name="control_dependency")
        shards = _by_device(saved) if sharded else [saved]
        assigned: list[Node] = []
        for shard in shards:
            # Each device reads its own.
            with graph.build_state.device(shard[0].node.device or None) if sharded else contextlib.nullcontext():
                assigned += _restore(graph, filename, shard)
        with graph.build_state.control_dependencies(assigned):
            restore_all = create_node("NoOp", {}, {}, name="restore_all")
    return proto.SaverDef(
        filename_tensor_name=filename.name,
        save_tensor_name=path.name,
        restore_op_name=restore_all.name,
        sharded=sharded,
        version=proto.SaverDef.V2,
    )


def _op(op: str, *, name: str | None = None, shape: Any = None, **inputs: Any) -> Tensor:
    attrs = {} if shape is None else {"shape": PartialTensorShape(shape)}
    return create_node(op, inputs, attrs, name=name).output(0)


def _by_device(saved: list[_Saved]) -> list[list[_Saved]]:
    shards: dict[str, list[_Saved]] = {}
    for entry in saved:
        shards.setdefault(entry.node.device, []).append(entry)
    return [shards[device] for device in sorted(shards)]


def _save(graph: Graph, prefix: Tensor, saved: list[_Saved]) -> Node:
    return create_node(
        "SaveV2",
        {
            "prefix": prefix,
            "tensor_names": [entry.name for entry in saved],
            "shape_and_slices": [entry.spec for entry in saved],
            "tensors": [_value(entry.node) for entry in saved],
        },
        {},
    )


def _save_sharded(graph: Graph, filename: Tensor, saved: list[_Saved]) -> Node:
    """Each device writes a checkpoint of its own to a temporary directory; merging these makes the checkpoint."""
    shards = _by_device(saved)
    temporary = _op("StringJoin", inputs=[filename, f"_temp_{uuid.uuid4().hex}/part".encode()])
    prefixes, writes = [], []
    for number, shard in enumerate(shards):
        with graph.build_state.device(shard[0].node.device or None):
            prefix = _op("ShardedFilename", basename=temporary, shard=number, num_shards=len(shards))
            prefixes.append(prefix)
            writes.append(_save(graph, prefix, shard))
    with graph.build_state.control_dependencies(writes):
        inputs = {"checkpoint_prefixes": _op("Pack", values=prefixes), "destination_prefix": filename}
        return create_node("MergeV2Checkpoints", inputs, {})


def _restore(graph: Graph, prefix: Tensor, saved: list[_Saved]) -> list[Node]:
    dtypes = [entry.node.attrs["dtype"] for entry in saved]
    inputs = {
        "prefix": prefix,
        "tensor_names": [entry.name for entry in saved],
        "shape_and_slices": [entry.spec for entry in saved],
    }
    values = create_node("RestoreV2", inputs, {"dtypes": dtypes})
    return [_assign(entry.node, value) for entry, value in zip(saved, values.outputs, strict=True)]


def _value(node: Node) -> Tensor:
    if node.op != "VarHandleOp":
        return node.output(0)
    attrs = {"dtype": node.attrs["dtype"]}
    return create_node("ReadVariableOp", {"resource": node.output(0)}, attrs, name=f"Read/{node.name}").output(0)


def _assign(node: Node, value: Tensor) -> Node:
    if node.op != "VarHandleOp":
        return create_node("Assign", {"ref": node.output(0), "value": value}, {})
    return create_node("AssignVariableOp", {"resource": node.output(0), "value": value}, {"validate_shape": True})
