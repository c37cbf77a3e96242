"""Kernels that move blocks of space into batch or depth and back, and cut images into patches.

Each is a padding, a reshape and a transpose; patches are windows (`windowing.py`).
Next to read: `aexec/kernels/nn/conv_ops.py`, which multiplies the windows with a filter.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput, rows_of
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common import windowing

__all__: list[str] = []

_MOST_BYTES = 2**63 - 1
# The most bytes of an element.
_LARGEST = 16
_DEPTH_TYPES = (*dtypes.POD, dtypes.string, dtypes.resource, dtypes.variant)
# TensorFlow unrolls its loops for up to this many dimensions with a block size above 1.
_MAX_BLOCK_DIMS = 4


def _blocks(rank: int, block_shape: Any, margins: Any, name: str) -> tuple[list[int], list[list[int]]]:
    """Return checked block sizes and pairs (paddings or crops), one per block dimension."""
    block_shape, margins = np.asarray(block_shape), np.asarray(margins)
    if block_shape.ndim != 1:
        raise errors.InvalidArgumentError(f"block_shape rank should be 1 instead of {block_shape.ndim}")
    count = block_shape.size
    if rank < 1 + count:
        raise errors.InvalidArgumentError(f"input rank should be >= {1 + count} instead of {rank}")
    if margins.shape != (count, 2):
        raise errors.InvalidArgumentError(
            f"{name} should have shape [{count}, 2] instead of {shape_text(margins.shape)}"
        )
    blocks, pairs = block_shape.tolist(), margins.tolist()
    cut = [i for i, (b, m) in enumerate(zip(blocks, pairs, strict=True)) if b != 1 or m != [0, 0]]
    between = cut[-1] - cut[0] + 1 if cut else 0
    if between > _MAX_BLOCK_DIMS:
        raise errors.InvalidArgumentError(
            f"Maximum number of non-combined block dimensions is {between} but must not exceed {_MAX_BLOCK_DIMS}"
        )
    return blocks, pairs


@dataclass(frozen=True, slots=True)
class _Move:
    """A plan to move elements, for inputs of one shape.

    Attributes:
        padded, place: shape of the zero-padded input, and the input's index in it; None without padding.
        split: the shape with every block dimension split into two.
        axes: the axes of the transpose that follows.
        result: the shape after the transpose.
        crop: the index of the part of the result that is kept.
    """

    padded: tuple[int, ...] | None
    place: tuple[slice, ...]
    split: tuple[int, ...]
    axes: tuple[int, ...]
    result: tuple[int, ...]
    crop: tuple[slice, ...] | None

    def __call__(self, xp: Any, x: Any) -> Any:
        if self.padded is not None:
            announce_scratch(prod(self.padded) * x.itemsize)
            padded = xp.zeros(self.padded, x.dtype)
            padded[self.place] = x
            x = padded
        moved = x.reshape(self.split).transpose(self.axes).reshape(self.result)
        return moved if self.crop is None else moved[self.crop]


def _space_to_batch(shape: tuple[int, ...], block_shape: Any, paddings: Any) -> _Move:
    blocks, pads = _blocks(len(shape), block_shape, paddings, "paddings")
    padded, inside, split = list(shape), [slice(None)], [shape[0]]
    for i, (block, (before, after)) in enumerate(zip(blocks, pads, strict=True)):
        if block < 1:
            raise errors.InvalidArgumentError(
                f"All values in block_shape must be positive, got value, {block} at index {i}."
            )
        if before < 0 or after < 0:
            raise errors.InvalidArgumentError("Paddings must be non-negative")
        inside.append(slice(before, before + shape[i + 1]))
        padded[i + 1] += before + after
        if padded[i + 1] % block:
            raise errors.InvalidArgumentError(
                f"padded_shape[{i}]={padded[i + 1]} is not divisible by block_shape[{i}]={block}"
            )
        split += [padded[i + 1] // block, block]
    count = len(blocks)
    rest = shape[count + 1 :]
    axes = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
    axes += range(2 * count + 1, 2 * count + 1 + len(rest))
    result = (shape[0] * prod(blocks), *split[1::2], *rest)
    added = tuple(padded) if any(map(any, pads)) else None
    return _Move(added, tuple(inside), (*split, *rest), tuple(axes), result, None)


def _batch_to_space(shape: tuple[int, ...], block_shape: Any, crops: Any) -> _Move:
    blocks, pairs = _blocks(len(shape), block_shape, crops, "crops")
    product = prod(blocks)
    if product <= 0:
        raise errors.InvalidArgumentError(f"Product of block sizes must be positive, got {product}")
    if shape[0] % product:
        raise errors.InvalidArgumentError(
            f"Input batch dimension ({shape[0]}) is not divisible by product of block sizes ({product})"
        )
    if rows_of((*blocks, shape[0] // product, *shape[1:])) > _MOST_BYTES // _LARGEST:  # the input has no elements
        raise errors.InvalidArgumentError(f"Blocks of {shape_text(blocks)} are too large for {shape_text(shape)}")
    inside: list[slice] = [slice(None)]
    whole = [shape[0] // product]
    for i, (block, (before, after)) in enumerate(zip(blocks, pairs, strict=True)):
        if before < 0 or after < 0:
            raise errors.InvalidArgumentError("Crops must be non-negative")
        size = shape[i + 1] * block
        if size < before + after:
            raise errors.InvalidArgumentError(f"cropped_shape[{i}]={size - before - after} must be non-negative")
        inside.append(slice(before, size - after))
        whole.append(size)
    count = len(blocks)
    rest = shape[count + 1 :]
    axes = [count]
    for i in range(count):
        axes += [count + 1 + i, i]
    axes += range(2 * count + 1, 2 * count + 1 + len(rest))
    crop = tuple(inside) if any(map(any, pairs)) else None
    return _Move(None, (), (*blocks, whole[0], *shape[1:]), tuple(axes), (*whole, *rest), crop)


# Called with the input's shape, block sizes and margins; raises InvalidArgumentError if they do not match.
Plan = Callable[[tuple[int, ...], Any, Any], _Move]


def _remembered(plan: Plan) -> Plan:
    """`plan` with its last result kept: a node's blocks and margins are nearly always constants."""
    known: tuple[Any, _Move | None] = (None, None)

    def planned(shape: tuple[int, ...], block_shape: Any, margins: Any) -> _Move:
        nonlocal known
        wanted = (shape, block_shape.shape, margins.shape, block_shape.tobytes(), margins.tobytes())
        seen, move = known
        if move is None or seen != wanted:
            move = plan(shape, block_shape, margins)
            known = (wanted, move)
        return move

    return planned


