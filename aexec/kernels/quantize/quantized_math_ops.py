"""Arithmetic of quantised tensors: products, activations, and the way from 32-bit sums back to 8 bits.

A quantised tensor is its integers and the range of floats that the type stands for.  The formulas are those of
core/kernels/quantization_utils.
Next to read: `quantized_range.py`, `quantized_window_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.quantize.quantized_range import Range, check_scalars, in_floats, product_limits

__all__: list[str] = []

_EIGHT = (dtypes.quint8, dtypes.qint8)


def _product_cost(a: Any, b: Any, *limits: Any) -> float:
    """Of the multiplications, by BLAS in float64."""
    if a.ndim != 2 or b.ndim != 2:
        return 0.0
    inner = float(max(min(a.shape), 1))
    return float(4.0 * (a.size + b.size) + 0.2 * a.size * b.size / inner)


# Activations


def _activation(c: OpKernelConstruction, most: float | None) -> Compute:
    xp, dtype = c.xp, c.output_types[0].np

    def compute(features: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_input=low, max_input=high)
        given = Range(dtype, low.reshape(()), high.reshape(()))
        found = xp.maximum(features, dtype.type(given.held(0.0)))
        if most is not None:
            found = xp.minimum(found, dtype.type(given.held(most)))
        return found, low.reshape(()), high.reshape(())

    return compute


@kernel("QuantizedRelu", Tinput=(dtypes.qint32,), out_type=(dtypes.qint32,), cost=0.5)
@kernel("QuantizedRelu", Tinput=(dtypes.quint8,), out_type=(dtypes.quint8,), cost=0.5)
def quantized_relu(c: OpKernelConstruction) -> Compute:
    """The larger of each value and the integer of zero."""
    return _activation(c, None)


@kernel("QuantizedRelu6", Tinput=(dtypes.qint32,), out_type=(dtypes.qint32,), cost=1.0)
@kernel("QuantizedRelu6", Tinput=(dtypes.quint8,), out_type=(dtypes.quint8,), cost=1.0)
def quantized_relu6(c: OpKernelConstruction) -> Compute:
    """Each value between the integers of 0 and 6."""
    return _activation(c, 6.0)


# Back to eight bits


def _used(values: Any, given: Range) -> tuple[Any, Any]:
    """The range of the values there are, which includes zero."""
    if not values.size:
        return np.float32(0), np.float32(0)
    least, most = given.floats(np.array([values.min(), values.max()]))
    return np.float32(min(0.0, least)), np.float32(most)


def _requantized(xp: Any, values: Any, given: Range, wanted: Range, dtype: Any) -> Any:
    """Integers of another range, as TensorFlow's kernels compute them.

    Unsigned ones have 16 bits of fraction meanwhile; others are float32 throughout.
    """
    if wanted.empty:
        return xp.zeros(values.shape, dtype)
    if wanted.first == 0:
        return _in_fixed_point(values, given, wanted, dtype)
    return in_floats(xp, values, given, wanted, dtype)


def _in_fixed_point(values: Any, given: Range, wanted: Range, dtype: Any) -> Any:
    """Integers of 8 bits, without a sign."""
    one = 1 << 16
    span = np.float32(wanted.high_given) - np.float32(wanted.low_given)
    width = np.float32(given.high_given) - np.float32(given.low_given)
    middle = np.float32((given.low_given + given.high_given) / 2.0)
    scale = int(_most(255.0 * one * float(width) / float(span)))
    offset = int(_most(float(middle * np.float32(255.0 / float(span)) * np.float32(one))))
    offset -= int(_most(float(np.float32(one) * (np.float32(wanted.low_given) * np.float32(255.0)) / span)))
    found = values.astype(np.int64)
    found *= scale
    found >>= 32
    found += offset + one // 2
    found >>= 16
    return found.clip(0, 255, found).astype(dtype)


def _most(value: float) -> float:
    """A number that an int64 holds."""
    return min(max(value, -(2.0**62)), 2.0**62)


@kernel("RequantizationRange", Tinput=(dtypes.qint32,), cost=0.5)
def requantization_range(c: OpKernelConstruction) -> Compute:
    """The range of the floats that 32-bit values stand for, which includes zero."""

    def compute(values: Any, low: Any, high: Any) -> tuple[Any, Any]:
        check_scalars(input_min=low, input_max=high)
        return _used(values, Range(values.dtype, low.reshape(()), high.reshape(())))

    return compute


@kernel("QuantizeDownAndShrinkRange", Tinput=(dtypes.qint32,), out_type=(dtypes.quint8,), cost=8.0, scratch=8)
def quantize_down_and_shrink_range(c: OpKernelConstruction) -> Compute:
    """32-bit values in 8 bits, for the range that they use."""
    dtype = c.output_types[0].np

    def compute(values: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(input_min=low, input_max=high)
        given = Range(values.dtype, low.reshape(()), high.reshape(()))
        least, most = _used(values, given)
        return _requantized(c.xp, values, given, Range(dtype, least, most), dtype), least, most

    return compute


@kernel("Requantize", Tinput=(dtypes.qint32,), out_type=_EIGHT, cost=8.0, scratch=8)
def requantize(c: OpKernelConstruction) -> Compute:
    """32-bit values in 8 bits, for a given range."""
    dtype = c.output_types[0].np

    def compute(values: Any, low: Any, high: Any, least: Any, most: Any) -> tuple[Any, Any, Any]:
        check_scalars(input_min=low, input_max=high, requested_output_min=least, requested_output_max=most)
        least, most = least.reshape(()), most.reshape(())
        if least > 0:
            raise errors.InvalidArgumentError(f"requested_output_min must be <= 0, but got {least:g}")
        if most < least:
            raise errors.InvalidArgumentError(
                f"requested_output_max must be >= requested_output_min, but got {most:g} and {least:g}"
            )
        given = Range(values.dtype, low.reshape(()), high.reshape(()))
        return _requantized(c.xp, values, given, Range(dtype, least, most), dtype), least, most

    return compute


# Products


@kernel("QuantizedMatMul", T1=(dtypes.quint8,), T2=(dtypes.quint8,), Toutput=(dtypes.qint32,), cost=_product_cost)
def quantized_mat_mul(c: OpKernelConstruction) -> Compute:
    """The product of matrices, as 32-bit sums."""
    turned = c.attr("transpose_a"), c.attr("transpose_b")

    def compute(a: Any, b: Any, min_a: Any, max_a: Any, min_b: Any, max_b: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_a=min_a, max_a=max_a, min_b=min_b, max_b=max_b)
        if a.ndim != 2 or b.ndim != 2:
            raise errors.InvalidArgumentError(f"a and b must be matrices, but have ranks {a.ndim} and {b.ndim}")
        left, right = (matrix.T if turn else matrix for matrix, turn in zip((a, b), turned, strict=True))
        if left.shape[1] != right.shape[0]:
            raise errors.InvalidArgumentError(f"Matrix size-incompatible: In[0]: {a.shape}, In[1]: {b.shape}")
        of_a = Range(a.dtype, min_a.reshape(()), max_a.reshape(()))
        of_b = Range(b.dtype, min_b.reshape(()), max_b.reshape(()))
        # Sums of products of two 9-bit numbers are exact in float64.
        product = (left - np.float64(of_a.integer(0.0))) @ (right - np.float64(of_b.integer(0.0)))
        return (product.astype(np.int64).astype(np.int32), *product_limits(of_a, of_b))

    return compute
