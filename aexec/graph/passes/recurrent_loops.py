"""Recurrent loops: puts one node in place of a while loop that runs an LSTM or GRU cell over a sequence.

A loop is replaced if all of its nodes are known: it counts from zero by ones up to a limit, reads row i of a sequence
that a TensorArray was filled with, computes a cell as TensorFlow's `BasicLSTMCell`, `LSTMCell` and `GRUCell` write it,
and may write the states to another TensorArray.  A node more, such as another consumer of a gate, a gradient's stack or
a mask for sequence lengths, and the loop stays as it is.  Without loops in C no loop is replaced: a step with NumPy
takes as long in the new node as in the loop.
Next to read: `while_frames.py`, and `aexec/kernels/rnn/loop_ops.py` for what it changes in results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import permutations
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Derivation, Endpoint, Node
from aexec.graph.passes.reading import Reading
from aexec.graph.passes.while_frames import (
    CarriedValue,
    ConstantValue,
    Expression,
    Frame,
    NotMatchedError,
    Outside,
    frames,
)
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["fuse_recurrent_loops"]

_ADDS = ("Add", "AddV2", "BiasAdd")


def fuse_recurrent_loops(working: WorkingGraph) -> None:
    """Replace the loops that run a known cell over a sequence."""
    if native.loops is None:
        return
    for frame in steadily(frames(working)):
        try:
            _Recurrence(working, frame).replace()
        except NotMatchedError:
            continue


@dataclass(slots=True)
class _Recurrence:
    """A loop, while it is compared with the known ones.

    Attributes:
        counters: variables that begin at 0 and grow by 1.
        written: variable → the write to a TensorArray that it orders.
        sequence: the TensorArray that is read and the node that filled it, once they are found.
    """

    working: WorkingGraph
    frame: Frame
    counters: set[int] = field(default_factory=set)
    written: dict[int, Expression] = field(default_factory=dict)
    sequence: tuple[Node, Node] | None = None

    def replace(self) -> None:
        frame = self.frame
        for number in range(len(frame.variables)):
            if self._counts(number):
                self.counters.add(number)
        limits = list(self._limits(frame.condition))
        states = self._states()
        op, attrs, inputs = _lstm(self, states) if len(states) == 2 else _gru(self, states)
        self._check_written(states)
        frame.check_complete()
        self._check_reads()
        self._put(op, attrs, inputs, limits, states)

    def _counts(self, number: int) -> bool:
        variable, expression = self.frame.variables[number], self.frame.value(self.frame.variables[number].next)
        if _op(expression) not in ("Add", "AddV2") or variable.dtype is not dtypes.int32:
            return False
        start = self.working.constant(variable.start)
        for one, other in permutations(expression.inputs):
            if one == CarriedValue(number) and isinstance(other, ConstantValue) and other.value.shape == ():
                return start is not None and start.shape == () and start == 0 and other.value == 1
        return False

    def _limits(self, condition: Any) -> Iterator[Any]:
        """The limits of the counters that the condition compares."""
        if _op(condition) == "LogicalAnd":
            for part in condition.inputs:
                yield from self._limits(part)
            return
        counter, limit = _one(condition, "Less")
        if not isinstance(counter, CarriedValue) or counter.number not in self.counters:
            raise NotMatchedError
        if not isinstance(limit, ConstantValue | Outside):
            raise NotMatchedError
        yield limit

    def _states(self) -> dict[int, Expression]:
        """The variables that are the cell's states → their next values; the writes are noted."""
        states = {}
        for number, variable in enumerate(self.frame.variables):
            if number in self.counters:
                continue
            expression = self.frame.value(variable.next)
            if not isinstance(expression, Expression):
                raise NotMatchedError
            if expression.op == "TensorArrayWriteV3":
                self.written[number] = expression
            else:
                states[number] = expression
        if not 1 <= len(states) <= 2:
            raise NotMatchedError
        if any(self.frame.variables[number].dtype is not dtypes.float32 for number in states):
            raise NotMatchedError
        return states

    def _check_written(self, states: Mapping[int, Expression]) -> None:
        """All writes must be of h, the last state, at the number of the step."""
        for number, write in self.written.items():
            handle, index, value, flow = write.inputs
            if not isinstance(handle, Outside) or not self.is_counter(index) or flow != CarriedValue(number):
                raise NotMatchedError
            if value != self.h(states):
                raise NotMatchedError

    def h(self, states: Mapping[int, Expression]) -> Expression:
        """The next value of the state that is multiplied."""
        for expression in states.values():
            if len(states) == 1 or expression.op == "Mul":
                return expression
        raise NotMatchedError

    def is_counter(self, value: Any) -> bool:
        return isinstance(value, CarriedValue) and value.number in self.counters

    def _check_reads(self) -> None:
        """The new node waits for all that the loop takes: it must not read a variable later than the loop would."""
        entered = [node for node in self.frame.nodes if node.op == "Enter"]
        taken = [*(endpoint for node in entered for endpoint in node.in_edges)]
        if not Reading(self.working).may_wait_for(entered, taken):
            raise NotMatchedError

    # The sequence

    def read(self, value: Any) -> None:
        """Match the row that the present step reads."""
        if not isinstance(value, Expression) or value.op != "TensorArrayReadV3":
            raise NotMatchedError
        handle, index, flow = value.inputs
        if not self.is_counter(index) or not isinstance(handle, Outside) or not isinstance(flow, Outside):
            raise NotMatchedError
        found = _filled(self.working, self.frame, handle.endpoint, flow.endpoint)
        if self.sequence not in (None, found):
            raise NotMatchedError
        self.sequence = found

    # The new nodes

    def _put(
        self,
        op: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[Endpoint],
        limits: Sequence[Any],
        states: Mapping[int, Expression],
    ) -> None:
        working, frame = self.working, self.frame
        assert self.sequence is not None
        array, scatter = self.sequence
        like = frame.exits[0]
        op_def = op_registry.global_registry.lookup(op).op_def
        size, rows = array.in_edges[0], scatter.in_edges[2]
        ends = [self._outside(limit, like) for limit in limits]
        count = ends[0]
        for other in ends[1:]:
            count = self._smaller(like, count, other)
        attrs = {**op_def.defaults, **attrs, "T": dtypes.float32, "keep_states": bool(self.written)}
        node_id, name = working.new_node(like, f"/{op.strip('_')}")
        made = Node(
            working,
            node_id,
            name,
            op_def,
            attrs,
            inputs=(count, size, rows, *inputs),
            control_inputs=tuple(dict.fromkeys((*frame.waits_for, *array.control_edges, *scatter.control_edges))),
            device=like.device,
            site=like.site,
        )
        made.derived_from = Derivation.of([*frame.nodes, array, scatter])
        working.replace(made)
        outputs = {number: 2 + place for place, number in enumerate(self._order(states))}
        for exit_node in frame.exits:
            self._exit(exit_node, made, outputs, 2 + len(states))
        for node in [*frame.nodes, scatter, array]:
            if node.id in working.nodes and node not in frame.exits:
                working.remove(node.id)

    def _order(self, states: Mapping[int, Expression]) -> list[int]:
        """The numbers of the states in the order of the outputs: c and h."""
        last = self.h(states)
        return sorted(states, key=lambda number: states[number] == last)

    def _exit(self, node: Node, made: Node, outputs: Mapping[int, int], states: int) -> None:
        number = self.frame.number_of(node)
        if number in self.written:
            write = self.written[number]
            handle = write.inputs[0].endpoint
            flow = self.frame.variables[number].start
            inputs = (handle, (made.id, 0), (made.id, states), flow)
            self._substitute(node, "TensorArrayScatterV3", inputs, write)
        else:
            source = (made.id, 1 if number in self.counters else outputs[number])
            self._substitute(node, "Identity", (source,))

    def _substitute(self, node: Node, op: str, inputs: tuple[Endpoint, ...], like: Expression | None = None) -> None:
        op_def = op_registry.global_registry.lookup(op).op_def
        attrs = {**op_def.defaults, "T": node.output_types[0] if like is None else like.node.attrs["T"]}
        made = Node(self.working, node.id, node.name, op_def, attrs, inputs=inputs, device=node.device, site=node.site)
        made.shapes = node.shapes
        made.derived_from = Derivation.of([node])
        self.working.substitute(made)

    def _outside(self, value: Any, like: Node) -> Endpoint:
        """The endpoint of a value outside of the loop."""
        if isinstance(value, Outside):
            return value.endpoint
        node_id, name = self.working.new_node(like, "/limit")
        made = value.node.rewired(self.working, (), ())
        made = Node(self.working, node_id, name, made.op_def, made.attrs, device=like.device, site=made.site)
        made.shapes = value.node.shapes
        self.working.replace(made)
        return node_id, 0

    def _smaller(self, like: Node, one: Endpoint, other: Endpoint) -> Endpoint:
        node_id, name = self.working.new_node(like, "/count")
        op_def = op_registry.global_registry.lookup("Minimum").op_def
        attrs = {**op_def.defaults, "T": dtypes.int32}
        self.working.replace(Node(self.working, node_id, name, op_def, attrs, inputs=(one, other), device=like.device))
        return node_id, 0


