"""`RefCell`: what flows along a ref edge, the cell of a variable rather than its value.

A kernel whose parameter is a ref type gets the cell and may assign to it; any other consumer gets the value, read when
the consumer runs.  `tensor_cell.py` describes how reads and updates are kept apart.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.tensor_cell import TensorCell
from aexec.framework.waiting.inline_call import PostponedError

__all__ = ["RefCell", "dereferencing"]


class RefCell(TensorCell):
    """The cell of a ref variable.

    Attributes:
        shape: the declared shape; assignments with `validate_shape=False` may depart from it.
    """

    __slots__ = ("shape",)

    def __init__(self, dtype: DType, shape: PartialTensorShape, value: Any = None) -> None:
        super().__init__(dtype, value)
        self.shape = shape

    def read(self, name: str) -> Any:
        """The current value.

        Args:
            name: the input's name, for the error.

        Raises:
            FailedPreconditionError: the variable is uninitialised.
        """
        value = self.value
        if value is None:
            raise errors.FailedPreconditionError(f"Attempting to use uninitialized value {name}")
        return value


def dereferencing(
    compute: Callable[..., Any],
    reads: Sequence[tuple[int, str, bool]],
    *,
    skip_first: bool = False,
    takes_list: bool = False,
) -> Callable[..., Any]:
    """Wrap a compute callable: inputs over ref edges are checked, and replaced by their values where these are wanted.

    Args:
        reads: (input position, name for the error, by value) of each such input.
        skip_first: the callable's first argument is the context, not an input.
        takes_list: after the context it takes one list of inputs.
    """
    offset = int(skip_first and not takes_list)

    def prepare_inputs(inputs: Sequence[Any]) -> list[Any]:
        prepared = list(inputs)
        for position, name, by_value in reads:
            cell = prepared[position + offset]
            if cell is None:
                continue  # a dead input, which a Send takes nevertheless
            value = cell.read(name)
            if by_value:
                prepared[position + offset] = value
        return prepared

    if inspect.iscoroutinefunction(compute):

        async def read_then_await(*inputs: Any) -> Any:
            while True:
                try:
                    prepared = prepare_inputs(inputs)
                except PostponedError as postponed:
                    await _ready(postponed)
                else:
                    return await compute(*prepared)

        return read_then_await

    if takes_list:
        return lambda context, inputs: compute(context, prepare_inputs(inputs))

    def read_then_compute(*inputs: Any) -> Any:
        return compute(*prepare_inputs(inputs))

    return read_then_compute


async def _ready(postponed: PostponedError) -> None:
    """Wait until a postponed call may succeed."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    postponed.when_ready(lambda: loop.call_soon_threadsafe(event.set))
    await event.wait()
