"""Splits a placed graph: one partition per device, with a Send and a Recv for every edge between devices.

After TensorFlow's core/graph/graph_partition.cc.  Next to read: `transfers.py`, for what goes between partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import resource
from aexec.framework.types import MemoryType
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.control_flow import MERGE
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.partitioning.held_receives import hold_receives_back
from aexec.graph.partitioning.partition import Ends, Partition
from aexec.graph.partitioning.schedule import Costs
from aexec.graph.partitioning.split_graph import SplitGraph
from aexec.graph.partitioning.split_loops import SplitLoops
from aexec.graph.partitioning.transfers import Transfers
from aexec.graph.passes import WorkingGraph

__all__ = ["split"]


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
    """Return one partition per device that has a node to run, in the order of each device's first node.

    Args:
        graph: the placed graph; it does not change.
        device_of: returns the device on which a node was placed.
        host: the device where feeds enter and fetches leave, unless `ends` says otherwise.
        numbers: source of unique numbers for the names of added nodes.
        compress: send float32 values to other devices as bfloat16, which drops the lower half of their bits.
        costs: estimates for a simulated step, by which receives are delayed until they are needed soon; None starts
            every receive at once.

    Raises:
        InvalidArgumentError: malformed loop frames; a loop over several devices without LoopCond; a node that assigns
            to a variable of another device.
    """
    if ends is None:
        ends = Ends([host] * len(feeds), [host] * len(fetches))
    return _Splitter(graph, feeds, fetches, targets, device_of, host, ends, numbers, compress).split(costs)


class _Splitter:
    """Adds a graph's nodes, its order edges, feeds and fetches to partitions."""

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
        self._feeds, self._fetches, self._targets = feeds, fetches, targets
        self._host = host
        self._ends = ends
        self._positions = {endpoint: position for position, endpoint in enumerate(feeds)}
        self._split = SplitGraph(graph, feeds, [*(i for i, _ in fetches), *targets], device_of, numbers)
        self._refs = RefEdges(graph, self._split.fed)
        self._loops = SplitLoops(self._split)
        self._transfers = Transfers(self._split, self._loops, compress=compress)
        self._arguments: dict[tuple[int, str], int] = {}
        # Node of the graph that reads variables of another device → the added nodes that read them there.
        self._reading_for: dict[int, list[int]] = {}

    def split(self, costs: Costs | None) -> list[Partition]:
        """Return the partitions."""
        self._loops.place_control_flow(lambda endpoint: self._ends.feeds[self._positions[endpoint]])
        for node_id, node in steadily(self._split.kept.items()):
            self._add(node, self._split.partition(self._split.places[node_id]))
        self._put_in_order()
        self._add_ends()
        partitions = list(self._split.partitions.values())
        if costs is not None:
            hold_receives_back(self._split, self._loops, costs)
        return partitions

    def _add(self, node: Node, partition: Partition) -> None:
        inputs = tuple([self._data(node, position, partition) for position in range(len(node.in_edges))])
        frame = self._loops.frame_of.get(node.id)
        waited_for = [i for i in node.control_edges if i in self._split.kept]
        controls = tuple(dict.fromkeys([self._transfers.done(i, partition, frame) for i in waited_for]))
        if inputs != node.in_edges or controls != node.control_edges:
            node = node.rewired(partition, inputs, controls)
        partition.nodes[node.id] = node

    def _put_in_order(self) -> None:
        """Add the order edges; if a node's variable is read on another device for it, that read counts."""
        split = self._split
        order = split.graph.order
        for update, reads in order.after.items():
            if update in split.kept:
                partition = split.partition(split.places[update])
                partition.follow(update, [i for r in reads for i in self._reads_of(r, update, partition)])
        for read, updates in order.late.items():
            for reader in (read, *self._reading_for.get(read, ())) if read in split.kept else ():
                partition = split.partition(split.places[reader])
                partition.follow(reader, self._ends_of(updates, read, partition))

    def _reads_of(self, source: int, follower: int, partition: Partition) -> Sequence[int]:
        """Return the nodes of a partition to wait for so that a node's read is done."""
        split = self._split
        is_elsewhere = source in split.kept and split.places[source].name != partition.device.name
        if is_elsewhere and resource not in split.kept[source].input_types:
            reading = [i for i in self._reading_for.get(source, ()) if i in partition.nodes]
            if reading:
                return reading
        return self._ends_of([source], follower, partition)

    def _ends_of(self, sources: Iterable[int], follower: int, partition: Partition) -> list[int]:
        """Return nodes of a partition that run when the sources, which may be in others, are done."""
        frame = self._loops.frame_of.get(follower)
        ends = [self._transfers.done(i, partition, frame) for i in sources if i in self._split.kept]
        partition.targets += [i for i in ends if i in partition.added and i not in partition.targets]
        return ends

    def _add_ends(self) -> None:
        for endpoint, place in zip(self._feeds, self._ends.feeds, strict=True):
            if place is not None:
                self._argument(endpoint, self._split.partition(place))
        for position in range(len(self._fetches)):
            self._add_fetch(position)
        for node_id in self._targets:
            if node_id in self._split.kept:
                self._split.partition(self._split.places[node_id]).targets.append(node_id)

    def _add_fetch(self, position: int) -> None:
        """Let a fetched value leave the partition that is right for it."""
        split = self._split
        endpoint = self._fetches[position]
        place = split.places.get(endpoint[0])
        source, here = endpoint, None if place is None else split.partition(place)
        if endpoint in split.fed:
            here = self._enters_at(endpoint)
            source = (self._argument(endpoint, here), 0)
        assert here is not None
        after = split.graph.order.fetched.get(endpoint, ())
        if self._ends.fetches is None:
            memory, leaves_at = split.memory_of(source, MemoryType.HOST_MEMORY), here
        else:
            wanted = self._ends.fetches[position]
            is_on_host = wanted is None or wanted.is_host
            memory = MemoryType.HOST_MEMORY if is_on_host else MemoryType.DEVICE_MEMORY
            leaves_at = here if wanted is None else split.partition(wanted)
        in_memory_of = None if memory is MemoryType.HOST_MEMORY else leaves_at.device
        node = split.partition(split.places[source[0]]).nodes[source[0]]
        if in_memory_of is not None and here is leaves_at and node.op == "Const":
            # A constant is made in host memory; the Identity puts it into the device's.
            attrs = {"T": node.output_types[0]}
            source = (split.new(leaves_at, split.new_name(node.name), "Identity", attrs, (source,)), 0)
        if here is not leaves_at or split.memory_of(source, memory) is not memory:
            frame = self._loops.frame_of_outputs(endpoint[0])
            shared = not self._refs.gives_cell(endpoint)
            source = (self._transfers.value(source, leaves_at, frame, memory, shared=shared), 0)
            if not shared:
                here.follow(self._transfers.read_by[source[0]], self._ends_of(after, endpoint[0], here))
        elif after:
            leaves_at.fetch_after(source, self._ends_of(after, endpoint[0], leaves_at))
        leaves_at.fetches[position] = source
        leaves_at.fetched_from[position] = in_memory_of

    def _enters_at(self, endpoint: Endpoint) -> Partition:
        """Return a partition that a fed value enters or may enter."""
        place = self._ends.feeds[self._positions[endpoint]]
        if place is not None:
            return self._split.partition(place)
        position = self._positions[endpoint]
        partitions = self._split.partitions.values()
        using = (p for p in partitions if (position, p.device.name) in self._arguments)
        return next(using, None) or next(iter(partitions), None) or self._split.partition(self._host)

    def _argument(self, endpoint: Endpoint, partition: Partition) -> int:
        """Return the id of the node by which a fed value enters; in this partition if it may enter anywhere."""
        split = self._split
        position = self._positions[endpoint]
        place = self._ends.feeds[position]
        if place is not None:
            partition = split.partition(place)
        key = (position, partition.device.name)
        found = self._arguments.get(key)
        if found is None:
            source = split.graph.nodes[endpoint[0]]
            name = f"_arg_{source.name}_{endpoint[1]}_{position}"
            attrs = {"T": source.output_types[endpoint[1]].base, "index": position}
            found = self._arguments[key] = split.new(partition, name, "_Arg", attrs)
            partition.feeds[position] = (found, 0)
            memory = MemoryType.HOST_MEMORY if place is None or place.is_host else MemoryType.DEVICE_MEMORY
            split.set_output_memory(found, memory)
        return found

    def _data(self, node: Node, position: int, partition: Partition) -> Endpoint:
        """Return the endpoint that a node of a partition gets as an input."""
        split = self._split
        endpoint = node.in_edges[position]
        is_fed = endpoint in split.fed
        source = (self._argument(endpoint, partition), 0) if is_fed else endpoint
        types = split.memory_types(node, partition.device)
        wanted = MemoryType.HOST_MEMORY if types is None else types.inputs[position]
        is_here = split.places[source[0]].name == partition.device.name
        if is_here and split.memory_of(source, wanted) is wanted:
            return source
        if node.input_types[position].is_ref:
            raise errors.InvalidArgumentError(
                f"{position}-th input expects a ref type, which does not leave its device",
                node=node.name,
                op=node.op,
                site=node.site,
            )
        frame = self._loops.frame_of.get(node.id)
        if is_fed or not self._refs.gives_cell(endpoint):
            return (self._transfers.value(source, partition, frame, wanted), 0)
        before = self._read_after(node, source)
        received = self._transfers.value(source, partition, frame, wanted, shared=False, before=before)
        self._reading_for.setdefault(node.id, []).append(self._transfers.read_by[received])
        return (received, 0)

    def _read_after(self, node: Node, source: Endpoint) -> tuple[int, ...]:
        """Return the nodes after which a variable is read for a node elsewhere: all others that this node waits for."""
        split = self._split
        if node.op in MERGE:
            return ()  # a Merge waits for one input only
        on_source = split.partition(split.places[source[0]])
        frame = self._loops.frame_of.get(node.id)
        others = [i for i, k in node.in_edges if (i, k) not in split.fed and i != source[0]]
        waited_for = [i for i in (*others, *node.control_edges) if i in split.kept and i != source[0]]
        return tuple(dict.fromkeys([self._transfers.done(i, on_source, frame) for i in waited_for]))
