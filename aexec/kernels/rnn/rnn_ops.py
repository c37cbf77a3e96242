"""Fused recurrent cells: an LSTM or GRU step in one kernel, a whole LSTM sequence in one kernel, and their gradients.

The gates of an LSTM are side by side in the columns of its weights, in the order i, c, f, o (`LSTMBlockCell`,
`BlockLSTM`) or i, f, c, o (`BlockLSTMV2`).  A sequence multiplies the inputs of all its steps with the weights at once;
only the product with the state is left to each step.  half is computed in float32 and rounded once at the end. The
formulas and names are those of core/kernels/rnn/lstm_ops.h and gru_ops.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, of_shapes
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way

__all__: list[str] = []

_LSTM_TYPES = (dtypes.float16, dtypes.float32)
_PEEPHOLES = ("wci", "wcf", "wco")
# Nanoseconds per multiply-add, per element of the state for the functions of the gates, and per step of a sequence for
# the interpreter.
_NS_PER_STEP, _NS_PER_CELL, _NS_PER_TIME = 0.04, 20.0, 15_000.0
# For memory: the bytes of a number in the type of the computation.
_WIDE = 4


def _sigmoid(xp: Any, x: Any, out: Any) -> None:
    xp.negative(x, out=out)
    xp.exp(out, out=out)
    out += 1
    xp.reciprocal(out, out=out)


def _check_shape(name: str, array: Any, wanted: Sequence[tuple[str, int]]) -> None:
    """Raise InvalidArgumentError unless the array has these dimensions, given as (name, size)."""
    if array.ndim != len(wanted):
        raise errors.InvalidArgumentError(f"{name} must be {len(wanted)}D, got shape {shape_text(array.shape)}")
    for axis, (what, size) in enumerate(wanted):
        if array.shape[axis] != size:
            raise errors.InvalidArgumentError(f"{name}.dims({axis}) != {what}: {array.shape[axis]} vs. {size}")


def _check_rank(name: str, array: Any, rank: int) -> None:
    if array.ndim != rank:
        raise errors.InvalidArgumentError(f"{name} must be {rank}D, got shape {shape_text(array.shape)}")


# -------------------------------------------------------------------- LSTM


class _Lstm:
    """One kind of LSTM: the order of its gates, its attrs, and the step forward and backward."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp = c.xp
        self.forget_bias = np.float32(c.attrs.get("forget_bias", 0.0))
        self.clip = np.float32(c.attrs.get("cell_clip", 0.0))
        self.peephole = c.attr("use_peephole")
        self.order = (0, 2, 1, 3) if c.op in ("BlockLSTMV2", "BlockLSTMGradV2") else (0, 1, 2, 3)
        self.result = c.output_types[0].np

    def check(self, x: Any, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any) -> None:
        """Raise InvalidArgumentError unless the arguments match; x is that of a step or a sequence."""
        _check_rank("cs_prev", cs_prev, 2)
        batch, cells = x.shape[-2], cs_prev.shape[1]
        state = [("batch_size", batch), ("cell_size", cells)]
        _check_shape("cs_prev", cs_prev, state)
        _check_shape("h_prev", h_prev, state)
        _check_shape("w", w, [("input_size + cell_size", x.shape[-1] + cells), ("cell_size * 4", cells * 4)])
        if self.peephole:
            for name, vector in zip(_PEEPHOLES, (wci, wcf, wco), strict=True):
                _check_shape(name, vector, [("cell_size", cells)])
        _check_shape("b", b, [("cell_size * 4", cells * 4)])

    def widen(self, *arrays: Any) -> list[Any]:
        """The arrays in the type of the computation."""
        return [a.astype(np.float32, copy=False) for a in arrays]

    def peepholes(self, *vectors: Any) -> Sequence[Any]:
        """The peepholes' weights in the type of the computation.

        They are unchanged if they are not used, since their shapes are not checked then.
        """
        return self.widen(*vectors) if self.peephole else vectors

    def gates(self, columns: Any) -> list[Any]:
        """The columns of i, c, f and o, in this order."""
        cells = columns.shape[1] // 4
        return [columns[:, at * cells : (at + 1) * cells] for at in self.order]

    def forward(self, columns: Any, cs_prev: Any, peepholes: Sequence[Any], rows: Sequence[Any]) -> None:
        """Write i, cs, f, o, ci, co and h of one step into `rows`.

        Args:
            columns: `[x, h] @ w + b`, [batch, 4 × cells]; written to.
        """
        xp = self.xp
        i, cs, f, o, ci, co, h = rows
        i_in, c_in, f_in, o_in = self.gates(columns)
        if self.forget_bias:
            f_in += self.forget_bias
        if self.peephole:
            i_in += cs_prev * peepholes[0]
            f_in += cs_prev * peepholes[1]
        _sigmoid(xp, i_in, i)
        _sigmoid(xp, f_in, f)
        xp.tanh(c_in, out=ci)
        xp.multiply(ci, i, out=cs)
        cs += xp.multiply(f, cs_prev, out=h)
        if self.clip > 0:
            xp.clip(cs, -self.clip, self.clip, out=cs)
        if self.peephole:
            o_in += xp.multiply(cs, peepholes[2], out=h)
        _sigmoid(xp, o_in, o)
        xp.tanh(cs, out=co)
        xp.multiply(o, co, out=h)

    def backward(
        self, cs_prev: Any, peepholes: Sequence[Any], values: Sequence[Any], cs_grad: Any, h_grad: Any
    ) -> tuple[Any, Any]:
        """Return (gradient of `columns`, gradient of cs_prev) of one step, from its outputs i, cs, f, o, ci, co."""
        i, _, f, o, ci, co = values
        columns = self.xp.empty((len(i), i.shape[1] * 4), i.dtype)
        di, dc, df, do = self.gates(columns)
        do[...] = o * (1 - o) * h_grad * co
        dcs = (1 - co * co) * h_grad * o + cs_grad
        if self.peephole:
            dcs += do * peepholes[2]
        dc[...] = (1 - ci * ci) * dcs * i
        df[...] = f * (1 - f) * dcs * cs_prev
        di[...] = i * (1 - i) * dcs * ci
        before = dcs * f
        if self.peephole:
            before += di * peepholes[0] + df * peepholes[1]
        return columns, before

    def peephole_gradients(self, columns: Any, cs_prev: Any, cs: Any) -> tuple[Any, Any, Any]:
        di, _, df, do = self.gates(columns)
        return (di * cs_prev).sum(axis=0), (df * cs_prev).sum(axis=0), (do * cs).sum(axis=0)

    def rounded(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(a.astype(self.result, copy=False) for a in arrays)


@of_shapes
def _lstm_cost(*inputs: Any) -> float:
    """Nanoseconds of a forward step or sequence; the weights are the only input with two large dimensions."""
    x, state, _, w, _, _, _, b = inputs[-8:]
    rows = 4 * state.size / max(1, b.size)
    work = rows * w.size * _NS_PER_STEP + state.size * _NS_PER_CELL
    return float(x.shape[0] * (work + _NS_PER_TIME) if x.ndim == 3 else work)


def _lstm_grad_cost(*inputs: Any) -> float:
    sequence = inputs[-1].ndim == 3
    return _lstm_cost(*inputs[sequence : 8 + sequence]) * (3 if sequence else 1)


# Scratch: the arrays in the type of the computation, if that is another one, and results of products; per cell, numbers
# for each element of the state (its four columns and their summands).


def _widened(arrays: Sequence[Any], outputs: int) -> int:
    """Bytes of these arrays, and of `outputs` numbers, if they are widened."""
    return 0 if arrays[0].itemsize == _WIDE else _WIDE * (sum([a.size for a in arrays]) + outputs)


def _cell_scratch(x: Any, cs_prev: Any, *rest: Any) -> int:
    state = cs_prev.size
    return int(_WIDE * (x.size + 6 * state) + _widened((x, cs_prev, *rest), 7 * state))


def _cell_grad_scratch(x: Any, cs_prev: Any, *rest: Any) -> int:
    state = cs_prev.size
    return int(_WIDE * 5 * state + _widened((cs_prev, *rest[2:5], *rest[6:]), 5 * state))


def _sequence_scratch(_: Any, x: Any, cs_prev: Any, *rest: Any) -> int:
    states = len(x) * cs_prev.size
    return int(_WIDE * (4 * states + 6 * cs_prev.size) + _widened((x, cs_prev, *rest), 7 * states))


def _sequence_grad_scratch(_: Any, x: Any, cs_prev: Any, *rest: Any) -> int:
    states = len(x) * cs_prev.size
    return int(_WIDE * (6 * states + x.size + 8 * cs_prev.size) + _widened((x, cs_prev, *rest), x.size + rest[1].size))


@kernel("LSTMBlockCell", T=_LSTM_TYPES, cost=_lstm_cost, scratch=_cell_scratch)
def lstm_block_cell(c: OpKernelConstruction) -> Compute:
    """One step: from x [batch, inputs] and the states [batch, cells], returns i, cs, f, o, ci, co, h."""
    xp, lstm = c.xp, _Lstm(c)

    def compute(x: Any, cs_prev: Any, h_prev: Any, w: Any, *rest: Any) -> Any:
        _check_rank("x", x, 2)
        lstm.check(x, cs_prev, h_prev, w, *rest)
        peepholes = lstm.peepholes(*rest[:3])
        x, cs_prev, h_prev, w, b = lstm.widen(x, cs_prev, h_prev, w, rest[3])
        columns = xp.matmul(xp.concatenate((x, h_prev), axis=1), w)
        columns += b
        rows = [xp.empty(cs_prev.shape, np.float32) for _ in range(7)]
        lstm.forward(columns, cs_prev, peepholes, rows)
        return lstm.rounded(*rows)

    return compute


@kernel("LSTMBlockCellGrad", T=_LSTM_TYPES, cost=_lstm_grad_cost, scratch=_cell_grad_scratch)
def lstm_block_cell_grad(c: OpKernelConstruction) -> Compute:
    """Return gradients for cs_prev, for the four gates before their functions, and for the peepholes."""
    xp, lstm = c.xp, _Lstm(c)
    names = ("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad")

    def compute(x: Any, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any, *outputs: Any) -> Any:
        _check_rank("x", x, 2)
        lstm.check(x, cs_prev, h_prev, w, wci, wcf, wco, b)
        state = [("batch_size", cs_prev.shape[0]), ("cell_size", cs_prev.shape[1])]
        for name, array in zip(names, outputs, strict=True):
            _check_shape(name, array, state)
        peepholes = lstm.peepholes(wci, wcf, wco)
        cs_prev, *values, cs_grad, h_grad = lstm.widen(cs_prev, *outputs)
        columns, before = lstm.backward(cs_prev, peepholes, values, cs_grad, h_grad)
        if lstm.peephole:
            return lstm.rounded(before, columns, *lstm.peephole_gradients(columns, cs_prev, values[1]))
        return (*lstm.rounded(before, columns), *[xp.zeros(p.shape, lstm.result) for p in peepholes])

    return compute


def _sequence_length(seq_len_max: Any, x: Any) -> int:
    """The number of steps to compute.  Raises InvalidArgumentError if the input has fewer."""
    if seq_len_max.ndim:
        raise errors.InvalidArgumentError(f"seq_len_max_tensor must be rank 0 but is rank {seq_len_max.ndim}.")
    _check_rank("x", x, 3)
    steps = int(seq_len_max)
    if not 0 <= steps <= len(x):
        raise errors.InvalidArgumentError(f"seq_len_max must be in [0, {len(x)}], got {steps}")
    return steps


def _product_of_inputs(xp: Any, x: Any, w: Any) -> Any:
    """The inputs of all steps times their part of the weights: [steps, batch, columns]."""
    return xp.matmul(x.reshape(-1, x.shape[2]), w[: x.shape[2]]).reshape(*x.shape[:2], w.shape[1])


def block_lstm(c: OpKernelConstruction) -> Compute:
    """A sequence: from x [time, batch, inputs], returns i, cs, f, o, ci, co, h; zero from step seq_len_max on."""
    xp, lstm = c.xp, _Lstm(c)

    def compute(seq_len_max: Any, x: Any, cs_prev: Any, h_prev: Any, w: Any, *rest: Any) -> Any:
        steps = _sequence_length(seq_len_max, x)
        lstm.check(x, cs_prev, h_prev, w, *rest)
        outputs = [xp.zeros((len(x), *cs_prev.shape), np.float32) for _ in range(7)]
        peepholes = lstm.peepholes(*rest[:3])
        x, cs_prev, h_prev, w, b = lstm.widen(x, cs_prev, h_prev, w, rest[3])
        of_inputs, of_state = _product_of_inputs(xp, x[:steps], w), w[x.shape[2] :]
        of_inputs += b
        cs, h = outputs[1], outputs[6]
        for t in giving_way(range(steps), _NS_PER_TIME):
            columns = of_inputs[t]
            columns += xp.matmul(h[t - 1] if t else h_prev, of_state)
            lstm.forward(columns, cs[t - 1] if t else cs_prev, peepholes, [a[t] for a in outputs])
        return lstm.rounded(*outputs)

    return compute


def block_lstm_grad(c: OpKernelConstruction) -> Compute:
    """Return gradients of a sequence for x, cs_prev, h_prev, w, the peepholes and b."""
    xp, lstm = c.xp, _Lstm(c)
    names = ("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")

    def compute(seq_len_max: Any, x: Any, cs_prev: Any, h_prev: Any, w: Any, *rest: Any) -> Any:
        steps = _sequence_length(seq_len_max, x)
        lstm.check(x, cs_prev, h_prev, w, *rest[:4])
        state = [("timelen", len(x)), ("batch_size", cs_prev.shape[0]), ("cell_size", cs_prev.shape[1])]
        for name, array in zip(names, rest[4:], strict=True):
            _check_shape(name, array, state)
        of_peepholes = lstm.peepholes(*rest[:3])
        x, cs_prev, h_prev, w = lstm.widen(x, cs_prev, h_prev, w)
        *values, h, cs_grad, h_grad = lstm.widen(*rest[4:])
        cs = values[1]
        of_state = w[x.shape[2] :].T
        columns = xp.zeros((*cs.shape[:2], w.shape[1]), np.float32)
        peepholes = [xp.zeros(p.shape, np.float32) for p in of_peepholes]
        dcs, dh = xp.zeros_like(cs_prev), xp.zeros_like(h_prev)
        for t in giving_way(range(steps - 1, -1, -1), 3 * _NS_PER_TIME):
            before = cs[t - 1] if t else cs_prev
            columns[t], dcs = lstm.backward(
                before, of_peepholes, [v[t] for v in values], cs_grad[t] + dcs, h_grad[t] + dh
            )
            dh = xp.matmul(columns[t], of_state)
            if lstm.peephole:
                for total, part in zip(peepholes, lstm.peephole_gradients(columns[t], before, cs[t]), strict=True):
                    total += part
        x_grad = xp.matmul(columns, w[: x.shape[2]].T)
        states = xp.concatenate((h_prev[None], h[:-1])) if len(h) else h
        flat = columns.reshape(-1, w.shape[1])
        w_grad = xp.matmul(xp.concatenate((x, states), axis=2).reshape(-1, len(w)).T, flat)
        return lstm.rounded(x_grad, dcs, dh, w_grad, *peepholes, flat.sum(axis=0))

    return compute


kernel("BlockLSTM", "BlockLSTMV2", T=_LSTM_TYPES, cost=_lstm_cost, scratch=_sequence_scratch)(block_lstm)
kernel("BlockLSTMGrad", "BlockLSTMGradV2", T=_LSTM_TYPES, cost=_lstm_grad_cost, scratch=_sequence_grad_scratch)(
    block_lstm_grad
)


# --------------------------------------------------------------------- GRU


def _check_gru(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> None:
    _check_rank("x", x, 2)
    _check_rank("h_prev", h_prev, 2)
    batch, cells = len(x), h_prev.shape[1]
    rows = ("input_size + cell_size", x.shape[1] + cells)
    _check_shape("h_prev", h_prev, [("batch_size", batch), ("cell_size", cells)])
    _check_shape("w_ru", w_ru, [rows, ("cell_size * 2", cells * 2)])
    _check_shape("w_c", w_c, [rows, ("cell_size", cells)])
    _check_shape("b_ru", b_ru, [("cell_size * 2", cells * 2)])
    _check_shape("b_c", b_c, [("cell_size", cells)])


@of_shapes
def _gru_cost(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any, *outputs: Any) -> float:
    rows = h_prev.size / max(1, b_c.size)
    return float(rows * (w_ru.size + w_c.size) * _NS_PER_STEP + h_prev.size * _NS_PER_CELL)


def _gru_scratch(x: Any, h_prev: Any, *_: Any) -> int:
    return int(_WIDE * (x.size + 4 * h_prev.size))


def _gru_grad_scratch(x: Any, h_prev: Any, *_: Any) -> int:
    return int(_WIDE * (2 * x.size + 6 * h_prev.size))


@kernel("GRUBlockCell", T=(dtypes.float32,), cost=_gru_cost, scratch=_gru_scratch)
def gru_block_cell(c: OpKernelConstruction) -> Compute:
    """One step: returns the gates r and u, the candidate c, and the new state `u * h_prev + (1 - u) * c`."""
    xp = c.xp

    def compute(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> Any:
        _check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
        joined = xp.concatenate((x, h_prev), axis=1)
        columns = xp.matmul(joined, w_ru)
        columns += b_ru
        inputs, cells = x.shape[1], h_prev.shape[1]
        r, u = xp.empty(h_prev.shape, x.dtype), xp.empty(h_prev.shape, x.dtype)
        _sigmoid(xp, columns[:, :cells], r)
        _sigmoid(xp, columns[:, cells:], u)
        joined[:, inputs:] *= r
        candidate = xp.matmul(joined, w_c)
        candidate += b_c
        xp.tanh(candidate, out=candidate)
        h = 1 - u
        h *= candidate
        h += u * h_prev
        return r, u, candidate, h

    return compute


@kernel("GRUBlockCellGrad", T=(dtypes.float32,), cost=_gru_cost, scratch=_gru_grad_scratch)
def gru_block_cell_grad(c: OpKernelConstruction) -> Compute:
    """Return gradients for x and h_prev, and for the candidate and both gates before their functions."""
    xp = c.xp

    def compute(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any, *outputs: Any) -> Any:
        _check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
        inputs, cells = x.shape[1], h_prev.shape[1]
        for name, array in zip(("r", "u", "c", "d_h"), outputs, strict=True):
            _check_shape(name, array, [("batch_size", len(x)), ("cell_size", cells)])
        r, u, candidate, d_h = outputs
        d_candidate = d_h * (1 - u) * (1 - candidate * candidate)
        through_candidate = xp.matmul(d_candidate, w_c.T)
        d_state = through_candidate[:, inputs:]
        d_gates = xp.empty((len(x), 2 * cells), x.dtype)
        d_gates[:, :cells] = d_state * h_prev * r * (1 - r)
        d_gates[:, cells:] = d_h * (h_prev - candidate) * u * (1 - u)
        through_gates = xp.matmul(d_gates, w_ru.T)
        d_x = through_candidate[:, :inputs] + through_gates[:, :inputs]
        d_h_prev = d_state * r + d_h * u + through_gates[:, inputs:]
        return d_x, d_h_prev, d_candidate, d_gates

    return compute
