"""Isotonic regression against pooling of adjacent violators, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import dtypes
from tests.kernels.harness import in_tensorflow, registered, run_op

INF, NAN = np.inf, np.nan


def test_types_are_tensorflows():
    assert registered("IsotonicRegression") == in_tensorflow("IsotonicRegression")


def pooled(row):
    """(fitted values, segments): neighbours are pooled while the later mean is the larger one."""
    pools = []
    for value in row:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] < pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1] = pools[-1][0] + total, pools[-1][1] + count
    values = [total / count for total, count in pools for _ in range(count)]
    return values, [i for i, (_, count) in enumerate(pools) for _ in range(count)]


@settings(deadline=None)  # the first call imports SciPy
@given(rows=st.integers(0, 3), row=st.lists(st.integers(-4, 4), max_size=12), data=st.data())
def test_against_pools(rows, row, data):
    x = np.array([data.draw(st.permutations(row)) for _ in range(rows)], np.int32).reshape(rows, len(row))
    values, segments = run_op("IsotonicRegression", [x], output_dtype=dtypes.float64)
    assert segments.dtype == np.int32
    assert values.shape == segments.shape == x.shape
    for i in range(rows):
        want, numbers = pooled(x[i])
        np.testing.assert_allclose(values[i], want)
        assert segments[i].tolist() == numbers


@pytest.mark.parametrize(
    ("row", "values", "segments"),
    [
        ([1, 1, 1, 2, 2, 0, 0, 3], [1.4] * 5 + [1] * 3, [0] * 5 + [1] * 3),
        ([3, 2, 2, 1], [3, 2, 2, 1], [0, 1, 2, 3]),
        ([1, NAN, 2, 0], [1, NAN, 2, 0], [0, 1, 2, 3]),
        ([1, INF, 2, 0], [INF, INF, 2, 0], [0, 0, 1, 2]),
    ],
)
def test_known_answers(row, values, segments):
    got, numbers = run_op("IsotonicRegression", [np.float32(row)])
    np.testing.assert_array_equal(got, np.float32(values))
    assert numbers.tolist() == segments


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_narrow_types_and_scalars(dtype):
    values, segments = run_op("IsotonicRegression", [np.array([[1, 2], [2, 1]], dtype.np)], output_dtype=dtype)
    assert values.dtype == dtype.np
    assert values.tolist() == [[1.5, 1.5], [2, 1]]
    assert segments.tolist() == [[0, 0], [0, 1]]
    value, segment = run_op("IsotonicRegression", [np.array(3, dtype.np)], output_dtype=dtype)
    assert (float(value), int(segment)) == (3, 0)
