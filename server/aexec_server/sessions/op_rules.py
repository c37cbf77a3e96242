"""Rules for what clients may not run, stated for single ops and applied to graphs, plans and the functions that they
call.

A `Rule` looks at one `OpUse` and returns why it is not allowed.  `uses_of_graph` iterates over a graph that a client
posts; `PlanGuard` checks what a run needs of a graph that exists.  The rules are in `op_policy.py` and
`model_changes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import ReferenceType, ref

import aexec
from aexec import errors, proto
from aexec.hosting import NameAttrList, unflatten_node

__all__ = ["OpUse", "PlanGuard", "Rule", "uses_of_graph"]


@dataclass(slots=True)
class OpUse:
    """A node of a graph or of a function's body.

    Attributes:
        node: name of the node.
        op: name of its op.
        text: returns the value of a string attr by name; b"" if the node has none, None if the function's caller
            decides the value.
    """

    node: str
    op: str
    text: Callable[[str], bytes | None]


# Returns why clients may not use an op in this way, as the end of a sentence about it; None if they may.
Rule = Callable[[OpUse], str | None]


def uses_of_graph(graph_def: proto.GraphDef | proto.FlatGraphDef) -> Iterator[OpUse]:
    """Iterate over all nodes of a graph and of all its functions, called or not."""
    yield from map(_use_of_message, graph_def.node)
    for function in graph_def.library.function:
        yield from map(_use_of_message, function.node_def)


def _use_of_message(node: proto.NodeDef | proto.FlatNodeDef) -> OpUse:
    def text(name: str) -> bytes | None:
        whole = unflatten_node(node) if isinstance(node, proto.FlatNodeDef) else node
        if name not in whole.attr:
            return b""
        value = whole.attr[name]
        return None if value.placeholder else value.s

    return OpUse(node.name, node.op, text)


def _use_of_node(node: aexec.Node) -> OpUse:
    return OpUse(node.name, node.op, lambda name: node.attrs.get(name, b""))


class PlanGuard:
    """Refuses a run if a node of its plan, or of a function that the plan calls, breaks a rule.

    Args:
        rules: the first one that is broken gives the reason.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._functions: dict[str, tuple[str, str]] = {}
        # The graph that `_functions` was computed for (weak: the graph may be freed first), and its number of nodes
        # then.
        self._known: tuple[ReferenceType[aexec.Graph], int] | None = None

    def check(self, graph: aexec.Graph, call: aexec.SessionCallable) -> None:
        """Raise PermissionDeniedError with node and reason if a node that a call of `graph` needs breaks a rule."""
        error = self.refusal(graph, call)
        if error is not None:
            raise error

    def refusal(self, graph: aexec.Graph, call: aexec.SessionCallable) -> errors.PermissionDeniedError | None:
        """Return the error that `check` raises; None if no rule is broken."""
        if not self._rules:
            return None
        known = ref(graph), len(graph)
        if self._known != known:  # the graph may have been extended, and its library with it
            self._functions = self._functions_that_break(graph.library.to_proto().function)
            self._known = known
        for node in call.nodes:
            why_not = self._broken(_use_of_node(node))
            if why_not is not None:
                return _refused(node, why_not)
            for function in _functions_of(node):
                if function in self._functions:
                    op, why_not = self._functions[function]
                    return _refused(node, f"calls {op}, which {why_not}")
        return None

    def _broken(self, use: OpUse) -> str | None:
        for rule in self._rules:
            why_not = rule(use)
            if why_not is not None:
                return why_not
        return None

    def _functions_that_break(self, functions: Iterable[proto.FunctionDef]) -> dict[str, tuple[str, str]]:
        """Return the functions that break a rule, or call a function that does: name → (op, reason)."""
        found: dict[str, tuple[str, str]] = {}
        callers: dict[str, list[str]] = {}
        for function in functions:
            name = function.signature.name
            for node in function.node_def:
                why_not = self._broken(_use_of_message(node))
                if why_not is not None:
                    found.setdefault(name, (node.op, why_not))
                for called in _called(node):
                    callers.setdefault(called, []).append(name)
        spreading = list(found)
        while spreading:
            called = spreading.pop()
            for caller in callers.get(called, ()):
                if caller not in found:
                    found[caller] = found[called]
                    spreading.append(caller)
        return found


def _refused(node: aexec.Node, why_not: str) -> errors.PermissionDeniedError:
    return errors.PermissionDeniedError(f"Node '{node.name}' ({node.op}) {why_not}", node=node.name, op=node.op)


def _functions_of(node: aexec.Node) -> Iterator[str]:
    """Iterate over the names of the functions that a node may call: its op, and functions among its attrs."""
    yield node.op
    for value in node.attrs.values():
        for item in value if type(value) is list else (value,):
            if type(item) is NameAttrList:
                yield item.name


def _called(node: proto.NodeDef) -> Iterator[str]:
    """Like `_functions_of`, for a node of a function's body."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
