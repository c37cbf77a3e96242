"""`tf.distributions`: distributions with samples and log probabilities, for training programs.

Next to read: `random.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_normal, random_uniform
from aexec.compat.v1.namespace import namespace
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.activations import log_softmax, softmax
from aexec.nn.cross_entropies import sigmoid_cross_entropy_with_logits

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Normal",
    "RegisterKL",
    "Uniform",
    "broadcast_shape",
    "kl_divergence",
]


class Distribution:
    """The base of distributions: a subclass has `_draw` and `log_prob`, and other functions that it can compute.

    Attributes:
        name: scope of its nodes.
        dtype: of samples.
    """

    def __init__(self, name: str, dtype: dtypes.DType, shape: Tensor) -> None:
        self.name = name
        self.dtype = dtype
        self._shape = shape

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """The shape of the batch of distributions."""
        return self._shape

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        raise NotImplementedError

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> Tensor:
        """Samples of shape [*sample_shape, *batch_shape]."""
        with name_scope(f"{self.name}/{name}"):
            many = convert_to_tensor(
                np.array(sample_shape, np.int32) if not isinstance(sample_shape, Tensor) else sample_shape
            )
            many = ops.reshape(many, [-1])
            return self._draw(ops.concat_v2([many, self._shape], 0), seed)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        """The logarithm of the probability, or its density, of values."""
        raise NotImplementedError

    def prob(self, value: Any, name: str = "prob") -> Tensor:
        """The probability, or its density, of values."""
        return ops.exp(self.log_prob(value))


def broadcast_shape(*values: Tensor) -> Tensor:
    """The shape to which the values broadcast."""
    shape = ops.shape(values[0])
    for value in values[1:]:
        shape = ops.broadcast_args(shape, ops.shape(value))
    return shape


class Normal(Distribution):
    """`tf.distributions.Normal`."""

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:
        with name_scope(name):
            self.loc = convert_to_tensor(loc, None, "loc")
            self.scale = convert_to_tensor(scale, self.loc.dtype.base, "scale")
            super().__init__(name, self.loc.dtype.base, broadcast_shape(self.loc, self.scale))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        return random_normal(shape, dtype=self.dtype, seed=seed) * self.scale + self.loc

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        with name_scope(f"{self.name}/{name}"):
            z = (convert_to_tensor(value, self.dtype) - self.loc) / self.scale
            return -0.5 * ops.square(z) - (0.5 * math.log(2 * math.pi) + ops.log(self.scale))

    def cdf(self, value: Any, name: str = "cdf") -> Tensor:
        """The cumulative distribution function."""
        z = (convert_to_tensor(value, self.dtype) - self.loc) / self.scale
        return 0.5 * ops.erfc(z * -math.sqrt(0.5))

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + ops.log(self.scale * ops.ones_like(self.loc))

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return self.loc * ops.ones_like(self.scale)

    mode = mean

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation."""
        return self.scale * ops.ones_like(self.loc)

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return ops.square(self.stddev())


