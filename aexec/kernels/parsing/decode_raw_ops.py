"""Bytes of strings as numbers, and decompression of strings.

Next to read: `tensor_ops.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth, announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way, let_others_run
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import JOINED_BYTES, elements_of, map_strings, string_cost, values_of

__all__: list[str] = []

_PADDED_TYPES = (
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    *(t for t in dtypes.INTEGRAL if t not in (dtypes.uint32, dtypes.uint64)),
)
_TYPES = (*_PADDED_TYPES, dtypes.float16, *dtypes.COMPLEX, dtypes.bool_)
_COST = string_cost(200, 0.3)
# Nanoseconds in which the length of a string is compared.
_CHECK_NS = 40.0
# Nanoseconds in which a string is copied into its row, besides those for its bytes.
_ROW_NS = 800.0
_CHUNK = 1 << 20


def _to_native(array: Any, dtype: DType, is_little: bool, *, in_place: bool = False) -> Any:
    """Numbers in the machine's byte order, little-endian; both parts of a complex number are swapped separately."""
    if is_little or dtype.size == 1:
        return array
    if not in_place:
        announce_scratch(array.nbytes)
        array = array.copy()
    parts = array.reshape(-1).view(f"u{dtype.size // (1 + dtype.is_complex)}")
    for start in range(0, parts.size, _CHUNK):  # NumPy does not release the interpreter's lock
        if start:
            let_others_run()
        parts[start : start + _CHUNK].byteswap(inplace=True)
    return array


@kernel("DecodeRaw", out_type=_TYPES, cost=_COST, scratch=JOINED_BYTES)
def decode_raw(c: OpKernelConstruction) -> Compute:
    """Return the bytes of each string as a vector of numbers; all strings have one length."""
    dtype, is_little = c.attr("out_type"), c.attr("little_endian")

    def compute(strings: Any) -> Any:
        values = values_of(strings)
        length = len(values[0]) if values else 0
        for i, value in enumerate(giving_way(values, _CHECK_NS)):
            if len(value) != length:
                raise errors.InvalidArgumentError(
                    "DecodeRaw requires input strings to all be the same size, but element "
                    f"{i} has size {length} != {len(value)}"
                )
        if length % dtype.size:
            raise errors.InvalidArgumentError(
                f"Input to DecodeRaw has length {length} that is not a multiple of {dtype.size}, the size of {dtype}"
            )
        data = np.frombuffer(b"".join(values), np.uint8)
        # Any nonzero byte is True; the bytes themselves would not be valid bools.
        numbers = data != 0 if dtype is dtypes.bool_ else _to_native(data.view(dtype.np), dtype, is_little)
        return numbers.reshape(*strings.shape, length // dtype.size)

    return compute


def _padded_ns(strings: Any, fixed_length: Any) -> float:
    return float(strings.size * (_ROW_NS + 0.3 * int(fixed_length)))


@kernel("DecodePaddedRaw", out_type=_PADDED_TYPES, cost=_padded_ns)
def decode_padded_raw(c: OpKernelConstruction) -> Compute:
    """Return the first bytes of each string, padded with zeros, as a vector of numbers."""
    dtype, is_little, allocate = c.attr("out_type"), c.attr("little_endian"), allocator(c)

    def compute(strings: Any, fixed_length: Any) -> Any:
        if fixed_length.ndim:
            raise errors.InvalidArgumentError(f"k must be scalar, got shape {shape_text(fixed_length.shape)}")
        length = int(fixed_length)
        if length % dtype.size:
            raise errors.InvalidArgumentError(
                f"fixed_length ({length}) must be a multiple of the size of out_type ({dtype.size})"
            )
        if length <= 0:
            raise errors.InvalidArgumentError(f"fixed_length ({length}) must be greater than zero.")
        result = allocate((*strings.shape, length // dtype.size), np.zeros)
        rows = result.view(np.uint8).reshape(-1, length)
        for row, value in giving_way(zip(rows, elements_of(strings), strict=True), _ROW_NS):
            data = value[:length]
            row[: len(data)] = np.frombuffer(data, np.uint8)
        return _to_native(result, dtype, is_little, in_place=True)

    return compute


# ---- Compression

# zlib's window bits: with its own header, with that of gzip.
_WINDOWS = {"ZLIB": zlib.MAX_WBITS, "GZIP": 16 + zlib.MAX_WBITS}


def _inflated(data: bytes, window: int, more: Callable[[int], None]) -> bytes:
    """The decompressed data, as far as the data go.

    Args:
        more: called with the number of bytes when they are made; may raise.

    Raises:
        DataLossError: the data are corrupt.
    """
    pieces = []
    while data:
        stream = zlib.decompressobj(window)
        while data and not stream.eof:
            try:
                pieces.append(stream.decompress(data, _CHUNK))
            except zlib.error as e:
                text = str(e).removeprefix("Error -3 while decompressing data: ")
                raise errors.DataLossError(f"inflate() failed with error -3: {text}") from None
            data = stream.unconsumed_tail
            more(len(pieces[-1]))
            let_others_run()
        # A gzip file may have further members; data after a zlib stream are ignored.
        data = stream.unused_data if window > zlib.MAX_WBITS else b""
    return b"".join(pieces)


@kernel("DecodeCompressed", cost=string_cost(2000, 10))
def decode_compressed(c: OpKernelConstruction) -> Compute:
    """Decompresses each string: by zlib, gzip, or not at all."""
    name = c.text("compression_type")
    if not name:
        return lambda strings: strings
    if name == "ZSTD":
        raise errors.UnimplementedError("DecodeCompressed cannot decompress ZSTD")
    window = _WINDOWS.get(name)
    if window is None:
        raise errors.InvalidArgumentError("Only ZLIB, ZSTD, GZIP or NONE are supported compressions")

    def compute(strings: Any) -> Any:
        more = Growth(joined=True).add
        return map_strings(lambda data: _inflated(data, window, more), strings)

    return compute
