"""`FeatureValues`: the features of a batch, and a cache of the outputs of columns.

Next to read: `numeric.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.functions.control_flow_ops import assert_positive
from aexec.compat.v1.functions.conversions import convert_to_tensor_or_sparse_tensor
from aexec.compat.v1.functions.sparse_ops import sparse_reshape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["FeatureValues", "as_sparse"]


class FeatureValues:
    """Features by name, with a cache of converted features and transformed columns.

    Args:
        features: name → tensor, sparse tensor or array, [batch, …].
    """

    def __init__(self, features: Mapping[Any, Any]) -> None:
        self._features = features
        self._made: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """Return a feature by name, with at least two axes, or the output of a column's `transformed`.

        Raises:
            ValueError: there is no feature of that name, or it is a scalar.
        """
        if key not in self._made:
            self._made[key] = self._get(key)
        return self._made[key]

    def _get(self, key: Any) -> Any:
        if key in self._features:
            return _with_two_axes(key, convert_to_tensor_or_sparse_tensor(self._features[key]))
        if isinstance(key, str):
            raise errors.InvalidValueError(f"Feature {key} is not in features dictionary.")
        return key.transformed(self)


def _with_two_axes(key: Any, feature: Any) -> Any:
    """Reshape a feature [batch] to [batch, 1]; return one with more axes unchanged.  Raises ValueError for a scalar."""
    rank = feature.shape.ndims if isinstance(feature, SparseTensor) else feature.static_shape.rank
    if rank == 0:
        raise errors.InvalidValueError(f"Feature (key: {key}) cannot have rank 0. Given: {feature}")
    if rank is not None and rank > 1:
        return feature
    if rank == 1:
        return sparse_reshape(feature, [-1, 1]) if _is_sparse(feature) else ops.expand_dims(feature, -1)
    sizes = feature.dense_shape if _is_sparse(feature) else ops.shape(feature)
    axes = ops.size(sizes)
    there_is_one = assert_positive(axes, message=f"Feature (key: {key}) cannot have rank 0.")
    with control_dependencies([there_is_one]):
        more = ops.fill(ops.cast(ops.equal(axes, [1]), DstT=dtypes.int32), convert_to_tensor(1, sizes.dtype.base))
    wanted = ops.concat_v2([sizes, more], 0)
    return sparse_reshape(feature, wanted) if _is_sparse(feature) else ops.reshape(feature, wanted)


def _is_sparse(feature: Any) -> bool:
    return isinstance(feature, SparseTensor)


def as_sparse(feature: Any, ignored: Any = None) -> SparseTensor:
    """Convert a dense feature to a sparse one; return a sparse one unchanged.

    Args:
        ignored: the value that means "no value", and is left out; by default "" or -1.
    """
    if isinstance(feature, SparseTensor):
        return feature
    tensor: Tensor = feature
    kind = tensor.dtype.base
    none = ("" if kind is dtypes.string else -1) if ignored is None else ignored
    indices = ops.where(ops.not_equal(tensor, convert_to_tensor(none, kind)))
    return SparseTensor(indices, ops.gather_nd(tensor, indices), ops.shape(tensor, out_type=dtypes.int64))
