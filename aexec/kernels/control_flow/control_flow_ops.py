"""Control-flow ops that are ordinary kernels.

Switch, Merge, Enter, Exit and NextIteration move values between outputs, iterations and frames.  The executor does that
itself: see `aexec/runtime/interpreter/propagator_state.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text


@kernel("NoOp", "ControlTrigger", cost=0)
def no_op(c: OpKernelConstruction) -> Compute:
    return lambda: None


@kernel("LoopCond", cost=0)
def loop_cond(c: OpKernelConstruction) -> Compute:
    return lambda predicate: predicate


@kernel("Abort", cost=0)
def abort(c: OpKernelConstruction) -> Compute:
    """Ends the step.  TensorFlow's ends the process, but a server must survive any graph."""
    message = c.text("error_msg")

    def compute() -> None:
        raise errors.AbortedError(f"Abort op intentionally failed: {message}")

    return compute if not c.attr("exit_without_error") else lambda: None


@kernel("RefSelect", cost=0, T=dtypes.ALL)
def ref_select(c: OpKernelConstruction) -> Compute:
    count = c.attr("N")

    def compute(index: Any, *cells: Any) -> Any:
        if np.ndim(index):
            raise errors.InvalidArgumentError(f"Index must be a scalar, but it has shape {shape_text(np.shape(index))}")
        chosen = int(index)
        if not 0 <= chosen < count:
            raise errors.InvalidArgumentError(f"Index must be in the range [0, {count}) but got {chosen}")
        return cells[chosen]

    return compute
