"""Functional control flow: If, Case, While, For and calls, whose branches and bodies are functions.

They run directly, each body as an execution of its own inside the step; cancelling the
step cancels them.  Next to read: `aexec/runtime/functions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.shape import shape_text


def truth(condition: Any) -> bool:
    """Truth of a condition tensor: a scalar by its value, anything else by whether it has elements."""
    array = np.asarray(condition)
    return bool(array[()]) if array.ndim == 0 else array.size > 0


def _scalar(value: Any, name: str) -> int:
    if np.ndim(value):
        raise errors.InvalidArgumentError(f"{name} must be a scalar, but it has shape {shape_text(np.shape(value))}")
    return int(value)


def _check_results(c: OpKernelConstruction, results: Sequence[Any]) -> Any:
    expected = len(c.output_types)
    if len(results) != expected:
        raise errors.InternalError(f"Expect to produce {expected} tensors, but only get {len(results)}")
    return tuple(results)


@kernel("If", "StatelessIf", "_If", cost=0)
def if_(c: OpKernelConstruction) -> Any:
    then_branch = c.functions.function(c.attr("then_branch"))
    else_branch = c.functions.function(c.attr("else_branch"))
    c.need_context()

    async def compute(context: Any, condition: Any, *inputs: Any) -> Any:
        branch = then_branch if truth(condition) else else_branch
        return _check_results(c, await branch(context, inputs))

    return compute


@kernel("Case", "StatelessCase", cost=0)
def case(c: OpKernelConstruction) -> Any:
    branches = [c.functions.function(reference) for reference in c.attr("branches")]
    c.need_context()

    async def compute(context: Any, index: Any, *inputs: Any) -> Any:
        chosen = _scalar(index, "branch_index")
        # An index out of range means the last branch.
        branch = branches[chosen if 0 <= chosen < len(branches) else -1]
        return _check_results(c, await branch(context, inputs))

    return compute


@kernel("While", "StatelessWhile", "_While", cost=0)
def while_(c: OpKernelConstruction) -> Any:
    condition = c.functions.function(c.attr("cond"))
    body = c.functions.function(c.attr("body"))
    c.need_context()

    async def compute(context: Any, *inputs: Any) -> Any:
        values: Sequence[Any] = inputs
        while True:
            proceed = await condition(context, values)
            if len(proceed) != 1:
                raise errors.InvalidArgumentError(
                    f"Expected a single scalar return value from WhileOp cond, got {len(proceed)} tensors."
                )
            if not truth(proceed[0]):
                return _check_results(c, values)
            values = await body(context, values)

    return compute


@kernel("For", cost=0)
def for_(c: OpKernelConstruction) -> Any:
    body = c.functions.function(c.attr("body"))
    c.need_context()

    async def compute(context: Any, start: Any, limit: Any, delta: Any, *inputs: Any) -> Any:
        first, stop, step = _scalar(start, "start"), _scalar(limit, "limit"), _scalar(delta, "delta")
        if step == 0:
            raise errors.InvalidArgumentError(f"delta must be non-zero, got start {first}, limit {stop}, delta 0")
        if (stop - first) * step < 0:
            raise errors.InvalidArgumentError(f"delta {step} leads away from limit {stop} (start {first})")
        values: Sequence[Any] = inputs
        for index in range(first, stop, step):
            values = await body(context, [np.int32(index), *values])
        return _check_results(c, values)

    return compute


@kernel("PartitionedCall", "StatefulPartitionedCall", cost=0)
def partitioned_call(c: OpKernelConstruction) -> Any:
    function = c.functions.function(c.attr("f"))
    c.need_context()

    async def compute(context: Any, *inputs: Any) -> Any:
        return _check_results(c, await function(context, inputs))

    return compute


@kernel("FakeParam", cost=0)
def fake_param(c: OpKernelConstruction) -> Any:
    """Stands for a branch output that is never used: zeros of the declared shape, unknown dims as 0."""
    shape = c.attr("shape")
    dims = [0 if d is None else d for d in shape.dims or ()]
    value = c.xp.zeros(dims, c.output_types[0].np)
    value.flags.writeable = False
    return lambda: value
