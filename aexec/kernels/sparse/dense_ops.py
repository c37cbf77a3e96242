"""Sparse tensors together with dense ones: products, sums, and writing a sparse one into a dense one.

Next to read: `math_ops.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.shape import shape_text
from aexec.kernels.common import scattering
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import scipy_of
from aexec.kernels.common.registration import INDEX
from aexec.kernels.math.reduction_ops import accumulation_type, truncating_divide
from aexec.kernels.sparse import sparse_tensors as sparse

__all__: list[str] = []

# The highest rank for which TensorFlow has code.
_MAX_RANK = 5


# ---- SparseToDense

_TO_DENSE = (
    *dtypes.NUMBER,
    dtypes.bool_,
    dtypes.string,
    *(t for t in dtypes.QUANTIZED if t is not dtypes.qint32),
)


@kernel("SparseToDense", T=_TO_DENSE, Tindices=INDEX, cost=PerOutput(4.0))
def sparse_to_dense(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, filled with a default value, with other values at some positions."""
    xp, validates, allocate = c.xp, c.attr("validate_indices"), allocator(c)

    def check(indices: Any, shape: Any, values: Any, default: Any) -> None:
        if indices.ndim > 2:
            raise errors.InvalidArgumentError(
                f"sparse_indices should be a scalar, vector, or matrix, got shape {shape_text(indices.shape)}"
            )
        count, rank = indices.shape[0] if indices.ndim else 1, indices.shape[1] if indices.ndim > 1 else 1
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(f"output_shape must be rank 1, got shape {shape_text(shape.shape)}")
        if shape.size != rank:
            raise errors.InvalidArgumentError(
                f"output_shape has incorrect number of elements: {shape.size} should be: {rank}"
            )
        if values.shape not in ((), (count,)):
            raise errors.InvalidArgumentError(
                f"sparse_values has incorrect shape {shape_text(values.shape)}, should be [] or [{count}]"
            )
        if default.ndim:
            raise errors.InvalidArgumentError("default_value should be a scalar.")

    def compute(indices: Any, shape: Any, values: Any, default: Any) -> Any:
        check(indices, shape, values, default)
        dims = shape.tolist()
        result = allocate(dims)
        result[...] = default
        rows = indices.reshape(-1, shape.size)
        positions = (sparse.check_order if validates else sparse.flat_positions)(rows, dims, xp)
        if positions is None:
            raise errors.InvalidArgumentError(f"Indices are not valid (out of bounds).  Shape: {shape_text(dims)}")
        result.reshape(-1)[positions] = values
        return result

    return compute


# ---- SparseTensorDenseMatMul


def _product_cost(indices: Any, values: Any, shape: Any, dense: Any) -> float:
    """Half a nanosecond for each product of an entry and an element of a row."""
    return 0.5 * float(np.size(values) * (np.shape(dense)[-1] if np.ndim(dense) else 1))


def _check_product(indices: Any, values: Any, shape: Any, dense: Any) -> None:
    for array, rank, name in (
        (dense, 2, "b"),
        (shape, 1, "a_shape"),
        (values, 1, "a_values"),
        (indices, 2, "a_indices"),
    ):
        if array.ndim != rank:
            raise errors.InvalidArgumentError(f"Tensor '{name}' is not a {'matrix' if rank == 2 else 'vector'}")
    if shape.size != 2:
        raise errors.InvalidArgumentError("Tensor 'a_shape' must have 2 elements")
    if values.size != len(indices):
        raise errors.InvalidArgumentError("Number of rows of a_indices does not match number of entries in a_values")
    if indices.shape[1] != 2:
        raise errors.InvalidArgumentError("Number of columns of a_indices does not match number of entries in a_shape")


