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
    FunctionLoop,
    NotMatchedError,
    Outside,
    frames,
)
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["fuse_recurrent_loops"]

_WRITES = ("TensorArrayWriteV3", "TensorListSetItem")
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


@dataclass(frozen=True, slots=True)
class _Sequence:
    """What a loop reads step by step.

    Attributes:
        rows: [time, batch, inputs].
        size: the number of rows.
        nodes: those that only the loop needs.
    """

    rows: Endpoint
    size: Any
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class _Recurrence:
    """A loop, while it is compared with the known ones.

    Attributes:
        counters: variables that begin at 0 and grow by 1.
        written: variable → the write to a TensorArray that it orders, or to the list that it is.
        unchanged: variable that is handed on → its value.
        limits: what the counters are compared with.
        sequence: what is read, once it is found.
    """

    working: WorkingGraph
    frame: Frame | FunctionLoop
    counters: set[int] = field(default_factory=set)
    written: dict[int, Expression] = field(default_factory=dict)
    unchanged: dict[int, Endpoint] = field(default_factory=dict)
    limits: list[Any] = field(default_factory=list)
    sequence: _Sequence | None = None

    def replace(self) -> None:
        frame = self.frame
        for number in range(len(frame.variables)):
            if self._counts(number):
                self.counters.add(number)
        self.limits += self._limits(frame.condition)
        states = self._states()
        op, attrs, inputs = _lstm(self, states) if len(states) == 2 else _gru(self, states)
        self._check_written(states)
        frame.check_complete()
        self._check_reads()
        self._put(op, attrs, inputs, states)

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
        if not isinstance(limit, Outside) and not (isinstance(limit, ConstantValue) and limit.value.shape == ()):
            raise NotMatchedError
        yield limit

    def _states(self) -> dict[int, Expression]:
        """The variables that are the cell's states → their next values; the writes are noted."""
        states = {}
        for number, variable in enumerate(self.frame.variables):
            if number in self.counters:
                continue
            expression = self.frame.value(variable.next)
            if isinstance(expression, Outside | ConstantValue):
                self.unchanged[number] = variable.start
                continue
            if not isinstance(expression, Expression):
                raise NotMatchedError
            if expression.op in _WRITES:
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
            if write.op == "TensorListSetItem":
                own, index, value = write.inputs
                if write.node.attrs["resize_if_index_out_of_bounds"] or not self._has_room(number):
                    raise NotMatchedError
            else:
                handle, index, value, own = write.inputs
                _outside(handle)
            if not self.is_counter(index) or own != CarriedValue(number) or value != self.h(states):
                raise NotMatchedError

    def _has_room(self, number: int) -> bool:
        """True if a list begins with as many elements as a limit says."""
        list_node = self.working.nodes[self.frame.variables[number].start[0]]
        if list_node.op != "TensorListReserve":
            return False
        size = list_node.in_edges[1]
        of_size = self.working.constant(size)
        return any(
            of_size is not None and of_size.shape == () and bool(limit.value == of_size)
            if isinstance(limit, ConstantValue)
            else limit.endpoint == size
            for limit in self.limits
        )

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
        entered = self.frame.readers
        taken = [*(endpoint for node in entered for endpoint in node.in_edges)]
        if not Reading(self.working).may_wait_for(entered, taken):
            raise NotMatchedError

    # The sequence

    def read(self, value: Any) -> None:
        """Match the row that the present step reads."""
        if not isinstance(value, Expression):
            raise NotMatchedError
        if value.op == "TensorArrayReadV3":
            handle, index, flow = value.inputs
            found = _filled(self.working, self.frame, _outside(handle), _outside(flow))
        elif value.op == "TensorListGetItem":
            given, index, shape = value.inputs
            found = self._list(_outside(given), shape)
        else:
            raise NotMatchedError
        if not self.is_counter(index) or self.sequence not in (None, found):
            raise NotMatchedError
        self.sequence = found

    def _list(self, endpoint: Endpoint, shape: Any) -> _Sequence:
        """A list of the rows of a tensor, as many as a limit says."""
        working = self.working
        node = working.nodes[endpoint[0]]
        if node.op != "TensorListFromTensor" or endpoint in working.fed or not isinstance(shape, ConstantValue):
            raise NotMatchedError
        rows, wanted = working.shape(node.in_edges[0]).dims, working.constant(node.in_edges[1])
        if rows is None or len(rows) != 3 or wanted is None:
            raise NotMatchedError
        if node.attrs["element_dtype"] is not dtypes.float32:
            raise NotMatchedError
        for asked in (wanted, shape.value):
            if asked.ndim > 1 or (asked.ndim == 0 and asked != -1):
                raise NotMatchedError
            dims = None if asked.ndim == 0 else [None if size < 0 else int(size) for size in asked]
            if not _is_within(rows[1:], dims):
                raise NotMatchedError
        for limit in self.limits:
            if isinstance(limit, ConstantValue):
                if rows[0] == limit.value:
                    return _Sequence(node.in_edges[0], limit, ())
            elif _is_number_of_rows(working, limit.endpoint, node.in_edges[0]):
                return _Sequence(node.in_edges[0], limit, ())
        raise NotMatchedError

    # The new nodes

    def _put(
        self, op: str, attrs: Mapping[str, Any], inputs: Sequence[Endpoint], states: Mapping[int, Expression]
    ) -> None:
        working, frame, sequence = self.working, self.frame, self.sequence
        assert sequence is not None
        like = frame.nodes[0]
        ends = [self._outside(limit, like) for limit in self.limits]
        count = ends[0]
        for other in ends[1:]:
            count = self._new(like, "/count", "Minimum", {"T": dtypes.int32}, (count, other))
        controls = [*frame.waits_for, *(i for node in sequence.nodes for i in node.control_edges)]
        attrs = {**attrs, "T": dtypes.float32, "keep_states": bool(self.written)}
        given = (count, self._outside(sequence.size, like), sequence.rows, *inputs)
        made, _ = self._new(like, f"/{op.strip('_')}", op, attrs, given, tuple(dict.fromkeys(controls)))
        working.nodes[made].derived_from = Derivation.of([*frame.nodes, *sequence.nodes])
        results = {number: (made, 2 + place) for place, number in enumerate(self._order(states))}
        results |= dict.fromkeys(self.counters, (made, 1))
        results |= self.unchanged
        for number, write in self.written.items():
            results[number] = self._written(like, write, number, (made, 0), (made, 2 + len(states)))
        frame.finish(results)
        for node in sequence.nodes:
            working.remove(node.id)

    def _order(self, states: Mapping[int, Expression]) -> list[int]:
        """The numbers of the states in the order of the outputs: c and h."""
        last = self.h(states)
        return sorted(states, key=lambda number: states[number] == last)

    def _written(self, like: Node, write: Expression, number: int, steps: Endpoint, states: Endpoint) -> Endpoint:
        """Write the states of all steps; return the flow, or the list."""
        start = self.frame.variables[number].start
        if write.op == "TensorListSetItem":
            attrs = {"element_dtype": dtypes.float32}
            return self._new(like, "/list", "TensorListScatterIntoExistingList", attrs, (start, states, steps))
        handle = _outside(write.inputs[0])
        return self._new(like, "/array", "TensorArrayScatterV3", {"T": dtypes.float32}, (handle, steps, states, start))

    def _new(
        self,
        like: Node,
        suffix: str,
        op: str,
        attrs: Mapping[str, Any],
        inputs: tuple[Endpoint, ...],
        controls: tuple[int, ...] = (),
    ) -> Endpoint:
        """Add a node; return its first output."""
        working = self.working
        op_def = op_registry.global_registry.lookup(op).op_def
        node_id, name = working.new_node(like, suffix)
        attrs = {**op_def.defaults, **attrs}
        made = Node(
            working, node_id, name, op_def, attrs, inputs=inputs, control_inputs=controls, device=like.device,
            site=like.site,
        )  # fmt: skip
        working.replace(made)
        return node_id, 0

    def _outside(self, value: Any, like: Node) -> Endpoint:
        """The endpoint of a value outside of the loop."""
        if isinstance(value, Outside):
            return value.endpoint
        attrs = {"dtype": dtypes.int32, "value": value.node.attrs["value"]}
        return self._new(like, "/limit", "Const", attrs, ())


