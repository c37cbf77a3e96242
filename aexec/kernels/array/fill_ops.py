"""Kernels whose output is larger than their input: Fill, OneHot, Tile, BroadcastTo, and their inverses.

Their time grows with the output.  So each computes its cost from the values of its inputs, and makes its output with an
`allocation.allocator`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import MAX_RANK, check_max_rank, elements_asked_for, shape_text
from aexec.framework.wire import variant
from aexec.framework.zeros import fill_objects, zeros_of_type
from aexec.kernels.common.allocation import allocator, explain_with
from aexec.kernels.common.array_module import chooser
from aexec.kernels.common.registration import INDEX, on_host

# Nanoseconds that one element of the output takes to write.
_WRITE = 0.3

_PLAIN = (*dtypes.NUMBER, dtypes.bool_)
_FILL_TYPES = (*dtypes.ALL, *dtypes.QUANTIZED, dtypes.int4, dtypes.uint4)


def _size_cost(dims: Any, *_: Any) -> Any:
    return elements_asked_for(dims) * _WRITE


# ---- Fill and its like


def _fill(c: OpKernelConstruction) -> Compute:
    allocate, of_objects = allocator(c), c.output_types[0].base.np.hasobject

    def check(dims: Any, value: Any) -> None:
        if dims.ndim > 1:
            raise errors.InvalidArgumentError(f"dims must represent a vector, got shape {shape_text(dims.shape)}")
        if value.size != 1 or value.ndim > 1:
            raise errors.InvalidArgumentError(f"value must represent a scalar, got shape {shape_text(value.shape)}")

    c.explain = explain_with(check)

    def compute(dims: Any, value: Any) -> Any:
        # Graphs of old producers pass a vector of one element for the scalar, and a scalar for such a vector.
        if value.ndim:
            check(dims, value)
            value = value.reshape(())
        if dims.ndim > 1 or dims.size > MAX_RANK:  # a matrix without columns may have a billion rows
            check(dims, value)
            check_max_rank(dims.size)
        out = allocate(dims.tolist())
        if of_objects:
            fill_objects(out, value)
        else:
            out[...] = value
        return out

    return compute


kernel("Fill", host_memory=("dims",), cost=_size_cost, T=_FILL_TYPES, index_type=INDEX)(_fill)
kernel(
    "Fill",
    device="DEFAULT",
    host_memory=("dims", "value", "output"),
    cost=_size_cost,
    T=[dtypes.int32],
    index_type=[dtypes.int32],
)(on_host(_fill))


def _zeros_like(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("T")
    if dtype is dtypes.variant:
        return _zero_variants
    if dtype is dtypes.string:
        return lambda x: zeros_of_type(x.shape, dtypes.string)
    zeros, numpy_dtype = c.xp.zeros, dtype.np
    return lambda x: zeros(x.shape, numpy_dtype)


def _zero_variants(x: Any) -> Any:
    return np.fromiter(map(variant.zeros_like, x.ravel().tolist()), object, x.size).reshape(x.shape)


def _ones_like(c: OpKernelConstruction) -> Compute:
    empty, numpy_dtype = c.xp.empty, c.attr("T").np

    def compute(x: Any) -> Any:
        out = empty(x.shape, numpy_dtype)
        out.fill(1)
        return out

    return compute


kernel("ZerosLike", cost=_WRITE, T=[t for t in dtypes.ALL if t is not dtypes.resource])(_zeros_like)
kernel("ZerosLike", device="DEFAULT", host_memory=("y",), cost=_WRITE, T=[dtypes.int32])(on_host(_zeros_like))
kernel("OnesLike", cost=_WRITE, T=_PLAIN)(_ones_like)
kernel("OnesLike", device="DEFAULT", host_memory=("y",), cost=_WRITE, T=[dtypes.int32])(on_host(_ones_like))


# ---- OneHot

# Up to this many elements of output, comparing every class with every index is faster.
_SMALL = 16384
# Indices whose positions are computed at a time; each needs about 60 bytes meanwhile.
_INDICES_AT_ONCE = 1 << 15


def _one_hot_cost(indices: Any, depth: Any, on_value: Any, off_value: Any) -> Any:
    return indices.size * (2 + depth.item() * _WRITE)


@kernel(
    "OneHot",
    host_memory=("depth",),
    cost=_one_hot_cost,
    T=dtypes.ALL,
    TI=(dtypes.uint8, dtypes.int8, *INDEX),
)
def one_hot(c: OpKernelConstruction) -> Compute:
    axis = c.attr("axis")
    allocate, xp = allocator(c), c.xp
    where = chooser(xp, c.attr("T").np)
    index_dtype = c.attr("TI").np
    place = (*[slice(None)] * min(axis, MAX_RANK), None) if axis >= 0 else (..., None)

    def check(indices: Any, depth: Any, on_value: Any, off_value: Any) -> None:
        if not -1 <= axis <= indices.ndim:
            raise errors.InvalidArgumentError(
                f"Expected axis to be -1 or between [0, {indices.ndim + 1}).  But received: {axis}"
            )
        for name, value in (("depth", depth), ("on_value", on_value), ("off_value", off_value)):
            if value.ndim:
                raise errors.InvalidArgumentError(f"{name} must be a scalar, but got: {shape_text(value.shape)}")
        if depth.item() < 0:
            raise errors.InvalidArgumentError(f"depth must be non-negative, got: {depth.item()}")

    c.explain = explain_with(check)

    def scattered(indices: Any, classes: int, on_value: Any, off_value: Any) -> Any:
        """For large results: write all elements once, then the few that are on."""
        shape = list(indices.shape)
        shape.insert(axis if axis >= 0 else len(shape), classes)
        out = allocate(shape)
        out[...] = off_value
        # Rows of (before, classes, after); an index outside the classes leaves its row off.
        after = math.prod(shape[axis + 1 :]) if axis >= 0 else 1
        flat, at_once = indices.reshape(-1), _INDICES_AT_ONCE if xp is np else max(1, indices.size)
        for start in range(0, flat.size, at_once):
            some = flat[start : start + at_once]
            hits = ((some >= 0) & (some < classes)).nonzero()[0]
            if hits.size:
                before, within = xp.divmod(hits + start, after) if after != 1 else (hits + start, 0)
                out.reshape(-1)[(before * classes + some[hits]) * after + within] = on_value
        return out

    # Key: depth and rank; value: the class numbers along their axis.
    known: tuple[Any, Any] = (None, None)

    def compute(indices: Any, depth: Any, on_value: Any, off_value: Any) -> Any:
        nonlocal known
        classes, rank = depth.item(), indices.ndim
        if classes < 0 or not -1 <= axis <= rank or depth.ndim or on_value.ndim or off_value.ndim:
            check(indices, depth, on_value, off_value)
        if max(indices.size, 1) * classes > _SMALL:
            return scattered(indices, classes, on_value, off_value)
        wanted = (classes, rank)
        seen, numbers = known
        if seen != wanted:
            numbers = xp.arange(classes, dtype=index_dtype if classes <= 128 else np.int64)
            numbers = numbers.reshape(classes, *[1] * (rank - axis if axis >= 0 else 0))
            known = (wanted, numbers)
        return where(indices[place] == numbers, on_value, off_value)

    return compute


# ---- Tile


def _tile_cost(x: Any, multiples: Any) -> Any:
    return x.size * elements_asked_for(multiples) * _WRITE


@kernel("Tile", host_memory=("multiples",), cost=_tile_cost, Tmultiples=INDEX)
def tile(c: OpKernelConstruction) -> Compute:
    allocate = allocator(c)
    # Key: the input's shape, the multiples' shape and bytes; value: the layout.
    known: tuple[Any, Any] = (None, None)

    def check(x: Any, multiples: Any) -> None:
        _check_multiples(x, multiples)
        for i, times in enumerate(multiples.tolist()):
            if times < 0:
                raise errors.InvalidArgumentError(f"Expected multiples[{i}] >= 0, but got {times}")

    c.explain = explain_with(check)

    def compute(x: Any, multiples: Any) -> Any:
        nonlocal known
        wanted = (x.shape, multiples.shape, multiples.tobytes())
        seen, layout = known
        if seen != wanted:
            check(x, multiples)
            layout = _tile_layout(x.shape, multiples.tolist())
            known = (wanted, layout)
        index, spread, final = layout
        if index is None:
            return x
        out = allocate(final)
        out.reshape(spread)[...] = x[index]
        return out

    return compute


def _check_multiples(x: Any, multiples: Any) -> None:
    if multiples.ndim != 1:
        raise errors.InvalidArgumentError(f"Expected multiples to be 1-D, but got shape {shape_text(multiples.shape)}")
    if multiples.size != x.ndim:
        raise errors.InvalidArgumentError(
            f"Expected multiples argument to be a vector of length {x.ndim} but got length {multiples.size}"
        )


def _tile_layout(shape: Sequence[int], multiples: Sequence[int]) -> tuple[Any, Any, Any]:
    """The input's index and the output's shape with an extra dimension for each repeated one, and the final shape.

    The index is None if nothing is repeated.
    """
    if all(times == 1 for times in multiples):
        return None, None, None
    index: list[Any] = []
    spread: list[int] = []
    for size, times in zip(shape, multiples, strict=True):
        if times != 1:
            index.append(None)
            spread.append(times)
        index.append(slice(None))
        spread.append(size)
    final = [size * times for size, times in zip(shape, multiples, strict=True)]
    return tuple(index), spread, final


@kernel("TileGrad", host_memory=("multiples",))
def tile_grad(c: OpKernelConstruction) -> Compute:
    """Sum over the copies that Tile made; graphs of version 3 and later use Sum instead.

    TensorFlow registers the kernel under a constraint on an attr that the op does not have, so it can no longer run
    there.
    """
    dtype = c.attr("T")
    xp = c.xp
    if dtype not in dtypes.NUMBER:
        raise errors.UnimplementedError(f"TileGrad is not implemented for type {dtype}")
    wide = np.dtype(np.float32) if dtype in (dtypes.float16, dtypes.bfloat16) else dtype.np

    def compute(x: Any, multiples: Any) -> Any:
        _check_multiples(x, multiples)
        spread: list[int] = []
        for i, (size, times) in enumerate(zip(x.shape, multiples.tolist(), strict=True)):
            if times <= 0:
                raise errors.InvalidArgumentError(f"Expected multiples[{i}] > 0, but got {times}")
            if size % times:
                raise errors.InvalidArgumentError(
                    f"Expected input_dim[{i}] to be divisible by multiples[{i}], but {size} % {times} != 0"
                )
            spread += [times, size // times]
        summed = xp.add.reduce(x.reshape(spread), tuple(range(0, len(spread), 2)), wide)
        return summed.astype(dtype.np, copy=False)

    return compute


# ---- broadcasting


@kernel(
    "BroadcastTo", cost=lambda x, shape: _size_cost(shape), T=(*dtypes.ALL, dtypes.float8_e5m2, dtypes.float8_e4m3fn)
)
def broadcast_to(c: OpKernelConstruction) -> Compute:
    allocate = allocator(c)

    def check(x: Any, shape: Any) -> None:
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(
                f"shape must be a vector of {{int32,int64}}, got shape {shape_text(shape.shape)}"
            )
        if x.ndim > shape.size:
            raise errors.InvalidArgumentError(
                f"Rank of input ({x.ndim}) must be no greater than rank of output shape ({shape.size})."
            )
        raise errors.InvalidArgumentError(
            f"Incompatible shapes: {shape_text(x.shape)} vs. {shape_text(shape.tolist())}"
        )

    c.explain = explain_with(check)

    def compute(x: Any, shape: Any) -> Any:
        if shape.ndim != 1 or shape.size > MAX_RANK:
            check_max_rank(shape.size)
            check(x, shape)
        dims = tuple(shape.tolist())
        if x.shape == dims:
            return x
        if x.ndim > len(dims):
            check(x, shape)
        out = allocate(dims)
        out[...] = x
        return out

    return compute


def _padded(shapes: Sequence[Any], kind: str = "") -> list[list[int]]:
    """The shapes, given as vectors, with ones in front so that they have the same length.

    Raises:
        InvalidArgumentError: a shape is not a vector, or they cannot be broadcast against each other.
    """
    for shape in shapes:
        check_max_rank(shape.size)
    for i, shape in enumerate(shapes):
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(f"In[{i}] must be a vector.{shape_text(shape.shape)}")
    lists = [shape.tolist() for shape in shapes]
    rank = max(map(len, lists))
    padded = [[1] * (rank - len(dims)) + dims for dims in lists]
    for sizes in zip(*padded, strict=True):
        if len({size for size in sizes if size != 1}) > 1:
            raise errors.InvalidArgumentError("Incompatible shapes: " + " vs. ".join(map(shape_text, lists)))
    return padded


@kernel("BroadcastArgs", host_memory=("s0", "s1", "r0"), cost=0, T=INDEX)
@kernel("BroadcastArgs", device="DEFAULT", host_memory=("s0", "s1", "r0"), cost=0, T=INDEX)
def broadcast_args(c: OpKernelConstruction) -> Compute:
    """The shape that two shapes broadcast to."""
    numpy_dtype = c.attr("T").np

    def compute(s0: Any, s1: Any) -> Any:
        first, second = _padded((s0, s1))
        return np.array([b if a == 1 else a for a, b in zip(first, second, strict=True)], numpy_dtype)

    return compute


def gradient_axes(s0: Any, s1: Any) -> list[list[int]]:
    """For each of two shapes, the axes of the broadcast result over which to sum a gradient.

    Raises:
        InvalidArgumentError: a shape is not a vector, or they cannot be broadcast against each other.
    """
    padded = _padded((s0, s1))
    equal = s0.shape == s1.shape and padded[0] == padded[1]
    return [[] if equal else [i for i, size in enumerate(dims) if size == 1] for dims in padded]


@kernel("BroadcastGradientArgs", host_memory=("s0", "s1", "r0", "r1"), cost=0, T=INDEX)
@kernel("BroadcastGradientArgs", device="DEFAULT", host_memory=("s0", "s1", "r0", "r1"), cost=0, T=INDEX)
def broadcast_gradient_args(c: OpKernelConstruction) -> Compute:
    """For each of two shapes, the dimensions of the broadcast result over which to sum a gradient.

    These are the dimensions of size 1, even if the other shape also has 1 there; none for equal shapes.
    """
    numpy_dtype = c.attr("T").np
    known: tuple[Any, Any] = (None, None)

    def compute(s0: Any, s1: Any) -> Any:
        nonlocal known
        if max(s0.size, s1.size) > MAX_RANK:
            _padded((s0, s1))  # raises
        wanted = (s0.tobytes(), s1.tobytes())
        seen, answer = known
        if seen != wanted or s0.ndim != 1 or s1.ndim != 1:
            answer = tuple([np.array(axes, numpy_dtype) for axes in gradient_axes(s0, s1)])
            for array in answer:
                array.flags.writeable = False
            known = (wanted, answer)
        return answer

    return compute
