"""`tf.sparse`: sparse tensors, each of three tensors that ops take one by one.

Next to read: `session.py`, which feeds and fetches them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.client.building import name_scope, placeholder
from aexec.compat.v1.namespace import chosen, namespace
from aexec.framework import dtypes
from aexec.framework import sparse_tensor as _sparse_tensor
from aexec.graph.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "SparseTensor",
    "SparseTensorValue",
    "edit_distance",
    "sparse_placeholder",
    "sparse_reduce_sum",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
]


class SparseTensorValue(NamedTuple):
    """What a run is fed for a sparse tensor, and gives: arrays."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor(_sparse_tensor.SparseTensor[Tensor]):
    """A sparse tensor: [n, rank] places, int64; [n] values; [rank] sizes, int64."""

    __slots__ = ()

    def __new__(cls, indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
        return super().__new__(  # type: ignore[type-var]  # mypy has no bound for generic named tuples
            cls,
            convert_to_tensor(indices, dtypes.int64, "indices"),
            convert_to_tensor(values, name="values"),
            convert_to_tensor(dense_shape, dtypes.int64, "shape"),
        )

    @property
    def dtype(self) -> dtypes.DType:
        """Type of the values."""
        return self.values.dtype.base


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """`tf.sparse_placeholder`: is fed a `SparseTensorValue`, or three arrays."""
    with name_scope(name or "sparse"):
        rank = None if shape is None else len(shape)
        return SparseTensor(
            placeholder(dtypes.int64, [None, rank], "indices"),
            placeholder(dtype, [None], "values"),
            placeholder(dtypes.int64, [rank], "shape")
            if shape is None or None in list(shape)
            else convert_to_tensor(np.array(shape, np.int64), name="shape"),
        )


def sparse_tensor_dense_matmul(
    sp_a: SparseTensor, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """`tf.sparse_tensor_dense_matmul`."""
    return ops.sparse_tensor_dense_mat_mul(*sp_a, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=name)


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """`tf.sparse_to_dense`."""
    values = convert_to_tensor(sparse_values)
    empty = convert_to_tensor(default_value, values.dtype.base)
    return ops.sparse_to_dense(
        sparse_indices, output_shape, values, empty, validate_indices=validate_indices, name=name
    )


def sparse_tensor_to_dense(
    sp_input: SparseTensor, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """`tf.sparse_tensor_to_dense`."""
    default = (b"" if sp_input.dtype is dtypes.string else 0) if default_value is None else default_value
    indices, values, shape = sp_input
    return sparse_to_dense(indices, shape, values, default, validate_indices, name)


def sparse_reduce_sum(
    sp_input: SparseTensor,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """`tf.sparse_reduce_sum`."""
    axes = chosen(axis=axis, reduction_axes=reduction_axes)
    if axes is None:
        axes = list(range(sp_input.indices.static_shape[1]))
    return ops.sparse_reduce_sum(*sp_input, axes, keep_dims=bool(chosen(keepdims=keepdims, keep_dims=keep_dims)))


def edit_distance(
    hypothesis: SparseTensor, truth: SparseTensor, normalize: bool = True, name: str = "edit_distance"
) -> Tensor:
    """`tf.edit_distance`."""
    return ops.edit_distance(*hypothesis, *truth, normalize=normalize, name=name)


__getattr__, __dir__ = namespace(
    __name__,
    {
        "placeholder": "sparse:sparse_placeholder",
        "reduce_sum": "sparse:sparse_reduce_sum",
        "sparse_dense_matmul": "sparse:sparse_tensor_dense_matmul",
        "to_dense": "sparse:sparse_tensor_to_dense",
    },
)
