"""Stacks (V2): what a forward loop pushes and its gradient pops; they live as long as the step."""

from __future__ import annotations

import itertools
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import ALL, DType
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction, OpKernelContext
from aexec.framework.resource_manager import ResourceHandle, handle_from_tensor, make_handle_tensor

_numbers = itertools.count()


class Stack:
    """Last in, first out; `max_size` below 0 means unbounded."""

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.max_size = max_size
        self._elements: list[Any] | None = []

    def push(self, value: Any) -> None:
        elements = self._open()
        if 0 <= self.max_size <= len(elements):
            raise errors.InvalidArgumentError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
        elements.append(value)

    def pop(self) -> Any:
        elements = self._open()
        if not elements:
            raise errors.InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
        return elements.pop()

    def close(self) -> None:
        self._elements = None

    def check_dtype(self, dtype: DType) -> None:
        if dtype is not self.dtype:
            raise errors.InvalidArgumentError(f"Must have type {self.dtype.enum} but got {dtype.enum}")

    def _open(self) -> list[Any]:
        if self._elements is None:
            raise errors.InvalidArgumentError(f"Stack[{self.name}] has already been closed.")
        return self._elements


def _find(context: OpKernelContext, handle_tensor: Any) -> Stack:
    handle = handle_from_tensor(handle_tensor)
    return context.resources.lookup(handle.container, handle.name, Stack)


@kernel("StackV2", cost=0)
def stack(c: OpKernelConstruction) -> Any:
    dtype = c.attr("elem_type")
    base = c.text("stack_name") or c.name
    c.need_context()

    def compute(context: OpKernelContext, max_size: Any) -> Any:
        name = f"{base}_{next(_numbers)}"
        context.resources.create(context.step_container, name, Stack(name, dtype, int(max_size)))
        return make_handle_tensor(
            ResourceHandle(device=c.device, container=context.step_container, name=name, type_name="Stack")
        )

    return compute


@kernel("StackPushV2", cost=0, T=ALL)
def stack_push(c: OpKernelConstruction) -> Any:
    dtype = c.attr("T")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, value: Any) -> Any:
        found = _find(context, handle)
        found.check_dtype(dtype)
        found.push(value)
        return value

    return compute


@kernel("StackPopV2", cost=0)
def stack_pop(c: OpKernelConstruction) -> Any:
    dtype = c.attr("elem_type")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        found = _find(context, handle)
        found.check_dtype(dtype)
        return found.pop()

    return compute


@kernel("StackCloseV2", cost=0)
def stack_close(c: OpKernelConstruction) -> Any:
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        _find(context, handle).close()

    return compute