def _filled(working: WorkingGraph, frame: Frame, handle: Endpoint, flow: Endpoint) -> tuple[Node, Node]:
    """Return the TensorArray of a handle and the node that filled it with the rows of a tensor, in their order.

    Nobody else may use the array.
    """
    array, scatter = working.nodes[handle[0]], working.nodes[flow[0]]
    if array.op != "TensorArrayV3" or scatter.op != "TensorArrayScatterV3" or {handle, flow} & working.fed:
        raise NotMatchedError
    if scatter.in_edges[0] != handle or scatter.in_edges[3] != (array.id, 1):
        raise NotMatchedError
    entered = {node.id for node in frame.nodes if node.op == "Enter"}
    if not frame.consumers_of(array.id) <= {scatter.id, *entered} or not frame.consumers_of(scatter.id) <= entered:
        raise NotMatchedError
    if not {array.id, scatter.id}.isdisjoint(working.pinned) or array.attrs["dtype"] is not dtypes.float32:
        raise NotMatchedError
    rows, wanted = working.shape(scatter.in_edges[2]).dims, array.attrs["element_shape"]
    if array.attrs["dynamic_size"] or rows is None or len(rows) != 3 or not _is_within(rows[1:], wanted.dims):
        raise NotMatchedError
    if not _are_all(working, scatter.in_edges[1], array.in_edges[0], scatter.in_edges[2]):
        raise NotMatchedError
    return array, scatter


