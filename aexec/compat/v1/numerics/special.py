"""`tf.math.special`, and less common functions of `tf.math`.

Next to read: `aexec/kernels/math/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import cast
from aexec.compat.v1.namespace import namespace
from aexec.framework import dtypes
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "cumulative_logsumexp",
    "erfcinv",
    "lbeta",
    "polyval",
    "reciprocal_no_nan",
    "reduce_euclidean_norm",
    "saturate_cast",
    "sobol_sample",
    "unsorted_segment_sqrt_n",
]


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """`tf.lbeta`: the logarithm of the beta function of the last axis."""
    with name_scope(name or "lbeta"):
        value = convert_to_tensor(x)
        return ops.sum(ops.lgamma(value), [-1]) - ops.lgamma(ops.sum(value, [-1]))


def erfcinv(x: Any, name: str | None = None) -> Tensor:
    """`tf.math.erfcinv`: the inverse of `erfc`."""
    with name_scope(name or "erfcinv"):
        return -ops.ndtri(0.5 * convert_to_tensor(x)) * float(np.sqrt(0.5))


def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """`tf.math.polyval`: evaluate a polynomial by Horner's rule; the highest coefficient is the first."""
    with name_scope(name or "polyval"):
        value = convert_to_tensor(x)
        if not coeffs:
            return ops.zeros_like(value)
        found = (
            convert_to_tensor(coeffs[0])
            if hasattr(coeffs[0], "dtype")
            else convert_to_tensor(coeffs[0], value.dtype.base)
        )
        for coefficient in coeffs[1:]:
            found = coefficient + found * value
        return found


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """`tf.math.reciprocal_no_nan`: 0 for 0."""
    with name_scope(name or "reciprocal_no_nan"):
        value = convert_to_tensor(x)
        return ops.div_no_nan(ops.ones_like(value), value)


def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """`tf.math.cumulative_logsumexp`."""
    return ops.cumulative_logsumexp(x, axis, exclusive=exclusive, reverse=reverse, name=name)


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """`tf.math.reduce_euclidean_norm`: over all axes if none are given."""
    value = convert_to_tensor(input_tensor)
    axes = ops.range(0, ops.rank(value), 1) if axis is None else axis
    return ops.euclidean_norm(value, axes, keep_dims=bool(keepdims), name=name)


def sobol_sample(
    dim: Any, num_results: Any, skip: Any = 0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """`tf.math.sobol_sample`: points [num_results, dim] that fill the unit cube evenly."""
    return ops.sobol_sample(dim, num_results, skip, dtype=as_dtype(dtype), name=name)


def unsorted_segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """`tf.unsorted_segment_sqrt_n`: sums, divided by the roots of the numbers of rows."""
    with name_scope(name or "UnsortedSegmentSqrtN"):
        value, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        ones = ops.fill(ops.shape(ids), convert_to_tensor(1, value.dtype.base))
        counts = ops.maximum(ops.unsorted_segment_sum(ones, ids, num_segments), convert_to_tensor(1, value.dtype.base))
        total = ops.unsorted_segment_sum(value, ids, num_segments)
        more = ops.rank(total) - ops.rank(counts)
        shape = ops.concat_v2([ops.shape(counts), ops.fill(ops.expand_dims(more, 0), 1)], 0)
        return total / ops.sqrt(ops.reshape(counts, shape))


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """`tf.saturate_cast`: numbers outside of the range of the type become its bounds."""
    with name_scope(name or "saturate_cast"):
        wanted, given = as_dtype(dtype), convert_to_tensor(value)
        least = max(given.dtype.base.min, wanted.min)
        most = min(given.dtype.base.max, wanted.max)
        inside = ops.minimum(
            ops.maximum(given, convert_to_tensor(least, given.dtype.base)), convert_to_tensor(most, given.dtype.base)
        )
        return cast(inside, wanted)


_SPECIAL = """bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_k0 bessel_k0e bessel_k1 bessel_k1e
bessel_y0 bessel_y1 dawsn expint fresnel_cos fresnel_sin spence""".split()

__getattr__, __dir__ = namespace(__name__, {name: f"ops:{name}" for name in _SPECIAL})
