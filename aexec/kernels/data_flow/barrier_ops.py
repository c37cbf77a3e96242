"""Barriers: tuples assembled by key.  Next to read: `aexec/resources/barrier.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.tensor_buffer import measuring_ns
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS, current_budget, let_others_run
from aexec.kernels.common.handles import find_resource, shared
from aexec.kernels.common.strings import string_array, values_of
from aexec.kernels.data_flow.keeping import copy_shared
from aexec.queues.batching import empty_batch, join, join_ns
from aexec.resources.barrier import KEY_NS, Barrier


@kernel("Barrier", cost=0)
def barrier(c: OpKernelConstruction) -> Compute:
    kinds, declared = c.attr("component_types"), c.attr("shapes")
    if c.attr("capacity") != -1:
        raise errors.InvalidArgumentError(
            "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue "
            "to enforce a limited capacity."
        )
    if len(declared) != len(kinds):
        raise errors.InvalidArgumentError("All of the component shapes must be specified")
    for shape in declared:
        if not shape.is_fully_defined:
            raise errors.InvalidArgumentError(f"Shape {shape} is not fully defined")
    shapes = tuple(shape.as_tuple() for shape in declared)

    def agree(found: Barrier) -> None:
        if found.dtypes != tuple(kinds):
            raise errors.InvalidArgumentError(
                f"Shared barrier '{found.name}' has component types {', '.join(map(str, found.dtypes))} "
                f"but requested component types were {', '.join(map(str, kinds))}"
            )
        if found.shapes != shapes:
            raise errors.InvalidArgumentError(
                f"Shared barrier '{found.name}' has component shapes {_texts(found.shapes)} "
                f"but requested component shapes were {_texts(shapes)}"
            )

    return shared(c, Barrier, lambda name: Barrier(name, kinds, shapes), agree, names=True)


def _texts(shapes: tuple[tuple[int, ...], ...]) -> str:
    return f"[{', '.join(map(shape_text, shapes))}]"


def _insert_cost(_handle: Any, keys: Any, values: Any) -> float:
    return float(KEY_NS * keys.size + COPY_NS * values.nbytes + measuring_ns(values))


@kernel("BarrierInsertMany", cost=_insert_cost, T=dtypes.ALL)
def barrier_insert_many(c: OpKernelConstruction) -> Compute:
    component = c.attr("component_index")
    c.take_list()
    c.may_be_abandoned = True  # all elements are inserted or none

    def compute(context: OpKernelContext, inputs: list[Any]) -> None:
        found = find_resource(context, inputs[0], Barrier)
        keys = inputs[1]
        if 0 <= component < len(found.dtypes):
            c.match_signature([c.input_types[0], dtypes.string, found.dtypes[component]], [])
        if keys.ndim != 1:
            raise errors.InvalidArgumentError(f"keys must be a vector, but had shape: {shape_text(keys.shape)}")
        copy_shared(inputs, (2,))
        found.insert(values_of(keys), inputs[2], component)

    return compute


@kernel("BarrierTakeMany", cost=0)
def barrier_take_many(c: OpKernelConstruction) -> Compute:
    allow_small = c.attr("allow_small_batch")
    if c.attr("timeout_ms") != -1:
        raise errors.InvalidArgumentError("Timeout not supported yet.")
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, count: Any) -> Any:
        found = find_resource(context, handle, Barrier)
        c.match_signature(c.input_types, [dtypes.int64, dtypes.string, *found.dtypes])
        if np.ndim(count):
            raise errors.InvalidArgumentError(f"num_elements must be a scalar.  Its shape is {shape_text(count.shape)}")
        taken = await found.take(int(count), context.cancellation, allow_small=allow_small)
        try:
            if current_budget().allows(len(taken) * (OBJECT_NS + join_ns([tuple(entry[3]) for entry in taken[:1]]))):
                return _columns(found, taken)
            columns = await context.worker_pool.run(_columns, found, taken)
        except BaseException:
            found.put_back(taken)
            raise
        # Freeing so many objects would block the loop too, so a thread does it, and nothing waits for it.
        context.worker_pool.start(taken.clear)
        return columns

    return compute


def _columns(found: Barrier, taken: list[Any]) -> tuple[Any, ...]:
    """The taken elements as the op's outputs."""
    insertions = np.array([entry[0] for entry in taken], np.int64)
    let_others_run()
    keys = string_array([entry[2] for entry in taken])
    let_others_run()
    elements = [tuple(entry[3]) for entry in taken]
    let_others_run()
    return (insertions, keys, *(join(elements, found.dtypes) if taken else empty_batch(found.dtypes, found.shapes)))


@kernel("BarrierClose", cost=0)
def barrier_close(c: OpKernelConstruction) -> Compute:
    drop = c.attr("cancel_pending_enqueues")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        find_resource(context, handle, Barrier).close_for_insertions(drop_incomplete=drop)

    return compute


@kernel("BarrierReadySize", cost=0)
def barrier_ready_size(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, handle: np.int32(find_resource(context, handle, Barrier).ready_size)


@kernel("BarrierIncompleteSize", cost=0)
def barrier_incomplete_size(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, handle: np.int32(find_resource(context, handle, Barrier).incomplete_size)
