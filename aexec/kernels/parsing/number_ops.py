"""Kernels that read numbers from text: StringToNumber; and the parser that other kernels use.

`aexec/kernels/string/convert_ops.py` has the inverse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.strings import map_strings, string_cost

__all__ = ["check_default", "number_parser"]

_INTEGER = re.compile(rb"\s*([+-]?[0-9]+)\s*\Z")
_DECIMAL = re.compile(rb"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*\Z")
_SPECIAL = re.compile(rb"\s*([+-]?(?:inf(?:inity)?|nan))(?:\(\w*\))?\s*\Z", re.IGNORECASE)
_HEXADECIMAL = re.compile(rb"\s*([+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)\s*\Z", re.IGNORECASE)


def _parse_float(s: bytes) -> float | None:
    match = _DECIMAL.match(s) or _SPECIAL.match(s)
    if match:
        return float(match[1])
    match = _HEXADECIMAL.match(s)
    if match is None:
        return None
    try:
        return float.fromhex(match[1].decode())
    except OverflowError:
        return -np.inf if match[1].startswith(b"-") else np.inf


def _integer_parser(dtype: DType) -> Callable[[bytes], int | None]:
    low, high = int(dtype.min), int(dtype.max)

    def parse(s: bytes) -> int | None:
        match = _INTEGER.match(s)
        # Python refuses to parse integers of thousands of digits.
        if match is None or len(match[1].lstrip(b"+-").lstrip(b"0")) > 20:
            return None
        value = int(match[1])
        negative_unsigned = low == 0 and match[1].startswith(b"-")
        return value if low <= value <= high and not negative_unsigned else None

    return parse


def check_default(number: int, default: Any) -> None:
    """Raise InvalidArgumentError if the default of a CSV field is more than one value."""
    if default.ndim > 1:
        raise errors.InvalidArgumentError("Each record default should be at most rank 1")
    if default.size > 1:
        raise errors.InvalidArgumentError(
            f"There should only be 1 default per field but field {number} has {default.size}"
        )


def number_parser(dtype: DType) -> Callable[[bytes], Any]:
    """A function that parses a number of this type; it returns None for text that is not one, or is out of range."""
    return _parse_float if dtype.is_floating else _integer_parser(dtype)


@kernel(
    "StringToNumber",
    out_type=(dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64),
    cost=string_cost(800),
)
def string_to_number(c: OpKernelConstruction) -> Compute:
    """Parses decimal numbers, also inf, nan and hexadecimal floats, with white space around; nothing else."""
    dtype = c.output_types[0]
    parse = number_parser(dtype)

    def convert(s: bytes) -> Any:
        value = parse(s)
        if value is None:
            raise errors.InvalidArgumentError(f"StringToNumberOp could not correctly convert string: {abridged(s)}")
        return value

    return lambda x: map_strings(convert, x, dtype.np)
