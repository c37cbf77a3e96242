"""The plan: everything about a step that never changes, computed once.

For one (feeds, fetches, targets) signature a plan holds the pruned nodes with their
kernels, laid out per loop frame: initial pending counts, argument templates with the
constants already in place, and for every node the edges its outputs travel along.
`propagator_state.py` copies the counts and runs on them; all that a step changes in a plan is
what it learns of kernels: how long they take, and that they give what their ops declare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from aexec.framework import errors
from aexec.framework.device import Device, QueuedKernel
from aexec.framework.functional_call import FunctionalCall
from aexec.framework.inline_call import PostponedError
from aexec.framework.late_dataclass import dataclass
from aexec.framework.loop_budget import DEFAULT, LoopBudget
from aexec.framework.op_kernel import BuiltKernel
from aexec.framework.ref_cell import dereferencing
from aexec.graph import control_flow
from aexec.graph.control_flow import FrameInfo
from aexec.graph.node import Endpoint, GraphView, Node
from aexec.graph.partition import TRANSFERS
from aexec.graph.prune import is_fed_placeholder, reachable
from aexec.graph.ref_edges import gives_cell
from aexec.runtime.device_constants import DeviceConstant

__all__ = ["Compilation", "FramePlan", "Kind", "Plan", "PlanKey", "PlanNode", "build_plan"]


class Kind:
    """How the executor treats a node.  Plain integers: they are compared once per node run."""

    PLAIN = 0  # a synchronous kernel with one output and no context: the fast path
    KERNEL = 1  # any other synchronous kernel
    ASYNC = 2
    SWITCH = 3
    MERGE = 4
    ENTER = 5
    EXIT = 6
    NEXT_ITERATION = 7
    RETVAL = 8  # not a node of the graph: takes one fetched value
    ARG = 9  # not a node of the graph: a fed value enters here
    QUEUED = 10  # a kernel whose calls are queued on a device


# Ops without inputs whose kernels give the same in every step, and do nothing else.
_CONSTANT = frozenset({"Const", "VarHandleOp"})

_CONTROL_FLOW_KINDS = {
    **dict.fromkeys(control_flow.SWITCH, Kind.SWITCH),
    **dict.fromkeys(control_flow.MERGE, Kind.MERGE),
    **dict.fromkeys(control_flow.ENTER, Kind.ENTER),
    **dict.fromkeys(control_flow.EXIT, Kind.EXIT),
    **dict.fromkeys(control_flow.NEXT_ITERATION, Kind.NEXT_ITERATION),
}


_PASSING_ON = frozenset({"Identity", "IdentityN", "LoopCond", "PreventGradient", "Snapshot", "StopGradient"})


@dataclass(frozen=True, slots=True)
class PlanKey:
    """What a plan is built for: fed endpoints, fetched endpoints, and target nodes.

    Attributes:
        in_parts: feeds come while it runs, so that nothing may wait for more of them than it needs.
    """

    feeds: tuple[Endpoint, ...]
    fetches: tuple[Endpoint, ...]
    targets: tuple[int, ...] = ()
    in_parts: bool = False


# Given a node, the position of an input, a constant, and the name of the node that it is the value of.
OnDevice = Callable[[Node, int, Any, str], "DeviceConstant | None"]

# An edge: the consumer, its index in its frame's tables, and the argument slot that the value goes to.
Edge = tuple["PlanNode", int, int]


class PlanNode:
    """A node with everything the executor needs to run it.

    Attributes:
        kind: one of `Kind`.
        arity: 1 or 2 for a trusted `Kind.PLAIN` node with so many inputs, which the executor runs fastest; else 0.
        index: position in the tables of `frame`.
        first, last: its inputs are the frame's argument slots [first, last).
        frame: the frame it runs in; `child` is the frame an Enter starts.
        compute: the kernel's compute callable; `wants_context` says whether it takes the context, `takes_list`
            whether it then takes one list of inputs, `forwards` which inputs it may be given as `out`.
        device: full name of the device that its kernel runs on.
        queued_on, queued: of a `Kind.QUEUED` node, that device, and the kernel as it gets it.
        cost: the kernel's cost estimate, `scale` what measurement made of it.
        check: when to ask whether a call is too heavy to run inline: 0 never, 1 once large values are
            about, 2 always (the estimate does not just grow with the inputs).
        edges: data edges of output 0 to ordinary nodes (the fast path).
        slot_edges: the same for every output slot.
        merge_edges: (output slot, consumer, index, input position) for consumers that are Merge nodes.
        controls, merge_controls: control edges to ordinary nodes and to Merge nodes.
        has_tail: it has edges other than `edges`.
        gives_tuple: its kernel returns its only output in a tuple.
        position: of a fed value or a fetch: its place among the feeds or fetches.
        num_data: number of data inputs (of a Merge: how many may be dead before it is).
        never_dead: runs although inputs are dead (ControlTrigger; Send and Recv, to which a dead input is None).
        calls: how its kernel calls functions, if it does nothing else.
        passes_on: each output is the input of that number, whatever it is.
        trusted: its outputs were what its op declares when it first ran; see `kernel_outputs.py`.
        transfers: it is a Send or a Recv.
        touches_state: must not be abandoned while running in a thread.
        dereference: of a control-flow node that a variable's ref leads into: reads the taken inputs.
    """

    __slots__ = (
        "arity",
        "calls",
        "check",
        "child",
        "compute",
        "controls",
        "cost",
        "dereference",
        "device",
        "edges",
        "explain",
        "first",
        "forwards",
        "frame",
        "gives_tuple",
        "has_tail",
        "index",
        "is_constant_enter",
        "kind",
        "last",
        "merge_controls",
        "merge_edges",
        "never_dead",
        "node",
        "num_data",
        "num_outputs",
        "passes_on",
        "position",
        "queued",
        "queued_on",
        "scale",
        "slot_edges",
        "takes_list",
        "touches_state",
        "transfers",
        "trusted",
        "wants_context",
    )

    def __init__(self, kind: int, node: Node, frame: FramePlan) -> None:
        self.kind = kind
        self.node = node
        self.frame = frame
        self.arity = 0
        self.index = -1
        self.first = self.last = 0
        self.compute: Callable[..., Any] = _no_kernel
        self.device = ""
        self.queued_on: Device | None = None
        self.queued: QueuedKernel | None = None
        self.cost: Any = 0.0
        self.check = 0
        self.scale = 1.0
        self.explain: Callable[..., errors.OpError] | None = None
        self.wants_context = False
        self.takes_list = False
        self.forwards: tuple[int, ...] = ()
        self.touches_state = False
        self.trusted = False
        self.gives_tuple = False
        self.passes_on = False
        self.calls: FunctionalCall | None = None
        self.dereference: Callable[[list[Any]], list[Any]] | None = None
        self.transfers = kind == Kind.KERNEL and node.op in TRANSFERS
        self.never_dead = self.transfers or (kind == Kind.KERNEL and node.op == "ControlTrigger")
        self.num_outputs = 1 if kind in (Kind.ARG, Kind.RETVAL) else node.num_outputs
        self.num_data = 0
        self.position = -1
        self.child: FramePlan | None = None
        self.is_constant_enter = False
        self.edges: Sequence[Edge] = ()
        self.slot_edges: list[list[Edge]] = [[] for _ in range(self.num_outputs)]
        self.merge_edges: list[tuple[int, PlanNode, int, int]] = []
        self.controls: list[tuple[PlanNode, int]] = []
        self.merge_controls: list[tuple[PlanNode, int]] = []
        self.has_tail = False

    def trust(self) -> None:
        """Run it without looking at what its outputs are from now on."""
        self.trusted = True
        if self.kind == Kind.PLAIN and self.last - self.first in (1, 2):
            self.arity = self.last - self.first

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def op(self) -> str:
        return self.node.op

    def __repr__(self) -> str:
        return f"<PlanNode '{self.name}' {self.op} in frame '{self.frame.name}'>"


def _no_kernel(*_inputs: Any) -> Any:
    raise errors.InternalError("a node without kernel was run")


class FramePlan:
    """The tables of one loop frame (or of the root frame, whose name is "").

    Attributes:
        nodes: its nodes; a node's `index` is its position here.
        pending: initial pending count of each node (see `propagator_state.py`).
        args: argument slots of all nodes, one after another, constants filled in.
        roots: nodes that are ready at once.
        num_enters: how many Enter nodes lead in.
    """

    __slots__ = ("args", "info", "name", "nodes", "num_enters", "parallel_iterations", "pending", "roots")

    def __init__(self, info: FrameInfo) -> None:
        self.info = info
        self.name = info.name
        self.parallel_iterations = max(1, info.parallel_iterations)
        self.num_enters = 0
        self.nodes: list[PlanNode] = []
        self.pending: list[int] = []
        self.args: list[Any] = []
        self.roots: list[PlanNode] = []

    def add(self, node: PlanNode, num_args: int) -> None:
        node.index = len(self.nodes)
        self.nodes.append(node)
        self.pending.append(0)
        node.first = len(self.args)
        self.args.extend([None] * num_args)
        node.last = len(self.args)


class Compilation:
    """What has become of compiling a plan; see `compiled_plan.py`.

    Attributes:
        runs: how often the interpreter ran the plan before it was compiled.
        compiled: the `CompiledPlan`, or None.
        refused: why it is left to the interpreter, or "".
        taken_over: the last so many runs were finished by the interpreter.
        overran: so many of the last runs, or slices, held the loop for too long.
        suspect: a slice was too long by the processor's time, not only by the clock.
        looks: so often in a row the interpreter had a look at the calls since.
        busy: it is being compiled.
        goes_on: its line is to go on in a thread where a call is heavy.
        trial: of that, against the interpreter, while it lasts; a `Trial`, or None.
    """

    __slots__ = (
        "busy",
        "compiled",
        "goes_on",
        "looks",
        "overran",
        "refused",
        "runs",
        "suspect",
        "taken_over",
        "trial",
    )

    def __init__(self) -> None:
        self.runs = 0
        self.compiled: Any = None
        self.refused = ""
        self.taken_over = 0
        self.overran = 0
        self.suspect = False
        self.looks = 0
        self.busy = False
        self.goes_on = False
        self.trial: Any = None

    def refuse(self, reason: str) -> None:
        """Leave the plan to the interpreter from now on."""
        self.compiled = None
        self.refused = reason


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A built plan: the root frame's tables, where feeds enter, and how many values come out.

    Attributes:
        has_large_constants: a constant among the arguments is not small.
        small_elements: sizes up to which a value is; see `LoopBudget`.
        compilation: the plan as Python, once it has been run often enough.
        constants: those in its arguments that are in a device's memory.
    """

    root: FramePlan
    args: tuple[PlanNode, ...]
    num_results: int
    num_nodes: int
    nodes: tuple[PlanNode, ...]
    has_large_constants: bool
    small_elements: int
    compilation: Compilation = field(default_factory=Compilation)
    constants: tuple[DeviceConstant, ...] = ()

    @property
    def size(self) -> int:
        """What going through it takes, in nodes: eight arguments are as much as one."""
        return self.num_nodes + sum(node.last - node.first for node in self.nodes) // 8


