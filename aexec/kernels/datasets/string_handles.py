"""Handles of iterators as strings, which clients fetch and feed: shared by the ops of all kinds of iterators."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import ResourceHandle, handle_from_tensor, make_handle_tensor
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import text
from aexec.resources.datasets.iterator_resource import IteratorResource, check_compatible
from aexec.resources.datasets.multi_device_iterator import MultiDeviceIterator

__all__ = ["from_string_handle", "to_string_handle"]

_Kind = type[IteratorResource] | type[MultiDeviceIterator]


def to_string_handle(c: OpKernelConstruction, kind: _Kind) -> Compute:
    """The compute callable of an op that gives the string of an iterator's handle."""
    c.need_context()

    def compute(context: OpKernelContext, tensor: Any) -> Any:
        handle = handle_from_tensor(tensor, kind)
        context.resources.lookup_handle(handle, kind)
        return boxed(handle.to_proto().SerializeToString())

    return compute


def from_string_handle(c: OpKernelConstruction, kind: _Kind) -> Compute:
    """The compute callable of an op that gives the handle of a string.  The iterator must have the op's types and
    shapes.
    """
    types, shapes = c.attr("output_types"), c.attr("output_shapes")
    c.need_context()

    def compute(context: OpKernelContext, tensor: Any) -> Any:
        handle = _handle_of_text(tensor)
        found: Any = context.resources.lookup_handle(handle_from_tensor(handle, kind), kind)
        check_compatible(types, shapes, found.types, found.shapes)
        return handle

    return compute


def _handle_of_text(tensor: Any) -> Any:
    """The handle that a string stands for.  Raises InvalidArgumentError for a string that is none."""
    try:
        message = proto.ResourceHandleProto.FromString(text(tensor, "string_handle"))
    except DecodeError:
        raise errors.InvalidArgumentError("Could not parse string_handle as a valid ResourceHandle") from None
    return make_handle_tensor(ResourceHandle.from_proto(message))
