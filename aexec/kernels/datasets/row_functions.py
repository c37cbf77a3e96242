"""`RowFunction`: a function of elements in the form that is called with batches of them.

A dataset that maps such a function and then makes batches can make the batch first: one call in place of many.
Next to read: `aexec/graph/row_functions/batched_function.py`, `batch_dataset_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import resource, variant
from aexec.framework.kernel_contract.op_kernel import OpKernelContext
from aexec.framework.kernel_contract.op_kernel_context import FunctionLibraryRuntime
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.row_functions.batched_function import batched_function, may_be_row_wise
from aexec.resources.datasets.dataset import Dataset, Element

__all__ = ["RowFunction"]

# The most nodes of a function that is looked at, which takes a part of a slice of the event loop.
_MOST_NODES = 60


class RowFunction:
    """A function that may be called with batches of elements.

    Args:
        functions: of the session.
        reference: what the node calls.
        function: the same, to be called.
        shapes: of an element.
        captured: the arguments after those.
    """

    __slots__ = ("_captured", "_function", "_functions", "_made", "_reference", "_shapes")

    def __init__(
        self,
        functions: FunctionLibraryRuntime,
        reference: NameAttrList,
        function: Any,
        shapes: Sequence[PartialTensorShape],
        captured: Sequence[Any],
    ) -> None:
        self._functions = functions
        self._reference = reference
        self._function = function
        self._shapes = tuple(shapes)
        self._captured = tuple(captured)
        self._made: Any = None

    @classmethod
    def of(
        cls,
        functions: FunctionLibraryRuntime,
        reference: NameAttrList,
        function: Any,
        source: Dataset,
        captured: Sequence[Any],
    ) -> RowFunction | None:
        """The form of a function that gets the elements of a dataset; None if there certainly is none."""
        if any(dtype in (resource, variant) for dtype in source.types):
            return None
        if any(shape.dims is None for shape in source.shapes):
            return None
        try:
            body = function.small_body(_MOST_NODES)
        except errors.OpError:  # which a call raises too
            return None
        if body is None or not may_be_row_wise(body, len(source.shapes)):
            return None
        return cls(functions, reference, function, source.shapes, captured)

    async def prepare(self, context: OpKernelContext) -> bool:
        """Make the form for batches, in a thread, if it was not yet made; False if there is none."""
        if self._made is None:
            try:
                made = await context.params.worker_pool.run(self._derived)
            except errors.ResourceExhaustedError:
                return False
            if made is None:
                return False
            self._made = self._functions.function(made)
        return True

    def _derived(self) -> NameAttrList | None:
        same = [PartialTensorShape([None] * np.ndim(value)) for value in self._captured]
        ranks = tuple(map(len, same))
        body = self._function.small_body(_MOST_NODES)
        return self._functions.derived(
            ("batched", attr_value.hashable(self._reference), self._shapes, ranks),
            lambda library, versions: batched_function(library, versions, body, self._shapes, same),
        )

    async def __call__(self, context: OpKernelContext, batch: Element) -> Element:
        """The results for all rows, once `prepare` has given True.

        Raises:
            InternalError: the rows are not what the dataset promised.
            OpError: the function fails for a row, or its results have different shapes.
        """
        assert self._made is not None
        count = len(batch[0])
        for component, shape in zip(batch, self._shapes, strict=True):
            if not shape.is_compatible_with(component.shape[1:]):
                raise errors.InternalError(f"elements have shape {component.shape[1:]}, expected {shape}")
        inputs = (*batch, *self._captured, np.array([count], np.int64))
        results: Element = tuple(await self._made(context, inputs))
        if any(result.shape[:1] != (count,) for result in results):
            raise errors.InternalError("the results are not those of rows")
        return results
