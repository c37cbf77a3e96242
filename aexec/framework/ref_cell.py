"""`RefCell`: what flows along a ref edge, the cell of a variable rather than its value.

A kernel whose parameter is a ref type gets the cell and may assign to it; any other
consumer gets the value, read when the consumer runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape

__all__ = ["RefCell", "dereferencing", "frozen"]


class RefCell:
    """A mutable, possibly uninitialised tensor.

    Attributes:
        dtype: value type of what it holds.
        shape: the declared shape; assignments with `validate_shape=False` may depart from it.
        value: the array, or None while uninitialised.
    """

    __slots__ = ("dtype", "shape", "value")

    # Executors ask inputs for their size to judge how long a kernel will take.
    size = 1

    def __init__(self, dtype: DType, shape: PartialTensorShape, value: Any = None) -> None:
        self.dtype = dtype
        self.shape = shape
        self.value = value

    def read(self, name: str) -> Any:
        """The current value.

        Raises:
            FailedPreconditionError: uninitialised; `name` is the input's name for the message.
        """
        if self.value is None:
            raise errors.FailedPreconditionError(f"Attempting to use uninitialized value {name}")
        return self.value

    def __repr__(self) -> str:
        state = "uninitialized" if self.value is None else f"shape={self.value.shape}"
        return f"<RefCell {self.dtype} {state}>"


def frozen(array: Any) -> Any:
    """The array, read-only: what a variable holds may be fetched, and must not be changed from outside."""
    array.flags.writeable = False
    return array


def dereferencing(
    compute: Callable[..., Any], reads: Sequence[tuple[int, str, bool]], *, skip_first: bool = False
) -> Callable[..., Any]:
    """A compute callable whose inputs over ref edges are checked, and read where wanted by value.

    Args:
        reads: (input position, name for the error message, by value) of each such input.
        skip_first: the callable's first argument is the context, not an input.
    """
    offset = int(skip_first)

    def prepare_inputs(inputs: tuple[Any, ...]) -> list[Any]:
        prepared = list(inputs)
        for position, name, by_value in reads:
            value = prepared[position + offset].read(name)
            if by_value:
                prepared[position + offset] = value
        return prepared

    if inspect.iscoroutinefunction(compute):

        async def read_then_await(*inputs: Any) -> Any:
            return await compute(*prepare_inputs(inputs))

        return read_then_await

    def read_then_compute(*inputs: Any) -> Any:
        return compute(*prepare_inputs(inputs))

    return read_then_compute
