"""Partitions: the nodes of a placed graph, one graph per device, with a Send and a Recv for every edge between them.

What travels is a value, once for each device that needs it, under a name that both ends know; who waits for a node
elsewhere waits for an empty value that is made after it.  The host's memory and that of a device which is not the
host are two places: between them values travel in the same way, although both ends are on one device.

Where an edge between devices is inside a loop, the device at its end gets a *control loop*: the frame with nothing in
it but the loop's predicate, which is sent over, so that the Recv is issued once in every iteration.
After TensorFlow's core/graph/graph_partition.cc.  Next to read: `aexec/kernels/control_flow/sendrecv_ops.py`, and
`aexec/runtime/plans/partitioned_plan.py` for how the partitions run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType, bfloat16, float32, resource
from aexec.framework.op_contract import op_registry
from aexec.framework.types import MemoryType
from aexec.framework.waiting.long_work import empty, steadily
from aexec.framework.wire.attr_value import TensorAttr
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.control_flow import ENTER, EXIT, MERGE, NEXT_ITERATION, SWITCH, FrameInfo
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.prune import is_fed_placeholder, reachable
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.ordering.step_order import StepOrder
from aexec.graph.partitioning.node_memory_types import NodeMemoryTypes, memory_types_for_node
from aexec.graph.partitioning.schedule import Costs, start_times, triggers
from aexec.graph.passes import WorkingGraph

__all__ = ["SENDS", "TRANSFERS", "Ends", "Partition", "split"]

SENDS = frozenset({"_Send", "_HostSend", "Send"})
RECEIVES = frozenset({"_Recv", "_HostRecv", "Recv"})
TRANSFERS = SENDS | RECEIVES

# In place of an output's number: what travels is that the node is done.
_DONE = -1
# Their place is where the values are that they pass on.
_FOLLOWS_INPUT = SWITCH | EXIT
_GOES_BEFORE_CONSUMER = ENTER | NEXT_ITERATION
# Of what says that a node is done; that is the executor's business, not the device's.
_IN_HOST_MEMORY = {"_input_hostmem": [0], "_output_hostmem": [0]}


class _Nodes(dict[int, Node]):
    """The nodes of a partition by id; others, which may be named, are those of the whole graph."""

    def __init__(self, whole: WorkingGraph) -> None:
        super().__init__()
        self._whole = whole

    def __missing__(self, node_id: int) -> Node:
        return self._whole.nodes[node_id]


class Partition:
    """What runs on one device: a graph to whoever lays out a plan.

    Attributes:
        device: where it runs.
        nodes: its nodes by id; nodes of the whole graph have the ids that they have there.
        added: ids of those that the whole graph has not.
        feeds, fetches: position in the request → the endpoint by which a value enters or leaves here.
        fetched_from: position of a fetch that leaves here → the device in whose memory it is, None for the host's.
        targets: ids of the nodes that are to run although nothing here uses what they give: Sends, targets of
            the request, and what tells a node that one on another device is over which it follows.
        order: the order edges between its nodes.
    """

    def __init__(self, whole: WorkingGraph, device: Device) -> None:
        self._whole = whole
        self.device = device
        self.nodes: dict[int, Node] = _Nodes(whole)
        self.added: set[int] = set()
        self.feeds: dict[int, Endpoint] = {}
        self.fetches: dict[int, Endpoint] = {}
        self.fetched_from: dict[int, Device | None] = {}
        self.targets: list[int] = []
        self._after: dict[int, tuple[int, ...]] = {}
        self._fetched: dict[Endpoint, tuple[int, ...]] = {}
        self.order = StepOrder(self._after, {}, self._fetched)

    def follow(self, node_id: int, sources: Iterable[int]) -> None:
        """Let one of its nodes begin when others are over."""
        self._after[node_id] = tuple(dict.fromkeys((*self._after.get(node_id, ()), *sources)))

    def fetch_after(self, endpoint: Endpoint, sources: Iterable[int]) -> None:
        """Let what is fetched here be taken when others are over."""
        self._fetched[endpoint] = tuple(dict.fromkeys(sources))

    @property
    def versions(self) -> proto.VersionDef:
        return self._whole.versions

    @property
    def library(self) -> FunctionLibrary:
        return self._whole.library

    def __contains__(self, name: object) -> bool:
        return name in self._whole

    def find(self, name: str) -> Node | None:
        """The node of the whole graph of that name, or None."""
        return self._whole.find(name)

    def take_apart(self) -> None:
        """Nobody uses it any more: let go of its nodes, which refer to the whole graph."""
        empty(self.nodes)

    def __repr__(self) -> str:
        return f"<Partition {self.device.name}: {len(self.nodes)} nodes>"


class Ends(NamedTuple):
    """Where the values are that are fed, and where those are wanted that are fetched.

    A device stands for its memory; there, in its partition, the value enters or leaves.  None stands for the host's
    memory, wherever the value is used or made: such a value enters every partition that uses it.

    Attributes:
        feeds, fetches: in the order of the request; None for fetches leaves each in the memory that it is made in.
    """

    feeds: Sequence[Device | None]
    fetches: Sequence[Device | None] | None


def split(
    graph: WorkingGraph,
    feeds: Sequence[Endpoint],
    fetches: Sequence[Endpoint],
    targets: Sequence[int],
    device_of: Callable[[Node], Device],
    host: Device,
    numbers: Iterator[int],
    *,
    compress: bool = False,
    costs: Costs | None = None,
    ends: Ends | None = None,
) -> list[Partition]:
    """One partition per device that has a node to run, in the order of each device's first node.

    Args:
        graph: left as it is.
        device_of: where a node of it was placed.
        host: where feeds enter and fetches leave, unless `ends` says where.
        numbers: for the names of what is added, which no other partition has.
        compress: float32 values go to other devices as bfloat16, the lower half of their bits cut off.
        costs: by these a step is simulated, and receives that it would not need for long are held back; None lets
            every receive begin at once.

    Raises:
        InvalidArgumentError: malformed loop frames; a loop over several devices without LoopCond; a node that
            assigns to a variable of another device.
    """
    if ends is None:
        ends = Ends([host] * len(feeds), [host] * len(fetches))
    splitter = _Splitter(graph, feeds, fetches, targets, device_of, host, ends, numbers, compress)
    partitions = splitter.split()
    if costs is not None:
        splitter.hold_receives_back(costs)
    return partitions


class _Splitter:
    def __init__(
        self,
        graph: WorkingGraph,
        feeds: Sequence[Endpoint],
        fetches: Sequence[Endpoint],
        targets: Sequence[int],
        device_of: Callable[[Node], Device],
        host: Device,
        ends: Ends,
        numbers: Iterator[int],
        compress: bool,
    ) -> None:
        self.graph = graph
        self.compress = compress
        self.feeds, self.fetches, self.targets = feeds, fetches, targets
        self.fed = frozenset(feeds)
        self.host = host
        self.ends = ends
        self.positions = {endpoint: position for position, endpoint in enumerate(feeds)}
        self.refs = RefEdges(graph, self.fed)
        needed = sorted(reachable(graph, [*(i for i, _ in fetches), *targets], self.fed))
        self.kept = {i: graph.nodes[i] for i in needed if not is_fed_placeholder(graph, i, self.fed)}
        self.numbers = numbers
        self.next_id = graph.next_id
        self.partitions: dict[str, Partition] = {}
        # Where each node runs, those added too.
        self.places = {node_id: device_of(node) for node_id, node in self.kept.items()}
        self.frame_of: Mapping[int, FrameInfo] = {}
        self.analysis: control_flow.Frames | None = None
        self.conditions: dict[str, Node] = {}
        self.arguments: dict[tuple[int, str], int] = {}
        # What was made already: per source, device and memory the node that receives it, per frame and device the
        # Merge of the control loop.
        self.received: dict[tuple[Endpoint, str, MemoryType], int] = {}
        self.control_loops: dict[tuple[str, str], int] = {}
        # Frames and devices on which something goes round in them.
        self.rounds: set[tuple[str, str]] = set()
        self.memory_types: dict[int, NodeMemoryTypes] = {}
        # Node of the graph that reads variables of another device → the nodes that do so there; what receives a
        # value → the node that reads it, if it comes from a variable.
        self.reading_for: dict[int, list[int]] = {}
        self.read_by: dict[int, int] = {}

    def split(self) -> list[Partition]:
        if any(node.op in ENTER for node in self.kept.values()):
            self._analyse_loops()
        self._place_control_flow()
        for node_id, node in steadily(self.kept.items()):
            self._add(node, self._partition(self.places[node_id]))
        self._put_in_order()
        self._add_ends()
        return list(self.partitions.values())

    def _partition(self, device: Device) -> Partition:
        partition = self.partitions.get(device.name)
        if partition is None:
            partition = self.partitions[device.name] = Partition(self.graph, device)
        return partition

    # Loops, and where control flow runs

    def _analyse_loops(self) -> None:
        consumers = {node.id for node in self.kept.values() if not self.fed.isdisjoint(node.in_edges)}
        self.analysis = control_flow.analyze(self.kept.values(), self._producers, consumers)
        self.frame_of = self.analysis.of
        for node in self.kept.values():
            if node.op == "LoopCond":
                frame = self.frame_of[node.id].name
                # Gradients count a loop's iterations, with a predicate of their own.
                if "LoopCounter" not in node.name or frame not in self.conditions:
                    self.conditions[frame] = node

    def _producers(self, node: Node) -> list[Node]:
        nodes = self.graph.nodes
        data = [nodes[e[0]] for e in node.in_edges if e not in self.fed]
        return data + [nodes[i] for i in node.control_edges if i in self.kept]

    def _place_control_flow(self) -> None:
        """Control flow only passes values on: it runs where these are, or where they are wanted."""
        moving = [node for node in self.kept.values() if node.op in _FOLLOWS_INPUT]
        for node in producers_first(moving, self.graph.nodes.__getitem__):
            source = node.in_edges[0]
            fed_at = self.ends.feeds[self.positions[source]] if source in self.fed else self.places[source[0]]
            self.places[node.id] = fed_at or self.places[node.id]
        going = {node.id for node in self.kept.values() if _goes_before_consumer(node)}
        if not going:
            return
        first: dict[int, Node] = {}
        for node in self.kept.values():
            for source_id, _ in node.in_edges:
                if source_id in going:
                    first.setdefault(source_id, node)
        for node_id, consumer in first.items():
            self.places[node_id] = self.places[consumer.id]
        for node in self.kept.values():
            if node.op in NEXT_ITERATION:
                self.rounds.add((self.frame_of[node.id].name, self.places[node.id].name))

    # Nodes

    def _add(self, node: Node, partition: Partition) -> None:
        inputs = tuple([self._data(node, position, partition) for position in range(len(node.in_edges))])
        frame = self.frame_of.get(node.id)
        waited_for = [i for i in node.control_edges if i in self.kept]
        controls = tuple(dict.fromkeys([self._control(i, partition, frame) for i in waited_for]))
        if inputs != node.in_edges or controls != node.control_edges:
            node = node.rewired(partition, inputs, controls)
        partition.nodes[node.id] = node

    def _put_in_order(self) -> None:
        """Add the order edges; where something reads for a node on another device, that counts."""
        order = self.graph.order
        for update, reads in order.after.items():
            if update in self.kept:
                partition = self._partition(self.places[update])
                partition.follow(update, [i for r in reads for i in self._reads_of(r, update, partition)])
        for read, updates in order.late.items():
            for reader in (read, *self.reading_for.get(read, ())) if read in self.kept else ():
                partition = self._partition(self.places[reader])
                partition.follow(reader, self._ends_of(updates, read, partition))

    def _reads_of(self, source: int, follower: int, partition: Partition) -> Sequence[int]:
        """What stands in a partition for a node that reads: what reads here for it, if it is elsewhere."""
        is_elsewhere = source in self.kept and self.places[source].name != partition.device.name
        if is_elsewhere and resource not in self.kept[source].input_types:
            reading = [i for i in self.reading_for.get(source, ()) if i in partition.nodes]
            if reading:
                return reading
        return self._ends_of([source], follower, partition)

    def _ends_of(self, sources: Iterable[int], follower: int, partition: Partition) -> list[int]:
        """What says in a partition that nodes are over, which may be elsewhere."""
        ends = [self._control(i, partition, self.frame_of.get(follower)) for i in sources if i in self.kept]
        partition.targets += [i for i in ends if i in partition.added and i not in partition.targets]
        return ends

    def _add_ends(self) -> None:
        for endpoint, place in zip(self.feeds, self.ends.feeds, strict=True):
            if place is not None:
                self._argument(endpoint, self._partition(place))
        for position in range(len(self.fetches)):
            self._add_fetch(position)
        for node_id in self.targets:
            if node_id in self.kept:
                self._partition(self.places[node_id]).targets.append(node_id)

    def _add_fetch(self, position: int) -> None:
        """Let a fetched value leave."""
        endpoint = self.fetches[position]
        source, here = endpoint, self._partition(self.places[endpoint[0]]) if endpoint[0] in self.places else None
        if endpoint in self.fed:
            here = self._enters_at(endpoint)
            source = (self._argument(endpoint, here), 0)
        assert here is not None
        after = self.graph.order.fetched.get(endpoint, ())
        if self.ends.fetches is None:
            memory, leaves_at = self._memory_of(source, MemoryType.HOST_MEMORY), here
        else:
            wanted = self.ends.fetches[position]
            is_on_host = wanted is None or wanted.is_host
            memory = MemoryType.HOST_MEMORY if is_on_host else MemoryType.DEVICE_MEMORY
            leaves_at = here if wanted is None else self._partition(wanted)
        in_memory_of = None if memory is MemoryType.HOST_MEMORY else leaves_at.device
        node = self._partition(self.places[source[0]]).nodes[source[0]]
        if in_memory_of is not None and here is leaves_at and node.op == "Const":
            # It is made in the host's memory, and is the device's where it is used.
            attrs = {"T": node.output_types[0]}
            source = (self._new(leaves_at, self._new_name(node.name), "Identity", attrs, (source,)), 0)
        if here is not leaves_at or self._memory_of(source, memory) is not memory:
            frame = None if self.analysis is None else self.analysis.of_outputs(self.graph.nodes[endpoint[0]])
            shared = not self.refs.gives_cell(endpoint)
            source = (self._transferred(source, leaves_at, frame, memory, shared=shared), 0)
            if not shared:
                here.follow(self.read_by[source[0]], self._ends_of(after, endpoint[0], here))
        elif after:
            leaves_at.fetch_after(source, self._ends_of(after, endpoint[0], leaves_at))
        leaves_at.fetches[position] = source
        leaves_at.fetched_from[position] = in_memory_of

    def _enters_at(self, endpoint: Endpoint) -> Partition:
        """A partition that a fed value enters, or may."""
        place = self.ends.feeds[self.positions[endpoint]]
        if place is not None:
            return self._partition(place)
        position = self.positions[endpoint]
        using = (p for p in self.partitions.values() if (position, p.device.name) in self.arguments)
        return next(using, None) or next(iter(self.partitions.values()), None) or self._partition(self.host)

    def _new(
        self,
        partition: Partition,
        name: str,
        op: str,
        attrs: Mapping[str, Any],
        inputs: tuple[Endpoint, ...] = (),
        control_inputs: tuple[int, ...] = (),
        node_id: int | None = None,
    ) -> int:
        """Add a node to a partition; returns its id."""
        if node_id is None:
            node_id = self._new_id()
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

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _new_name(self, stem: str) -> str:
        """`stem/_1`, `stem/_2`, …: no node of the graph."""
        while True:
            name = f"{stem}/_{next(self.numbers)}"
            if name not in self.graph:
                return name

    def _argument(self, endpoint: Endpoint, partition: Partition) -> int:
        """The node by which a fed value enters; if it may do so anywhere, in this partition."""
        position = self.positions[endpoint]
        place = self.ends.feeds[position]
        if place is not None:
            partition = self._partition(place)
        key = (position, partition.device.name)
        found = self.arguments.get(key)
        if found is None:
            source = self.graph.nodes[endpoint[0]]
            name = f"_arg_{source.name}_{endpoint[1]}_{position}"
            attrs = {"T": source.output_types[endpoint[1]].base, "index": position}
            found = self.arguments[key] = self._new(partition, name, "_Arg", attrs)
            partition.feeds[position] = (found, 0)
            memory = MemoryType.HOST_MEMORY if place is None or place.is_host else MemoryType.DEVICE_MEMORY
            self.memory_types[found] = NodeMemoryTypes((), (memory,))
        return found

    # Time

    def hold_receives_back(self, costs: Costs) -> None:
        """Let receives begin when a simulated step would need them soon; after the split."""
        starts = start_times(_with_order(self.kept, self.graph.order), costs)
        # A simulated step goes through a loop once: what leads into one may be needed before what comes after it.
        into_loops = self._producers_of([node for node in self.kept.values() if node.op in ENTER])
        for partition in self.partitions.values():
            nodes = _with_order(partition.nodes, partition.order)
            order = producers_first(nodes.values(), nodes.__getitem__)
            apart: set[int] = set()
            for node in order:
                if node.op in ENTER or self._is_in_loop(node, apart):
                    apart.add(node.id)
            # What no node of the graph needs here, as results, has no time at which it is needed.
            needed = {i for i in nodes if i not in partition.added}
            for node in reversed(order):
                if node.id in needed:
                    needed.update(_producers(node))
            apart.update(partition.added - needed)
            leading = {i for node in nodes.values() if node.id in into_loops for i in _producers(node)}
            for node in reversed(order):
                if node.id in leading:
                    leading.update(_producers(node))
            # One that waits for a Send of its own device begins late as it is.
            receives = [i for i in partition.added - leading if nodes[i].op in RECEIVES and not nodes[i].control_edges]
            for trigger in triggers(nodes, starts, receives, apart):
                held_by = self._new(partition, self._new_name("synch"), "ControlTrigger", {}, (), (trigger.after,))
                for receive in trigger.receives:
                    partition.nodes[receive] = nodes[receive].rewired(partition, (), (held_by,))

    def _producers_of(self, nodes: Iterable[Node]) -> set[int]:
        """Ids of nodes, and of all from which there is a way to them."""
        found = {node.id for node in nodes}
        left = list(found)
        while left:
            for i in _producers(self.kept[left.pop()]):
                if i in self.kept and i not in found:
                    found.add(i)
                    left.append(i)
        return found

    def _is_in_loop(self, node: Node, in_loops: Container[int]) -> bool:
        """Does a node run once in every iteration, if of its producers these do?"""
        frame = self.frame_of.get(node.id)
        if frame is not None:
            return frame.parent is not None
        return any(source in in_loops for source in _producers(node))

    # Edges

    def _data(self, node: Node, position: int, partition: Partition) -> Endpoint:
        """What a node of a partition has as an input."""
        endpoint = node.in_edges[position]
        is_fed = endpoint in self.fed
        source = (self._argument(endpoint, partition), 0) if is_fed else endpoint
        types = self._memory_types(node, partition.device)
        wanted = MemoryType.HOST_MEMORY if types is None else types.inputs[position]
        if self.places[source[0]].name == partition.device.name and self._memory_of(source, wanted) is wanted:
            return source
        if node.input_types[position].is_ref:
            raise errors.InvalidArgumentError(
                f"{position}-th input expects a ref type, which does not leave its device",
                node=node.name,
                op=node.op,
                site=node.site,
            )
        frame = self.frame_of.get(node.id)
        if is_fed or not self.refs.gives_cell(endpoint):
            return (self._transferred(source, partition, frame, wanted), 0)
        before = self._read_after(node, source)
        received = self._transferred(source, partition, frame, wanted, shared=False, before=before)
        self.reading_for.setdefault(node.id, []).append(self.read_by[received])
        return (received, 0)

    def _memory_of(self, endpoint: Endpoint, wanted: MemoryType) -> MemoryType:
        """Where a value is; that of a constant of a device is wherever it is wanted."""
        device = self.places[endpoint[0]]
        node = self._partition(device).nodes[endpoint[0]]
        if node.op == "Const" and not (device.is_host or node.control_edges):
            return wanted
        types = self._memory_types(node, device)
        return MemoryType.HOST_MEMORY if types is None else types.outputs[endpoint[1]]

    def _memory_types(self, node: Node, device: Device) -> NodeMemoryTypes | None:
        """Where the inputs and outputs of a node of a device are; None if all are in the host's memory."""
        if device.is_host:
            return None
        known = self.memory_types.get(node.id)
        if known is None:
            known = self.memory_types[node.id] = memory_types_for_node(node, device.type)
        return known

    def _read_after(self, node: Node, source: Endpoint) -> tuple[int, ...]:
        """What a variable is read after, for a consumer elsewhere: whatever else that waits for, as if it read."""
        if node.op in MERGE:
            return ()  # it waits for one input only
        on_source = self._partition(self.places[source[0]])
        frame = self.frame_of.get(node.id)
        others = [i for i, k in node.in_edges if (i, k) not in self.fed and i != source[0]]
        waited_for = [i for i in (*others, *node.control_edges) if i in self.kept and i != source[0]]
        return tuple(dict.fromkeys([self._control(i, on_source, frame) for i in waited_for]))

    def _control(self, node_id: int, partition: Partition, frame: FrameInfo | None) -> int:
        """The node that a node of a partition waits for instead of one that may be elsewhere."""
        if self.places[node_id].name == partition.device.name:
            return node_id
        key = ((node_id, _DONE), partition.device.name, MemoryType.HOST_MEMORY)
        if key not in self.received:
            # Only values travel: an empty one that is made after the node has run.
            source = self.kept[node_id]
            there = self._partition(self.places[node_id])
            nothing = self._new_nothing(there, self._new_name(f"{source.name}/ctrl"), (node_id,))
            received = self._transferred((nothing, 0), partition, frame, MemoryType.HOST_MEMORY, stem=source.name)
            name = self._new_name(source.name)
            attrs = {"T": float32} if partition.device.is_host else {"T": float32, **_IN_HOST_MEMORY}
            self.received[key] = self._new(partition, name, "Identity", attrs, ((received, 0),))
        return self.received[key]

    def _new_nothing(self, partition: Partition, name: str, control_inputs: tuple[int, ...] = ()) -> int:
        attrs: dict[str, Any] = {"dtype": float32, "value": TensorAttr(np.zeros(0, np.float32), float32)}
        if not partition.device.is_host:
            attrs |= {"_output_hostmem": [0]}
        return self._new(partition, name, "Const", attrs, (), control_inputs)

    def _transferred(
        self,
        source: Endpoint,
        partition: Partition,
        frame: FrameInfo | None,
        memory: MemoryType,
        *,
        shared: bool = True,
        before: tuple[int, ...] = (),
        stem: str | None = None,
    ) -> int:
        """The node of a partition that receives a value which is elsewhere.

        Args:
            frame: in which the value is.
            memory: where it is wanted.
            shared: all who want it there have the same.
            before: what has to be done before it is sent.
            stem: what the names of both ends begin with; by default the source's.
        """
        key = (source, partition.device.name, memory)
        if shared and key in self.received:
            return self.received[key]
        there = self._partition(self.places[source[0]])
        node = there.nodes[source[0]]
        given = self._memory_of(source, memory)
        dtype: DType = node.output_types[source[1]].base
        compressed = self.compress and dtype is float32 and stem is None and there is not partition
        stem = node.name if stem is None else stem
        if compressed:
            source, before, dtype = (self._new_cast(there, stem, source, given, float32, before), 0), (), bfloat16
        send, receive = self._new_name(stem), self._new_name(stem)
        attrs = {
            "tensor_name": f"edge_{receive.rpartition('_')[2]}_{stem}".encode(),
            "send_device": there.device.name.encode(),
            "send_device_incarnation": there.device.incarnation,
            "recv_device": partition.device.name.encode(),
            "client_terminated": False,
        }
        received = self._new_id()
        taken = self._new_id() if compressed else received
        if shared:
            self.received[key] = taken
        sent_from = _op_in("Send", there.device, given)
        sent = self._new(there, send, sent_from, {"T": dtype, **attrs}, (source,), before)
        if not shared:
            self.read_by[taken] = source[0] if compressed else sent
        there.targets.append(sent)
        controls: tuple[int, ...] = ()
        if there is partition:
            controls = (sent,)  # until then there is nothing to receive
        elif frame is not None and frame.parent is not None:
            controls = (self._control_loop(frame, partition),)
            if (frame.name, there.device.name) not in self.rounds:
                # What enters every iteration is sent in every one, although nothing else here goes round.
                self.rounds.add((frame.name, there.device.name))
                there.targets.append(self._control_loop(frame, there))
        received_in = _op_in("Recv", partition.device, memory)
        self._new(partition, receive, received_in, {"tensor_type": dtype, **attrs}, (), controls, received)
        if compressed:
            self._new_cast(partition, stem, (received, 0), memory, bfloat16, node_id=taken)
        return taken

    def _new_cast(
        self,
        partition: Partition,
        stem: str,
        source: Endpoint,
        memory: MemoryType,
        given: DType,
        control_inputs: tuple[int, ...] = (),
        node_id: int | None = None,
    ) -> int:
        """What makes bfloat16 of float32 by dropping the lower bits, or float32 of bfloat16."""
        attrs = {"SrcT": given, "DstT": bfloat16 if given is float32 else float32, "Truncate": True}
        op = "_HostCast" if _is_beside(partition.device, memory) else "Cast"
        return self._new(partition, self._new_name(stem), op, attrs, (source,), control_inputs, node_id)

    def _control_loop(self, frame: FrameInfo, partition: Partition) -> int:
        """The Merge that fires in every iteration of a frame, the last included, on a device."""
        key = (frame.name, partition.device.name)
        found = self.control_loops.get(key)
        if found is not None:
            return found
        condition = self.conditions.get(frame.name)
        if condition is None:
            raise errors.InvalidArgumentError(f"A cross-device loop must have a pivot predicate: {frame.name}")
        assert frame.parent is not None
        merge, following = self._new_id(), self._new_id()
        self.control_loops[key] = merge  # what receives the predicate needs it
        stem = f"_cloop{condition.name}"
        if frame.parent.parent is None:
            begin = self._new_nothing(partition, self._new_name(stem))
        else:
            begin = self._control_loop(frame.parent, partition)
        attrs = {"T": float32}
        of_frame = {"frame_name": frame.name.encode(), "parallel_iterations": frame.parallel_iterations}
        enter = self._new(partition, self._new_name(stem), "Enter", {**attrs, **of_frame}, ((begin, 0),))
        self._new(
            partition, self._new_name(stem), "Merge", {**attrs, "N": 2}, ((enter, 0), (following, 0)), node_id=merge
        )
        predicate, host = (condition.id, 0), MemoryType.HOST_MEMORY
        is_here = self.places[condition.id].name == partition.device.name
        if not is_here or self._memory_of(predicate, host) is not host:
            predicate = (self._transferred(predicate, partition, frame, host), 0)
        switch = self._new(partition, self._new_name(stem), "Switch", attrs, ((merge, 0), predicate))
        self._new(partition, self._new_name(stem), "NextIteration", attrs, ((switch, 1),), node_id=following)
        return merge


def _op_in(end: str, device: Device, memory: MemoryType) -> str:
    """The op of a Send or Recv whose value is in this memory."""
    return f"_Host{end}" if _is_beside(device, memory) else f"_{end}"


def _is_beside(device: Device, memory: MemoryType) -> bool:
    """Is this the host's memory, and the device's another?"""
    return memory is MemoryType.HOST_MEMORY and not device.is_host


def _with_order(nodes: Mapping[int, Node], order: StepOrder) -> Mapping[int, Node]:
    """The same nodes with order edges as control edges, for whoever only wants to know what comes before what."""
    if not order.after:
        return nodes
    followers = [(nodes[i], sources) for i, sources in order.after.items() if i in nodes]
    return {
        **nodes,
        **{n.id: n.rewired(n.graph, n.in_edges, (*n.control_edges, *sources)) for n, sources in followers},
    }


def _producers(node: Node) -> tuple[int, ...]:
    """Ids of the nodes that lead to a node."""
    return (*(i for i, _ in node.in_edges), *node.control_edges)


def _goes_before_consumer(node: Node) -> bool:
    return node.op in _GOES_BEFORE_CONSUMER and not (node.op in ENTER and node.input_types[0].is_ref)
