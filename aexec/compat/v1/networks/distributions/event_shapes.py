"""Two bases of distributions: of scalar events, and of vector events along the last axis.

Next to read: `normal.py`, `dirichlet.py`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.functions.array_ops import broadcast_static_shape, convert_to_tensor
from aexec.compat.v1.networks.distributions.distribution import Distribution
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor

__all__ = ["ScalarDistribution", "VectorDistribution", "negative_products", "or_nan", "sized"]


class ScalarDistribution(Distribution):
    """A distribution of scalars.  The batch shape is the shape to which the graph parents broadcast."""

    def _batch_shape(self) -> Any:
        return reduce(broadcast_static_shape, (TensorShape(parent.static_shape) for parent in self._graph_parents))

    def _batch_shape_tensor(self) -> Tensor:
        return reduce(ops.broadcast_args, (ops.shape(parent) for parent in self._graph_parents))

    def _event_shape(self) -> Any:
        return TensorShape([])

    def _event_shape_tensor(self) -> Tensor:
        return convert_to_tensor(np.array([], np.int32))

    def _whole(self, value: Any) -> Tensor:
        """A tensor of the batch shape, filled with `value`."""
        return ops.fill(self.batch_shape_tensor(), convert_to_tensor(value, self.dtype))


class VectorDistribution(Distribution):
    """A distribution of vectors.

    A subclass sets `_events` to a tensor of shape [*batch_shape, size of an event].
    """

    _events: Tensor

    def _batch_shape(self) -> Any:
        return TensorShape(self._events.static_shape).with_rank_at_least(1)[:-1]

    def _batch_shape_tensor(self) -> Tensor:
        return ops.shape(self._events)[:-1]

    def _event_shape(self) -> Any:
        return TensorShape(self._events.static_shape).with_rank_at_least(1)[-1:]

    def _event_shape_tensor(self) -> Tensor:
        return ops.shape(self._events)[-1:]


def sized(n: Any, shape: Tensor) -> Tensor:
    """The shape [n, *shape]."""
    return ops.concat_v2([ops.reshape(convert_to_tensor(n, dtypes.int32), [1]), shape], 0)


def or_nan(holds: Tensor, value: Tensor) -> Tensor:
    """`value` where `holds` is True, NaN elsewhere."""
    return ops.select_v2(holds, value, convert_to_tensor(np.nan, value.dtype.base))


def negative_products(a: Tensor, b: Tensor) -> Tensor:
    """-a bᵀ for vectors along the last axis: [..., n] and [..., m] give [..., n, m]."""
    return -ops.expand_dims(a, -1) * ops.expand_dims(b, -2)
