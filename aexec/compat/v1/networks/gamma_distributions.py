"""Distributions of positive numbers, proportions and counts, and Laplace's, over `distributions.py`.

Samples of gammas have no gradient here.  Next to read: `distributions.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma, random_uniform
from aexec.client.random_seed import get_seed
from aexec.compat.v1.networks.distributions import Distribution, RegisterKL, broadcast_shape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.activations import log_softmax, softmax

__all__ = ["Beta", "Dirichlet", "Exponential", "Gamma", "Laplace", "Multinomial"]


def _gammas(concentration: Any, shape: Tensor, seed: int | None) -> Tensor:
    """Samples of gamma distributions of rate 1, one of each element once they are broadcast to a shape."""
    return random_gamma([], ops.broadcast_to(concentration, shape), dtype=concentration.dtype.base, seed=seed)


def _or_nan(holds: Tensor, value: Tensor) -> Tensor:
    return ops.select_v2(holds, value, convert_to_tensor(math.nan, value.dtype.base))


class Gamma(Distribution):
    """`tf.distributions.Gamma`."""

    def __init__(
        self,
        concentration: Any,
        rate: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:
        with name_scope(name):
            self.concentration = convert_to_tensor(concentration, None, "concentration")
            self.rate = convert_to_tensor(rate, self.concentration.dtype.base, "rate")
            super().__init__(name, self.rate.dtype.base, broadcast_shape(self.concentration, self.rate))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        return _gammas(self.concentration, shape, seed) / self.rate

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        x = convert_to_tensor(value, self.dtype)
        normalization = ops.lgamma(self.concentration) - self.concentration * ops.log(self.rate)
        return ops.xlogy(self.concentration - 1.0, x) - self.rate * x - normalization

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        a = self.concentration
        return a - ops.log(self.rate) + ops.lgamma(a) + (1.0 - a) * ops.digamma(a)

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.concentration / self.rate

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return self.concentration / ops.square(self.rate)

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation."""
        return ops.sqrt(self.variance())

    def mode(self, name: str = "mode") -> Tensor:
        """The mode; nan where the concentration is at most 1."""
        return _or_nan(ops.greater(self.concentration, 1.0), (self.concentration - 1.0) / self.rate)


class Exponential(Gamma):
    """`tf.distributions.Exponential`."""

    def __init__(
        self, rate: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Exponential"
    ) -> None:
        given = convert_to_tensor(rate, None, "rate")
        super().__init__(ops.ones_like(given), given, validate_args, allow_nan_stats, name)

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        least = float(np.finfo(self.dtype.dtype).tiny)
        return -ops.log(random_uniform(shape, least, 1.0, dtype=self.dtype, seed=seed)) / self.rate

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        return ops.log(self.rate) - self.rate * convert_to_tensor(value, self.dtype)

    def cdf(self, value: Any, name: str = "cdf") -> Tensor:
        """The cumulative distribution function."""
        return -ops.expm1(-self.rate * convert_to_tensor(value, self.dtype))


