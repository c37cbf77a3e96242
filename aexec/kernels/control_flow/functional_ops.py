"""Functional control flow: If, Case, While, For and calls, whose branches and bodies are functions.

Each body runs directly, as an execution of its own inside the step; cancelling the step cancels it.  Next to read:
`aexec/runtime/functions/functions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.call_results import PlacedValues, Results
from aexec.framework.dtypes import DType, int32
from aexec.framework.kernel_contract.functional_call import CallKind, FunctionalCall, Running
from aexec.framework.kernel_contract.kernel_registry import DEFAULT_DEVICE, kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.waiting.long_work import steadily
from aexec.framework.zeros import zeros_of_type


def truth(condition: Any) -> bool:
    """Truth of a condition tensor: the value of a scalar; for any other tensor, whether it has elements."""
    array = np.asarray(condition)
    return bool(array[()]) if array.ndim == 0 else array.size > 0


def _scalar(value: Any, name: str) -> int:
    if np.ndim(value):
        raise errors.InvalidArgumentError(f"{name} must be a scalar, but {shape_text(np.shape(value))}")
    return int(value)


def _function(
    c: OpKernelConstruction,
    role: str,
    inputs: Sequence[DType],
    outputs: Sequence[DType] | None,
    reference: Any = None,
    results: Results = Results.AS_OUTPUTS,
) -> Any:
    """The function that attr `role` names, which must take `inputs` and return `outputs` (None: one of any type)."""
    function = c.functions.function(c.attr(role) if reference is None else reference, results=results)
    arguments, given = function.types
    if not _same_types(arguments, inputs):
        raise errors.InvalidArgumentError(
            f"{role} of {c.op}: {function.name} expects {_text(arguments)}, but is given {_text(inputs)}"
        )
    if outputs is None and len(given) != 1:
        raise errors.InvalidArgumentError(
            f"Expected a single scalar return value from {_loop(c)}Op {role}, got {len(given)} tensors. "
            f"{function.name} gives {_text(given)}"
        )
    if outputs is not None and not _same_types(given, outputs):
        counts = f"{_loop(c)} loop body returned {len(given)} arguments. Expected: {len(outputs)}. "
        raise errors.InvalidArgumentError(
            f"{counts if role == 'body' and len(given) != len(outputs) else ''}"
            f"{role} of {c.op}: Expect to produce {_text(outputs)}, but get {_text(given)} from {function.name}"
        )
    return function


def _loop(c: OpKernelConstruction) -> str:
    """The name of the op's loop in TensorFlow's messages: `While`, `For`."""
    return c.op.removeprefix("Stateless").removeprefix("_")


async def _results(context: OpKernelContext, values: Sequence[Any], number: int, running: Running) -> Any:
    """Wait for a function whose results are the kernel's."""
    return await running


def _same_types(given: Sequence[DType], wanted: Sequence[DType]) -> bool:
    return [t.base for t in given] == [t.base for t in wanted]


def _text(types: Sequence[DType]) -> str:
    return f"{len(types)} tensors ({', '.join(map(str, types))})"


@kernel("If", "StatelessIf", "_If", cost=0)
@kernel("If", "StatelessIf", "_If", device=DEFAULT_DEVICE, host_memory=("cond",), cost=0)
def if_(c: OpKernelConstruction) -> Compute:
    then_branch = _function(c, "then_branch", c.input_types[1:], c.output_types)
    else_branch = _function(c, "else_branch", c.input_types[1:], c.output_types)
    c.need_context()

    async def compute(context: OpKernelContext, condition: Any, *inputs: Any) -> Any:
        branch = then_branch if truth(condition) else else_branch
        return await branch(context, inputs)

    c.calls = FunctionalCall(CallKind.IF, (then_branch, else_branch), _results)
    return compute


@kernel("Case", "StatelessCase", cost=0)
@kernel("Case", "StatelessCase", device=DEFAULT_DEVICE, host_memory=("branch_index",), cost=0)
def case(c: OpKernelConstruction) -> Compute:
    branches = [
        _function(c, "branches", c.input_types[1:], c.output_types, branch) for branch in steadily(c.attr("branches"))
    ]
    c.need_context()

    async def compute(context: OpKernelContext, index: Any, *inputs: Any) -> Any:
        chosen = _scalar(index, "branch_index")
        # An index out of range selects the last branch.
        branch = branches[chosen if 0 <= chosen < len(branches) else -1]
        return await branch(context, inputs)

    return compute


@kernel("While", "StatelessWhile", "_While", cost=0)
@kernel("While", "StatelessWhile", "_While", device=DEFAULT_DEVICE, cost=0)
def while_(c: OpKernelConstruction) -> Compute:
    """Loop variables stay where they are made; only the condition is copied to the host."""
    condition = _function(c, "cond", c.input_types, None, results=Results.ON_HOST)
    body = _function(c, "body", c.input_types, c.input_types, results=Results.WHERE_MADE)
    c.need_context()

    async def compute(context: OpKernelContext, *inputs: Any) -> Any:
        return await go_on(context, inputs, 0, condition(context, inputs))

    async def go_on(context: OpKernelContext, values: Sequence[Any], number: int, running: Running) -> Any:
        while True:
            if number == 0:
                (proceed,) = await running
                if not truth(proceed):
                    return await body.deliver(context, values)
                running = body(context, values)
            values = await running
            number, running = 0, condition(context, values)

    c.calls = FunctionalCall(CallKind.WHILE, (condition, body), go_on)
    return compute


