"""Ops that make a resource and return a handle to it, and ops that take a handle.

A handle has three forms: the element of a resource tensor, or, from ops of the first generation, a vector of container
and name, in the cell of a ref edge or as plain strings.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import (
    ContainerInfo,
    ResourceHandle,
    ResourceManager,
    handle_from_tensor,
    is_fixed_handle,
    make_handle_tensor,
)
from aexec.kernels.common.variants import boxed

__all__ = ["anonymous", "delete_by_handle", "find_resource", "names_of", "resource_finder", "shared", "step_handle"]

R = TypeVar("R")

_numbers = itertools.count()


def _handle(c: OpKernelConstruction, container: str, name: str, type_name: str) -> Any:
    """A handle in the form of the node's first output."""
    out = c.output_types[0]
    if out.base is not dtypes.string:
        return make_handle_tensor(ResourceHandle(device=c.device, container=container, name=name, type_name=type_name))
    tensor = np.empty(2, object)
    tensor[:] = container.encode(), name.encode()
    return RefCell(dtypes.string, PartialTensorShape([2]), tensor) if out.is_ref else tensor


def step_handle(c: OpKernelConstruction, context: OpKernelContext, name: str, type_name: str) -> Any:
    """A handle to a resource that lives as long as the step, in the form of the node's output."""
    return _handle(c, context.step_container, name, type_name)


def shared(
    c: OpKernelConstruction,
    kind: type[R],
    make: Callable[..., R],
    agree: Callable[[R], None] = lambda _: None,
    *,
    names: bool = False,
) -> Compute:
    """The compute callable of an op that makes a resource, or finds one that another node made under its name.

    Args:
        c: its attrs `container` and `shared_name` (and `use_node_name_sharing`) give the name.
        kind: the class by which it is looked up.
        make: makes it from the op's inputs.
        agree: raises InvalidArgumentError if an existing resource contradicts the node's attrs.
        names: `make` is given the resource's name before the inputs.
    """
    by_node = bool(c.attrs.get("use_node_name_sharing", False))
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=by_node)
    out = _handle(c, info.container, info.name, kind.__name__)
    c.need_context()

    def compute(context: OpKernelContext, *inputs: Any) -> Any:
        arguments = (info.name, *inputs) if names else inputs
        agree(context.resources.lookup_or_create(info.container, info.name, kind, lambda: make(*arguments)))
        return out

    return compute


def anonymous(c: OpKernelConstruction, kind: type[R], make: Callable[..., R], *, names: bool = False) -> Compute:
    """The compute callable of an op that makes a new resource at each call; it is deleted with its last handle.

    An op with a second output gives an empty variant for it, where TensorFlow gives the deleter.

    Args:
        kind: the class by which it is looked up.
        make: makes it from the op's inputs.
        names: `make` is given the resource's name before the inputs.
    """
    container = ContainerInfo.from_attrs({}, c.name).container
    has_deleter = len(c.output_types) == 2
    c.need_context()

    def compute(context: OpKernelContext, *inputs: Any) -> Any:
        name = f"_Anonymous{kind.__name__}{next(_numbers)}"
        handle = ResourceHandle.of_type(kind, ContainerInfo(container, name, is_private=True), c.device)
        context.resources.create(container, name, make(name, *inputs) if names else make(*inputs), kind)
        gone = weakref.finalize(handle, _delete, weakref.ref(context.resources), container, name, kind)
        gone.atexit = False
        tensor = make_handle_tensor(handle)
        return (tensor, boxed(None)) if has_deleter else tensor

    return compute


def delete_by_handle(c: OpKernelConstruction, kind: type) -> Compute:
    """The compute callable of an op that takes a handle, then others or a deleter, and deletes its resource of this
    class.
    """
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, *_: Any) -> None:
        named = handle_from_tensor(handle, kind)
        context.resources.delete(named.container, named.name, kind)

    return compute


def _delete(manager: weakref.ref[ResourceManager], container: str, name: str, kind: type) -> None:
    resources = manager()
    if resources is not None and resources.find(container, name, kind) is not None:
        resources.delete(container, name, kind)


def find_resource(context: OpKernelContext, reference: Any, kind: type[R]) -> R:
    """The resource that a handle of any form refers to.

    Raises:
        InvalidArgumentError: the value is not a handle.
        NotFoundError: there is no such resource.
    """
    return context.resources.lookup(*names_of(reference), kind)


def resource_finder(kind: type[R]) -> Callable[[OpKernelContext, Any], R]:
    """Like `find_resource`, a function that remembers the last resource: in a loop a kernel gets the same handle
    repeatedly.
    """
    last: tuple[Any, Any] = (None, None)  # one tuple, as threads may share the kernel

    def find(context: OpKernelContext, handle: Any) -> R:
        nonlocal last
        tensor, reference = last
        if tensor is handle:
            known: R | None = reference()
            if known is not None:
                return known
        found = find_resource(context, handle, kind)
        if is_fixed_handle(handle):
            last = handle, weakref.ref(found)
        return found

    return find


def names_of(reference: Any) -> tuple[str, str]:
    """Container and name of a handle of any form.  Raises InvalidArgumentError if it is not a handle."""
    if isinstance(reference, RefCell):
        reference = reference.read("of a handle")
    if np.shape(reference) != (2,):
        handle = handle_from_tensor(np.asarray(reference))
        return handle.container, handle.name
    parts = reference.tolist()
    if not all(isinstance(part, bytes) for part in parts):
        raise errors.InvalidArgumentError(f"expected a handle, got a tensor of shape {shape_text(reference.shape)}")
    container, name = (part.decode(errors="replace") for part in parts)
    return container, name
