"""Normalisation, and dropout.

Next to read: `aexec/layers/normalization_layers.py`, which keeps averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.shape_refiner import set_shape
from aexec.nn.statistics import moments

__all__ = [
    "batch_norm_with_global_normalization",
    "batch_normalization",
    "dropout",
    "fused_batch_norm",
    "l2_normalize",
    "layer_norm",
    "local_response_normalization",
]

local_response_normalization = ops.lrn


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float, name: str | None = None
) -> Tensor:
    """`scale * (x - mean) / √(variance + variance_epsilon) + offset`; None for no scale, or no offset."""
    with name_scope(name or "batchnorm"):
        factor = ops.rsqrt(convert_to_tensor(variance) + variance_epsilon)
        if scale is not None:
            factor = factor * scale
        shift = -(mean * factor) if offset is None else offset - mean * factor
        result: Tensor = x * factor + shift
        return result


def batch_norm_with_global_normalization(
    t: Any,
    m: Any,
    v: Any,
    beta: Any,
    gamma: Any,
    variance_epsilon: float,
    scale_after_normalization: bool,
    name: str | None = None,
) -> Tensor:
    """`batch_normalization` with another order of arguments; `gamma` is used only if `scale_after_normalization`."""
    return batch_normalization(t, m, v, beta, gamma if scale_after_normalization else None, variance_epsilon, name)


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    *,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation over all axes but the channels, in one op.

    Args:
        mean, variance: required if `is_training` is False; must be None otherwise.

    Returns:
        The result, and mean and variance (in training the batch's; else as given).
    """
    if is_training == (mean is not None) or is_training == (variance is not None):
        raise errors.InvalidValueError("Both mean and variance must be given when is_training is False, and only then")
    empty: list[float] = []
    result = ops.fused_batch_norm_v3(
        x,
        scale,
        offset,
        convert_to_tensor(empty if mean is None else mean, None),
        convert_to_tensor(empty if variance is None else variance, None),
        epsilon=max(epsilon, 1.001e-5),
        data_format=data_format,
        is_training=is_training,
        name=name,
    )
    return result[0], result[1], result[2]


def layer_norm(
    x: Any, scale: Any = None, offset: Any = None, *, axis: int = -1, epsilon: float = 1e-6, name: str | None = None
) -> Tensor:
    """Normalise to mean 0 and variance 1 along an axis, then scale and shift: Ba et al. 2016."""
    with name_scope(name or "layer_norm"):
        value = convert_to_tensor(x)
        mean, variance = moments(value, [axis], keep_dims=True)
        return batch_normalization(value, mean, variance, offset, scale, epsilon)


def l2_normalize(x: Any, axis: int | Sequence[int], epsilon: float = 1e-12, name: str | None = None) -> Tensor:
    """`x / √max(sum(x²), epsilon)` along some axes."""
    with name_scope(name or "l2_normalize") as scope:
        value = convert_to_tensor(x)
        axes = [axis] if isinstance(axis, int) else list(axis)
        total = ops.sum(ops.square(value), axes, keep_dims=True)
        return ops.mul(value, ops.rsqrt(ops.maximum(total, epsilon)), name=scope)


def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> Tensor:
    """Set elements to zero with probability `rate`, and divide the others by `1 - rate`: Srivastava et al. 2014.

    Args:
        rate: in [0, 1); a number, or a scalar tensor.
        noise_shape: the shape of the mask, which is broadcast: elements along axes of size 1 are dropped together; by
            default the shape of `x`.

    Raises:
        InvalidArgumentError: the rate is not in [0, 1).
    """
    with name_scope(name or "dropout"):
        value = convert_to_tensor(x)
        if not value.dtype.is_floating:
            raise errors.InvalidValueError(
                f"x.dtype must be a floating point tensor as x will be scaled, got {value.dtype}"
            )
        if isinstance(rate, int | float):
            if not 0 <= rate < 1:
                raise errors.InvalidValueError(f"rate must be a number of [0, 1), got {rate}")
            if rate == 0:
                return value
        share = convert_to_tensor(rate, value.dtype.base, "rate")
        scaled = value * (1.0 / (1.0 - share) if not isinstance(rate, int | float) else 1.0 / (1.0 - rate))
        size = ops.shape(value) if noise_shape is None else noise_shape
        kept = ops.greater_equal(random_uniform(size, dtype=value.dtype.base, seed=seed), share)
        dropped = ops.select_v2(kept, scaled, 0.0)
        # Op inference does not know it if the shape of the rate is unknown.
        set_shape(dropped.node, dropped.index, value.static_shape)
        return dropped
