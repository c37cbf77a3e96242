"""The less common functions of `tf.linalg`.

Next to read: `linalg.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import rank_of
from aexec.compat.v1.functions.linalg import adjoint, matrix_transpose, svd
from aexec.compat.v1.functions.math_ops import matmul, norm, reduce_max, reduce_sum
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "cholesky_solve",
    "lu_matrix_inverse",
    "lu_reconstruct",
    "lu_solve",
    "matrix_rank",
    "matrix_solve_ls",
    "matvec",
    "normalize",
    "pinv",
    "slogdet",
    "tridiagonal_matmul",
    "tridiagonal_solve",
]


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """`tf.linalg.matvec`: the product of matrices and vectors."""
    with name_scope(name or "MatVec"):
        vector = ops.expand_dims(convert_to_tensor(b), -1)
        found = matmul(a, vector, transpose_a=transpose_a, adjoint_a=adjoint_a)
        return ops.squeeze(found, squeeze_dims=[-1])


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """`tf.cholesky_solve`: solves `A x = rhs`, given the factor of A by `tf.cholesky`."""
    with name_scope(name or "cholesky_solve"):
        factor = convert_to_tensor(chol)
        halfway = ops.matrix_triangular_solve(factor, rhs, lower=True)
        return ops.matrix_triangular_solve(factor, halfway, lower=True, adjoint=True)


def matrix_solve_ls(
    matrix: Any, rhs: Any, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """`tf.matrix_solve_ls`: least squares; `fast` by the normal equations."""
    with name_scope(name or "matrix_solve_ls"):
        a, b = convert_to_tensor(matrix), convert_to_tensor(rhs)
        if not fast:
            return ops.matrix_solve_ls(a, b, convert_to_tensor(float(l2_regularizer), dtypes.float64), fast=False)
        rows, columns = a.static_shape[-2], a.static_shape[-1]
        if rows is None or columns is None:
            raise errors.InvalidValueError(f"the shape of '{a.name}' must be known")
        if rows >= columns:
            return cholesky_solve(_gram(a, l2_regularizer, first=True), matmul(a, b, adjoint_a=True))
        return matmul(a, cholesky_solve(_gram(a, l2_regularizer, first=False), b), adjoint_a=True)


def _gram(a: Tensor, l2_regularizer: float, *, first: bool) -> Tensor:
    """The factor of the smaller product of a matrix with its adjoint, plus the regularizer."""
    product = matmul(a, a, adjoint_a=first, adjoint_b=not first)
    if l2_regularizer != 0:
        size = product.static_shape[-1]
        product = product + convert_to_tensor((l2_regularizer * np.eye(size)).astype(a.dtype.base.np))
    return ops.cholesky(product)


class LogMatrixDeterminant(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    log_abs_determinant: Tensor


def slogdet(input: Any, name: str | None = None) -> LogMatrixDeterminant:
    """`tf.linalg.slogdet`: the sign of the determinant, and the logarithm of its absolute value."""
    return LogMatrixDeterminant(*ops.log_matrix_determinant(input, name=name))


def _cutoff(a: Tensor, values: Tensor, factor: Any) -> Tensor:
    """The singular value below which others count as zero."""
    sizes = [size for size in (a.static_shape[-2], a.static_shape[-1]) if size is not None]
    if len(sizes) < 2:
        raise errors.InvalidValueError(f"the shape of '{a.name}' must be known")
    if factor is None:
        factor = float(np.finfo(a.dtype.base.np).eps * max(sizes))
    return reduce_max(values, axis=-1, keepdims=True) * convert_to_tensor(factor, a.dtype.base)


def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """`tf.linalg.matrix_rank`: the number of singular values above the tolerance."""
    with name_scope(name or "matrix_rank"):
        value = convert_to_tensor(a)
        values = svd(value, compute_uv=False)
        least = _cutoff(value, values, None) if tol is None else convert_to_tensor(tol, value.dtype.base)
        return reduce_sum(ops.cast(ops.greater(values, least), DstT=dtypes.int32), axis=-1)


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """`tf.linalg.pinv`: the pseudo-inverse; singular values below `rcond` times the largest count as zero."""
    with name_scope(name or "pinv"):
        value = convert_to_tensor(a)
        if rcond is None:
            sizes = [size or 0 for size in (value.static_shape[-2], value.static_shape[-1])]
            rcond = float(10.0 * max(sizes) * np.finfo(value.dtype.base.np).eps)
        values, u, v = svd(value, full_matrices=False, compute_uv=True)
        kept = ops.greater(values, _cutoff(value, values, rcond))
        inverse = ops.select_v2(kept, ops.reciprocal(values), ops.zeros_like(values))
        return matmul(v * ops.expand_dims(inverse, -2), adjoint(u))


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.linalg.normalize`: a tensor of norm 1 along the axes, and the norms."""
    with name_scope(name or "normalize"):
        value = convert_to_tensor(tensor)
        length = norm(value, ord, axis=axis, keepdims=True)
        return value / length, length


# Factors of `tf.linalg.lu`


def _inverse_order(perm: Any) -> Tensor:
    order = convert_to_tensor(perm)
    if rank_of(order) == 1:
        return ops.invert_permutation(order)
    size = order.static_shape[-1]
    flat = ops.reshape(order, [-1, size])
    return ops.reshape(ops.top_kv2(-flat, size)[1], ops.shape(order))


