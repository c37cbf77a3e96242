"""Batching across steps: calls of a function that are joined and run together, or tensors that are joined and cut.

Batch gives the joined tensors to the last of the steps, and empty ones to the others; Unbatch cuts what is computed of
them into the rows of each step.
Next to read: `aexec/resources/batcher.py`, `aexec/resources/unbatcher.py`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_manager import ContainerInfo
from aexec.framework.waiting.loop_budget import COPY_NS, current_budget
from aexec.kernels.data_flow.keeping import own
from aexec.resources.batcher import Batcher
from aexec.resources.unbatcher import GradientCollector, Unbatcher

# Steps that may share a batch: their keys are looked at on the event loop.
_MOST_CALLS = 10_000


def _check_sizes(allowed: list[int], largest: int) -> None:
    if any(a >= b for a, b in itertools.pairwise(allowed)):
        raise errors.InvalidArgumentError("allowed_batch_sizes entries must be monotonically increasing")
    if allowed and allowed[-1] != largest:
        raise errors.InvalidArgumentError("final entry in allowed_batch_sizes must equal max_batch_size")


def _limits(c: OpKernelConstruction) -> tuple[int, float, int, int]:
    """What a Batcher takes: rows, seconds, batches that wait, batches that run."""
    largest, allowed = c.attr("max_batch_size"), c.attr("allowed_batch_sizes")
    _check_sizes(allowed, largest)
    if min(largest, c.attr("num_batch_threads"), c.attr("max_enqueued_batches")) < 1:
        raise errors.InvalidArgumentError("max_batch_size, num_batch_threads and max_enqueued_batches must be positive")
    if c.attr("batch_timeout_micros") < 0:
        raise errors.InvalidArgumentError(
            f"batch_timeout_micros must be non-negative; was {c.attr('batch_timeout_micros')}"
        )
    return largest, c.attr("batch_timeout_micros") / 1e6, c.attr("max_enqueued_batches"), c.attr("num_batch_threads")


@kernel("BatchFunction", cost=0)
def batch_function(c: OpKernelConstruction) -> Compute:
    """All nodes with the same name, queue and function share batches."""
    function = c.functions.function(c.attr("f"))
    if tuple(function.types[0]) != c.input_types or tuple(function.types[1]) != c.output_types:
        raise errors.InvalidArgumentError(
            f"{function.name} does not take what {c.name} is given, or give what it gives"
        )
    limits, allowed = _limits(c), c.attr("allowed_batch_sizes")
    largest = limits[0]
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    name = f"{info.name}/{c.text('batching_queue')}/{function.name}"
    count, split_large = len(c.attr("Tin")), c.attr("enable_large_batch_splitting")
    c.need_context()

    async def compute(context: OpKernelContext, *arguments: Any) -> Any:
        batcher = context.resources.lookup_or_create(info.container, name, Batcher, lambda: Batcher(*limits, allowed))
        inputs, captured = arguments[:count], arguments[count:]

        async def run(joined: tuple[Any, ...], calls: int) -> Any:
            return await function(context, [*joined, *captured])

        in_thread = context.params.worker_pool.run
        if not split_large or not np.ndim(inputs[0]) or len(inputs[0]) <= largest:
            return await batcher.call(inputs, run, context.cancellation, in_thread=in_thread)
        parts = []
        for start in range(0, len(inputs[0]), largest):
            rows = tuple(array[start : start + largest] for array in inputs)
            parts.append(await batcher.call(rows, run, context.cancellation, in_thread=in_thread))
        return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    return compute


class _JoinedTensors:
    """Batches of tensors on the way from the call that joined them to the call that is given them."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        # By the key of the call that is given the batch: its tensors, and [calls, 3] of key, first row, end of rows.
        self.batches: dict[int, tuple[tuple[Any, ...], Any]] = {}


@kernel("Batch", cost=0)
def batch(c: OpKernelConstruction) -> Compute:
    """Nodes with the same name and queue share batches.

    A step whose tensors have no rows gets a batch of its own; TensorFlow gives it outputs of other ranks.
    """
    limits, allowed = _limits(c), c.attr("allowed_batch_sizes")
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    name = f"{info.name}/{c.text('batching_queue')}"
    c.need_context()

    async def compute(context: OpKernelContext, *inputs: Any) -> Any:
        shared = context.resources.lookup_or_create(
            info.container, name, _JoinedTensors, lambda: _JoinedTensors(Batcher(*limits, allowed))
        )
        key = secrets.randbits(63)
        if np.ndim(inputs[0]) and not len(inputs[0]):
            return (*inputs, np.array([[key, 0, 0]]), np.int64(key))

        async def join(joined: tuple[Any, ...], calls: int) -> Any:
            *tensors, keys = joined
            index = _batch_index(keys, calls, len(inputs[0]))
            shared.batches[int(index[-1, 0])] = tuple(tensors), index
            return joined

        rows = len(inputs[0]) if np.ndim(inputs[0]) else 1
        in_thread = context.params.worker_pool.run
        await shared.batcher.call((*inputs, np.full(rows, key)), join, context.cancellation, in_thread=in_thread)
        tensors, index = shared.batches.pop(key, ((), None))
        if index is None:
            return (*[tensor[:0] for tensor in inputs], np.empty((0, 3), np.int64), np.int64(key))
        return (*tensors, index, np.int64(key))

    return compute


