"""Kernels where CuPy does something else than NumPy, as was seen on a GPU: the stand-in does as CuPy there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import Compute
from aexec.kernels.common.array_module import raising_of_linalg
from tests.kernels.device_harness import construction
from tests.support.stand_ins.strict_arrays import StrictArray, strict


def compute(op: str, **attrs: Any) -> Compute:
    c = construction(op, strict, **attrs)
    kernel = kernel_registry.global_registry.lookup(op, "CPU", c.attrs, node="n")
    return kernel.build(c).compute


def there(values: Any, dtype: Any = np.float32) -> StrictArray:
    return StrictArray(np.array(values, dtype))


@pytest.mark.parametrize("index_type", [dtypes.int32, dtypes.int64])
@pytest.mark.parametrize("wrong", [[1, 5], [-1, 0]])
def test_index_out_of_range_is_refused_and_not_counted_from_the_beginning(
    index_type: dtypes.DType, wrong: list[int]
) -> None:
    gather = compute("GatherV2", Tparams=dtypes.float32, Tindices=index_type, Taxis=dtypes.int32)
    params = there([10, 11, 12, 13, 14])
    assert gather(params, there([4, 0], index_type.np), np.int32(0)).get().tolist() == [14, 10]
    with pytest.raises(errors.InvalidArgumentError, match=r"is not in \[0, 5\)"):
        gather(params, there(wrong, index_type.np), np.int32(0))


@pytest.mark.parametrize("op", ["MatrixInverse", "MatrixSolve"])
def test_singular_matrix_is_refused(op: str) -> None:
    singular = there([[1, 2], [2, 4]])
    with pytest.raises(errors.InvalidArgumentError, match="is not invertible"):
        compute(op, T=dtypes.float32)(*[singular] * (2 if op == "MatrixSolve" else 1))


def test_missing_cholesky_factor_is_nan() -> None:
    factor = compute("Cholesky", T=dtypes.float32)(there([[1, 2], [2, 1]])).get()
    assert np.isnan(factor[0, 0])


def test_singular_matrices_are_asked_for_where_that_is_wanted_alone() -> None:
    singular = there([[1, 2], [2, 4]])
    assert np.isfinite(strict.linalg.inv(singular).get()).all()
    with raising_of_linalg(strict), pytest.raises(np.linalg.LinAlgError):
        strict.linalg.inv(singular)


def test_choosing_among_bfloat16_gives_bfloat16() -> None:
    half = ml_dtypes.bfloat16
    chosen = compute("SelectV2", T=dtypes.bfloat16)(there([True, False], bool), there([1, 2], half), there(3, half))
    assert chosen.dtype == half
    assert chosen.get().tolist() == [1, 3]


def test_wide_depthwise_convolution_is_summed_without_an_argument_that_einsum_lacks() -> None:
    with pytest.raises(TypeError, match="einsum of CuPy has no parameter"):
        strict.einsum("ij->i", there([[1, 2]]), out=there([0]))


def test_products_of_half_precision_are_made_as_they_are() -> None:
    a = there(np.full((2, 3), 1 / 3), np.float16)
    product = compute("MatMul", T=dtypes.float16)(a, there(np.ones((3, 2)), np.float16))
    assert product.dtype == np.float16
