"""Linear algebra on batches of square (or, for Qr and Svd, any) matrices.

Decompositions, determinants, inverses and functions of matrices are LAPACK's, through NumPy if it has a batched call,
otherwise through SciPy (imported when the first such node is built). Here are added: TensorFlow's checks, its results
for singular input and for NaN, and half precision computed in float32.
Next to read: `solve_ops.py` for systems of equations, `matrix_diag_ops.py` for diagonals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.common.array_module import raising_of_linalg, scipy_of
from aexec.kernels.linalg.lapack import lu_factors
from aexec.kernels.linalg.solve_ops import (
    LINALG_TYPES,
    REAL_TYPES,
    SCIPY,
    adjoint_of,
    check_batch,
    check_square,
    cubic_ns,
    has_nan_pivot,
    matrices_of,
    some_at_a_time,
    triangular_solver,
)

__all__ = ["COMPLEX_TYPES", "each_matrix", "square_batch"]

Array = np.ndarray[Any, Any]

COMPLEX_TYPES = (dtypes.complex64, dtypes.complex128)
# MatrixSolve's message is another one.
_NOT_INVERTIBLE = "Input is not invertible."


def square_batch(function: Callable[[Any], Any], xp: Any = np, **pieces: int) -> Compute:
    """`function` after a check that its input is a batch of square matrices, which it gets some at a time.

    Args:
        pieces: keyword arguments of `some_at_a_time` (`elements`, `copies`).
    """

    def compute(x: Any) -> Any:
        check_batch(x)
        check_square(x)
        if x.size:
            return some_at_a_time(xp, function, x, **pieces)
        return function(x) if x.ndim == 2 else _alike(function, x, xp)

    return compute


def _alike(function: Callable[[Any], Any], x: Any, xp: Any) -> Any:
    """`function` of matrices without elements, called for one of them: NumPy would loop over all, whose number may be
    huge.
    """
    batch = x.shape[:-2]
    if not math.prod(batch):
        return function(x)
    one = function(x[(slice(1),) * len(batch)])

    def of_all(result: Any) -> Any:
        shape = batch + result.shape[len(batch) :]
        if not result.size:
            return result.reshape(shape)
        # the copy does not come from an allocator, so it must be announced
        announce_scratch(math.prod(shape) * result.itemsize)
        return xp.broadcast_to(result, shape).copy()

    return tuple(map(of_all, one)) if isinstance(one, tuple) else of_all(one)


def each_matrix(xp: Any, function: Callable[[Array], Any], x: Array) -> Array:
    """`function` of every matrix of a batch; its results must have the matrix's shape and type."""
    result: Array = xp.empty(x.shape, x.dtype)
    for matrix, place in matrices_of(x, result) if x.size else ():
        place[...] = function(matrix)
    return result


def _working_type(dtype: DType) -> np.dtype[Any]:
    """The type to compute in: LAPACK has no half."""
    return np.dtype(np.float32) if dtype is dtypes.float16 else dtype.np


# Cholesky


@kernel("Cholesky", T=LINALG_TYPES, cost=cubic_ns(0.02))
@kernel("BatchCholesky", T=REAL_TYPES, cost=cubic_ns(0.02))
def cholesky(c: OpKernelConstruction) -> Compute:
    """Return the lower factor; only the lower triangle is read.

    If a matrix has no factor, the result is NaN (TensorFlow's is NaN in real types only: its complex NaN is 0).
    """

    xp = c.xp

    def factor(x: Array) -> Any:
        try:
            with raising_of_linalg(xp):
                return xp.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            return each_matrix(xp, factor_one, x)

    def factor_one(x: Array) -> Any:
        try:
            with raising_of_linalg(xp):
                return xp.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            return xp.tril(xp.full(x.shape, np.nan, x.dtype))

    return square_batch(factor, xp, copies=2)


