"""Fake quantisation: TensorFlow's answers, what holds for every range, gradients, messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

F32 = np.float32
X = F32([-7, -1, -0.3, 0, 0.26, 1, 2.5, 9])
ARGS, VARS, CHANNELS = ("FakeQuantWithMinMax" + kind for kind in ("Args", "Vars", "VarsPerChannel"))


@pytest.mark.parametrize("op", ops_of("quantize.fake_quant_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(
    ("low", "high", "attrs", "want"),
    [
        (-2, 4, {}, [-2, -0.988235, -0.305882, 0, 0.258824, 1.01176, 2.49412, 4]),
        (-2, 4, {"narrow_range": True}, [-2.00787, -0.992126, -0.307087, 0, 0.259843, 0.992126, 2.50394, 3.99213]),
        (-2, 4, {"num_bits": 3}, [-1.71429, -0.857143, 0, 0, 0, 0.857143, 2.57143, 4.28571]),
        (1, 4, {"num_bits": 4}, [0, 0, 0, 0, 0.2, 1, 2.6, 3]),
        (-4, -2, {"num_bits": 4}, [-2, -1.06667, -0.266667, 0, 0, 0, 0, 0]),
    ],
)
def test_known_answers(low, high, attrs, want):
    for got in (
        run_op(ARGS, [X], min=float(low), max=float(high), **attrs),
        run_op(VARS, [X, F32(low), F32(high)], **attrs),
        run_op(CHANNELS, [X[:, None], F32([low]), F32([high])], **attrs)[:, 0],
    ):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_empty_range_gives_zero_and_passes_the_gradient():
    assert not run_op(VARS, [X, F32(0), F32(0)]).any()
    backprops, *rest = run_op(VARS + "Gradient", [X, X, F32(0), F32(0)])
    np.testing.assert_array_equal(backprops, X)
    assert [float(r) for r in rest] == [0, 0]
    both = np.stack([X, X], axis=1)
    got = run_op(CHANNELS, [both, F32([0, -2]), F32([0, 4])])
    assert not got[:, 0].any()
    np.testing.assert_array_equal(got[:, 1], run_op(VARS, [X, F32(-2), F32(4)]))


@given(
    low=st.floats(-100, 0, width=32),
    width=st.floats(0.5, 100, width=32),
    bits=st.integers(2, 16),
    narrow=st.booleans(),
)
def test_zero_is_exact_and_a_second_time_changes_nothing(low, width, bits, narrow):
    attrs = {"num_bits": bits, "narrow_range": narrow}
    limits = [F32(low), F32(low) + F32(width)]
    x = np.linspace(limits[0], limits[1], 33, dtype=np.float32)
    once = run_op(VARS, [np.append(x, F32(0)), *limits], **attrs)
    assert once[-1] == 0
    step = width / (2**bits - 1 - narrow)
    inside = (x >= once.min()) & (x <= once.max())
    assert np.abs(once[:-1] - x)[inside].max(initial=0) <= 0.5 * step + 2e-5 * (width - low)
    assert len(np.unique(once)) <= 2**bits
    np.testing.assert_allclose(run_op(VARS, [once, *limits], **attrs), once, atol=2e-5 * (width - low))


def test_gradient():
    grad = np.arange(1, 9, dtype=np.float32)
    want = [0, 2, 3, 4, 5, 6, 7, 0]
    assert run_op(ARGS + "Gradient", [grad, X], min=-2.0, max=4.0).tolist() == want
    got = run_op(VARS + "Gradient", [grad, X, F32(-2), F32(4)])
    assert [np.asarray(g).tolist() for g in got] == [want, 1, 8]
    two = np.stack([grad, grad], axis=1), np.stack([X, X], axis=1)
    got = run_op(CHANNELS + "Gradient", [*two, F32([-2, -0.5]), F32([4, 0.5])])
    assert got[0].T.tolist() == [want, [0, 0, 3, 4, 5, 0, 0, 0]]
    assert [g.tolist() for g in got[1:]] == [[1, 3], [8, 21]]
    one = run_op(CHANNELS + "Gradient", [grad[:2], X[:2], F32([-2, -0.5]), F32([4, 0.5])])
    assert [g.tolist() for g in one] == [[0, 0], [1, 2], [0, 0]]


SIX, FIVE = np.zeros(6, np.float32), np.zeros(5, np.float32)
Y = np.zeros((2, 6), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        (ARGS, [Y], {"min": 2.0, "max": 1.0}, "min has to be smaller than max, was: 2 >= 1"),
        (ARGS, [Y], {"num_bits": 1}, "num_bits must be between 2 and 16, inclusive"),
        (ARGS, [Y], {"num_bits": 17}, "num_bits must be between 2 and 16, inclusive"),
        (
            ARGS + "Gradient",
            [Y[:1], Y],
            {},
            f"Inputs to operation {ARGS}Gradient of type {ARGS}Gradient must have the same size and shape.  "
            "Input 0: [1,6] != input 1: [2,6]",
        ),
        (VARS, [Y, F32([1]), F32(2)], {}, "`min` must be rank 0 but is rank 1"),
        (VARS, [Y, F32(1), F32([2])], {}, "`max` must be rank 0 but is rank 1"),
        (VARS + "Gradient", [Y[:1], Y, F32(1), F32(2)], {}, "gradient and input must be the same size"),
        (CHANNELS, [Y, F32(1), F32(2)], {}, "`min` must be rank 1 but is rank 0"),
        (CHANNELS, [Y, FIVE, SIX], {}, "min has incorrect size, expected 6 was 5"),
        (CHANNELS, [F32(1), SIX, SIX], {}, "inputs must have a dimension for the channels, got a scalar"),
        (CHANNELS + "Gradient", [Y, Y, SIX, FIVE], {}, "max has incorrect size, expected 6 was 5"),
    ],
)
def test_refuses(op, inputs, attrs, message):
    assert_refuses(op, inputs, message, **attrs)
