"""`Gamma`, and `Exponential`, a gamma distribution of concentration 1.

Next to read: `beta.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma, random_uniform
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.check_ops import assert_same_float_dtype
from aexec.compat.v1.functions.control_flow_ops import assert_less, assert_positive
from aexec.compat.v1.networks.distributions.checks import after
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, or_nan, sized
from aexec.compat.v1.networks.distributions.parameters import floats, shapes_of
from aexec.graph.nodes.node import Tensor

__all__ = ["Exponential", "Gamma"]


class Gamma(ScalarDistribution):
    """`tf.distributions.Gamma`: positive numbers.

    Args:
        concentration: the shape parameter α, floating and positive.
        rate: the inverse scale β, floating and positive; broadcasts against `concentration`.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    def __init__(
        self,
        concentration: Any,
        rate: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            checks = [assert_positive(concentration), assert_positive(rate)] if validate_args else []
            self._concentration, self._rate = floats(checks, concentration=concentration, rate=rate)
        super().__init__(
            self._concentration.dtype.base,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._concentration, self._rate],
            scope,
        )

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("concentration", "rate"), sample_shape)

    @property
    def concentration(self) -> Tensor:
        """The shape parameter α."""
        return self._concentration

    @property
    def rate(self) -> Tensor:
        """The inverse scale β."""
        return self._rate

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        return random_gamma(ops.pack([n]), self.concentration, self.rate, dtype=self.dtype, seed=seed)

    def _valid(self, x: Tensor) -> Tensor:
        assert_same_float_dtype([x], self.dtype)
        return after([assert_positive(x)], x) if self.validate_args else x

    def _log_prob(self, value: Tensor) -> Tensor:
        x = self._valid(value)
        normalization = ops.lgamma(self.concentration) - self.concentration * ops.log(self.rate)
        return ops.xlogy(self.concentration - 1.0, x) - self.rate * x - normalization

    def _cdf(self, value: Tensor) -> Tensor:
        return ops.igamma(self.concentration, self.rate * self._valid(value))

    def _entropy(self) -> Tensor:
        a = self.concentration
        return a - ops.log(self.rate) + ops.lgamma(a) + (1.0 - a) * ops.digamma(a)

    def _mean(self) -> Tensor:
        return self.concentration / self.rate

    def _variance(self) -> Tensor:
        return self.concentration / ops.square(self.rate)

    def _stddev(self) -> Tensor:
        return ops.sqrt(self.concentration) / self.rate

    def _mode(self) -> Tensor:
        mode = (self.concentration - 1.0) / self.rate
        if self.allow_nan_stats:
            return or_nan(ops.greater(self.concentration, 1.0), mode)
        message = "mode not defined when any concentration <= 1"
        return after([assert_less(convert_to_tensor(1.0, self.dtype), self.concentration, message=message)], mode)


class Exponential(Gamma):
    """`tf.distributions.Exponential`: positive numbers with mean 1 / `rate`.

    Args:
        rate: the inverse scale, floating and positive.
    """

    def __init__(
        self, rate: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Exponential"
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            given = convert_to_tensor(rate, name="rate")
            one = convert_to_tensor(1.0, given.dtype.base)
        super().__init__(one, given, validate_args, allow_nan_stats, scope)
        self._parameters = parameters

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("rate",), sample_shape)

    def _log_survival_function(self, value: Tensor) -> Tensor:
        return self._log_prob(value) - ops.log(self.rate)

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        least = float(np.finfo(self.dtype.dtype).tiny)
        uniform = random_uniform(sized(n, ops.shape(self.rate)), least, 1.0, dtype=self.dtype, seed=seed)
        return -ops.log(uniform) / self.rate


@RegisterKL(Gamma, Gamma)
def _divergence(a: Gamma, b: Gamma, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_gamma_gamma"):
        return (
            (a.concentration - b.concentration) * ops.digamma(a.concentration)
            + ops.lgamma(b.concentration)
            - ops.lgamma(a.concentration)
            + b.concentration * ops.log(a.rate)
            - b.concentration * ops.log(b.rate)
            + a.concentration * (b.rate / a.rate - 1.0)
        )
