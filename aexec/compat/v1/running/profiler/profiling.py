"""`tf.profiler.profile` and `tf.profiler.Profiler`.

Next to read: `profiled_nodes.py` and `trees.py`, the two halves of the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aexec import proto
from aexec.compat.v1.running.profiler import messages, report, trees
from aexec.compat.v1.running.profiler.options import Options
from aexec.compat.v1.running.profiler.profiled_nodes import profiled_nodes
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.graph.graph import Graph

__all__ = ["Profiler", "profile"]


def profile(
    graph: Graph | None = None,
    run_meta: proto.RunMetadata | None = None,
    op_log: Any = None,
    cmd: str = "scope",
    options: Mapping[str, Any] | None = None,
) -> Any:
    """`tf.profiler.profile`: counts a graph's parameters, float operations, times and memory, and prints them.

    Args:
        graph: by default the current one.
        run_meta: what a run was traced to; without it there are no times and no memory.
        op_log: float operations and types that the program itself says of nodes.
        cmd: `scope`, `graph` for the tree of inputs, or `op`.
        options: those of a `ProfileOptionBuilder`; by default its own.

    Returns:
        The root of a tree of nodes, a GraphNodeProto; or of a list of ops, a MultiGraphNodeProto.

    Raises:
        UnsupportedError: `cmd` is `code`: nodes are not known by the lines of the program.
        InvalidArgumentError: another `cmd`, or options that are none.
    """
    profiler = Profiler(graph, op_log)
    if run_meta is not None:
        profiler.add_step(-1, run_meta)
    return profiler.show(cmd, options or None)


class Profiler:
    """`tf.profiler.Profiler`: profiles a graph with traces of several steps.

    Args:
        graph: by default the current one.
        op_log: as of `profile`.
    """

    def __init__(self, graph: Graph | None = None, op_log: Any = None) -> None:
        self._graph = get_default_graph() if graph is None else graph
        self._op_log = op_log
        self._steps: dict[int, proto.RunMetadata] = {}

    def add_step(self, step: int, run_meta: proto.RunMetadata) -> None:
        """Add what a step was traced to; `ProfileOptionBuilder.with_step` chooses one."""
        self._steps[step] = proto.RunMetadata.FromString(run_meta.SerializeToString())

    def profile_name_scope(self, options: Mapping[str, Any]) -> Any:
        """`profile` with `cmd="scope"`."""
        return self.show("scope", options)

    def profile_graph(self, options: Mapping[str, Any]) -> Any:
        """`profile` with `cmd="graph"`."""
        return self.show("graph", options)

    def profile_operations(self, options: Mapping[str, Any]) -> Any:
        """`profile` with `cmd="op"`."""
        return self.show("op", options)

    def profile_python(self, options: Mapping[str, Any]) -> Any:
        """Raises UnsupportedError: nodes are not known by the lines of the program."""
        return self.show("code", options)

    def advise(self, options: Mapping[str, Any]) -> Any:
        """Raises UnsupportedError: there is no advice."""
        raise errors.UnsupportedError("Profiler.advise: docs/profiling.md says how to find what is slow")

    def serialize_to_string(self) -> bytes:
        """Raises UnsupportedError: there is nothing here that reads it."""
        raise errors.UnsupportedError("Profiler.serialize_to_string: the messages of profiles can be serialized")

    def show(self, cmd: str, options: Mapping[str, Any] | None) -> Any:
        """As `profile`."""
        if cmd == "code":
            raise errors.UnsupportedError("tf.profiler: cmd='code' is not supported: nodes do not know their callers")
        if cmd not in ("scope", "graph", "op"):
            raise errors.InvalidValueError(f"unknown cmd: {cmd}, expected scope, graph or op")
        chosen = Options.of(options)
        nodes = profiled_nodes(self._graph, self._chosen(chosen.step), self._op_log)
        if cmd == "op":
            root = trees.by_op(nodes, chosen)
            _write(report.list_text(root, chosen), chosen.outfile)
            return messages.multi_graph_node(root)
        root = (trees.by_scope if cmd == "scope" else trees.by_inputs)(nodes, chosen)
        _write(report.tree_text(root, chosen), chosen.outfile)
        return messages.graph_node(root)

    def _chosen(self, step: int) -> Sequence[proto.RunMetadata]:
        if step < 0:
            return list(self._steps.values())
        return [self._steps[step]] if step in self._steps else []


def _write(text: str, outfile: str) -> None:
    if outfile == "-":
        print(text)
    elif outfile:
        Path(outfile).write_text(f"{text}\n", encoding="utf-8")
