"""Builds plans: prunes a graph for a signature, and lays out the rest.

Next to read: `plan.py`, which describes a plan; `planning/planner.py`, which does the steps before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.kernel_contract.output_sizes import AtMost, Broadcast, Varying, is_as_large_as_an_input
from aexec.framework.state.ref_cell import dereferencing
from aexec.framework.waiting.inline_call import PostponedError
from aexec.framework.waiting.long_work import steadily
from aexec.framework.waiting.loop_budget import DEFAULT, LoopBudget
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.control_flow import FrameInfo
from aexec.graph.nodes.node import Endpoint, GraphView, Node
from aexec.graph.nodes.prune import is_fed_placeholder, reachable
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.ordering.step_order import UNORDERED, StepOrder
from aexec.runtime.plans.device_constants import DeviceConstant
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanKey, PlanNode, take_apart

__all__ = ["OnDevice", "build_plan", "queued_kernel"]

# Ops without inputs whose kernels return the same value in every step, and do nothing else.
_CONSTANT = frozenset({"Const", "VarHandleOp"})

_CONTROL_FLOW_KINDS = {
    **dict.fromkeys(control_flow.SWITCH, Kind.SWITCH),
    **dict.fromkeys(control_flow.MERGE, Kind.MERGE),
    **dict.fromkeys(control_flow.ENTER, Kind.ENTER),
    **dict.fromkeys(control_flow.EXIT, Kind.EXIT),
    **dict.fromkeys(control_flow.NEXT_ITERATION, Kind.NEXT_ITERATION),
}

# Ops whose outputs are their inputs.
_PASSING_ON = frozenset({"Identity", "IdentityN", "LoopCond", "PreventGradient", "Snapshot", "StopGradient"})


# Called with a node, the position of an input, a constant, and the name of the constant's node.
OnDevice = Callable[[Node, int, Any, str], DeviceConstant | None]

# A node is always asked for its cost if a call with small values may take this many times what the loop allows.
_LONG = 4


def build_plan(
    graph: GraphView,
    signature: PlanKey,
    kernel_of: Callable[[Node], BuiltKernel],
    budget: LoopBudget = DEFAULT,
    on_device: OnDevice | None = None,
    order: StepOrder = UNORDERED,
) -> Plan:
    """Prune the graph for a signature and lay it out for execution.

    Args:
        kernel_of: returns the kernel of a node, built or remembered.
        budget: the session's loop budget, which says which values are small.
        on_device: returns a constant input of a node on a device that is not the host as a constant in the device's
            memory; None if the kernel wants it in host memory.
        order: the order of reads and updates.

    Raises:
        InvalidArgumentError: malformed loop frames, or a kernel's own checks.
        NotFoundError: a node without kernel.
    """
    builder = _Builder(graph, signature, kernel_of, budget, on_device, order)
    try:
        return builder.build()
    except BaseException:
        take_apart([*builder.args.values(), *builder.plan_nodes.values()], builder.frames.values())
        raise


class _Builder:
    def __init__(
        self,
        graph: GraphView,
        signature: PlanKey,
        kernel_of: Callable[[Node], BuiltKernel],
        budget: LoopBudget,
        on_device: OnDevice | None,
        order: StepOrder,
    ) -> None:
        self.graph = graph
        self.order = order
        self.budget = budget
        self.small = budget.small_elements
        self.signature = signature
        self.kernel_of = kernel_of
        self.on_device = on_device
        self.device_constants: list[DeviceConstant] = []
        self.fed = frozenset(signature.feeds)
        self.refs = RefEdges(graph, self.fed)
        roots = [*(node_id for node_id, _ in signature.fetches), *signature.targets]
        # A fed placeholder has nothing to run, even if it is fetched itself, as when a function returns an argument.
        self.kept = [
            graph.nodes[i]
            for i in sorted(reachable(graph, roots, self.fed))
            if not is_fed_placeholder(graph, i, self.fed)
        ]
        self.constants: dict[int, Any] = {}
        self.frames: dict[int, FramePlan] = {}
        self.plan_nodes: dict[int, PlanNode] = {}
        self.args: dict[Endpoint, PlanNode] = {}
        # A constant is put into its consumers' arguments; only a Merge must see it arrive.
        self.merged = {e[0] for node in self.kept if node.op in control_flow.MERGE for e in node.in_edges}

    def build(self) -> Plan:
        consumers = {node.id for node in self.kept if not self.fed.isdisjoint(node.in_edges)} if self.fed else ()
        analysis = control_flow.analyze(self.kept, self._producers, consumers)
        root = self._frame(FrameInfo("", None))
        for node in steadily(self.kept):
            self._add_node(node, analysis)
        for position, endpoint in enumerate(self.signature.feeds):
            node = self.graph.nodes[endpoint[0]]
            self.args[endpoint] = PlanNode(Kind.ARG, node, root)
            self.args[endpoint].position = position
        for plan_node in steadily(self.plan_nodes.values()):
            self._connect(plan_node)
        retvals = [self._add_retval(i, endpoint, analysis) for i, endpoint in enumerate(self.signature.fetches)]
        if self.order:
            self._put_in_order(retvals)
        every = (*self.args.values(), *self.plan_nodes.values(), *retvals)
        for plan_node in steadily(every):
            _finish_edges(plan_node)
        for frame in self.frames.values():
            # The executor takes from the end, so the first node of the graph must be last.
            frame.roots = [n for n in reversed(frame.nodes) if frame.pending[n.index] == 0]
        arguments = tuple(self.args[endpoint] for endpoint in self.signature.feeds)
        large = any(not 0 < value.size <= self.small for value in self.constants.values())
        nodes = list(self.plan_nodes.values())
        plan = Plan(
            root,
            arguments,
            len(retvals),
            len(self.kept),
            nodes,
            large,
            self.small,
            constants=tuple(self.device_constants),
            skip_sync=self.signature.skip_sync,
        )
        queued = next((node for node in nodes if node.kind == Kind.QUEUED), None)
        if queued is not None:
            plan.compilation.refuse(f"its nodes are queued on {queued.device}")
        return plan

    # Nodes

    def _producers(self, node: Node) -> list[Node]:
        nodes = self.graph.nodes
        data = [nodes[e[0]] for e in node.in_edges if e not in self.fed]
        return data + [nodes[i] for i in node.control_edges if not is_fed_placeholder(self.graph, i, self.fed)]

    def _frame(self, info: FrameInfo) -> FramePlan:
        key = 0 if info.parent is None else id(info)
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames[key] = FramePlan(info)
        return frame

    def _add_node(self, node: Node, analysis: control_flow.Frames) -> None:
        kind = _CONTROL_FLOW_KINDS.get(node.op)
        kernel = None if kind is not None else self.kernel_of(node)
        if kernel is not None and _is_constant(node, kernel):
            self.constants[node.id] = _attributed(node, kernel.compute)
            if node.id not in self.merged:
                return
        frame = self._frame(analysis.of[node.id])
        plan_node = PlanNode(Kind.KERNEL if kind is None else kind, node, frame)
        if kernel is not None:
            self._bind_kernel(plan_node, kernel)
        elif reads := self._ref_reads(node):
            plan_node.dereference = _reading_taken(reads) if kind == Kind.MERGE else _reading(reads)
        if plan_node.kind == Kind.ENTER:
            plan_node.child = self._frame(analysis.started_by[node.id])
            plan_node.child.num_enters += 1
            plan_node.is_constant_enter = bool(node.attrs["is_constant"])
        self.plan_nodes[node.id] = plan_node
        frame.add(plan_node, len(node.in_edges))

    def _bind_kernel(self, plan_node: PlanNode, kernel: BuiltKernel) -> None:
        node = plan_node.node
        plan_node.compute = kernel.compute
        plan_node.device = kernel.device
        plan_node.on_host = kernel.on_host
        plan_node.cost, plan_node.estimate = kernel.cost, kernel.estimate
        plan_node.scratch = kernel.scratch
        plan_node.ask(self._check_of(node, kernel))
        plan_node.explain = kernel.explain
        plan_node.calls = kernel.calls
        plan_node.wants_context = kernel.wants_context
        plan_node.takes_list = kernel.takes_list
        plan_node.in_any_thread = kernel.in_any_thread
        plan_node.touches_state = not kernel.may_be_abandoned and (
            node.op_def.is_stateful or any(t.is_ref or t.enum == 20 for t in (*node.input_types, *node.output_types))
        )
        reads = self._ref_reads(node)
        plan_node.reads_cells = any(by_value for _, _, by_value in reads)
        # A queued node reads before it is queued, and may pass a cell on.
        plan_node.passes_on = node.op in _PASSING_ON and not (reads and kernel.queued_on is None)
        if reads and callable(kernel.cost):
            plan_node.ask(2)
            plan_node.cost = _cost_of_read(kernel.cost, _reading(reads))
        if not (reads or kernel.wants_context):
            plan_node.forwards = kernel.forwards
            plan_node.gives_new_array = kernel.gives_new_array
        if reads and kernel.queued_on is not None:
            plan_node.dereference = _reading(reads)
        elif reads:
            plan_node.compute = dereferencing(
                kernel.compute, reads, skip_first=kernel.wants_context, takes_list=kernel.takes_list
            )
            if kernel.calls is not None:
                plan_node.dereference = _reading(reads)
        if kernel.queued_on is not None:
            _queue(plan_node, kernel, kernel.queued_on)
        elif kernel.is_async:
            plan_node.kind = Kind.ASYNC
        elif plan_node.num_outputs == 1 and not kernel.wants_context:
            plan_node.kind = Kind.PLAIN

    def _check_of(self, node: Node, kernel: BuiltKernel) -> int:
        if isinstance(kernel.cost, Broadcast) and not isinstance(kernel.cost, Varying):
            return 1 if is_as_large_as_an_input([self._dims(endpoint) for endpoint in node.in_edges]) else 3
        cost = kernel.cost.element_ns if isinstance(kernel.cost, AtMost) else kernel.cost
        if callable(cost) or cost * self.small > _LONG * self.budget.inline_ns:
            return 2
        return 1 if cost else 0

    def _dims(self, endpoint: Endpoint) -> tuple[int | None, ...] | None:
        """A value's shape, as far as it is known for all feeds."""
        shapes = self.graph.nodes[endpoint[0]].shapes
        of_placeholder = endpoint not in self.fed or is_fed_placeholder(self.graph, endpoint[0], self.fed)
        return None if shapes is None or not of_placeholder else shapes[endpoint[1]].dims

    def _ref_reads(self, node: Node) -> list[tuple[int, str, bool]]:
        """(position, name, by value) of each input that comes over a ref edge and must be initialised."""
        reads = []
        for position, endpoint in enumerate(node.in_edges):
            takes_ref = node.input_types[position].is_ref
            if takes_ref and endpoint in self.fed:
                raise errors.InvalidArgumentError(
                    f"{position}-th input expects a ref type", node=node.name, op=node.op, site=node.site
                )
            if not self.refs.gives_cell(endpoint):
                continue
            if not (takes_ref and node.op_def.allows_uninitialized_input):
                source, slot = self.graph.nodes[endpoint[0]], endpoint[1]
                name = source.name if slot == 0 else f"{source.name}:{slot}"
                reads.append((position, name, not takes_ref and node.op != "Identity"))
        return reads

    def _add_retval(self, position: int, endpoint: Endpoint, analysis: control_flow.Frames) -> PlanNode:
        source = self.graph.nodes[endpoint[0]]
        frame = self._frame(analysis.of_outputs(source))
        retval = PlanNode(Kind.RETVAL, source, frame)
        retval.position = position
        retval.num_data = 1
        frame.add(retval, 1)
        if self.refs.gives_cell(endpoint):
            retval.compute = dereferencing(_identity, [(0, source.name, True)])
        else:
            retval.compute = _identity
            retval.passes_on = True
        self._connect_data(retval, 0, endpoint)
        return retval

    # Edges

    def _connect(self, plan_node: PlanNode) -> None:
        node = plan_node.node
        plan_node.num_data = len(node.in_edges)
        is_merge = plan_node.kind == Kind.MERGE
        if is_merge:
            # Bit 0: no live data input yet; the rest counts control inputs.
            plan_node.frame.pending[plan_node.index] = 1
        for position, endpoint in enumerate(node.in_edges):
            self._connect_data(plan_node, position, endpoint)
        for control in node.control_edges:
            source = self.plan_nodes.get(control)
            if source is None:
                continue  # a constant or a fed placeholder, which is done before the step begins
            if is_merge:
                plan_node.frame.pending[plan_node.index] += 2
                source.merge_controls.append((plan_node, plan_node.index))
            else:
                plan_node.frame.pending[plan_node.index] += 1
                source.controls.append((plan_node, plan_node.index))

    def _put_in_order(self, retvals: Sequence[PlanNode]) -> None:
        """Add the order edges."""
        nodes = self.plan_nodes
        for follower, sources in self.order.edges.items():
            if follower in nodes:
                _follow(nodes[follower], [nodes[i] for i in sources if i in nodes])
        # Reads that follow the same updates follow one another, so that each update has one edge.
        last: dict[tuple[int, ...], PlanNode] = {}
        for retval, endpoint in zip(retvals, self.signature.fetches, strict=True):
            sources = self.order.fetched.get(endpoint, ())
            before = [last[sources]] if sources in last else [nodes[i] for i in sources if i in nodes]
            if before:
                _follow(retval, before)
                last[sources] = retval

    def _constant(self, plan_node: PlanNode, position: int, source: int) -> Any:
        """The argument for a constant input of a node: the value, or a constant on the node's device."""
        array = self.constants[source]
        if self.on_device is None or plan_node.kind == Kind.RETVAL:
            return array
        constant = self.on_device(plan_node.node, position, array, self.graph.nodes[source].name)
        if constant is None:
            return array
        self.device_constants.append(constant)
        return constant.value

    def _connect_data(self, plan_node: PlanNode, position: int, endpoint: Endpoint) -> None:
        frame, index = plan_node.frame, plan_node.index
        source = self.args.get(endpoint)
        slot = 0
        if source is None:
            if plan_node.kind != Kind.MERGE and endpoint[0] in self.constants:
                frame.args[plan_node.first + position] = self._constant(plan_node, position, endpoint[0])
                return
            source, slot = self.plan_nodes[endpoint[0]], endpoint[1]
        if plan_node.kind == Kind.MERGE:
            source.merge_edges.append((slot, plan_node, index, position))
        else:
            frame.pending[index] += 1
            source.slot_edges[slot].append((plan_node, index, plan_node.first + position))