@kernel("CholeskyGrad", "BatchCholeskyGrad", T=REAL_TYPES, cost=cubic_ns(0.15), needs=SCIPY, scratch=32)
def cholesky_grad(c: OpKernelConstruction) -> Compute:
    """Gradient with regard to the (symmetric) input of Cholesky, given its result and the gradient with regard to that.

    The formula is that of Iain Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527.
    """
    xp, solve = c.xp, triangular_solver(c.xp)

    def compute(l: Any, grad: Any) -> Any:  # noqa: E741 - the op's own name for its input
        check_batch(l, grad)
        check_square(l, "Inputs must be a square matrices.")
        if l.shape != grad.shape:
            raise errors.InvalidArgumentError("Inputs (L and grad) must have the same shape.")
        if not l.size:
            return xp.empty(l.shape, l.dtype)
        lower = xp.tril(l)
        middle = xp.tril(lower.swapaxes(-1, -2) @ xp.tril(grad))
        diagonal = xp.arange(l.shape[-1])
        middle[..., diagonal, diagonal] *= 0.5
        # L^-T middle L^-1, symmetrised.
        left = solve(lower, middle, lower=True, adjoint=True)
        whole = solve(lower, left.swapaxes(-1, -2), lower=True, adjoint=True)
        return (whole + whole.swapaxes(-1, -2)) * whole.dtype.type(0.5)

    return compute


# Determinants


@kernel("MatrixDeterminant", "BatchMatrixDeterminant", T=LINALG_TYPES, cost=cubic_ns(0.05))
def matrix_determinant(c: OpKernelConstruction) -> Compute:
    """Return determinants; 1 for a matrix without elements, NaN for one with a NaN."""
    xp, dtype = c.xp, c.attr("T").base
    # NumPy computes it by the logarithm, which costs digits that single precision lacks.
    wide = np.complex128 if dtype.is_complex else np.float64

    def determinants(x: Array) -> Any:
        found = xp.linalg.det(x.astype(wide, copy=False)).astype(dtype.np)
        if xp is np and not np.isnan(x).any():
            return found
        return xp.where(_with_nan(xp, x), dtype.np.type(np.nan), found)

    return square_batch(determinants, xp)


def _with_nan(xp: Any, x: Array) -> Any:
    """Return which matrices of a batch contain NaN: LAPACK treats a NaN in the first corner as zero, and the matrix as
    singular.
    """
    return xp.isnan(x).any(axis=(-2, -1))


@kernel("LogMatrixDeterminant", T=LINALG_TYPES, cost=cubic_ns(0.03))
def log_matrix_determinant(c: OpKernelConstruction) -> Compute:
    """Return (sign, log of the absolute value) of the determinants: (0, -inf) for 0, NaN for NaN."""
    xp, np_dtype = c.xp, c.attr("T").np

    def sign_and_log(x: Array) -> tuple[Any, Any]:
        sign, log = xp.linalg.slogdet(x)
        nan, unknown = np_dtype.type(np.nan), _with_nan(xp, x) | xp.isnan(log)
        return xp.where(unknown, nan, sign), xp.where(unknown, nan, log).astype(np_dtype, copy=False)

    return square_batch(sign_and_log, xp)


# LU, inverse


def _lu_scratch(x: Any) -> int:
    """Bytes of the factors of one matrix before they are copied to the output, and two more copies if complex, to
    compare pivots.
    """
    return int(math.prod(x.shape[-2:]) * x.itemsize) * (3 if x.dtype.kind == "c" else 1)


@kernel("Lu", T=LINALG_TYPES, output_idx_type=(dtypes.int32,), cost=cubic_ns(0.03), needs=SCIPY, scratch=_lu_scratch)
@kernel("Lu", T=LINALG_TYPES, output_idx_type=(dtypes.int64,), cost=cubic_ns(0.03), needs=SCIPY, scratch=_lu_scratch)
def lu(c: OpKernelConstruction) -> Compute:
    """Return (both factors in one matrix, p) with A[p] = L U."""
    xp, index_type = c.xp, c.attr("output_idx_type").np
    factorise = lu_factors if xp is np else partial(scipy_of(xp, "linalg").lu_factor, check_finite=False)

    def compute(x: Any) -> Any:
        if x.ndim < 2:
            raise errors.InvalidArgumentError(f"Input tensor must have rank >= 2, got {x.ndim}")
        check_square(x)
        if has_nan_pivot(xp, x):
            raise errors.InvalidArgumentError(_NOT_INVERTIBLE)
        factors = xp.empty(x.shape, x.dtype)
        order = np.empty(x.shape[:-1], index_type)
        if x.size:
            for matrix, factor, permutation in matrices_of(x, factors, order[..., None, :]):
                permutation[0], factor[...] = _lu_of(xp, matrix, factorise)
                sizes = xp.abs(factor.diagonal())
                # Only a matrix whose pivots are all NaN is refused for them.
                if (sizes == 0).any() or not (sizes > 0).any():
                    raise errors.InvalidArgumentError(_NOT_INVERTIBLE)
        return factors, xp.asarray(order)

    return compute


