"""Bitwise kernels on integers.  Next to read: `cwise_binary_ops.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.common.elementwise import broadcast_error, register, ufunc

__all__: list[str] = []

_COST = 0.5


def _bitwise(name: str) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        c.explain = broadcast_error
        return ufunc(c, name)

    return build


def _shift(name: str) -> Builder:
    """A shift is clamped to 0 .. width - 1, as in TensorFlow; C++ leaves other shifts undefined."""

    def build(c: OpKernelConstruction) -> Compute:
        c.explain = broadcast_error
        dtype = c.input_types[0].np
        shift, clip, any_bit = getattr(c.xp, name), c.xp.clip, np.bitwise_or.reduce
        last = 8 * dtype.itemsize - 1
        if c.xp is not np:
            return lambda x, y: shift(x, clip(y, 0, last))

        def compute(x: Any, y: Any) -> Any:
            # `last` is all ones in binary: if the OR of all shifts has no other bit, nor the sign, then no shift has.
            if not 0 <= int(any_bit(y, None)) <= last:
                announce_scratch(y.nbytes)
                y = clip(y, 0, last)
            return shift(x, y)

        return compute

    return build


def _population_count(c: OpKernelConstruction) -> Compute:
    bitwise_count, dtype = ufunc(c, "bitwise_count"), c.input_types[0].np
    if dtype.kind == "u":
        return bitwise_count
    # NumPy counts the bits of the magnitude.
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return lambda x: bitwise_count(x.view(unsigned))


for _op, _builder in {
    "BitwiseAnd": _bitwise("bitwise_and"),
    "BitwiseOr": _bitwise("bitwise_or"),
    "BitwiseXor": _bitwise("bitwise_xor"),
    "Invert": _bitwise("invert"),
    "LeftShift": _shift("left_shift"),
    "PopulationCount": _population_count,
    "RightShift": _shift("right_shift"),
}.items():
    register(_op, _builder, dtypes.INTEGRAL, cost=_COST)
