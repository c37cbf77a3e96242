"""Initializers: make the first value of a variable, from its shape and type.

An initializer is called with a shape and a type, by default float32, `initializer([3, 4])`, and builds the nodes of the
value; `get_variable` calls it.  For the same seeds the random ones make TensorFlow's numbers, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, Literal

import numpy as np

from aexec import ops
from aexec.client.building import constant, ones, zeros
from aexec.client.random_ops import random_normal, random_uniform, truncated_normal
from aexec.framework import errors
from aexec.framework.dtypes import DType, float32
from aexec.graph.nodes.node import Tensor
from aexec.variables.save_slices import PartitionInfo

__all__ = [
    "Constant",
    "Identity",
    "Initializer",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "UniformUnitScaling",
    "VarianceScaling",
    "Zeros",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
]

# (shape, dtype) → the nodes of the first value.  An initializer with a parameter `partition_info` is given the whole's
# when # it makes a part.
Initializer = Callable[[Sequence[int], DType], Tensor]

# The standard deviation of a normal distribution with deviation 1 that is cut off at 2 and -2.
_TRUNCATED_DEVIATION = 0.87962566103423978


@dataclass(frozen=True)
class Zeros:
    """Zeros."""

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return zeros(shape, dtype)


@dataclass(frozen=True)
class Ones:
    """Ones."""

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return ones(shape, dtype)


@dataclass(frozen=True)
class Constant:
    """One value for all elements, or a value for each, in row-major order."""

    value: Any = 0

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return constant(self.value, dtype, shape)


@dataclass(frozen=True)
class RandomUniform:
    """Uniformly distributed numbers of [minval, maxval)."""

    minval: float = 0.0
    maxval: float | None = None
    seed: int | None = None

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return random_uniform(shape, self.minval, self.maxval, dtype, self.seed)


@dataclass(frozen=True)
class RandomNormal:
    """Normally distributed numbers."""

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return random_normal(shape, self.mean, self.stddev, dtype, self.seed)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normally distributed numbers, without those that are two `stddev` or more from the mean."""

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        return truncated_normal(shape, self.mean, self.stddev, dtype, self.seed)


@dataclass(frozen=True)
class UniformUnitScaling:
    """Uniform numbers that keep the scale of the input: up to `factor` × √3 / √(inputs)."""

    factor: float = 1.0
    seed: int | None = None

    def __call__(
        self, shape: Sequence[int], dtype: DType = float32, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        whole = shape if partition_info is None else partition_info.full_shape
        limit = sqrt(3 / max(1.0, prod(map(float, whole[:-1])))) * self.factor
        return random_uniform(shape, -limit, limit, dtype, self.seed)


@dataclass(frozen=True)
class VarianceScaling:
    """Random numbers whose variance is `scale` divided by the number of inputs, of outputs, or the mean of both.

    Raises:
        InvalidArgumentError: the scale is not positive, or the mode or distribution is unknown.
    """

    scale: float = 1.0
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in"
    distribution: Literal["normal", "truncated_normal", "untruncated_normal", "uniform"] = "truncated_normal"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise errors.InvalidValueError(f"scale must be positive, got {self.scale}")
        if self.mode not in ("fan_in", "fan_out", "fan_avg"):
            raise errors.InvalidValueError(f"mode must be fan_in, fan_out or fan_avg, got {self.mode!r}")
        if self.distribution not in ("normal", "truncated_normal", "untruncated_normal", "uniform"):
            raise errors.InvalidValueError(
                "distribution must be normal, truncated_normal, untruncated_normal or uniform, "
                f"got {self.distribution!r}"
            )

    def __call__(
        self, shape: Sequence[int], dtype: DType = float32, partition_info: PartitionInfo | None = None
    ) -> Tensor:
        inputs, outputs = _fans(shape if partition_info is None else partition_info.full_shape)
        fan = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = sqrt(3.0 * variance)
            return random_uniform(shape, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return random_normal(shape, 0.0, sqrt(variance), dtype, self.seed)
        return truncated_normal(shape, 0.0, sqrt(variance) / _TRUNCATED_DEVIATION, dtype, self.seed)


def _fans(shape: Sequence[int]) -> tuple[float, float]:
    """The number of inputs of each output, and of outputs of each input, for weights [in, out] or [*window, in,
    out].
    """
    if len(shape) < 2:
        return (float(shape[0]),) * 2 if shape else (1.0, 1.0)
    window = prod(map(float, shape[:-2]))
    return shape[-2] * window, shape[-1] * window


@dataclass(frozen=True)
class Orthogonal:
    """An orthogonal matrix times `gain`; a tensor with more dimensions is a matrix whose rows are all but the last
    one.
    """

    gain: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        if len(shape) < 2:
            raise errors.InvalidValueError(f"an orthogonal matrix has at least two dimensions, got {list(shape)}")
        rows, columns = prod(shape[:-1]), shape[-1]
        numbers = random_normal([max(rows, columns), min(rows, columns)], dtype=dtype, seed=self.seed)
        q, r = ops.qr(numbers, full_matrices=False)
        q = q * ops.sign(ops.matrix_diag_part(r))
        if rows < columns:
            q = ops.transpose(q, [1, 0])
        return self.gain * ops.reshape(q, list(shape))


@dataclass(frozen=True)
class Identity:
    """The identity matrix times `gain`."""

    gain: float = 1.0

    def __call__(self, shape: Sequence[int], dtype: DType = float32) -> Tensor:
        if len(shape) != 2:
            raise errors.InvalidValueError(f"an identity matrix has two dimensions, got {list(shape)}")
        return constant((self.gain * np.eye(shape[0], shape[1])).astype(dtype.np), dtype)


def glorot_uniform(seed: int | None = None) -> VarianceScaling:
    """Glorot and Bengio 2010, uniform: the default of `get_variable` for floats."""
    return VarianceScaling(1.0, "fan_avg", "uniform", seed)


def glorot_normal(seed: int | None = None) -> VarianceScaling:
    """Glorot and Bengio 2010, truncated normal."""
    return VarianceScaling(1.0, "fan_avg", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """He et al. 2015, uniform: for weights before a ReLU."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def he_normal(seed: int | None = None) -> VarianceScaling:
    """He et al. 2015, truncated normal: for weights before a ReLU."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """LeCun et al. 1998, uniform."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """LeCun et al. 1998, truncated normal."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)