def _lu_of(xp: Any, matrix: Array, factorise: Callable[[Any], tuple[Any, Any]]) -> tuple[Array, Array]:
    factors, swaps = factorise(matrix)
    if matrix.dtype.kind == "c" and (xp.abs(xp.tril(factors, -1)) > 1).any():
        # LAPACK compares complex pivots by |re| + |im|, TensorFlow by magnitude.
        return _lu_by_magnitude(xp, matrix)
    order = np.arange(len(matrix))
    for i, j in enumerate(swaps.tolist()):
        order[i], order[j] = order[j], order[i]
    return order, factors


def _lu_by_magnitude(xp: Any, matrix: Array) -> tuple[Array, Array]:
    factors = matrix.copy()
    order = np.arange(len(matrix))
    for k in range(len(matrix) - 1):
        best = k + int(xp.abs(factors[k:, k]).argmax())
        if best != k:
            factors[[k, best]] = factors[[best, k]]
            order[k], order[best] = order[best], order[k]
        if factors[k, k] != 0:
            factors[k + 1 :, k] /= factors[k, k]
            factors[k + 1 :, k + 1 :] -= xp.outer(factors[k + 1 :, k], factors[k, k + 1 :])
    return order, factors


@kernel("MatrixInverse", T=(dtypes.float16, *LINALG_TYPES), cost=cubic_ns(0.1))
@kernel("BatchMatrixInverse", T=(dtypes.float16, *REAL_TYPES), cost=cubic_ns(0.1))
def matrix_inverse(c: OpKernelConstruction) -> Compute:
    """Return the inverse, or the inverse of the adjoint."""
    xp, dtype, adjoint = c.xp, c.attr("T").base, c.attr("adjoint")
    working_type = _working_type(dtype)

    def inverse(x: Array) -> Any:
        if has_nan_pivot(xp, x):
            raise errors.InvalidArgumentError(_NOT_INVERTIBLE)
        x = x.astype(working_type, copy=False)
        try:
            with raising_of_linalg(xp):
                result = xp.linalg.inv(adjoint_of(x) if adjoint else x)
        except np.linalg.LinAlgError:
            raise errors.InvalidArgumentError(_NOT_INVERTIBLE) from None
        return result.astype(dtype.np, copy=False)

    copies = 4 * working_type.itemsize // dtype.np.itemsize
    return square_batch(inverse, xp, copies=copies)


# Orthogonal decompositions


