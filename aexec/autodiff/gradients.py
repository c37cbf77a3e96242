"""`gradients`: adds nodes that compute the derivatives of some tensors of a graph with respect to others.

The graph is walked from `ys` back to `xs`.  A node is processed after all that use its outputs; the gradients that
arrived for each output are summed, and the gradient function of its op makes those of its inputs. The rules are those
of TensorFlow's `tf.gradients`.
Next to read: `forward_op.py` and any module of gradient functions, such as `math/math_ops.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from aexec import ops
from aexec.autodiff.aggregation import AGGREGATIONS, Gradient, add_up, as_dense
from aexec.autodiff.conditionals import gradient_of_switch, gradients_of_merge
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.loop_gradient import BackwardLoop, OutsideLoops, Place
from aexec.autodiff.loops import Loops, WhileLoop
from aexec.client.building import control_dependencies
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract.gradient_registry import GradientFunction, global_registry
from aexec.framework.waiting.long_work import go_on
from aexec.graph.graph import Graph
from aexec.graph.nodes.control_flow import EXIT, MERGE, SWITCH
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.scopes import GRADIENT_ATTR
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["Differentiable", "gated", "gradients", "gradients_in_body", "is_differentiable"]

_UNCONNECTED = ("none", "zero")

Differentiable = Tensor | TensorProxy


def is_differentiable(dtype: DType) -> bool:
    """True if gradients may flow through tensors of this type; through handles and variants for the values behind
    them.
    """
    base = dtype.base
    return base.is_floating or base.is_complex or base in (dtypes.resource, dtypes.variant)


def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable | Sequence[Differentiable],
    grad_ys: Any = None,
    *,
    stop_gradients: Sequence[Differentiable] = (),
    unconnected: str = "none",
    gate_gradients: bool = False,
    aggregation: str = "add_n",
    colocate: bool = False,
    name: str = "gradients",
) -> list[Tensor | IndexedSlices[Tensor] | None]:
    """Add nodes for the derivatives of the sum of `ys` with respect to each of `xs`.

    Args:
        ys: tensors to differentiate.
        xs: with respect to these, tensors or variables.
        grad_ys: the gradient of `ys`, a tensor or value of its shape, or a list with one for each; None, or a None
            among them, for ones.
        stop_gradients: tensors that are treated as constants.
        unconnected: the gradient of a tensor on which `ys` do not depend: None (`"none"`) or zeros (`"zero"`).
        gate_gradients: use the gradients of a node's inputs only when all of them are computed.
        aggregation: how several gradients of one tensor are summed: `"add_n"`, or in pairs as they come, `"tree"`.
        colocate: place the nodes of a gradient on the device of the node that it belongs to.
        name: scope of the new nodes.

    Returns:
        For each of `xs` a tensor of its shape and type, `IndexedSlices` if only rows of it were used, or None.

    Raises:
        InvalidArgumentError: tensors of several graphs; a gradient of another shape or type than its tensor; or a
            complex tensor in `ys` without a given gradient.
        NotFoundError: a node between them whose op has no registered gradient.
    """
    targets, sources = _listed("ys", ys), _listed("xs", xs)
    stops = _listed("stop_gradients", stop_gradients)
    _choose("unconnected", unconnected, _UNCONNECTED)
    _choose("aggregation", aggregation, AGGREGATIONS)
    graph = targets[0].graph if targets else None
    for tensor in (*targets, *sources, *stops):
        if tensor.graph is not graph:
            raise errors.InvalidValueError(f"{tensor!r} is of another graph than {targets[0]!r}")
    if not isinstance(graph, Graph):
        raise errors.InvalidValueError("gradients() needs at least one tensor in ys, of a graph that is being built")
    graph.check_not_finalized()
    with graph, graph.build_state.name_scope(name) as scope:
        options = _Options(gate_gradients, aggregation, colocate, scope.rstrip("/"))
        arriving = _initial_gradients(targets, grad_ys)
        results = _walked(graph, options, targets, sources, stops, arriving)
        if unconnected == "zero":
            given = [xs] if isinstance(xs, Differentiable) else xs
            results = [ops.zeros_like(x) if grad is None else grad for x, grad in zip(given, results, strict=True)]
    return results


def gradients_in_body(
    ys: Sequence[Tensor], xs: Sequence[Tensor], grad_ys: Sequence[Tensor], call: str
) -> list[Gradient | None]:
    """Like `gradients`, in the body of a function, as a part of another call of `gradients`.

    Args:
        call: name of that call.
    """
    graph: Any = (*ys, *xs)[0].graph
    options = _Options(gate=False, aggregation="add_n", colocate=False, call=call)
    with graph, graph.build_state.name_scope("gradients"):
        return _walked(graph, options, ys, xs, (), grad_ys)


def _walked(
    graph: Graph,
    options: _Options,
    ys: Sequence[Tensor],
    xs: Sequence[Tensor],
    stops: Sequence[Tensor],
    arriving: Iterable[Gradient],
) -> list[Gradient | None]:
    walk = _Walk(
        options,
        Loops(graph),
        OutsideLoops(),
        [y.node.id for y in ys],
        [x.node.id for x in xs],
        [tensor.node.id for tensor in stops],
    )
    for y, grad in zip(ys, arriving, strict=True):
        walk.arrive(y.endpoint, grad)
    walk.go()
    return [walk.result(x.endpoint) for x in xs]


def _listed(name: str, given: Differentiable | Sequence[Differentiable]) -> list[Tensor]:
    found = []
    for tensor in [given] if isinstance(given, Tensor | TensorProxy) else given:
        if not isinstance(tensor, Tensor | TensorProxy):
            raise errors.InvalidValueError(f"{name} must be tensors, got {tensor!r}")
        found.append(tensor.reference if isinstance(tensor, TensorProxy) else tensor)
    return found


def _choose(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise errors.InvalidValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def _initial_gradients(ys: Sequence[Tensor], given: Any) -> Iterator[Gradient]:
    """The given gradient of each of `ys`."""
    several = isinstance(given, list | tuple) and not isinstance(given, IndexedSlices)
    listed = list(given) if several else [given]
    if given is None:
        listed *= len(ys)
    if len(listed) != len(ys):
        raise errors.InvalidValueError(f"grad_ys must be one for each of {len(ys)} ys, got {len(listed)}")
    for index, (y, grad) in enumerate(zip(ys, listed, strict=True)):
        if isinstance(grad, IndexedSlices):
            yield grad
        elif grad is not None:
            dtype = y.dtype.base if is_differentiable(y.dtype) else None
            tensor = convert_to_tensor(grad, dtype, f"grad_ys_{index}")
            _check_shape(tensor, y, "grad_ys")
            yield tensor
        elif y.dtype.is_complex:
            raise errors.InvalidValueError(
                f"'{y.name}' is of type {y.dtype}: gradients of complex tensors need grad_ys"
            )
        else:
            yield ops.ones_like(y, name=f"grad_ys_{index}")


def _check_shape(grad: Tensor, tensor: Tensor, what: str) -> None:
    if not grad.static_shape.is_compatible_with(tensor.static_shape):
        raise errors.InvalidValueError(
            f"{what}: '{grad.name}' of shape {grad.static_shape} cannot be the gradient of '{tensor.name}', "
            f"which has shape {tensor.static_shape}"
        )


class _Options(NamedTuple):
    """The options of a call of `gradients`."""

    gate: bool
    aggregation: str
    colocate: bool
    call: str


class _Walk:
    """A backward walk over a graph, or over the body of a loop: which gradients have arrived, and which node is next.

    A loop is processed as a whole: its inputs are those of its Enter nodes, its outputs those of its Exits.
    """

    def __init__(
        self,
        options: _Options,
        loops: Loops,
        place: Place,
        ys: Iterable[int],
        xs: Iterable[int],
        stops: Iterable[int] = (),
        borders: Collection[int] = (),
    ) -> None:
        self._options = options
        self._loops = loops
        self._place = place
        self._graph = loops.graph
        self._starts = list(dict.fromkeys(ys))
        ends = set(xs)
        self._between = _between(self._graph, self._starts, ends, borders)
        self._loop_of: dict[int, WhileLoop] = {}
        for node_id in self._between:
            loop = loops.around(self._graph.nodes[node_id], place.loop)
            if loop is not None:
                self._loop_of[node_id] = loop
        self._check_places(ends)
        self._pending = self._uses()
        self._stops = {*stops, *self._without_predecessors(ends)}
        self._arrived: dict[Endpoint, list[Gradient]] = {}
        self._sums: dict[Endpoint, Gradient] = {}

    def _check_places(self, ends: set[int]) -> None:
        """Refuse `ys` and `xs` inside a loop, where they have a value for every iteration."""
        for node_id in (*self._starts, *ends):
            node = self._graph.nodes[node_id]
            if node_id in self._loop_of and node.op not in EXIT:
                raise errors.InvalidValueError(
                    f"'{node.name}' is inside the while loop '{self._loop_of[node_id].frame.name}': gradients are "
                    "taken of what leaves a loop, by what enters it"
                )

    def _unit(self, node_id: int) -> int | WhileLoop:
        """The unit that is processed with a node: the node itself, or the loop that it is in."""
        return self._loop_of.get(node_id, node_id)

    def _inputs(self, unit: int | WhileLoop) -> list[Endpoint]:
        """The origins of the inputs of a node or loop, as far as they are between `xs` and `ys`."""
        if isinstance(unit, WhileLoop):
            enters = (enter for enter in unit.enters if enter.id in self._between)
            found = [source for enter in enters for source in enter.in_edges]
        else:
            found = list(self._graph.nodes[unit].in_edges)
        return [source for source in found if source[0] in self._between]

    def _uses(self) -> dict[int | WhileLoop, int]:
        """For each node or loop, how many inputs of others come from it."""
        counts: dict[int | WhileLoop, int] = {}
        for unit in {self._unit(node_id) for node_id in self._between}:
            for source, _ in self._inputs(unit):
                counts[self._unit(source)] = counts.get(self._unit(source), 0) + 1
        return counts

    def _without_predecessors(self, ends: set[int]) -> set[int]:
        """The nodes of `xs` with none of the others before them: the walk need not go beyond them."""
        return {
            i
            for i in ends
            if i not in self._loop_of and not any(self._pending.get(self._unit(s)) for s, _ in self._inputs(i))
        }

    def arrive(self, endpoint: Endpoint, grad: Gradient) -> None:
        """Add a gradient of a tensor; there may be several."""
        self._arrived.setdefault(endpoint, []).append(grad)

    def go(self) -> None:
        """Make the gradients of all nodes between, the last first."""
        ready = deque(dict.fromkeys(unit for unit in map(self._unit, self._starts) if not self._pending.get(unit)))
        while ready:
            go_on()
            unit = ready.popleft()
            # A node that calls functions may get more inputs, through which no gradient flows.
            inputs = self._inputs(unit)
            if isinstance(unit, WhileLoop):
                self._pass_through(unit)
            else:
                self._pass_on(self._graph.nodes[unit])
            for source, _ in inputs:
                before = self._unit(source)
                self._pending[before] -= 1
                if not self._pending[before]:
                    ready.append(before)

    def result(self, endpoint: Endpoint) -> Gradient | None:
        """The sum of the gradients that arrived at a tensor."""
        if endpoint not in self._sums:
            arrived = self._arrived.pop(endpoint, None)
            if arrived is None:
                return None
            self._sums[endpoint] = add_up(arrived, self._options.aggregation)
        return self._sums[endpoint]

    def _pass_on(self, node: Node) -> None:
        """Make the gradients of a node's inputs from those of its outputs."""
        given = [self.result((node.id, slot)) for slot in range(node.num_outputs)]
        if node.id in self._stops or all(grad is None for grad in given):
            return
        function = self._function_of(node)
        if function is None:
            return
        with self._scope(node):
            made = self._called(function, node, given)
            # Gating must not wait for a gradient that is not used.
            wanted = [
                grad if source in self._between else None for (source, _), grad in zip(node.in_edges, made, strict=True)
            ]
            if self._options.gate:
                wanted = gated(wanted)
        for endpoint, grad in zip(node.in_edges, wanted, strict=True):
            if grad is not None:
                self.arrive(endpoint, grad)

    @contextmanager
    def _scope(self, node: Node) -> Iterator[None]:
        """Context manager: sets scope and device of the nodes of a node's gradient."""
        state = self._graph.build_state
        with (
            state.colocate_with(node) if self._options.colocate else nullcontext(),
            state.name_scope(f"{node.name}_grad"),
        ):
            yield

    def _function_of(self, node: Node) -> GradientFunction | None:
        if node.op in SWITCH:
            return gradient_of_switch
        if node.op in MERGE:
            return lambda op, grad, _: gradients_of_merge(self._loops.branches, op, grad)
        if node.op in self._graph.library and GRADIENT_ATTR not in node.attrs:
            return global_registry.lookup("PartitionedCall")
        return _registered(node)

    def _called(
        self, function: GradientFunction, node: Node, given: list[Gradient | None]
    ) -> Sequence[Gradient | None]:
        """Call a gradient function; return the checked gradients of the node's inputs."""
        op = ForwardOp(node, self._place.seen, self._options.call)
        conditional = node.op in SWITCH or node.op in MERGE
        takes_none = conditional or node.op in self._graph.library or global_registry.takes_none(node.op)
        grads = [
            ops.zeros_like(op.outputs[slot])
            if grad is None and not takes_none and _has_zeros(node.output_types[slot])
            else grad
            for slot, grad in enumerate(given)
        ]
        if not (conditional or global_registry.takes_rows(node.op)):
            grads = [as_dense(grad) for grad in grads]
        made: Any = function(op, *grads)
        if not isinstance(made, list | tuple) or isinstance(made, IndexedSlices):
            made = [made]
        if len(made) != len(node.in_edges):
            raise errors.InvalidValueError(
                f"Num gradients {len(made)} generated for op {node!r} do not match num inputs {len(node.in_edges)}"
            )
        for (source, slot), grad in zip(node.in_edges, made, strict=True):
            tensor = Tensor(self._graph.nodes[source], slot)
            if isinstance(grad, Tensor) and tensor.dtype.base is not dtypes.resource:
                _check_shape(grad, tensor, f"the gradient of op '{node.op}'")
        return list(made)

    def _pass_through(self, loop: WhileLoop) -> None:
        """Make the gradients of a loop's inputs from those of its outputs."""
        given = {v.exit.id: as_dense(self.result((v.exit.id, 0))) for v in loop.variables if v.exit is not None}
        if all(grad is None for grad in given.values()):
            return
        variables = [v for v in loop.variables if v.switch.id in self._between and is_differentiable(_dtype(v.enter))]
        invariants = [enter for enter in loop.invariants if enter.id in self._between]
        backward = BackwardLoop(loop, self._loops, self._place)
        body = _Walk(
            self._options,
            self._loops,
            backward,
            ys=[v.next[0] for v in variables],
            xs=[v.switch.id for v in variables] + [enter.id for enter in invariants],
            borders={v.switch.id for v in loop.variables} | {enter.id for enter in loop.enters},
        )
        carried = []
        for variable in variables:
            grad = given.get(variable.exit.id) if variable.exit is not None else None
            grad = backward.zeros_of(variable) if grad is None else grad
            carried.append(backward.carry(grad, variable.merge.output(0).static_shape))
            body.arrive(variable.next, carried[-1].value)
        with backward.backward():
            body.go()
            before = [
                ops.zeros_like(each.value) if grad is None else grad
                for each, grad in zip(
                    carried, (as_dense(body.result((v.switch.id, 1))) for v in variables), strict=True
                )
            ]
        for variable, each, grad in zip(variables, carried, before, strict=True):
            each.advance(grad)
            self.arrive(variable.enter.in_edges[0], each.left())
        for enter in invariants:
            with backward.backward():
                grad = as_dense(body.result((enter.id, 0)))
            if grad is not None:
                self.arrive(enter.in_edges[0], backward.added_up(enter, grad))


