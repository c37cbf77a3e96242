"""`while_loop`: nodes that run repeatedly, as long as a condition holds.

They are Enter, Merge, Switch, NextIteration and Exit nodes, named as in TensorFlow's first form: `while/Enter`,
`while/Merge`, `while/LoopCond`, `while/Identity`, `while/NextIteration`, `while/Exit`.  Iterations overlap: each node
runs as soon as its inputs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import ops, proto
from aexec.client.building import name_scope
from aexec.control_flow.functional import functional_loop, is_functional_here
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.control_flow_context import ControlFlowContext, ControlFlowScopes
from aexec.graph.nodes.control_flow import ENTER
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = ["while_loop"]


class _Loop(ControlFlowContext):
    """The condition and the body of a loop: loop invariants enter through an Enter."""

    def __init__(self, state: ControlFlowScopes, frame: str, parallel_iterations: int) -> None:
        super().__init__(state)
        self._frame = frame
        self._parallel = parallel_iterations
        self._pivot: Node | None = None
        # For the MetaGraph: the tensors of the condition, of the Enter nodes, and of the Exit nodes.
        self._condition: list[Tensor] = []
        self._ends: tuple[list[Tensor], list[Tensor]] = ([], [])

    def put_into(self, message: proto.ControlFlowContextDef) -> None:
        loop = message.while_ctxt
        loop.context_name, loop.parallel_iterations, loop.back_prop = self._frame, self._parallel, True
        loop.pivot_for_pred_name, loop.pivot_name, loop.pivot_for_body_name = (t.name for t in self._condition)
        loop.loop_enter_names.extend(tensor.name for tensor in self._ends[0])
        loop.loop_exit_names.extend(tensor.name for tensor in self._ends[1])
        self.put_values(loop.values_def)
        # For TensorFlow, the values that leave a loop belong to the loop.
        loop.values_def.values.extend(loop.loop_exit_names)
        for context in self.nested:
            context.put_into(loop.nested_contexts.add())

    @property
    def loop(self) -> ControlFlowContext:
        return self

    @property
    def pivot(self) -> Node:
        assert self._pivot is not None
        return self._pivot

    def capture(self, value: Tensor) -> Tensor:
        return self._enter(value, is_constant=True)

    def _enter(self, value: Tensor, *, is_constant: bool) -> Tensor:
        enter = ops.ref_enter if value.dtype.is_ref and is_constant else ops.enter
        return enter(value, self._frame, is_constant=is_constant, parallel_iterations=self._parallel)

    def extra_controls(self, inputs: Sequence[Tensor], kept: Sequence[int], outside: Sequence[int]) -> list[int]:
        extra = []
        if not kept and all(_stays(tensor.node) for tensor in inputs):
            extra.append(self.pivot.id)
        # A control edge does not cross into a loop: it is replaced by a value.
        for node_id in outside:
            node = self.state.node(node_id)
            if node.num_outputs:
                with self.state.control_dependencies(None), self.state.inside(self):
                    extra.append(ops.identity(node.output(0)).node.id)
        return extra

    def build(
        self,
        start: Sequence[Tensor],
        shapes: Sequence[PartialTensorShape] | None,
        condition: Callable[[list[Tensor]], Any],
        body: Callable[[list[Tensor]], list[Any]],
    ) -> list[Tensor]:
        """The values that leave the loop, given those that enter it."""
        enters = self._enters(start, shapes)
        with self.state.inside(self):
            merges = [ops.merge([enter, enter])[0] for enter in enters]
            self._pivot = merges[0].node
            goes_on = convert_to_tensor(condition(merges), dtypes.bool_, "cond")
            pivot = ops.loop_cond(self.take_in(goes_on), name="LoopCond")
            switches = [ops.switch(merge, pivot) for merge in merges]
            inside = [ops.identity(yes) for _, yes in switches]
            self._pivot = inside[0].node
            self._condition = [merges[0], pivot, inside[0]]
            results = body(inside)
            for merge, result in zip(merges, results, strict=True):
                self._close(merge, convert_to_tensor(result, merge.dtype.base, "next"))
            exits = [ops.exit(no) for no, _ in switches]
        self._ends = (enters, exits)
        for left in exits:
            self.state.move(left.node, self.outer)
        return exits

    def _enters(self, start: Sequence[Tensor], shapes: Sequence[PartialTensorShape] | None) -> list[Tensor]:
        outer = self.outer
        with self.state.control_dependencies(None):
            values = start if outer is None else [outer.take_in(value) for value in start]
            enters = []
            for value in values:
                # An inner loop starts again in each outer iteration, with the outer invariants, too.
                waits = [outer.pivot] if outer is not None and outer.loop is not None and _stays(value.node) else []
                with self.state.control_dependencies(waits):
                    enters.append(self._enter(value, is_constant=False))
        for value, enter, shape in zip(values, enters, shapes or [value.static_shape for value in values], strict=True):
            self.state.move(enter.node, self)
            _check_invariant(value, shape)
            enter.node.shapes = [shape]  # inference alone does not know the next iterations' shapes
        return enters

    def _close(self, merge: Tensor, result: Tensor) -> None:
        """Lead the result of an iteration back to the start of the next one."""
        inner = self.take_in(result)
        node = merge.node
        _check_next(Tensor(self.state.node(node.in_edges[0][0]), node.in_edges[0][1]), inner, merge.static_shape)
        # The Merge was made without its back edge; nothing has looked at it so far.
        node.in_edges = (node.in_edges[0], ops.next_iteration(inner).endpoint)


def _stays(node: Node) -> bool:
    """True for an Enter of a loop invariant."""
    return node.op in ENTER and bool(node.attrs["is_constant"])


def _check_next(enters: Tensor, after: Tensor, shape: PartialTensorShape) -> None:
    if not _is_covered(after.static_shape, shape):
        raise errors.InvalidValueError(
            f"Input tensor '{enters.name.removesuffix(':0')}' enters the loop with shape {shape}, but has shape "
            f"{after.static_shape} after one iteration. To allow the shape to vary across iterations, use the "
            "`shape_invariants` argument of while_loop to specify a less-specific shape."
        )


def _check_invariant(value: Tensor, shape: PartialTensorShape) -> None:
    if not _is_covered(value.static_shape, shape):
        raise errors.InvalidValueError(
            f"The shape invariant specified for {value.name} is not compatible with the initial shape of the loop "
            f"variable. It enters the loop with shape {value.static_shape}, "
            f"but the specified shape invariant is {shape}."
        )


def _is_covered(shape: PartialTensorShape, by: PartialTensorShape) -> bool:
    """True if every tensor of the first shape is one of the second."""
    if by.rank is None:
        return True
    return shape.rank == by.rank and all(b is None or a == b for a, b in zip(shape, by, strict=True))


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    *,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    maximum_iterations: Any = None,
    name: str | None = None,
    functional: bool | None = None,
) -> Any:
    """The values of `loop_vars` when `condition` no longer holds.

    Both functions are called once, to build their nodes.  Tensors from outside may be used; nodes made outside run
    once, before the loop.

    Args:
        condition: of the loop variables, a bool scalar.
        body: of the loop variables, their next values, in the same structure.
        loop_vars: a list or tuple, whose items both functions take as arguments, or a single structure of tensors and
            values.
        shape_invariants: shapes of the loop variables in all iterations, in the structure of `loop_vars`; by default
            those that they start with.
        parallel_iterations: most iterations under way at once.
        maximum_iterations: the loop ends after this many, an int scalar.
        functional: build one `While` node that calls functions and makes one iteration after another, instead of Enter,
            Merge, Switch, NextIteration and Exit nodes; by default as `Graph.functional_control_flow` says, which is
            true inside functions.

    Returns:
        The structure of `loop_vars`.

    Raises:
        InvalidArgumentError: there are no loop variables; the body returns another structure, type or shape; or an
            argument is invalid.
    """
    if parallel_iterations < 1:
        raise errors.InvalidValueError(f"parallel_iterations must be positive, got {parallel_iterations}")
    given = loop_vars if type(loop_vars) in (list, tuple) else [loop_vars]
    if not leaves_of(given):
        raise errors.InvalidValueError("No loop variables provided")
    shapes = None if shape_invariants is None else _shapes(given, loop_vars, shape_invariants)
    graph = require_graph()
    state = graph.build_state
    with name_scope(name or "while") as scope:
        limit = None
        counting: list[Tensor] = []
        if maximum_iterations is not None:
            limit = convert_to_tensor(maximum_iterations, name="maximum_iterations")
            counting = [convert_to_tensor(0, limit.dtype.base, "iteration_counter")]
        start = counting + [convert_to_tensor(value) for value in leaves_of(given)]
        if shapes is not None:
            shapes = [PartialTensorShape([])] * len(counting) + shapes

        goes_on, once = _counting(condition, body, given, limit)
        if is_functional_here(graph, functional):
            start = [ops.identity(value) if value.dtype.is_ref else value for value in start]
            invariants = shapes or [value.static_shape for value in start]
            for value, shape in zip(start, invariants, strict=True):
                _check_invariant(value, shape)
            exits = functional_loop(start, invariants, goes_on, once, parallel_iterations, scope, _check_next)
        else:
            frame = state.unique_name("while_context", scope.rstrip("/"))
            loop = _Loop(state, frame, parallel_iterations)
            exits = loop.build(start, shapes, goes_on, once)
            if loop.outer is None:
                graph.collections.add(GraphKeys.WHILE_CONTEXT, loop)
        exits = exits[len(counting) :]
    packed = pack(given, exits)
    return packed if given is loop_vars else packed[0]


def _counting(
    condition: Callable[..., Any], body: Callable[..., Any], given: Any, limit: Tensor | None
) -> tuple[Callable[[list[Tensor]], Any], Callable[[list[Tensor]], list[Any]]]:
    """Condition and body of a loop over flat values; with a limit, the first value counts the iterations.

    Args:
        given: the structure of the loop variables.
    """
    counted = 0 if limit is None else 1

    def goes_on(values: list[Tensor]) -> Any:
        in_time = [] if limit is None else [ops.less(values[0], limit)]
        holds = condition(*pack(given, values[counted:]))
        return ops.logical_and(in_time[0], holds) if in_time else holds

    def once(values: list[Tensor]) -> list[Any]:
        counters = [value + 1 for value in values[:counted]]
        result = body(*pack(given, values[counted:]))
        if len(given) == 1 and not (type(result) in (list, tuple) and len(result) == 1):
            result = [result]
        check_same_structure(list(given), list(result), "The loop variables and what the body gives")
        return counters + leaves_of(list(result))

    return goes_on, once


def _shapes(given: Any, loop_vars: Any, invariants: Any) -> list[PartialTensorShape]:
    """The invariants of the flattened loop variables; a shape is a leaf, though it may be a list."""
    listed = invariants if given is loop_vars else [invariants]
    found: list[PartialTensorShape] = []
    _collect(given, listed, found)
    return found


def _collect(variables: Any, invariants: Any, found: list[PartialTensorShape]) -> None:
    if isinstance(variables, dict):
        keys = sorted(variables)
        variables, invariants = [variables[key] for key in keys], [invariants[key] for key in keys]
    if not isinstance(variables, list | tuple):
        found.append(PartialTensorShape.of(invariants))
        return
    if not isinstance(invariants, list | tuple) or len(invariants) != len(variables):
        raise errors.InvalidValueError("shape_invariants must have the same structure as loop_vars")
    for variable, invariant in zip(variables, invariants, strict=True):
        _collect(variable, invariant, found)
