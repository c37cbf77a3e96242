"""Whole recurrent loops as kernels: their results step by step, with loops in C and without, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import run_op
from tests.native.test_loops import assert_both_agree, needs_loops, random

COUNT, SIZE = np.int32(5), np.int32(7)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm_inputs(batch: int = 3, inputs: int = 2, cells: int = 4, *, joined: bool = False, seed: int = 0) -> list[Any]:
    x, c, h = random(seed, SIZE, batch, inputs), random(seed + 1, batch, cells), random(seed + 2, batch, cells)
    w, u = random(seed + 3, inputs + (cells if joined else 0), 4 * cells) / 2, random(seed + 4, cells, 4 * cells) / 2
    return [COUNT, SIZE, x, c, h, w, w if joined else u, random(seed + 5, 4 * cells)]


def gru_inputs(batch: int = 3, inputs: int = 2, cells: int = 4, seed: int = 0) -> list[Any]:
    rows = inputs + cells
    return [COUNT, SIZE, random(seed, SIZE, batch, inputs), random(seed + 1, batch, cells),
            random(seed + 2, rows, 2 * cells) / 2, random(seed + 3, 2 * cells), random(seed + 4, rows, cells) / 2,
            random(seed + 5, cells)]  # fmt: skip


def plain_lstm(inputs: list[Any], joined: bool, order: list[int], forget_bias: float) -> tuple[Any, Any, Any]:
    count, _, x, c, h, w, u, b = (np.asarray(value, np.float64) for value in inputs)
    weights = w if joined else np.concatenate([w, u])
    states = []
    for row in x[: int(count)]:
        gates = np.split(np.concatenate([row, h], 1) @ weights + b, 4, 1)
        i, j, f, o = (gates[at] for at in order)
        c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return c, h, np.array(states)


@pytest.mark.parametrize("cells", [1, 4, 16, 37, 130])
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("joined", [True, False])
def test_lstm_is_that_of_its_formulas(cells: int, batch: int, joined: bool) -> None:
    inputs, order = lstm_inputs(batch, 3, cells, joined=joined), [1, 3, 0, 2]
    attrs = {"joined": joined, "order": order, "forget_bias": 0.5, "keep_states": True}
    steps, taken, *got = run_op("_LSTMLoop", inputs, **attrs)
    np.testing.assert_array_equal(steps, np.arange(COUNT))
    assert taken == COUNT
    for one, other in zip(got, plain_lstm(inputs, joined, order, 0.5), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cells", [1, 4, 16, 37, 130])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_gru_is_that_of_its_formulas(cells: int, batch: int) -> None:
    inputs = gru_inputs(batch, 3, cells)
    _, _, x, h, w_ru, b_ru, w_c, b_c = (np.asarray(value, np.float64) for value in inputs)
    states = []
    for row in x[:COUNT]:
        r, u = np.split(sigmoid(np.concatenate([row, h], 1) @ w_ru + b_ru), 2, 1)
        candidate = np.tanh(np.concatenate([row, r * h], 1) @ w_c + b_c)
        h = u * h + (1 - u) * candidate
        states.append(h)
    steps, taken, last, kept = run_op("_GRULoop", inputs, keep_states=True)
    assert taken == COUNT and len(steps) == COUNT
    np.testing.assert_allclose(last, h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kept, np.array(states), rtol=1e-4, atol=1e-5)


@needs_loops
@given(st.integers(0, 2**32 - 9), st.integers(0, 6), st.integers(0, 5), st.integers(0, 70), st.booleans())
def test_loops_in_c_give_what_numpy_gives(seed: int, batch: int, inputs: int, cells: int, keep: bool) -> None:
    attrs = {"joined": True, "order": [0, 1, 2, 3], "forget_bias": 1.0, "keep_states": keep}
    assert_both_agree("_LSTMLoop", lstm_inputs(batch, inputs, cells, joined=True, seed=seed), **attrs)
    assert_both_agree("_GRULoop", gru_inputs(batch, inputs, cells, seed=seed), keep_states=keep)


@needs_loops
@pytest.mark.parametrize("extreme", [100.0, -100.0, 1e30, np.inf, -np.inf, np.nan])
def test_gates_saturate_as_those_of_numpy(extreme: float) -> None:
    inputs = lstm_inputs(2, 1, 17)
    inputs[7][::3] = extreme
    with np.errstate(all="ignore"):
        assert_both_agree("_LSTMLoop", inputs, joined=False, order=[0, 1, 2, 3], keep_states=True)


@pytest.mark.parametrize("count", [0, -2])
def test_loop_without_a_step_gives_its_states(count: int) -> None:
    inputs = lstm_inputs()
    inputs[0] = np.int32(count)
    steps, taken, c, h, states = run_op("_LSTMLoop", inputs, joined=False, order=[0, 1, 2, 3], keep_states=True)
    np.testing.assert_array_equal(c, inputs[3])
    np.testing.assert_array_equal(h, inputs[4])
    assert taken == 0 and not steps.size and states.shape == (0, 3, 4)


def test_state_c_of_one_row_is_that_of_all() -> None:
    inputs = lstm_inputs()
    whole = [*inputs]
    inputs[3] = inputs[3][:1]
    whole[3] = np.repeat(inputs[3], 3, 0)
    attrs = {"joined": False, "order": [0, 1, 2, 3], "keep_states": False}
    for one, other in zip(run_op("_LSTMLoop", inputs, **attrs), run_op("_LSTMLoop", whole, **attrs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.int32(8), "Tried to read from index 7 but array size is: 7"),
        (0, np.int32([3]), "count and size must be scalars"),
        (1, np.int32(6), "Expected len(indices) == values.shape[0], but saw: 6 vs. 7"),
        (2, random(0, 7, 3), "x must be [time, batch, inputs] and h [batch, cells], got [7,3] and [3,4]"),
        (2, random(0, 7, 2, 2), "x must be [time, batch, inputs] and h [batch, cells], got [7,2,2] and [3,4]"),
        (3, random(0, 2, 4), "c must have shape [3,4], got [2,4]"),
        (5, random(0, 3, 16), "w must have shape [2,16], got [3,16]"),
        (6, random(0, 4, 15), "u must have shape [4,16], got [4,15]"),
        (7, random(0, 15), "b must have shape [16], got [15]"),
    ],
)
def test_lstm_refuses_shapes_that_do_not_match(place: int, value: Any, message: str) -> None:
    inputs = lstm_inputs()
    inputs[place] = value
    assert_refuses("_LSTMLoop", inputs, message, joined=False, order=[0, 1, 2, 3], keep_states=False)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (4, "w_ru must have shape [6,8], got [6,8,2]"),
        (5, "b_ru must have shape [8], got [8,2]"),
        (6, "w_c must have shape [6,4], got [6,4,2]"),
        (7, "b_c must have shape [4], got [4,2]"),
    ],
)
def test_gru_refuses_shapes_that_do_not_match(place: int, message: str) -> None:
    inputs = gru_inputs()
    inputs[place] = random(0, *inputs[place].shape, 2)
    assert_refuses("_GRULoop", inputs, message, keep_states=False)


def test_order_of_gates_must_have_each_once() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="order must have each of 0 to 3 once"):
        run_op("_LSTMLoop", lstm_inputs(), joined=False, order=[0, 1, 1, 3], keep_states=False)
