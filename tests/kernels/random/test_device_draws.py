"""Random numbers that are made in a device's memory have the bits of the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aexec.numerics import philox
from aexec.numerics.philox import Philox
from tests.support.stand_ins.strict_arrays import StrictArray, strict

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32]
NEAR_THE_END = Philox(0x0123456789ABCDEF, (1 << 128) - 100)


@pytest.fixture(autouse=True, params=[0, 1 << 30], ids=["words of the device", "words of the host"])
def where_words_are_made(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(philox, "_DEVICE_ARRAYS_FROM", request.param)
    monkeypatch.setattr(philox, "_DEVICE_BLOCKS_AT_ONCE", 300)


def check(fill: Callable[..., None], dtype: Any, *bounds: int) -> None:
    """1003 numbers are equal, from a counter that overflows its low half meanwhile, too."""
    for generator in (Philox.from_seeds(7, -3), Philox(5, (1 << 64) - 20), NEAR_THE_END):
        want, got = np.empty((17, 59), dtype), StrictArray(np.empty((17, 59), dtype))
        fill(generator, want, *bounds)
        fill(generator, got, *bounds, strict)
        assert got.get().tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64])
def test_uniform_numbers(dtype: Any) -> None:
    check(philox.fill_uniform, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fill", [philox.fill_standard_normal, philox.fill_truncated_normal])
def test_normal_numbers(fill: Callable[..., None], dtype: Any) -> None:
    check(fill, dtype)


@pytest.mark.parametrize("fill", [philox.fill_standard_normal, philox.fill_truncated_normal])
def test_normal_doubles_are_those_of_the_devices_logarithm(fill: Callable[..., None]) -> None:
    want, got = np.empty(999), StrictArray(np.empty(999))
    fill(Philox.from_seeds(1, 2), want)
    fill(Philox.from_seeds(1, 2), got, strict)
    np.testing.assert_array_max_ulp(got.get(), want, 8)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_full_integers(dtype: Any) -> None:
    check(philox.fill_full_integers, dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_of_a_range(dtype: Any) -> None:
    check(philox.fill_integers, dtype, -5, 1000)