class Uniform(Distribution):
    """`tf.distributions.Uniform`: of [low, high)."""

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:
        with name_scope(name):
            self.low = convert_to_tensor(low, None, "low")
            self.high = convert_to_tensor(high, self.low.dtype.base, "high")
            super().__init__(name, self.low.dtype.base, broadcast_shape(self.low, self.high))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        return self.low + (self.high - self.low) * random_uniform(shape, dtype=self.dtype, seed=seed)

    def prob(self, value: Any, name: str = "prob") -> Tensor:
        x = convert_to_tensor(value, self.dtype)
        inside = ops.logical_and(ops.greater_equal(x, self.low), ops.less(x, self.high))
        density = ops.ones_like(x) / (self.high - self.low)
        return ops.select_v2(inside, density, ops.zeros_like(density))

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        return ops.log(self.prob(value))

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return ops.log(self.high - self.low)

    def mean(self, name: str = "mean") -> Tensor:
        """The mean."""
        return (self.low + self.high) / 2.0

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return ops.square(self.high - self.low) / 12.0

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation."""
        return (self.high - self.low) / math.sqrt(12.0)


def _check_one_given(logits: Any, probs: Any) -> None:
    if (logits is None) == (probs is None):
        raise ValueError("Must pass probs or logits, but not both.")


class Bernoulli(Distribution):
    """`tf.distributions.Bernoulli`: 1 with a probability, or its logit."""

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bernoulli",
    ) -> None:
        _check_one_given(logits, probs)
        with name_scope(name):
            if probs is None:
                self.logits = convert_to_tensor(logits, None, "logits")
                self.probs = ops.sigmoid(self.logits)
            else:
                self.probs = convert_to_tensor(probs, None, "probs")
                self.logits = ops.log(self.probs) - ops.log1p(-self.probs)
            super().__init__(name, dtypes.as_dtype(dtype), ops.shape(self.probs))

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        uniform = random_uniform(shape, dtype=self.probs.dtype.base, seed=seed)
        return ops.cast(ops.less(uniform, self.probs), DstT=self.dtype)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        event = ops.cast(convert_to_tensor(value), DstT=self.logits.dtype.base)
        zeros = ops.zeros_like(self.logits * event)
        return -sigmoid_cross_entropy_with_logits(event + zeros, self.logits + zeros)

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return -self.logits * (self.probs - 1.0) + ops.softplus(-self.logits)

    def mean(self, name: str = "mean") -> Tensor:
        """The probability of 1."""
        return self.probs

    def variance(self, name: str = "variance") -> Tensor:
        """The variance."""
        return self.probs * (1.0 - self.probs)

    def mode(self, name: str = "mode") -> Tensor:
        """The likelier value."""
        return ops.cast(ops.greater(self.probs, 0.5), DstT=self.dtype)


class Categorical(Distribution):
    """`tf.distributions.Categorical`: class numbers, by their logits or probabilities along the last axis."""

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Categorical",
    ) -> None:
        _check_one_given(logits, probs)
        with name_scope(name):
            if probs is None:
                self.logits = convert_to_tensor(logits, None, "logits")
                self.probs = softmax(self.logits)
            else:
                self.probs = convert_to_tensor(probs, None, "probs")
                self.logits = ops.log(self.probs)
            super().__init__(name, dtypes.as_dtype(dtype), ops.shape(self.logits)[:-1])

    @property
    def event_size(self) -> Tensor:
        """The number of classes."""
        return ops.shape(self.logits)[-1]

    def _draw(self, shape: Tensor, seed: int | None) -> Tensor:
        flat = ops.reshape(self.logits, ops.pack([-1, self.event_size]))
        count = ops.prod(shape, [0]) // ops.maximum(ops.prod(self._shape, [0]), 1)
        drawn = ops.transpose(ops.multinomial(flat, count, **_seeds(seed)), [1, 0])
        return ops.reshape(ops.cast(drawn, DstT=self.dtype), shape)

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        classes = convert_to_tensor(value)
        shape = ops.broadcast_args(ops.shape(classes), self._shape)
        classes = ops.broadcast_to(classes, shape)
        logits = ops.broadcast_to(
            log_softmax(self.logits), ops.concat_v2([shape, ops.reshape(self.event_size, [1])], 0)
        )
        flat = ops.reshape(logits, ops.pack([-1, self.event_size]))
        found, _ = ops.sparse_softmax_cross_entropy_with_logits(flat, ops.reshape(classes, [-1]))
        return ops.reshape(-found, shape)

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy."""
        return -ops.sum(ops.mul_no_nan(log_softmax(self.logits), self.probs), [-1])

    def mode(self, name: str = "mode") -> Tensor:
        """The likeliest class."""
        return ops.cast(ops.arg_max(self.logits, -1), DstT=self.dtype)


def _seeds(seed: int | None) -> dict[str, Any]:
    from aexec.client.random_seed import get_seed

    first, second = get_seed(seed)
    return {"seed": first, "seed2": second}


# (class of a, class of b) → function of both and a name; those of this module are in `kl_divergence` itself.
_DIVERGENCES: dict[tuple[type, type], Callable[..., Tensor]] = {}


class RegisterKL:
    """`tf.distributions.RegisterKL`: a decorator of the function that computes the divergence of two classes."""

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = dist_cls_a, dist_cls_b

    def __call__(self, kl_fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        if self._key in _DIVERGENCES:
            raise ValueError(f"KL({self._key[0].__name__} || {self._key[1].__name__}) has already been registered")
        _DIVERGENCES[self._key] = kl_fn
        return kl_fn


def _registered(a: type, b: type) -> Callable[..., Tensor] | None:
    """The function registered for the nearest bases of both."""
    pairs = ((first, second) for first in a.__mro__ for second in b.__mro__)
    return next((_DIVERGENCES[pair] for pair in pairs if pair in _DIVERGENCES), None)


def kl_divergence(
    distribution_a: Distribution, distribution_b: Distribution, allow_nan_stats: bool = True, name: str | None = None
) -> Tensor:
    """`tf.distributions.kl_divergence`, of two distributions of one kind.  Raises NotImplementedError for others."""
    a: Any = distribution_a
    b: Any = distribution_b
    with name_scope(name or "KullbackLeibler"):
        if (registered := _registered(type(a), type(b))) is not None:
            return registered(a, b)
        if isinstance(a, Normal) and isinstance(b, Normal):
            ratio = ops.square(a.scale / b.scale)
            return ops.square(a.loc - b.loc) / (2.0 * ops.square(b.scale)) + 0.5 * (ratio - 1.0 - ops.log(ratio))
        if isinstance(a, Categorical) and isinstance(b, Categorical):
            return ops.sum(a.probs * (log_softmax(a.logits) - log_softmax(b.logits)), [-1])
        if isinstance(a, Bernoulli) and isinstance(b, Bernoulli):
            there, not_there = (
                ops.softplus(-b.logits) - ops.softplus(-a.logits),
                ops.softplus(b.logits) - ops.softplus(a.logits),
            )
            return a.probs * there + (1.0 - a.probs) * not_there
    raise NotImplementedError(
        f"No KL(distribution_a || distribution_b) registered for {type(a).__name__} and {type(b).__name__}"
    )


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"networks.gamma_distributions:{name}"
            for name in "Beta Dirichlet Exponential Gamma Laplace Multinomial".split()
        },
        **{name: f"networks.more_distributions:{name}" for name in "DirichletMultinomial StudentT".split()},
    },
    dict.fromkeys(
        "ReparameterizationType FULLY_REPARAMETERIZED NOT_REPARAMETERIZED".split(),
        "tf.gradients of a sample says whether it has a gradient",
    ),
)