def _in_order(matrix: Tensor, order: Tensor) -> Tensor:
    """Permute the rows of matrices; each matrix of the batch has its own permutation."""
    batch = rank_of(order) - 1
    return ops.gather_v2(matrix, order, batch, batch_dims=batch)


def _halves(lower_upper: Any) -> tuple[Tensor, Tensor]:
    packed = convert_to_tensor(lower_upper)
    lower = ops.matrix_set_diag(ops.matrix_band_part(packed, -1, 0), ops.ones_like(ops.matrix_diag_part(packed)))
    return lower, ops.matrix_band_part(packed, 0, -1)


def lu_reconstruct(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """`tf.linalg.lu_reconstruct`: the matrix of its factors."""
    with name_scope(name or "lu_reconstruct"):
        lower, upper = _halves(lower_upper)
        return _in_order(matmul(lower, upper), _inverse_order(perm))


def lu_solve(lower_upper: Any, perm: Any, rhs: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """`tf.linalg.lu_solve`: solves `A x = rhs` by the factors of A."""
    with name_scope(name or "lu_solve"):
        lower, upper = _halves(lower_upper)
        ordered = _in_order(convert_to_tensor(rhs), convert_to_tensor(perm))
        return ops.matrix_triangular_solve(upper, ops.matrix_triangular_solve(lower, ordered, lower=True), lower=False)


def lu_matrix_inverse(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """`tf.linalg.lu_matrix_inverse`: the inverse of a matrix by its factors."""
    with name_scope(name or "lu_matrix_inverse"):
        packed = convert_to_tensor(lower_upper)
        ones = ops.matrix_diag(ops.ones_like(ops.matrix_diag_part(packed)))
        return lu_solve(packed, perm, ones)


def tridiagonal_matmul(diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None) -> Tensor:
    """`tf.linalg.tridiagonal_matmul`: a product, given the three diagonals [..., 3, size], or a list of them."""
    with name_scope(name or "tridiagonal_matmul"):
        if diagonals_format == "compact":
            value = convert_to_tensor(diagonals)
            upper, main, lower = (value[..., index, :] for index in range(3))
        elif diagonals_format == "sequence":
            upper, main, lower = (convert_to_tensor(part) for part in diagonals)
        else:
            raise errors.UnsupportedError(f"tridiagonal_matmul: diagonals_format={diagonals_format!r}")
        above, middle, below = (ops.expand_dims(part, -2) for part in (upper, main, lower))
        return ops.tridiagonal_mat_mul(above, middle, below, rhs)


def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Tensor:
    """`tf.linalg.tridiagonal_solve`: the solution of equations whose matrix has three diagonals.

    Args:
        diagonals: with format "compact" [..., 3, size], from the upper to the lower diagonal; with "sequence" a list of
            three, in which the outer ones may be shorter by 1; with "matrix" the matrices.
        rhs: [..., size], or [..., size, columns]; [..., columns, size] with `transpose_rhs`.

    Raises:
        InvalidArgumentError: a rank is unknown or does not fit, or the format is unknown.
    """
    if perturb_singular and not partial_pivoting:
        raise errors.InvalidValueError("partial_pivoting must be True if perturb_singular is.")
    with name_scope(name or "tridiagonal_solve"):
        three, right = _three_diagonals(diagonals, diagonals_format), convert_to_tensor(rhs)
        rank, columns = three.static_shape.rank, right.static_shape.rank
        if rank is None or columns is None or rank < 2 or columns not in (rank, rank - 1):
            raise errors.InvalidValueError(f"Expected the rank of rhs to be {rank} or 1 less, got {columns}")
        is_vector = columns == rank - 1
        if conjugate_rhs and right.dtype.base.is_complex:
            right = ops.conj(right)
        if is_vector:
            right = ops.expand_dims(right, -1)
        elif transpose_rhs:
            right = matrix_transpose(right)
        found = ops.tridiagonal_solve(
            three, right, partial_pivoting=partial_pivoting, perturb_singular=perturb_singular
        )
        return ops.squeeze(found, squeeze_dims=[-1]) if is_vector else found


def _three_diagonals(diagonals: Any, form: str) -> Tensor:
    """Diagonals [..., 3, size] from one of the forms that `tridiagonal_solve` takes."""
    if form == "compact":
        return convert_to_tensor(diagonals)
    if form == "matrix":
        value = convert_to_tensor(diagonals)
        zero = convert_to_tensor(0, value.dtype.base)
        return ops.matrix_diag_part_v3(value, convert_to_tensor([-1, 1], dtypes.int32), zero, align="LEFT_RIGHT")
    if form != "sequence":
        raise errors.InvalidValueError(f"Unrecognized diagonals_format: {form}")
    upper, main, lower = (convert_to_tensor(part) for part in diagonals)
    return ops.pack([_as_long(upper, main, [0, 1]), main, _as_long(lower, main, [1, 0])], axis=-2)


def _as_long(diagonal: Tensor, main: Tensor, zeros: list[int]) -> Tensor:
    """Pad an outer diagonal with a 0 to the length of the main one, unless it has that length."""
    sizes, wanted = diagonal.static_shape.dims, main.static_shape.dims
    if not sizes or not wanted or sizes[-1] is None or wanted[-1] is None:
        raise errors.InvalidValueError("the lengths of diagonals must be known")
    if sizes[-1] == wanted[-1]:
        return diagonal
    return ops.pad(diagonal, [[0, 0]] * (len(sizes) - 1) + [zeros])
