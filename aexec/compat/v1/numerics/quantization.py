"""`tf.quantization`: converts floats to small integers and back, and simulates that in training.

Next to read: `aexec/kernels/quantize/`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.compat.v1.namespace import namespace
from aexec.framework.dtypes import as_dtype, float32
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["dequantize", "quantize", "quantize_and_dequantize", "quantize_and_dequantize_v2", "quantize_v2"]


def quantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> Any:
    """`tf.quantization.quantize`: convert floats to integers; return them, and the range that they represent."""
    return ops.quantize_v2(
        convert_to_tensor(input, float32),
        min_range,
        max_range,
        T=as_dtype(T),
        mode=mode,
        round_mode=round_mode,
        narrow_range=narrow_range,
        axis=-1 if axis is None else axis,
        ensure_minimum_range=ensure_minimum_range,
        name=name,
    )


def quantize_v2(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> Any:
    """`tf.quantize_v2`: `quantize` with another order of arguments."""
    return quantize(input, min_range, max_range, T, mode, round_mode, name, narrow_range, axis, ensure_minimum_range)


def dequantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    axis: int | None = None,
    narrow_range: bool = False,
    dtype: Any = float32,
) -> Tensor:
    """`tf.quantization.dequantize`: convert integers back to the floats that they represent."""
    return ops.dequantize(
        input,
        min_range,
        max_range,
        mode=mode,
        narrow_range=narrow_range,
        axis=-1 if axis is None else axis,
        dtype=as_dtype(dtype),
        name=name,
    )


def quantize_and_dequantize(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Tensor:
    """`tf.quantization.quantize_and_dequantize`: round floats as quantization does; gradients pass unchanged."""
    return ops.quantize_and_dequantize_v2(
        input,
        input_min,
        input_max,
        signed_input=signed_input,
        num_bits=num_bits,
        range_given=range_given,
        round_mode=round_mode,
        narrow_range=narrow_range,
        axis=-1 if axis is None else axis,
        name=name,
    )


def quantize_and_dequantize_v2(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Tensor:
    """`tf.quantization.quantize_and_dequantize_v2`: likewise, with gradient 0 for values out of range."""
    return ops.quantize_and_dequantize_v4(
        input,
        input_min,
        input_max,
        signed_input=signed_input,
        num_bits=num_bits,
        range_given=range_given,
        round_mode=round_mode,
        narrow_range=narrow_range,
        axis=-1 if axis is None else axis,
        name=name,
    )


_FAKE = [f"fake_quant_with_min_max_{kind}" for kind in ("args", "vars", "vars_per_channel")]

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"ops:{name}" for one in _FAKE for name in (one, f"{one}_gradient")}
    | {"quantized_concat": "ops:quantized_concat"},
)
