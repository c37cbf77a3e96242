"""Deciding the order of reads and updates in what a plan runs.

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
# They keep values of one step, and nobody waits for these.
_NEVER_WAIT = ("TensorArray", "Stack")
# Nodes that bodies begin with and end in, and that stand for pure nodes.
_OURS = frozenset({"_Arg", "_Retval", "_DelegatedRegion", "_CapturedRegion"})


def put_in_order(working: WorkingGraph, signature: PlanKey, functions: FunctionRuntime) -> None:
    """Decide the order edges of a graph that is not rewritten any more; anew, if there are some.

    Raises:
        InvalidArgumentError: malformed loop frames.
        NeedsThreadError: it depends on a function whose body is large, and not built yet.
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
    """What the functions of a session do with variables, as far as somebody has asked."""
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
        return None  # which is said where it is called


def _may_wait(node: Node) -> bool:
    if node.op in _OURS or node.op.startswith(_NEVER_WAIT):
        return False
    # Nobody can count on calls of a user's op without state: there may be any number of them.
    return node.op in _LOCKS or (may_wait(node) and (node.op_def.is_stateful or is_built_in(node.op)))
