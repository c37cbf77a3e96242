"""Recurrent cells against plain formulas in double precision; their gradients against differences of the forward op."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

BATCH, INPUTS, CELLS, STEPS = 2, 3, 4, 5
TYPES = [(np.float32, 2e-6), (np.float16, 2e-3)]


@pytest.mark.parametrize("op", ops_of("rnn.rnn_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(0, 0.7, shape)


def lstm_arguments(x=None):
    """x, cs_prev, h_prev, w, wci, wcf, wco, b."""
    return [
        numbers(BATCH, INPUTS) if x is None else x,
        numbers(BATCH, CELLS, seed=1),
        numbers(BATCH, CELLS, seed=2),
        numbers(INPUTS + CELLS, 4 * CELLS),
        *[numbers(CELLS, seed=s) for s in (3, 4, 5)],
        numbers(4 * CELLS),
    ]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_model(x, cs_prev, h_prev, w, wci, wcf, wco, b, *, order, peephole, clip, forget_bias):
    """i, cs, f, o, ci, co, h of one step."""
    columns = np.concatenate([x, h_prev], axis=1) @ w + b
    gates = dict(zip(order, np.split(columns, 4, axis=1), strict=True))
    i = sigmoid(gates["i"] + peephole * cs_prev * wci)
    f = sigmoid(gates["f"] + forget_bias + peephole * cs_prev * wcf)
    ci = np.tanh(gates["c"])
    cs = ci * i + f * cs_prev
    if clip > 0:
        cs = cs.clip(-clip, clip)
    o = sigmoid(gates["o"] + peephole * cs * wco)
    return i, cs, f, o, ci, np.tanh(cs), o * np.tanh(cs)


def cast(arrays, dtype):
    return [np.asarray(a, dtype) for a in arrays]


def assert_all_close(got, want, tolerance, dtype=np.float32):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == dtype
        assert g.shape == w.shape
        np.testing.assert_allclose(g.astype(np.float64), w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize(("clip", "forget_bias"), [(0.0, 1.0), (0.25, 0.0), (-1.0, 0.5)])
def test_lstm_cell(dtype, tolerance, peephole, clip, forget_bias):
    arguments = cast(lstm_arguments(), dtype)
    got = run_op("LSTMBlockCell", arguments, use_peephole=peephole, cell_clip=clip, forget_bias=forget_bias)
    model = {"peephole": peephole, "clip": clip, "forget_bias": forget_bias}
    assert_all_close(got, lstm_model(*cast(arguments, np.float64), order="icfo", **model), tolerance, dtype)


def test_large_inputs_saturate():
    arguments = cast(lstm_arguments(), np.float32)
    arguments[0] = np.float32(np.where(numbers(BATCH, INPUTS) > 0, 1e4, -1e4))
    i, cs, f, o, ci, co, h = run_op("LSTMBlockCell", arguments)
    assert all(np.isfinite(a).all() for a in (cs, co, h))
    assert set(np.unique(np.concatenate([i, f, o]))) <= {0, 1}
    assert set(np.unique(ci)) <= {-1, 1}


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("op", "order", "forget_bias"), [("BlockLSTM", "icfo", 1.0), ("BlockLSTMV2", "ifco", 0.0)])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_sequence(dtype, tolerance, op, order, forget_bias, peephole):
    arguments = cast(lstm_arguments(numbers(STEPS, BATCH, INPUTS)), dtype)
    length = STEPS - 1
    got = run_op(op, [np.int64(length), *arguments], use_peephole=peephole, cell_clip=0.5)
    x, cs, h, *rest = cast(arguments, np.float64)
    want = [np.zeros((STEPS, BATCH, CELLS)) for _ in range(7)]
    for t in range(length):
        model = {"order": order, "peephole": peephole, "clip": 0.5, "forget_bias": forget_bias}
        step = lstm_model(x[t], cs, h, *rest, **model)
        for output, value in zip(want, step, strict=True):
            output[t] = value
        cs, h = step[1], step[6]
    assert_all_close(got, want, tolerance, dtype)


def test_sequence_of_no_steps():
    arguments = cast(lstm_arguments(numbers(STEPS, BATCH, INPUTS)), np.float32)
    assert not any(a.any() for a in run_op("BlockLSTM", [np.int64(0), *arguments]))
    arguments[0] = arguments[0][:0]
    assert all(a.shape == (0, BATCH, CELLS) for a in run_op("BlockLSTM", [np.int64(0), *arguments]))


def slope(function, arrays, index, step=1e-2):
    """Gradient of a scalar function for one of its arrays, by central differences."""
    out = np.zeros(arrays[index].shape)
    for at in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[index][at] += sign * step
            ends.append(function(moved))
        out[at] = (ends[0] - ends[1]) / (2 * step)
    return out


def lstm_loss(op_order, peephole, forget_bias, cs_grad, h_grad, length):
    """The function whose gradients BlockLSTMGrad gives, in double precision."""

    def loss(arrays):
        x, cs, h, *rest = arrays
        total = 0.0
        for t in range(length):
            step = lstm_model(x[t], cs, h, *rest, order=op_order, peephole=peephole, clip=0, forget_bias=forget_bias)
            cs, h = step[1], step[6]
            total += float((cs * cs_grad[t]).sum() + (h * h_grad[t]).sum())
        return total

    return loss


@pytest.mark.parametrize(("op", "order", "bias"), [("BlockLSTM", "icfo", 1.0), ("BlockLSTMV2", "ifco", 0.0)])
@pytest.mark.parametrize("peephole", [False, True])
def test_gradients_of_a_sequence(op, order, bias, peephole):
    length = STEPS - 2
    arguments = lstm_arguments(numbers(STEPS, BATCH, INPUTS))
    inputs = [np.int64(length), *cast(arguments, np.float32)]
    outputs = run_op(op, inputs, use_peephole=peephole, cell_clip=0.0)
    cs_grad, h_grad = numbers(STEPS, BATCH, CELLS, seed=6), numbers(STEPS, BATCH, CELLS, seed=7)
    name = "BlockLSTMGradV2" if op.endswith("V2") else "BlockLSTMGrad"
    got = run_op(name, [*inputs, *outputs, *cast([cs_grad, h_grad], np.float32)], use_peephole=peephole)
    loss = lstm_loss(order, peephole, bias, cs_grad, h_grad, length)
    want = [slope(loss, arguments, i, 1e-4) for i in range(8)]
    assert_all_close(got, want, 2e-5)


@pytest.mark.parametrize("peephole", [False, True])
def test_gradients_of_a_cell_are_those_of_a_sequence_of_one(peephole):
    arguments = cast(lstm_arguments(), np.float32)
    values = run_op("LSTMBlockCell", arguments, use_peephole=peephole, cell_clip=0.0)
    grads = cast([numbers(BATCH, CELLS, seed=6), numbers(BATCH, CELLS, seed=7)], np.float32)
    cell = run_op("LSTMBlockCellGrad", [*arguments, *values[:6], *grads], use_peephole=peephole)
    sequence = [np.int64(1), arguments[0][None], *arguments[1:], *[v[None] for v in (*values, *grads)]]
    x_grad, cs, _, _, wci, wcf, wco, b = run_op("BlockLSTMGrad", sequence, use_peephole=peephole)
    before, columns, *peepholes = cell
    assert_all_close([before, columns.sum(axis=0), *peepholes], [cs, b, wci, wcf, wco], 1e-6)
    np.testing.assert_allclose(columns @ arguments[3][:INPUTS].T, x_grad[0], rtol=1e-5, atol=1e-6)


def gru_arguments():
    return [
        numbers(BATCH, INPUTS),
        numbers(BATCH, CELLS, seed=1),
        numbers(INPUTS + CELLS, 2 * CELLS),
        numbers(INPUTS + CELLS, CELLS),
        numbers(2 * CELLS),
        numbers(CELLS),
    ]


def gru_model(x, h_prev, w_ru, w_c, b_ru, b_c):
    r, u = np.split(sigmoid(np.concatenate([x, h_prev], axis=1) @ w_ru + b_ru), 2, axis=1)
    c = np.tanh(np.concatenate([x, h_prev * r], axis=1) @ w_c + b_c)
    return r, u, c, u * h_prev + (1 - u) * c


def test_gru_cell_and_its_gradients():
    arguments = gru_arguments()
    inputs = cast(arguments, np.float32)
    r, u, c, h = run_op("GRUBlockCell", inputs)
    assert_all_close((r, u, c, h), gru_model(*arguments), 2e-6)
    d_h = numbers(BATCH, CELLS, seed=2)
    d_x, d_h_prev, d_c, d_ru = run_op("GRUBlockCellGrad", [*inputs, r, u, c, np.float32(d_h)])
    x_r = np.concatenate([inputs[0], inputs[1] * r], axis=1)
    x_h = np.concatenate(inputs[:2], axis=1)
    got = [d_x, d_h_prev, x_h.T @ d_ru, x_r.T @ d_c, d_ru.sum(axis=0), d_c.sum(axis=0)]
    want = [slope(lambda a: float((gru_model(*a)[3] * d_h).sum()), arguments, i, 1e-4) for i in range(6)]
    assert_all_close(got, want, 1e-5)


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (0, (2,), "x must be 2D, got shape [2]"),
        (1, (3, 4), "cs_prev.dims(0) != batch_size: 3 vs. 2"),
        (2, (2, 5), "h_prev.dims(1) != cell_size: 5 vs. 4"),
        (3, (6, 16), "w.dims(0) != input_size + cell_size: 6 vs. 7"),
        (3, (7, 15), "w.dims(1) != cell_size * 4: 15 vs. 16"),
        (5, (5,), "wcf.dims(0) != cell_size: 5 vs. 4"),
        (7, (1, 16), "b must be 1D, got shape [1,16]"),
    ],
)
def test_lstm_refuses(index, shape, message):
    arguments = cast(lstm_arguments(), np.float32)
    arguments[index] = np.zeros(shape, np.float32)
    assert_refuses("LSTMBlockCell", arguments, message, use_peephole=True)


def test_unused_peepholes_may_have_any_shape():
    arguments = cast(lstm_arguments(), np.float32)
    want = run_op("LSTMBlockCell", arguments)
    arguments[4:7] = [np.zeros(1, np.float32)] * 3
    for got, value in zip(run_op("LSTMBlockCell", arguments), want, strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (-1, "seq_len_max must be in [0, 5], got -1"),
        (6, "seq_len_max must be in [0, 5], got 6"),
        ([1], "seq_len_max_tensor must be rank 0 but is rank 1."),
    ],
)
def test_sequence_refuses_lengths(length, message):
    arguments = cast(lstm_arguments(numbers(STEPS, BATCH, INPUTS)), np.float32)
    assert_refuses("BlockLSTM", [np.int64(length), *arguments], message)


def test_gradients_refuse_outputs_of_another_shape():
    arguments = cast(lstm_arguments(), np.float32)
    good, bad = np.zeros((BATCH, CELLS), np.float32), np.zeros((BATCH, 3), np.float32)
    inputs = [*arguments, good, good, bad, *[good] * 5]
    assert_refuses("LSTMBlockCellGrad", inputs, "f.dims(1) != cell_size: 3 vs. 4", use_peephole=True)
    inputs = [*cast(gru_arguments(), np.float32), good, good, good, bad]
    assert_refuses("GRUBlockCellGrad", inputs, "d_h.dims(1) != cell_size: 3 vs. 4")


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (1, (3, 4), "h_prev.dims(0) != batch_size: 3 vs. 2"),
        (2, (7, 7), "w_ru.dims(1) != cell_size * 2: 7 vs. 8"),
        (3, (6, 4), "w_c.dims(0) != input_size + cell_size: 6 vs. 7"),
        (4, (7,), "b_ru.dims(0) != cell_size * 2: 7 vs. 8"),
        (5, (), "b_c must be 1D, got shape []"),
    ],
)
def test_gru_refuses(index, shape, message):
    arguments = cast(gru_arguments(), np.float32)
    arguments[index] = np.zeros(shape, np.float32)
    assert_refuses("GRUBlockCell", arguments, message)
