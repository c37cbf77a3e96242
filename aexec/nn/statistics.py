"""Means and variances: directly, from sufficient statistics, and with weights.

Next to read: `normalization.py`, which uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "SufficientStatistics",
    "moments",
    "normalize_moments",
    "sufficient_statistics",
    "weighted_moments",
    "zero_fraction",
]


class SufficientStatistics(NamedTuple):
    """Sums from which mean and variance can be computed.

    Attributes:
        counts: the number of elements, a scalar.
        mean_ss: the sum of the elements minus `shift`.
        variance_ss: the sum of the squares of these differences.
        shift: as given, or None.
    """

    counts: Tensor
    mean_ss: Tensor
    variance_ss: Tensor
    shift: Tensor | None


def moments(
    x: Any, axes: Sequence[int] | int, *, keep_dims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance over some axes; computed in float32 for float16."""
    axes = [axes] if isinstance(axes, int) else axes
    with name_scope(name or "moments"):
        given = convert_to_tensor(x)
        narrow = given.dtype.base.size == 2
        value = ops.cast(given, DstT="float32") if narrow else given
        mean = ops.mean(value, list(axes), keep_dims=True, name="mean")
        spread = ops.squared_difference(value, ops.stop_gradient(mean))
        variance = ops.mean(spread, list(axes), keep_dims=True, name="variance")
        if not keep_dims:
            mean, variance = (ops.squeeze(one, squeeze_dims=list(axes)) for one in (mean, variance))
        if narrow:
            mean, variance = (ops.cast(one, DstT=given.dtype.base) for one in (mean, variance))
        return mean, variance


def sufficient_statistics(
    x: Any, axes: Sequence[int], shift: Any = None, *, keep_dims: bool = False, name: str | None = None
) -> SufficientStatistics:
    """Sums over some axes, from which `normalize_moments` computes mean and variance.

    Args:
        shift: a number near the mean; it is subtracted so that differences of large numbers keep their digits.
    """
    axes = list(axes)
    with name_scope(name or "sufficient_statistics"):
        value = convert_to_tensor(x, name="x")
        sizes = [list(value.static_shape)[axis] for axis in axes] if value.static_shape.rank is not None else [None]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            count = convert_to_tensor(float(np.prod(known)), value.dtype.base, "count")
        else:
            found = ops.gather_v2(ops.shape(value), axes, 0)
            count = ops.prod(ops.cast(found, DstT=value.dtype.base), [0], name="count")
        if shift is not None:
            shift = convert_to_tensor(shift, name="shift")
            mean_ss, variance_ss = value - shift, ops.squared_difference(value, shift)
        else:
            mean_ss, variance_ss = value, ops.square(value)
        return SufficientStatistics(
            count,
            ops.sum(mean_ss, axes, keep_dims=keep_dims, name="mean_ss"),
            ops.sum(variance_ss, axes, keep_dims=keep_dims, name="var_ss"),
            shift,
        )


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance from the results of `sufficient_statistics`."""
    with name_scope(name or "normalize"):
        share = ops.reciprocal(convert_to_tensor(counts), name="divisor")
        of_shifted = ops.mul(mean_ss, share, name="shifted_mean" if shift is not None else "mean")
        mean = of_shifted if shift is None else ops.add_v2(of_shifted, shift, name="mean")
        squares = ops.mul(variance_ss, share)
        return mean, ops.sub(squares, ops.square(of_shifted), name="variance")


def weighted_moments(
    x: Any, axes: Sequence[int], frequency_weights: Any, *, keep_dims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance over some axes, with each element counted as often as its weight says.

    Args:
        frequency_weights: must broadcast against `x`.
    """
    axes = list(axes)
    with name_scope(name or "weighted_moments"):
        given = convert_to_tensor(x, name="x")
        narrow = given.dtype.base.size == 2
        value = ops.cast(given, DstT=dtypes.float32) if narrow else given
        weights = ops.cast(convert_to_tensor(frequency_weights, name="frequency_weights"), DstT=value.dtype.base)
        weighted = ops.sum(weights * value, axes, keep_dims=True, name="weighted_input_sum")
        # Weights with size 1 along an axis count once for each element of it.
        each = weights + ops.zeros_like(value)
        total = ops.sum(each, axes, keep_dims=True, name="sum_of_weights")
        share = ops.reciprocal(total, name="divisor")
        mean = ops.mul(weighted, share)
        spread = ops.sum(weights * ops.squared_difference(value, mean), axes, keep_dims=True)
        variance = ops.mul(spread, share)
        if not keep_dims:
            mean, variance = (ops.squeeze(one, squeeze_dims=axes) for one in (mean, variance))
        if narrow:
            mean, variance = (ops.cast(one, DstT=given.dtype.base) for one in (mean, variance))
        return mean, variance


def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The fraction of elements that are zero, a float32 scalar; NaN if there are none."""
    with name_scope(name or "zero_fraction"):
        given = convert_to_tensor(value, name="value")
        flat = ops.reshape(given, [-1])
        zeros = ops.cast(ops.equal(flat, ops.zeros_like(flat)), DstT=dtypes.int64)
        count = ops.cast(ops.size(flat, out_type=dtypes.int64), DstT=dtypes.float32)
        return ops.real_div(ops.cast(ops.sum(zeros, [0]), DstT=dtypes.float32), count, name="fraction")
