"""Sparse matrices by rows to be differentiated: each way to multiply them, real, complex and in batches.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from aexec import ops
from aexec.framework import dtypes

__all__ = ["csr_cases"]

Made = tuple[str, Callable[..., Any], list[np.ndarray]]

# Places of a matrix [3, 4], of one [4, 3], and of a batch of two [2, 3].
WIDE = np.array([[0, 1], [0, 3], [1, 0], [2, 2], [2, 3]])
TALL = np.array([[0, 0], [1, 2], [2, 1], [3, 0], [3, 2]])
BATCH = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 0], [1, 0, 2]])


def csr(places: np.ndarray, values: Any, shape: tuple[int, ...]) -> Any:
    return ops.sparse_tensor_to_csr_sparse_matrix(places, values, np.array(shape))


def dense(matrix: Any, like: Any) -> Any:
    return ops.csr_sparse_matrix_to_dense(matrix, type=like.dtype.base)


def csr_cases(normal: Callable[..., np.ndarray], complexes: Callable[..., np.ndarray]) -> Iterator[Made]:
    """Op, function and arguments of each case; `normal` and `complexes` make numbers of a shape."""
    yield from _conversions(normal)
    for numbers in (normal, complexes):
        yield from _dense_products(numbers, is_complex=numbers is complexes)
        yield from _sparse_products(numbers, is_complex=numbers is complexes)
        yield (
            "SparseMatrixAdd",
            lambda v, w, a, b: dense(
                ops.sparse_matrix_add(csr(WIDE, v, (3, 4)), csr(TALL[:, ::-1][[0, 3, 2, 1, 4]], w, (3, 4)), a, b), v
            ),
            [numbers(5), numbers(5), numbers(), numbers()],
        )
        yield (
            "SparseMatrixTranspose",
            lambda v: dense(
                ops.sparse_matrix_transpose(csr(WIDE, v, (3, 4)), type=v.dtype.base, conjugate=v.dtype.is_complex), v
            ),
            [numbers(5)],
        )


def _conversions(normal: Callable[..., np.ndarray]) -> Iterator[Made]:
    yield "DenseToCSRSparseMatrix", lambda x: dense(ops.dense_to_csr_sparse_matrix(x, WIDE), x), [normal(3, 4)]
    yield "CSRSparseMatrixToDense", lambda v: dense(csr(BATCH, v, (2, 2, 3)), v), [normal(5)]
    yield "SparseTensorToCSRSparseMatrix", lambda v: dense(csr(WIDE, v, (3, 4)), v), [normal(5)]
    yield (
        "CSRSparseMatrixToSparseTensor",
        lambda v: ops.csr_sparse_matrix_to_sparse_tensor(csr(WIDE, v, (3, 4)), type=dtypes.float64)[1],
        [normal(5)],
    )
    yield (
        "SparseMatrixSoftmax",
        lambda v: dense(ops.sparse_matrix_softmax(csr(WIDE, v, (3, 4)), type=dtypes.float64), v),
        [normal(5)],
    )


WAYS = ({}, {"transpose": True}, {"adjoint": True})


def _dense_products(numbers: Callable[..., np.ndarray], *, is_complex: bool) -> Iterator[Made]:
    for of_a, of_b, turned, conjugated in product(WAYS, WAYS, (False, True), (False, True) if is_complex else (False,)):
        attrs = {
            **{f"{name}_a": True for name in of_a}, **{f"{name}_b": True for name in of_b},
            "transpose_output": turned, "conjugate_output": conjugated,
        }  # fmt: skip
        inner = 3 if of_a else 4
        yield (
            "SparseMatrixMatMul",
            lambda v, b, attrs=attrs: ops.sparse_matrix_mat_mul(csr(WIDE, v, (3, 4)), b, **attrs),
            [numbers(5), numbers(2, inner) if of_b else numbers(inner, 2)],
        )
    yield (
        "SparseMatrixMatMul",
        lambda v, b: ops.sparse_matrix_mat_mul(csr(BATCH, v, (2, 2, 3)), b, adjoint_a=True, transpose_b=True),
        [numbers(5), numbers(2, 4, 2)],
    )


def _sparse_products(numbers: Callable[..., np.ndarray], *, is_complex: bool) -> Iterator[Made]:
    for of_a, of_b in product(WAYS, WAYS):
        attrs = {**{f"{name}_a": True for name in of_a}, **{f"{name}_b": True for name in of_b}}
        # [3, 4] by [4, 3], or [4, 3] by [3, 4] if both are turned; one turned alone needs the same shape.
        places, shape = (WIDE, (3, 4)) if bool(of_a) != bool(of_b) else (TALL, (4, 3))
        yield (
            "SparseMatrixSparseMatMul",
            lambda v, w, attrs=attrs, places=places, shape=shape: dense(
                ops.sparse_matrix_sparse_mat_mul(
                    csr(WIDE, v, (3, 4)), csr(places, w, shape), type=v.dtype.base, **attrs
                ),
                v,
            ),
            [numbers(5), numbers(5)],
        )