def build_plan(
    graph: GraphView,
    signature: PlanKey,
    kernel_of: Callable[[Node], BuiltKernel],
    budget: LoopBudget = DEFAULT,
    on_device: OnDevice | None = None,
) -> Plan:
    """Prune the graph for a signature and lay it out for execution.

    Args:
        kernel_of: builds (or remembers) the kernel of a node.
        budget: of the session; says which values are small.
        on_device: of nodes of a device that is not the host: the constant that such an input is there, None if it
            is in host memory.

    Raises:
        InvalidArgumentError: malformed loop frames, or a kernel's own checks.
        NotFoundError: a node without kernel.
    """
    return _Builder(graph, signature, kernel_of, budget, on_device).build()


class _Builder:
    def __init__(
        self,
        graph: GraphView,
        signature: PlanKey,
        kernel_of: Callable[[Node], BuiltKernel],
        budget: LoopBudget,
        on_device: OnDevice | None,
    ) -> None:
        self.graph = graph
        self.small = budget.small_elements
        self.signature = signature
        self.kernel_of = kernel_of
        self.on_device = on_device
        self.device_constants: list[DeviceConstant] = []
        self.fed = frozenset(signature.feeds)
        roots = [*(node_id for node_id, _ in signature.fetches), *signature.targets]
        # A fed placeholder has nothing to run, even where it is itself fetched (as functions return arguments).
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
        self.merged = {e[0] for node in self.kept if node.op in control_flow.MERGE for e in node.inputs}

    def build(self) -> Plan:
        consumers = {node.id for node in self.kept if not self.fed.isdisjoint(node.inputs)} if self.fed else ()
        analysis = control_flow.analyze(self.kept, self._producers, consumers)
        root = self._frame(FrameInfo("", None))
        for node in self.kept:
            self._add_node(node, analysis)
        for position, endpoint in enumerate(self.signature.feeds):
            node = self.graph.nodes[endpoint[0]]
            self.args[endpoint] = PlanNode(Kind.ARG, node, root)
            self.args[endpoint].position = position
        for plan_node in self.plan_nodes.values():
            self._connect(plan_node)
        retvals = [self._add_retval(i, endpoint, analysis) for i, endpoint in enumerate(self.signature.fetches)]
        every = (*self.args.values(), *self.plan_nodes.values(), *retvals)
        for plan_node in every:
            _finish_edges(plan_node)
        for frame in self.frames.values():
            # Taken from the end: the first node of the graph goes first.
            frame.roots = [n for n in reversed(frame.nodes) if frame.pending[n.index] == 0]
        arguments = tuple(self.args[endpoint] for endpoint in self.signature.feeds)
        large = any(value.size > self.small for value in self.constants.values())
        nodes = tuple(self.plan_nodes.values())
        plan = Plan(
            root,
            arguments,
            len(retvals),
            len(self.kept),
            nodes,
            large,
            self.small,
            constants=tuple(self.device_constants),
        )
        queued = next((node for node in nodes if node.kind == Kind.QUEUED), None)
        if queued is not None:
            plan.compilation.refuse(f"its nodes are queued on {queued.device}")
        return plan

    # Nodes

    def _producers(self, node: Node) -> list[Node]:
        nodes = self.graph.nodes
        data = [nodes[e[0]] for e in node.inputs if e not in self.fed]
        return data + [nodes[i] for i in node.control_inputs if not is_fed_placeholder(self.graph, i, self.fed)]

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
        frame.add(plan_node, len(node.inputs))

    def _bind_kernel(self, plan_node: PlanNode, kernel: BuiltKernel) -> None:
        node = plan_node.node
        plan_node.compute = kernel.compute
        plan_node.device = kernel.device
        plan_node.cost = kernel.cost
        plan_node.check = 2 if callable(kernel.cost) else 1 if kernel.cost else 0
        plan_node.explain = kernel.explain
        plan_node.calls = kernel.calls
        plan_node.wants_context = kernel.wants_context
        plan_node.takes_list = kernel.takes_list
        plan_node.touches_state = node.op_def.is_stateful or any(
            t.is_ref or t.enum == 20 for t in (*node.input_types, *node.output_types)
        )
        reads = self._ref_reads(node)
        plan_node.passes_on = node.op in _PASSING_ON and not reads
        if reads and callable(kernel.cost):
            plan_node.cost = _cost_of_read(kernel.cost, _reading(reads))
        if not (reads or kernel.wants_context):
            plan_node.forwards = kernel.forwards
        if reads:
            plan_node.compute = dereferencing(
                kernel.compute, reads, skip_first=kernel.wants_context, takes_list=kernel.takes_list
            )
        if kernel.queued_on is not None:
            _queue(plan_node, kernel, kernel.queued_on)
        elif kernel.is_async:
            plan_node.kind = Kind.ASYNC
        elif plan_node.num_outputs == 1 and not kernel.wants_context:
            plan_node.kind = Kind.PLAIN

    def _ref_reads(self, node: Node) -> list[tuple[int, str, bool]]:
        """(position, name, by value) of the inputs that come over a ref edge and must be initialised."""
        reads = []
        for position, endpoint in enumerate(node.inputs):
            takes_ref = node.input_types[position].is_ref
            if takes_ref and endpoint in self.fed:
                raise errors.InvalidArgumentError(
                    f"{position}-th input expects a ref type", node=node.name, op=node.op, site=node.site
                )
            if not gives_cell(self.graph, endpoint, self.fed):
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
        if gives_cell(self.graph, endpoint, self.fed):
            retval.compute = dereferencing(_identity, [(0, source.name, True)])
        else:
            retval.compute = _identity
            retval.passes_on = True
        self._connect_data(retval, 0, endpoint)
        return retval

    # Edges

    def _connect(self, plan_node: PlanNode) -> None:
        node = plan_node.node
        plan_node.num_data = len(node.inputs)
        is_merge = plan_node.kind == Kind.MERGE
        if is_merge:
            # Bit 0: no live data input yet; the rest counts control inputs.
            plan_node.frame.pending[plan_node.index] = 1
        for position, endpoint in enumerate(node.inputs):
            self._connect_data(plan_node, position, endpoint)
        for control in node.control_inputs:
            source = self.plan_nodes.get(control)
            if source is None:
                continue  # a constant or a fed placeholder: done before the step begins
            if is_merge:
                plan_node.frame.pending[plan_node.index] += 2
                source.merge_controls.append((plan_node, plan_node.index))
            else:
                plan_node.frame.pending[plan_node.index] += 1
                source.controls.append((plan_node, plan_node.index))

    def _constant(self, plan_node: PlanNode, position: int, source: int) -> Any:
        """A constant as an input of a node."""
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