def _two_dims(plan: Plan) -> Builder:
    """Builder of the older op, which has one block size for both dimensions of an image batch."""

    def builder(c: OpKernelConstruction) -> Compute:
        xp, block = c.xp, c.attr("block_size")
        if block <= 1:
            raise errors.InvalidArgumentError(f"Block size should be > 1: {block}")
        blocks, planned = np.array([block, block]), _remembered(plan)

        def compute(x: Any, margins: Any) -> Any:
            if x.ndim != 4:
                raise errors.InvalidArgumentError(f"Input rank should be: 4instead of: {x.ndim}")
            return planned(x.shape, blocks, margins)(xp, x)

        return compute

    return builder


def _any_dims(plan: Plan) -> Builder:
    def builder(c: OpKernelConstruction) -> Compute:
        xp, planned = c.xp, _remembered(plan)
        return lambda x, block_shape, margins: planned(x.shape, block_shape, margins)(xp, x)

    return builder


def _padded_elements(x: Any, *block_and_paddings: Any) -> float:
    """The number of elements with the paddings; 0 if the kernel refuses them."""
    paddings = block_and_paddings[-1]
    if paddings.ndim != 2 or paddings.shape[1] != 2 or len(paddings) >= x.ndim:
        return 0.0
    before, spatial, after = x.shape[:1], x.shape[1 : 1 + len(paddings)], x.shape[1 + len(paddings) :]
    padded = [size + max(0, sum(pair)) for size, pair in zip(spatial, paddings.tolist(), strict=True)]
    return float(prod([*before, *padded, *after]))


_PADDED = PerOutput(1.0, _padded_elements)

kernel("SpaceToBatch", T=dtypes.REAL_NUMBER, host_memory=("paddings",), cost=_PADDED)(_two_dims(_space_to_batch))
kernel("SpaceToBatchND", T=dtypes.REAL_NUMBER, host_memory=("block_shape", "paddings"), cost=_PADDED)(
    _any_dims(_space_to_batch)
)
kernel("BatchToSpace", T=dtypes.REAL_NUMBER, host_memory=("crops",), scratch=16)(_two_dims(_batch_to_space))
kernel("BatchToSpaceND", T=dtypes.REAL_NUMBER, host_memory=("block_shape", "crops"), scratch=16)(
    _any_dims(_batch_to_space)
)


