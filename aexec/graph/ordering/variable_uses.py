"""Finds which nodes of a step read variables, and which update them.

A variable is followed from the node that makes it: its cell along ref edges, its handle through nodes that pass it on
and into functions that are called with it.  A node that takes the value of a cell reads the variable when it runs;
Identity does not, as it passes the cell on (`ref_edges.py`).
Next to read: `step_order.py`, which orders reads and updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import NamedTuple

from aexec.framework.dtypes import resource
from aexec.framework.waiting.long_work import steadily, taken_from
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.op_def import OpDef
from aexec.graph.calls import FUNCTIONAL_OPS, functions_called, is_functional
from aexec.graph.function_body import FunctionBody
from aexec.graph.nodes.control_flow import EXECUTOR_OPS, SWITCH
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.prune import reachable

__all__ = ["FunctionEffects", "VariableUses", "find_uses", "later_than_updates", "reads_by_handle", "updates_by_handle"]

# Identifies a variable in this module.
Variable = Hashable

_VARIABLES = frozenset({"Variable", "VariableV2", "TemporaryVariable"})
_READS = frozenset(
    {
        *("ReadVariableOp", "_ReadVariablesOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"),
        *("DisableCopyOnRead", "VariableShape"),
    }
)
_UPDATES = frozenset(
    {
        *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign"),
        *("ResourceCountUpTo", "DestroyResourceOp", "RngReadAndSkip", "RngSkip"),
    }
)
_UPDATE_PREFIXES = (
    *("ResourceApply", "ResourceSparseApply", "ResourceScatter"),
    *("StatefulRandom", "StatefulStandard", "StatefulTruncated", "StatefulUniform"),
)
# Ops that take a ref and only pass it on, or inspect it without reading the value.
_PASS_CELLS = EXECUTOR_OPS | {"RefIdentity", "RefSelect", "DebugGradientRefIdentity"}
_PASS_VALUES = EXECUTOR_OPS | {"Identity", "IdentityN", "_SwitchN"}
_LOOKS_AT_CELL = "IsVariableInitialized"


def reads_by_handle(op: str) -> bool:
    """True if an op that takes a variable's handle reads the variable."""
    return op in _READS


def updates_by_handle(op: str) -> bool:
    """True if an op that takes a variable's handle updates the variable."""
    return op in _UPDATES or op.startswith(_UPDATE_PREFIXES)


class VariableUses(NamedTuple):
    """The nodes that use each variable.

    Attributes:
        reads, updates: variable → ids of nodes, each once; a calling node may be in both.
        carried: endpoint → the variables whose cells or handles it may carry.
    """

    reads: dict[Variable, list[int]]
    updates: dict[Variable, list[int]]
    carried: dict[Endpoint, set[Variable]]


class _Effects(NamedTuple):
    """What a function does with the variables it is passed, by argument position.

    Attributes:
        reads, updates: positions of the arguments whose variables it reads or updates.
        gives: for each result the positions of the arguments that it may be.
        waits: True if a node of it may wait, or may end another node's wait.
    """

    reads: frozenset[int]
    updates: frozenset[int]
    gives: tuple[frozenset[int], ...]
    waits: bool


_NO_EFFECTS = _Effects(frozenset(), frozenset(), (), waits=False)

# Returns the body of the function that an attr names; None if it cannot be built.
BodyOf = Callable[[NameAttrList], FunctionBody | None]


