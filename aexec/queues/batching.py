"""Elements and batches: checking elements, cutting batches into elements, and joining them again.

An element is a tuple with one array (or NumPy scalar) per component.  Joining copies every element exactly once, by one
call of NumPy per component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.waiting.loop_budget import COPY_NS, CUT_NS, DEFAULT, JOIN_NS, OBJECT_NS, let_others_run
from aexec.framework.zeros import zeros_of_type

__all__ = ["Element", "Zeros", "check_element", "check_rows", "cut", "empty_batch", "join", "join_ns", "join_padded"]

Element = tuple[Any, ...]
# Rows cut or joined by one call, during which no other thread runs.
_AT_ONCE = DEFAULT.pieces(CUT_NS)
# Elements that are examined to estimate how long joining takes.
_SAMPLE = 64
# Makes the array for a component's batch from its position and shape, filled with zeros or empty byte strings.
Zeros = Callable[[int, Sequence[int]], Any]


def check_element(components: Sequence[Any], shapes: Sequence[PartialTensorShape]) -> None:
    """Raise InvalidArgumentError unless each component has its required shape."""
    for position, shape in enumerate(shapes):
        if not shape.is_compatible_with(components[position].shape):
            raise _shape_mismatch(position, str(shape), components[position].shape)


def check_rows(components: Sequence[Any], shapes: Sequence[PartialTensorShape]) -> None:
    """Like `check_element`, for components whose first dimension counts the elements."""
    for position, component in enumerate(components):
        if not component.ndim:
            raise errors.InvalidArgumentError(
                f"All input tensors must have at least one dimension to be cut along. Component {position} is a scalar"
            )
    count = components[0].shape[0]
    for position, shape in enumerate(shapes):
        got = components[position].shape
        if got[0] != count or not shape.is_compatible_with(got[1:]):
            inner = str(shape)[1:-1]
            raise _shape_mismatch(position, f"[{count}{',' if inner else ''}{inner}]", got)
    for position, component in enumerate(components):
        if component.shape[0] != count:
            raise errors.InvalidArgumentError(
                "All input tensors must have the same size in the 0th dimension. "
                f"Component {position} has {component.shape[0]}, and should have {count}"
            )


def _shape_mismatch(position: int, expected: str, got: Sequence[int]) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"Shape mismatch in tuple component {position}. Expected {expected}, got {shape_text(got)}"
    )


def cut(components: Sequence[Any]) -> list[Element]:
    """The elements of a batch, as views of its rows."""
    elements: list[Element] = []
    for start in range(0, len(components[0]), _AT_ONCE):
        if start:
            let_others_run()
        rows = (_rows(component[start : start + _AT_ONCE]) for component in components)
        elements += zip(*rows, strict=True)
    return elements


def _rows(component: Any) -> list[Any]:
    if component.ndim > 1 or component.dtype != object:
        return list(component)
    return [component[i : i + 1].reshape(()) for i in range(len(component))]


def join(elements: Sequence[Element], types: Sequence[DType]) -> Element:
    """A batch of one or more elements of equal shapes."""
    return tuple(_stack([element[i] for element in elements], dtype) for i, dtype in enumerate(types))


def _stack(rows: list[Any], dtype: DType) -> Any:
    shape = rows[0].shape
    if len(rows) <= _AT_ONCE:
        return _stack_at_once(rows, shape, dtype)
    batch = np.empty((len(rows), *shape), dtype.np)
    for start in range(0, len(rows), _AT_ONCE):
        if start:
            let_others_run()
        part = batch[start : start + _AT_ONCE]
        if shape:
            np.concatenate(rows[start : start + _AT_ONCE], out=part.reshape(len(part) * shape[0], *shape[1:]))
        else:
            part[:] = _stack_at_once(rows[start : start + _AT_ONCE], shape, dtype)
    return batch


def _stack_at_once(rows: list[Any], shape: tuple[int, ...], dtype: DType) -> Any:
    if shape:
        return np.concatenate(rows).reshape(len(rows), *shape)
    batch = np.empty(len(rows), dtype.np)
    batch[:] = [row.item() for row in rows] if dtype.np.hasobject else rows
    return batch


def join_padded(
    elements: Sequence[Element], types: Sequence[DType], shapes: Sequence[PartialTensorShape], zeros: Zeros | None
) -> Element:
    """A batch in which each element is padded to the largest size in every dimension that its shape leaves open."""
    make = zeros or (lambda position, shape: _zeros(types[position], shape))
    batch = []
    for position, dtype in enumerate(types):
        rows = [element[position] for element in elements]
        sizes = {row.shape for row in rows}
        if len(sizes) == 1:
            batch.append(_stack(rows, dtype))
            continue
        padded = make(position, (len(rows), *map(max, zip(*sizes, strict=True))))
        for index, row in enumerate(rows):
            padded[(index, *map(slice, row.shape))] = row
        batch.append(padded)
    return tuple(batch)


def empty_batch(types: Sequence[DType], shapes: Sequence[Iterable[int | None]]) -> Element:
    """A batch without elements; open dimensions are 0.  Raises ResourceExhaustedError if NumPy has no such shape."""
    return tuple(_zeros(dtype, [0, *(size or 0 for size in shape)]) for dtype, shape in zip(types, shapes, strict=True))


def _zeros(dtype: DType, shape: Sequence[int]) -> Any:
    try:
        return zeros_of_type(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise errors.ResourceExhaustedError(
            f"OOM when allocating a batch with shape{shape_text(shape)} and type {dtype}"
        ) from error


def join_ns(elements: Sequence[Element]) -> float:
    """Estimated nanoseconds to join the elements: calls per element and component, and copied bytes, from a sample."""
    sample = elements[:: max(1, len(elements) // _SAMPLE)]
    return len(elements) * max((sum(map(_row_ns, element)) for element in sample), default=0.0)


def _row_ns(row: Any) -> float:
    strings = row.size if row.dtype.hasobject else 0
    return float(JOIN_NS + COPY_NS * row.nbytes + OBJECT_NS * strings)
