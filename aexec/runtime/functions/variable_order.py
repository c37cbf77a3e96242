"""Decides the order of reads and updates in a plan's graph.

Next to read: `aexec/graph/ordering/step_order.py`, which says what the order is.
"""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.waiting.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.function_body import FunctionBody
from aexec.graph.nodes.node import Node
from aexec.graph.ordering.step_order import step_order
from aexec.graph.ordering.variable_uses import FunctionEffects
from aexec.graph.passes import WorkingGraph
from aexec.runtime.functions.functions import FunctionRuntime
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.plans.plan import PlanKey
from aexec.runtime.plans.region_nodes import may_wait

__all__ = ["put_in_order"]

_LOCKS = frozenset({"MutexLock", "ConsumeMutexLock"})
# Prefixes of ops that keep values of one step, for which no node waits.
_NEVER_WAIT = ("TensorArray", "Stack")
# Ops of aexec's own: the ends of bodies, and nodes that stand for pure nodes.
_OURS = frozenset({"_Arg", "_Retval", "_DelegatedRegion", "_CapturedRegion"})


def put_in_order(working: WorkingGraph, signature: PlanKey, functions: FunctionRuntime) -> None:
    """Set the order edges of a graph after its last rewrite; replaces those that it has.

    Raises:
        InvalidArgumentError: malformed loop frames.
        NeedsThreadError: the order depends on a large body that is not built yet.
    """
    working.order = step_order(
        working.nodes,
        signature.feeds,
        signature.fetches,
        _effects(functions),
        lambda node_id: working.made_of.get(node_id, node_id),
        in_parts=signature.in_parts,
    )
    for enter in working.order.serial:
        node = working.nodes[enter]
        made = node.rewired(working, node.in_edges, node.control_edges)
        made.attrs = {**node.attrs, "parallel_iterations": 1}
        working.replace(made)


def _effects(functions: FunctionRuntime) -> FunctionEffects:
    """Return the uses of variables in a session's functions, which are found as they are needed."""
    if functions.effects is None:
        functions.effects = FunctionEffects(
            functions.library, lambda reference: _body_of(functions, reference), _may_wait
        )
    return functions.effects


def _body_of(functions: FunctionRuntime, reference: NameAttrList) -> FunctionBody | None:
    try:
        function = functions.function(reference)
        if not function.has_body and function.size >= functions.budget.plan_nodes and on_event_loop():
            raise NeedsThreadError(f"the body of {function.name} is large")
        return function.body
    except errors.OpError:
        return None  # its call will raise the error


def _may_wait(node: Node) -> bool:
    if node.op in _OURS or node.op.startswith(_NEVER_WAIT):
        return False
    # No program can rely on the calls of a user's op without state: there may be any number of them.
    return node.op in _LOCKS or (may_wait(node) and (node.op_def.is_stateful or is_built_in(node.op)))
