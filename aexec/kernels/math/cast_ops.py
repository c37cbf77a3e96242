"""Cast and Bitcast: which types convert into which, and the results for values out of range.

The results are those of TensorFlow on x86: floats go to narrow integers through int32, and to unsigned 32 and 64-bit
ones through int64, so values out of range wrap.
Next to read: `select_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.common.registration import on_host

__all__: list[str] = []

Convert = Callable[[Any], Any]

_FLOAT8 = (dtypes.float8_e5m2, dtypes.float8_e4m3fn)
_INT4 = (dtypes.int4, dtypes.uint4)
_INTEGERS = (*dtypes.INTEGRAL, *dtypes.QUANTIZED)
_COMMON = (*dtypes.POD, *dtypes.QUANTIZED)

# source types -> the types that they convert into, besides themselves
_TARGETS: tuple[tuple[tuple[DType, ...], frozenset[DType]], ...] = (
    (dtypes.FLOAT, frozenset((*_COMMON, *_FLOAT8))),
    (_FLOAT8, frozenset((*_COMMON, *_FLOAT8))),
    (_INTEGERS, frozenset((*_COMMON, *_INT4))),
    ((*dtypes.COMPLEX, dtypes.bool_), frozenset(_COMMON)),
    (_INT4, frozenset((*_INTEGERS, *_INT4))),
)

_MANTISSA_BITS = {
    dtypes.float64: 52,
    dtypes.float32: 23,
    dtypes.float16: 10,
    dtypes.bfloat16: 7,
    dtypes.float8_e4m3fn: 3,
    dtypes.float8_e5m2: 2,
}
_TWO_63 = np.float64(2**63)


def cast_function(source: DType, target: DType, *, truncate: bool = False, xp: Any = np) -> Convert:
    """The function that converts arrays of one type into another.

    Args:
        truncate: drop the bits of a float's mantissa that a narrower float cannot hold, instead of rounding to nearest
            even.
        xp: the module of the arrays.

    Raises:
        UnimplementedError: there is no such conversion (strings: use AsString and StringToNumber).
    """
    if source is target:
        return lambda x: x
    if not any(source in sources and target in targets for sources, targets in _TARGETS):
        raise errors.UnimplementedError(f"Cast {source} to {target} is not supported")
    convert = _conversion(xp, source, target)
    return _truncating(xp, source, target, convert) if truncate else convert


def _conversion(xp: Any, source: DType, target: DType) -> Convert:
    if source.is_complex and not target.is_complex and target is not dtypes.bool_:
        of_part = cast_function(dtypes.float32 if source is dtypes.complex64 else dtypes.float64, target, xp=xp)
        return lambda x: of_part(x.real)
    if source.is_complex and target is dtypes.bool_:
        return lambda x: x.real.astype(np.bool_)
    if source.is_floating and target in _INTEGERS:
        return _float_to_integer(source, target.np)
    if source is dtypes.float64 and target is dtypes.bfloat16:
        return partial(_double_to_bfloat16, xp)
    if source in _INT4 and target in _INT4:
        return lambda x: x.astype(np.int8).astype(target.np)
    return methodcaller("astype", target.np)


def _float_to_integer(source: DType, target: np.dtype[Any]) -> Convert:
    if source not in (dtypes.float32, dtypes.float64):
        of_float32 = _float_to_integer(dtypes.float32, target)
        return lambda x: of_float32(x.astype(np.float32))
    if target == np.uint64:
        return _float_to_uint64
    if target == np.uint32:
        return lambda x: x.astype(np.int64).astype(target)
    if target.itemsize < 4:
        return lambda x: x.astype(np.int32).astype(target)
    return methodcaller("astype", target)


def _float_to_uint64(x: Any) -> Any:
    signed = x.astype(np.int64)
    if not (signed < 0).any():
        return signed.astype(np.uint64)
    # Negative if x is below zero, and wraps, or if it is at least 2**63, which int64 cannot hold.
    upper = (x.astype(np.float64) - _TWO_63).astype(np.int64)
    return (signed | (upper & (signed >> 63))).astype(np.uint64)


def _double_to_bfloat16(xp: Any, x: Any) -> Any:
    single = x.astype(np.float32)
    flushed = single * (xp.abs(single) >= np.finfo(np.float32).tiny)
    return xp.where(xp.isfinite(single), flushed, single).astype(dtypes.bfloat16.np)


def _truncating(xp: Any, source: DType, target: DType, convert: Convert) -> Convert:
    """`convert` after clearing the bits that do not fit; NaN stays NaN.

    As in TensorFlow, double to bfloat16 rounds nevertheless, and the parts of complex numbers are truncated only if the
    target has such parts or is a wider float than bfloat16.
    """
    if source.is_complex:
        part = dtypes.float32 if source is dtypes.complex64 else dtypes.float64
        if target.is_complex or target not in _MANTISSA_BITS or target is dtypes.bfloat16:
            return convert
        of_part = cast_function(part, target, truncate=True, xp=xp)
        return lambda x: of_part(x.real)
    if (source, target) == (dtypes.float64, dtypes.bfloat16):
        return convert
    dropped = _MANTISSA_BITS.get(source, 0) - _MANTISSA_BITS.get(target, 64)
    if dropped <= 0:
        return convert
    bits = np.dtype(f"u{source.size}")
    mask = bits.type(2 ** (8 * source.size) - 2**dropped)

    def compute(x: Any) -> Any:
        x = xp.asarray(x)
        return convert(xp.where(xp.isnan(x), x, (x.view(bits) & mask).view(x.dtype)))

    return compute


def _cast(c: OpKernelConstruction) -> Convert:
    """Raises UnimplementedError when it is built, as TensorFlow does, if there is no such conversion."""
    source, target, truncate = c.attr("SrcT").base, c.attr("DstT").base, c.attr("Truncate")
    convert = cast_function(source, target, truncate=truncate, xp=c.xp)
    # Else it may be the input, or a view of its real parts; or the next one must be in the allocator's memory.
    if source is not target and not source.is_complex and not c.has_registered_allocator:
        c.give_new_array()
    temporary = _temporary_bytes(source, target, truncate=truncate)
    if not temporary:
        return convert

    def announced(x: Any) -> Any:
        announce_scratch(temporary * x.size)
        return convert(x)

    return announced


def _temporary_bytes(source: DType, target: DType, *, truncate: bool) -> int:
    """Bytes per element of the arrays that a conversion makes before its result."""
    if source.is_complex and not target.is_complex:
        source = dtypes.float32 if source is dtypes.complex64 else dtypes.float64
    cut = 2 * source.size + 1 if truncate and source in _MANTISSA_BITS else 0
    if source is dtypes.float64 and target is dtypes.bfloat16:
        return 18
    if source in _INT4 and target in _INT4:
        return 1
    if not source.is_floating or target not in _INTEGERS:
        return cut
    widened = 4 if source.size < 4 else 0
    if target is dtypes.uint64:
        return cut + widened + 25
    return cut + widened + (8 if target is dtypes.uint32 else 4 if target.size < 4 else 0)


kernel("Cast", cost=1.0)(_cast)
kernel("_HostCast", cost=1.0)(_cast)
kernel("_HostCast", device="DEFAULT", host_memory=("x", "y"), cost=1.0)(on_host(_cast))


@kernel("Bitcast", cost=0)
def bitcast(c: OpKernelConstruction) -> Convert:
    """Views the bytes as another type: a last dimension is added or dropped if the sizes differ."""
    source, target = c.attr("T").base, c.attr("type").base
    xp, dtype = c.xp, target.np
    if source.size == target.size:
        return lambda x: x.view(dtype)
    if source.size > target.size:
        ratio = source.size // target.size
        return lambda x: xp.ascontiguousarray(x).reshape((*x.shape, 1)).view(dtype).reshape((*x.shape, ratio))
    ratio = target.size // source.size

    def compute(x: Any) -> Any:
        if x.shape[-1:] != (ratio,):
            raise errors.InvalidArgumentError(f"Cannot bitcast from {source.enum} to {target.enum}")
        return xp.ascontiguousarray(x).view(dtype).reshape(x.shape[:-1])

    return compute