def _is_within(dims: Sequence[int | None], wanted: Sequence[int | None] | None) -> bool:
    """True if all tensors with these dimensions have the wanted ones."""
    if wanted is None:
        return True
    return len(dims) == len(wanted) and all(w is None or w == d for d, w in zip(dims, wanted, strict=True))


def _are_all(working: WorkingGraph, indices: Endpoint, size: Endpoint, rows: Endpoint) -> bool:
    """True if the indices, one for each of the rows, are 0, 1, … size - 1."""
    of_size = working.constant(size)
    value = working.constant(indices)
    if value is not None:
        if of_size is None or value.ndim != 1 or of_size.shape != ():
            return False
        return len(value) == of_size and np.array_equal(value, np.arange(len(value)))
    node = working.nodes[indices[0]]
    if node.op != "Range" or indices in working.fed:
        return False
    start, limit, step = node.in_edges
    for endpoint, wanted in ((start, 0), (step, 1)):
        constant = working.constant(endpoint)
        if constant is None or constant.shape != () or constant != wanted:
            return False
    if limit == size:
        return True
    if of_size is None or of_size.shape != ():
        return False
    of_limit = working.constant(limit)
    if of_limit is not None:
        return of_limit.shape == () and bool(of_limit == of_size)
    dims = working.shape(rows).dims
    return dims is not None and dims[0] == of_size and _is_number_of_rows(working, limit, rows)


def _is_number_of_rows(working: WorkingGraph, limit: Endpoint, rows: Endpoint) -> bool:
    """True if an endpoint is the first dimension of the rows, written as `shape(rows)[0]`."""
    node = working.nodes[limit[0]]
    if node.op != "StridedSlice" or limit in working.fed or node.attrs["shrink_axis_mask"] != 1:
        return False
    shape, *bounds = node.in_edges
    of_shape = working.nodes[shape[0]]
    if of_shape.op != "Shape" or shape in working.fed or of_shape.in_edges[0] != rows:
        return False
    constants = [working.constant(endpoint) for endpoint in bounds]
    return all(c is not None and c.shape == (1,) and c == want for c, want in zip(constants, (0, 1, 1), strict=True))


