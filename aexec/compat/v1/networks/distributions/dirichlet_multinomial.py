"""`DirichletMultinomial`.  Next to read: `student_t.py`."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_gamma
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.control_flow_ops import assert_positive
from aexec.compat.v1.networks.distributions.checks import after, check_counts, check_event_size
from aexec.compat.v1.networks.distributions.concentration import ConcentrationDistribution
from aexec.compat.v1.networks.distributions.distribution import NOT_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.event_shapes import sized
from aexec.compat.v1.networks.distributions.multinomial import checked_counts, draw_counts, log_orders
from aexec.compat.v1.networks.distributions.parameters import next_seed
from aexec.compat.v1.numerics.special import lbeta
from aexec.graph.nodes.node import Tensor

__all__ = ["DirichletMultinomial"]


def _checked(concentration: Tensor) -> Tensor:
    found = check_event_size(concentration)
    return after([assert_positive(found, message="Concentration parameter must be positive.")], found)


class DirichletMultinomial(ConcentrationDistribution):
    """`tf.distributions.DirichletMultinomial`: counts of classes whose probabilities have a Dirichlet distribution.

    Samples have shape [..., classes] and hold whole numbers.

    Args:
        total_count: draws per sample, broadcast against the batch.
        concentration: floating, positive, [..., classes].
    """

    def __init__(
        self,
        total_count: Any,
        concentration: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DirichletMultinomial",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            given = convert_to_tensor(concentration, name="concentration")
            count = convert_to_tensor(total_count, given.dtype.base, "total_count")
            self._total_count = check_counts(count) if validate_args else count
            self._concentration = _checked(given) if validate_args else given
            self._total_concentration = ops.sum(self._concentration, [-1])
            self._events = self._concentration * ops.expand_dims(ops.ones_like(self._total_count), -1)
        super().__init__(
            self._concentration.dtype.base,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._total_count, self._concentration],
            scope,
        )

    @property
    def total_count(self) -> Tensor:
        """The number of draws per sample."""
        return self._total_count

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        drawn = random_gamma(ops.pack([n]), self._events, dtype=self.dtype, seed=seed)
        shape = sized(n, self.batch_shape_tensor())
        return draw_counts(self.total_count, ops.log(drawn), shape, next_seed(seed, "dirichlet_multinomial"))

    def _log_prob(self, value: Tensor) -> Tensor:
        counts = value
        if self.validate_args:
            counts = checked_counts(counts, self.total_count, "counts last-dimension must sum to `self.total_count`")
        ordered = lbeta(self.concentration + counts) - lbeta(self.concentration)
        return ordered + log_orders(self.total_count, counts)

    def _count(self) -> Tensor:
        return ops.expand_dims(self.total_count, -1)

    def _mean(self) -> Tensor:
        return self._count() * (self.concentration / self._total())

    def _scale(self) -> Tensor:
        total = self._total()
        return ops.sqrt((1.0 + total / self._count()) / (1.0 + total))

    def _variance(self) -> Tensor:
        scaled = self._scale() * self._mean()
        return scaled * (self._count() * self._scale() - scaled)
