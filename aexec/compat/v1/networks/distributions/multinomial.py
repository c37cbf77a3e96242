"""`Multinomial`.  Next to read: `dirichlet_multinomial.py`."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_seed import get_seed
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.control_flow_ops import assert_equal
from aexec.compat.v1.networks.distributions.checks import after, check_counts
from aexec.compat.v1.networks.distributions.distribution import NOT_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.event_shapes import VectorDistribution, negative_products, sized
from aexec.compat.v1.networks.distributions.logits_probs import LogitsProbsDistribution
from aexec.compat.v1.networks.distributions.parameters import logits_and_probs
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.nn.activations import log_softmax

__all__ = ["Multinomial", "checked_counts", "draw_counts", "log_orders"]


def log_orders(total_count: Tensor, counts: Tensor) -> Tensor:
    """The log of the multinomial coefficient n! / Π countsᵢ!, for counts [..., classes]."""
    return ops.lgamma(total_count + 1.0) - ops.sum(ops.lgamma(counts + 1.0), [-1])


def checked_counts(counts: Tensor, total_count: Tensor, message: str) -> Tensor:
    """Return `counts`; a run fails with `message` if they do not sum to `total_count`, or are not whole and >= 0."""
    counts = check_counts(counts)
    return after([assert_equal(total_count, ops.sum(counts, [-1]), message=message)], counts)


def draw_counts(total_count: Tensor, logits: Tensor, shape: Tensor, seed: int | None) -> Tensor:
    """Draw classes and count how often each comes up.

    Args:
        total_count: draws per sample, broadcast to `shape`.
        logits: unnormalised log-probabilities, broadcast to [*shape, classes].
        shape: an int32 vector, the shape of the result without its last axis.

    Returns:
        Counts [*shape, classes], of the dtype of `logits`.
    """
    classes = ops.shape(logits)[-1]
    counts = ops.cast(ops.reshape(ops.broadcast_to(total_count, shape), [-1]), DstT=dtypes.int32)
    most = ops.maximum(ops.max(counts, [0]), 0)
    full = ops.concat_v2([shape, ops.pack([classes])], 0)
    first, second = get_seed(seed)
    rows = ops.reshape(ops.broadcast_to(logits, full), ops.pack([-1, classes]))
    drawn = ops.multinomial(rows, most, seed=first, seed2=second)
    one, nothing = (convert_to_tensor(value, logits.dtype.base) for value in (1, 0))
    # Every row draws as often as the largest count; the surplus draws of the other rows are masked out.
    is_counted = ops.less(ops.expand_dims(ops.range(0, most, 1), 0), ops.expand_dims(counts, 1))
    each = ops.one_hot(drawn, classes, one, nothing) * ops.expand_dims(ops.cast(is_counted, DstT=one.dtype), 2)
    return ops.reshape(ops.sum(each, [1]), full)


class Multinomial(LogitsProbsDistribution, VectorDistribution):
    """`tf.distributions.Multinomial`: counts of each class, [..., classes], over `total_count` draws.

    Args:
        total_count: draws per sample, broadcast against the batch.
        logits, probs: exactly one of them: unnormalised log-probabilities or probabilities, floating, [..., classes].

    Raises:
        ValueError: both `logits` and `probs` are given, or neither.
        TypeError: they are not floating.
    """

    def __init__(
        self,
        total_count: Any,
        logits: Any = None,
        probs: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Multinomial",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, True, validate_args)
            given = convert_to_tensor(total_count, self._probs.dtype.base, "total_count")
            self._total_count = check_counts(given) if validate_args else given
            self._events = ops.expand_dims(self._total_count, -1) * self._probs
        super().__init__(
            self._probs.dtype.base,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._total_count, self._logits, self._probs],
            scope,
        )

    @property
    def total_count(self) -> Tensor:
        """The number of draws per sample."""
        return self._total_count

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        return draw_counts(self.total_count, self.logits, sized(n, self.batch_shape_tensor()), seed)

    def _log_prob(self, value: Tensor) -> Tensor:
        counts = value
        if self.validate_args:
            counts = checked_counts(counts, self.total_count, "counts must sum to `self.total_count`")
        return ops.sum(counts * log_softmax(self.logits), [-1]) + log_orders(self.total_count, counts)

    def _mean(self) -> Tensor:
        return ops.identity(self._events)

    def _each_probs(self) -> Tensor:
        return self.probs * ops.expand_dims(ops.ones_like(self.total_count), -1)

    def _variance(self) -> Tensor:
        return self._events - self._events * self._each_probs()

    def _covariance(self) -> Tensor:
        return ops.matrix_set_diag(negative_products(self._events, self._each_probs()), self._variance())