# --------------------------------------------------------------------------------------------------- cells


def _op(value: Any) -> str | None:
    return value.op if isinstance(value, Expression) else None


def _one(value: Any, *ops: str) -> Sequence[Any]:
    """The inputs of an expression of one of these ops."""
    if not isinstance(value, Expression) or value.op not in ops or value.slot:
        raise NotMatchedError
    return value.inputs


def _pair(value: Any, ops: Sequence[str], one: str, other: str) -> tuple[Any, Any]:
    """The inputs of an expression of one of these ops: first that of the op `one`, then that of `other`."""
    for first, second in permutations(_one(value, *ops)):
        if _op(first) == one and _op(second) == other:
            return first, second
    raise NotMatchedError


def _outside(value: Any) -> Endpoint:
    if not isinstance(value, Outside):
        raise NotMatchedError
    return value.endpoint


def _is_axis_one(value: Any) -> bool:
    return isinstance(value, ConstantValue) and value.value.size == 1 and int(value.value.reshape(())) in (1, -1)


def _split(value: Any, parts: int) -> tuple[Any, int]:
    """What an expression is a part of the columns of, and which part of how many."""
    if not isinstance(value, Expression) or value.op != "Split" or value.node.attrs["num_split"] != parts:
        raise NotMatchedError
    axis, whole = value.inputs
    if not _is_axis_one(axis):
        raise NotMatchedError
    return whole, value.slot


def _dense(value: Any) -> tuple[Any, Endpoint, Endpoint]:
    """The operand, weights and bias of a product with a bias."""
    product, bias = _one(value, *_ADDS)
    if _op(product) != "MatMul" and value.op != "BiasAdd":
        product, bias = bias, product
    if value.op == "BiasAdd" and value.node.attrs["data_format"] != b"NHWC":
        raise NotMatchedError
    operand, weights = _one(product, "MatMul")
    if product.node.attrs["transpose_a"] or product.node.attrs["transpose_b"]:
        raise NotMatchedError
    return operand, _outside(weights), _outside(bias)


def _joined(value: Any) -> tuple[Any, Any]:
    """The two tensors whose columns are joined."""
    inputs = _one(value, "ConcatV2")
    if len(inputs) != 3 or not _is_axis_one(inputs[2]):
        raise NotMatchedError
    return inputs[0], inputs[1]


def _check_shapes(working: WorkingGraph, shapes: Mapping[Endpoint, tuple[int | None, ...]]) -> None:
    """Shapes that are not known before may broadcast in the loop, which the new node does not."""
    for endpoint, wanted in shapes.items():
        dims = working.shape(endpoint).dims
        if dims is None or len(dims) != len(wanted):
            raise NotMatchedError
        if any(want is not None and dim != want for dim, want in zip(dims, wanted, strict=True)):
            raise NotMatchedError


def _lstm(loop: _Recurrence, states: Mapping[int, Expression]) -> tuple[str, dict[str, Any], list[Endpoint]]:
    next_h = loop.h(states)
    (of_h,) = [n for n, expression in states.items() if expression is next_h]
    (of_c,) = set(states) - {of_h}
    # h = sigmoid(o) * tanh(c)
    sigmoid, tanh = _pair(next_h, ["Mul"], "Sigmoid", "Tanh")
    if tanh.inputs[0] != states[of_c]:
        raise NotMatchedError
    out = sigmoid.inputs[0]
    # c = sigmoid(f + forget bias) * c + sigmoid(i) * tanh(j)
    kept, new = _one(states[of_c], "Add", "AddV2")
    if any(part == CarriedValue(of_c) for part in getattr(new, "inputs", ())):
        kept, new = new, kept
    factors = list(_one(kept, "Mul"))
    if CarriedValue(of_c) not in factors:
        raise NotMatchedError
    factors.remove(CarriedValue(of_c))
    (forget,) = _one(factors[0], "Sigmoid")
    bias = 0.0
    if _op(forget) != "Split":
        bias, forget = _forget_bias(forget)
    put, made = _pair(new, ["Mul"], "Sigmoid", "Tanh")
    parts = [_split(value, 4) for value in (put.inputs[0], made.inputs[0], forget, out)]
    if any(whole != parts[0][0] for whole, _ in parts) or sorted(at for _, at in parts) != [0, 1, 2, 3]:
        raise NotMatchedError
    operand, weights, of_gates = _dense(parts[0][0])
    row, state = _joined(operand)
    if state != CarriedValue(of_h):
        raise NotMatchedError
    loop.read(row)
    c, h = (loop.frame.variables[number].start for number in (of_c, of_h))
    cells = _cells(loop, h, weights, 4)
    _check_shapes(loop.working, {c: (None, cells), h: (None, cells), of_gates: (4 * cells,)})
    attrs = {"joined": True, "order": [at for _, at in parts], "forget_bias": bias}
    return "_LSTMLoop", attrs, [c, h, weights, weights, of_gates]


