"""`Distribution`: the base class.  Its public methods build nodes from the private formulas of a subclass.

A subclass overrides those of `_log_prob`, `_mean` and the others that it can compute.  If a formula is missing, the
public method derives it from another one, such as `prob` from `exp(log_prob)`; if that is missing too, it raises
NotImplementedError.
Next to read: `event_shapes.py`, the bases of TensorFlow's own distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.networks.distributions.divergences import cross_entropy, kl_divergence
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.static_values import get_static_value
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["FULLY_REPARAMETERIZED", "NOT_REPARAMETERIZED", "Distribution", "ReparameterizationType"]


class ReparameterizationType:
    """`tf.distributions.ReparameterizationType`: whether gradients flow from samples to the parameters."""

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameterization Type: {self._rep_type}>"


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


class Distribution:
    """`tf.distributions.Distribution`: a batch of distributions.

    Args:
        dtype: of samples.
        reparameterization_type: whether gradients flow from samples to the parameters.
        validate_args: check parameters and arguments in each run; the subclass builds the checks.
        allow_nan_stats: True: a statistic that does not exist is NaN.  False: a run that computes it fails.
        parameters: the subclass's arguments by name, which `copy` passes on.
        graph_parents: the tensors that all formulas use.
        name: scope of the nodes.

    Raises:
        ValueError: a graph parent is not a tensor.
    """

    def __init__(
        self,
        dtype: Any,
        reparameterization_type: ReparameterizationType,
        validate_args: bool,
        allow_nan_stats: bool,
        parameters: Mapping[str, Any] | None = None,
        graph_parents: Sequence[Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        for place, parent in enumerate(graph_parents or ()):
            if not isinstance(parent, Tensor | TensorProxy):
                raise errors.InvalidValueError(f"Graph parent item {place} is not a Tensor; {parent}.")
        if not name or not name.endswith("/"):
            with name_scope(name or type(self).__name__) as name:
                pass
        self._dtype = dtypes.as_dtype(dtype)
        self._reparameterization_type = reparameterization_type
        self._validate_args = validate_args
        self._allow_nan_stats = allow_nan_stats
        self._parameters = dict(parameters or {})
        self._graph_parents = list(graph_parents or ())
        self._name = name

    def __str__(self) -> str:
        shapes = {"batch_shape": self.batch_shape, "event_shape": self.event_shape}
        known = "".join(f", {key}={shape}" for key, shape in shapes.items() if shape.rank is not None)
        return f'tfp.distributions.{type(self).__name__}("{self.name}"{known}, dtype={self.dtype.name})'

    def __repr__(self) -> str:
        return (
            f"<tfp.distributions.{type(self).__name__} '{self.name}' batch_shape={self.batch_shape} "
            f"event_shape={self.event_shape} dtype={self.dtype.name}>"
        )

    @property
    def name(self) -> str:
        """The scope of the nodes, with a slash at its end."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of samples."""
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor by name."""
        return {
            name: value
            for name, value in self._parameters.items()
            if not name.startswith("__") and name != "self" and value is not self
        }

    @property
    def reparameterization_type(self) -> ReparameterizationType:
        """Whether gradients flow from samples to the parameters."""
        return self._reparameterization_type

    @property
    def allow_nan_stats(self) -> bool:
        """True if a statistic that does not exist is NaN, False if a run that computes it fails."""
        return self._allow_nan_stats

    @property
    def validate_args(self) -> bool:
        """Whether runs check parameters and arguments."""
        return self._validate_args

    def copy(self, **override_parameters_kwargs: Any) -> Any:
        """A distribution of the same class; the given arguments replace those of this one."""
        return type(self)(**{**self.parameters, **override_parameters_kwargs})

    @classmethod
    def param_shapes(cls, sample_shape: Any, name: str = "DistributionParamShapes") -> dict[str, Tensor]:
        """The shape, an int32 vector, that each parameter needs so that `sample()` has shape `sample_shape`."""
        with name_scope(name):
            return cls._param_shapes(sample_shape)

    @classmethod
    def param_static_shapes(cls, sample_shape: Any) -> dict[str, TensorShape]:
        """`param_shapes` as static shapes.  Raises ValueError unless `sample_shape` is fully known at build time."""
        if isinstance(sample_shape, TensorShape):
            if not sample_shape.is_fully_defined():
                raise errors.InvalidValueError("TensorShape sample_shape must be fully defined")
            sample_shape = sample_shape.as_list()
        found = {name: get_static_value(shape) for name, shape in cls.param_shapes(sample_shape).items()}
        if any(shape is None for shape in found.values()):
            raise errors.InvalidValueError("sample_shape must be a fully-defined TensorShape or list/tuple")
        return {name: TensorShape(shape) for name, shape in found.items()}

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Tensor]:
        raise NotImplementedError("_param_shapes not implemented")

    @contextmanager
    def _name_scope(self, name: str | None = None, values: Sequence[Any] | None = None) -> Iterator[str]:
        with name_scope(self.name), name_scope(name) as scope:
            yield scope

    def _lacks(self, function: str) -> NotImplementedError:
        return NotImplementedError(f"{function} is not implemented: {type(self).__name__}")

    # Shapes.

    def _batch_shape(self) -> Any:
        return TensorShape(None)

    def _batch_shape_tensor(self) -> Tensor:
        raise self._lacks("batch_shape_tensor")

    def _event_shape(self) -> Any:
        return TensorShape(None)

    def _event_shape_tensor(self) -> Tensor:
        raise self._lacks("event_shape_tensor")

    @property
    def batch_shape(self) -> TensorShape:
        """The static shape of the batch of distributions."""
        return TensorShape(self._batch_shape())

    @property
    def event_shape(self) -> TensorShape:
        """The static shape of one sample of one distribution."""
        return TensorShape(self._event_shape())

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """The shape of the batch of distributions, an int32 vector."""
        with self._name_scope(name):
            return _shape_tensor(self.batch_shape, self._batch_shape_tensor, "batch_shape")

    def event_shape_tensor(self, name: str = "event_shape_tensor") -> Tensor:
        """The shape of one sample of one distribution, an int32 vector."""
        with self._name_scope(name):
            return _shape_tensor(self.event_shape, self._event_shape_tensor, "event_shape")

    def is_scalar_batch(self, name: str = "is_scalar_batch") -> Tensor:
        """A scalar bool: whether the batch shape is []."""
        with self._name_scope(name):
            return _is_scalar(self.batch_shape, self.batch_shape_tensor, "is_scalar_batch")

    def is_scalar_event(self, name: str = "is_scalar_event") -> Tensor:
        """A scalar bool: whether the event shape is []."""
        with self._name_scope(name):
            return _is_scalar(self.event_shape, self.event_shape_tensor, "is_scalar_event")

    # Samples.

    def _sample_n(self, n: Any, seed: int | None = None) -> Tensor:
        raise self._lacks("sample_n")

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> Tensor:
        """Samples [*sample_shape, *batch_shape, *event_shape], of `dtype`.

        Args:
            sample_shape: an integer, or a vector of integers.
            seed: of the op; None to use the graph's seed alone.

        Raises:
            ValueError: `sample_shape` has more than one axis.
        """
        with self._name_scope(name):
            shape = convert_to_tensor(sample_shape, dtypes.int32, "sample_shape")
            rank = shape.static_shape.rank
            if rank is not None and rank > 1:
                raise errors.InvalidValueError("Input is neither scalar nor vector.")
            sizes = ops.reshape(shape, [-1])
            known = get_static_value(shape)
            count = ops.prod(sizes, [0]) if known is None else int(np.prod(known, dtype=np.int64))
            samples = self._sample_n(count, seed)
            samples = ops.reshape(samples, ops.concat_v2([sizes, ops.shape(samples)[1:]], 0))
            lead = TensorShape(None if known is None else np.atleast_1d(known).tolist())
            whole = lead.concatenate(self.batch_shape).concatenate(self.event_shape)
            shaped: Any = samples
            shaped.set_shape(whole)
            return samples

    # Functions of values.

    def _of(
        self, name: str, value: Any, own: Callable[..., Tensor], other: Callable[..., Tensor] | None = None
    ) -> Tensor:
        """Apply the formula `own` to a value, or `other` if the subclass lacks `own`."""
        with self._name_scope(name):
            return _tried(own, other, convert_to_tensor(value, name="value", preferred_dtype=self.dtype))

    def _log_prob(self, value: Tensor) -> Tensor:
        raise self._lacks("log_prob")

    def _prob(self, value: Tensor) -> Tensor:
        raise self._lacks("prob")

    def _log_cdf(self, value: Tensor) -> Tensor:
        raise self._lacks("log_cdf")

    def _cdf(self, value: Tensor) -> Tensor:
        raise self._lacks("cdf")

    def _log_survival_function(self, value: Tensor) -> Tensor:
        raise self._lacks("log_survival_function")

    def _survival_function(self, value: Tensor) -> Tensor:
        raise self._lacks("survival_function")

    def _quantile(self, value: Tensor) -> Tensor:
        raise self._lacks("quantile")

    def log_prob(self, value: Any, name: str = "log_prob") -> Tensor:
        """The log of the probability mass or density of `value`, [*sample_shape, *batch_shape]."""
        return self._of(name, value, self._log_prob, lambda x: ops.log(self._prob(x)))

    def prob(self, value: Any, name: str = "prob") -> Tensor:
        """The probability mass or density of `value`, [*sample_shape, *batch_shape]."""
        return self._of(name, value, self._prob, lambda x: ops.exp(self._log_prob(x)))

    def log_cdf(self, value: Any, name: str = "log_cdf") -> Tensor:
        """The log of `cdf`."""
        return self._of(name, value, self._log_cdf, lambda x: ops.log(self._cdf(x)))

    def cdf(self, value: Any, name: str = "cdf") -> Tensor:
        """The probability that a sample is at most `value`, [*sample_shape, *batch_shape]."""
        return self._of(name, value, self._cdf, lambda x: ops.exp(self._log_cdf(x)))

    def log_survival_function(self, value: Any, name: str = "log_survival_function") -> Tensor:
        """The log of `survival_function`."""
        return self._of(name, value, self._log_survival_function, lambda x: ops.log1p(-self.cdf(x)))

    def survival_function(self, value: Any, name: str = "survival_function") -> Tensor:
        """The probability that a sample is greater than `value`, [*sample_shape, *batch_shape]."""
        return self._of(name, value, self._survival_function, lambda x: 1.0 - self.cdf(x))

    def quantile(self, value: Any, name: str = "quantile") -> Tensor:
        """The inverse of `cdf`, for probabilities in [0, 1]."""
        return self._of(name, value, self._quantile)

    # Statistics.

    def _statistic(self, name: str, own: Callable[..., Tensor], other: Callable[..., Tensor] | None = None) -> Tensor:
        with self._name_scope(name):
            return _tried(own, other)

    def _entropy(self) -> Tensor:
        raise self._lacks("entropy")

    def _mean(self) -> Tensor:
        raise self._lacks("mean")

    def _mode(self) -> Tensor:
        raise self._lacks("mode")

    def _variance(self) -> Tensor:
        raise self._lacks("variance")

    def _stddev(self) -> Tensor:
        raise self._lacks("stddev")

    def _covariance(self) -> Tensor:
        raise self._lacks("covariance")

    def entropy(self, name: str = "entropy") -> Tensor:
        """The entropy in nats, [*batch_shape]."""
        return self._statistic(name, self._entropy)

    def mean(self, name: str = "mean") -> Tensor:
        """The mean, [*batch_shape, *event_shape]."""
        return self._statistic(name, self._mean)

    def mode(self, name: str = "mode") -> Tensor:
        """The mode, [*batch_shape, *event_shape]."""
        return self._statistic(name, self._mode)

    def variance(self, name: str = "variance") -> Tensor:
        """The variance of each component of an event, [*batch_shape, *event_shape]."""
        return self._statistic(name, self._variance, lambda: ops.square(self._stddev()))

    def stddev(self, name: str = "stddev") -> Tensor:
        """The standard deviation of each component of an event, [*batch_shape, *event_shape]."""
        return self._statistic(name, self._stddev, lambda: ops.sqrt(self._variance()))

    def covariance(self, name: str = "covariance") -> Tensor:
        """The covariance matrix of a vector event of n components, [*batch_shape, n, n]."""
        return self._statistic(name, self._covariance)

    # Comparisons with another distribution.

    def _cross_entropy(self, other: Distribution) -> Tensor:
        return cross_entropy(self, other, allow_nan_stats=self.allow_nan_stats)

    def _kl_divergence(self, other: Distribution) -> Tensor:
        return kl_divergence(self, other, allow_nan_stats=self.allow_nan_stats)

    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Tensor:
        """The expectation of -log(probability in `other`) over samples of this one, in nats, [*batch_shape]."""
        return self._statistic(name, lambda: self._cross_entropy(other))

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Tensor:
        """The Kullback-Leibler divergence of this distribution from `other`, in nats, [*batch_shape]."""
        return self._statistic(name, lambda: self._kl_divergence(other))


def _tried(own: Callable[..., Tensor], other: Callable[..., Tensor] | None, *values: Tensor) -> Tensor:
    """Call `own`, or `other` if `own` is not implemented.  If neither is, raises the NotImplementedError of `own`."""
    try:
        return own(*values)
    except NotImplementedError as lacking:
        if other is None:
            raise
        try:
            return other(*values)
        except NotImplementedError:
            raise lacking from None


def _shape_tensor(static: TensorShape, dynamic: Callable[[], Tensor], name: str) -> Tensor:
    """A shape as an int32 vector: a constant if all sizes are known, else the result of `dynamic`."""
    if not static.is_fully_defined():
        return dynamic()
    return convert_to_tensor(np.array(static.as_list(), np.int32), name=name)


def _is_scalar(static: TensorShape, dynamic: Callable[[], Tensor], name: str) -> Tensor:
    if static.rank is not None:
        return convert_to_tensor(static.rank == 0, name=name)
    return ops.equal(ops.shape(dynamic())[0], 0, name=name)
