"""What the kernels of datasets read from their nodes: scalars, functions, and the elements that are promised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType, variant
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction, OpKernelContext
from aexec.framework.shape import PartialTensorShape
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.row_functions import RowFunction
from aexec.resources.datasets.dataset import UNKNOWN, Dataset, DatasetIterator, Element, Elements, Pass
from aexec.resources.datasets.row_numbers import Rearranged

__all__ = ["ONE_DATASET", "Called", "Made", "flag", "instead_of_end", "integer", "text", "was_cancelled"]

ONE_DATASET = (variant,)
"""The type of what a function gives that makes a dataset of each element."""


def _scalar(tensor: Any, name: str) -> Any:
    if np.ndim(tensor):
        raise errors.InvalidArgumentError(f"{name} must be a scalar")
    return tensor.item()


def integer(tensor: Any, name: str) -> int:
    """The value of a scalar argument.  Raises InvalidArgumentError, with the argument's name, for another shape."""
    return int(_scalar(tensor, name))


def flag(tensor: Any, name: str) -> bool:
    """As `integer`, for a bool."""
    return bool(_scalar(tensor, name))


def text(tensor: Any, name: str) -> bytes:
    """As `integer`, for a string."""
    return bytes(_scalar(tensor, name))


class Made:
    """What a node promises of its dataset's elements.

    Attributes:
        name: the node's name.
        types, shapes: those of an element's components.

    Args:
        types_attr: the attr with the types.

    Raises:
        InvalidArgumentError: the node names another number of types than of shapes.
    """

    __slots__ = ("name", "shapes", "types")

    def __init__(self, c: OpKernelConstruction, types_attr: str = "output_types") -> None:
        self.name = c.name
        self.types: tuple[DType, ...] = tuple(c.attr(types_attr))
        self.shapes: tuple[PartialTensorShape, ...] = tuple(c.attr("output_shapes"))
        if len(self.types) != len(self.shapes):
            raise errors.InvalidArgumentError(
                f"{types_attr} and output_shapes must be same length, got:\n{types_attr}: {len(self.types)}\n"
                f"output_shapes: {len(self.shapes)}"
            )

    def of(self, make: Callable[[Pass], DatasetIterator], count: int = UNKNOWN) -> Any:
        """The node's output: a dataset whose iterators `make` makes, with `count` elements."""
        return boxed(Elements(self.name, self.types, self.shapes, make, count))

    def rearranged(
        self, source: Dataset, make: Callable[[Pass, Dataset], DatasetIterator], count: int = UNKNOWN
    ) -> Any:
        """The node's output: a dataset of elements of `source` as they are; see `Rearranged`."""
        return boxed(Rearranged(self.name, self.types, self.shapes, source, make, count))

    def check(self, source: Dataset) -> None:
        """Raise InvalidArgumentError unless the elements of `source` have the promised types and possible shapes."""
        if source.types != self.types:
            raise errors.InvalidArgumentError(
                f"{self.name}: expected elements of {_types(self.types)}, got {_types(source.types)} of {source.name}"
            )
        for index, (wanted, shape) in enumerate(zip(self.shapes, source.shapes, strict=True)):
            if not wanted.is_compatible_with(shape):
                raise errors.InvalidArgumentError(
                    f"{self.name}: component {index} must have shape {wanted}, but {source.name} gives {shape}"
                )


def _types(types: Sequence[DType]) -> str:
    return f"({', '.join(map(str, types))})"


class Called:
    """A function of a dataset's node.

    Args:
        role: the attr that names it.
        gives: the types of its results; None for any.

    Attributes:
        takes, gives: the types of its arguments and results.

    Raises:
        InvalidArgumentError: it gives something else.
    """

    __slots__ = ("_function", "_functions", "_reference", "gives", "takes")

    def __init__(self, c: OpKernelConstruction, role: str, gives: Sequence[DType] | None = None) -> None:
        self._functions, self._reference = c.functions, c.attr(role)
        self._function = c.functions.function(self._reference)
        self.takes, self.gives = self._function.types
        if gives is not None and tuple(self.gives) != tuple(gives):
            raise errors.InvalidArgumentError(
                f"{role} of {c.op}: expected to give {_types(gives)}, "
                f"but {self._function.name} gives {_types(self.gives)}"
            )

    def for_rows(self, source: Dataset, captured: Sequence[Any]) -> RowFunction | None:
        """The form of it that is called with batches of a dataset's elements; None if there certainly is none."""
        return RowFunction.of(self._functions, self._reference, self._function, source, captured)

    def with_captured(self, source: Sequence[DType], captured: Sequence[Any]) -> Callable[..., Any]:
        """`call(context, element)`, which appends the captured tensors.

        Raises:
            InvalidArgumentError: the function does not take as many arguments, or not of these types.
        """
        if len(self.takes) != len(source) + len(captured) or tuple(self.takes[: len(source)]) != tuple(source):
            raise errors.InvalidArgumentError(
                f"{self._function.name} takes {_types(self.takes)}, but is given elements of {_types(source)} and "
                f"{len(captured)} captured tensors"
            )
        function = self._function
        if not captured:
            return function

        async def call(context: OpKernelContext, element: Element) -> Element:
            return await function(context, (*element, *captured))

        return call


def instead_of_end(error: errors.OutOfRangeError, *, preserves: bool) -> errors.OpError | None:
    """The error to raise for an OutOfRangeError of a function; None if it ends the dataset.

    Args:
        preserves: the dataset has as many elements as its input, so the function cannot end it.
    """
    if not preserves:
        return None
    return errors.InvalidArgumentError(f"Function invocation produced OutOfRangeError: {error.message}")


def was_cancelled(context: OpKernelContext, error: BaseException) -> bool:
    """True if a call failed because its step was cancelled: what it was given is then used again."""
    return isinstance(error, asyncio.CancelledError) or context.cancellation.cancel_requested