class Laplace(Distribution):
    """`tf.distributions.Laplace`."""

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Laplace"
    ) -> None:
        with name_scope(name):
            self.loc = convert_to_tensor(loc, None, "loc")
            self.scale = convert_to_tensor(scale, self.loc.dtype.base, "scale")
            super().__init__(name, self.loc.dtype.base, broadcast_shape(self.loc, self.scale))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        least = float(np.nextafter(self.dtype.dtype.type(-1), self.dtype.dtype.type(0)))
        uniform = random_uniform(shape, least, 1.0, dtype=self.dtype, seed=seed)
        return self.loc - self.scale * ops.sign(uniform) * ops.log1p(-ops.abs(uniform))

    def _z(self, value: Any) -> Tensor:
        return (convert_to_tensor(value, self.dtype) - self.loc) / self.scale

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        return -ops.abs(self._z(value)) - math.log(2.0) - ops.log(self.scale)

    def cdf(self, value: Any, name: str = "cdf") -> Tensor:
        """The cumulative distribution function."""
        z = self._z(value)
        return 0.5 + 0.5 * ops.sign(z) * (1.0 - ops.exp(-ops.abs(z)))

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return math.log(2.0) + 1.0 + ops.log(self.scale + ops.zeros_like(self.loc))

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.loc + ops.zeros_like(self.scale)

    mode = mean

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation."""
        return math.sqrt(2.0) * (self.scale + ops.zeros_like(self.loc))

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return ops.square(self.stddev())


class Beta(Distribution):
    """`tf.distributions.Beta`: of numbers between 0 and 1."""

    def __init__(
        self,
        concentration1: Any = None,
        concentration0: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        with name_scope(name):
            self.concentration1 = convert_to_tensor(concentration1, None, "concentration1")
            self.concentration0 = convert_to_tensor(concentration0, self.concentration1.dtype.base, "concentration0")
            self.total_concentration = self.concentration1 + self.concentration0
            super().__init__(name, self.concentration1.dtype.base, ops.shape(self.total_concentration))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        one = _gammas(self.concentration1, shape, seed)
        other = _gammas(self.concentration0, shape, None if seed is None else seed + 1)
        return one / (one + other)

    def _log_normalization(self) -> Tensor:
        return ops.lgamma(self.concentration1) + ops.lgamma(self.concentration0) - ops.lgamma(self.total_concentration)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        x = convert_to_tensor(value, self.dtype)
        free = ops.xlogy(self.concentration1 - 1.0, x) + (self.concentration0 - 1.0) * ops.log1p(-x)
        return free - self._log_normalization()

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return (
            self._log_normalization()
            - (self.concentration1 - 1.0) * ops.digamma(self.concentration1)
            - (self.concentration0 - 1.0) * ops.digamma(self.concentration0)
            + (self.total_concentration - 2.0) * ops.digamma(self.total_concentration)
        )

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.concentration1 / self.total_concentration

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return self.mean() * (1.0 - self.mean()) / (1.0 + self.total_concentration)

    def mode(self, name: str = "mode") -> Tensor:
        """The mode; nan where a concentration is at most 1."""
        has = ops.logical_and(ops.greater(self.concentration1, 1.0), ops.greater(self.concentration0, 1.0))
        return _or_nan(has, (self.concentration1 - 1.0) / (self.total_concentration - 2.0))


class Dirichlet(Distribution):
    """`tf.distributions.Dirichlet`: of proportions, along the last axis."""

    def __init__(
        self, concentration: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Dirichlet"
    ) -> None:
        with name_scope(name):
            self.concentration = convert_to_tensor(concentration, None, "concentration")
            self.total_concentration = ops.sum(self.concentration, [-1])
            super().__init__(name, self.concentration.dtype.base, ops.shape(self.total_concentration))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        each = ops.shape(self.concentration)[-1:]
        drawn = _gammas(self.concentration, ops.concat_v2([shape, each], 0), seed)
        return drawn / ops.sum(drawn, [-1], keep_dims=True)

    def _log_normalization(self) -> Tensor:
        return ops.sum(ops.lgamma(self.concentration), [-1]) - ops.lgamma(self.total_concentration)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        x = convert_to_tensor(value, self.dtype)
        return ops.sum(ops.xlogy(self.concentration - 1.0, x), [-1]) - self._log_normalization()

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        k = ops.cast(ops.shape(self.concentration)[-1], DstT=self.dtype)
        own = ops.sum((self.concentration - 1.0) * ops.digamma(self.concentration), [-1])
        return self._log_normalization() + (self.total_concentration - k) * ops.digamma(self.total_concentration) - own

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.concentration / ops.expand_dims(self.total_concentration, -1)

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return self.mean() * (1.0 - self.mean()) / ops.expand_dims(1.0 + self.total_concentration, -1)


class Multinomial(Distribution):
    """`tf.distributions.Multinomial`: how often each class was drawn, along the last axis."""

    def __init__(
        self,
        total_count: Any,
        logits: Any = None,
        probs: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Multinomial",
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("Must pass probs or logits, but not both.")
        with name_scope(name):
            if probs is None:
                self.logits = convert_to_tensor(logits, None, "logits")
                self.probs = softmax(self.logits)
            else:
                self.probs = convert_to_tensor(probs, None, "probs")
                self.logits = ops.log(self.probs)
            self.total_count = convert_to_tensor(total_count, self.logits.dtype.base, "total_count")
            batch = ops.broadcast_args(ops.shape(self.logits)[:-1], ops.shape(self.total_count))
            super().__init__(name, self.logits.dtype.base, batch)

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        classes = ops.shape(self.logits)[-1]
        counts = ops.reshape(ops.broadcast_to(self.total_count, shape), [-1])
        rows = ops.broadcast_to(self.logits, ops.concat_v2([shape, ops.pack([classes])], 0))
        most = ops.cast(ops.max(counts, [0]), DstT="int32")
        first, second = get_seed(seed)
        drawn = ops.multinomial(ops.reshape(rows, ops.pack([-1, classes])), most, seed=first, seed2=second)
        one, nothing = (convert_to_tensor(value, self.dtype) for value in (1, 0))
        # Rows with smaller counts leave their last draws out.
        is_counted = ops.less(
            ops.expand_dims(ops.range(0, most, 1), 0), ops.cast(ops.expand_dims(counts, 1), DstT="int32")
        )
        each = ops.one_hot(drawn, classes, one, nothing) * ops.expand_dims(ops.cast(is_counted, DstT=self.dtype), 2)
        return ops.reshape(ops.sum(each, [1]), ops.concat_v2([shape, ops.pack([classes])], 0))

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        counts = convert_to_tensor(value, self.dtype)
        free = ops.sum(counts * log_softmax(self.logits), [-1])
        return free + ops.lgamma(self.total_count + 1.0) - ops.sum(ops.lgamma(counts + 1.0), [-1])

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.probs * ops.expand_dims(self.total_count, -1)

    def variance(self, name: str = "variance") -> Tensor:
        """The variance of each count."""
        return self.mean() * (1.0 - self.probs)


@RegisterKL(Gamma, Gamma)
def _kl_of_gammas(a: Gamma, b: Gamma, name: str | None = None) -> Tensor:
    return (
        (a.concentration - b.concentration) * ops.digamma(a.concentration)
        + ops.lgamma(b.concentration)
        - ops.lgamma(a.concentration)
        + b.concentration * (ops.log(a.rate) - ops.log(b.rate))
        + a.concentration * (b.rate / a.rate - 1.0)
    )


@RegisterKL(Beta, Beta)
def _kl_of_betas(a: Beta, b: Beta, name: str | None = None) -> Tensor:
    one, other = a.concentration1 - b.concentration1, a.concentration0 - b.concentration0
    return (
        b._log_normalization()
        - a._log_normalization()
        + ops.digamma(a.concentration1) * one
        + ops.digamma(a.concentration0) * other
        - ops.digamma(a.total_concentration) * (one + other)
    )


@RegisterKL(Dirichlet, Dirichlet)
def _kl_of_dirichlets(a: Dirichlet, b: Dirichlet, name: str | None = None) -> Tensor:
    excess = ops.digamma(a.concentration) - ops.digamma(ops.expand_dims(a.total_concentration, -1))
    parts = ops.sum((a.concentration - b.concentration) * excess, [-1])
    return parts - a._log_normalization() + b._log_normalization()
