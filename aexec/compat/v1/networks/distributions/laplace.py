"""`Laplace`: an exponential distribution on either side of `loc`.

Next to read: `gamma.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.random_ops import random_uniform
from aexec.compat.v1.networks.distributions.event_shapes import sized
from aexec.compat.v1.networks.distributions.loc_scale import LocScaleDistribution
from aexec.graph.nodes.node import Tensor

__all__ = ["Laplace"]


def _log_cdf(z: Tensor) -> Tensor:
    """The log of the standard Laplace distribution function."""
    upper = ops.log1p(-0.5 * ops.exp(-ops.abs(z)))
    return ops.select_v2(ops.less(z, 0.0), z - math.log(2.0), upper)


class Laplace(LocScaleDistribution):
    """`tf.distributions.Laplace`: density exp(-|x - loc| / scale) / (2 scale).

    Args:
        loc: the mean, floating.
        scale: the mean distance from `loc`, positive; of the same dtype, broadcasts against `loc`.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Laplace"
    ) -> None:
        parameters = dict(locals())
        super().__init__(parameters, validate_args, allow_nan_stats, name)

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        kind = self.dtype.dtype.type
        # The interval leaves out -1, for which log1p gives an infinite sample.
        least = float(np.nextafter(kind(-1), kind(0)))
        uniform = random_uniform(sized(n, self.batch_shape_tensor()), least, 1.0, dtype=self.dtype, seed=seed)
        return self.loc - self.scale * ops.sign(uniform) * ops.log1p(-ops.abs(uniform))

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
