"""`Partition`: the nodes of a placed graph that one device runs; `Ends`: where values enter and leave.

Next to read: `splitting.py`, which makes partitions; `runtime/plans/partitioned_plan.py`, which runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aexec import proto
from aexec.framework.device_contract.device import Device
from aexec.framework.waiting.long_work import empty
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.step_order import StepOrder
from aexec.graph.passes import WorkingGraph

__all__ = ["RECEIVES", "SENDS", "TRANSFERS", "Ends", "Partition"]

SENDS = frozenset({"_Send", "_HostSend", "Send"})
RECEIVES = frozenset({"_Recv", "_HostRecv", "Recv"})
TRANSFERS = SENDS | RECEIVES


class _Nodes(dict[int, Node]):
    """The nodes of a partition by id; a lookup of another id returns the node of the whole graph."""

    def __init__(self, whole: WorkingGraph) -> None:
        super().__init__()
        self._whole = whole

    def __missing__(self, node_id: int) -> Node:
        return self._whole.nodes[node_id]


class Partition:
    """The part of a graph that runs on one device.  A plan is made from it as from a graph.

    Attributes:
        device: the device that it runs on.
        nodes: its nodes by id; nodes of the whole graph keep their ids.
        added: ids of the nodes that were added by the split.
        feeds, fetches: position in the request → the endpoint at which a value enters or leaves here.
        fetched_from: position of a fetch that leaves here → the device whose memory has it, None for host memory.
        targets: ids of the nodes that run although nothing here uses their outputs: Sends, targets of the request, and
            nodes that signal the end of a node to order edges in other partitions.
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
        """Add order edges: a node starts when the sources are done or dead."""
        self._after[node_id] = tuple(dict.fromkeys((*self._after.get(node_id, ()), *sources)))

    def fetch_after(self, endpoint: Endpoint, sources: Iterable[int]) -> None:
        """Add order edges to a fetch: its value is taken when the sources are done or dead."""
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
        """Return the node of the whole graph of that name, or None."""
        return self._whole.find(name)

    def take_apart(self) -> None:
        """Drop the nodes, which refer to the whole graph.  The partition must not be used any more."""
        empty(self.nodes)

    def __repr__(self) -> str:
        return f"<Partition {self.device.name}: {len(self.nodes)} nodes>"


class Ends(NamedTuple):
    """The memory that fed values come in, and the memory that fetched values are wanted in.

    A device stands for its memory; the value enters or leaves in its partition.  None stands for host memory; such a
    feed enters every partition that uses it, and such a fetch leaves where it is made.

    Attributes:
        feeds, fetches: in the order of the request; fetches None leaves each value in the memory that it is made in.
    """

    feeds: Sequence[Device | None]
    fetches: Sequence[Device | None] | None