def _cells(loop: _Recurrence, h: Endpoint, weights: Endpoint, gates: int) -> int:
    """The number of cells, from the shapes of the state and the weights, which must be known and agree."""
    assert loop.sequence is not None
    state, rows = (loop.working.shape(endpoint).dims for endpoint in (h, loop.sequence[1].in_edges[2]))
    if state is None or len(state) != 2 or state[1] is None or rows is None or rows[2] is None:
        raise NotMatchedError
    _check_shapes(loop.working, {weights: (rows[2] + state[1], gates * state[1])})
    return state[1]


def _forget_bias(value: Any) -> tuple[float, Any]:
    for gate, bias in permutations(_one(value, "Add", "AddV2")):
        if isinstance(bias, ConstantValue) and bias.value.shape == () and _op(gate) == "Split":
            return float(bias.value), gate
    raise NotMatchedError


def _gru(loop: _Recurrence, states: Mapping[int, Expression]) -> tuple[str, dict[str, Any], list[Endpoint]]:
    ((of_h, next_h),) = states.items()
    update, candidate = _mixed(next_h, CarriedValue(of_h))
    operand, of_candidate, candidate_bias = _dense(candidate.inputs[0])
    row, left = _joined(operand)
    loop.read(row)
    factors = list(_one(left, "Mul"))
    if CarriedValue(of_h) not in factors:
        raise NotMatchedError
    factors.remove(CarriedValue(of_h))
    parts = [_gate(value) for value in (factors[0], update)]
    if parts[0][0] != parts[1][0] or [at for _, at in parts] != [0, 1]:
        raise NotMatchedError
    operand, of_gates, gates_bias = _dense(parts[0][0])
    row, state = _joined(operand)
    if state != CarriedValue(of_h):
        raise NotMatchedError
    loop.read(row)
    h = loop.frame.variables[of_h].start
    cells = _cells(loop, h, of_gates, 2)
    _cells(loop, h, of_candidate, 1)
    _check_shapes(loop.working, {gates_bias: (2 * cells,), candidate_bias: (cells,)})
    return "_GRULoop", {}, [h, of_gates, gates_bias, of_candidate, candidate_bias]


def _gate(value: Any) -> tuple[Any, int]:
    """The columns before the sigmoid that a gate is made from, and which half: the sigmoid is before or after."""
    if _op(value) == "Sigmoid":
        return _split(value.inputs[0], 2)
    whole, at = _split(value, 2)
    return _one(whole, "Sigmoid")[0], at


def _mixed(value: Any, h: CarriedValue) -> tuple[Any, Expression]:
    """The gate u and the candidate c of `u * h + (1 - u) * c` or `u * (h - c) + c`."""
    for one, other in permutations(_one(value, "Add", "AddV2")):
        for update, kept in permutations(_one(one, "Mul")) if _op(one) == "Mul" else ():
            if _op(other) == "Tanh" and _op(kept) == "Sub" and tuple(kept.inputs) == (h, other):
                return update, other
            if kept == h and _op(other) == "Mul":
                rest, candidate = _pair(other, ["Mul"], "Sub", "Tanh")
                whole, part = rest.inputs
                if isinstance(whole, ConstantValue) and whole.value.shape == () and whole.value == 1 and part == update:
                    return update, candidate
    raise NotMatchedError
