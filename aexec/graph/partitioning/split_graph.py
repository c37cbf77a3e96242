"""`SplitGraph`: a placed graph while it is being split: its nodes, their devices, and the partitions so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import float32
from aexec.framework.op_contract import op_registry
from aexec.framework.types import MemoryType
from aexec.framework.wire.attr_value import TensorAttr
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.prune import is_fed_placeholder, reachable
from aexec.graph.partitioning.node_memory_types import NodeMemoryTypes, memory_types_for_node
from aexec.graph.partitioning.partition import Partition
from aexec.graph.passes import WorkingGraph

__all__ = ["IN_HOST_MEMORY", "SplitGraph"]

# Attrs of a node that only signals the end of another: its values are for the executor, so they are in host memory.
IN_HOST_MEMORY = {"_input_hostmem": [0], "_output_hostmem": [0]}


class SplitGraph:
    """Keeps the nodes and the partitions of a split, and adds nodes to them.

    Args:
        needed_by: ids of the nodes whose producers run.
        device_of, numbers: as in `split`.

    Attributes:
        graph: the graph to split; it does not change.
        fed: the fed endpoints.
        kept: the nodes of the graph that run, by id.
        places: node id → device, for added nodes too.
        partitions: name of the device → partition.
    """

    def __init__(
        self,
        graph: WorkingGraph,
        feeds: Sequence[Endpoint],
        needed_by: Sequence[int],
        device_of: Callable[[Node], Device],
        numbers: Iterator[int],
    ) -> None:
        self.graph = graph
        self.fed = frozenset(feeds)
        needed = sorted(reachable(graph, needed_by, self.fed))
        self.kept = {i: graph.nodes[i] for i in needed if not is_fed_placeholder(graph, i, self.fed)}
        self.places = {node_id: device_of(node) for node_id, node in self.kept.items()}
        self.partitions: dict[str, Partition] = {}
        self._numbers = numbers
        self._next_id = graph.next_id
        self._memory_types: dict[int, NodeMemoryTypes] = {}

    def partition(self, device: Device) -> Partition:
        partition = self.partitions.get(device.name)
        if partition is None:
            partition = self.partitions[device.name] = Partition(self.graph, device)
        return partition

    def new(
        self,
        partition: Partition,
        name: str,
        op: str,
        attrs: Mapping[str, Any],
        inputs: tuple[Endpoint, ...] = (),
        control_inputs: tuple[int, ...] = (),
        node_id: int | None = None,
    ) -> int:
        """Add a node to a partition; return its id."""
        if node_id is None:
            node_id = self.new_id()
        op_def = op_registry.global_registry.lookup(op).op_def
        device = partition.device
        node = Node(
            partition,
            node_id,
            name,
            op_def,
            {**op_def.defaults, **attrs},
            inputs=inputs,
            control_inputs=control_inputs,
            device=device.name,
        )
        partition.nodes[node_id] = node
        partition.added.add(node_id)
        self.places[node_id] = device
        return node_id

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def new_name(self, stem: str) -> str:
        """Return the next of `stem/_1`, `stem/_2`, … that no node of the graph has."""
        while True:
            name = f"{stem}/_{next(self._numbers)}"
            if name not in self.graph:
                return name

    def new_nothing(self, partition: Partition, name: str, control_inputs: tuple[int, ...] = ()) -> int:
        attrs: dict[str, Any] = {"dtype": float32, "value": TensorAttr(np.zeros(0, np.float32), float32)}
        if not partition.device.is_host:
            attrs |= {"_output_hostmem": [0]}
        return self.new(partition, name, "Const", attrs, (), control_inputs)

    def memory_of(self, endpoint: Endpoint, wanted: MemoryType) -> MemoryType:
        """Return the memory that a value is in; for a constant of a device, whichever is wanted."""
        device = self.places[endpoint[0]]
        node = self.partition(device).nodes[endpoint[0]]
        if node.op == "Const" and not (device.is_host or node.control_edges):
            return wanted
        types = self.memory_types(node, device)
        return MemoryType.HOST_MEMORY if types is None else types.outputs[endpoint[1]]

    def memory_types(self, node: Node, device: Device) -> NodeMemoryTypes | None:
        """Return the memory types of a node on a device; None if all its values are in host memory."""
        if device.is_host:
            return None
        known = self._memory_types.get(node.id)
        if known is None:
            known = self._memory_types[node.id] = memory_types_for_node(node, device.type)
        return known

    def set_output_memory(self, node_id: int, memory: MemoryType) -> None:
        """Set the memory type of the output of a node without inputs, for devices other than the host."""
        self._memory_types[node_id] = NodeMemoryTypes((), (memory,))
