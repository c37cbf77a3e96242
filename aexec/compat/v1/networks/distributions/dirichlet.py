"""`Dirichlet`.  Next to read: `dirichlet_multinomial.py`."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.check_ops import assert_near, assert_rank_at_least
from aexec.compat.v1.functions.control_flow_ops import assert_less, assert_positive
from aexec.compat.v1.networks.distributions.checks import after
from aexec.compat.v1.networks.distributions.concentration import ConcentrationDistribution
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import or_nan
from aexec.compat.v1.numerics.special import lbeta
from aexec.graph.nodes.node import Tensor

__all__ = ["Dirichlet"]


def _checked(concentration: Tensor) -> Tensor:
    checks = [
        assert_positive(concentration, message="Concentration parameter must be positive."),
        assert_rank_at_least(concentration, 1, message="Concentration parameter must have >=1 dimensions."),
        assert_less(1, ops.shape(concentration)[-1], message="Concentration parameter must have event_size >= 2."),
    ]
    return after(checks, concentration)


class Dirichlet(ConcentrationDistribution):
    """`tf.distributions.Dirichlet`: proportions that sum to 1 along the last axis.

    Args:
        concentration: floating, positive, [..., classes] with at least two classes.
    """

    def __init__(
        self, concentration: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Dirichlet"
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            given = convert_to_tensor(concentration, name="concentration")
            self._concentration = self._events = _checked(given) if validate_args else given
            self._total_concentration = ops.sum(self._concentration, [-1])
        super().__init__(
            self._concentration.dtype.base,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._concentration, self._total_concentration],
            scope,
        )

    def _size(self) -> Tensor:
        return ops.cast(ops.shape(self.concentration)[-1], DstT=self.dtype)

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        drawn = random_gamma(ops.pack([n]), self.concentration, dtype=self.dtype, seed=seed)
        return drawn / ops.sum(drawn, [-1], keep_dims=True)

    def _valid(self, x: Tensor) -> Tensor:
        if not self.validate_args:
            return x
        positive = assert_positive(x, message="samples must be positive")
        one = convert_to_tensor(1.0, self.dtype)
        whole = assert_near(one, ops.sum(x, [-1]), message="sample last-dimension must sum to `1`")
        return after([positive, whole], x)

    def _log_prob(self, value: Tensor) -> Tensor:
        x = self._valid(value)
        return ops.sum(ops.xlogy(self.concentration - 1.0, x), [-1]) - lbeta(self.concentration)

    def _entropy(self) -> Tensor:
        parts = ops.sum((self.concentration - 1.0) * ops.digamma(self.concentration), [-1])
        total = self.total_concentration
        return lbeta(self.concentration) + (total - self._size()) * ops.digamma(total) - parts

    def _mean(self) -> Tensor:
        return self.concentration / self._total()

    def _scale(self) -> Tensor:
        return ops.rsqrt(1.0 + self._total())

    def _variance(self) -> Tensor:
        scaled = self._scale() * self._mean()
        return scaled * (self._scale() - scaled)

    def _mode(self) -> Tensor:
        mode = (self.concentration - 1.0) / (self._total() - self._size())
        if self.allow_nan_stats:
            return or_nan(ops.all(ops.greater(self.concentration, 1.0), [-1], keep_dims=True), mode)
        message = "Mode undefined when any concentration <= 1"
        return after([assert_less(convert_to_tensor(1.0, self.dtype), self.concentration, message=message)], mode)


@RegisterKL(Dirichlet, Dirichlet)
def _divergence(a: Dirichlet, b: Dirichlet, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_dirichlet_dirichlet"):
        excess = ops.digamma(a.concentration) - ops.digamma(a._total())
        parts = ops.sum((a.concentration - b.concentration) * excess, [-1])
        return parts - lbeta(a.concentration) + lbeta(b.concentration)
