"""`Normal`, and the standard normal distribution function in its tails.

Next to read: `laplace.py`.
"""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_normal
from aexec.compat.v1.functions.control_flow_ops import assert_positive
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, sized
from aexec.compat.v1.networks.distributions.parameters import floats, shapes_of
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor

__all__ = ["Normal"]

# Of each type: from where a series replaces the logarithm, and from where the complement does.
_TAILS = {dtypes.float32: (-10.0, 5.0), dtypes.float64: (-20.0, 8.0)}


def _tails(x: Tensor) -> tuple[float, float]:
    if x.dtype.base not in _TAILS:
        raise errors.InvalidTypeError(f"x.dtype={x.dtype} is not handled, see docstring for supported types.")
    return _TAILS[x.dtype.base]


def _cdf(x: Tensor) -> Tensor:
    """The standard normal distribution function, from whichever of erf and erfc is the more exact."""
    w = x * math.sqrt(0.5)
    z = ops.abs(w)
    outer = ops.select_v2(ops.greater(w, 0.0), 2.0 - ops.erfc(z), ops.erfc(z))
    return 0.5 * ops.select_v2(ops.less(z, math.sqrt(0.5)), 1.0 + ops.erf(w), outer)


def _log_cdf(x: Tensor) -> Tensor:
    """The logarithm of the standard normal distribution function.

    Each part is computed of values where it is finite, so that no gradient of another part becomes not a number.
    """
    low, high = _tails(x)
    below = ops.minimum(x, low)
    one = 1.0 / ops.square(below)
    series = 1.0 - one + 3.0 * ops.square(one) - 15.0 * ops.square(one) * one
    tail = -0.5 * ops.square(below) - ops.log(-below) - 0.5 * math.log(2.0 * math.pi) + ops.log(series)
    middle = ops.log(_cdf(ops.maximum(x, low)))
    return ops.select_v2(ops.greater(x, high), -_cdf(-x), ops.select_v2(ops.greater(x, low), middle, tail))


class Normal(ScalarDistribution):
    """`tf.distributions.Normal`."""

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Normal"
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._loc, self._scale = floats([assert_positive(scale)] if validate_args else [], loc=loc, scale=scale)
        super().__init__(
            self._scale.dtype.base,
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
        """The standard deviations."""
        return self._scale

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        drawn = random_normal(sized(n, self.batch_shape_tensor()), dtype=self.dtype, seed=seed)
        return drawn * self.scale + self.loc

    def _z(self, x: Tensor) -> Tensor:
        return (x - self.loc) / self.scale

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
