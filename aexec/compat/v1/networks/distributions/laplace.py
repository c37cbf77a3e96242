"""`Laplace`: two exponential distributions, back to back.

Next to read: `gamma.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.compat.v1.functions.control_flow_ops import assert_positive
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, sized
from aexec.compat.v1.networks.distributions.parameters import floats, shapes_of
from aexec.graph.nodes.node import Tensor

__all__ = ["Laplace"]


def _log_cdf(z: Tensor) -> Tensor:
    """The logarithm of the standard distribution function."""
    upper = ops.log1p(-0.5 * ops.exp(-ops.abs(z)))
    return ops.select_v2(ops.less(z, 0.0), z - math.log(2.0), upper)


class Laplace(ScalarDistribution):
    """`tf.distributions.Laplace`."""

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Laplace"
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._loc, self._scale = floats([assert_positive(scale)] if validate_args else [], loc=loc, scale=scale)
        super().__init__(
            self._loc.dtype.base,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._loc, self._scale],
            scope,
        )

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("loc", "scale"), sample_shape)

    @property
    def loc(self) -> Tensor:
        """The means."""
        return self._loc

    @property
    def scale(self) -> Tensor:
        """The mean distances from `loc`."""
        return self._scale

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        kind = self.dtype.dtype.type
        # -1 itself would be infinitely far away.
        least = float(np.nextafter(kind(-1), kind(0)))
        uniform = random_uniform(sized(n, self.batch_shape_tensor()), least, 1.0, dtype=self.dtype, seed=seed)
        return self.loc - self.scale * ops.sign(uniform) * ops.log1p(-ops.abs(uniform))

    def _z(self, x: Tensor) -> Tensor:
        return (x - self.loc) / self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        return -ops.abs(self._z(value)) - (math.log(2.0) + ops.log(self.scale))

    def _log_cdf(self, value: Tensor) -> Tensor:
        return _log_cdf(self._z(value))

    def _log_survival_function(self, value: Tensor) -> Tensor:
        return _log_cdf(-self._z(value))

    def _cdf(self, value: Tensor) -> Tensor:
        z = self._z(value)
        return 0.5 + 0.5 * ops.sign(z) * (1.0 - ops.exp(-ops.abs(z)))

    def _entropy(self) -> Tensor:
        return math.log(2.0) + 1.0 + ops.log(self.scale + ops.zeros_like(self.loc))

    def _mean(self) -> Tensor:
        return self.loc + ops.zeros_like(self.scale)

    def _mode(self) -> Tensor:
        return self._mean()

    def _stddev(self) -> Tensor:
        return math.sqrt(2.0) * self.scale + ops.zeros_like(self.loc)