class FunctionEffects:
    """Finds what the functions of a library do with variables that they are passed, once for each function.

    Args:
        may_wait: returns True for a node, other than a call, that may wait for a node to which it has no path, or may
            end such a wait.
    """

    def __init__(self, library: FunctionLibrary, body_of: BodyOf, may_wait: Callable[[Node], bool]) -> None:
        self.library = library
        self._body_of = body_of
        self._may_wait = may_wait
        self._known: dict[Hashable, _Effects] = {}

    def is_call(self, node: Node) -> bool:
        """True if a node only calls functions."""
        return is_functional(node, self.library)

    def may_wait(self, node: Node) -> bool:
        """True if any node, calls included, may wait for a node to which it has no path, or may end such a wait."""
        if not self.is_call(node):
            return self._may_wait(node)
        return any(self.of(callee.function).waits for callee in functions_called(node, self.library))

    def of(self, function: NameAttrList) -> _Effects:
        """Return the effects of a function; none if its body cannot be built."""
        key = attr_value.hashable(function)
        if key not in self._known:
            self._find_out(function)
        return self._known[key]

    def _find_out(self, function: NameAttrList) -> None:
        """Find the effects of a function, after those of all functions that it calls.

        It does not recurse, as calls may be nested more deeply than Python's stack.
        """
        bodies: dict[Hashable, tuple[FunctionBody, list[Node]]] = {}
        left = [(function, attr_value.hashable(function), False)]
        try:
            for function, key, callees_are_known in taken_from(left):
                if callees_are_known:
                    self._known[key] = self._of_body(*bodies[key])
                    del bodies[key]
                elif key not in self._known:
                    body = self._body_of(function)
                    nodes = [] if body is None else _nodes_that_run(body)
                    self._known[key] = _NO_EFFECTS  # for a recursive function
                    if body is not None:
                        bodies[key] = body, nodes
                        left.append((function, key, True))
                        left += self._called_by(nodes)
        except BaseException:
            for key in bodies:
                del self._known[key]  # not found yet
            raise

    def _called_by(self, nodes: Iterable[Node]) -> Iterator[tuple[NameAttrList, Hashable, bool]]:
        for node in nodes:
            for callee in functions_called(node, self.library):
                key = attr_value.hashable(callee.function)
                if key not in self._known:
                    yield callee.function, key, False

    def _of_body(self, body: FunctionBody, nodes: list[Node]) -> _Effects:
        follower = _Follower(nodes, (), self)
        given = {(node_id, 0): position for position, node_id in enumerate(body.arguments)}
        arguments = {e: p for e, p in given.items() if body.argument_types[p] is resource}
        uses = follower.follow((endpoint, (position,)) for endpoint, position in arguments.items())
        gives = tuple(_positions(uses.carried.get(endpoint, ())) for endpoint in body.results)
        return _Effects(_positions(uses.reads), _positions(uses.updates), gives, any(map(self.may_wait, nodes)))


def _nodes_that_run(body: FunctionBody) -> list[Node]:
    graph = body.graph
    roots = [*(i for i, _ in body.results), *body.side_effects]
    return [graph.nodes[i] for i in sorted(reachable(graph, roots, ()))]


def _positions(variables: Iterable[Variable]) -> frozenset[int]:
    return frozenset(v[0] for v in variables if isinstance(v, tuple))


def find_uses(nodes: Collection[Node], fed: Collection[Endpoint], functions: FunctionEffects) -> VariableUses | None:
    """Return the uses of variables by the nodes of a step; None if no node updates any.

    Args:
        nodes: the nodes that run.
        fed: endpoints that are fed: a feed is never a cell, but may be a handle.
    """
    ops = {node.op_def.name: node.op_def for node in steadily(nodes)}
    if not any(_may_update(op_def, functions.library) for op_def in ops.values()):
        return None
    follower = _Follower(nodes, fed, functions)
    uses = follower.follow(follower.sources())
    return uses if uses.updates else None


def later_than_updates(producers_first: Iterable[Node], library: FunctionLibrary) -> set[int]:
    """Return the ids of the nodes that may update a variable, and of all that depend on them."""
    found: set[int] = set()
    updating: dict[str, bool] = {}
    for node in steadily(producers_first):
        op = node.op_def.name
        if op not in updating:
            updating[op] = _may_update(node.op_def, library)
        sources = (*(i for i, _ in node.in_edges), *node.control_edges)
        if updating[op] or (found and not found.isdisjoint(sources)):
            found.add(node.id)
    return found


def _may_update(op_def: OpDef, library: FunctionLibrary) -> bool:
    op = op_def.name
    if op in FUNCTIONAL_OPS or op in library or updates_by_handle(op):
        return True
    return op not in _PASS_CELLS and op != _LOOKS_AT_CELL and any(arg.is_ref for arg in op_def.inputs)


