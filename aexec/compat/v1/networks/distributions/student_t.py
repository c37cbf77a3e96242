"""`StudentT`.  Next to read: `normal.py`, its limit for infinite degrees of freedom."""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.client.random_ops import random_gamma, random_normal
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.control_flow_ops import assert_less
from aexec.compat.v1.networks.distributions.checks import after
from aexec.compat.v1.networks.distributions.event_shapes import or_nan, sized
from aexec.compat.v1.networks.distributions.loc_scale import LocScaleDistribution
from aexec.compat.v1.networks.distributions.parameters import next_seed
from aexec.graph.nodes.node import Tensor

__all__ = ["StudentT"]


class StudentT(LocScaleDistribution):
    """`tf.distributions.StudentT`.

    The mean and the variance need `df` > 1; the variance is infinite for `df` <= 2.  Where they do not exist they are
    NaN, or a run fails if `allow_nan_stats` is False.

    Args:
        df: degrees of freedom, floating and positive.
        loc: the mode.
        scale: the scale, which is not the standard deviation.  All three have the same dtype and broadcast.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    _PARAMETERS = ("df", "loc", "scale")
    _POSITIVE = "df"

    def __init__(
        self,
        df: Any,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StudentT",
    ) -> None:
        parameters = dict(locals())
        super().__init__(parameters, validate_args, allow_nan_stats, name)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self._tensors["df"]

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        normal = random_normal(sized(n, self.batch_shape_tensor()), dtype=self.dtype, seed=seed)
        df = self.df * self._whole(1.0)
        squares = random_gamma(ops.pack([n]), 0.5 * df, 0.5, dtype=self.dtype, seed=next_seed(seed, "student_t"))
        return normal * ops.rsqrt(squares / df) * self.scale + self.loc

    def _log_prob(self, value: Tensor) -> Tensor:
        z = self._z(value)
        normalization = (
            ops.log(ops.abs(self.scale))
            + 0.5 * ops.log(self.df)
            + 0.5 * math.log(math.pi)
            + ops.lgamma(0.5 * self.df)
            - ops.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * ops.log1p(ops.square(z) / self.df) - normalization

    def _cdf(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / ops.abs(self.scale)
        part = self.df / (ops.square(z) + self.df)
        half = convert_to_tensor(0.5, self.dtype)
        tail = 0.5 * ops.betainc(ops.broadcast_to(half * self.df, ops.shape(part)), half * ops.ones_like(part), part)
        return ops.select_v2(ops.less(z, 0.0), tail, 1.0 - tail)

    def _entropy(self) -> Tensor:
        df = self.df * self._whole(1.0)
        half, more = 0.5 * df, 0.5 * (df + 1.0)
        log_beta = ops.lgamma(half) + 0.5 * math.log(math.pi) - ops.lgamma(more)
        spread = ops.log(ops.abs(self.scale)) + 0.5 * ops.log(self.df) + log_beta
        return spread + more * (ops.digamma(more) - ops.digamma(half))

    def _defined(self, what: str, value: Tensor) -> Tensor:
        """The statistic where `df` > 1; elsewhere NaN, or a failed run if `allow_nan_stats` is False."""
        if self.allow_nan_stats:
            return or_nan(ops.greater(self.df, 1.0), value)
        message = f"{what} not defined for components of df <= 1"
        return after([assert_less(convert_to_tensor(1.0, self.dtype), self.df, message=message)], value)

    def _mean(self) -> Tensor:
        return self._defined("mean", self.loc * self._whole(1.0))

    def _variance(self) -> Tensor:
        is_finite = ops.greater(self.df, 2.0)
        less = ops.select_v2(is_finite, self.df - 2.0, ops.ones_like(self.df))
        finite = self._whole(1.0) * ops.square(self.scale) * self.df / less
        return self._defined("variance", ops.select_v2(is_finite, finite, self._whole(math.inf)))

    def _mode(self) -> Tensor:
        return ops.identity(self.loc)
