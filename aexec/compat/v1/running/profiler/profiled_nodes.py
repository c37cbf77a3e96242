"""The numbers of each node of a graph: parameters, float operations, and what traced steps measured.

Next to read: `trees.py`, which adds them up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from aexec import proto
from aexec.compat.v1.running.profiler.float_operations import float_operations
from aexec.compat.v1.running.profiler.options import TRAINABLE
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.runtime.profiling.step_stats import COPIES

__all__ = ["ProfiledNode", "profiled_nodes"]


@dataclass(slots=True)
class ProfiledNode:
    """What is known of a node.

    Attributes:
        name, op: the node.
        types: words by which it is counted: its op, devices where it ran, those that the program says of it.
        numbers: name of a number → its value, 0 if it is missing; the names are those of GraphNodeProto.
        shape: its attr `shape`; None if it has none.
        input_shapes: number of an input → its shape, if that is known.
        inputs: names of the nodes that it needs, also of those that it only waits for.
        devices: where it ran.
    """

    name: str
    op: str
    types: list[str]
    numbers: Counter[str]
    shape: PartialTensorShape | None
    input_shapes: Mapping[int, PartialTensorShape]
    inputs: Sequence[str]
    devices: list[str] = field(default_factory=list)


def profiled_nodes(graph: Graph, steps: Sequence[proto.RunMetadata], op_log: Any) -> list[ProfiledNode]:
    """The nodes of a graph, in its order.

    Args:
        steps: what was traced; numbers of several steps are averaged.
        op_log: an `OpLogProto` with types and float operations of nodes; None for none.
    """
    stats = _stats_by_node(steps)
    shapes = _traced_shapes(stats)
    trainable = {variable.op.name for variable in _variables(graph.collections.get(GraphKeys.TRAINABLE_VARIABLES))}
    nodes = [_of_graph(node, shapes) for node in graph.nodes]
    for profiled in nodes:
        if profiled.name in stats:
            _add_runs(profiled, stats[profiled.name], len(steps))
        if profiled.name in trainable:
            profiled.types.append(TRAINABLE)
    if op_log is not None:
        _add_entries({profiled.name: profiled for profiled in nodes}, op_log)
    return nodes


def _variables(collection: Iterable[Any]) -> Iterable[Any]:
    for variable in collection:
        yield from variable if not hasattr(variable, "op") else (variable,)


def _of_graph(node: Node, traced: Mapping[tuple[str, int], PartialTensorShape]) -> ProfiledNode:
    def shape_of(made_by: Node, slot: int) -> PartialTensorShape:
        shape = made_by.output(slot).static_shape
        return shape if shape.is_fully_defined else traced.get((made_by.name, slot), shape)

    edges = [(node.graph.nodes[made_by], slot) for made_by, slot in node.in_edges]
    inputs = [shape_of(*edge) for edge in edges]
    outputs = [shape_of(node, slot) for slot in range(node.num_outputs)]
    shape = node.attrs.get("shape")
    shape = shape if isinstance(shape, PartialTensorShape) and shape.rank is not None else None
    parameters = 0 if shape is None else shape.num_elements or 0
    operations = float_operations(node, inputs, outputs) or 0
    waited_for = (node.graph.nodes[index].name for index in node.control_edges)
    return ProfiledNode(
        name=node.name,
        op=node.op,
        types=[node.op],
        numbers=Counter(parameters=parameters, float_ops=operations, definition_count=1),
        shape=shape,
        input_shapes={index: shape for index, shape in enumerate(inputs) if shape.rank is not None},
        inputs=list(dict.fromkeys([*(made_by.name for made_by, _ in edges), *waited_for])),
    )


def _stats_by_node(steps: Iterable[proto.RunMetadata]) -> dict[str, list[tuple[str, proto.NodeExecStats]]]:
    """The runs of each node, with their devices; copies are runs of the node that needed them."""
    found: dict[str, list[tuple[str, proto.NodeExecStats]]] = defaultdict(list)
    for step in steps:
        for device in step.step_stats.dev_stats:
            for run in device.node_stats:
                found[run.node_name.partition(":")[0]].append((device.device, run))
    return found


def _traced_shapes(stats: Mapping[str, Any]) -> dict[tuple[str, int], PartialTensorShape]:
    return {
        (name, output.slot): PartialTensorShape.from_proto(output.tensor_description.shape)
        for name, runs in stats.items()
        for _, run in runs
        for output in run.output
    }


def _add_runs(node: ProfiledNode, runs: Iterable[tuple[str, proto.NodeExecStats]], steps: int) -> None:
    total: Counter[str] = Counter()
    devices: dict[str, None] = {}
    for device, run in runs:
        total.update(_numbers(device, run))
        devices[device.removesuffix(COPIES)] = None
    node.numbers.update({name: round(value / steps) for name, value in total.items()})
    node.devices = list(devices)
    node.types[:0] = node.devices


def _numbers(device: str, run: proto.NodeExecStats) -> dict[str, int]:
    micros = max(1, run.op_end_rel_micros)
    where = "accelerator_exec_micros" if "gpu" in device.lower() else "cpu_exec_micros"
    kept = run.memory_stats.persistent_memory_size
    return {
        "run_count": 0 if device.endswith(COPIES) else 1,
        "exec_micros": micros,
        where: micros,
        "requested_bytes": sum(memory.total_bytes for memory in run.memory) or kept,
        "peak_bytes": sum(memory.peak_bytes for memory in run.memory) or kept,
        "residual_bytes": sum(memory.live_bytes for memory in run.memory) or kept,
        "output_bytes": sum(o.tensor_description.allocation_description.requested_bytes for o in run.output),
    }


def _add_entries(nodes: Mapping[str, ProfiledNode], op_log: proto.OpLogProto) -> None:
    for entry in op_log.log_entries:
        if entry.name in nodes:
            nodes[entry.name].types += entry.types
            if entry.float_ops:
                nodes[entry.name].numbers["float_ops"] = entry.float_ops