def queued_kernel(node: Node, kernel: BuiltKernel) -> QueuedKernel:
    """The kernel of a node in the form that a device queues."""
    compute = kernel.compute
    if kernel.explain is not None:
        compute = _explaining(compute, kernel)
    use = kernel.variables
    changed = () if use is None else use.changed
    types, host_outputs = (changed, frozenset[int]()) if changed else (node.output_types, kernel.host_outputs)
    return QueuedKernel(
        node.name,
        node.op,
        compute,
        types,
        host_outputs,
        kernel.takes_list,
        updates=len(changed),
        assigns=use is not None and use.initial is not None,
    )


def _queue(plan_node: PlanNode, kernel: BuiltKernel, device: Device) -> None:
    """Make a node's calls queue on a device."""
    plan_node.kind = Kind.QUEUED
    plan_node.queued_on = device
    plan_node.variables = kernel.variables
    plan_node.queued = queued_kernel(plan_node.node, kernel)


def _explaining(compute: Callable[..., Any], kernel: BuiltKernel) -> Callable[..., Any]:
    """A compute callable that explains errors itself, because the executor does not look into its inputs."""
    explain, skip = kernel.explain, int(kernel.wants_context)
    assert explain is not None

    def call(*arguments: Any) -> Any:
        try:
            return compute(*arguments)
        except errors.OpError:
            raise
        except Exception as error:
            raise explain(error, *(arguments[-1] if kernel.takes_list else arguments[skip:])) from error

    return call


