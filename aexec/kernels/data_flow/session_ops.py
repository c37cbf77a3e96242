"""Session tensors: kept from one step for later ones, under handles.  See `framework/state/session_state.py`."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device, copy_between
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_manager import make_handle_tensor
from aexec.framework.state.session_state import DeviceTensor, tensor_handle
from aexec.framework.waiting.futures import PendingOutputs, complete_from
from aexec.kernels.common.portable import is_on_device

_ON_DEVICE = tuple(filter(is_on_device, (*dtypes.NUMBER, dtypes.bool_)))


@kernel("GetSessionHandle", "GetSessionHandleV2", cost=0)
@kernel("GetSessionHandle", "GetSessionHandleV2", device="DEFAULT", T=_ON_DEVICE, host_memory=("handle",), cost=0)
def get_session_handle(c: OpKernelConstruction) -> Compute:
    """Return a new handle to the tensor, which is kept if the handle is fetched: a string, or of V2 a resource handle.

    A tensor in the memory of the node's device stays there.
    """
    memory, dtype = _memory_of(c), c.input_types[0]
    name, device, as_string = c.name, c.device, c.output_types[0] is dtypes.string
    c.need_context()

    def compute(context: OpKernelContext, value: Any) -> Any:
        handle = tensor_handle(name, context.session_state.get_new_id(), device)
        tensor = np.asarray(value) if memory is None else DeviceTensor(value, memory, dtype)
        context.tensor_store.add_tensor(name, tensor, handle.name)
        if not as_string:
            return make_handle_tensor(handle)
        out = np.empty((), object)
        out[()] = handle.name.encode()
        return out

    return compute


def _memory_of(c: OpKernelConstruction) -> Device | None:
    """The device in whose memory the node's tensor is; None for the host's."""
    return None if c.placed_on is None or c.placed_on.is_host else c.placed_on


def _handle_text(handle: Any) -> str:
    if handle.ndim:
        raise errors.InvalidArgumentError(f"handle must be scalar, got shape {shape_text(handle.shape)}")
    return str(handle.item(), "utf-8", "replace")


@kernel("GetSessionTensor", cost=0)
@kernel("GetSessionTensor", device="DEFAULT", dtype=_ON_DEVICE, host_memory=("handle",), cost=0)
def get_session_tensor(c: OpKernelConstruction) -> Compute:
    """Return the tensor of a handle, copied to the memory of the node's device unless it is there."""
    dtype, name, memory = c.attr("dtype"), c.name, _memory_of(c)
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        tensor = context.session_state.get_tensor(_handle_text(handle))
        kept_in, found = None, tensor.dtype
        if type(tensor) is DeviceTensor:
            tensor, kept_in = tensor.value, tensor.device
        else:
            found = dtypes.from_numpy(found)
        if found is not dtype:
            raise errors.InvalidArgumentError(
                f"Output 0 of type {found} does not match declared output type {dtype} for node {{{{node {name}}}}}"
            )
        value = copy_between(kept_in, tensor, memory, node=name)
        if not isinstance(value, Future):
            return value
        pending = PendingOutputs(loop=context.loop)
        complete_from(value, pending)
        return pending

    return compute


@kernel("DeleteSessionTensor", cost=0)
@kernel("DeleteSessionTensor", device="DEFAULT", host_memory=("handle",), cost=0)
def delete_session_tensor(c: OpKernelConstruction) -> Compute:
    """Deletes the tensor of a handle."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        context.session_state.delete_tensor(_handle_text(handle))

    return compute
