"""Linear systems: MatrixSolve, least squares, triangular, banded and tridiagonal ones.

LAPACK and BLAS do the work, matrix by matrix if NumPy has no batched call.  SciPy is imported when the first such node
is built, not with aexec.
Next to read: `linalg_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import raising_of_linalg, scipy_of
from aexec.kernels.linalg.lapack import PREFIX, shortest_least_squares, solve_triangle

__all__ = [
    "LINALG_TYPES",
    "REAL_TYPES",
    "SCIPY",
    "adjoint_of",
    "check_batch",
    "check_square",
    "cubic_ns",
    "has_nan_pivot",
    "matrices_of",
    "some_at_a_time",
    "triangular_solver",
]

Array = np.ndarray[Any, Any]

LINALG_TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
REAL_TYPES = (dtypes.float32, dtypes.float64)
SCIPY = ("scipy.linalg", "scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
NOT_INVERTIBLE = "Input matrix is not invertible."

# Overhead per small matrix of any operation, in nanoseconds.
_MATRIX_NS = 500.0
# Per element of a right-hand side: copying to LAPACK's order and back.
_COPIED_NS = 10.0
# Elements of right-hand sides per call of a routine that holds the interpreter's lock; at least one column.
_AT_ONCE = 1 << 15
# Elements of matrices per call of NumPy, or one matrix: a call cannot be stopped, and takes three microseconds for each
# 1x1 matrix.
_TOGETHER = 1 << 16
# Fast path: batches of at most this many elements never exceed `_TOGETHER`.
_FEW = 1 << 8
# The most copies of the matrices that exist meanwhile.
_COPIES = 4
# Per matrix that is processed by a Python loop.
_BANDED_NS = 5_000.0
# Per row of a tridiagonal system, or per system, in a Python loop.
_STEP_NS = 10_000.0


def cubic_ns(factor: float) -> Callable[..., float]:
    """Cost of work that grows with rows * columns**2, with `factor` nanoseconds for each, plus a time per matrix of a
    batch.

    A column of a right-hand side counts as a column of the matrix, plus its copies.
    """
    matrix_ns = max(_MATRIX_NS, 5_000 * factor)

    def cost(matrix: Any, *others: Any) -> float:
        rows = matrix.shape[-1] if matrix.ndim else 0
        batches = [value for value in (matrix, *others) if value.ndim > 1]
        matrices = max((value.size / max(1, math.prod(value.shape[-2:])) for value in batches), default=0.0)
        right = sum([value.size for value in batches[1:]])
        return 20_000.0 + float(factor * rows * (matrix.size + right) + _COPIED_NS * right + matrix_ns * matrices)

    return cost


# The common part of ops on batches of matrices


def check_batch(*inputs: Any) -> None:
    """Check that inputs are batches of matrices, with one batch shape.

    Raises:
        InvalidArgumentError: they are not.
    """
    first = inputs[0]
    if first.ndim < 2:
        raise errors.InvalidArgumentError(f"Input tensor 0 must have rank >= 2, got {first.ndim}")
    for other in inputs[1:]:
        if other.ndim != first.ndim:
            raise errors.InvalidArgumentError("All input tensors must have the same rank.")
        if other.shape[:-2] != first.shape[:-2]:
            raise errors.InvalidArgumentError("All input tensors must have the same outer dimensions.")


def check_square(matrix: Any, message: str = "Input matrix must be square.") -> None:
    """Raise InvalidArgumentError unless the last two axes are of one size.  The rank is at least 2."""
    if matrix.shape[-1] != matrix.shape[-2]:
        raise errors.InvalidArgumentError(message)


def adjoint_of(matrix: Array) -> Array:
    """Conjugate transpose in the last two axes."""
    return (matrix.conj() if matrix.dtype.kind == "c" else matrix).swapaxes(-1, -2)


def matrices_of(*batches: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the matrices of batches of one batch shape together.  Matrices of an output may be written to.

    A thread checks between matrices whether to go on, since one may take long.
    """
    count = math.prod(batches[0].shape[:-2])
    for matrices in zip(*(batch.reshape((count, *batch.shape[-2:])) for batch in batches), strict=True):
        check_wanted()
        yield matrices