@kernel(
    "SparseTensorDenseMatMul",
    T=(*dtypes.FLOAT, *dtypes.COMPLEX, dtypes.int32),
    Tindices=INDEX,
    host_memory=("a_shape",),
    cost=_product_cost,
    needs=("scipy.sparse",),
    scratch=16,
)
def sparse_dense_matmul(c: OpKernelConstruction) -> Compute:
    """Return the product of a sparse matrix and a dense one, each optionally conjugated and transposed first."""
    xp, out, work, allocate = c.xp, c.attr("T").np, accumulation_type(c.attr("T")), allocator(c)
    adjoint_a, adjoint_b = c.attr("adjoint_a"), c.attr("adjoint_b")

    def check_entries(rows: Any, columns: Any, count: int, inner: int) -> None:
        wrong = ((rows < 0) | (rows >= count) | (columns < 0) | (columns >= inner)).nonzero()[0]
        if not wrong.size:
            return
        at, row, column = int(wrong[0]), int(rows[wrong[0]]), int(columns[wrong[0]])
        if not 0 <= column < inner:
            what, index, place, limit = "k", column, 0 if adjoint_a else 1, inner
        else:
            what, index, place, limit = "m", row, 1 if adjoint_a else 0, count
        raise errors.InvalidArgumentError(f"{what} ({index}) from index[{at},{place}] out of bounds (>={limit})")

    def compute(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        _check_product(indices, values, shape, dense)
        count, inner = shape.tolist()[:: -1 if adjoint_a else 1]
        b = xp.conj(dense.T) if adjoint_b else dense
        if inner != b.shape[0]:
            raise errors.InvalidArgumentError(
                f"Cannot multiply A and B because inner dimension does not match: {inner} vs. {b.shape[0]}.  "
                f"Did you forget a transpose?  Dimensions of A: [{shape[0]}, {shape[1]}).  "
                f"Dimensions of B: {shape_text(dense.shape)}"
            )
        sparse.check_shape(shape.tolist())
        rows, columns = indices.T[:: -1 if adjoint_a else 1]
        result = allocate((count, b.shape[1]), xp.zeros)
        check_entries(rows, columns, count, inner)
        if not values.size or not result.size:
            return result
        a = values.astype(work, copy=False)
        entries = xp.conj(a) if adjoint_a else a, (rows, columns)
        matrix = scipy_of(xp, "sparse").coo_matrix(entries, shape=(count, inner)).tocsr()
        return xp.ascontiguousarray(matrix @ b.astype(work, copy=False)).astype(out, copy=False)

    return compute


# ---- SparseTensorDenseAdd


@kernel("SparseTensorDenseAdd", T=dtypes.NUMBER, Tindices=INDEX, cost=2.0)
def sparse_dense_add(c: OpKernelConstruction) -> Compute:
    """Return the dense tensor plus the entries of the sparse one."""
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))

    def check(indices: Any, values: Any, shape: Any, dense: Any) -> None:
        sparse.check_matrix_and_vectors(indices, values, shape, ("a_indices", "a_values", "a_shape"))
        for first, second in ((len(indices), values.size), (indices.shape[1], shape.size)):
            if first != second:
                raise errors.InvalidArgumentError(f"Dimensions {first} and {second} are not compatible")
        if shape.size != dense.ndim:
            raise errors.InvalidArgumentError(
                f"Two operands have different ranks; received: {shape.size} and {dense.ndim}"
            )
        for i, (ours, theirs) in enumerate(zip(shape.tolist(), dense.shape, strict=True)):
            if ours != theirs:
                raise errors.InvalidArgumentError(
                    f"Dimension {i} does not equal (no broadcasting is supported): "
                    f"sparse side {ours} vs dense side {theirs}"
                )
        _check_rank(dense.ndim)
        wrong = sparse.out_of_bounds(indices, shape)
        if wrong.size:
            at = int(wrong[0])
            i, index = next((i, x) for i, x in enumerate(indices[at].tolist()) if not 0 <= x < dense.shape[i])
            raise errors.InvalidArgumentError(
                f"Sparse tensor has an invalid index on dimension {i}: a_indices({at},{i}) = {index}, "
                f"dense tensor shape: {' '.join(map(str, dense.shape))}"
            )

    def compute(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        check(indices, values, shape, dense)
        result = dense.astype(work)
        if indices.size:
            positions = np.ravel_multi_index(tuple(indices.T), dense.shape)
            scattering.accumulate(np.add, result.reshape(-1), positions, values.astype(work, copy=False))
        return result.astype(out, copy=False)

    return compute


def _check_rank(rank: int) -> None:
    if not 1 <= rank <= _MAX_RANK:
        raise errors.InvalidArgumentError(
            f"Only tensors with ranks between 1 and {_MAX_RANK} are currently supported.  Tensor rank: {rank}"
        )


# ---- Elementwise


def _places_scratch(indices: Any, values: Any, shape: Any, dense: Any) -> int:
    """Bytes of the positions of entries in the dense tensor."""
    return int(8 * dense.ndim * len(indices))


_CWISE = ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")


@kernel(*_CWISE, T=dtypes.REAL_NUMBER, cost=4.0, scratch=_places_scratch)
def sparse_dense_cwise(c: OpKernelConstruction) -> Compute:
    """Combines values of the entries with the dense tensor, which is broadcast to the sparse one's shape.

    Missing entries stay missing: also a sum is computed at the entries only.
    """
    dtype = c.attr("T")
    integers = dtype.np.kind in "iu"
    divide = partial(truncating_divide, np) if integers else np.divide
    apply: Any = {"Add": np.add, "Mul": np.multiply, "Div": divide}[c.op[-3:]]
    no_zeros = integers and c.op.endswith("Div")

    def check(indices: Any, values: Any, shape: Any) -> None:
        sparse.check_matrix_and_vectors(indices, values, shape, ("sp_indices", "sp_values", "sp_shape"))
        if values.size != len(indices):
            raise errors.InvalidArgumentError(
                f"The first dimension of values and indices should match. ({values.size} vs. {len(indices)})"
            )
        if shape.size != indices.shape[1]:
            raise errors.InvalidArgumentError(
                "Number of dimensions must match second dimension of indices. "
                f"Got {shape.size} dimensions, indices shape: {shape_text(indices.shape)}"
            )
        if not shape.size:
            raise errors.InvalidArgumentError("The shape argument requires at least one element.")
        sparse.check_shape(shape.tolist())

    def compute(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        check(indices, values, shape)
        dims = tuple(shape.tolist())
        ours = dims[len(dims) - dense.ndim :]
        if dense.ndim > len(dims) or any(d not in (1, s) for d, s in zip(dense.shape, ours, strict=True)):
            raise errors.InvalidArgumentError(
                "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: "
                f"{shape_text(dims)} vs. {shape_text(dense.shape)}"
            )
        _check_rank(len(dims))
        if sparse.out_of_bounds(indices, shape).size:
            raise errors.InvalidArgumentError(
                "Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape"
            )
        if no_zeros and not np.all(dense):
            raise errors.InvalidArgumentError(
                "SparseDenseCwiseDiv cannot divide by zero,but input dense tensor contains zero"
            )
        places = indices.T[len(dims) - dense.ndim :]
        found = dense[tuple(np.where(size == 1, 0, p) for p, size in zip(places, dense.shape, strict=True))]
        return apply(values, found).astype(values.dtype, copy=False)

    return compute