def _filled(working: WorkingGraph, frame: Frame | FunctionLoop, handle: Endpoint, flow: Endpoint) -> _Sequence:
    """A TensorArray that was filled with the rows of a tensor, in their order, and that nobody else uses."""
    array, scatter = working.nodes[handle[0]], working.nodes[flow[0]]
    if array.op != "TensorArrayV3" or scatter.op != "TensorArrayScatterV3" or {handle, flow} & working.fed:
        raise NotMatchedError
    if scatter.in_edges[0] != handle or scatter.in_edges[3] != (array.id, 1):
        raise NotMatchedError
    entered = {node.id for node in frame.readers}
    if not frame.consumers_of(array.id) <= {scatter.id, *entered} or not frame.consumers_of(scatter.id) <= entered:
        raise NotMatchedError
    if not {array.id, scatter.id}.isdisjoint(working.pinned) or array.attrs["dtype"] is not dtypes.float32:
        raise NotMatchedError
    rows, wanted = working.shape(scatter.in_edges[2]).dims, array.attrs["element_shape"]
    if array.attrs["dynamic_size"] or rows is None or len(rows) != 3 or not _is_within(rows[1:], wanted.dims):
        raise NotMatchedError
    if not _are_all(working, scatter.in_edges[1], array.in_edges[0], scatter.in_edges[2]):
        raise NotMatchedError
    return _Sequence(scatter.in_edges[2], Outside(array.in_edges[0]), (array, scatter))


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
    return *_product(product), _outside(bias)


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
    c, h = (loop.frame.variables[number].start for number in (of_c, of_h))
    attrs = {"joined": True, "order": [at for _, at in parts], "forget_bias": bias}
    products = _two_products(parts[0][0], CarriedValue(of_h))
    if products is not None:
        row, w, u, of_gates = products
        loop.read(row)
        cells = _cells(loop, h, w, 4, joined=False)
        _check_shapes(loop.working, {u: (cells, 4 * cells)})
        attrs["joined"] = False
    else:
        operand, w, of_gates = _dense(parts[0][0])
        row, state = _joined(operand)
        if state != CarriedValue(of_h):
            raise NotMatchedError
        loop.read(row)
        cells, u = _cells(loop, h, w, 4), w
    _check_shapes(loop.working, {c: (None, cells), h: (None, cells), of_gates: (4 * cells,)})
    return "_LSTMLoop", attrs, [c, h, w, u, of_gates]


