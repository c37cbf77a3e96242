"""`Beta`.  Next to read: `dirichlet.py`, its generalisation to more than two proportions."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.check_ops import assert_same_float_dtype
from aexec.compat.v1.functions.control_flow_ops import assert_less, assert_positive
from aexec.compat.v1.networks.distributions.checks import after
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, or_nan
from aexec.compat.v1.networks.distributions.parameters import next_seed, shapes_of
from aexec.graph.nodes.node import Tensor

__all__ = ["Beta"]


def _concentration(value: Any, name: str, validate_args: bool) -> Tensor:
    found = convert_to_tensor(value, name=name)
    if not validate_args:
        return found
    return after([assert_positive(found, message="Concentration parameter must be positive.")], found)


class Beta(ScalarDistribution):
    """`tf.distributions.Beta`: numbers in (0, 1).

    Args:
        concentration1, concentration0: α and β, floating, positive and of the same dtype; they broadcast.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """

    def __init__(
        self,
        concentration1: Any = None,
        concentration0: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._concentration1 = _concentration(concentration1, "concentration1", validate_args)
            self._concentration0 = _concentration(concentration0, "concentration0", validate_args)
            assert_same_float_dtype([self._concentration1, self._concentration0])
            self._total_concentration = self._concentration1 + self._concentration0
        super().__init__(
            self._total_concentration.dtype.base,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._concentration1, self._concentration0, self._total_concentration],
            scope,
        )

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("concentration1", "concentration0"), sample_shape)

    @property
    def concentration1(self) -> Tensor:
        """α: the concentration at 1."""
        return self._concentration1

    @property
    def concentration0(self) -> Tensor:
        """β: the concentration at 0."""
        return self._concentration0

    @property
    def total_concentration(self) -> Tensor:
        """α + β."""
        return self._total_concentration

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        ones = ops.ones_like(self.total_concentration)
        shape = ops.pack([n])
        one = random_gamma(shape, ones * self.concentration1, dtype=self.dtype, seed=seed)
        other = random_gamma(shape, ones * self.concentration0, dtype=self.dtype, seed=next_seed(seed, "beta"))
        return one / (one + other)

    def _valid(self, x: Tensor) -> Tensor:
        if not self.validate_args:
            return x
        one = convert_to_tensor(1.0, self.dtype)
        positive = assert_positive(x, message="sample must be positive")
        return after([positive, assert_less(x, one, message="sample must be less than `1`.")], x)

    def _log_prob(self, value: Tensor) -> Tensor:
        x = self._valid(value)
        free = ops.xlogy(self.concentration1 - 1.0, x) + (self.concentration0 - 1.0) * ops.log1p(-x)
        return free - self._log_normalization()

    def _cdf(self, value: Tensor) -> Tensor:
        shape = ops.broadcast_args(self.batch_shape_tensor(), ops.shape(value))
        a, b, x = (ops.broadcast_to(x, shape) for x in (self.concentration1, self.concentration0, value))
        return ops.betainc(a, b, x)

    def _log_normalization(self) -> Tensor:
        return ops.lgamma(self.concentration1) + ops.lgamma(self.concentration0) - ops.lgamma(self.total_concentration)

    def _entropy(self) -> Tensor:
        return (
            self._log_normalization()
            - (self.concentration1 - 1.0) * ops.digamma(self.concentration1)
            - (self.concentration0 - 1.0) * ops.digamma(self.concentration0)
            + (self.total_concentration - 2.0) * ops.digamma(self.total_concentration)
        )

    def _mean(self) -> Tensor:
        return self.concentration1 / self.total_concentration

    def _variance(self) -> Tensor:
        return self._mean() * (1.0 - self._mean()) / (1.0 + self.total_concentration)

    def _mode(self) -> Tensor:
        mode = (self.concentration1 - 1.0) / (self.total_concentration - 2.0)
        if self.allow_nan_stats:
            has_one, has_other = ops.greater(self.concentration1, 1.0), ops.greater(self.concentration0, 1.0)
            return or_nan(ops.logical_and(has_one, has_other), mode)
        one = convert_to_tensor(1.0, self.dtype)
        both = {"concentration1": self.concentration1, "concentration0": self.concentration0}
        checks = [assert_less(one, value, message=f"Mode undefined for {name} <= 1.") for name, value in both.items()]
        return after(checks, mode)


@RegisterKL(Beta, Beta)
def _divergence(a: Beta, b: Beta, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_beta_beta"):
        return (
            b._log_normalization()
            - a._log_normalization()
            - ops.digamma(a.concentration1) * (b.concentration1 - a.concentration1)
            - ops.digamma(a.concentration0) * (b.concentration0 - a.concentration0)
            + ops.digamma(a.total_concentration) * (b.total_concentration - a.total_concentration)
        )
