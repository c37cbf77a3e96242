"""Function inlining: replaces a call by the nodes of the function's body.

An Identity of the results gets the call's name; it waits for all that the call waited for, and for the body's side
effects.  Stateful nodes of the body wait for all that the call waited for.  So effects keep their order; the rest of
the body may start when its inputs are there.  If there are several results, each gets its own Identity, so that its
consumers need not wait for the others.  Calls are kept if the function is marked `_noinline` or recursive, if the plan
would become too large, or if the request has control flow with Switch and Merge, as a dead call must not run any part
of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.waiting.long_work import steadily, taken_from
from aexec.framework.waiting.loop_budget import current_budget
from aexec.graph.function_body import FunctionBody
from aexec.graph.nodes import colocation, control_flow
from aexec.graph.nodes.node import Derivation, Endpoint, Node
from aexec.graph.nodes.prune import reachable
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["Callee", "CalleeOf", "inline_functions"]

_MAX_DEPTH = 20
_CONTROL_FLOW = control_flow.SWITCH | control_flow.MERGE | control_flow.ENTER | control_flow.EXIT


class Callee(Protocol):
    """An instantiated function."""

    @property
    def body(self) -> FunctionBody:
        """The body as a graph."""


# Returns the function that a node calls; None if it calls none, or one that must not be inlined.
CalleeOf = Callable[[Node], Callee | None]


def inline_functions(working: WorkingGraph, callee_of: CalleeOf) -> None:
    """Replace calls by the bodies of their functions, while the number of new nodes stays within the limit.

    Raises:
        NeedsThreadError: on the event loop, if more nodes are added than may be planned there.
    """
    if not len(working.library) or _has_control_flow(working.nodes.values()):
        return
    most = working.max_inlined_nodes
    here = min(most, current_budget().plan_nodes) if on_event_loop() else most
    bodies: dict[Callee, _Body] = {}
    called_fed = {node_id for node_id, _ in working.fed}
    forward: dict[Endpoint, Endpoint] = {}
    refs = RefEdges(working, working.fed)
    pending: list[tuple[Node, tuple[Callee, ...]]] = [(node, ()) for node in working.nodes.values()]
    for call, outer in taken_from(pending):
        callee = None if call.id in called_fed or len(outer) == _MAX_DEPTH else callee_of(call)
        if callee is None or callee in outer:
            continue
        body = bodies.get(callee)
        if body is None:
            body = bodies[callee] = _Body.of(callee.body)
        if body.has_control_flow:
            continue
        count = len(working.made_of) + len(body.needed) + len(call.output_types)
        if count > most:
            break
        if count > here:
            raise NeedsThreadError("there are too many nodes to be planned on the event loop")
        made = _Call(working, call, callee, body, forward, refs).inline()
        pending += [(node, (*outer, callee)) for node in made]
    working.redirect(forward)


def _has_control_flow(nodes: Any) -> bool:
    return any(node.op in _CONTROL_FLOW for node in nodes)


@dataclass(frozen=True, slots=True)
class _Body:
    """The common data of all calls of a function.

    Attributes:
        arguments: id of an argument's node → its index.
        needed: ids of the nodes that run, without arguments.
    """

    arguments: Mapping[int, int]
    needed: Sequence[int]
    has_control_flow: bool

    @classmethod
    def of(cls, body: FunctionBody) -> _Body:
        arguments = {node_id: index for index, node_id in enumerate(body.arguments)}
        if _has_control_flow(steadily(body.graph.nodes)):
            return cls(arguments, (), True)
        roots = [*(node_id for node_id, _ in body.results), *body.side_effects]
        needed = sorted(reachable(body.graph, roots, frozenset((i, 0) for i in arguments)))
        return cls(arguments, [i for i in needed if i not in arguments], False)


class _Call:
    """Inlines one call; adds to `forward` which endpoints consumers are to use instead of the call's outputs."""

    def __init__(
        self,
        working: WorkingGraph,
        call: Node,
        callee: Callee,
        common: _Body,
        forward: dict[Endpoint, Endpoint],
        refs: RefEdges,
    ) -> None:
        self.working = working
        self.forward = forward
        self.call = call
        self.callee = callee
        self.body = callee.body
        self.needed = common.needed
        self.arguments = common.arguments
        # Id of a body's node → id of the node made from it.
        self.ids: dict[int, int] = {}
        self.inputs = [self._read(endpoint, refs) for endpoint in call.in_edges]
        self.unused = set(range(len(call.in_edges)))

    def _read(self, endpoint: Endpoint, refs: RefEdges) -> Endpoint:
        """Return what the body gets as an input: for a variable's cell the value that the call would have read."""
        if not refs.gives_cell(endpoint):
            return endpoint
        call, working = self.call, self.working
        others = [e[0] for e in call.in_edges if e not in working.fed and e != endpoint]
        node_id, name = working.new_node(call, "/read")
        dtype = working.nodes[endpoint[0]].output_types[endpoint[1]].base
        controls = tuple(dict.fromkeys([*call.control_edges, *others]))
        self._new(node_id, name, "Snapshot", {"T": dtype}, (endpoint,), controls)
        return (node_id, 0)

    def inline(self) -> list[Node]:
        """Add the nodes of the body and replace the call; return the new nodes."""
        nodes = self.body.graph.nodes
        names = {}
        for node_id in self.needed:
            self.ids[node_id], names[node_id] = self.working.new_node(self.call, f"/{nodes[node_id].name}")
        made = [self._add(nodes[node_id], names[node_id]) for node_id in steadily(self.needed)]
        self._replace_call()
        return made

    def _add(self, node: Node, name: str) -> Node:
        controls = [i for control in node.control_edges for i in self._control(control)]
        if node.op_def.is_stateful or node.op in self.working.library:
            controls += self._waited_for(range(len(self.call.in_edges)))
        inputs = tuple(self._endpoint(endpoint) for endpoint in node.in_edges)
        made = node.rewired(self.working, inputs, tuple(dict.fromkeys(controls)))
        made.id, made.name = self.ids[node.id], name
        made.device = node.device or self.call.device
        made.attrs = self._attrs(node)
        made.derived_from = node.derived_from or Derivation((node.name,), (self.body.name,))
        self.working.replace(made)
        self.working.callees[made.id] = (self.callee, node)
        return made

    def _attrs(self, node: Node) -> Mapping[str, Any]:
        """Return the attrs of a body's node, with colocation groups that are this call's own."""
        groups = node.colocated_with
        if not groups:
            return node.attrs
        return {**node.attrs, colocation.ATTR: [colocation.group_entry(f"{self.call.name}/{g}") for g in groups]}

    def _endpoint(self, endpoint: Endpoint) -> Endpoint:
        index = self.arguments.get(endpoint[0])
        if index is None:
            return (self.ids[endpoint[0]], endpoint[1])
        self.unused.discard(index)
        return self.inputs[index]

    def _control(self, node_id: int) -> list[int]:
        index = self.arguments.get(node_id)
        return [self.ids[node_id]] if index is None else self._producers([index])

    def _producers(self, indices: Any) -> list[int]:
        """Return the nodes that produce these inputs of the call, without fed ones."""
        return [self.inputs[i][0] for i in indices if self.inputs[i] not in self.working.fed]

    def _waited_for(self, indices: Any) -> list[int]:
        return [*self.call.control_edges, *self._producers(indices)]

    def _replace_call(self) -> None:
        call = self.call
        results = tuple(self._endpoint(endpoint) for endpoint in self.body.results)
        # Wait also for inputs that the body does not use: a node that produces one may fail.
        effects = [self.ids[i] for i in self.body.side_effects if i in self.ids]
        controls = tuple(dict.fromkeys([*self._waited_for(sorted(self.unused)), *effects]))
        if len(results) > 1:
            controls = self._separate(results, controls)
        types = list(call.output_types)
        op: str = "NoOp"
        attrs: dict[str, Any] = {}
        if types:
            op, attrs = ("Identity", {"T": types[0]}) if len(types) == 1 else ("IdentityN", {"T": types})
        node = self._new(call.id, call.name, op, attrs, results, controls)
        node.shapes = call.shapes
        self.working.callees.pop(call.id, None)  # the id no longer means a node of an inlined body

    def _separate(self, results: tuple[Endpoint, ...], controls: tuple[int, ...]) -> tuple[int, ...]:
        """Give each result an Identity for its consumers; return the remaining control inputs of the call's node.

        Nodes that wait for the call, or fetches of it, use the node with its name, which waits for all results.
        """
        if len(controls) > 1:
            node_id, name = self.working.new_node(self.call, "/done")
            self._new(node_id, name, "NoOp", {}, (), controls)
            controls = (node_id,)
        for slot, result in enumerate(results):
            node_id, name = self.working.new_node(self.call, f"/output/_{slot}")
            node = self._new(node_id, name, "Identity", {"T": self.call.output_types[slot]}, (result,), controls)
            node.shapes = None if self.call.shapes is None else (self.call.shapes[slot],)
            self.forward[self.call.id, slot] = (node_id, 0)
        return controls

    def _new(
        self,
        node_id: int,
        name: str,
        op: str,
        attrs: dict[str, Any],
        inputs: tuple[Endpoint, ...],
        controls: tuple[int, ...],
    ) -> Node:
        """Make a node with that id, in place of any that has it."""
        node = Node(
            self.working,
            node_id,
            name,
            op_registry.global_registry.lookup(op).op_def,
            attrs,
            inputs=inputs,
            control_inputs=controls,
            device=self.call.device,
            site=self.call.site,
        )
        self.working.replace(node)
        return node
