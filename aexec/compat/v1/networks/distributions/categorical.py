"""`Categorical`.  Next to read: `multinomial.py`."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.random import multinomial
from aexec.compat.v1.networks.distributions.checks import check_event_size, check_fits
from aexec.compat.v1.networks.distributions.distribution import NOT_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.divergences import RegisterKL
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution, sized
from aexec.compat.v1.networks.distributions.logits_probs import LogitsProbsDistribution
from aexec.compat.v1.networks.distributions.parameters import logits_and_probs
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.nn.activations import log_softmax, softmax
from aexec.nn.cross_entropies import sparse_softmax_cross_entropy_with_logits

__all__ = ["Categorical"]


class Categorical(LogitsProbsDistribution, ScalarDistribution):
    """`tf.distributions.Categorical`: one class index per sample, in [0, classes).

    Args:
        logits, probs: exactly one of them: unnormalised log-probabilities or probabilities, floating, [..., classes].
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
        name: str = "Categorical",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name) as scope:
            self._logits, self._probs = logits_and_probs(logits, probs, True, validate_args)
            if validate_args:
                self._logits = check_event_size(self._logits)
            sizes = self._logits.static_shape.dims
            known = sizes[-1] if sizes else None
            self._event_size = ops.shape(self._logits)[-1] if known is None else convert_to_tensor(known, dtypes.int32)
        super().__init__(
            dtype,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._logits, self._probs],
            scope,
        )

    @property
    def event_size(self) -> Tensor:
        """The number of classes, a scalar int32."""
        return self._event_size

    def _batch_shape(self) -> Any:
        return TensorShape(self.logits.static_shape).with_rank_at_least(1)[:-1]

    def _batch_shape_tensor(self) -> Tensor:
        return ops.shape(self.logits)[:-1]

    def _rows(self, of: Tensor) -> Tensor:
        return ops.reshape(of, ops.pack([-1, self.event_size]))

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        wide = dtypes.int64 if self.dtype.size > 4 else dtypes.int32
        drawn = multinomial(self._rows(self.logits), n, seed, output_dtype=wide)
        shaped = ops.reshape(ops.transpose(drawn, [1, 0]), sized(n, self.batch_shape_tensor()))
        return ops.cast(shaped, DstT=self.dtype)

    def _paired(self, value: Tensor, of_classes: Tensor) -> tuple[Tensor, Tensor]:
        """Broadcast class indices [...] and a parameter [..., classes] against each other.

        Raises:
            TypeError: `value` is neither an integer nor floating.
        """
        if self.validate_args:
            value = check_fits(value, dtypes.int32)
        if value.dtype.is_floating:
            value = ops.cast(value, DstT=dtypes.int32)
        elif not value.dtype.is_integer:
            raise errors.InvalidTypeError(f"`value` should have integer `dtype` or `self.dtype` ({self.dtype})")
        of_classes = of_classes * ops.expand_dims(ops.cast(ops.ones_like(value), DstT=of_classes.dtype.base), -1)
        return value * ops.ones_like(ops.cast(of_classes[..., 0], DstT=value.dtype.base)), of_classes

    def _log_prob(self, value: Tensor) -> Tensor:
        classes, logits = self._paired(value, self.logits)
        return -sparse_softmax_cross_entropy_with_logits(classes, logits)

    def _cdf(self, value: Tensor) -> Tensor:
        """The probability of the classes below `value`; like TensorFlow, without the class `value` itself."""
        classes, probs = self._paired(value, self.probs)
        numbers = ops.cast(ops.range(0, self.event_size, 1), DstT=classes.dtype.base)
        below = ops.less(numbers, ops.expand_dims(classes, -1))
        return ops.sum(ops.select_v2(below, probs, ops.zeros_like(probs)), [-1])

    def _entropy(self) -> Tensor:
        return -ops.sum(log_softmax(self.logits) * self.probs, [-1])

    def _mode(self) -> Tensor:
        return ops.cast(ops.arg_max(self.logits, -1), DstT=self.dtype)


@RegisterKL(Categorical, Categorical)
def _divergence(a: Categorical, b: Categorical, name: str | None = None) -> Tensor:
    with name_scope(name or "kl_categorical_categorical"):
        return ops.sum(softmax(a.logits) * (log_softmax(a.logits) - log_softmax(b.logits)), [-1])
