"""Shape functions of `linalg_ops`: batches of matrices, diagonals."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import broadcast_shape
from aexec.framework.shape_functions.shape_inference import (
    Array,
    Dimension,
    DimensionOrConstant,
    InferenceContext,
    Shape,
    ShapeFn,
)


def _matrices(c: InferenceContext, index: int) -> tuple[Shape, Shape]:
    """An input of at least rank 2, and its batch dimensions."""
    shape = c.with_rank_at_least(c.input(index), 2)
    return shape, c.subshape(shape, 0, -2)


def _square(c: InferenceContext, index: int) -> tuple[Shape, Dimension]:
    """Batch dimensions of an input, and the size of its square matrices."""
    shape, batch = _matrices(c, index)
    return batch, c.merge_dims(c.dim(shape, -2), c.dim(shape, -1))


def square_matrices(c: InferenceContext) -> None:
    """Input 0, batches of square matrices."""
    batch, size = _square(c, 0)
    c.set_output(0, c.concatenate(batch, c.matrix(size, size)))


def determinant(c: InferenceContext) -> None:
    """Batch dimensions of square matrices, for each output."""
    shape, batch = _matrices(c, 0)
    c.merge_dims(c.dim(shape, -1), c.dim(shape, -2))
    for index in range(c.num_outputs):
        c.set_output(index, batch)


def _solve(*, square: bool) -> ShapeFn:
    """x of `lhs x = rhs`; batch dimensions are equal."""

    def shape_fn(c: InferenceContext) -> None:
        lhs, batch = _matrices(c, 0)
        rows, columns = c.dim(lhs, -2), c.dim(lhs, -1)
        if square:
            rows = columns = c.merge_dims(rows, columns)
        rhs, rhs_batch = _matrices(c, 1)
        if not square:
            c.with_rank(c.input(2), 0)
        batch = c.merge(batch, rhs_batch)
        rows = c.merge_dims(rows, c.dim(rhs, -2))
        if square:
            columns = c.merge_dims(rows, columns)
        c.set_output(0, c.concatenate(batch, c.matrix(columns, c.dim(rhs, -1))))

    return shape_fn


solve_square = _solve(square=True)
solve_least_squares = _solve(square=False)


def triangular_solve(c: InferenceContext) -> None:
    """x of `lhs x = rhs`; batch dimensions are broadcast."""
    batch, size = _square(c, 0)
    rhs, rhs_batch = _matrices(c, 1)
    both = broadcast_shape(c, batch, rhs_batch)
    size = c.merge_dims(size, c.dim(rhs, -2))
    c.set_output(0, c.concatenate(both, c.matrix(size, c.dim(rhs, -1))))


def banded_triangular_solve(c: InferenceContext) -> None:
    """x of `lhs x = rhs`, lhs given as bands."""
    lhs, batch = _matrices(c, 0)
    rhs, rhs_batch = _matrices(c, 1)
    bands, size = c.dim(lhs, -2), c.dim(lhs, -1)
    if bands.value is not None and bands.value <= 0:
        raise errors.InvalidArgumentError(f"Number of bands must be positive, but is {bands}")
    if bands.value is not None and size.value is not None and bands.value > size.value:
        raise errors.InvalidArgumentError(f"Number of bands {bands} cannot exceed the size of the matrix {size}")
    both = broadcast_shape(c, batch, rhs_batch)
    size = c.merge_dims(size, c.dim(rhs, -2))
    c.set_output(0, c.concatenate(both, c.matrix(size, c.dim(rhs, -1))))


def tridiagonal_mat_mul(c: InferenceContext) -> None:
    """The shape of rhs, input 3; inputs 0 to 2 are the diagonals, [..., 1, m]."""
    diagonals = [c.with_rank_at_least(c.input(i), 2) for i in range(3)]
    rhs, batch = _matrices(c, 3)
    diagonal = c.merge(c.merge(diagonals[0], diagonals[1]), diagonals[2])
    c.merge(c.subshape(diagonal, 0, -2), batch)
    c.merge_dims(c.dim(diagonal, -1), c.dim(rhs, -2))
    c.with_value(c.dim(diagonal, -2), 1)
    c.set_output(0, rhs)


def tridiagonal_solve(c: InferenceContext) -> None:
    """The shape of rhs, input 1; input 0 holds three diagonals."""
    lhs, batch = _matrices(c, 0)
    rhs, rhs_batch = _matrices(c, 1)
    c.merge(batch, rhs_batch)
    c.merge_dims(c.dim(lhs, -1), c.dim(rhs, -2))
    c.with_value(c.dim(lhs, -2), 3)
    c.set_output(0, rhs)


def lu(c: InferenceContext) -> None:
    """Factors in one matrix, and a permutation."""
    batch, size = _square(c, 0)
    c.set_output(0, c.concatenate(batch, c.matrix(size, size)))
    c.set_output(1, c.concatenate(batch, c.vector(size)))


def qr(c: InferenceContext) -> None:
    """q and r, full or economical."""
    shape, batch = _matrices(c, 0)
    rows, columns = c.dim(shape, -2), c.dim(shape, -1)
    inner = rows if c.attr("full_matrices") else c.minimum(columns, rows)
    c.set_output(0, c.concatenate(batch, c.matrix(rows, inner)))
    c.set_output(1, c.concatenate(batch, c.matrix(inner, columns)))


def svd(c: InferenceContext) -> None:
    """Singular values, and u and v (vectors without elements if no attr asks for them)."""
    shape, batch = _matrices(c, 0)
    rows, columns = c.dim(shape, -2), c.dim(shape, -1)
    inner = c.minimum(columns, rows)
    c.set_output(0, c.concatenate(batch, c.vector(inner)))
    if not c.attr("compute_uv"):
        c.set_output(1, c.vector(0))
        c.set_output(2, c.vector(0))
        return
    full = c.attr("full_matrices")
    c.set_output(1, c.concatenate(batch, c.matrix(rows, rows if full else inner)))
    c.set_output(2, c.concatenate(batch, c.matrix(columns, columns if full else inner)))


def eigen(c: InferenceContext) -> None:
    """Eigenvalues, and eigenvectors (a vector without elements if no attr asks for them)."""
    batch, size = _square(c, 0)
    c.set_output(0, c.concatenate(batch, c.vector(size)))
    c.set_output(1, c.concatenate(batch, c.matrix(size, size)) if c.attr("compute_v") else c.vector(0))


def eigen_stacked(c: InferenceContext) -> None:
    """Eigenvalues on top of eigenvectors."""
    batch, size = _square(c, 0)
    c.set_output(0, c.concatenate(batch, c.matrix(c.add(size, 1), size)))


# Diagonals


def diag(c: InferenceContext) -> None:
    """The dimensions of input 0, twice."""
    shape = c.with_rank_at_least(c.input(0), 1)
    c.set_output(0, c.concatenate(shape, shape))


def diag_part(c: InferenceContext) -> None:
    """Half of the dimensions; the other half is equal."""
    shape = c.input(0)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    rank = len(shape.dims)
    if rank % 2 or not rank:
        raise errors.InvalidArgumentError(f"Input must have even and non-zero rank, input rank is {rank}")
    half = rank // 2
    c.set_output(0, c.make_shape(map(c.merge_dims, shape.handles[:half], shape.handles[half:])))


def matrix_diag(c: InferenceContext) -> None:
    """Input 0 with its last dimension repeated."""
    shape = c.with_rank_at_least(c.input(0), 1)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
    else:
        c.set_output(0, c.make_shape([*shape.handles, shape.handles[-1]]))


def matrix_diag_part(c: InferenceContext) -> None:
    """Input 0 with the smaller of its last two dimensions in place of both."""
    shape = c.with_rank_at_least(c.input(0), 2)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
    else:
        c.set_output(0, c.make_shape([*shape.handles[:-2], c.minimum(shape.handles[-2], shape.handles[-1])]))


def matrix_set_diag(c: InferenceContext) -> None:
    """Input 0; input 1 is its diagonal."""
    shape = c.with_rank_at_least(c.input(0), 2)
    diagonal = c.with_rank_at_least(c.input(1), 1)
    if shape.dims is not None:
        diagonal = c.with_rank(c.input(1), len(shape.dims) - 1)
    c.merge_dims(c.minimum(c.dim(shape, -2), c.dim(shape, -1)), c.dim(diagonal, -1))
    if diagonal.dims is not None and not shape.is_fully_defined:
        wanted = c.concatenate(c.subshape(diagonal, 0, -1), c.unknown_shape_of_rank(2))
        shape = c.merge(shape, wanted)
    c.set_output(0, shape)


def _diag_range(value: Array) -> tuple[int, int]:
    """Lowest and highest diagonal."""
    bounds = value.reshape(-1).tolist()
    if len(bounds) not in (1, 2):
        raise errors.InvalidArgumentError(
            f"diag_index must be a vector with one or two elements. It has {len(bounds)} elements."
        )
    if bounds[0] > bounds[-1]:
        raise errors.InvalidArgumentError("lower_diag_index is greater than upper_diag_index")
    return bounds[0], bounds[-1]


def _check_diag_bounds(lower: int, upper: int, rows: int, columns: int) -> None:
    for name, index in (("lower", lower), ("upper", upper)):
        # 0 is right for matrices without elements, too.
        if index != 0 and not -rows < index < columns:
            raise errors.InvalidArgumentError(f"{name}_diag_index is out of bound.")


def matrix_diag_part_v2(c: InferenceContext) -> None:
    """[..., diagonals, longest] of input 0; input 1 selects the diagonals."""
    shape = c.with_rank_at_least(c.input(0), 2)
    index_shape = c.with_rank_at_most(c.input(1), 1)
    c.with_rank(c.input(2), 0)
    index = c.input_tensor(1)
    if shape.dims is None or not index_shape.is_fully_defined or index is None:
        c.set_output(0, c.unknown_shape())
        return
    lower, upper = _diag_range(index)
    rows, columns = shape.dims[-2:]
    longest = None
    if rows is not None and columns is not None:
        _check_diag_bounds(lower, upper, rows, columns)
        longest = min(rows + min(upper, 0), columns - max(lower, 0))
    count = [upper - lower + 1] if lower < upper else []
    c.set_output(0, c.make_shape([*shape.handles[:-2], *count, longest]))


def matrix_diag_v2(c: InferenceContext) -> None:
    """Matrices with the diagonals of input 0; inputs 1 to 4: which, rows, columns, padding."""
    shape = c.with_rank_at_least(c.input(0), 1)
    index_shape = c.with_rank_at_most(c.input(1), 1)
    for i in (2, 3, 4):
        c.with_rank(c.input(i), 0)
    index = c.input_tensor(1)
    if shape.dims is None or not index_shape.is_fully_defined or index is None:
        c.set_output(0, c.unknown_shape())
        return
    lower, upper = _diag_range(index)
    if lower < upper:
        _check_diag_count(shape, lower, upper)
    rows, columns = (None if v is None else int(v) for v in (c.input_tensor(2), c.input_tensor(3)))
    longest = shape.dims[-1]
    sizes: tuple[int | None, int | None] = (None, None)
    if longest is not None:
        sizes = _matrix_size(lower, upper, longest, -1 if rows is None else rows, -1 if columns is None else columns)
    batch = shape.handles[: -1 if lower == upper else -2]
    c.set_output(0, c.make_shape([*batch, *sizes]))


def _check_diag_count(shape: Shape, lower: int, upper: int) -> None:
    dims = shape.dims or ()
    count = dims[len(dims) - 2]
    if count is not None and count != upper - lower + 1:
        raise errors.InvalidArgumentError(
            "The number of rows of `diagonal` doesn't match the number of diagonals implied from `d_lower` and "
            f"`d_upper`.\nnum_diags = {count}, d_lower = {lower}, d_upper = {upper} {len(dims)} {dims[-1]}"
        )


def _matrix_size(lower: int, upper: int, longest: int, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns; -1 in an argument stands for the smallest that hold the diagonals, square if both are -1."""
    min_rows, min_columns = longest - min(upper, 0), longest + max(lower, 0)
    if rows == columns == -1:
        rows = columns = max(min_rows, min_columns)
    rows = min_rows if rows == -1 else rows
    columns = min_columns if columns == -1 else columns
    if rows < min_rows:
        raise errors.InvalidArgumentError("num_rows is too small")
    if columns < min_columns:
        raise errors.InvalidArgumentError("num_cols is too small.")
    if rows != min_rows and columns != min_columns:
        raise errors.InvalidArgumentError(
            "num_rows and num_cols are not consistent with lower_diag_index, upper_diag_index, and the length of "
            f"the given diagonals.\nnum_rows = {rows} != min_num_rows = {min_rows}, "
            f"num_cols = {columns} != min_num_cols = {min_columns}"
        )
    return rows, columns


def matrix_set_diag_v2(c: InferenceContext) -> None:
    """Input 0; input 1 has its diagonals, input 2 selects them."""
    shape = c.with_rank_at_least(c.input(0), 2)
    diagonal = c.with_rank_at_least(c.input(1), 1)
    index_shape = c.with_rank_at_most(c.input(2), 1)
    lower = upper = 0
    index = c.input_tensor(2)
    known = index is not None and index_shape.is_fully_defined
    if index is not None and known:
        lower, upper = _diag_range(index)
    if shape.dims is not None:
        rank = len(shape.dims)
        if known:
            diagonal = c.with_rank(c.input(1), rank - 1 if lower == upper else rank)
        else:
            diagonal = c.with_rank_at_most(c.with_rank_at_least(c.input(1), rank - 1), rank)
        rows, columns = shape.dims[-2:]
        if rows is not None and columns is not None:
            _check_diag_bounds(lower, upper, rows, columns)
    if diagonal.dims is not None and not shape.is_fully_defined:
        prefix = c.subshape(diagonal, 0, -1 if lower == upper else -2)
        wanted: list[DimensionOrConstant] = [*prefix.handles, None, None]
        shape = c.merge(shape, c.make_shape(wanted))
    c.set_output(0, shape)