class _Follower:
    """Follows variables through the nodes of one graph."""

    def __init__(self, nodes: Collection[Node], fed: Collection[Endpoint], functions: FunctionEffects) -> None:
        self._fed = frozenset(fed)
        self._functions = functions
        self._carriers = [node for node in steadily(nodes) if _may_carry(node)]
        sources = {node.id for node in self._carriers}.union([i for i, _ in fed])
        self._consumers: defaultdict[Endpoint, list[tuple[Node, int]]] = defaultdict(list)
        for node in steadily(nodes):
            for endpoint in node.in_edges:
                if endpoint[0] in sources:
                    self._note(node)
                    break

    def _note(self, node: Node) -> None:
        for position, endpoint in enumerate(node.in_edges):
            self._consumers[endpoint].append((node, position))

    def sources(self) -> Iterator[tuple[Endpoint, Variable]]:
        """Yield where variables come from: nodes that make them, and feeds, each of which may be the handle of one."""
        yield from ((endpoint, variable) for endpoint, variable in self._made() if endpoint not in self._fed)
        yield from ((endpoint, endpoint) for endpoint in self._consumers if endpoint in self._fed)

    def _made(self) -> Iterator[tuple[Endpoint, Variable]]:
        for node in self._carriers:
            op = node.op_def.name
            if op in _VARIABLES:
                yield (node.id, 0), _ref_variable(node)
            elif op == "VarHandleOp":
                yield (node.id, 0), (resource, node.attrs["container"], node.attrs["shared_name"])
            elif op == "_VarHandlesOp":
                names = zip(node.attrs["containers"], node.attrs["shared_names"], strict=False)
                yield from (((node.id, slot), (resource, *name)) for slot, name in enumerate(names))
            elif op not in _PASS_VALUES and op not in _PASS_CELLS and not self._functions.is_call(node):
                handles = [slot for slot, dtype in enumerate(node.output_types) if dtype is resource]
                yield from (((node.id, slot), (node.id, slot)) for slot in handles)

    def follow(self, sources: Iterable[tuple[Endpoint, Variable]]) -> VariableUses:
        """Return all uses of these variables."""
        reads: defaultdict[Variable, dict[int, None]] = defaultdict(dict)
        updates: defaultdict[Variable, dict[int, None]] = defaultdict(dict)
        carried: defaultdict[Endpoint, set[Variable]] = defaultdict(set)
        left = list(sources)
        for endpoint, variable in taken_from(left):
            if variable in carried[endpoint]:
                continue
            carried[endpoint].add(variable)
            for node, position in self._consumers.get(endpoint, ()):
                is_read, is_update, slots = self._use(node, position, endpoint)
                if is_read:
                    reads[variable][node.id] = None
                if is_update:
                    updates[variable][node.id] = None
                left += [((node.id, slot), variable) for slot in slots if (node.id, slot) not in self._fed]
        return VariableUses(
            {variable: sorted(ids) for variable, ids in reads.items()},
            {variable: sorted(ids) for variable, ids in updates.items()},
            dict(carried),
        )

    def _use(self, node: Node, position: int, endpoint: Endpoint) -> tuple[bool, bool, Iterable[int]]:
        """Return whether a node reads or updates the variable at an input, and which outputs pass the variable on."""
        dtype = node.input_types[position]
        if dtype is resource:
            return self._use_of_handle(node, position)
        if endpoint in self._fed:
            return False, False, ()
        op = node.op_def.name
        if not dtype.is_ref:
            return op != "Identity", False, (0,) if op == "Identity" else ()
        if op in _PASS_CELLS or op == _LOOKS_AT_CELL:
            return op == _LOOKS_AT_CELL, False, _ref_slots(node)
        first = next(i for i, t in enumerate(node.input_types) if t.is_ref)
        return False, True, _ref_slots(node) if position == first else ()

    def _use_of_handle(self, node: Node, position: int) -> tuple[bool, bool, Iterable[int]]:
        op = node.op_def.name
        if self._functions.is_call(node):
            return self._use_by_call(node, position)
        if op == "IdentityN":
            return False, False, (position,)
        if op in _PASS_VALUES:
            outputs = node.num_outputs if op in SWITCH or op == "_SwitchN" else 1
            return False, False, range(outputs)
        return reads_by_handle(op), updates_by_handle(op), ()

    def _use_by_call(self, node: Node, position: int) -> tuple[bool, bool, Iterable[int]]:
        reads = updates = False
        slots: set[int] = set()
        for callee in functions_called(node, self._functions.library):
            effects, argument = self._functions.of(callee.function), position - callee.offset
            reads |= argument in effects.reads
            updates |= argument in effects.updates
            if callee.gives_outputs:
                slots.update(slot for slot, given in enumerate(effects.gives) if argument in given)
        if node.op_def.name.endswith("While") and position < node.num_outputs:
            slots.add(position)  # the output if there is no iteration
        return reads, updates, slots


def _may_carry(node: Node) -> bool:
    """True if an output of the node may carry a cell or a handle."""
    for dtype in node.output_types:
        if dtype is resource or dtype.is_ref:
            return True
    return node.op_def.name == "Identity"


def _ref_slots(node: Node) -> list[int]:
    return [slot for slot, dtype in enumerate(node.output_types) if dtype.is_ref]


def _ref_variable(node: Node) -> Variable:
    if node.op == "TemporaryVariable":
        return node.id
    return ("ref", node.attrs["container"], node.attrs["shared_name"] or node.name.encode())