def _orthogonal_ns(factor: float) -> AttrCost:
    """Return the cost of a decomposition; an attr may ask for square matrices of the input's longest side."""
    plain = cubic_ns(factor)

    def full(x: Any) -> float:
        sides = x.shape[-2:] if x.ndim > 1 else (0, 0)
        return max(plain(x), factor * max(sides) * float(x.size // max(1, math.prod(sides)) * _side_elements(x)))

    return AttrCost(lambda attrs: full if attrs["full_matrices"] else plain)


def _side_elements(x: Array) -> int:
    """Elements of a square matrix as long as the longest side of a matrix of `x`."""
    return int(max(x.shape[-2:] if x.ndim > 1 else (0,)) ** 2)


def _identities(xp: Any, batch: Sequence[int], rows: int, columns: int, dtype: Any) -> Array:
    """A batch of identity matrices: LAPACK's orthogonal factors of matrices without elements."""
    matrices: Array = xp.zeros((*batch, rows, columns), dtype)
    if matrices.size:
        diagonal = xp.arange(columns)
        matrices[..., diagonal, diagonal] = 1
    return matrices


@kernel("Qr", T=(dtypes.float16, *LINALG_TYPES), cost=_orthogonal_ns(0.15))
def qr(c: OpKernelConstruction) -> Compute:
    """Return (Q, R); signs are Householder's, as in LAPACK and TensorFlow."""
    xp, dtype = c.xp, c.attr("T").base
    mode: Literal["complete", "reduced"] = "complete" if c.attr("full_matrices") else "reduced"
    working_type = _working_type(dtype)

    copies = 4 * working_type.itemsize // dtype.np.itemsize

    def decompose(x: Array) -> tuple[Array, Array]:
        q, r = xp.linalg.qr(x.astype(working_type, copy=False), mode)
        return q.astype(dtype.np, copy=False), r.astype(dtype.np, copy=False)

    def without_elements(x: Array) -> tuple[Array, Array]:
        *batch, rows, columns = x.shape
        rank = rows if mode == "complete" else min(rows, columns)
        return _identities(xp, batch, rows, rank, dtype.np), xp.zeros((*batch, rank, columns), dtype.np)

    def compute(x: Any) -> Any:
        check_batch(x)
        if not x.size:
            return without_elements(x)
        return some_at_a_time(xp, decompose, x, elements=_side_elements(x), copies=copies)

    return compute


@kernel("Svd", "BatchSvd", T=LINALG_TYPES, cost=_orthogonal_ns(1.0))
def svd(c: OpKernelConstruction) -> Compute:
    """Return (singular values, U, V), with scalars for U and V if an attr does not ask for them; NaN for NaN and
    infinity.

    Pairs of singular vectors are determined up to their sign, which is LAPACK's.
    """
    xp, dtype = c.xp, c.attr("T").base
    vectors, full = c.attr("compute_uv"), c.attr("full_matrices")
    real_type = np.zeros(0, dtype.np).real.dtype
    unused = xp.zeros((), dtype.np)[()]

    def decompose(x: Array) -> tuple[Array, ...]:
        """Singular values (in a real type), and U and V."""
        try:
            with raising_of_linalg(xp):
                if not vectors:
                    return (xp.linalg.svd(x, compute_uv=False),)
                u, s, vh = xp.linalg.svd(x, full_matrices=full)
        except np.linalg.LinAlgError:
            return decompose_each(x) if x.ndim > 2 else failed(x)
        return s, u, adjoint_of(vh)

    def decompose_each(x: Array) -> tuple[Array, ...]:
        batch = x.shape[:-2]
        parts = [decompose(matrix) for (matrix,) in matrices_of(x)]
        return tuple(xp.stack(part).reshape((*batch, *part[0].shape)) for part in zip(*parts, strict=True))

    def failed(x: Array) -> tuple[Array, ...]:
        m, n = x.shape
        rank = min(m, n)
        shapes = [(m, m if full else rank), (n, n if full else rank)] if vectors else []
        return (
            xp.full(rank, np.nan, real_type),
            *(xp.full(shape, np.nan, dtype.np) for shape in shapes),
        )

    def without_elements(x: Array) -> list[Array]:
        *batch, rows, columns = x.shape
        rank = min(rows, columns)
        sides = [(side, side if full else rank) for side in (rows, columns)] if vectors else []
        return [xp.zeros((*batch, rank), real_type), *(_identities(xp, batch, *side, dtype.np) for side in sides)]

    def of_finite(x: Array) -> tuple[Array, ...]:
        """LAPACK does not return for infinite elements, and may fail for NaN."""
        finite = xp.isfinite(x)
        if xp is np and finite.all():
            return decompose(x)
        broken = ~finite.all(axis=(-2, -1))
        results = decompose(xp.where(broken[..., None, None], x.dtype.type(0), x))
        for found in results:
            found[broken] = np.nan
        return results

    def compute(x: Any) -> Any:
        check_batch(x)
        if x.size:
            s, *uv = some_at_a_time(xp, of_finite, x, elements=_side_elements(x), copies=6)
        else:
            s, *uv = without_elements(x)
        return s.astype(dtype.np, copy=False), *(uv or (unused, unused))

    return compute


# Eigenvalues


def _decompose(xp: Any, function: Callable[[Array], Any], x: Array, kind: str, used: Array) -> Any:
    """`function(x)`; raises TensorFlow's error if it fails or the part `used` of x is not finite."""
    try:
        if xp.isfinite(used).all():
            with raising_of_linalg(xp):
                return function(x)
    except np.linalg.LinAlgError:
        pass
    raise errors.InvalidArgumentError(f"{kind} decomposition was not successful. The input might not be valid.")


def _self_adjoint(xp: Any, function: Callable[[Array], Any], x: Array) -> Any:
    if not x.size:  # NumPy makes an array as large as a matrix to find its lower triangle, even if there is no matrix
        values = xp.empty(x.shape[:-1], x.real.dtype)
        return values if function is xp.linalg.eigvalsh else (values, x)
    return _decompose(xp, function, x, "Self-adjoint eigen", xp.tril(x))


@kernel("SelfAdjointEigV2", "BatchSelfAdjointEigV2", T=LINALG_TYPES, cost=cubic_ns(0.5))
def self_adjoint_eig_v2(c: OpKernelConstruction) -> Compute:
    """Return (eigenvalues in ascending order, eigenvectors as columns, or a scalar if an attr does not ask for them).

    Only the lower triangle is read.  Signs of eigenvectors are LAPACK's.
    """
    xp, np_dtype = c.xp, c.attr("T").np
    if not c.attr("compute_v"):
        unused = xp.zeros((), np_dtype)[()]
        values_only = square_batch(partial(_self_adjoint, xp, xp.linalg.eigvalsh), xp)
        return lambda x: (values_only(x).astype(np_dtype, copy=False), unused)

    def values_and_vectors(x: Array) -> tuple[Array, Array]:
        values, vectors = _self_adjoint(xp, xp.linalg.eigh, x)
        return values.astype(np_dtype, copy=False), vectors

    return square_batch(values_and_vectors, xp)


@kernel("SelfAdjointEig", "BatchSelfAdjointEig", T=REAL_TYPES, cost=cubic_ns(0.5))
def self_adjoint_eig(c: OpKernelConstruction) -> Compute:
    """Return eigenvalues as first row, then the eigenvectors as columns."""
    xp = c.xp

    def rows(x: Array) -> Any:
        values, vectors = _self_adjoint(xp, xp.linalg.eigh, x)
        return xp.concatenate([values[..., None, :], vectors], axis=-2)

    return square_batch(rows, xp)


@kernel("Eig", T=LINALG_TYPES, cost=cubic_ns(5.0))
def eig(c: OpKernelConstruction) -> Compute:
    """Return (eigenvalues, eigenvectors as columns, or a scalar if an attr does not ask for them), always complex.

    Eigenvalues of a complex matrix are in ascending order of magnitude, those of a real one in LAPACK's order.
    """
    xp, np_dtype = c.xp, c.attr("Tout").np
    unused = xp.zeros((), np_dtype)[()]
    in_order = not c.attr("T").is_complex

    def values_only(x: Array) -> Any:
        values = _decompose(xp, xp.linalg.eigvals, x, "Eigen", x)
        if not in_order:
            values = xp.take_along_axis(values, xp.abs(values).argsort(-1, kind="stable"), -1)
        return values.astype(np_dtype, copy=False)

    def values_and_vectors(x: Array) -> tuple[Any, Any]:
        values, vectors = _decompose(xp, xp.linalg.eig, x, "Eigen", x)
        if not in_order:
            order = xp.abs(values).argsort(-1, kind="stable")
            values = xp.take_along_axis(values, order, -1)
            vectors = xp.take_along_axis(vectors, order[..., None, :], -1)
        return values.astype(np_dtype, copy=False), vectors.astype(np_dtype, copy=False)

    if c.attr("compute_v"):
        return square_batch(values_and_vectors, xp)
    of_square = square_batch(values_only, xp)
    return lambda x: (of_square(x), unused)
