"""Sets: the last dimension of a tensor, dense or sparse, holds the elements of one set, in any order.

All sets are processed at once: an element becomes a pair of its set's number and its value's rank, both in one integer,
and set operations are those of sorted vectors of integers.
Next to read: `sparse_tensors.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.distinct import begins_run, distinct
from aexec.kernels.sparse import sparse_tensors as sparse

__all__: list[str] = []

_TYPES = (
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.uint16,
    dtypes.string,
)
_COST = 50.0
_INT64_MAX = 2**63 - 1


def _distinct(codes: Any) -> Any:
    """The distinct codes, ascending: three times as fast as NumPy's `unique` for integers."""
    codes = np.sort(codes)
    return codes[begins_run(codes)]


# Each takes two vectors of distinct codes, ascending.
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a-b": lambda a, b: np.setdiff1d(a, b, assume_unique=True),
    "b-a": lambda a, b: np.setdiff1d(b, a, assume_unique=True),
    "intersection": lambda a, b: np.intersect1d(a, b, assume_unique=True),
    "union": lambda a, b: _distinct(np.concatenate((a, b))),
}


class _Sets:
    """Elements in a vector, each with the number of its set; sets are numbered in the row-major order of `dims`."""

    def __init__(self, groups: Any, values: Any, dims: Sequence[int]) -> None:
        self.groups = groups
        self.values = values
        self.dims = tuple(dims)


def _group_dims(dims: Sequence[int]) -> Sequence[int]:
    if len(dims) < 2:
        raise errors.InvalidArgumentError(f"Shape {shape_text(dims)} has rank {len(dims)} < 2")
    return dims[:-1]


def _dense(array: Any) -> _Sets:
    dims = _group_dims(array.shape)
    groups = np.arange(array.size) // max(1, array.shape[-1])
    return _Sets(groups, array.reshape(-1), dims)


def _check_in_group(indices: Any, dims: Sequence[int]) -> None:
    """Raise InvalidArgumentError for the first index outside the shape, with positions within the set."""
    wrong = sparse.out_of_bounds(indices, np.array(dims, np.int64))
    if not wrong.size:
        return
    row = indices[wrong[0]]
    at = int((indices[: wrong[0], :-1] == row[:-1]).all(axis=1).sum())
    j, index = next((j, x) for j, x in enumerate(row.tolist()) if not 0 <= x < dims[j])
    raise errors.InvalidArgumentError(f"indices[{at}, {j}] expected < {dims[j]}, got {index}.")


def _sparse(indices: Any, values: Any, shape: Any, validates: bool) -> _Sets:
    if shape.ndim != 1:
        raise errors.InvalidArgumentError("Shape must be a 1D tensor.")
    dims = sparse.dims_of(shape)
    sparse.check_shape(dims)
    if len(dims) < 2:
        raise errors.InvalidArgumentError(f"Invalid rank {len(dims)}.")
    sparse.create(indices, values, dims)
    if validates:
        sparse.check_order(indices, dims)
    else:
        _check_in_group(indices, dims)
    groups = np.zeros(len(indices), np.int64)
    for column, size in enumerate(dims[:-1]):
        groups *= size
        groups += indices[:, column]
    return _Sets(groups, values, dims[:-1])


@kernel("SetSize", T=_TYPES, cost=_COST, scratch=24)
def set_size(c: OpKernelConstruction) -> Compute:
    """Return the number of distinct elements of each set."""
    validates, allocate = c.attr("validate_indices"), allocator(c)

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        sets = _sparse(indices, values, shape, validates)
        result = allocate(sets.dims, np.zeros)
        codes, base, _, numbers = _codes(sets)
        present, sizes = np.unique(_distinct(codes[0]) // base, return_counts=True)
        result.reshape(-1)[_numbered(present, numbers)] = sizes
        return result

    return compute


def _codes(*sets: _Sets) -> tuple[list[Any], int, Any, Any]:
    """Integers that stand for elements.

    Returns:
        For each operand a vector of codes, the set times a base plus the position of the value; the base; the values in
            order; and the numbers of the sets, if codes hold positions among them instead.
    """
    ordered, places = distinct(np.concatenate([s.values for s in sets]))
    groups = np.concatenate([s.groups for s in sets])
    base, numbers = max(len(ordered), 1), None
    if math.prod(sets[0].dims) * base > _INT64_MAX:
        numbers, groups = distinct(groups)
    codes = groups * base + places
    return np.split(codes, np.cumsum([len(s.values) for s in sets[:-1]])), base, ordered, numbers


def _numbered(groups: Any, numbers: Any) -> Any:
    return groups if numbers is None else numbers[groups]


def _combine(operation: Callable[[Any, Any], Any], a: _Sets, b: _Sets) -> Any:
    """Combine the sets of both operands pair by pair; return a sparse tensor."""
    if a.dims != b.dims:
        raise errors.InvalidArgumentError(f"Mismatched shapes {shape_text(a.dims)} vs {shape_text(b.dims)}")
    (a_codes, b_codes), base, ordered, numbers = _codes(a, b)
    result = operation(_distinct(a_codes), _distinct(b_codes))
    groups, places = np.divmod(result, base)
    starts = sparse.group_starts(groups)
    sizes = np.diff(starts, append=len(groups))
    indices = np.empty((len(groups), len(a.dims) + 1), np.int64)
    rest = _numbered(groups, numbers)
    for column in reversed(range(len(a.dims))):
        rest, indices[:, column] = np.divmod(rest, a.dims[column] or 1)
    indices[:, -1] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return indices, ordered[places], np.array([*a.dims, sizes.max(initial=0)], np.int64)


@kernel(
    "DenseToDenseSetOperation",
    "DenseToSparseSetOperation",
    "SparseToSparseSetOperation",
    T=_TYPES,
    cost=_COST,
    scratch=24,
)
def set_operation(c: OpKernelConstruction) -> Compute:
    """Return the difference, intersection or union of sets, each with its elements in ascending order."""
    name, validates = c.text("set_operation").lower(), c.attr("validate_indices")
    operation = _OPERATIONS.get(name)
    if operation is None:
        raise errors.InvalidArgumentError(f"Invalid set_operation {name}.")
    if c.op == "DenseToDenseSetOperation":
        return lambda a, b: _combine(operation, _dense(a), _dense(b))
    if c.op == "DenseToSparseSetOperation":

        def dense_and_sparse(a: Any, indices: Any, values: Any, shape: Any) -> Any:
            b = _sparse(indices, values, shape, validates)
            return _combine(operation, _dense(a), b)

        return dense_and_sparse

    def sparse_and_sparse(*inputs: Any) -> Any:
        a_indices, a_values, a_shape, b_indices, b_values, b_shape = inputs
        a = _sparse(a_indices, a_values, a_shape, validates)
        return _combine(operation, a, _sparse(b_indices, b_values, b_shape, validates))

    return sparse_and_sparse
