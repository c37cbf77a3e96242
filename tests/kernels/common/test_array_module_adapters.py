"""What stands in for ufunc methods that CuPy lacks gives what those give; and `strict` is as strict as it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.kernels.common.array_module import accumulate_at, accumulator, reducer, scipy_of
from tests.support.stand_ins.strict_arrays import StrictArray, strict, waits

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ON_DEVICE = strict.asarray(X)


def same(got: Any, want: Any) -> None:
    assert isinstance(got, StrictArray)
    got = got.get()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-12)


# --- adapters


@pytest.mark.parametrize("ufunc", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("axes", [(0,), (1, 0), (), None])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (2, 0)])
def test_reductions(ufunc: str, axes: Any, keep: bool, shape: tuple[int, ...]) -> None:
    x, initial = np.arange(math.prod(shape), dtype=np.float64).reshape(shape), {"maximum": -9.0, "minimum": 9.0}
    given_start = initial.get(ufunc)
    want = np.asarray(getattr(np, ufunc).reduce(x, axes, keepdims=keep, initial=initial.get(ufunc, np._NoValue)))
    same(reducer(strict, ufunc)(strict.asarray(x), axes, None, None, keep, given_start), want)


@pytest.mark.parametrize("ufunc", ["logical_and", "logical_or"])
@pytest.mark.parametrize("axes", [(0,), (), (0, 1)])
def test_reductions_of_bools(ufunc: str, axes: Any) -> None:
    x = X > 2
    same(
        reducer(strict, ufunc)(strict.asarray(x), axes, None, None, False),
        np.asarray(getattr(np, ufunc).reduce(x, axes)),
    )


@pytest.mark.parametrize("ufunc", ["add", "multiply", "logaddexp"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_scans(ufunc: str, axis: int, count: int) -> None:
    x = np.linspace(0.5, 2, 3 * count).reshape((count, 3) if axis == 0 else (3, count))
    out = strict.zeros(x.shape)
    accumulator(strict, ufunc)(strict.asarray(x), axis, np.float64, out)
    same(out, getattr(np, ufunc).accumulate(x, axis))
    same(accumulator(strict, ufunc)(strict.asarray(x), axis), getattr(np, ufunc).accumulate(x, axis))


@given(st.data(), st.sampled_from(["add", "subtract", "multiply", "maximum"]), st.sampled_from([np.int64, np.uint8]))
def test_accumulating_at_repeated_places(data: st.DataObject, ufunc: str, dtype: Any) -> None:
    count, width = data.draw(st.integers(0, 12)), data.draw(st.sampled_from([(), (1,), (3,)]))
    index = data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, 4)))
    rows = data.draw(hnp.arrays(dtype, (count, *width), elements=st.integers(0, 9)))
    want = np.full((5, *width), 3, dtype)
    out = strict.asarray(want.copy())
    getattr(np, ufunc).at(want, index, rows)
    accumulate_at(strict, ufunc, out, strict.asarray(index), strict.asarray(rows))
    same(out, want)


def test_numpy_gets_its_own_methods() -> None:
    assert reducer(np, "maximum") == np.maximum.reduce
    assert scipy_of(np, "special").__name__ == "scipy.special"


# --- the stand-in

REFUSED: dict[str, Callable[[], Any]] = {
    "a function of NumPy": lambda: np.sum(ON_DEVICE),
    "a ufunc of NumPy": lambda: np.add(ON_DEVICE, ON_DEVICE),
    "conversion": lambda: np.asarray(ON_DEVICE),
    "a buffer": lambda: memoryview(ON_DEVICE),
    "an array of NumPy as operand": lambda: ON_DEVICE + X,
    "an array of NumPy before it": lambda: X + ON_DEVICE,
    "an array of NumPy as argument": lambda: strict.where(ON_DEVICE > 0, X, ON_DEVICE),
    "an array of NumPy as index": lambda: ON_DEVICE[np.array([0])],
    "an array of NumPy as value": lambda: ON_DEVICE.copy().__setitem__(0, X[0]),
    "a list as operand": lambda: ON_DEVICE * [1, 2, 3],
    "a parameter that CuPy lacks": lambda: strict.sum(ON_DEVICE, initial=1),
    "a parameter of a method that CuPy lacks": lambda: ON_DEVICE.max(initial=1),
    "a type that CuPy lacks": lambda: strict.asarray(np.array([b"a"], object)),
    "an atomic operation on a type without": lambda: strict.add.at(strict.zeros(2, np.int64), strict.zeros(1, int), 1),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: strict.maximum.reduce(ON_DEVICE),
        lambda: strict.maximum.accumulate(ON_DEVICE),
        lambda: strict.multiply.reduceat(ON_DEVICE, [0]),
        lambda: strict.multiply.at(ON_DEVICE, strict.zeros(1, int), 1),
    ],
)
def test_ufunc_methods_that_cupy_lacks(call: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError):
        call()


def test_names_that_cupy_lacks() -> None:
    assert not hasattr(strict, "ndenumerate") and not hasattr(strict.scipy.special, "fresnel")


def test_scalars_are_taken_and_results_are_arrays() -> None:
    same(np.float32(2) * ON_DEVICE + 1, X * 2 + 1)
    same(ON_DEVICE.sum(), np.asarray(X.sum()))
    same(ON_DEVICE[strict.asarray([3, -1])], X[[1, 1]])  # out of range wraps


def test_waiting_is_counted() -> None:
    with waits() as waited:
        strict.where(ON_DEVICE > 1, ON_DEVICE, 0)
        assert waited() == 0
        bool((ON_DEVICE > 1).any())
        ON_DEVICE.tolist()
        strict.flatnonzero(ON_DEVICE)
        ON_DEVICE[ON_DEVICE > 1]
        assert waited() == 4