def _batch_index(keys: Any, calls: int, rows: int) -> Any:
    """int64 [calls, 3]: each call's key, its first row and the end of its rows.

    Args:
        keys: the key of each row; rows of the first call may follow at the end, as padding.
        rows: of the call, if there is only one.
    """
    if calls == 1:
        return np.array([[keys[0], 0, rows]])
    starts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1, [len(keys)]))[: calls + 1]
    return np.stack([keys[starts[:-1]], starts[:-1], starts[1:]], axis=1)


def _key(value: Any, message: str) -> int:
    if np.ndim(value):
        raise errors.InvalidArgumentError(f"{message} {shape_text(np.shape(value))}.")
    return int(value)


def _check_calls(index: Any) -> None:
    if len(index) > _MOST_CALLS:
        raise errors.InvalidArgumentError(
            f"batch_index has {len(index)} rows; at most {_MOST_CALLS} steps share a batch"
        )


def _parts(data: Any, index: Any) -> list[tuple[int, Any]]:
    """The rows of each call, by its key."""
    _check_calls(index)
    sizes = (index[:, 2] - index[:, 1]).tolist()
    if min(sizes) < 0 or sum(sizes) != len(data):
        raise errors.InvalidArgumentError(
            f"Sum of split sizes must match dim0-size of input: the sizes are {sizes[:10]}, the input has {len(data)}"
        )
    ends = list(itertools.accumulate(sizes))
    return [(key, data[end - size : end]) for key, size, end in zip(index[:, 0].tolist(), sizes, ends, strict=True)]


@kernel("Unbatch", cost=0)
def unbatch(c: OpKernelConstruction) -> Compute:
    """The rows of a batch that belong to this step, whichever step has the batch."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    timeout = c.attr("timeout_micros") / 1e6
    c.need_context()
    c.take_list()

    async def exchange(context: OpKernelContext, inputs: list[Any]) -> Any:
        data, index = inputs[0], inputs[1]
        if np.ndim(data) == 0 or np.ndim(index) != 2:
            raise errors.InvalidArgumentError(
                f"batched_tensor must have rows and batch_index must be a matrix, but their shapes are "
                f"{shape_text(np.shape(data))} and {shape_text(np.shape(index))}"
            )
        if len(index) > len(data) and len(index) > 1:
            raise errors.InvalidArgumentError(
                "Wrong shape for index tensor. Expected 0th dimension size to be no greater than "
                f"{len(data)}; Got: {len(index)}."
            )
        if index.shape[1] != 3:
            raise errors.InvalidArgumentError(
                f"Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: {index.shape[1]}."
            )
        key = _key(inputs[2], "Input id should be scalar; Got:")
        unbatcher = context.resources.lookup_or_create(info.container, info.name, Unbatcher, lambda: Unbatcher(timeout))
        if not len(index):
            return await unbatcher.exchange(key, (), context.cancellation)
        await own(context, inputs, [0], None)
        return await unbatcher.exchange(key, _parts(inputs[0], index), context.cancellation)

    return lambda context, inputs: exchange(context, inputs)


@kernel("UnbatchGrad", cost=0)
def unbatch_grad(c: OpKernelConstruction) -> Compute:
    """The gradients of all parts, joined, in the step that has the batch; the others get no rows."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    c.need_context()
    c.take_list()

    async def collect(context: OpKernelContext, inputs: list[Any]) -> Any:
        data, index = inputs[0], inputs[1]
        key = _key(inputs[3], "Expected `id` to be scalar. Received")
        if not np.ndim(inputs[2]):
            raise errors.InvalidArgumentError("grad must have at least one dimension")
        keys = _keys_of(index) if np.size(data) else None
        collector = context.resources.lookup_or_create(info.container, info.name, GradientCollector, GradientCollector)
        await own(context, inputs, [2], None)
        grad = inputs[2]
        collector.give(key, grad)
        if keys is None:
            return grad[:0]
        return await _joined(context, await collector.collect(keys, context.cancellation))

    return lambda context, inputs: collect(context, inputs)


def _keys_of(index: Any) -> list[int]:
    if not np.size(index):
        raise errors.InvalidArgumentError("batch_index is empty while the tensor isn't.")
    if np.ndim(index) != 2 or index.shape[1] != 3:
        raise errors.InvalidArgumentError(
            f"batch_index should contain {3 * len(index)} elements. Received {np.size(index)}"
        )
    _check_calls(index)
    keys: list[int] = index[:, 0].tolist()
    return keys


async def _joined(context: OpKernelContext, parts: Sequence[Any]) -> Any:
    if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
        raise errors.InvalidArgumentError("Dimensions of gradients should match, beside the first one")
    join: Callable[[Sequence[Any]], Any] = np.concatenate
    if current_budget().allows(COPY_NS * sum(part.nbytes for part in parts)):
        return join(parts)
    return await context.worker_pool.run(join, parts)
