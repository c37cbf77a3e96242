"""Every kernel that moves elements about, against NumPy or a loop over elements, on shapes with zeros and ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from tests.kernels.harness import ops_of, run_op
from tests.support.sweep import (
    SEEDS,
    SHAPES,
    Check,
    Draw,
    assert_close,
    broadcasting,
    random_values,
    rounded,
    sweeps,
    types_of,
    wide,
)

# (inputs, what comes out, attrs); a case that the kernel must refuse has a message, in place of what comes out.
Case = tuple[list[Any], Any, dict[str, Any]]

ELEMENTS = [np.dtype(t) for t in "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 O".split()]
ELEMENTS.append(np.dtype(ml_dtypes.bfloat16))
INDEX = st.sampled_from([np.int32, np.int64])
AXES = st.integers(-6, 5)
SMALL = st.integers(0, 3)


def moves(make: Callable[[Draw, Any], Case], attr: str = "T", kinds: str = "biufcO") -> Check:
    """A check of an op that gives exactly what the case made by `make`, of a draw and an element type, says."""

    def check(op: str, draw: Draw) -> None:
        types = types_of(op, attr, kinds) or [t for t in ELEMENTS if t.kind in kinds]
        inputs, want, attrs = make(draw, draw(st.sampled_from(types)))
        if isinstance(want, Refused):
            with pytest.raises(errors.InvalidArgumentError):
                run_op(op, inputs, **attrs)
            return
        got = run_op(op, inputs, **attrs)
        if isinstance(want, tuple):
            several = got if isinstance(got, tuple) else () if got is None else (got,)
            for one, other in zip(several, want, strict=True):
                assert_close(one, other, tolerance=0)
        else:
            assert_close(got, want, tolerance=0)

    return check


class Refused:
    """What a case says that the kernel must refuse."""


def drawn(draw: Draw, dtype: Any, shape: Any = None, low: float = -4, high: float = 4, *, corners: bool = True) -> Any:
    return random_values(draw(SEEDS), draw(SHAPES) if shape is None else shape, dtype, low, high, corners=corners)


def _in_range(axis: int, rank: int) -> bool:
    return -rank <= axis < rank


# Passing on


def _same(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    return [x], x, {}


def _same_many(draw: Draw, dtype: Any) -> Case:
    parts = [drawn(draw, draw(st.sampled_from(ELEMENTS))) for _ in range(draw(st.integers(1, 3)))]
    return [parts], tuple(parts), {}


def _finite(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    return [x], x if np.isfinite(x.astype(np.float64)).all() else Refused(), {"message": "here"}


def _ensured(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    hidden = tuple(-1 if draw(st.booleans()) else size for size in x.shape)
    wanted = draw(st.sampled_from([hidden, (*hidden, 1), tuple(size + 1 for size in x.shape)]))
    fits = len(wanted) == x.ndim and all(w in (-1, size) for w, size in zip(wanted, x.shape, strict=True))
    return [x], x if fits else Refused(), {"shape": wanted}


def _copied(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    return [x], x, {"shape": x.shape}


# Shapes


def _shape_of(draw: Draw, dtype: Any) -> Case:
    x, out = drawn(draw, dtype), draw(INDEX)
    return [x], np.array(x.shape, out), {"out_type": dtypes.from_numpy(np.dtype(out))}


def _shapes_of(draw: Draw, dtype: Any) -> Case:
    parts, out = [drawn(draw, dtype) for _ in range(draw(st.integers(1, 3)))], draw(INDEX)
    return [parts], tuple(np.array(x.shape, out) for x in parts), {"out_type": dtypes.from_numpy(np.dtype(out))}


def _size_of(draw: Draw, dtype: Any) -> Case:
    x, out = drawn(draw, dtype), draw(INDEX)
    return [x], np.array(math.prod(x.shape), out), {"out_type": dtypes.from_numpy(np.dtype(out))}


def _rank_of(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    return [x], np.array(len(x.shape), np.int32), {}


def _reshaped(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    sizes = list(draw(st.permutations(x.shape)))
    if sizes and draw(st.booleans()):
        sizes[draw(st.integers(0, len(sizes) - 1))] = -1
    if draw(st.integers(0, 5)) == 0:
        sizes.append(2)
    sizes.insert(0, 1)
    given_sizes, fits = np.array(sizes, draw(INDEX)), True
    if -1 in sizes:
        # Zeros on both sides cancel out, so that there is a size to be told.
        cancels = 0 in sizes and not x.size
        whole = math.prod(size for size in x.shape if size or not cancels)
        known = math.prod(size for size in sizes if size > 0 or (size == 0 and not cancels))
        fits = known > 0 and (cancels or whole % known == 0)
        sizes[sizes.index(-1)] = whole // max(known, 1)
    fits = fits and math.prod(sizes) == x.size
    return [x, given_sizes], _loop_reshape(x, sizes) if fits else Refused(), {}


def _loop_reshape(x: Any, sizes: list[int]) -> Any:
    out = np.empty(sizes, x.dtype)
    for place, value in zip(np.ndindex(out.shape), x.ravel(), strict=True):
        out[place] = value
    return out


def _expanded(draw: Draw, dtype: Any) -> Case:
    x, axis = drawn(draw, dtype), draw(AXES)
    fits = _in_range(axis, x.ndim + 1)
    return [x, np.array(axis, draw(INDEX))], np.expand_dims(x, axis) if fits else Refused(), {}


def _squeezed(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    axes = draw(st.lists(AXES, max_size=2))
    if any(not _in_range(axis, x.ndim) or x.shape[axis] != 1 for axis in axes):
        return [x], Refused(), {"squeeze_dims": axes}
    gone = {axis % x.ndim for axis in axes} or {d for d in range(x.ndim) if x.shape[d] == 1}
    left = [size for d, size in enumerate(x.shape) if d not in gone]
    return [x], x.reshape(left), {"squeeze_dims": axes}


def _transposed(conjugate: bool = False) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        x = drawn(draw, dtype)
        order = list(draw(st.permutations(range(x.ndim))))
        if x.ndim > 1 and draw(st.integers(0, 5)) == 0:
            order[0] = order[1]
        perm = np.array(order, draw(INDEX))
        if len(set(order)) < x.ndim:
            return [x, perm], Refused(), {}
        want = x.transpose(order)
        return [x, perm], want.conj() if conjugate and dtype.kind == "c" else want, {}

    return make


# Joining and splitting


def _pieces(draw: Draw, dtype: Any, *, wrong: bool = True) -> tuple[list[Any], int, bool]:
    shape, count = draw(st.lists(SMALL, min_size=1, max_size=4)), draw(st.integers(1, 4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(count):
        shape[axis] = draw(SMALL)
        parts.append(drawn(draw, dtype, tuple(shape)))
    fits = not (wrong and draw(st.integers(0, 7)) == 0)
    if not fits:
        axis = draw(st.sampled_from([len(shape), -len(shape) - 1]))
    return parts, axis, fits


def _concatenated(axis_first: bool) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        parts, axis, fits = _pieces(draw, dtype)
        if len(parts) < 2:
            parts = parts * 2
        where = np.array(axis, np.int32 if axis_first else draw(INDEX))
        inputs = [where, parts] if axis_first else [parts, where]
        return inputs, np.concatenate(parts, axis) if fits else Refused(), {}

    return make


def _offsets(draw: Draw, dtype: Any) -> Case:
    parts, axis, fits = _pieces(draw, np.dtype(np.int8))
    parts = parts * 2
    shapes = [np.array(part.shape, dtype) for part in parts]
    if not fits:
        return [np.int32(axis), shapes], Refused(), {}
    want, start = [], 0
    for part in parts:
        offset = np.zeros(part.ndim, dtype)
        offset[axis] = start
        start += part.shape[axis]
        want.append(offset)
    return [np.int32(axis), shapes], tuple(want), {}


def _packed(draw: Draw, dtype: Any) -> Case:
    shape, axis = draw(SHAPES), draw(AXES)
    parts = [drawn(draw, dtype, shape) for _ in range(draw(st.integers(1, 3)))]
    fits = _in_range(axis, len(shape) + 1)
    return [parts], np.stack(parts, axis) if fits else Refused(), {"axis": axis}


def _packed_in_parallel(draw: Draw, dtype: Any) -> Case:
    shape = (1, *draw(SHAPES)[:4])
    parts = [drawn(draw, dtype, shape) for _ in range(draw(st.integers(1, 3)))]
    return [parts], np.concatenate(parts), {"shape": (len(parts), *shape[1:])}


def _unpacked(draw: Draw, dtype: Any) -> Case:
    x, axis = drawn(draw, dtype, tuple(draw(st.lists(SMALL, min_size=1, max_size=4)))), draw(AXES)
    if not _in_range(axis, x.ndim):
        return [x], Refused(), {"axis": axis, "num": 1}
    rows = np.moveaxis(x, axis, 0)
    return [x], tuple(rows[i, ...] for i in range(len(rows))), {"axis": axis, "num": x.shape[axis]}


def _split(draw: Draw, dtype: Any) -> Case:
    count, shape = draw(st.integers(1, 3)), draw(st.lists(SMALL, min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = count * draw(st.integers(0, 2)) + draw(st.sampled_from([0, 0, 0, 1]))
    x, attrs = drawn(draw, dtype, tuple(shape)), {"num_split": count}
    fits = shape[axis] % count == 0
    return [np.int32(axis), x], tuple(np.split(x, count, axis)) if fits else Refused(), attrs


def _split_in_sizes(draw: Draw, dtype: Any) -> Case:
    sizes, shape = draw(st.lists(SMALL, min_size=1, max_size=4)), draw(st.lists(SMALL, min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = sum(sizes)
    x = drawn(draw, dtype, tuple(shape))
    want = tuple(np.split(x, np.cumsum(sizes)[:-1], axis))
    if draw(st.booleans()):
        sizes[draw(st.integers(0, len(sizes) - 1))] = -1
        if len(sizes) == 1:
            want = Refused()  # a single size has to be told
    elif draw(st.integers(0, 5)) == 0:
        sizes[0], want = sizes[0] + 1, Refused()
    return [x, np.array(sizes, draw(INDEX)), np.int32(axis)], want, {"num_split": len(sizes)}


# Filling


def _filled(draw: Draw, dtype: Any) -> Case:
    shape, value = draw(SHAPES), drawn(draw, dtype, ())
    want = np.empty(shape, dtype)
    want[...] = value
    return [np.array(shape, draw(INDEX)), value], want, {}


def _broadcast_to(draw: Draw, dtype: Any) -> Case:
    shapes = draw(broadcasting(2))
    whole = np.broadcast_shapes(*shapes)
    x = drawn(draw, dtype, shapes[0])
    wanted = draw(st.sampled_from([whole, whole, (*whole, 4), whole[1:]]))
    try:
        want = np.broadcast_to(x, wanted)
    except ValueError:
        want = Refused()
    return [x, np.array(wanted, draw(INDEX))], want, {}


def _broadcast_args(draw: Draw, dtype: Any) -> Case:
    shapes = draw(broadcasting(2))
    return [np.array(s, dtype) for s in shapes], np.array(np.broadcast_shapes(*shapes), dtype), {}


def _broadcast_gradient_args(draw: Draw, dtype: Any) -> Case:
    shapes = draw(broadcasting(2))
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    both = list(zip(*padded, strict=True))
    # Where both have one element, nothing is lost by summing; equal shapes are not summed at all.
    want = [[d for d in range(rank) if both[d][k] == 1 and shapes[0] != shapes[1]] for k in range(2)]
    return [np.array(s, dtype) for s in shapes], tuple(np.array(axes, dtype) for axes in want), {}


def _one_hot(draw: Draw, dtype: Any) -> Case:
    indices = drawn(draw, draw(st.sampled_from([np.uint8, np.int32, np.int64])), draw(SHAPES)[:4], -1, 4, corners=False)
    depth, axis = draw(SMALL), draw(st.integers(-1, indices.ndim))
    on, off = drawn(draw, dtype, ()), drawn(draw, dtype, ())
    want = np.empty((*indices.shape, depth), dtype)
    for place in np.ndindex(want.shape):
        want[place] = on[()] if indices[place[:-1]] == place[-1] else off[()]
    return [indices, np.int32(depth), on, off], np.moveaxis(want, -1, axis), {"axis": axis}


def _constant(value: int) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        x = drawn(draw, dtype)
        want = np.empty(x.shape, dtype)
        want[...] = (b"" if value == 0 else b"1") if dtype.kind == "O" else value
        return [x], want, {}

    return make


def _tiled(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype, draw(SHAPES)[:4])
    times = [draw(SMALL) for _ in range(x.ndim)]
    want = x
    for axis, count in enumerate(times):
        want = np.concatenate([want] * count, axis) if count else np.take(want, [], axis)
    return [x, np.array(times, draw(INDEX))], want, {}


def _tile_grad(draw: Draw, dtype: Any) -> Case:
    shape = draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))
    times = [draw(st.integers(1, 3)) for _ in shape]
    x = drawn(draw, dtype, tuple(s * t for s, t in zip(shape, times, strict=True)), -2, 2, corners=False)
    want = np.zeros(shape, wide(x).dtype)
    for place in np.ndindex(x.shape):
        want[tuple(p % s for p, s in zip(place, shape, strict=True))] += wide(x)[place]
    return [x, np.int32(times)], rounded(want, dtype), {}


# Picking and scattering


def _gathered(draw: Draw, dtype: Any) -> Case:
    params = drawn(draw, dtype, tuple(draw(st.lists(SMALL, min_size=1, max_size=4))))
    indices = drawn(draw, draw(INDEX), draw(SHAPES)[:3], 0, 3, corners=False)
    want: Any = np.empty((*indices.shape, *params.shape[1:]), dtype)
    # Where nothing is picked nobody looks at the indices.
    if want.size:
        want = _take(params, indices, 0) if (indices < params.shape[0]).all() else Refused()
    return [params, indices], want, {}


def _take(params: Any, indices: Any, axis: int) -> Any:
    before, after = params.shape[:axis], params.shape[axis + 1 :]
    out = np.empty((*before, *indices.shape, *after), params.dtype)
    for b in np.ndindex(before):
        for i in np.ndindex(indices.shape):
            out[(*b, *i)] = params[(*b, int(indices[i]))]
    return out


def _gathered_along(draw: Draw, dtype: Any) -> Case:
    params = drawn(draw, dtype, tuple(draw(st.lists(SMALL, min_size=1, max_size=4))))
    batch = draw(st.integers(0, params.ndim - 1))
    axis = draw(st.integers(batch, params.ndim - 1))
    indices = drawn(draw, draw(INDEX), (*params.shape[:batch], *draw(SHAPES)[:2]), 0, 3, corners=False)
    where = axis - params.ndim * draw(st.integers(0, 1))
    inputs, attrs = [params, indices, np.array(where, draw(INDEX))], {"batch_dims": batch}
    middle = params.shape[batch:axis]
    out = np.empty((*params.shape[:axis], *indices.shape[batch:], *params.shape[axis + 1 :]), dtype)
    if not out.size:
        return inputs, out, attrs
    if (indices >= params.shape[axis]).any():
        return inputs, Refused(), attrs
    for b in np.ndindex(params.shape[:batch]):
        out[b] = _take(params[b], indices[b], len(middle))
    return inputs, out, attrs


def _gathered_nd(draw: Draw, dtype: Any) -> Case:
    params = drawn(draw, dtype, tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))))
    depth = draw(st.integers(0, params.ndim))
    indices = drawn(draw, draw(INDEX), (*draw(SHAPES)[:2], depth), 0, 2, corners=False)
    rows = indices.reshape(math.prod(indices.shape[:-1]), depth)
    if any(i >= size for row in rows.tolist() for i, size in zip(row, params.shape, strict=False)):
        return [params, indices], Refused(), {}
    want = np.empty((*indices.shape[:-1], *params.shape[depth:]), dtype)
    for place in np.ndindex(indices.shape[:-1]):
        want[place] = params[tuple(indices[place].tolist())]
    return [params, indices], want, {}


def _scattered(add: Callable[[Any, Any], Any], onto: bool = True) -> Callable[[Draw, Any], Case]:
    """Rows combined one after the other with what is there."""

    def make(draw: Draw, dtype: Any) -> Case:
        shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
        depth = draw(st.integers(1, len(shape)))
        outer = draw(st.lists(SMALL, min_size=1, max_size=2))
        indices = drawn(draw, draw(INDEX), (*outer, depth), 0, 2, corners=False)
        updates = drawn(draw, dtype, (*indices.shape[:-1], *shape[depth:]), -2, 2, corners=False)
        target = drawn(draw, dtype, shape, -2, 2, corners=False)
        rows = [tuple(indices[place].tolist()) for place in np.ndindex(indices.shape[:-1])]
        inputs = [target, indices, updates] if onto else [indices, updates, np.array(shape, indices.dtype)]
        if any(i >= size for row in rows for i, size in zip(row, shape, strict=False)):
            return inputs, Refused(), {}
        want = wide(target).copy() if onto else wide(np.zeros(shape, dtype))
        for place, row in zip(np.ndindex(indices.shape[:-1]), rows, strict=True):
            want[row] = add(want[row], wide(updates)[place])
        return inputs, rounded(want, dtype), {}

    return make


def _partitioned(draw: Draw, dtype: Any) -> Case:
    data = drawn(draw, dtype, draw(SHAPES)[:4])
    rank, count = draw(st.integers(0, data.ndim)), draw(st.integers(1, 4))
    places = drawn(draw, np.int32, data.shape[:rank], 0, 3, corners=False)
    if (places >= count).any():
        return [data, places], Refused(), {"num_partitions": count}
    return [data, places], tuple(data[places == part] for part in range(count)), {"num_partitions": count}


def _stitched(draw: Draw, dtype: Any) -> Case:
    tail = draw(SHAPES)[:2]
    indices = [drawn(draw, np.int32, draw(SHAPES)[:2], 0, 4, corners=False) for _ in range(draw(st.integers(1, 3)))]
    # Places that nobody fills hold anything: let all be filled.
    indices.insert(0, np.arange(5, dtype=np.int32))
    data = [drawn(draw, dtype, (*i.shape, *tail)) for i in indices]
    want = np.empty((5, *tail), dtype)
    for places, values in zip(indices, data, strict=True):
        for place in np.ndindex(places.shape):
            want[places[place]] = values[place]
    return [indices, data], want, {}


def _stitched_in_parallel(draw: Draw, dtype: Any) -> Case:
    tail, order = draw(SHAPES)[:2], draw(st.permutations(range(6)))
    indices = [np.int32(order[:2]), np.int32(order[2:]).reshape(2, 2)]
    data = [drawn(draw, dtype, (*i.shape, *tail)) for i in indices]
    want = np.empty((6, *tail), dtype)
    for places, values in zip(indices, data, strict=True):
        want[places] = values
    return [indices, data], want, {}


# Padding, turning


def _paddings(draw: Draw, shape: tuple[int, ...], most: Callable[[int], int]) -> Any:
    sides = [[draw(st.integers(0, max(0, min(2, most(size))))) for _ in range(2)] for size in shape]
    return np.array(sides, draw(INDEX)).reshape(len(shape), 2)


def _padded(with_value: bool) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        x = drawn(draw, dtype, draw(SHAPES)[:4])
        paddings = _paddings(draw, x.shape, lambda size: 2)
        value = drawn(draw, dtype, ()) if with_value else np.zeros((), dtype)
        if dtype.kind == "O" and not with_value:
            value = np.array(b"", object)
        want = np.empty([size + sum(p) for size, p in zip(x.shape, paddings.tolist(), strict=True)], dtype)
        want[...] = value
        want[(*[slice(p, p + size) for size, (p, _) in zip(x.shape, paddings.tolist(), strict=True)], ...)] = x
        return [x, paddings, *([value] if with_value else [])], want, {}

    return make


def _mirrored(draw: Draw, dtype: Any) -> Case:
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    x = drawn(draw, dtype, draw(SHAPES)[:4])
    paddings = _paddings(draw, x.shape, lambda size: size - (mode == "REFLECT"))
    want = np.pad(x, paddings.tolist(), mode.lower()) if x.ndim else x
    if x.ndim and draw(st.integers(0, 5)) == 0:
        paddings[0, 0], want = x.shape[0] + 1, Refused()
    # Nothing has no reflection, not even one of no elements.
    if mode == "REFLECT" and 0 in x.shape:
        want = Refused()
    return [x, paddings], want, {"mode": mode}


def _mirrored_gradient(draw: Draw, dtype: Any) -> Case:
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    paddings = _paddings(draw, shape, lambda size: size - (mode == "REFLECT"))
    places = np.pad(np.arange(math.prod(shape)).reshape(shape), paddings.tolist(), mode.lower())
    grad = drawn(draw, dtype, places.shape, -2, 2, corners=False)
    want = np.zeros(math.prod(shape), wide(grad).dtype)
    for place in np.ndindex(grad.shape):
        want[places[place]] += wide(grad)[place]
    return [grad, paddings], rounded(want.reshape(shape), dtype), {"mode": mode}


def _reversed_where(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    turned = np.array([draw(st.booleans()) for _ in x.shape], bool)
    return [x, turned], np.flip(x, tuple(np.flatnonzero(turned))) if x.ndim else x, {}


def _reversed_along(draw: Draw, dtype: Any) -> Case:
    x, axes = drawn(draw, dtype), draw(st.lists(st.integers(-5, 4), max_size=3))
    if not x.ndim:
        return [x, np.array(axes, draw(INDEX))], x, {}  # whatever the axes are
    fits = all(_in_range(a, x.ndim) for a in axes) and len({a % x.ndim for a in axes}) == len(axes)
    return [x, np.array(axes, draw(INDEX))], np.flip(x, tuple(axes)) if fits else Refused(), {}


def _reversed_sequences(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype, tuple(draw(st.lists(SMALL, min_size=2, max_size=4))))
    sequence, batch = draw(st.permutations(range(x.ndim)))[:2]
    lengths = drawn(draw, draw(INDEX), (x.shape[batch],), 0, 3, corners=False)
    attrs = {"seq_dim": sequence, "batch_dim": batch}
    if (lengths > x.shape[sequence]).any():
        return [x, lengths], Refused(), attrs
    want = x.copy()
    for place in np.ndindex(x.shape):
        length = int(lengths[place[batch]])
        if place[sequence] < length:
            source = list(place)
            source[sequence] = length - 1 - place[sequence]
            want[place] = x[tuple(source)]
    return [x, lengths], want, attrs


def _rolled(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype, tuple(draw(st.lists(SMALL, min_size=1, max_size=5))))
    axes = draw(st.lists(st.integers(-5, 4), min_size=1, max_size=3))
    shifts = [draw(st.integers(-7, 7)) for _ in axes]
    fits = all(_in_range(a, x.ndim) for a in axes)
    inputs = [x, np.array(shifts, draw(INDEX)), np.array(axes, draw(INDEX))]
    return inputs, np.roll(x, shifts, axes) if fits else Refused(), {}


# Slices


def _sliced(draw: Draw, dtype: Any) -> Case:
    x, index = drawn(draw, dtype), draw(INDEX)
    begin = [draw(st.integers(0, size)) for size in x.shape]
    size = [draw(st.integers(-1, length - b)) for length, b in zip(x.shape, begin, strict=True)]
    want = x[(*[slice(b, None if s < 0 else b + s) for b, s in zip(begin, size, strict=True)], ...)]
    if x.ndim and draw(st.integers(0, 7)) == 0:
        size[0], want = x.shape[0] + 1, Refused()
    return [x, np.array(begin, index), np.array(size, index)], want, {}


def _python_slice(draw: Draw, rank: int) -> tuple[tuple[Any, ...], list[list[int]], dict[str, int]]:
    """A Python index; begin, end and strides; and the masks that make of those what the index means."""
    index: list[Any] = []
    numbers: list[list[int]] = []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    used = 0
    for place in range(draw(st.integers(0, rank + 2))):
        begin, end = draw(st.integers(-4, 4)), draw(st.integers(-4, 4))
        stride = draw(st.sampled_from([-3, -2, -1, 1, 1, 2, 3]))
        kind = draw(st.sampled_from(["slice", "slice", "slice", "new", "ellipsis", "at"]))
        if kind == "ellipsis" and Ellipsis not in index:
            index.append(Ellipsis)
            masks["ellipsis_mask"] |= 1 << place
        elif kind == "new":
            index.append(None)
            masks["new_axis_mask"] |= 1 << place
        elif used == rank:
            break
        elif kind == "at":
            index.append(begin)
            masks["shrink_axis_mask"] |= 1 << place
            stride, used = 1, used + 1
        else:
            open_begin, open_end = draw(st.booleans()), draw(st.booleans())
            masks["begin_mask"] |= open_begin << place
            masks["end_mask"] |= open_end << place
            index.append(slice(None if open_begin else begin, None if open_end else end, stride))
            used += 1
        numbers.append([begin, end, stride])
    return tuple(index), numbers, masks


def _strided(draw: Draw, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], list[Any], dict[str, int]]:
    index, numbers, masks = _python_slice(draw, len(shape))
    return index, list(np.array(numbers, draw(INDEX)).reshape(-1, 3).T.copy()), masks


def _strided_slice(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype, draw(SHAPES)[:4])
    index, numbers, masks = _strided(draw, x.shape)
    try:
        want = np.asarray(x[index], dtype)
    except IndexError:
        want = Refused()
    return [x, *numbers], want, masks


def _strided_gradient(draw: Draw, dtype: Any) -> Case:
    shape = draw(SHAPES)[:4]
    index, numbers, masks = _strided(draw, shape)
    want: Any = np.full(shape, b"", object) if dtype.kind == "O" else np.zeros(shape, dtype)
    try:
        grad = drawn(draw, dtype, np.shape(want[index]))
    except IndexError:
        grad, want, index = np.zeros((), dtype), Refused(), ()
    if not isinstance(want, Refused):
        want[index] = grad[()]
    return [np.array(shape, numbers[0].dtype), *numbers, grad], want, masks


def _strided_update(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype, draw(SHAPES)[:4])
    index, numbers, masks = _strided(draw, x.shape)
    want = np.array(x)
    try:
        value = drawn(draw, dtype, np.shape(want[index]))
    except IndexError:
        return [x, *numbers, np.zeros((), dtype)], Refused(), masks
    want[index] = value[()]
    return [x, *numbers, value], want, masks


# Sets of values, and where


def _unique(counts: bool) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        x, out = drawn(draw, dtype, (draw(st.integers(0, 9)),), 0, 3, corners=False), draw(INDEX)
        seen = list(dict.fromkeys(x.tolist()))
        places = np.array([seen.index(v) for v in x.tolist()], out)
        values = np.array(seen, dtype)
        totals = [np.array([x.tolist().count(v) for v in seen], out)] if counts else []
        return [x], (values, places, *totals), {"out_idx": dtypes.from_numpy(np.dtype(out))}

    return make


def _unique_along(counts: bool) -> Callable[[Draw, Any], Case]:
    def make(draw: Draw, dtype: Any) -> Case:
        shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        x, out = drawn(draw, dtype, tuple(shape), 0, 1, corners=False), draw(INDEX)
        axis = draw(st.integers(-x.ndim, x.ndim - 1))
        rows = [str(np.take(x, [i], axis).tolist()) for i in range(x.shape[axis])]
        seen = list(dict.fromkeys(rows))
        places = np.array([seen.index(row) for row in rows], out)
        values = np.take(x, [rows.index(row) for row in seen], axis)
        totals = [np.array([rows.count(row) for row in seen], out)] if counts else []
        attrs = {"out_idx": dtypes.from_numpy(np.dtype(out))}
        return [x, np.array([axis], draw(INDEX))], (values, places, *totals), attrs

    return make


def _difference(draw: Draw, dtype: Any) -> Case:
    x, y = (drawn(draw, dtype, (draw(st.integers(0, 6)),), 0, 3, corners=False) for _ in range(2))
    out = draw(INDEX)
    kept = [i for i, v in enumerate(x.tolist()) if v not in y.tolist()]
    return [x, y], (x[kept], np.array(kept, out)), {"out_idx": dtypes.from_numpy(np.dtype(out))}


def _inverted(draw: Draw, dtype: Any) -> Case:
    order = list(draw(st.permutations(range(draw(st.integers(0, 6))))))
    if len(order) > 1 and draw(st.integers(0, 3)) == 0:
        order[0] = draw(st.sampled_from([order[1], len(order), -1]))
    fits = sorted(order) == list(range(len(order)))
    return [np.array(order, dtype)], np.argsort(np.array(order, dtype)).astype(dtype) if fits else Refused(), {}


def _unraveled(draw: Draw, dtype: Any) -> Case:
    dims = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    flat = drawn(draw, dtype, (draw(st.integers(1, 5)),), 0, 8, corners=False)
    want = Refused() if (flat >= math.prod(dims)).any() else np.array(np.unravel_index(flat, dims), dtype)
    return [flat, np.array(dims, dtype)], want, {}


def _where(draw: Draw, dtype: Any) -> Case:
    x = drawn(draw, dtype)
    if not x.ndim:
        return [x], Refused(), {}
    found = [place for place in np.ndindex(x.shape) if x[place] != 0]
    return [x], np.array(found, np.int64).reshape(len(found), x.ndim), {}


# Sequences of numbers


def _range(draw: Draw, dtype: Any) -> Case:
    start, limit = draw(st.integers(-5, 5)), draw(st.integers(-5, 5))
    step = draw(st.sampled_from([-3, -2, -1, 0, 1, 2, 3]))
    if np.dtype(dtype).kind == "u":
        start, limit, step = abs(start), abs(limit), abs(step)
    inputs = [np.array(v, dtype) for v in (start, limit, step)]
    if step == 0 or ((step > 0) != (limit > start) and limit != start):
        return inputs, Refused(), {}
    return inputs, np.array(list(itertools.chain(range(start, limit, step))), dtype), {}


def _evenly_spaced(draw: Draw, dtype: Any) -> Case:
    start, stop, count = draw(st.integers(-4, 4)), draw(st.integers(-4, 4)), draw(st.sampled_from([1, 2, 3, 5, 9]))
    # Powers of two between, so that no step is rounded.
    want = [start] if count == 1 else [start + (stop - start) * i / (count - 1) for i in range(count)]
    return (
        [np.array(start, dtype), np.array(stop, dtype), np.array(count, draw(INDEX))],
        np.array(want).astype(dtype),
        {},
    )


PASSING = [
    "DebugGradientIdentity",
    "DeepCopy",
    "GuaranteeConst",
    "Identity",
    "PreventGradient",
    "Snapshot",
    "StopGradient",
]

TABLE: dict[str, Check] = {
    **dict.fromkeys(PASSING, moves(_same)),
    "BroadcastArgs": moves(_broadcast_args),
    "BroadcastGradientArgs": moves(_broadcast_gradient_args),
    "BroadcastTo": moves(_broadcast_to),
    "CheckNumerics": moves(_finite, kinds="f"),
    "CheckNumericsV2": moves(_finite, kinds="f"),
    "Concat": moves(_concatenated(axis_first=True)),
    "ConcatOffset": moves(_offsets, "shape_type"),
    "ConcatV2": moves(_concatenated(axis_first=False)),
    "ConjugateTranspose": moves(_transposed(conjugate=True)),
    "DynamicPartition": moves(_partitioned),
    "DynamicStitch": moves(_stitched),
    "EnsureShape": moves(_ensured),
    "ExpandDims": moves(_expanded),
    "Fill": moves(_filled),
    "Gather": moves(_gathered, "Tparams"),
    "GatherNd": moves(_gathered_nd, "Tparams"),
    "GatherV2": moves(_gathered_along, "Tparams"),
    "IdentityN": moves(_same_many),
    "InvertPermutation": moves(_inverted),
    "LinSpace": moves(_evenly_spaced),
    "ListDiff": moves(_difference),
    "MirrorPad": moves(_mirrored),
    "MirrorPadGrad": moves(_mirrored_gradient, kinds="iufc"),
    "OneHot": moves(_one_hot),
    "OnesLike": moves(_constant(1)),
    "Pack": moves(_packed),
    "Pad": moves(_padded(with_value=False)),
    "PadV2": moves(_padded(with_value=True)),
    "ParallelConcat": moves(_packed_in_parallel),
    "ParallelDynamicStitch": moves(_stitched_in_parallel),
    "PlaceholderWithDefault": moves(_copied, "dtype"),
    "Range": moves(_range, "Tidx"),
    "Rank": moves(_rank_of),
    "Reshape": moves(_reshaped),
    "Reverse": moves(_reversed_where),
    "ReverseSequence": moves(_reversed_sequences),
    "ReverseV2": moves(_reversed_along),
    "Roll": moves(_rolled),
    "ScatterNd": moves(_scattered(lambda a, b: a + b, onto=False), kinds="iufc"),
    "ScatterNdNonAliasingAdd": moves(_scattered(lambda a, b: a + b), kinds="iufc"),
    "Shape": moves(_shape_of),
    "ShapeN": moves(_shapes_of),
    "Size": moves(_size_of),
    "Slice": moves(_sliced),
    "Split": moves(_split),
    "SplitV": moves(_split_in_sizes),
    "Squeeze": moves(_squeezed),
    "StridedSlice": moves(_strided_slice),
    "StridedSliceGrad": moves(_strided_gradient),
    "TensorScatterAdd": moves(_scattered(lambda a, b: a + b), kinds="iufc"),
    "TensorScatterMax": moves(_scattered(np.maximum), kinds="iuf"),
    "TensorScatterMin": moves(_scattered(np.minimum), kinds="iuf"),
    "TensorScatterSub": moves(_scattered(lambda a, b: a - b), kinds="iufc"),
    "TensorScatterUpdate": moves(_scattered(lambda a, b: b)),
    "TensorStridedSliceUpdate": moves(_strided_update),
    "Tile": moves(_tiled),
    "TileGrad": moves(_tile_grad, kinds="iufc"),
    "Transpose": moves(_transposed()),
    "Unique": moves(_unique(counts=False)),
    "UniqueV2": moves(_unique_along(counts=False)),
    "UniqueWithCounts": moves(_unique(counts=True)),
    "UniqueWithCountsV2": moves(_unique_along(counts=True)),
    "Unpack": moves(_unpacked),
    "UnravelIndex": moves(_unraveled, "Tidx"),
    "Where": moves(_where, kinds="biufc"),
    "ZerosLike": moves(_constant(0)),
}

NOT_SWEPT = {
    "Const": "an attr, no computation",
    "Copy": "Identity for debuggers",
    "CopyHost": "Identity for debuggers",
    "Empty": "its values are not defined",
    "HostConst": "Const on another device",
    "Placeholder": "refuses to run",
    "PlaceholderV2": "refuses to run",
    "RefIdentity": "passes a cell on",
}


def test_every_array_op_is_swept():
    modules = (
        "array.array_ops",
        "array.concat_ops",
        "array.fill_ops",
        "array.gather_scatter_ops",
        "array.pad_ops",
        "array.reverse_ops",
        "array.slice_ops",
    )
    assert sorted({*TABLE, *NOT_SWEPT}) == sorted([*ops_of(*modules, "array.unique_ops"), "LinSpace", "Range"])


test_sweep, test_long_sweep = sweeps(TABLE, examples=20)
