"""`Bernoulli`.  Next to read: `categorical.py`."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.compat.v1.networks.distributions.checks import check_fits
from aexec.compat.v1.networks.distributions.distribution import NOT_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, sized
from aexec.compat.v1.networks.distributions.logits_probs import LogitsProbsDistribution
from aexec.compat.v1.networks.distributions.parameters import logits_and_probs, shapes_of
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.nn.cross_entropies import sigmoid_cross_entropy_with_logits

__all__ = ["Bernoulli"]


class Bernoulli(LogitsProbsDistribution, ScalarDistribution):
    """`tf.distributions.Bernoulli`: 1 with probability `probs`, else 0.

    Args:
        logits, probs: exactly one of them: the log-odds or the probability of 1, floating.
        dtype: of samples.

    Raises:
        ValueError: both `logits` and `probs` are given, or neither.
        TypeError: they are not floating.
    """

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bernoulli",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, False, validate_args)
        super().__init__(
            dtype,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._logits, self._probs],
            scope,
        )

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(("logits",), sample_shape)

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        shape = sized(n, self.batch_shape_tensor())
        uniform = random_uniform(shape, dtype=self.probs.dtype.base, seed=seed)
        return ops.cast(ops.less(uniform, self.probs), DstT=self.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        event = check_fits(value, dtypes.bool_) if self.validate_args else value
        event = ops.cast(event, DstT=self.logits.dtype.base)
        if not (event.static_shape.is_fully_defined and event.static_shape == self.logits.static_shape):
            logits, event = ops.ones_like(event) * self.logits, ops.ones_like(self.logits) * event
        else:
            logits = self.logits
        return -sigmoid_cross_entropy_with_logits(event, logits)

    def _entropy(self) -> Tensor:
        return -self.logits * (ops.sigmoid(self.logits) - 1.0) + ops.softplus(-self.logits)

    def _mean(self) -> Tensor:
        return ops.identity(self.probs)

    def _variance(self) -> Tensor:
        return self.probs * (1.0 - self.probs)

    def _mode(self) -> Tensor:
        return ops.cast(ops.greater(self.probs, 0.5), DstT=self.dtype)


@RegisterKL(Bernoulli, Bernoulli)
def _divergence(a: Bernoulli, b: Bernoulli, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_bernoulli_bernoulli"):
        of_one = ops.softplus(-b.logits) - ops.softplus(-a.logits)
        of_zero = ops.softplus(b.logits) - ops.softplus(a.logits)
        return ops.sigmoid(a.logits) * of_one + ops.sigmoid(-a.logits) * of_zero
