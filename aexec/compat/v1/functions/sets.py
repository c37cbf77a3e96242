"""`tf.sets`: the last axis of dense and sparse tensors as sets.

Next to read: `aexec/kernels/sparse/`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["difference", "intersection", "size", "union"]


def size(a: Any, validate_indices: bool = True) -> Tensor:
    """`tf.sets.size`: the number of different values in each row of a sparse tensor."""
    if not isinstance(a, SparseTensor):
        raise errors.InvalidTypeError(f"Expected `SparseTensor`, got {a!r}.")
    return ops.set_size(*a, validate_indices=validate_indices)


def _combined(a: Any, b: Any, operation: str, validate_indices: bool) -> SparseTensor:
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        found = ops.sparse_to_sparse_set_operation(*a, *b, operation, validate_indices)
    elif isinstance(b, SparseTensor):
        found = ops.dense_to_sparse_set_operation(a, *b, operation, validate_indices)
    elif isinstance(a, SparseTensor):
        raise errors.InvalidTypeError(f"`SparseTensor` {a!r} must be the second of the two, as the other is dense")
    else:
        first = convert_to_tensor(a)
        found = ops.dense_to_dense_set_operation(
            first, convert_to_tensor(b, first.dtype.base), operation, validate_indices
        )
    return SparseTensor(*found)


def intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """`tf.sets.intersection`: the values of each row that both have."""
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b = b, a
    return _combined(a, b, "intersection", validate_indices)


def union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """`tf.sets.union`: the values of each row that either has."""
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b = b, a
    return _combined(a, b, "union", validate_indices)


def difference(a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True) -> SparseTensor:
    """`tf.sets.difference`: the values of each row that only `a` has, or only `b` if not `aminusb`."""
    operation = "a-b" if aminusb else "b-a"
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b, operation = b, a, "b-a" if aminusb else "a-b"
    return _combined(a, b, operation, validate_indices)


__getattr__, __dir__ = namespace(
    __name__,
    {f"set_{name}": f"functions.sets:{name}" for name in "difference intersection size union".split()},
)
