"""Datasets of batches of other sizes than those of their input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.kernels.datasets.arguments import Made, flag, integer, was_cancelled
from aexec.resources.datasets.dataset import DatasetIterator, Element, Pass, dataset_of


def _check_rows(batch: Element) -> int:
    """The number of a batch's rows.  Raises InvalidArgumentError unless all components have as many."""
    for component in batch:
        if not component.ndim:
            raise errors.InvalidArgumentError("Input element must have a non-scalar value in each component.")
        if len(component) != len(batch[0]):
            raise errors.InvalidArgumentError(
                "Input element must have the same batch size in each component. Component 0 had size "
                f"{len(batch[0])} but another has size {len(component)}"
            )
    return len(batch[0])


class _Split(DatasetIterator):
    """Cuts each batch of the input into `parts` batches of equal size; the last ones may be smaller or empty."""

    __slots__ = ("_parts", "_ready", "_source")

    def __init__(self, source: DatasetIterator, parts: int) -> None:
        self._source = source
        self._parts = parts
        self._ready: Iterator[Element] = iter(())

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            part = next(self._ready, None)
            if part is not None:
                return part
            batch = await self._source.next(context)
            if batch is None:
                return None
            self._ready = self._split(batch, _check_rows(batch))

    def _split(self, batch: Element, count: int) -> Iterator[Element]:
        size = -(-count // self._parts)
        for number in range(self._parts):
            yield tuple([component[number * size : (number + 1) * size] for component in batch])


class _Rebatched(DatasetIterator):
    """The rows of all batches of the input, in batches of the given sizes, in turn.

    Args:
        sizes: not empty.
        drops_rest: leaves out the last batch if it is smaller.
    """

    __slots__ = ("_drops_rest", "_ended", "_number", "_pass", "_pieces", "_sizes", "_source")

    def __init__(self, one: Pass, source: DatasetIterator, sizes: Sequence[int], *, drops_rest: bool) -> None:
        self._pass = one
        self._source = source
        self._sizes = sizes
        self._drops_rest = drops_rest
        self._number = 0
        self._pieces: list[Element] = []  # batches of the input, the first without the rows that were given
        self._ended = False

    def _rows(self) -> int:
        return sum([len(piece[0]) for piece in self._pieces])

    async def next(self, context: OpKernelContext) -> Element | None:
        size = self._sizes[self._number % len(self._sizes)]
        while self._rows() < size or not self._pieces:
            batch = None if self._ended else await self._source.next(context)
            if batch is None:
                self._ended = True
                break
            if _check_rows(batch) or not self._pieces:
                self._pieces.append(self._pass.keep(batch))
        if not self._pieces or (size and self._rows() < (size if self._drops_rest else 1)):
            return None
        try:
            made = await self._taken(context, size)
        except BaseException as error:
            if not was_cancelled(context, error):
                self._drop(size)
            raise
        self._drop(size)
        self._number += 1
        return made

    async def _taken(self, context: OpKernelContext, size: int) -> Element:
        """The next rows, which stay in `_pieces`."""
        parts: list[Element] = []
        for piece in self._pieces:
            parts.append(tuple([component[:size] for component in piece]))
            size -= len(parts[-1][0])
            if not size:
                break
        if len(parts) == 1:
            return parts[0]
        num_bytes = sum([component.nbytes for part in parts for component in part])

        def joined() -> Element:
            check_inline(COPY_NS * num_bytes)
            return tuple([np.concatenate(components) for components in zip(*parts, strict=True)])

        with self._pass.expecting(num_bytes):
            made: Element = await context.worker_pool.run_here_or_in_thread(joined)
        return made

    def _drop(self, size: int) -> None:
        """Leave out the first rows; the last piece stays, even if it has no rows, for the shape of an empty batch."""
        while size and self._pieces:
            first = self._pieces[0]
            taken = min(size, len(first[0]))
            size -= taken
            rest = tuple([component[taken:] for component in first])
            if len(rest[0]) or len(self._pieces) == 1:
                self._pieces[0] = rest
                return
            self._pieces.pop(0)


@kernel("RebatchDataset", "ExperimentalRebatchDataset", cost=0)
def rebatch_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, num_replicas: Any) -> Any:
        source, parts = dataset_of(tensor), integer(num_replicas, "num_replicas")
        if parts <= 0:
            raise errors.InvalidArgumentError("num_replicas must be greater than zero.")
        count = source.cardinality()
        return made.of(lambda one: _Split(one.begin(source), parts), count * parts if count > 0 else count)

    return compute


@kernel("RebatchDatasetV2", cost=0)
def rebatch_dataset_v2(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, batch_sizes: Any, drop_remainder: Any) -> Any:
        source, drops = dataset_of(tensor), flag(drop_remainder, "drop_remainder")
        if batch_sizes.ndim > 1:
            raise errors.InvalidArgumentError("`batch_sizes` must be a scalar or a vector.")
        sizes = batch_sizes.reshape(-1).tolist()
        if not sizes or min(sizes) < 0:
            raise errors.InvalidArgumentError("`batch_sizes` must be one number or more, none of which is negative.")
        return made.of(lambda one: _Rebatched(one, one.begin(source), sizes, drops_rest=drops))

    return compute