def _two_products(value: Any, h: CarriedValue) -> tuple[Any, Endpoint, Endpoint, Endpoint] | None:
    """The row, the weights of inputs and state, and the bias of `row @ w + h @ u + b`; None if it is not that."""
    if _op(value) != "BiasAdd" or _op(value.inputs[0]) not in ("Add", "AddV2"):
        return None
    both, bias = _one(value, "BiasAdd")
    if value.node.attrs["data_format"] != b"NHWC":
        raise NotMatchedError
    for one, other in permutations(both.inputs):
        (row, w), (state, u) = _product(one), _product(other)
        if state == h:
            return row, w, u, _outside(bias)
    raise NotMatchedError


def _product(value: Any) -> tuple[Any, Endpoint]:
    operand, weights = _one(value, "MatMul")
    if value.node.attrs["transpose_a"] or value.node.attrs["transpose_b"]:
        raise NotMatchedError
    return operand, _outside(weights)


def _cells(loop: _Recurrence, h: Endpoint, weights: Endpoint, gates: int, *, joined: bool = True) -> int:
    """The number of cells, from the shapes of the state and the weights, which must be known and agree."""
    assert loop.sequence is not None
    state, rows = (loop.working.shape(endpoint).dims for endpoint in (h, loop.sequence.rows))
    if state is None or len(state) != 2 or state[1] is None or rows is None or rows[2] is None:
        raise NotMatchedError
    _check_shapes(loop.working, {weights: (rows[2] + joined * state[1], gates * state[1])})
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
