"""BatchFunction: calls of a function by several steps, joined and run together.

Next to read: `aexec/resources/batcher.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import ContainerInfo
from aexec.resources.batcher import Batcher


def _check_sizes(allowed: list[int], largest: int) -> None:
    if any(a >= b for a, b in itertools.pairwise(allowed)):
        raise errors.InvalidArgumentError("allowed_batch_sizes entries must be monotonically increasing")
    if allowed and allowed[-1] != largest:
        raise errors.InvalidArgumentError("final entry in allowed_batch_sizes must equal max_batch_size")


@kernel("BatchFunction", cost=0)
def batch_function(c: OpKernelConstruction) -> Compute:
    """All nodes with the same name, queue and function share batches."""
    function = c.functions.function(c.attr("f"))
    if tuple(function.types[0]) != c.input_types or tuple(function.types[1]) != c.output_types:
        raise errors.InvalidArgumentError(
            f"{function.name} does not take what {c.name} is given, or give what it gives"
        )
    largest, allowed = c.attr("max_batch_size"), c.attr("allowed_batch_sizes")
    _check_sizes(allowed, largest)
    if min(largest, c.attr("num_batch_threads"), c.attr("max_enqueued_batches")) < 1:
        raise errors.InvalidArgumentError("max_batch_size, num_batch_threads and max_enqueued_batches must be positive")
    limits = largest, c.attr("batch_timeout_micros") / 1e6, c.attr("max_enqueued_batches"), c.attr("num_batch_threads")
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    name = f"{info.name}/{c.text('batching_queue')}/{function.name}"
    count, split_large = len(c.attr("Tin")), c.attr("enable_large_batch_splitting")
    c.need_context()

    async def compute(context: OpKernelContext, *arguments: Any) -> Any:
        batcher = context.resources.lookup_or_create(info.container, name, Batcher, lambda: Batcher(*limits, allowed))
        inputs, captured = arguments[:count], arguments[count:]

        async def run(joined: tuple[Any, ...], calls: int) -> Any:
            return await function(context, [*joined, *captured])

        if not split_large or not np.ndim(inputs[0]) or len(inputs[0]) <= largest:
            return await batcher.call(inputs, run, context.cancellation)
        parts = []
        for start in range(0, len(inputs[0]), largest):
            rows = tuple(array[start : start + largest] for array in inputs)
            parts.append(await batcher.call(rows, run, context.cancellation))
        return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    return compute