def _queue(plan_node: PlanNode, kernel: BuiltKernel, device: Device) -> None:
    """Have the calls of a node queued on a device."""
    plan_node.kind = Kind.QUEUED
    plan_node.queued_on = device
    compute = plan_node.compute
    if kernel.explain is not None:
        compute = _explaining(compute, kernel)
    types = plan_node.node.output_types
    plan_node.queued = QueuedKernel(
        plan_node.name, plan_node.op, compute, types, kernel.host_outputs, kernel.takes_list
    )


def _explaining(compute: Callable[..., Any], kernel: BuiltKernel) -> Callable[..., Any]:
    """A call that says itself what was wrong with its inputs, which the executor does not look into."""
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
    return node.op in _CONSTANT and not (node.control_inputs or kernel.wants_context or kernel.is_async)


def _finish_edges(plan_node: PlanNode) -> None:
    if plan_node.num_outputs:
        plan_node.edges = tuple(plan_node.slot_edges[0])
    plan_node.has_tail = bool(plan_node.controls or plan_node.merge_controls or plan_node.merge_edges)


def _attributed(node: Node, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except errors.OpError as error:
        error.attach_node(node.name, node.op, node.site, node.origin)
        raise


def _reading(reads: Sequence[tuple[int, str, bool]]) -> Callable[[list[Any]], list[Any]]:
    """What turns the inputs of a control-flow node into what it passes on."""
    read = dereferencing(lambda *inputs: list(inputs), reads)
    return lambda inputs: read(*inputs)


def _reading_taken(reads: Sequence[tuple[int, str, bool]]) -> Callable[[list[Any]], list[Any]]:
    """The same of a Merge, whose only input is what it took and from where."""
    by_position = {position: _reading([(0, name, by_value)]) for position, name, by_value in reads}

    def read(inputs: list[Any]) -> list[Any]:
        value, position = inputs[0]
        if position in by_position:
            (value,) = by_position[position]([value])
        return [(value, position)]

    return read


def _cost_of_read(cost: Callable[..., float], read: Callable[[list[Any]], list[Any]]) -> Callable[..., float]:
    """A cost function that is asked about a variable's value, not about its cell."""

    def cost_of_values(*inputs: Any) -> float:
        try:
            values = read(list(inputs))
        except PostponedError:
            return 0.0  # being updated: the call itself will find that, and be postponed
        return cost(*values)

    return cost_of_values


def _identity(value: Any) -> Any:
    return value
