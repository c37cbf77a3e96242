"""_SumToShape: a gradient of a broadcast result, summed to the shape of one of the operands.

The pass `broadcast_gradients` puts it in the place of BroadcastGradientArgs, Sum and Reshape.  It gives the same bits
and the same errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AtMost
from aexec.framework.shape import MAX_RANK
from aexec.kernels.array.array_ops import reshape
from aexec.kernels.array.fill_ops import gradient_axes
from aexec.kernels.common.registration import INDEX
from aexec.kernels.math.reduction_ops import sum_function

__all__: list[str] = []

# Nanoseconds per element of a sum, as for Sum.
_SUM_NS = 0.4


def _cost(x: Any, shape: Any, other: Any) -> float:
    """Return 0 if the gradient has the wanted shape: then it is passed on, or summed over axes of size 1."""
    if shape.size <= MAX_RANK and shape.tolist() == list(x.shape):
        return 0.0
    return _SUM_NS * float(x.size)


@kernel("_SumToShape", host_memory=("shape", "other"), T=dtypes.NUMBER, Tshape=INDEX, cost=AtMost(_SUM_NS, _cost))
def sum_to_shape(c: OpKernelConstruction) -> Compute:
    """Return the input itself if it has the wanted shape and the operand was not broadcast.

    The attr `second` says that `shape` was the second of the two shapes; errors name them in their order.
    """
    second, index_type = c.attr("second"), c.attr("Tshape")
    total, reshaped = sum_function(c.xp, c.attr("T"), index_type), reshape(c)

    def axes_of(shape: Any, other: Any) -> Any:
        found = gradient_axes(other, shape)[1] if second else gradient_axes(shape, other)[0]
        return np.array(found, index_type.np) if found else None

    # The shapes of the last call, the axes to sum over (None for no axes), and whether the input is the result.  One
    # tuple, as threads may share the kernel.
    known: tuple[Any, Any, bool] = (None, None, False)

    def compute(x: Any, shape: Any, other: Any) -> Any:
        nonlocal known
        if shape.size > MAX_RANK or other.size > MAX_RANK:
            axes_of(shape, other)  # raises
        wanted = (x.shape, shape.tolist(), other.tolist())
        seen, axes, is_done = known
        if seen != wanted:
            axes = axes_of(shape, other)
            is_done = axes is None and wanted[1] == list(wanted[0])
            known = (wanted, axes, is_done)
        if is_done:
            return x
        return reshaped(x if axes is None else total(x, axes), shape)

    return compute
