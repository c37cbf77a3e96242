"""Chains of steps on blocks: the same as on the whole; rounding half a step away from zero is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.kernels.quantize.cache_blocks import clamp, in_cache_blocks, round_away


@pytest.mark.parametrize("size", [0, 1, 32768, 32769, 131_072, 300_000])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_blocks_are_as_the_whole(size, dtype):
    x = np.random.default_rng(size).uniform(-300, 300, size).astype(np.float32)

    def steps(values):
        clamp(np, values, np.float32(3), np.float32(200))
        values += np.float32(1)

    kept = x.copy()
    got = in_cache_blocks(np, x, dtype, steps)
    np.testing.assert_array_equal(got, (np.clip(x, 3, 200) + 1).astype(dtype))
    assert got.dtype == dtype
    np.testing.assert_array_equal(x, kept)


def test_shapes_stay_and_steps_may_broadcast():
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    bounds = np.float32([[1], [2], [3], [4]])

    def steps(values):
        clamp(np, values, bounds, bounds + 3)

    np.testing.assert_array_equal(in_cache_blocks(np, x, np.int8, steps, whole=True), np.clip(x, bounds, bounds + 3))
    np.testing.assert_array_equal(in_cache_blocks(np, x, np.int8, lambda values: None), x)
    assert in_cache_blocks(np, np.float32(2), np.int8, lambda values: None).shape == ()


def test_clamp_keeps_nan():
    values = np.full(3000, np.nan, np.float32)
    clamp(np, values, np.float32(0), np.float32(1))
    assert np.isnan(values).all()


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_rounding_is_half_away_from_zero(bits):
    x = np.array(bits, np.uint32).view(np.float32)
    halves = np.float32([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388607.5, 4194304.5, 8388609, -0.0])
    x = np.concatenate([x[np.isfinite(x)], halves])
    exact = x.astype(np.float64)
    want = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    got = x.copy()
    round_away(np, got)
    np.testing.assert_array_equal(got, want)
    small = np.abs(x) < 2**31
    got = x[small]
    round_away(np, got, to_be_cast=True)
    np.testing.assert_array_equal(got.astype(np.int32), want[small].astype(np.int32))
