"""Valid calls with large inputs, for tests of the time and memory that a call takes per element.

A small call, recorded or drawn (`extreme_calls.py`), is enlarged in several ways: scalars become vectors; all axes of
one length, which mostly belong together, or only the first ones grow; row splits and the indices of sparse tensors keep
their values; or a number among the inputs, which may be a size, grows.  The kernel refuses combinations that do not fit
together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from math import isqrt, prod
from typing import Any

import numpy as np

from tests.support.programs.extreme_calls import Call, recorded

__all__ = ["enlarged_calls"]

# Number of small calls to try per op, and of draws that the shape function may refuse.
_CALLS, _DRAWS = 4, 60
# Number of axis lengths to try.
_LENGTHS = 5
# An input with at most this many numbers may hold sizes.
_FEW = 8


def enlarged_calls(op: str, elements: int) -> Iterator[Call]:
    """Iterate over calls whose largest input, or a number, is about `elements`."""
    for call in islice(_small_calls(op), _CALLS):
        yield from _of_scalars(call, elements)
        yield from _grown(call, elements)
        yield from _of_many_rows(call, elements)
        yield from _of_large_numbers(call, elements)


def _small_calls(op: str) -> Iterator[Call]:
    for good in recorded().get(op, ()):
        call = Call(random.Random(op), op, plain=True)
        call.repeat(good)
        yield call
    for seed in range(_DRAWS):
        call = Call(random.Random(f"{op} {seed}"), op, plain=True)
        call.draw()
        if call.is_accepted():
            yield call


def _arrays(call: Call) -> dict[int, Any]:
    """Return the fed inputs by position."""
    return {i: x for i, x in enumerate(call.inputs) if not isinstance(x, tuple)}


def _of_scalars(call: Call, elements: int) -> Iterator[Call]:
    """Turn scalars into vectors, if the call has only scalars."""
    arrays = _arrays(call)
    if arrays and not any(x.ndim for x in arrays.values()):
        yield call.changed({i: np.full(elements, x) for i, x in arrays.items()})


def _grown(call: Call, elements: int) -> Iterator[Call]:
    lengths = dict.fromkeys(n for x in _arrays(call).values() for n in x.shape if n)
    seen = set()
    for length in islice(lengths, _LENGTHS):
        for first_only in (True, False):
            inputs = _with_longer_axes(call, length, elements, first_only)
            shapes = tuple(sorted((i, x.shape) for i, x in inputs.items()))
            if inputs and shapes not in seen:
                seen.add(shapes)
                yield call.changed(inputs)


def _with_longer_axes(call: Call, old: int, elements: int, first_only: bool) -> dict[int, Any]:
    """Return the inputs that have an axis of length `old`, with a longer one."""
    axes = {
        i: x.shape.index(old)
        for i, x in _arrays(call).items()
        if old in x.shape and x.size and (x.shape.index(old) == 0 or not first_only)
    }
    if not axes:
        return {}
    new = max(old, elements * old // max(call.inputs[i].size for i in axes))
    inputs: dict[int, Any] = {}
    for i, axis in axes.items():
        shapes = {} if axis else _shapes_of(call, i)
        if shapes:
            dims = [new, *next(iter(shapes.values())).tolist()[1:]]
            if min(dims) > 0:
                places = np.unravel_index(np.arange(new), dims)
                inputs[i] = np.stack(places, axis=1).astype(call.inputs[i].dtype)
                inputs |= {j: np.array(dims, shape.dtype) for j, shape in shapes.items()}
        else:
            inputs[i] = np.take(call.inputs[i], _places(call.inputs[i], axis, new), axis)
    return inputs


def _shapes_of(call: Call, position: int) -> dict[int, Any]:
    """If an input is the indices of a sparse tensor, return its dense shape and all equal inputs, by position."""
    names, indices = call.input_names(), call.inputs[position]
    if indices.ndim != 2 or "indices" not in names[position]:
        return {}
    shapes = {
        i: x
        for i, x in _arrays(call).items()
        if "shape" in names[i] and x.ndim == 1 and x.size == indices.shape[1] and x.dtype.kind in "iu"
    }
    own = next((shape for i, shape in shapes.items() if i > position), None)
    return {} if own is None else {i: x for i, x in shapes.items() if np.array_equal(x, own)}


def _places(values: Any, axis: int, count: int) -> Any:
    """Return which element goes where along an axis; ascending values stay ascending."""
    old = values.shape[axis]
    if values.ndim == 1 and old > 1 and values.dtype.kind in "iu" and (values[1:] >= values[:-1]).all():
        return np.arange(count) * old // count
    return np.arange(count) % old


def _of_many_rows(call: Call, elements: int) -> Iterator[Call]:
    """Enlarge row splits so that each row has one value."""
    names = call.input_names()
    splits = {i: x for i, x in _arrays(call).items() if "splits" in names[i] and x.ndim == 1 and x.dtype.kind in "iu"}
    if splits:
        inputs = {i: np.arange(elements, dtype=x.dtype) for i, x in splits.items()}
        for i, x in _arrays(call).items():
            if i not in splits and x.ndim and x.size:
                inputs[i] = np.take(x, np.arange(elements - 1) % len(x), 0)
        yield call.changed(inputs)


def _of_large_numbers(call: Call, elements: int) -> Iterator[Call]:
    for i, x in _arrays(call).items():
        if x.dtype.kind in "iu" and x.dtype.itemsize >= 4 and x.ndim <= 1 and 0 < x.size <= _FEW:
            first = np.array(x)
            first.flat[0] = elements // max(1, prod(x.reshape(-1)[1:].tolist()))
            yield call.changed({i: first})
            yield call.changed({i: np.full_like(x, isqrt(elements))})
