"""`map_fn`, `scan`, `foldl`, `foldr`: apply a function to the rows of tensors, one after another, in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.control_flow.while_loop import while_loop
from aexec.framework import dtypes, errors
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.shape_refiner import set_shape

__all__ = ["foldl", "foldr", "map_fn", "scan"]


class _Rows:
    """The rows of tensors of a structure, to be read one after another.

    Attributes:
        count: the number of rows, an int32 scalar.
    """

    def __init__(self, elems: Any) -> None:
        self.structure = elems
        self.tensors = [convert_to_tensor(value, name="elems") for value in leaves_of(elems)]
        if not self.tensors:
            raise errors.InvalidValueError("elems must have at least one tensor")
        for tensor in self.tensors:
            if tensor.static_shape.rank == 0:
                raise errors.InvalidValueError(f"elems must have rows, but '{tensor.name}' is a scalar")
        self.count = ops.shape(self.tensors[0])[0]
        self._arrays = [
            TensorArray(tensor.dtype.base, self.count, element_shape=_row(tensor)).unstack(tensor)
            for tensor in self.tensors
        ]

    def stacked(self, arrays: Sequence[TensorArray]) -> list[Tensor]:
        """The elements of arrays as tensors, with as many rows as these have, where that is known."""
        tensors = [array.stack() for array in arrays]
        sizes = [tensor.static_shape[0] for tensor in self.tensors if tensor.static_shape.rank is not None]
        size = next((size for size in sizes if size is not None), None)
        for tensor in tensors:
            if size is not None and tensor.static_shape.rank is not None:
                set_shape(tensor.node, tensor.index, PartialTensorShape([size, *list(tensor.static_shape)[1:]]))
        return tensors

    def __getitem__(self, index: Any) -> Any:
        return pack(self.structure, [array.read(index) for array in self._arrays])


def _row(tensor: Tensor) -> PartialTensorShape:
    return UNKNOWN_RANK if tensor.static_shape.rank is None else PartialTensorShape(list(tensor.static_shape)[1:])


def _write(arrays: Sequence[TensorArray], index: Tensor, structure: Any) -> list[TensorArray]:
    return [array.write(index, value) for array, value in zip(arrays, leaves_of(structure), strict=True)]


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    *,
    parallel_iterations: int = 10,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """The results of `fn` for each row of `elems`, as rows.

    Args:
        fn: of a row, or of a structure of rows if `elems` is one.
        elems: a tensor, or a structure of tensors with the same number of rows.
        dtype: the types of the results of `fn`, in their structure; by default those of `elems`.
        parallel_iterations: most rows that are processed at once.
        infer_shape: the results of `fn` have the same shape for all rows.

    Raises:
        InvalidArgumentError: `elems` has no tensor, or scalars; or `fn` returns another structure than `dtype`.
    """
    with name_scope(name or "map"):
        rows = _Rows(elems)
        given = pack(elems, [tensor.dtype.base for tensor in rows.tensors]) if dtype is None else dtype
        types = [dtypes.as_dtype(one) for one in leaves_of(given)]
        arrays = [TensorArray(one, rows.count, infer_shape=infer_shape) for one in types]

        def body(index: Tensor, arrays: list[TensorArray]) -> Any:
            result = fn(rows[index])
            check_same_structure(given, result, "dtype and what fn gives")
            return index + 1, _write(arrays, index, result)

        _, arrays = while_loop(
            lambda index, _: ops.less(index, rows.count),
            body,
            (0, arrays),
            parallel_iterations=parallel_iterations,
            maximum_iterations=rows.count,
        )
        return pack(given, rows.stacked(arrays))


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    *,
    parallel_iterations: int = 10,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """All results of `fn`, called with its previous result and the next row; as rows.

    Args:
        fn: of its previous result and of a row; returns the same structure again.
        elems: as for `map_fn`.
        initializer: the first previous result; by default the first row, which is then also the first result.
        reverse: from the last row to the first; the results are in the order of the rows.

    Raises:
        InvalidArgumentError: as `map_fn`; or without an initializer, there are no rows.
    """
    with name_scope(name or "scan"):
        rows = _Rows(elems)
        last = rows.count - 1
        first = last if reverse else 0
        start, begin = _started(rows, initializer, first)
        arrays = [TensorArray(value.dtype.base, rows.count, infer_shape=infer_shape) for value in leaves_of(start)]
        if initializer is None:
            arrays = _write(arrays, convert_to_tensor(first), start)

        def body(step: Tensor, value: Any, arrays: list[TensorArray]) -> Any:
            index = last - step if reverse else step
            result = fn(value, rows[index])
            return step + 1, result, _write(arrays, index, result)

        _, _, arrays = while_loop(
            lambda step, *_: ops.less(step, rows.count),
            body,
            (begin, start, arrays),
            parallel_iterations=parallel_iterations,
            maximum_iterations=rows.count,
        )
        return pack(start, rows.stacked(arrays))


def _started(rows: _Rows, initializer: Any, first: Any) -> tuple[Any, int]:
    """The first previous result, and the number of rows that it uses."""
    if initializer is None:
        return rows[first], 1
    return pack(initializer, [convert_to_tensor(value) for value in leaves_of(initializer)]), 0


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    *,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Any:
    """The last result of `scan` with these arguments."""
    return _folded("foldl", fn, elems, initializer, parallel_iterations, name, reverse=False)


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    *,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Any:
    """Like `foldl`, from the last row to the first."""
    return _folded("foldr", fn, elems, initializer, parallel_iterations, name, reverse=True)


def _folded(
    kind: str,
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any,
    parallel: int,
    name: str | None,
    *,
    reverse: bool,
) -> Any:
    with name_scope(name or kind):
        rows = _Rows(elems)
        last = rows.count - 1
        start, begin = _started(rows, initializer, last if reverse else 0)
        _, result = while_loop(
            lambda step, _: ops.less(step, rows.count),
            lambda step, value: (step + 1, fn(value, rows[last - step if reverse else step])),
            (begin, start),
            parallel_iterations=parallel,
            maximum_iterations=rows.count,
        )
        return result
