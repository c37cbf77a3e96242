"""Stacks: a forward loop pushes, its gradient pops; they live as long as the step.

Handles are resources, or the strings of the first generation.  The attr `swap_memory` asks to move a device's tensors
to host memory when the device runs short.  A push calls `Stack.swapped` with each tensor, which on the CPU does
nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.kernels.common.handles import find_resource, resource_finder, step_handle

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

    def swapped(self, value: Any) -> Any:
        """The place of a pushed tensor while memory is short; an array in host memory stays."""
        return value

    def pop(self) -> Any:
        elements = self._open()
        if not elements:
            raise errors.InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
        return elements.pop()

    @property
    def tensors(self) -> list[Any]:
        """The tensors that it holds."""
        return self._elements or []

    def close(self) -> None:
        self._elements = None

    def check_dtype(self, dtype: DType) -> None:
        if dtype is not self.dtype:
            raise errors.InvalidArgumentError(f"Must have type {self.dtype.enum} but got {dtype.enum}")

    def _open(self) -> list[Any]:
        if self._elements is None:
            raise errors.InvalidArgumentError(f"Stack[{self.name}] has already been closed.")
        return self._elements


@kernel("Stack", "StackV2", cost=0)
def stack(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("elem_type")
    base = c.text("stack_name") or c.name
    c.need_context()

    def compute(context: OpKernelContext, max_size: Any = -1) -> Any:
        if np.ndim(max_size):
            raise errors.InvalidArgumentError(f"Stack size must be scalar, but had shape: {shape_text(max_size.shape)}")
        name = f"{base}_{next(_numbers)}"
        context.resources.create(context.step_container, name, Stack(name, dtype, int(max_size)))
        return step_handle(c, context, name, "Stack")

    return compute


@kernel("StackPush", "StackPushV2", cost=0)
def stack_push(c: OpKernelConstruction) -> Compute:
    dtype, swap, find = c.attr("T"), c.attr("swap_memory"), resource_finder(Stack)
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, value: Any) -> Any:
        found = find(context, handle)
        found.check_dtype(dtype)
        found.push(found.swapped(value) if swap else value)
        return value

    return compute


@kernel("StackPop", "StackPopV2", cost=0)
def stack_pop(c: OpKernelConstruction) -> Compute:
    dtype, find = c.attr("elem_type"), resource_finder(Stack)
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        found = find(context, handle)
        found.check_dtype(dtype)
        return found.pop()

    return compute


@kernel("StackClose", "StackCloseV2", cost=0)
def stack_close(c: OpKernelConstruction) -> Compute:
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        find_resource(context, handle, Stack).close()

    return compute
