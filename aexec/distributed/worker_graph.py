"""`WorkerGraph`: a partition that a client has registered, imported and planned.

Its feeds and fetches are its `_Arg` and `_Retval` nodes, by their index.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from aexec.distributed.cluster_messages import Message
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.nodes.node import GraphView, Node
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.ordering.step_order import StepOrder
from aexec.graph.partitioning.partition import TRANSFERS, Ends
from aexec.graph.passes import WorkingGraph
from aexec.kernels.control_flow.collective_exchange import COLLECTIVES
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.functions import FunctionRuntime
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.plan_maker import PlanMaker
from aexec.runtime.planning.planner import Planner
from aexec.runtime.planning.session_kernels import SessionKernels
from aexec.runtime.plans.partition_graphs import ORDER_ATTR
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["WorkerGraph", "WorkerGraphOwner"]

# Larger messages, in bytes, are read in a thread.
_LARGE = 100_000


class WorkerGraphOwner(Protocol):
    """The part of a session that a graph uses.

    Attributes:
        kernels: (node, op) → kernel with state; shared by all graphs.
    """

    loop: asyncio.AbstractEventLoop
    devices: tuple[Device, ...]
    config: SessionConfig
    kernels: dict[tuple[str, str], BuiltKernel]


class WorkerGraph:
    """A partition that a client has registered with a task, imported and planned there.

    Args:
        session: the session; its kernels with state are shared by this graph.
        message: the graph as bytes of a GraphDef, and the names of the target nodes.

    Attributes:
        feeds, fetches: index → its place in the plan's order.
        fetch_types: in that order.
    """

    def __init__(self, session: WorkerGraphOwner, message: Message) -> None:
        self._session = session
        self._data = bytes(message.frames[message.fields["data"]])
        self._targets: list[str] = message.fields["targets"]
        self._in_parts: bool = message.fields["in_parts"]
        self.feeds: dict[int, int] = {}
        self.fetches: dict[int, int] = {}
        self.fetch_types: list[DType] = []
        self.fetch_names: list[str] = []
        self._key: PlanKey | None = None
        self._planner: _WorkerPlanner | None = None
        self._cached: CachedPlan | None = None
        self._importing: asyncio.Task[None] | None = None
        if len(self._data) > _LARGE:
            self._importing = session.loop.create_task(
                run_in_thread(self._import, on_cancel=OnCancel.WAIT), name="register graph"
            )

    @property
    def planned(self) -> Plan | PartitionedPlan | None:
        """The plan that its steps execute; None before it is made."""
        return None if self._cached is None else self._cached.plan

    async def plan(self) -> Plan | PartitionedPlan:
        """The plan that its steps execute; makes it if necessary.

        Raises:
            OpError: it cannot be imported, or planned.
        """
        if self._cached is None:
            if self._importing is not None:
                await asyncio.shield(self._importing)
            elif self._key is None:
                self._import()
            assert self._planner is not None and self._key is not None
            found = self._planner.request(self._key)
            self._cached = found if isinstance(found, CachedPlan) else await found
        return self._cached.plan

    def _import(self) -> None:
        graph, graph_def = Graph(), flatten(self._data)
        graph.versions.CopyFrom(graph_def.versions)
        nodes = import_graph_def(graph, graph_def, ImportOptions(internal_names=True, infer_shapes=False))
        args = {node.attrs["index"]: (node.id, 0) for node in nodes if node.op == "_Arg"}
        retvals = {node.attrs["index"]: node.in_edges[0] for node in nodes if node.op == "_Retval"}
        self.feeds = {index: position for position, index in enumerate(args)}
        self.fetches = {index: position for position, index in enumerate(retvals)}
        self.fetch_types = [graph.nodes[i].output_types[slot].base for i, slot in retvals.values()]
        self.fetch_names = [graph.nodes[i].name for i, _ in retvals.values()]
        targets = [node.id for node in nodes if node.name in set(self._targets)]
        self._planner = _WorkerPlanner(graph, self._session)
        self._key = PlanKey(tuple(args.values()), tuple(retvals.values()), tuple(targets), self._in_parts)
        self._data = b""

    async def close(self) -> None:
        """Release the graph."""
        if self._importing is not None:
            await asyncio.wait([self._importing])
        if self._planner is not None:
            await self._planner.close()
            self._cached = None
            self._planner.dispose()


class _WorkerKernels(SessionKernels):
    """Kernels of stateful nodes are shared by all graphs of the client's session.

    Attributes:
        shared: these kernels, by name and op.
    """

    shared: dict[tuple[str, str], BuiltKernel]

    def make(self, graph: GraphView, node: Node, functions: FunctionRuntime, device: Any = None) -> BuiltKernel:
        if graph is not self._graph.graph or not node.op_def.is_stateful or node.op in TRANSFERS | COLLECTIVES:
            return super().make(graph, node, functions, device)
        key = (node.name, node.op)
        known = self.shared.get(key)
        if known is None:
            # As TensorFlow's OpSegment: the first graph with the node makes it.
            known = self.shared.setdefault(key, super().make(graph, node, functions, device))
        return known


class _WorkerPlanMaker(PlanMaker):
    def ends(self, signature: PlanKey, host: Any) -> Ends:
        # Feeds and fetches stay where the client has put them.
        return Ends([None] * len(signature.feeds), [None] * len(signature.fetches))

    def put_in_order(self, working: WorkingGraph, signature: PlanKey) -> None:
        # Not all edges are visible here: the client, who saw them, has decided.
        ids = {node.name: node.id for node in working.graph}
        follows = {node.id: names for node in working.graph if (names := node.attrs.get(ORDER_ATTR))}
        found = {i: tuple(ids[str(name, "utf-8")] for name in names) for i, names in follows.items()}
        retvals = [node for node in working.graph if node.op == "_Retval" and node.id in found]
        fetched = {node.in_edges[0]: found.pop(node.id) for node in retvals}
        working.order = StepOrder(found, {}, fetched)


class _WorkerPlanner(Planner):
    maker_class = _WorkerPlanMaker

    def __init__(self, graph: Graph, session: WorkerGraphOwner) -> None:
        self._shared = session.kernels
        super().__init__(graph, session.devices, session.config)

    def _make_kernels(self, *settings: Any) -> SessionKernels:
        kernels = _WorkerKernels(*settings)
        kernels.shared = self._shared
        return kernels