def _depth_block(c: OpKernelConstruction) -> int:
    """The block size.  Raises NotFoundError for a layout that has no CPU kernel."""
    layout, block = c.text("data_format"), c.attr("block_size")
    if layout != "NHWC":
        raise errors.NotFoundError(
            f"No registered '{c.op}' OpKernel for CPU devices compatible with node {{{{node {c.name}}}}} "
            f"(OpKernel was found, but attributes didn't match): data_format is {layout}, expected NHWC"
        )
    if block <= 1:
        raise errors.InvalidArgumentError(f"Block size should be > 1, but was: {block}")
    return int(block)


def _without_elements(x: Any, *shape: int) -> Any:
    """Reshape an array without elements; intermediate sizes may be too large for NumPy.

    Raises InvalidArgumentError if the resulting sizes are too large.
    """
    if rows_of(shape) * x.itemsize > _MOST_BYTES:
        raise errors.InvalidArgumentError(f"Shape {shape_text(shape)} is too large (more than 2**63 - 1 bytes)")
    return x.reshape(shape)


@kernel("SpaceToDepth", T=(*_DEPTH_TYPES, dtypes.qint8))
def space_to_depth(c: OpKernelConstruction) -> Compute:
    """Turns blocks of block_size by block_size pixels into one pixel with that many times the channels."""
    b = _depth_block(c)

    def compute(x: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"Input rank should be 4 instead of {x.ndim}")
        n, h, w, d = x.shape
        if h % b or w % b:
            raise errors.InvalidArgumentError(f"Image width {w} and height {h} should be divisible by block_size: {b}")
        if not x.size:
            return _without_elements(x, n, h // b, w // b, b * b * d)
        return x.reshape(n, h // b, b, w // b, b, d).swapaxes(2, 3).reshape(n, h // b, w // b, b * b * d)

    return compute


@kernel("DepthToSpace", T=_DEPTH_TYPES)
def depth_to_space(c: OpKernelConstruction) -> Compute:
    """The inverse of SpaceToDepth."""
    b = _depth_block(c)

    def compute(x: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"Input rank should be: 4 instead of: {x.ndim}")
        n, h, w, d = x.shape
        if d % (b * b):
            raise errors.InvalidArgumentError(f"Input depth dimension {d} should be divisible by: {b * b}")
        if not x.size:
            return _without_elements(x, n, h * b, w * b, d // (b * b))
        return x.reshape(n, h, w, b, b, d // (b * b)).swapaxes(2, 3).reshape(n, h * b, w * b, d // (b * b))

    return compute


def _patches(spatial: int) -> Builder:
    """Builder of kernels whose output pixels hold their whole window, row by row, channels innermost."""

    def builder(c: OpKernelConstruction) -> Compute:
        xp, padding = c.xp, c.text("padding")
        sizes = windowing.spatial_attr(c, "ksizes", spatial)
        strides = windowing.spatial_attr(c, "strides", spatial)
        rates = windowing.spatial_attr(c, "rates", spatial) if "rates" in c.attrs else (1,) * spatial

        def compute(x: Any) -> Any:
            if x.ndim != spatial + 2:
                raise errors.InvalidArgumentError(f"input must be {spatial + 2}-dimensional{shape_text(x.shape)}")
            spec = [
                windowing.extent(length, size, stride, rate, padding, centred=spatial == 3)
                for length, size, stride, rate in zip(x.shape[1:-1], sizes, strides, rates, strict=True)
            ]
            view = windowing.windows(xp, windowing.pad(xp, x, spec), spec)
            return view.reshape(x.shape[0], *[w.count for w in spec], prod(sizes) * x.shape[-1])

        return compute

    return builder


# A window of a few pixels is copied for every pixel.
_PATCH_COST = 8.0
kernel("ExtractImagePatches", T=dtypes.NUMBER, cost=PerOutput(_PATCH_COST))(_patches(2))
kernel("ExtractVolumePatches", T=dtypes.REAL_NUMBER, cost=PerOutput(_PATCH_COST))(_patches(3))