def _is_constant(node: Node, kernel: BuiltKernel) -> bool:
    return node.op in _CONSTANT and not (node.control_edges or kernel.wants_context or kernel.is_async)


def _follow(plan_node: PlanNode, sources: Sequence[PlanNode]) -> None:
    """Let a node begin when these nodes have ended."""
    plan_node.frame.pending[plan_node.index] += len(sources)
    plan_node.after = tuple(sources)
    for source in sources:
        source.followers = (*source.followers, (plan_node, plan_node.index))


def _finish_edges(plan_node: PlanNode) -> None:
    if plan_node.num_outputs:
        plan_node.edges = tuple(plan_node.slot_edges[0])
    tail = (plan_node.controls, plan_node.merge_controls, plan_node.merge_edges, plan_node.followers)
    plan_node.has_tail = any(tail)


def _attributed(node: Node, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except errors.OpError as error:
        error.attach_node(node.name, node.op, node.site, node.origin)
        raise


def _reading(reads: Sequence[tuple[int, str, bool]]) -> Callable[[list[Any]], list[Any]]:
    """Return a function that turns the inputs of a control-flow node into the values that it passes on."""
    read = dereferencing(lambda *inputs: list(inputs), reads)
    return lambda inputs: read(*inputs)


def _reading_taken(reads: Sequence[tuple[int, str, bool]]) -> Callable[[list[Any]], list[Any]]:
    """Like `_reading`, for a Merge, whose only input is the value that it took and that value's position."""
    by_position = {position: _reading([(0, name, by_value)]) for position, name, by_value in reads}

    def read(inputs: list[Any]) -> list[Any]:
        value, position = inputs[0]
        if position in by_position:
            (value,) = by_position[position]([value])
        return [(value, position)]

    return read


def _cost_of_read(cost: Callable[..., float], read: Callable[[list[Any]], list[Any]]) -> Callable[..., float]:
    """A cost function that is called with the variable's value instead of its cell."""

    def cost_of_values(*inputs: Any) -> float:
        try:
            values = read(list(inputs))
        except PostponedError:
            return 0.0  # the variable is being updated: the call will find that, and be postponed
        return cost(*values)

    return cost_of_values


def _identity(value: Any) -> Any:
    return value
