"""`cond` and `case`: the values of one branch; only the nodes of that branch run.

They are Switch and Merge nodes, named as in TensorFlow's first form: `cond/switch_t`, `cond/pred_id`,
`cond/add/Switch`, `cond/Merge`.
Next to read: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from aexec import ops, proto
from aexec.client.building import colocate_with, control_dependencies, name_scope
from aexec.control_flow.functional import chosen_branch, is_functional_here
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.graph.collections import GraphKeys
from aexec.graph.control_flow_context import ControlFlowContext, ControlFlowScopes
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph

__all__ = ["case", "cond"]


class _Branch(ControlFlowContext):
    """One branch of a conditional: values enter through a Switch."""

    def __init__(self, state: ControlFlowScopes, name: str, predicate: Tensor, pivot: Tensor, *, taken: bool) -> None:
        super().__init__(state)
        self._name = name
        self._predicate = predicate
        self._pivot = pivot
        self._slot = int(taken)
        for known in (predicate, pivot):
            self.know(known, known)

    @property
    def pivot(self) -> Node:
        return self._pivot.node

    def put_into(self, message: proto.ControlFlowContextDef) -> None:
        cond = message.cond_ctxt
        cond.context_name, cond.branch = self._name, self._slot
        cond.pred_name, cond.pivot_name = self._predicate.name, self._pivot.name
        self.put_values(cond.values_def)
        for context in self.nested:
            context.put_into(cond.nested_contexts.add())

    def capture(self, value: Tensor) -> Tensor:
        if not value.dtype.is_ref:
            return ops.switch(value, self._predicate)[self._slot]
        with colocate_with(value):
            return ops.ref_switch(value, self._predicate)[self._slot]

    def build(self, function: Callable[[], Any]) -> Any:
        """The results of the function, each leaf a tensor of this branch."""
        with self.state.inside(self):
            result = function()
            return pack(result, [self._output(leaf) for leaf in leaves_of(result)])

    def _output(self, leaf: Any) -> Tensor:
        if isinstance(leaf, Node):
            with control_dependencies([leaf]):
                return ops.identity(self._pivot)
        return self.take_in(convert_to_tensor(leaf))


def cond(
    predicate: Any,
    true_fn: Callable[[], Any],
    false_fn: Callable[[], Any],
    name: str | None = None,
    *,
    functional: bool | None = None,
) -> Any:
    """The results of `true_fn` if `predicate` is true, else those of `false_fn`.

    Both functions are called once, to build their branch; in a run, only the nodes of the branch that is taken run.
    Tensors from outside may be used; nodes made outside run in any case.

    Args:
        predicate: a bool scalar.
        true_fn, false_fn: return a tensor or value, an operation, or a structure of these; both the same structure with
            the same types.  An operation is replaced by a tensor that is computed after it has run.
        functional: build one `If` node that calls functions, instead of Switch and Merge nodes; by default as
            `Graph.functional_control_flow` says, which is true inside functions.

    Raises:
        InvalidArgumentError: the predicate is a Python bool; or the functions return nothing, or different structures.
    """
    if isinstance(predicate, bool):
        raise errors.InvalidTypeError("predicate must not be a Python bool: use `if`")
    graph = require_graph()
    state = graph.build_state
    with name_scope(name or "cond") as scope:
        chosen = convert_to_tensor(predicate, dtypes.bool_, "pred")
        if is_functional_here(graph, functional):
            return chosen_branch(chosen, (false_fn, true_fn), ("false_fn", "true_fn"), scope)
        no, yes = ops.switch(chosen, chosen)
        pivots = ops.identity(no, name="switch_f"), ops.identity(yes, name="switch_t")
        chosen = ops.identity(chosen, name="pred_id")
        frame = scope.rstrip("/")
        branches = [
            _Branch(state, f"{frame}/cond_text{mark}", chosen, pivot, taken=taken)
            for mark, pivot, taken in (("", pivots[1], True), ("_1", pivots[0], False))
        ]
        then, otherwise = (branch.build(fn) for branch, fn in zip(branches, (true_fn, false_fn), strict=True))
        if state.context is None:
            graph.collections.get_ref(GraphKeys.COND_CONTEXT).extend(branches)
        check_same_structure(then, otherwise, "What true_fn and false_fn give")
        pairs = list(zip(leaves_of(otherwise), leaves_of(then), strict=True))
        if not pairs or leaves_of(then) == [None]:
            raise errors.InvalidValueError("true_fn and false_fn must return at least one result")
        for one, other in pairs:
            if one.dtype.base is not other.dtype.base:
                raise errors.InvalidValueError(
                    "Outputs of true_fn and false_fn must have the same type: "
                    f"{other.name} is {other.dtype.base}, {one.name} is {one.dtype.base}"
                )
        return pack(then, [ops.merge(pair)[0] for pair in pairs])


def case(
    pairs: Mapping[Any, Callable[[], Any]] | Iterable[tuple[Any, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    *,
    exclusive: bool = False,
    name: str | None = None,
    functional: bool | None = None,
) -> Any:
    """The results of the function with the first true predicate.

    Args:
        pairs: predicates, bool scalars, and functions as for `cond`.
        default: called if no predicate is true; without one, that is an error of the run.
        exclusive: it is an error of the run if several are true.
        functional: as for `cond`.

    Raises:
        InvalidArgumentError: there is no pair, or an error of `cond`.
    """
    listed = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    if not listed:
        raise errors.InvalidValueError("case needs at least one pair of a predicate and a function")
    with name_scope(name or "case"):
        predicates = [convert_to_tensor(predicate, dtypes.bool_, "pred") for predicate, _ in listed]
        functions = [function for _, function in listed]
        together = ops.pack(predicates)
        checks = []
        if exclusive:
            count = ops.sum(ops.cast(together, DstT=dtypes.int32), [0])
            checks.append(_assertion(ops.less_equal(count, 1), "more than one predicate is true", together))
        if default is None:
            checks.append(_assertion(ops.any(together, [0]), "no predicate is true, and there is no default", together))
            default = functions.pop()
            predicates.pop()
        chosen = default
        for predicate, function in zip(reversed(predicates), reversed(functions), strict=True):
            chosen = partial(cond, predicate, function, chosen, functional=functional)
        with control_dependencies(checks):
            if predicates:
                return chosen()
            return cond(together[0], chosen, chosen, functional=functional)


def _assertion(holds: Tensor, message: str, predicates: Tensor) -> Node:
    inputs = {"condition": holds, "data": [f"case: {message}; predicates:", predicates]}
    return create_node("Assert", inputs, {})
