"""Kernels that once changed a tensor's buffer, hence their names: InplaceUpdate, InplaceAdd, InplaceSub.

They now return a changed copy, as tensors are never mutated.  Row numbers wrap around, and rows named twice are changed
twice.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.array_module import at
from aexec.kernels.common.registration import on_host


def _check(x: Any, i: Any, v: Any) -> None:
    if i.ndim != 1:
        raise errors.InvalidArgumentError(f"i must be a vector. {shape_text(i.shape)}")
    if not x.ndim:
        raise errors.InvalidArgumentError("x must be at least a vector, got a scalar")
    if x.ndim != v.ndim:
        raise errors.InvalidArgumentError(
            f"x and v shape doesn't match (ranks differ): {shape_text(x.shape)} vs. {shape_text(v.shape)}"
        )
    for axis in range(1, x.ndim):
        if x.shape[axis] != v.shape[axis]:
            raise errors.InvalidArgumentError(
                f"x and v shape doesn't match at index {axis} : {shape_text(x.shape)} vs. {shape_text(v.shape)}"
            )
    if i.shape[0] != v.shape[0]:
        raise errors.InvalidArgumentError(
            f"i and x shape doesn't match at index 0: {shape_text(i.shape)} vs. {shape_text(v.shape)}"
        )
    if i.size and not x.shape[0]:
        raise errors.InvalidArgumentError("x has no rows to change")


def _inplace(c: OpKernelConstruction) -> Compute:
    if c.op != "InplaceUpdate" and c.attr("T") not in dtypes.NUMBER:
        raise errors.InvalidArgumentError(f"Unsupported data type: {c.attr('T')}")
    xp = c.xp
    apply_at = _assign_at if c.op == "InplaceUpdate" else at(xp, "add" if c.op == "InplaceAdd" else "subtract")

    def compute(x: Any, i: Any, v: Any) -> Any:
        _check(x, i, v)
        out = xp.array(x)
        if i.size:
            apply_at(out, i % x.shape[0], v)
        return out

    return compute


def _assign_at(array: Any, rows: Any, values: Any) -> None:
    array[rows] = values


def _scratch(_x: Any, i: Any, _v: Any) -> int:
    """Bytes of the row numbers within bounds."""
    return int(i.nbytes)


_OPS = ("InplaceUpdate", "InplaceAdd", "InplaceSub")
kernel(*_OPS, scratch=_scratch)(_inplace)
kernel(*_OPS, device="DEFAULT", scratch=_scratch, host_memory=("x", "i", "v", "y"), T=[dtypes.int32])(on_host(_inplace))
