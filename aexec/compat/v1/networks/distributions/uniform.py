"""`Uniform`.  Next to read: `bernoulli.py`."""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.compat.v1.functions.control_flow_ops import assert_less
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, sized
from aexec.compat.v1.networks.distributions.parameters import floats, shapes_of
from aexec.graph.nodes.node import Tensor

__all__ = ["Uniform"]


class Uniform(ScalarDistribution):
    """`tf.distributions.Uniform`: numbers in [low, high).

    Args:
        low, high: the bounds, floating and of the same dtype; they broadcast.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            message = "uniform not defined when low >= high."
            checks = [assert_less(low, high, message=message)] if validate_args else []
            self._low, self._high = floats(checks, low=low, high=high)
        super().__init__(
            self._low.dtype.base,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._low, self._high],
            scope,
        )

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("low", "high"), sample_shape)

    @property
    def low(self) -> Tensor:
        """The lower bound, which samples may take."""
        return self._low

    @property
    def high(self) -> Tensor:
        """The upper bound, which samples do not reach."""
        return self._high

    def range(self, name: str = "range") -> Tensor:
        """`high - low`."""
        with self._name_scope(name):
            return self.high - self.low

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        drawn = random_uniform(sized(n, self.batch_shape_tensor()), dtype=self.dtype, seed=seed)
        return self.low + self.range() * drawn

    def _prob(self, value: Tensor) -> Tensor:
        x = value * self._whole(1.0)
        outside = ops.logical_or(ops.less(x, self.low), ops.greater_equal(x, self.high))
        density = ops.select_v2(outside, ops.zeros_like(x), ops.ones_like(x) / self.range())
        return ops.select_v2(ops.is_nan(x), x, density)

    def _cdf(self, value: Tensor) -> Tensor:
        x = value * self._whole(1.0)
        zeros = ops.zeros_like(x)
        inside = ops.select_v2(ops.less(x, self.low), zeros, (x - self.low) / self.range())
        return ops.select_v2(ops.greater_equal(x, self.high), zeros + 1.0, inside)

    def _entropy(self) -> Tensor:
        return ops.log(self.range())

    def _mean(self) -> Tensor:
        return (self.low + self.high) / 2.0

    def _variance(self) -> Tensor:
        return ops.square(self.range()) / 12.0

    def _stddev(self) -> Tensor:
        return self.range() / math.sqrt(12.0)