@kernel("For", cost=0)
@kernel("For", device=DEFAULT_DEVICE, host_memory=("start", "limit", "delta"), cost=0)
def for_(c: OpKernelConstruction) -> Compute:
    body = _function(c, "body", [int32, *c.input_types[3:]], c.output_types, results=Results.WHERE_MADE)
    c.need_context()

    async def compute(context: OpKernelContext, start: Any, limit: Any, delta: Any, *inputs: Any) -> Any:
        first, stop, step = _scalar(start, "start"), _scalar(limit, "limit"), _scalar(delta, "delta")
        if stop != first and (stop - first) * step <= 0:
            raise errors.InvalidArgumentError(
                f"Invalid start/limit/delta: {first} {stop} {step}.  By steps of {step} the loop never gets from "
                f"{first} to {stop}"
            )
        values: Sequence[Any] = inputs
        for index in range(first, stop, step or 1):
            values = await body(context, PlacedValues.after(np.int32(index), values))
        return await body.deliver(context, values)

    return compute


@kernel("PartitionedCall", "StatefulPartitionedCall", cost=0)
@kernel("PartitionedCall", "StatefulPartitionedCall", device=DEFAULT_DEVICE, cost=0)
def partitioned_call(c: OpKernelConstruction) -> Compute:
    function = _function(c, "f", c.input_types, c.output_types)
    c.need_context()

    async def compute(context: OpKernelContext, *inputs: Any) -> Any:
        return await function(context, inputs)

    c.calls = FunctionalCall(CallKind.CALL, (function,), _results)
    return compute


@kernel("RemoteCall", cost=0)
@kernel("RemoteCall", device=DEFAULT_DEVICE, host_memory=("target",), cost=0)
def remote_call(c: OpKernelConstruction) -> Compute:
    """A call whose body runs on the device that an input names, which must be one of the session's."""
    _function(c, "f", c.input_types[1:], c.output_types)
    functions, reference = c.functions, c.attr("f")
    c.need_context()

    async def compute(context: OpKernelContext, target: Any, *inputs: Any) -> Any:
        name = _text_of(target)
        return await functions.function(reference, target=name)(context, inputs)

    return compute


def _text_of(target: Any) -> str:
    if np.ndim(target):
        raise errors.InvalidArgumentError(f"target must be a scalar, but it has shape {shape_text(np.shape(target))}")
    name = str(target.item(), "utf-8", "replace")
    if not name:
        raise errors.InvalidArgumentError("target must name a device, got an empty string")
    return name


@kernel("ToBool", cost=0)
def to_bool(c: OpKernelConstruction) -> Compute:
    """Truth of a tensor, as conditions have it."""
    return lambda value: np.bool_(truth(value))


@kernel("FakeParam", cost=0)
def fake_param(c: OpKernelConstruction) -> Compute:
    """Stands for a branch output that is never used: zeros of the declared shape, with unknown dimensions as 0.

    The zeros are views of one element, since the declared shape may be of any size.
    """
    shape = c.attr("shape")
    dims = [0 if d is None else d for d in shape.dims or ()]
    value = c.xp.broadcast_to(zeros_of_type((), c.output_types[0], c.xp), dims)
    return lambda: value


@kernel("SymbolicGradient", cost=0)
@kernel("SymbolicGradient", device=DEFAULT_DEVICE, cost=0)
def symbolic_gradient(c: OpKernelConstruction) -> Compute:
    """A call of the function's gradient, which is built from the gradients of its body's nodes."""
    function = c.functions.gradient(c.attr("f"))
    for what, given, wanted in (
        ("takes", c.input_types, function.types[0]),
        ("gives", c.output_types, function.types[1]),
    ):
        if not _same_types(given, wanted):
            raise errors.InvalidArgumentError(
                f"SymbolicGradient of function '{c.attr('f').name}' {what} {_text(wanted)}, got {_text(given)}"
            )
    c.need_context()

    async def compute(context: OpKernelContext, *inputs: Any) -> Any:
        return await function(context, inputs)

    c.calls = FunctionalCall(CallKind.CALL, (function,), _results)
    return compute


@kernel("DeviceIndex", host_memory=("index",), cost=0)
@kernel("DeviceIndex", device=DEFAULT_DEVICE, host_memory=("index",), cost=0)
def device_index(c: OpKernelConstruction) -> Compute:
    """Return the place of this device's type among `device_names`; their number if it is not there."""
    names, own = list(c.attr("device_names")), c.device_type.encode()
    index = np.int32(names.index(own) if own in names else len(names))
    return lambda: index