def _has_zeros(dtype: DType) -> bool:
    """True if zeros can replace a missing gradient of this type; there are none for handles."""
    return is_differentiable(dtype) and dtype.base is not dtypes.resource


def _dtype(node: Node) -> DType:
    return node.output_types[0]


def _registered(node: Node) -> GradientFunction | None:
    """The gradient function of a node's op, or of the op that an attr of it names instead."""
    override = node.attrs.get(GRADIENT_ATTR)
    op = node.op if override is None else override.decode()
    try:
        return global_registry.lookup(op)
    except errors.NotFoundError as error:
        raise errors.NoGradientError(
            f"No gradient defined for operation '{node.name}' (op type: {op}). {error.message}", node=node.name, op=op
        ) from None


def _between(graph: Graph, starts: Iterable[int], ends: set[int], borders: Collection[int]) -> set[int]:
    """The ids of the nodes on a path from `ends` to `starts`, over tensors through which gradients flow.

    No path goes past one of `borders`.
    """
    nodes = graph.nodes
    before: set[int] = set()
    consumers: dict[int, list[int]] = {}
    stack = list(starts)
    while stack:
        node_id = stack.pop()
        if node_id in before:
            continue
        before.add(node_id)
        if node_id in borders:
            continue
        for source, slot in nodes[node_id].in_edges:
            if is_differentiable(nodes[source].output_types[slot]):
                consumers.setdefault(source, []).append(node_id)
            stack.append(source)
    reached: set[int] = set()
    stack = [i for i in ends if i in before]
    while stack:
        node_id = stack.pop()
        if node_id not in reached:
            reached.add(node_id)
            stack.extend(consumers.get(node_id, ()))
    found: set[int] = set()
    stack = [i for i in starts if i in reached]
    while stack:
        node_id = stack.pop()
        if node_id not in found:
            found.add(node_id)
            if node_id not in borders:
                stack.extend(source for source, _ in nodes[node_id].in_edges if source in reached)
    return found


def gated(grads: Sequence[Gradient | None]) -> list[Gradient | None]:
    """Return the gradients, each available only when all of them are."""
    given = [grad for grad in grads if grad is not None]
    if len(given) < 2:
        return list(grads)
    waited = [grad.values.node if isinstance(grad, IndexedSlices) else grad.node for grad in given]
    with control_dependencies(waited):
        return [_after(grad) for grad in grads]


def _after(grad: Gradient | None) -> Gradient | None:
    if isinstance(grad, IndexedSlices):
        return grad._replace(values=ops.identity(grad.values))
    return None if grad is None else ops.identity(grad)
