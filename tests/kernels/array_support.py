"""What the tests of the array kernels share: comparing outputs, expecting refusals, random shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.harness import run_op, strings

__all__ = [
    "ELEMENT_TYPES",
    "F32",
    "I32",
    "I64",
    "assert_gives",
    "assert_refuses",
    "assert_same",
    "example_of",
    "shapes",
]

ELEMENT_TYPES = (
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16,
    np.int32, np.uint32, np.int64, np.uint64, np.bool_, np.complex64, np.complex128, object,
)  # fmt: skip


F32 = partial(np.array, dtype=np.float32)
I32 = partial(np.array, dtype=np.int32)
I64 = partial(np.array, dtype=np.int64)


def assert_same(got: Any, want: Any) -> None:
    """Equal in type, shape and every element; NaN equals NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype != object:
        assert ((got == want) | ((got != got) & (want != want))).all(), f"{got} is not {want}"
    else:
        assert got.tolist() == want.tolist()


def assert_gives(op: str, inputs: list[Any], want: Any, **attrs: Any) -> None:
    """The op gives `want`: one array, or a tuple of arrays."""
    got = run_op(op, inputs, **attrs)
    if isinstance(want, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    else:
        assert_same(got, want)


def assert_refuses(
    op: str, inputs: list[Any], message: str, /, error: type[errors.OpError] = errors.InvalidArgumentError, **attrs: Any
) -> None:
    """The op raises `error` with exactly this message."""
    with pytest.raises(error) as caught:
        run_op(op, inputs, **attrs)
    assert type(caught.value) is error
    assert caught.value.message == message


def example_of(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """An array with few different values, so that some are equal."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, shape)
    if dtype is object:
        return strings(*[b"abcd"[:v] for v in values.ravel().tolist()], shape=shape)
    return values.astype(dtype)


def shapes(min_rank: int = 0, max_rank: int = 4, min_size: int = 0, max_size: int = 4) -> Any:
    return st.lists(st.integers(min_size, max_size), min_size=min_rank, max_size=max_rank).map(tuple)
