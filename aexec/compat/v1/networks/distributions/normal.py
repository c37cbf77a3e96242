"""`Normal`, and the standard normal distribution function in its tails.

Next to read: `laplace.py`.
"""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_normal
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import sized
from aexec.compat.v1.networks.distributions.loc_scale import LocScaleDistribution
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor

__all__ = ["Normal"]

# dtype → (low, high).  Below low, `_log_cdf` uses an asymptotic series; above high, log(1 - y) ≈ -y.
_TAILS = {dtypes.float32: (-10.0, 5.0), dtypes.float64: (-20.0, 8.0)}


def _tails(x: Tensor) -> tuple[float, float]:
    if x.dtype.base not in _TAILS:
        raise errors.InvalidTypeError(f"x.dtype={x.dtype} is not handled, see docstring for supported types.")
    return _TAILS[x.dtype.base]


def _cdf(x: Tensor) -> Tensor:
    """The standard normal distribution function: from erf near 0, from erfc in the tails, where erf loses digits."""
    w = x * math.sqrt(0.5)
    z = ops.abs(w)
    outer = ops.select_v2(ops.greater(w, 0.0), 2.0 - ops.erfc(z), ops.erfc(z))
    return 0.5 * ops.select_v2(ops.less(z, math.sqrt(0.5)), 1.0 + ops.erf(w), outer)


def _log_cdf(x: Tensor) -> Tensor:
    """The log of the standard normal distribution function.

    `select` also differentiates the branch it does not take.  Each branch therefore sees clipped values, for which it
    is finite; otherwise its gradient would be NaN.

    Raises:
        TypeError: the dtype is neither float32 nor float64.
    """
    low, high = _tails(x)
    below = ops.minimum(x, low)
    one = 1.0 / ops.square(below)
    series = 1.0 - one + 3.0 * ops.square(one) - 15.0 * ops.square(one) * one
    tail = -0.5 * ops.square(below) - ops.log(-below) - 0.5 * math.log(2.0 * math.pi) + ops.log(series)
    middle = ops.log(_cdf(ops.maximum(x, low)))
    return ops.select_v2(ops.greater(x, high), -_cdf(-x), ops.select_v2(ops.greater(x, low), middle, tail))


class Normal(LocScaleDistribution):
    """`tf.distributions.Normal`.

    Args:
        loc: the mean, floating.
        scale: the standard deviation, positive; of the same dtype, broadcasts against `loc`.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Normal"
    ) -> None:
        parameters = dict(locals())
        super().__init__(parameters, validate_args, allow_nan_stats, name)

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        drawn = random_normal(sized(n, self.batch_shape_tensor()), dtype=self.dtype, seed=seed)
        return drawn * self.scale + self.loc

    def _log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * ops.square(self._z(value)) - (0.5 * math.log(2.0 * math.pi) + ops.log(self.scale))

    def _log_cdf(self, value: Tensor) -> Tensor:
        return _log_cdf(self._z(value))

    def _cdf(self, value: Tensor) -> Tensor:
        return _cdf(self._z(value))

    def _log_survival_function(self, value: Tensor) -> Tensor:
        return _log_cdf(-self._z(value))

    def _survival_function(self, value: Tensor) -> Tensor:
        return _cdf(-self._z(value))

    def _quantile(self, value: Tensor) -> Tensor:
        low, high = ops.less_equal(value, 0.0), ops.greater_equal(value, 1.0)
        z = ops.ndtri(value)
        infinite = ops.select_v2(high, math.inf * ops.ones_like(z), z)
        return ops.select_v2(low, -math.inf * ops.ones_like(z), infinite) * self.scale + self.loc

    def _entropy(self) -> Tensor:
        return 0.5 * math.log(2.0 * math.pi * math.e) + ops.log(self._stddev())

    def _mean(self) -> Tensor:
        return self.loc * ops.ones_like(self.scale)

    def _mode(self) -> Tensor:
        return self._mean()

    def _stddev(self) -> Tensor:
        return self.scale * ops.ones_like(self.loc)


@RegisterKL(Normal, Normal)
def _divergence(a: Normal, b: Normal, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_normal_normal"):
        of_b = ops.square(b.scale)
        ratio = ops.square(a.scale) / of_b
        return ops.squared_difference(a.loc, b.loc) / (2.0 * of_b) + 0.5 * (ratio - 1.0 - ops.log(ratio))
