"""Comparing numeric results: exact type and shape, NaN equal to NaN, narrow floats by their own precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.harness import run_op

__all__ = ["FLOATS", "INTEGERS", "assert_close", "assert_refused", "bfloat16"]

bfloat16 = ml_dtypes.bfloat16
FLOATS = [np.float16, bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]

_PRECISION = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-12, "complex64": 2e-6}


def assert_close(got: Any, want: Any, dtype: Any = None, tolerance: float | None = None) -> None:
    """`got` has the dtype and shape of `want`, and its values within the dtype's precision."""
    want = np.asarray(want, dtype)
    got = np.asarray(got)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    tolerance = _PRECISION.get(want.dtype.name, 0) if tolerance is None else tolerance
    if tolerance:
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def assert_refused(message: str, op: str, inputs: Any, **attrs: Any) -> None:
    """The kernel raises InvalidArgumentError with exactly this message."""
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op(op, inputs, **attrs)
    assert caught.value.message == message
