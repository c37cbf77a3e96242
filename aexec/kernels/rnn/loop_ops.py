"""Whole loops of LSTM or GRU cells in one kernel; the pass `recurrent_loops` puts it in place of a while loop.

The inputs of many steps are multiplied with their part of the weights at once; the product with the state is left to
each step.  With `aexec.native` one call makes several steps, as many as take less than a slice.  Between two calls
others get the interpreter's lock, and a call that is no longer wanted ends.
Next to read: `aexec/graph/passes/recurrent_loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from aexec import native
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, of_shapes
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way

__all__: list[str] = []

# Nanoseconds per multiply-add, per element of the state for the functions of the gates, and per step: in a loop in C,
# or with a call of BLAS and some of NumPy.
_NS_PER_PRODUCT, _NS_PER_CELL, _NS_PER_STEP, _NS_PER_NUMPY_STEP = 0.08, 10.0, 100.0, 15_000.0
# Approximate nanoseconds of a piece of the sequence, and elements of its part of the gates.
_PIECE_NS, _PIECE_SIZE = 500_000.0, 1 << 17
# Larger products of state and weights BLAS computes faster, on several threads, than the loops in C.
_MOST_PRODUCT = 1 << 22
_SINGLE = 4


class _Steps(NamedTuple):
    """What is asked for: `steps` steps over x [size, batch, inputs], from the state h [batch, cells]."""

    steps: int
    x: Any
    batch: int
    cells: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.batch, self.cells

    def pieces(self, weights: int) -> Iterator[slice]:
        """Consecutive steps that are computed together, for state weights of this size."""
        of_step = self.batch * (weights * _NS_PER_PRODUCT + self.cells * _NS_PER_CELL) + 1
        most = int(min(_PIECE_NS / of_step, _PIECE_SIZE / (4 * self.batch * self.cells + 1))) or 1
        for start in giving_way(range(0, self.steps, most), most * of_step):
            yield slice(start, min(start + most, self.steps))

    def are_few(self, weights: int) -> bool:
        """True if the loops in C should multiply the state with weights of this size."""
        return self.batch * weights <= _MOST_PRODUCT


def _steps(count: Any, size: Any, x: Any, h: Any) -> _Steps:
    """Check the inputs that all loops have."""
    if np.ndim(count) or np.ndim(size):
        raise errors.InvalidArgumentError("count and size must be scalars")
    if x.ndim != 3 or h.ndim != 2 or x.shape[1] != len(h):
        raise errors.InvalidArgumentError(
            f"x must be [time, batch, inputs] and h [batch, cells], got {shape_text(x.shape)} and {shape_text(h.shape)}"
        )
    if len(x) != size:
        raise errors.InvalidArgumentError(
            f"Expected len(indices) == values.shape[0], but saw: {int(size)} vs. {len(x)}"
        )
    if count > len(x):
        raise errors.InvalidArgumentError(f"Tried to read from index {len(x)} but array size is: {len(x)}")
    return _Steps(max(0, int(count)), x, *h.shape)


def _check(name: str, array: Any, *wanted: int) -> None:
    if array.shape != wanted:
        raise errors.InvalidArgumentError(f"{name} must have shape {shape_text(wanted)}, got {shape_text(array.shape)}")


def _product(x: Any, w: Any, b: Any) -> Any:
    """The inputs of some steps times their part of the weights, plus the bias: [steps, batch, columns]."""
    columns = np.matmul(x.reshape(x.shape[0] * x.shape[1], x.shape[2]), w)
    columns += b
    return columns.reshape(*x.shape[:2], w.shape[1])


def _sigmoid(x: Any) -> Any:
    """The logistic function, as a new array: NumPy 2.4 negates some arrays with strides wrongly in place."""
    made = np.negative(x)
    np.exp(made, out=made)
    made += 1
    return np.reciprocal(made, out=made)


def _kept(keep: bool, steps: _Steps) -> Any:
    """The array of all states, which is empty if they are not kept."""
    return np.empty((steps.steps if keep else 0, *steps.shape), np.float32)


def _numbers(steps: _Steps) -> tuple[Any, Any]:
    return np.arange(steps.steps, dtype=np.int32), np.int32(steps.steps)


def _step_ns(product: float) -> float:
    return _NS_PER_STEP if product <= _MOST_PRODUCT and native.loops is not None else _NS_PER_NUMPY_STEP


# -------------------------------------------------------------------- LSTM


@of_shapes
def _lstm_cost(count: Any, size: Any, x: Any, c: Any, h: Any, w: Any, u: Any, b: Any) -> float:
    rows = h.size / max(1, h.shape[-1])
    products = w.size if u.shape == w.shape else w.size + u.size
    return float(len(x) * (rows * products * _NS_PER_PRODUCT + h.size * _NS_PER_CELL + _step_ns(rows * w.size)))


def _lstm_scratch(count: Any, size: Any, x: Any, c: Any, h: Any, *_: Any) -> int:
    return int(_SINGLE * (min(8 * h.size * len(x), 2 * _PIECE_SIZE + 8 * h.size) + 8 * h.size))


@kernel("_LSTMLoop", T=(dtypes.float32,), cost=_lstm_cost, scratch=_lstm_scratch)
def lstm_loop(c: OpKernelConstruction) -> Compute:
    """Return the numbers of the steps, how many there were, the last states c and h, and the states h of all steps.

    The gates' columns are in any order, which `order` gives for i, j (the candidate), f and o.  With `joined` the
    weights of inputs and state are the rows of `w`, and `u` is not used.
    """
    joined, keep, forget_bias = c.attr("joined"), c.attr("keep_states"), float(c.attr("forget_bias"))
    order = tuple(c.attr("order"))
    if sorted(order) != [0, 1, 2, 3]:
        raise errors.InvalidArgumentError(f"order must have each of 0 to 3 once, got {list(order)}")

    def compute(count: Any, size: Any, x: Any, c: Any, h: Any, w: Any, u: Any, b: Any) -> Any:
        steps = _steps(count, size, x, h)
        inputs, cells = x.shape[2], steps.cells
        _check("w", w, inputs + cells if joined else inputs, 4 * cells)
        if joined:
            w, u = w[:inputs], w[inputs:]
        _check("u", u, cells, 4 * cells)
        _check("b", b, 4 * cells)
        if c.shape != (1, cells):
            _check("c", c, *h.shape)
        states = _kept(keep, steps)
        if not steps.steps:
            return (*_numbers(steps), c, h, states)
        c, h = np.array(np.broadcast_to(c, h.shape), order="C"), np.array(h, order="C")
        for piece in steps.pieces(u.size):
            _lstm_piece(_product(x[piece], w, b), u, c, h, states[piece] if keep else None, forget_bias, order)
        return (*_numbers(steps), c, h, states)

    def _lstm_piece(columns: Any, u: Any, c: Any, h: Any, states: Any, bias: float, order: Any) -> None:
        loops, shape = native.loops, _Steps(len(columns), None, *h.shape)
        scratch = np.empty(4 * h.size, np.float32)
        if loops is not None and shape.are_few(u.size) and native.are_single(u):
            loops.lstm(columns, u, c, h, states, scratch, len(columns), *h.shape, bias, order)
            return
        for t, gates in enumerate(columns):
            gates += np.matmul(h, u)
            if loops is not None:
                loops.lstm(gates, None, c, h, None, scratch, 1, *h.shape, bias, order)
            else:
                _lstm_step(gates, c, h, bias, order)
            if states is not None:
                states[t] = h

    return compute


def _lstm_step(gates: Any, c: Any, h: Any, forget_bias: float, order: tuple[int, ...]) -> None:
    """One step with NumPy, in place of c and h."""
    cells = c.shape[1]
    i, j, f, o = (gates[:, at * cells : (at + 1) * cells] for at in order)
    f += np.float32(forget_bias)
    c *= _sigmoid(f)
    c += np.multiply(_sigmoid(i), np.tanh(j, out=j), out=h)
    np.multiply(_sigmoid(o), np.tanh(c, out=h), out=h)


# --------------------------------------------------------------------- GRU


@of_shapes
def _gru_cost(count: Any, size: Any, x: Any, h: Any, w_ru: Any, b_ru: Any, w_c: Any, b_c: Any) -> float:
    rows = h.size / max(1, h.shape[-1])
    products = rows * (w_ru.size + w_c.size) * _NS_PER_PRODUCT
    return float(len(x) * (products + h.size * _NS_PER_CELL + _step_ns(rows * w_ru.size)))


def _gru_scratch(count: Any, size: Any, x: Any, h: Any, *_: Any) -> int:
    return int(_SINGLE * (min(3 * h.size * len(x), _PIECE_SIZE + 3 * h.size) + 12 * h.size))


@kernel("_GRULoop", T=(dtypes.float32,), cost=_gru_cost, scratch=_gru_scratch)
def gru_loop(c: OpKernelConstruction) -> Compute:
    """Return the numbers of the steps, how many there were, the last state, and the states of all steps.

    A step's state is `u * h + (1 - u) * candidate`, where r and u are the columns of `w_ru`, and the candidate is made
    from `[x, r * h]`.
    """
    keep = c.attr("keep_states")

    def compute(count: Any, size: Any, x: Any, h: Any, w_ru: Any, b_ru: Any, w_c: Any, b_c: Any) -> Any:
        steps = _steps(count, size, x, h)
        inputs, cells = x.shape[2], steps.cells
        _check("w_ru", w_ru, inputs + cells, 2 * cells)
        _check("w_c", w_c, inputs + cells, cells)
        _check("b_ru", b_ru, 2 * cells)
        _check("b_c", b_c, cells)
        states = _kept(keep, steps)
        if not steps.steps:
            return (*_numbers(steps), h, states)
        h = np.array(h, order="C")
        of_gates, of_candidate = w_ru[inputs:], w_c[inputs:]
        loops, scratch = native.loops, np.empty(4 * h.size, np.float32)
        for piece in steps.pieces(of_gates.size + of_candidate.size):
            gates, made = _product(x[piece], w_ru[:inputs], b_ru), _product(x[piece], w_c[:inputs], b_c)
            into = states[piece] if keep else None
            if loops is not None and steps.are_few(of_gates.size) and native.are_single(of_gates, of_candidate):
                loops.gru(gates, made, of_gates, of_candidate, h, into, scratch, len(gates), *steps.shape)
                continue
            for t, columns in enumerate(zip(gates, made, strict=True)):
                _gru_step(*columns, of_gates, of_candidate, h)
                if into is not None:
                    into[t] = h
        return (*_numbers(steps), h, states)

    return compute


def _gru_step(gates: Any, candidate: Any, of_gates: Any, of_candidate: Any, h: Any) -> None:
    """One step with NumPy, in place of h."""
    gates += np.matmul(h, of_gates)
    gates = _sigmoid(gates)
    cells = h.shape[1]
    candidate += np.matmul(gates[:, :cells] * h, of_candidate)
    np.tanh(candidate, out=candidate)
    h -= candidate
    h *= gates[:, cells:]
    h += candidate