def some_at_a_time(
    xp: Any, function: Callable[..., Any], *batches: Array, elements: int = 0, copies: int = _COPIES
) -> Any:
    """`function` of batches of matrices of one batch shape, some matrices at a time if there are many.

    It announces their scratch, and a thread checks in between whether to go on.

    Args:
        function: returns an array, or a tuple of arrays, with the batch dimensions in front.
        elements: of the largest result for a matrix, if that is more than the matrix has.
        copies: of the matrices that exist meanwhile, besides the results.
    """
    if elements <= _FEW and batches[0].size <= _FEW and batches[-1].size <= _FEW:
        return function(*batches)
    count = math.prod(batches[0].shape[:-2])
    each = max(elements, sum([batch.size for batch in batches]) // max(1, count))
    if count * each <= _TOGETHER:
        return function(*batches)
    together = max(1, _TOGETHER // each)
    announce_scratch(copies * min(together, count) * each * batches[0].itemsize)
    if together >= count or xp is not np:
        return function(*batches)
    batch_shape = batches[0].shape[:-2]
    flat = [batch.reshape(count, *batch.shape[-2:]) for batch in batches]
    results: list[Array] = []
    for start in range(0, count, together):
        check_wanted()
        made = function(*[batch[start : start + together] for batch in flat])
        parts = made if isinstance(made, tuple) else (made,)
        results = results or [np.empty((count, *part.shape[1:]), part.dtype) for part in parts]
        for result, part in zip(results, parts, strict=True):
            result[start : start + together] = part
    whole = [result.reshape(*batch_shape, *result.shape[1:]) for result in results]
    return tuple(whole) if isinstance(made, tuple) else whole[0]


# Solve


@kernel("MatrixSolve", "BatchMatrixSolve", T=LINALG_TYPES, cost=cubic_ns(0.05))
def matrix_solve(c: OpKernelConstruction) -> Compute:
    """Return X of A X = B, or of A^H X = B, for square A."""
    xp, adjoint = c.xp, c.attr("adjoint")
    solve = (lambda a, b: xp.linalg.solve(adjoint_of(a), b)) if adjoint else xp.linalg.solve

    def compute(matrix: Any, rhs: Any) -> Any:
        check_batch(matrix, rhs)
        check_square(matrix, "First input (lhs) must be a square matrix.")
        if matrix.shape[-1] != rhs.shape[-2]:
            raise errors.InvalidArgumentError("Input matrix and rhs are incompatible.")
        if not rhs.size:  # NumPy would loop over all matrices
            return xp.empty(rhs.shape, rhs.dtype)
        if has_nan_pivot(xp, matrix):
            raise errors.InvalidArgumentError(NOT_INVERTIBLE)
        try:
            with raising_of_linalg(xp):
                return some_at_a_time(xp, solve, matrix, rhs, copies=4)
        except np.linalg.LinAlgError:
            raise errors.InvalidArgumentError(NOT_INVERTIBLE) from None

    return compute


def has_nan_pivot(xp: Any, matrix: Any) -> bool:
    """True if elimination in some matrix of the batch starts with NaN, so that all its pivots are NaN.

    TensorFlow calls such a matrix not invertible; NaN elsewhere gives NaN in the result.
    """
    return bool(matrix.size) and bool(xp.isnan(matrix[..., 0, 0]).any())


# Least squares


def _least_squares_scratch(a: Any, b: Any, *_: Any) -> int:
    """Bytes of copies and factors of the matrix, several if it has more columns than rows."""
    return int((9 if a.shape[-2] < a.shape[-1] else 1) * a.nbytes + b.nbytes)


@kernel("MatrixSolveLs", T=LINALG_TYPES, cost=cubic_ns(0.2), needs=SCIPY, scratch=_least_squares_scratch)
@kernel("BatchMatrixSolveLs", T=REAL_TYPES, cost=cubic_ns(0.2), needs=SCIPY, scratch=_least_squares_scratch)
def matrix_solve_ls(c: OpKernelConstruction) -> Compute:
    """Least squares, or the shortest solution of an underdetermined system.

    `fast` solves the normal equations with an L2 regularizer; otherwise a complete orthogonal decomposition handles any
    rank and ignores the regularizer.
    """
    dtype = c.attr("T").base
    solve = _normal_equations(dtype) if c.attr("fast") else _orthogonal_decomposition()

    def compute(matrix: Any, rhs: Any, l2_regularizer: Any) -> Any:
        check_batch(matrix, rhs)
        rows, columns = matrix.shape[-2:]
        if rows != rhs.shape[-2]:
            raise errors.InvalidArgumentError("Input matrix and rhs are incompatible.")
        if l2_regularizer.ndim:
            raise errors.InvalidArgumentError(
                f"l2_regularizer must be scalar, got shape {shape_text(l2_regularizer.shape)}"
            )
        l2 = float(l2_regularizer)
        if not l2 >= 0:
            raise errors.InvalidArgumentError("l2_regularizer must be >= 0.")
        if not (matrix.size and rhs.size):
            return np.zeros((*matrix.shape[:-2], columns, rhs.shape[-1]), dtype.np)
        return solve(matrix, rhs, l2)

    return compute


def _normal_equations(dtype: DType) -> Compute:
    triangular = triangular_solver()

    def solve(matrix: Array, rhs: Array, l2: float) -> Array:
        rows, columns = matrix.shape[-2:]
        adjoint = adjoint_of(matrix)
        tall = rows >= columns
        gramian = adjoint @ matrix if tall else matrix @ adjoint
        gramian += np.eye(gramian.shape[-1], dtype=matrix.dtype) * dtype.np.type(l2)
        try:
            factor = np.linalg.cholesky(gramian)
        except np.linalg.LinAlgError:
            remedy = "a larger" if tall else "an"
            raise errors.InvalidArgumentError(
                "Input matrix was rank deficient or ill-conditioned. "
                f"Try setting fast=False or provide {remedy} l2_regularizer > 0."
            ) from None
        half = triangular(factor, adjoint @ rhs if tall else rhs, lower=True)
        solution = triangular(factor, half, lower=True, adjoint=True)
        return solution if tall else adjoint @ solution

    return solve


def _orthogonal_decomposition() -> Compute:
    def solve(matrix: Array, rhs: Array, _l2: float) -> Array:
        solution = np.zeros((*matrix.shape[:-2], matrix.shape[-1], rhs.shape[-1]), matrix.dtype)
        cutoff = np.finfo(matrix.dtype).eps * min(matrix.shape[-2:])
        for a, b, x in matrices_of(matrix, rhs, solution):
            # With NaN no column counts as independent: the solution is zero.
            if np.isfinite(a).all():
                x[...] = shortest_least_squares(a, b, cutoff)
        return solution

    return solve


# Triangular systems


def triangular_solver(xp: Any = np) -> Callable[..., Array]:
    """Return a function (a, b, lower=, adjoint=) → X of a X = b, for triangular a, with broadcasting batches.

    Only one triangle of a is read.  Zeros on the diagonal give inf and NaN, no error.
    """
    if xp is not np:
        return partial(_solve_on_device, xp, scipy_of(xp, "linalg").solve_triangular)

    def solve(a: Array, b: Array, *, lower: bool, adjoint: bool = False) -> Array:
        if not b.size:
            return np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)
        if a.ndim == b.ndim == 2:
            return solve_triangle(a, b, lower=lower, adjoint=adjoint)
        a, b = _broadcast_batches(a, b)
        x = np.empty(b.shape, b.dtype)
        for one_a, one_b, one_x in matrices_of(a, b, x):
            one_x[...] = solve_triangle(one_a, one_b, lower=lower, adjoint=adjoint)
        return x

    return solve


def _solve_on_device(xp: Any, solve: Callable[..., Any], a: Any, b: Any, *, lower: bool, adjoint: bool = False) -> Any:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not b.size or 0 in batch:
        return xp.empty((*batch, *b.shape[-2:]), b.dtype)
    a, b = (xp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return xp.ascontiguousarray(solve(a, b, trans=2 if adjoint else 0, lower=lower))


def _broadcast_batches(a: Array, b: Array) -> tuple[Array, Array]:
    """a and b with one batch shape."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    return a, b


def _check_ranks(matrix: Any, rhs: Any) -> None:
    for i, operand in enumerate((matrix, rhs)):
        if operand.ndim < 2:
            raise errors.InvalidArgumentError(f"In[{i}] ndims must be >= 2: {operand.ndim}")


def _check_broadcast(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> None:
    try:
        np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    except ValueError:
        raise errors.InvalidArgumentError(
            "In[0] and In[1] must have compatible batch dimensions: "
            f"{shape_text(matrix.shape)} vs. {shape_text(rhs.shape)}"
        ) from None
    if matrix.shape[-1] != rhs.shape[-2]:
        raise errors.InvalidArgumentError(
            f"In[0] mismatch In[1] shape: {matrix.shape[-1]} vs. {rhs.shape[-2]}: "
            f"{shape_text(matrix.shape)} {shape_text(rhs.shape)} {lower:d} {adjoint:d}"
        )


def _triangular_scratch(matrix: Any, rhs: Any) -> int:
    """Bytes of the solution of one system, which is copied to the batch."""
    return int(math.prod(rhs.shape[-2:]) * rhs.itemsize) if max(matrix.ndim, rhs.ndim) > 2 else 0


@kernel(
    "MatrixTriangularSolve",
    "BatchMatrixTriangularSolve",
    T=LINALG_TYPES,
    cost=cubic_ns(0.03),
    needs=SCIPY,
    scratch=_triangular_scratch,
)
def matrix_triangular_solve(c: OpKernelConstruction) -> Compute:
    """Return X of A X = B, or of A^H X = B, for triangular A; batches broadcast."""
    lower, adjoint = c.attr("lower"), c.attr("adjoint")
    solve = triangular_solver(c.xp)

    def compute(matrix: Any, rhs: Any) -> Any:
        _check_ranks(matrix, rhs)
        rows, columns = matrix.shape[-2:]
        if rows != columns:
            raise errors.InvalidArgumentError(
                f"In[0] matrices in the last dimensions must be square ({columns} =/= {rows})"
            )
        _check_broadcast(matrix, rhs, lower, adjoint)
        return solve(matrix, rhs, lower=lower, adjoint=adjoint)

    return compute


def _banded_scratch(bands: Any, rhs: Any) -> int:
    """Bytes of the bands of one matrix in LAPACK's order, and of some right-hand sides."""
    rows, columns = rhs.shape[-2:]
    numbers = 2 * math.prod(bands.shape[-2:]) + 3 * rows * min(columns, max(1, _AT_ONCE // rows))
    return int(numbers * rhs.itemsize)


def _banded_ns(*operands: Any) -> float:
    matrices = max(math.prod(value.shape[:-2]) for value in operands)
    return float(_BANDED_NS * matrices + _COPIED_NS * sum([value.size for value in operands]))


@kernel("BandedTriangularSolve", T=LINALG_TYPES, cost=_banded_ns, needs=SCIPY, scratch=_banded_scratch)
def banded_triangular_solve(c: OpKernelConstruction) -> Compute:
    """Like MatrixTriangularSolve, for a matrix given by its bands.

    Row i of the input is the band i below the main diagonal (`lower`), or the band K-1-i above it; an entry's column is
    that of its row in the matrix.
    """
    from scipy.linalg import lapack

    dtype = c.attr("T").base
    lower, adjoint, allocate = c.attr("lower"), c.attr("adjoint"), allocator(c)
    tbtrs = getattr(lapack, PREFIX[dtype.np.name] + "tbtrs")
    # Flipped, the bands are LAPACK's storage of the transpose, whose triangle is the other one.
    uplo, trans = "U" if lower else "L", "N" if adjoint else "T"

    def solve_one(bands: Array, rhs: Array) -> Array:
        if not np.fmin.reduce(np.abs(bands[0 if lower else -1])) > 0:
            raise errors.InvalidArgumentError(NOT_INVERTIBLE)
        x: Array
        x, _ = tbtrs(bands[::-1], rhs.conj() if adjoint else rhs, uplo=uplo, trans=trans)
        return x.conj() if adjoint else x

    def compute(bands: Any, rhs: Any) -> Any:
        _check_ranks(bands, rhs)
        for i, operand in enumerate((bands, rhs)):
            if not operand.size:
                raise errors.InvalidArgumentError(
                    f"In[{i}] must not be an empty tensor: Tensor<type: {dtype} "
                    f"shape: {shape_text(operand.shape)} values: >"
                )
        _check_broadcast(bands, rhs, lower, adjoint)
        # Drop bands that lie completely outside of the matrix.
        inside = min(bands.shape[-2:])
        bands, rhs = _broadcast_batches(
            bands[..., :inside, :] if lower else bands[..., bands.shape[-2] - inside :, :], rhs
        )
        x = allocate(rhs.shape)
        step = max(1, _AT_ONCE // rhs.shape[-2])
        for one_bands, one_rhs, one_x in matrices_of(bands, rhs, x):
            for start in giving_way(range(0, rhs.shape[-1], step), _COPIED_NS * step * rhs.shape[-2]):
                some = (slice(None), slice(start, start + step))
                one_x[some] = solve_one(one_bands, one_rhs[some])
        return x

    return compute


# Tridiagonal systems


def _of_last(*inputs: Any) -> int:
    """Bytes of the last input."""
    return int(inputs[-1].nbytes)


@kernel("TridiagonalMatMul", T=LINALG_TYPES, cost=5.0, scratch=_of_last)
def tridiagonal_mat_mul(c: OpKernelConstruction) -> Compute:
    """Product of tridiagonal matrices, given by three rows each, and dense ones."""

    def compute(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
        check_batch(superdiag, maindiag, subdiag, rhs)
        for name, diagonal in (
            ("superdiagonal", superdiag),
            ("main diagonal", maindiag),
            ("subdiagonal", subdiag),
        ):
            if diagonal.shape[-2:] != (1, rhs.shape[-2]):
                raise errors.InvalidArgumentError(f"Invalid {name} shape.")
        upper, main, lower = (d.swapaxes(-1, -2) for d in (superdiag, maindiag, subdiag))
        product = main * rhs
        product[..., :-1, :] += upper[..., :-1, :] * rhs[..., 1:, :]
        product[..., 1:, :] += lower[..., 1:, :] * rhs[..., :-1, :]
        return product

    return compute


def _tridiagonal_cost(attrs: Mapping[str, Any]) -> Callable[..., float]:
    """By elements, and by the iterations of the Python loop: rows of each matrix, rows of all at once, or matrices."""
    pivoting, perturb = attrs["partial_pivoting"], attrs["perturb_singular"]

    def cost(diagonals: Any, rhs: Any) -> float:
        rows = diagonals.shape[-1] if diagonals.ndim else 0
        matrices = math.prod(diagonals.shape[:-2])
        steps = matrices * rows if perturb else matrices if pivoting else rows
        return float(20.0 * (diagonals.size + rhs.size) + _STEP_NS * steps)

    return cost


@kernel("TridiagonalSolve", T=LINALG_TYPES, cost=AttrCost(_tridiagonal_cost), needs=SCIPY, scratch=16)
def tridiagonal_solve(c: OpKernelConstruction) -> Compute:
    """Return X of T X = B for tridiagonal T, given as rows superdiagonal, diagonal, subdiagonal.

    The last element of the first row and the first one of the last are not used. A singular matrix gives NaN (in
    TensorFlow 0, if it is complex); with `perturb_singular` its pivots are moved away from zero.
    """
    pivoting, perturb = c.attr("partial_pivoting"), c.attr("perturb_singular")
    if perturb and not pivoting:
        raise errors.InvalidArgumentError("Setting perturb_singular requires also setting partial_pivoting.")
    xp = c.xp
    solve_one = _solve_perturbed if perturb else _pivoted_solver(c.attr("T").base)

    def solve_each(diagonals: Any, rhs: Any) -> Any:
        x = np.empty(rhs.shape, rhs.dtype)
        for one_diagonals, one_rhs, one_x in matrices_of(diagonals, rhs, x):
            one_x[...] = solve_one(one_diagonals, one_rhs)
        return x

    def compute(diagonals: Any, rhs: Any) -> Any:
        check_batch(diagonals, rhs)
        count, size = diagonals.shape[-2:]
        if count != 3:
            raise errors.InvalidArgumentError(
                f"Expected diagonals to be provided as a matrix with 3 rows, got {count} rows."
            )
        if size != rhs.shape[-2]:
            raise errors.InvalidArgumentError(
                f"Expected the same number of left-hand sides and right-hand sides, got {size} and {rhs.shape[-2]}."
            )
        if not rhs.size:
            return xp.empty(rhs.shape, rhs.dtype)
        if not pivoting:
            return _thomas(xp, diagonals, rhs)
        if xp is np:
            return solve_each(diagonals, rhs)
        if perturb:  # it works on single numbers, which does not suit a device
            return xp.asarray(solve_each(diagonals.get(), rhs.get()))
        return _pivoted(xp, diagonals, rhs)

    return compute


def _pivoted_solver(dtype: DType) -> Callable[[Array, Array], Any]:
    from scipy.linalg import lapack

    gtsv = getattr(lapack, PREFIX[dtype.np.name] + "gtsv")

    def solve(diagonals: Array, rhs: Array) -> Any:
        upper, main, lower = diagonals
        if len(main) == 1:
            return rhs / main if main[0] else np.nan
        *_, x, info = gtsv(lower[1:], main, upper[:-1], rhs)
        return np.nan if info else x

    return solve


def _rows_first(xp: Any, diagonals: Any, rhs: Any) -> tuple[Any, Any, Any, Any]:
    """Upper, main and lower diagonal [rows, ..., 1], and the right-hand sides [rows, ..., n]."""
    upper, main, lower = xp.moveaxis(xp.moveaxis(diagonals, -2, 0), -1, 1)[..., None]
    return upper, main, lower, xp.moveaxis(rhs, -2, 0)


def _pivoted(xp: Any, diagonals: Any, rhs: Any) -> Any:
    """Elimination with row exchanges, as LAPACK's xGTSV, for all matrices of the batch at once."""
    upper, main, lower, b = _rows_first(xp, diagonals, rhs)
    n = len(main)
    # The pivot row: its diagonal element, the two beside it, and its right-hand side.
    row = (main[0], upper[0], xp.zeros_like(main[0]), b[0])
    done, singular = [], xp.zeros(main[0].shape, bool)
    for i in range(1, n):
        below = (lower[i], main[i], upper[i] if i < n - 1 else xp.zeros_like(main[0]), b[i])
        swapped = _size(xp, below[0]) > _size(xp, row[0])
        row = (row[0], row[1], xp.zeros_like(main[0]), row[3])
        pivot = [xp.where(swapped, *pair) for pair in zip(below, row, strict=True)]
        other = [xp.where(swapped, *pair) for pair in zip(row, below, strict=True)]
        factor = other[0] / pivot[0]
        done.append(pivot)
        singular |= pivot[0] == 0
        row = (other[1] - factor * pivot[1], other[2] - factor * pivot[2], pivot[2], other[3] - factor * pivot[3])
    singular |= row[0] == 0
    x = xp.empty(b.shape, b.dtype)
    x[n - 1] = row[3] / row[0]
    for i in reversed(range(n - 1)):
        diagonal, first, second, value = done[i]
        value = value - first * x[i + 1]
        x[i] = (value - second * x[i + 2] if i + 2 < n else value) / diagonal
    return xp.moveaxis(xp.where(singular, x.dtype.type(np.nan), x), 0, -2)


def _size(xp: Any, x: Any) -> Any:
    """The size by which LAPACK compares pivots."""
    return xp.abs(x.real) + xp.abs(x.imag) if x.dtype.kind == "c" else xp.abs(x)


def _thomas(xp: Any, diagonals: Array, rhs: Array) -> Array:
    """Elimination without pivoting (Thomas's algorithm), for all matrices of the batch at once."""
    upper, main, lower, b = _rows_first(xp, diagonals, rhs)
    x = xp.empty(b.shape, b.dtype)
    ratio = xp.empty(main.shape, b.dtype)
    singular = main[0] == 0
    ratio[0], x[0] = upper[0] / main[0], b[0] / main[0]
    for i in range(1, len(main)):
        pivot = main[i] - lower[i] * ratio[i - 1]
        singular |= pivot == 0
        ratio[i] = upper[i] / pivot
        x[i] = (b[i] - lower[i] * x[i - 1]) / pivot
    for i in range(len(main) - 2, -1, -1):
        x[i] -= ratio[i] * x[i + 1]
    solution: Array = xp.moveaxis(xp.where(singular, x.dtype.type(np.nan), x), 0, -2)
    return solution


def _solve_perturbed(diagonals: Array, rhs: Array) -> Array:
    """Elimination with row exchanges that perturbs small pivots (LAPACK's xLAGTF and xLAGTS, job -1)."""
    upper, main, lower = diagonals
    n = len(main)
    x = np.array(rhs)
    # Rows of the upper triangular factor: its diagonal and the two next to it.
    u0, u1, u2 = np.array(main), np.array(upper), np.zeros_like(main)
    largest = max(abs(u0[0]), abs(u1[0]) if n > 1 else 0)
    scale = abs(u0[0]) + (abs(u1[0]) if n > 1 else 0)
    for k in range(n - 1):
        below = lower[k + 1]
        last = k == n - 2
        scale_below = abs(below) + abs(main[k + 1]) + (0 if last else abs(upper[k + 1]))
        if below == 0:
            scale = scale_below
        elif abs(below) / scale_below <= (abs(u0[k]) / scale if u0[k] else 0):
            factor = below / u0[k]
            u0[k + 1] -= factor * u1[k]
            x[k + 1] -= factor * x[k]
            scale = scale_below
        else:
            factor = u0[k] / below
            u0[k], u0[k + 1], u1[k] = below, u1[k] - factor * main[k + 1], main[k + 1]
            if not last:
                u2[k], u1[k + 1] = upper[k + 1], -factor * upper[k + 1]
            moved_up = x[k + 1].copy()
            x[k + 1] = x[k] - factor * moved_up
            x[k] = moved_up
        if not last:
            largest = max(largest, abs(u0[k]), abs(u1[k]), abs(u2[k]))
    tolerance = np.finfo(x.dtype).eps * max(largest, abs(u0[-1]))
    for k in range(n - 1, -1, -1):
        row = x[k].copy()
        if k + 1 < n:
            row -= u1[k] * x[k + 1]
        if k + 2 < n:
            row -= u2[k] * x[k + 2]
        pivot, row = _perturbed_pivot(u0[k], row, tolerance)
        x[k] = row * (1 / pivot)
    return x


def _perturbed_pivot(pivot: Any, row: Array, tolerance: Any) -> tuple[Any, Array]:
    """(pivot, row) such that neither 1 / pivot nor row / pivot overflows."""
    smallest = np.finfo(row.dtype).tiny
    biggest = 1 / smallest
    step = np.copysign(max(tolerance, smallest), pivot.real)
    limit = np.abs(row).max()
    while abs(pivot) < 1:
        size = abs(pivot)
        if size < smallest and size > 0 and limit * smallest <= size:
            return pivot * biggest, row * biggest
        if size >= smallest and limit <= size * biggest:
            break
        pivot = pivot + step
        step = step * 2
    return pivot, row
