"""The plan: everything about a step that never changes, computed once.

For one (feeds, fetches, targets) signature a plan holds the pruned nodes with their kernels, laid out per loop frame:
initial pending counts, argument templates with the constants in place, and for every node the edges of its outputs.
`interpreter/propagator_state.py` copies the counts for each step.  A step changes nothing in a plan except what it
measures of kernels: how long calls take, and that their outputs are what the ops declare.
Next to read: `plan_builder.py`, which builds plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.kernel_contract.functional_call import FunctionalCall
from aexec.framework.kernel_contract.node_estimate import NodeEstimate
from aexec.framework.kernel_contract.variable_use import VariableUse
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import drained, empty
from aexec.graph.nodes.control_flow import FrameInfo
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.partition import TRANSFERS
from aexec.runtime.plans.compilation_policy import CompilationPolicy
from aexec.runtime.plans.device_constants import DeviceConstant

__all__ = ["FramePlan", "Kind", "Plan", "PlanKey", "PlanNode", "take_apart"]


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


@dataclass(frozen=True, slots=True)
class PlanKey:
    """The request that a plan is built for: fed endpoints, fetched endpoints, and target nodes.

    Attributes:
        in_parts: True if feeds come while the plan runs, so that no node may wait for more feeds than it needs.
        feed_devices, fetch_devices: names of the devices in whose memory each feed is and each fetch shall be, "" for
            the host's; () if all are in the host's.
        skip_sync: True if a run does not wait for the calls that it has queued on devices.
        connections: pairs (endpoint, the endpoint whose place it takes).
    """

    feeds: tuple[Endpoint, ...]
    fetches: tuple[Endpoint, ...]
    targets: tuple[int, ...] = ()
    in_parts: bool = False
    feed_devices: tuple[str, ...] = ()
    fetch_devices: tuple[str, ...] = ()
    skip_sync: bool = False
    connections: tuple[tuple[Endpoint, Endpoint], ...] = ()


# An edge: the consumer, its index in its frame's tables, and the argument slot that the value goes to.
Edge = tuple["PlanNode", int, int]


class PlanNode:
    """A node with everything the executor needs to run it.

    Attributes:
        kind: one of `Kind`.
        arity: number of inputs, 1 or 2, of a trusted `Kind.PLAIN` node, which the executor runs fastest; else 0.
        index: position in the tables of `frame`.
        first, last: its inputs are the frame's argument slots [first, last).
        frame: the frame it runs in; `child` is the frame an Enter starts.
        compute: the kernel's compute callable; `wants_context` says whether it takes the context, `takes_list`
            whether it then takes one list of inputs, `forwards` which inputs it may be given as `out`.
        gives_new_array: nothing else refers to its first output.
        device: full name of the device that its kernel runs on; `on_host` says whether that is a host device.
        queued_on, queued: for a `Kind.QUEUED` node, that device, and the kernel in the form that the device takes.
        variables: for such a node, the variables whose values its kernel gets; None if it gets none.
        cost: the kernel's own estimate of a call's time; `estimate` corrects it by measurement, and is shared by all
            plans with the node.
        scratch: the kernel's estimate of a call's scratch memory.
        check: when to check whether a call is too heavy to run inline: 0 never, 1 in steps with large values, 2 always
            (the estimate does not only grow with the inputs, or a call was slow), 3 if broadcasting may make more
            elements than the inputs have.  It is 2 or `usual_check`, as `estimate` says.
        usual_check: the value of `check` while no call was slow.
        edges: data edges of output 0 to ordinary nodes (the fast path).
        slot_edges: the same for every output slot.
        merge_edges: (output slot, consumer, index, input position) for consumers that are Merge nodes.
        controls, merge_controls: control edges to ordinary nodes and to Merge nodes.
        followers: order edges: nodes that start when it is done or dead (`aexec/graph/ordering/step_order.py`).
        after: the nodes that it follows by order edges.
        has_tail: True if it has edges other than `edges`.
        gives_tuple: True if its kernel returns its only output in a tuple.
        position: for a feed or a fetch, its place among the feeds or fetches.
        num_data: the number of data inputs; a Merge is dead when that many are dead.
        never_dead: True if it runs although inputs are dead (ControlTrigger; Send and Recv, to which a dead input is
            None).
        calls: the functions that its kernel calls, if it does nothing else.
        passes_on: True if each output is always the input of the same number.
        trusted: True once its outputs were found to be what its op declares; see `kernel_outputs.py`.
        transfers: True for a Send or a Recv.
        touches_state: True if a call in a thread must not be abandoned.
        reads_cells: True if it reads variables, by their cells, when it runs.
        in_any_thread: True if it may be called in any thread though it has state; see `OpKernelConstruction`.
        dereference: reads a variable's ref among the taken inputs, for control-flow and queued nodes and calls of
            functions that a ref leads into; else None.
    """

    __slots__ = (
        "after",
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
        "estimate",
        "explain",
        "first",
        "followers",
        "forwards",
        "frame",
        "gives_new_array",
        "gives_tuple",
        "has_tail",
        "in_any_thread",
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
        "on_host",
        "passes_on",
        "position",
        "queued",
        "queued_on",
        "reads_cells",
        "scratch",
        "slot_edges",
        "takes_list",
        "touches_state",
        "transfers",
        "trusted",
        "usual_check",
        "variables",
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
        self.on_host = False
        self.queued_on: Device | None = None
        self.queued: QueuedKernel | None = None
        self.variables: VariableUse | None = None
        self.cost: Any = 0.0
        self.estimate = _NO_KERNEL_ESTIMATE
        self.check = self.usual_check = 0
        self.scratch: Any = 0.0
        self.explain: Callable[..., errors.OpError] | None = None
        self.wants_context = False
        self.takes_list = False
        self.forwards: tuple[int, ...] = ()
        self.gives_new_array = False
        self.touches_state = False
        self.reads_cells = False
        self.in_any_thread = False
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
        self.followers: Sequence[tuple[PlanNode, int]] = ()
        self.after: tuple[PlanNode, ...] = ()
        self.has_tail = False

    def ask(self, check: int) -> None:
        """Set `usual_check`, and `check` by it."""
        self.usual_check = check
        self.check = 2 if self.estimate.asks_always else check

    def trust(self) -> None:
        """Stop comparing its outputs with its op."""
        self.trusted = True
        if self.kind == Kind.PLAIN and self.last - self.first in (1, 2):
            self.arity = self.last - self.first

    def learn(self, other: PlanNode) -> None:
        """Adopt what runs of another plan have found out about the outputs of the same kernel."""
        self.gives_tuple = other.gives_tuple
        if other.trusted:
            self.trust()

    def take_apart(self) -> None:
        """Release the nodes that it refers to."""
        self.child = None
        self.edges = self.followers = self.after = ()
        for edges in (self.slot_edges, self.merge_edges, self.controls, self.merge_controls):
            edges.clear()

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def op(self) -> str:
        return self.node.op

    def __repr__(self) -> str:
        return f"<PlanNode '{self.name}' {self.op} in frame '{self.frame.name}'>"


# The estimate of nodes without a kernel, which are never asked or measured.
_NO_KERNEL_ESTIMATE = NodeEstimate()


def _no_kernel(*_inputs: Any) -> Any:
    raise errors.InternalError("a node without kernel was run")


# Bound on nodes plus argument slots over all concurrent iterations of a loop; `_MOST_ITERATIONS` are always allowed.
_MOST_SLOTS = 1 << 15
_MOST_ITERATIONS = 32


class FramePlan:
    """The tables of one loop frame (or of the root frame, whose name is "").

    Attributes:
        nodes: its nodes; a node's `index` is its position here.
        pending: initial pending count of each node (see `interpreter/propagator_state.py`).
        args: argument slots of all nodes, one after another, constants filled in.
        roots: nodes that are ready at the start.
        num_enters: the number of Enter nodes that lead in.
        parallel_iterations: the most iterations under way at once, as the graph says, within bounds.
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
        most = max(_MOST_ITERATIONS, _MOST_SLOTS // (len(self.nodes) + len(self.args)))
        self.parallel_iterations = min(self.parallel_iterations, most)

    def take_apart(self) -> None:
        """Release its nodes, which refer to it."""
        for table in (self.roots, self.pending, self.args, self.nodes):
            empty(table)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A built plan: the root frame's tables, where feeds enter, and how many values come out.

    Attributes:
        has_large_constants: True if a constant among the arguments is not small.
        small_elements: the largest number of elements of a small value; see `LoopBudget`.
        compilation: the policy that decides how it is run; holds the compiled form.
        constants: those of its constants that are in a device's memory.
        skip_sync: True if a run does not wait for the calls that it has queued on devices.
    """

    root: FramePlan
    args: tuple[PlanNode, ...]
    num_results: int
    num_nodes: int
    nodes: list[PlanNode]
    has_large_constants: bool
    small_elements: int
    compilation: CompilationPolicy = field(default_factory=CompilationPolicy)
    constants: tuple[DeviceConstant, ...] = ()
    skip_sync: bool = False

    @property
    def size(self) -> int:
        """The work of going through it, in nodes; eight arguments count as one node."""
        return self.num_nodes + sum(node.last - node.first for node in self.nodes) // 8

    def take_apart(self) -> None:
        """Release its nodes, which refer to one another, in pieces; it must not be run any more."""
        self.compilation.refuse("the plan was taken apart")
        take_apart([*self.args], [self.root])
        take_apart(self.nodes, [])


def take_apart(nodes: list[PlanNode], frames: Iterable[FramePlan]) -> None:
    """Break the references among nodes, their frames and `frames`; empties the list."""
    tables = {id(frame): frame for frame in frames}
    for node in drained(nodes):
        tables[id(node.frame)] = node.frame
        node.take_apart()
    for frame in tables.values():
        frame.take_apart()
