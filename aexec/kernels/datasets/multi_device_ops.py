"""Iterators whose elements are dealt to devices in turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.kernels.common.handles import anonymous, delete_by_handle, shared
from aexec.kernels.datasets.arguments import integer
from aexec.kernels.datasets.iterator_ops import checked_element
from aexec.kernels.datasets.string_handles import from_string_handle, to_string_handle
from aexec.resources.datasets.dataset import dataset_of
from aexec.resources.datasets.multi_device_iterator import MultiDeviceIterator


def _of(context: OpKernelContext, handle: Any) -> MultiDeviceIterator:
    return context.resources.lookup_handle(handle_from_tensor(handle, MultiDeviceIterator), MultiDeviceIterator)


def _making(c: OpKernelConstruction) -> Any:
    devices, types, shapes = c.attr("devices"), c.attr("output_types"), c.attr("output_shapes")
    return lambda name: MultiDeviceIterator(name, len(devices), types, shapes)


@kernel("MultiDeviceIterator", cost=0)
def multi_device_iterator(c: OpKernelConstruction) -> Compute:
    return shared(c, MultiDeviceIterator, _making(c), names=True)


@kernel("AnonymousMultiDeviceIterator", "AnonymousMultiDeviceIteratorV3", cost=0)
def anonymous_multi_device_iterator(c: OpKernelConstruction) -> Compute:
    return anonymous(c, MultiDeviceIterator, _making(c), names=True)


@kernel("DeleteMultiDeviceIterator", cost=0)
def delete_multi_device_iterator(c: OpKernelConstruction) -> Compute:
    """Deletes the iterator; the handles of iterators of its shards only keep these alive until then."""
    return delete_by_handle(c, MultiDeviceIterator)


@kernel("MultiDeviceIteratorInit", cost=0)
def multi_device_iterator_init(c: OpKernelConstruction) -> Compute:
    c.need_context()

    def compute(context: OpKernelContext, dataset: Any, handle: Any, max_buffer_size: Any) -> Any:
        most = integer(max_buffer_size, "max_buffer_size")
        if most <= 0:
            raise errors.InvalidArgumentError("max_buffer_size must be greater than zero")
        return np.int64(_of(context, handle).begin(dataset_of(dataset), context, most))

    return compute


@kernel("MultiDeviceIteratorGetNextFromShard", cost=0)
def multi_device_iterator_get_next_from_shard(c: OpKernelConstruction) -> Compute:
    types, shapes = list(c.attr("output_types")), list(c.attr("output_shapes"))
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, shard_num: Any, incarnation_id: Any) -> Any:
        found = _of(context, handle)
        shard, incarnation = integer(shard_num, "shard_num"), integer(incarnation_id, "incarnation_id")
        element = await found.next(context, shard, incarnation)
        if element is None:
            raise errors.OutOfRangeError("End of sequence")
        return checked_element(element, types, shapes)

    return compute


@kernel("MultiDeviceIteratorToStringHandle", cost=0)
def multi_device_iterator_to_string_handle(c: OpKernelConstruction) -> Compute:
    return to_string_handle(c, MultiDeviceIterator)


@kernel("MultiDeviceIteratorFromStringHandle", cost=0)
def multi_device_iterator_from_string_handle(c: OpKernelConstruction) -> Compute:
    return from_string_handle(c, MultiDeviceIterator)
