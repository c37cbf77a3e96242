"""The cost model of a graph: the times of its nodes and the sizes of their outputs, learnt from measured steps.

Costs are kept by node name, so that they hold for other sessions of the same graph; times also by type of device.  All
times are in microseconds.  The model is filled from step statistics of traced runs, or from CostGraphDefs, including
TensorFlow's; `cost_graph.py` writes those.  After
TensorFlow's core/graph/costmodel.cc.  Next to read: `placement/cost_placement.py`, which places nodes by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.late_dataclass import dataclass
from aexec.framework.wire.messages import as_message, message_name
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.partition import TRANSFERS
from aexec.runtime.profiling.copy_costs import CopyCosts
from aexec.runtime.profiling.step_stats import COPIES, op_of

__all__ = ["CostModel", "NodeCost"]

# The least time of a node that runs, which is also that of an unmeasured one.
MIN_MICROS = 1.0
# Ops whose outputs exist before the step.
_THERE_ALREADY = frozenset({"Const", "VarHandleOp", "Variable", "VariableV2"})
# TensorFlow reports each stream as a lane of its own, and all streams together in this one, which has the nodes' times.
_ALL_STREAMS = "/stream:all"
_SOURCE = "_SOURCE"
# Defaults for copies without measurements.
_COPY_MICROS, _COPY_GBPS = 10.0, 80.0


@dataclass(slots=True)
class OutputCost:
    """Measured sizes of one output.

    Attributes:
        bytes: the sum over all runs.
        max_bytes: the most of one run, -1 if it was never measured; `shape` and `dtype` are of that tensor.
        allocation_id: the id of its buffer in the last run, 0 if unknown.
    """

    bytes: float = 0
    max_bytes: int = -1
    shape: proto.TensorShapeProto | None = None
    dtype: int = 0
    allocation_id: int = 0

    def merge(self, other: OutputCost) -> None:
        """Add what another model knows of it."""
        self.bytes += other.bytes
        self.allocation_id = other.allocation_id or self.allocation_id
        if other.max_bytes > self.max_bytes:
            self.max_bytes, self.shape, self.dtype = other.max_bytes, other.shape, other.dtype


@dataclass(slots=True)
class Measured:
    """The number of runs of a node, and the sum of their times in microseconds."""

    count: int = 0
    micros: float = 0.0


@dataclass(slots=True)
class NodeCost:
    """Measured costs of one node.

    Attributes:
        measured: its runs, by type of device.
        max_micros: the time of the longest run.
        outputs: its measured outputs.
        temp_bytes, persistent_bytes: the scratch memory and the kept memory of its last run.
    """

    measured: dict[str, Measured] = field(default_factory=lambda: defaultdict(Measured))
    max_micros: float = 0.0
    outputs: list[OutputCost] = field(default_factory=list)
    temp_bytes: int = 0
    persistent_bytes: int = 0

    @property
    def count(self) -> int:
        """The number of measured runs."""
        return sum(measured.count for measured in self.measured.values())

    @property
    def micros(self) -> float:
        """The sum of the times of all runs."""
        return sum(measured.micros for measured in self.measured.values())

    def add_run(self, device_type: str, micros: float, count: int = 1) -> None:
        """Add `count` runs, each of which took `micros`."""
        measured = self.measured[device_type]
        measured.count += count
        measured.micros += micros * count
        self.max_micros = max(self.max_micros, micros)

    def output(self, slot: int) -> OutputCost:
        """The costs of an output, to be updated."""
        while len(self.outputs) <= slot:
            self.outputs.append(OutputCost())
        return self.outputs[slot]

    def merge(self, other: NodeCost) -> None:
        """Add what another model knows of it."""
        for device_type, theirs in other.measured.items():
            mine = self.measured[device_type]
            mine.count += theirs.count
            mine.micros += theirs.micros
        self.max_micros = max(self.max_micros, other.max_micros)
        for slot, output in enumerate(other.outputs):
            self.output(slot).merge(output)
        self.temp_bytes, self.persistent_bytes = other.temp_bytes, other.persistent_bytes


class CostModel:
    """Measured costs of a graph's nodes and copies, and estimates from them.

    Args:
        costs: measured costs to begin with: step statistics of traced runs, CostGraphDefs, or other models.
        copy_micros: the latency of a copy to another device; None for the measured one, or 10 without measurements.
        copy_gbps: gigabits per second of copies between devices; None for the measured rate, or 80.
        link_micros: the latency of sending a value to another task of a cluster.
        link_gbps: gigabits per second between tasks.
        memory_gbps: gigabits per second that a kernel reads or writes, which separates the time of memory access from
            that of computing.

    Attributes:
        min_count: nodes that ran less often are taken for unmeasured: see `suppress_infrequent`.
        copies: what copies between devices took.
        persistent_ids: allocation ids of memory that nodes keep after they have run.
    """

    def __init__(
        self,
        *costs: CostModel | Message,
        copy_micros: float | None = None,
        copy_gbps: float | None = None,
        memory_gbps: float = 80.0,
        link_micros: float = 700.0,
        link_gbps: float = 10.0,
    ) -> None:
        if (
            not (copy_micros is None or copy_micros >= 0)
            or not (copy_gbps is None or copy_gbps > 0)
            or not (memory_gbps > 0 and link_micros >= 0 and link_gbps > 0)
        ):
            raise errors.InvalidArgumentError(
                "Expected copy_micros and link_micros of 0 or more, and positive copy_gbps, memory_gbps and link_gbps, "
                f"got {copy_micros}, {link_micros}, {copy_gbps}, {memory_gbps}, {link_gbps}"
            )
        self.link_micros, self.link_gbps = link_micros, link_gbps
        self._copy_micros = copy_micros
        self._copy_gbps = copy_gbps
        self.copies = CopyCosts()
        self.memory_gbps = memory_gbps
        self.min_count = 0
        self.persistent_ids: set[int] = set()
        self._nodes: dict[str, NodeCost] = {}
        for each in costs:
            self.add(each)

    # Learning

    def add(self, costs: CostModel | Message) -> None:
        """Add costs that were measured elsewhere.

        Args:
            costs: another model, a StepStats, a RunMetadata with one or with a cost graph, or a CostGraphDef.

        Raises:
            InvalidArgumentError: something else.
        """
        name = message_name(costs)
        if isinstance(costs, CostModel):
            self._merge(costs)
        elif name == "StepStats":
            self._add_step_stats(as_message(costs, proto.StepStats))
        elif name == "CostGraphDef":
            self._add_cost_graph(as_message(costs, proto.CostGraphDef))
        elif name == "RunMetadata":
            self._add_metadata(as_message(costs, proto.RunMetadata))
        else:
            raise errors.InvalidArgumentError(
                "Costs are a CostModel, or a StepStats, RunMetadata or CostGraphDef message, "
                f"got {name or type(costs).__name__}"
            )

    def _merge(self, other: CostModel) -> None:
        for name, cost in other._nodes.items():
            self._node(name).merge(cost)
        self.persistent_ids |= other.persistent_ids
        self.copies.merge(other.copies)

    def _add_step_stats(self, stats: proto.StepStats) -> None:
        on_device: dict[str, float] = {}
        copied: dict[str, float] = {}
        for device in stats.dev_stats:
            if device.device.endswith(_ALL_STREAMS):
                on_device |= {_node_name(run): _micros(run) for run in device.node_stats}
            elif device.device.endswith(COPIES):
                self._add_copies(device.node_stats, copied)
        for device in stats.dev_stats:
            device_type = _type_of(device.device)
            if device_type is not None:
                for run in device.node_stats:
                    if (name := _node_name(run)) != _SOURCE:
                        measured = copied if op_of(run) in TRANSFERS else on_device
                        self._add_run(name, device_type, measured.get(name, _micros(run)), run)

    def _add_copies(self, runs: Iterable[proto.NodeExecStats], copied: dict[str, float]) -> None:
        """Add receives with the time of the copies that they wanted, without their waits."""
        for run in runs:
            micros = _micros(run)
            copied[_node_name(run)] = micros
            self.copies.add(sum(used.total_bytes for used in run.memory), micros)

    def _add_run(self, name: str, device_type: str, micros: float, run: proto.NodeExecStats) -> None:
        cost = self._node(name)
        cost.add_run(device_type, micros)
        for made in run.output:
            described = made.tensor_description
            size = described.allocation_description.requested_bytes
            cost.output(made.slot).merge(
                OutputCost(size, size, described.shape, described.dtype, described.allocation_description.allocation_id)
            )
        memory = run.memory_stats
        cost.temp_bytes, cost.persistent_bytes = memory.temp_memory_size, memory.persistent_memory_size
        self.persistent_ids.update(each for each in memory.persistent_tensor_alloc_ids if each > 0)

    def _add_cost_graph(self, graph: proto.CostGraphDef) -> None:
        """Add one measurement of each node, except guessed ones."""
        for node in graph.node:
            micros = node.compute_time + node.memory_time or node.compute_cost
            if not micros or node.inaccurate:
                continue
            cost = self._node(node.name)
            cost.add_run(_type_of(node.device) or "", micros)
            cost.max_micros = max(cost.max_micros, node.compute_cost)
            for slot, made in enumerate(node.output_info):
                size = max(0, made.size)
                cost.output(slot).merge(OutputCost(size, made.size, made.shape, made.dtype))
            cost.temp_bytes, cost.persistent_bytes = node.temporary_memory_size, node.persistent_memory_size

    def _add_metadata(self, metadata: proto.RunMetadata) -> None:
        """Add a RunMetadata; if it has both forms, they are of the same step and count once."""
        if metadata.HasField("step_stats"):
            self._add_step_stats(metadata.step_stats)
        else:
            self._add_cost_graph(metadata.cost_graph)

    def forget(self, names: Iterable[str]) -> None:
        """Forget the measurements of nodes with these names."""
        for name in names:
            self._nodes.pop(name, None)

    def suppress_infrequent(self) -> None:
        """Treat nodes that ran less than half as often as the median node as unmeasured."""
        counts = sorted(cost.count for cost in self._nodes.values() if cost.count)
        self.min_count = counts[len(counts) // 2] // 2 if counts else 1

    def _node(self, name: str) -> NodeCost:
        cost = self._nodes.get(name)
        if cost is None:
            cost = self._nodes[name] = NodeCost()
        return cost

    # Estimates

    def find(self, name: str) -> NodeCost | None:
        """The measured costs of a node; None if it was never measured."""
        return self._nodes.get(name)

    def is_measured(self, name: str) -> bool:
        """True if more than `min_count` runs of a node were measured."""
        cost = self._nodes.get(name)
        return cost is not None and cost.count > self.min_count

    def time_estimate(self, node: Node, device_type: str | None = None) -> float:
        """The estimated time of one run of a node, in microseconds.

        Args:
            device_type: the type of device; if the node never ran there, times of other devices count.
        """
        cost = self._nodes.get(node.name)
        if cost is None or cost.count <= self.min_count:
            return 0.0 if cost is None and node.op in _THERE_ALREADY else MIN_MICROS
        there = cost.measured.get(device_type) if device_type is not None else None
        if there is not None and there.count:
            return max(MIN_MICROS, there.micros / there.count)
        return max(MIN_MICROS, cost.micros / cost.count)

    def size_estimate(self, name: str, slot: int) -> float:
        """The bytes of an output of a node; 0 if unknown."""
        cost = self._nodes.get(name)
        if cost is None or not cost.count or cost.count < self.min_count or slot >= len(cost.outputs):
            return 0.0
        return cost.outputs[slot].bytes / cost.count

    def copy_time(self, size: float) -> float:
        """The time of copying `size` bytes to another device, in microseconds."""
        per_byte = self._copy_micros_per_byte()
        return self._copy_latency(per_byte) + size * per_byte

    def transfer_time(self, size: float, source: str, destination: str) -> float:
        """The time of bringing `size` bytes from one device to another, by their names, in microseconds."""
        if _task_of(source) == _task_of(destination):
            return self.copy_time(size)
        return self.link_micros + size / _bytes_per_micro(self.link_gbps)

    @property
    def copy_micros(self) -> float:
        """The latency of a copy to another device, in microseconds."""
        return self._copy_latency(self._copy_micros_per_byte())

    def _copy_latency(self, per_byte: float) -> float:
        return self.copies.latency(per_byte, _COPY_MICROS) if self._copy_micros is None else self._copy_micros

    def _copy_micros_per_byte(self) -> float:
        if self._copy_gbps is not None:
            return 1 / _bytes_per_micro(self._copy_gbps)
        return self.copies.micros_per_byte(1 / _bytes_per_micro(_COPY_GBPS))

    def memory_time(self, size: float) -> float:
        """The time in which a kernel reads or writes `size` bytes, in microseconds."""
        return size / _bytes_per_micro(self.memory_gbps)

    def __len__(self) -> int:
        """The number of nodes with measured costs."""
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<CostModel of {len(self._nodes)} nodes>"


@lru_cache(maxsize=4096)
def _task_of(device: str) -> DeviceName:
    return DeviceName.parse(device).without_device()


def _bytes_per_micro(gbps: float) -> float:
    return gbps * 1000 / 8


def _micros(run: proto.NodeExecStats) -> float:
    """The time of the kernel itself; statistics of other programs have whole microseconds."""
    nanos = run.op_end_rel_nanos - run.op_start_rel_nanos
    return nanos / 1e3 if nanos else float(run.op_end_rel_micros - run.op_start_rel_micros)


def _node_name(run: proto.NodeExecStats) -> str:
    """The node's name; names of events on streams have a colon and a suffix, which node names do not."""
    return run.node_name.partition(":")[0]


def _type_of(device: str) -> str | None:
    """The type of a device; None if the name is no device's, such as that of a lane of a trace."""
    try:
        return DeviceName.parse(device).type or ""
    except errors.InvalidArgumentError:
        return None
