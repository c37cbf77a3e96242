"""`Partition`: the nodes of a placed graph that one device runs; `Ends`: where values enter and leave.

Next to read: `splitting.py`, which makes them of a graph; how they run is in `runtime/plans/partitioned_plan.py`.
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
