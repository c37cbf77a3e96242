"""Datasets of what is in memory: tensors, their slices, ranges of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import Made, integer
from aexec.resources.datasets.dataset import DatasetIterator, Element, Elements, NotYet
from aexec.resources.datasets.row_numbers import RowNumbers, Sliced

__all__ = ["Listed"]


class Listed(DatasetIterator):
    """Gives what a Python iterator gives, which does little for each element."""

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterator[Element]) -> None:
        self._elements = elements

    async def next(self, context: OpKernelContext) -> Element | None:
        return next(self._elements, None)

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        return next(self._elements, None)

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        return list(islice(self._elements, most))


@kernel("TensorDataset", cost=0)
def tensor_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c, "Toutput_types")
    return lambda *components: made.of(lambda _: Listed(iter([components])), 1)


@kernel("TensorSliceDataset", cost=0)
def tensor_slice_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c, "Toutput_types")

    def compute(*components: Any) -> Any:
        for component in components:
            if not component.ndim:
                raise errors.InvalidArgumentError("All components must be at least 1-dimensional")
            if len(component) != len(components[0]):
                raise errors.InvalidArgumentError(
                    "First dimensions of components must match: "
                    f"{shape_text(components[0].shape)} and {shape_text(component.shape)}"
                )
        count = len(components[0])
        numbers = Elements(made.name, (), (), lambda _: Listed(zip(range(count))), count)
        return boxed(
            Sliced(
                *(made.name, made.types, made.shapes),
                lambda _: Listed(_slices(components, count)),
                count,
                RowNumbers(components, numbers),
            )
        )

    return compute


def _slices(components: tuple[Any, ...], count: int) -> Iterator[Element]:
    for index in range(count):
        yield tuple([component[index, ...] for component in components])


@kernel("ListDataset", cost=0)
def list_dataset(c: OpKernelConstruction) -> Compute:
    """Elements whose components are side by side in one list of tensors; what is too little for one is left out."""
    made = Made(c)

    def compute(*tensors: Any) -> Any:
        width = len(made.types)
        count = len(tensors) // width
        elements = [tensors[number * width : (number + 1) * width] for number in range(count)]
        return made.of(lambda _: Listed(iter(elements)), count)

    return compute


@kernel("RangeDataset", cost=0)
def range_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    if len(made.types) != 1:
        raise errors.InvalidArgumentError(
            f"A range has elements of one component, but there are {len(made.types)} types"
        )
    (dtype,) = made.types
    if dtype.np.hasobject or dtype.np.kind == "b":
        raise errors.InvalidArgumentError(f"Unsupported data type: {dtype}")

    def converted(value: int) -> Any:  # modulo the range of a smaller type
        return np.int64(value).astype(dtype.np)

    number = np.int64 if dtype.np == np.int64 else converted

    def compute(start: Any, stop: Any, step: Any) -> Any:
        first, limit, delta = integer(start, "start"), integer(stop, "stop"), integer(step, "step")
        if not delta:
            raise errors.InvalidArgumentError("step must be a non-zero integer.")
        count = max(0, -((first - limit) // delta))
        numbers = range(first, limit, delta)
        return made.of(lambda _: Listed(zip(map(number, numbers))), count)

    return compute
