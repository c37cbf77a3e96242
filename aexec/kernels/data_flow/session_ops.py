"""Session tensors: kept from one step for later ones, under handles.  See `framework/session_state.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.resource_manager import make_handle_tensor
from aexec.framework.session_state import tensor_handle
from aexec.framework.shape import shape_text

_ON_DEVICE = (*dtypes.NUMBER, dtypes.bool_)


@kernel("GetSessionHandle", "GetSessionHandleV2", cost=0)
@kernel("GetSessionHandle", "GetSessionHandleV2", device="DEFAULT", T=_ON_DEVICE, host_memory=("handle",), cost=0)
def get_session_handle(c: OpKernelConstruction) -> Compute:
    """A new handle to the tensor, which is kept if the handle is fetched: a string, or of V2 a resource handle."""
    name, device, as_string = c.name, c.device, c.output_types[0] is dtypes.string
    c.need_context()

    def compute(context: OpKernelContext, value: Any) -> Any:
        handle = tensor_handle(name, context.session_state.get_new_id(), device)
        context.tensor_store.add_tensor(name, np.asarray(value), handle.name)
        if not as_string:
            return make_handle_tensor(handle)
        out = np.empty((), object)
        out[()] = handle.name.encode()
        return out

    return compute


def _handle_text(handle: Any) -> str:
    if handle.ndim:
        raise errors.InvalidArgumentError(f"handle must be scalar, got shape {shape_text(handle.shape)}")
    return str(handle.item(), "utf-8", "replace")


@kernel("GetSessionTensor", cost=0)
@kernel("GetSessionTensor", device="DEFAULT", dtype=_ON_DEVICE, host_memory=("handle",), cost=0)
def get_session_tensor(c: OpKernelConstruction) -> Compute:
    """The tensor of a handle."""
    dtype, name = c.attr("dtype"), c.name
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        tensor = context.session_state.get_tensor(_handle_text(handle))
        if tensor.dtype != dtype.np:
            raise errors.InternalError(
                f"Output 0 of type {dtypes.from_numpy(tensor.dtype)} does not match declared output type {dtype} "
                f"for node {{{{node {name}}}}}"
            )
        return tensor

    return compute


@kernel("DeleteSessionTensor", cost=0)
@kernel("DeleteSessionTensor", device="DEFAULT", host_memory=("handle",), cost=0)
def delete_session_tensor(c: OpKernelConstruction) -> Compute:
    """The tensor of a handle is forgotten."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        context.session_state.delete_tensor(_handle_text(handle))

    return compute
