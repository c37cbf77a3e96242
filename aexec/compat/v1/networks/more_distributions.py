"""Distributions that programs use less: Student's, and multinomials whose probabilities are drawn.

Next to read: `gamma_distributions.py`.
"""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma, random_normal
from aexec.compat.v1.networks.distributions import Distribution, broadcast_shape
from aexec.compat.v1.networks.gamma_distributions import Dirichlet, Multinomial
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["DirichletMultinomial", "StudentT"]


class StudentT(Distribution):
    """`tf.distributions.StudentT`: mean and variance are not a number where they do not exist."""

    def __init__(
        self,
        df: Any,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StudentT",
    ) -> None:
        with name_scope(name):
            self.df = convert_to_tensor(df, None, "df")
            dtype = self.df.dtype.base
            self.loc, self.scale = convert_to_tensor(loc, dtype, "loc"), convert_to_tensor(scale, dtype, "scale")
            super().__init__(name, dtype, broadcast_shape(self.df, self.loc, self.scale))

    def _whole(self, value: Any) -> Tensor:
        return ops.broadcast_to(convert_to_tensor(value, self.dtype), self._shape)

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        df = ops.broadcast_to(self.df, shape)
        squares = random_gamma([], 0.5 * df, dtype=self.dtype, seed=None if seed is None else seed + 1) * 2.0
        normal = random_normal(shape, dtype=self.dtype, seed=seed)
        return normal * ops.rsqrt(squares / df) * self.scale + self.loc

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        with name_scope(f"{self.name}/{name}"):
            z = (convert_to_tensor(value, self.dtype) - self.loc) / self.scale
            normalization = (
                ops.log(ops.abs(self.scale))
                + 0.5 * ops.log(self.df)
                + 0.5 * math.log(math.pi)
                + ops.lgamma(0.5 * self.df)
                - ops.lgamma(0.5 * (self.df + 1.0))
            )
            return -0.5 * (self.df + 1.0) * ops.log1p(ops.square(z) / self.df) - normalization

    def cdf(self, value: Any, name: str = "cdf") -> Tensor:
        """The cumulative distribution function."""
        z = (convert_to_tensor(value, self.dtype) - self.loc) / ops.abs(self.scale)
        part = self.df / (ops.square(z) + self.df)
        a, b = (ops.broadcast_to(value, ops.shape(part)) for value in (0.5 * self.df, 0.5 * ops.ones_like(self.df)))
        tail = 0.5 * ops.betainc(a, b, part)
        return ops.select_v2(ops.less(z, 0.0), tail, 1.0 - tail)

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        half, more = 0.5 * self.df, 0.5 * (self.df + 1.0)
        beta = ops.lgamma(half) + 0.5 * math.log(math.pi) - ops.lgamma(more)
        spread = ops.log(ops.abs(self.scale)) + 0.5 * ops.log(self.df) + beta
        return self._whole(spread + more * (ops.digamma(more) - ops.digamma(half)))

    def mean(self, name: str = "mean") -> Tensor:
        """The mean, of more than one degree of freedom."""
        return ops.select_v2(ops.greater(self.df, 1.0), self._whole(self.loc), self._whole(math.nan))

    def variance(self, name: str = "variance") -> Tensor:
        """The variance: infinite up to two degrees of freedom, and not a number up to one."""
        is_finite = ops.greater(self.df, 2.0)
        less = ops.select_v2(is_finite, self.df - 2.0, ops.ones_like(self.df))
        finite = self._whole(ops.square(self.scale) * self.df / less)
        found = ops.select_v2(is_finite, finite, self._whole(math.inf))
        return ops.select_v2(ops.greater(self.df, 1.0), found, self._whole(math.nan))

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation."""
        return ops.sqrt(self.variance())

    def mode(self, name: str = "mode") -> Tensor:
        """The most likely value."""
        return ops.identity(self.loc)


class DirichletMultinomial(Distribution):
    """`tf.distributions.DirichletMultinomial`: counts of classes whose probabilities a Dirichlet distribution has."""

    def __init__(
        self,
        total_count: Any,
        concentration: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DirichletMultinomial",
    ) -> None:
        with name_scope(name):
            self.concentration = convert_to_tensor(concentration, None, "concentration")
            dtype = self.concentration.dtype.base
            self.total_count = convert_to_tensor(total_count, dtype, "total_count")
            self.total_concentration = ops.sum(self.concentration, [-1])
            batch = ops.broadcast_args(ops.shape(self.total_concentration), ops.shape(self.total_count))
            super().__init__(name, dtype, batch)

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        classes = ops.shape(self.concentration)[-1:]
        each = ops.broadcast_to(self.concentration, ops.concat_v2([shape, classes], 0))
        chances = Dirichlet(each).sample(seed=seed)
        counts = ops.broadcast_to(self.total_count, shape)
        return Multinomial(counts, probs=chances).sample(seed=None if seed is None else seed + 1)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        counts = convert_to_tensor(value, self.dtype)

        def log_beta(alpha: Tensor) -> Tensor:
            return ops.sum(ops.lgamma(alpha), [-1]) - ops.lgamma(ops.sum(alpha, [-1]))

        with name_scope(f"{self.name}/{name}"):
            ordered = log_beta(self.concentration + counts) - log_beta(self.concentration)
            orders = ops.lgamma(self.total_count + 1.0) - ops.sum(ops.lgamma(counts + 1.0), [-1])
            return ordered + orders

    def mean(self, name: str = "mean") -> Tensor:
        """The mean of each count."""
        share = self.concentration / ops.expand_dims(self.total_concentration, -1)
        return ops.expand_dims(self.total_count, -1) * share

    def _scale(self) -> Tensor:
        total = ops.expand_dims(self.total_concentration, -1)
        return ops.sqrt((1.0 + total / ops.expand_dims(self.total_count, -1)) / (1.0 + total))

    def variance(self, name: str = "variance") -> Tensor:
        """The variance of each count."""
        scale = self._scale()
        scaled = scale * self.mean()
        return scaled * (ops.expand_dims(self.total_count, -1) * scale - scaled)

    def covariance(self, name: str = "covariance") -> Tensor:
        """The covariances of counts, [..., classes, classes]."""
        scaled = self._scale() * self.mean()
        products = ops.expand_dims(scaled, -1) * ops.expand_dims(scaled, -2)
        return ops.matrix_set_diag(-products, self.variance())
