"""`tf.sparse.cross`, which combines features, and `tf.sparse.bincount`.

Next to read: `sparse_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.values.ragged import RaggedTensor
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["bincount", "cross", "cross_hashed"]

# TensorFlow's default for `hash_key`.
_HASH_KEY = 0xDECAFCAFFE


def _as_feature(value: Any) -> Any:
    """Convert integers to int64; return strings unchanged."""
    return value if value.dtype.base is dtypes.string else ops.cast(value, DstT=dtypes.int64)


def _parts(inputs: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Indices, values and shapes of the sparse inputs, and the dense ones."""
    if not isinstance(inputs, list | tuple):
        raise errors.InvalidTypeError("Inputs must be a list")
    if not all(isinstance(one, SparseTensor | Tensor) for one in inputs):
        raise errors.InvalidTypeError("All inputs must be Tensor or SparseTensor.")
    sparse = [one for one in inputs if isinstance(one, SparseTensor)]
    dense = [_as_feature(one) for one in inputs if isinstance(one, Tensor)]
    return (
        [one.indices for one in sparse],
        [_as_feature(one.values) for one in sparse],
        [one.dense_shape for one in sparse],
        dense,
    )


def cross(inputs: Sequence[Any], name: str | None = None, separator: str | None = None) -> SparseTensor:
    """`tf.sparse.cross`: all combinations of one value per input, for each row, as a sparse tensor of strings.

    Args:
        inputs: matrices, dense or sparse, of strings or integers, with the same number of rows.
        separator: text between values; by default `_X_`.
    """
    text = convert_to_tensor("_X_" if separator is None else separator, dtypes.string)
    return SparseTensor(*ops.sparse_cross_v2(*_parts(inputs), text, name=name))


def cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """`tf.sparse.cross_hashed`: `cross` with an int64 hash in place of each combination.

    Args:
        inputs: as in `cross`.
        num_buckets: hashes are in [0, num_buckets); 0 for no limit.
        hash_key: key that combines the hashes of values.
    """
    indices, values, shapes, dense = _parts(inputs)
    has_numbers = any(one.dtype.base is not dtypes.string for one in (*values, *dense))
    found = ops.sparse_cross(
        indices,
        values,
        shapes,
        dense,
        hashed_output=True,
        num_buckets=num_buckets,
        hash_key=hash_key or _HASH_KEY,
        out_type=dtypes.int64,
        internal_type=dtypes.int64 if has_numbers else dtypes.string,
        name=name,
    )
    return SparseTensor(*found)


def bincount(
    values: Any,
    weights: Any = None,
    axis: int | None = 0,
    minlength: int | None = None,
    maxlength: int | None = None,
    binary_output: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """`tf.sparse.bincount`: count each integer, as a sparse tensor; with `axis=-1` in each row.

    Args:
        values: non-negative integers, a vector or matrix, dense or sparse.
        weights: added in place of 1 for each value; shape and sparsity of `values`.
        minlength, maxlength: least and greatest size of the last axis; None for no limit.
        binary_output: 1 for each integer that occurs, in place of its count.

    Raises:
        InvalidArgumentError: `axis` is neither 0, -1 nor None, weights do not match the values, or both weights and
            `binary_output` are given.
        UnimplementedError: values are ragged.
    """
    if isinstance(values, RaggedTensor):
        raise errors.UnsupportedError("sparse.bincount: of ragged values, call it with values.to_sparse()")
    if weights is not None and binary_output:
        raise errors.InvalidValueError("Arguments `binary_output` and `weights` are mutually exclusive.")
    if axis not in (0, -1, None):
        raise errors.InvalidValueError(f"Unsupported value for argument axis={axis}: it must be 0 or -1")
    if weights is not None and isinstance(weights, SparseTensor) != isinstance(values, SparseTensor):
        raise errors.InvalidValueError("weights must be sparse if values are, and dense if they are dense")
    bounds: dict[str, Any] = {
        "minlength": -1 if minlength is None else minlength,
        "maxlength": -1 if maxlength is None else maxlength,
    }
    with name_scope(name or "count"):
        none = convert_to_tensor([], dtypes.int32)
        if isinstance(values, SparseTensor):
            numbers, given = values.values, none if weights is None else weights.values
            if axis == -1:
                found = ops.sparse_count_sparse_output(
                    values.indices, numbers, values.dense_shape, given, binary_output=binary_output, **bounds
                )
                return SparseTensor(*found)
        else:
            numbers, given = convert_to_tensor(values), none if weights is None else convert_to_tensor(weights)
        if axis != -1:
            numbers = ops.reshape(numbers, [-1])
            given = given if weights is None else ops.reshape(given, [-1])
        return SparseTensor(*ops.dense_count_sparse_output(numbers, given, binary_output=binary_output, **bounds))
