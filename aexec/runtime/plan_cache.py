"""The plans of one session, and what they are built from: graph, placement and kernels.

A request is a key of names; the first run of a key prunes, places, builds kernels and
lays out a plan, later runs find it.  Small graphs are planned on the loop, because a
thread hop costs more; for large ones, which take longer than a slice, the work is done
in a thread while the loop goes on.  Only one thread or the loop works on the graph at
any time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from aexec import proto
from aexec.framework import errors, kernel_registry
from aexec.framework.collector import collector_paused
from aexec.framework.node_def import parse_tensor_name
from aexec.framework.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.graph_formats import parse_graph_def
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.node import Endpoint, GraphView, Node, Tensor
from aexec.graph.passes import WorkingGraph, optimize
from aexec.graph.prune import PLACEHOLDERS, reachable
from aexec.runtime.config import SessionConfig
from aexec.runtime.devices import Device
from aexec.runtime.feeds import FeedSpec
from aexec.runtime.folding import FoldedValues
from aexec.runtime.functions import FunctionRuntime, call_kernel
from aexec.runtime.partition_graphs import partition_graphs
from aexec.runtime.placer import EXECUTOR_OPS, Placer
from aexec.runtime.plan import Plan, Signature, build_plan

__all__ = ["CachedPlan", "PlanCache", "PlanKey", "request_text"]

T = TypeVar("T")

# Feed keys (tensors or names), names of fetched tensors, names of targets.
PlanKey = tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]


def request_text(feeds: Iterable[str], fetches: Iterable[str], targets: Iterable[str], *, partial: bool) -> str:
    """What a run is asked for, in one string: `x:0->y:0//0/`."""
    return f"{','.join(feeds)}->{','.join(fetches)}/{','.join(targets)}/{int(partial)}/"


# Graphs of fewer nodes, and serialised ones of so many bytes, are worked on by the loop itself.
_INLINE_NODES = 200
_INLINE_BYTES = 10_000
# Signatures remembered, and nodes of their plans together: a client that makes up ever new ones must not
# fill the memory.
_MAX_PLANS = 1000
_MAX_PLAN_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class CachedPlan:
    """A plan, and how to feed it: each feed's key with what may be fed for it, in the plan's order.

    `graph` has the nodes that it runs, as the graph passes left them.
    """

    plan: Plan
    signature: Signature
    feeds: tuple[tuple[Any, FeedSpec], ...]
    graph: WorkingGraph


class PlanCache:
    """See the module's head.

    Args:
        graph: may grow by whoever holds it; `extend` leaves it alone and goes on with a copy.
        devices: in order of preference.

    Raises:
        InvalidArgumentError: the graph cannot be placed.
    """

    def __init__(self, graph: Graph, devices: tuple[Device, ...], config: SessionConfig) -> None:
        self.graph = graph
        self._owns_graph = False
        self._config = config
        self._placer = Placer(devices, soft=config.allow_soft_placement, log_placement=config.log_device_placement)
        self._plans: dict[PlanKey, CachedPlan] = {}
        self._plan_nodes = 0
        self._builds: dict[PlanKey, asyncio.Task[CachedPlan]] = {}
        self._kernels: dict[int, BuiltKernel] = {}
        self._functions: FunctionRuntime | None = None
        self._folded = FoldedValues(self._kernel)
        # Held by the thread that works on the graph; `_work` are the tasks of those that do or will.
        self._lock = threading.Lock()
        self._work: set[asyncio.Task[Any]] = set()
        if not config.place_pruned_graph:
            self._place(graph.nodes)

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, key: PlanKey) -> CachedPlan | None:
        """The plan of a key if it was built before."""
        return self._plans.get(key)

    def request(self, key: PlanKey) -> CachedPlan | asyncio.Future[CachedPlan]:
        """The plan of a key, or a future of it.  Racing requests share one build.

        Raises:
            InvalidArgumentError, NotFoundError: the request names nothing, or its nodes cannot run.
        """
        cached = self._plans.get(key)
        if cached is not None:
            return cached
        if len(self.graph) < _INLINE_NODES and not self._work:
            return self._remember(key, self._build(key))
        build = self._builds.get(key)
        if build is None:
            build = self._builds[key] = self._beside_the_loop(lambda: self._build(key))
            build.add_done_callback(lambda task: self._built(key, task))
        return asyncio.shield(build)

    async def extend(self, more: proto.GraphDef | bytes) -> None:
        """Add nodes to the graph; all or none.  Raises as `Session.extend` does.

        Cancelled before the nodes are there, it adds none.
        """
        small = len(more) < _INLINE_BYTES if isinstance(more, bytes) else len(more.node) < _INLINE_NODES
        if small and len(self.graph) < _INLINE_NODES and not self._work:
            self._extend(more)
            return
        wanted = True
        try:
            await asyncio.shield(self._beside_the_loop(lambda: self._extend(more, lambda: wanted)))
        except asyncio.CancelledError:
            wanted = False
            raise

    async def close(self) -> None:
        """Wait for work under way, and forget everything."""
        while self._work:
            await asyncio.wait(self._work)
        self._plans.clear()
        self._plan_nodes = 0
        self._kernels.clear()

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return partition_graphs(cached.graph, cached.signature, lambda node: self._device_of(cached.graph, node))

    def _beside_the_loop(self, work: Callable[[], T]) -> asyncio.Task[T]:
        """Work on the graph in a thread.  Whoever waits for it may leave: the thread goes on, and so its task."""

        def locked() -> T:
            with self._lock, collector_paused():
                return work()

        task = asyncio.get_running_loop().create_task(asyncio.to_thread(locked), name="work on the graph")
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _built(self, key: PlanKey, build: asyncio.Task[CachedPlan]) -> None:
        del self._builds[key]
        if not build.cancelled() and build.exception() is None:
            self._remember(key, build.result())

    def _remember(self, key: PlanKey, cached: CachedPlan) -> CachedPlan:
        self._plans[key] = cached
        self._plan_nodes += cached.plan.num_nodes
        while len(self._plans) > 1 and (len(self._plans) > _MAX_PLANS or self._plan_nodes > _MAX_PLAN_NODES):
            oldest = self._plans.pop(next(iter(self._plans)))
            self._plan_nodes -= oldest.plan.num_nodes
        return cached

    # Extending

    def _extend(self, more: proto.GraphDef | bytes, wanted: Callable[[], bool] = lambda: True) -> None:
        graph_def = parse_graph_def(more) if isinstance(more, bytes) else more
        self._check_extension(graph_def)
        # Other holders of the graph do not see what is added here, and a failure changes nothing.
        graph = self.graph.copy()
        if not len(graph):
            graph.versions.CopyFrom(graph_def.versions)
        added = import_graph_def(graph, graph_def, ImportOptions(refer_to_existing=True))
        if not self._config.place_pruned_graph:
            self._place(added, graph)
        if wanted():
            self.graph = graph
            self._functions = None

    def _check_extension(self, graph_def: proto.GraphDef) -> None:
        for node_def in graph_def.node:
            if node_def.name in self.graph:
                raise errors.InvalidArgumentError(
                    f"GraphDef argument to Extend includes node '{node_def.name}', which was created by a previous "
                    "call to Create or Extend in this session.",
                    node=node_def.name,
                )
        ours, theirs = self.graph.versions.producer, graph_def.versions.producer
        if len(self.graph) and ours != theirs:
            raise errors.InvalidArgumentError(
                f"Can't extend GraphDef at version {ours} with graph at version {theirs}."
            )

    def _place(self, nodes: list[Node], graph: Graph | None = None) -> None:
        graph = self.graph if graph is None else graph
        self._placer.place(nodes, graph.nodes.__getitem__, graph.library)

    # Building

    def _build(self, key: PlanKey) -> CachedPlan:
        feeds, fetches, targets = key
        graph = self.graph
        if not len(graph):
            raise errors.InvalidArgumentError(
                "The Session graph is empty. Add operations to the graph before calling run()."
            )
        if not fetches and not targets:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        signature = Signature(
            tuple(self._feed_endpoints(feeds)),
            tuple(self._endpoint(name, "FetchOutputs") for name in fetches),
            tuple(self._target(name).id for name in targets),
        )
        overlap = set(signature.feeds) & set(signature.fetches)
        if overlap:
            names = ", ".join(f"{graph.nodes[i].name}:{k}" for i, k in sorted(overlap))
            raise errors.InvalidArgumentError(f"{names} is both fed and fetched.")
        if self._config.place_pruned_graph:
            roots = [*(i for i, _ in signature.fetches), *signature.targets]
            self._place([graph.nodes[i] for i in sorted(reachable(graph, roots, frozenset(signature.feeds)))])
        else:
            self._place(graph.nodes)
        working = WorkingGraph(graph, signature.feeds, signature.fetches, signature.targets)
        optimize(working, self._config.graph_passes, self._folded.evaluator(), self._function_runtime().callee)
        plan = build_plan(working, signature, lambda node: self._kernel_of_working(working, node))
        specs = [self._feed_spec(i, endpoint) for i, endpoint in enumerate(signature.feeds)]
        return CachedPlan(plan, signature, tuple(zip(feeds, specs, strict=True)), working)

    def _feed_endpoints(self, feeds: tuple[Any, ...]) -> list[Endpoint]:
        endpoints: list[Endpoint] = []
        for feed in feeds:
            if isinstance(feed, Tensor):
                self.graph.check_element(feed)
            name = feed.name if isinstance(feed, Tensor) else feed
            if not isinstance(name, str):
                raise errors.InvalidArgumentError(
                    f"A feed's key must be a tensor or its name, got {feed!r} of type {type(feed).__name__}"
                )
            endpoint = self._endpoint(name, "FeedInputs")
            if endpoint in endpoints:
                raise errors.InvalidArgumentError(f'Endpoint "{name}" fed more than once.')
            endpoints.append(endpoint)
        return endpoints

    def _feed_spec(self, position: int, endpoint: Endpoint) -> FeedSpec:
        node = self.graph.nodes[endpoint[0]]
        tensor = node.output(endpoint[1])
        shape = _declared_shape(node) if self._config.check_feed_shapes else UNKNOWN_RANK
        return FeedSpec(tensor.name, tensor.dtype, shape, position)

    def _endpoint(self, name: str, role: str) -> Endpoint:
        """The output that a feed or fetch names.  `role` is the word for the error message."""
        node_name, slot = parse_tensor_name(name)
        node = None if name.startswith("^") else self.graph.find(node_name)
        if node is None:
            raise errors.NotFoundError(f"{role} node {name}: not found{self.graph.suggest(node_name)}")
        if slot >= node.num_outputs:
            raise errors.InvalidArgumentError(
                f"{role} {name}: output index too large, must be < {node.num_outputs}", node=node.name, op=node.op
            )
        return (node.id, slot)

    def _target(self, name: str) -> Node:
        node = self.graph.find(name)
        if node is None:
            raise errors.NotFoundError(
                f"PruneForTargets: Some target nodes not found: {name} {self.graph.suggest(name)}"
            )
        return node

    # Kernels

    def kernel(self, node: Node) -> BuiltKernel:
        """The kernel of a node, for use outside steps.  Raises what building it raises.

        It waits for the thread that plans a large graph, if there is one just now.
        """
        with self._lock:
            self._place([node] if self._config.place_pruned_graph else self.graph.nodes)
            return self._kernel(node)

    def _kernel(self, node: Node) -> BuiltKernel:
        """The kernel of a node: the same object for every plan, as its state belongs to the session."""
        kernel = self._kernels.get(node.id)
        if kernel is None:
            kernel = self._make_kernel(self.graph, node, self._function_runtime())
            self._kernels[node.id] = kernel
        return kernel

    def _function_runtime(self) -> FunctionRuntime:
        if self._functions is None:
            self._functions = FunctionRuntime(
                self.graph.library,
                self.graph.versions,
                self._make_kernel,
                self._beside_the_loop,
                self._config.graph_passes,
            )
        return self._functions

    def _kernel_of_working(self, working: WorkingGraph, node: Node) -> BuiltKernel:
        """The kernel of a node that graph passes may have made."""
        if working.is_original(node):
            return self._kernel(node)
        if node.id in working.callees:
            function, in_body = working.callees[node.id]
            kernel: BuiltKernel = function.kernel(in_body)
            return kernel
        if node.op != "Const":
            return self._make_kernel(self.graph, node, self._function_runtime(), self._device_of(working, node))
        value = node.attrs["value"].array
        return BuiltKernel(lambda: value, wants_context=False, cost=0.0, device=self._device_of(working, node).name)

    def _device_of(self, working: WorkingGraph, node: Node) -> Device:
        """Where a node of a plan runs."""
        return self._placer.device_of(self.graph.nodes[working.made_of.get(node.id, node.id)])

    def _make_kernel(
        self, graph: GraphView, node: Node, functions: FunctionRuntime, device: Device | None = None
    ) -> BuiltKernel:
        if device is None:
            of_session = graph is self.graph
            device = self._placer.device_of(node) if of_session else self._placer.preferred(node, graph.library)
        construction = OpKernelConstruction(
            name=node.name,
            op_def=node.op_def,
            attrs=node.attrs,
            input_types=node.input_types,
            output_types=node.output_types,
            device=device.name,
            xp=device.xp,
            graph_version=graph.versions.producer,
            functions=functions,
        )
        try:
            if node.op in EXECUTOR_OPS:
                raise errors.InternalError(f"{node.op} is run by the executor and has no kernel")
            if node.op in graph.library:
                kernel = call_kernel(construction)
            else:
                registry = kernel_registry.global_registry
                kernel = registry.lookup(node.op, device.type, node.attrs, node=node.name).build(construction)
            kernel.device = device.name
            return kernel
        except errors.OpError as error:
            error.attach_node(node.name, node.op, node.site, node.origin)
            raise
        except Exception as error:
            kind = errors.ResourceExhaustedError if isinstance(error, MemoryError) else errors.UnknownError
            raise kind(
                f"building the kernel of {node.op}: {type(error).__name__}: {error}",
                node=node.name,
                op=node.op,
                site=node.site,
            ) from error


def _declared_shape(node: Node) -> PartialTensorShape:
    """What a feed's shape is checked against: a placeholder's own attr; an inferred shape is no promise."""
    shape = node.attrs.get("shape") if node.op in PLACEHOLDERS else None
    return UNKNOWN_RANK if shape is None else shape
