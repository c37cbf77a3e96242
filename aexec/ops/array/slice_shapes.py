"""Shape functions of `slice_ops`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape_functions.shape_inference import Array, DimensionOrConstant, InferenceContext, Shape
from aexec.ops.nn.window_shapes import data_format, dims_of_format, shape_of_format, windowed_int


@dataclass(slots=True)
class _Axis:
    """The effect of a slice on one dimension of the result.

    `source` is the dimension of the input that it comes from, None for a new axis.
    """

    source: int | None
    begin: int | None = None
    end: int | None = None
    stride: int = 1
    begin_masked: bool = True
    end_masked: bool = True
    shrink: bool = False


def strided_slice(c: InferenceContext) -> None:
    """Input 0 sliced by begin, end and strides: inputs 1, 2 and 3."""
    shape = c.input(0)
    vectors = [c.with_rank(c.input(i), 1) for i in (1, 2, 3)]
    length = c.dim(c.merge(c.merge(vectors[0], vectors[1]), vectors[2]), 0).value
    strides = c.input_tensor(3)
    if shape.dims is None or length is None or strides is None:
        c.set_output(0, c.unknown_shape())
        return
    begin, end = c.input_tensor(1), c.input_tensor(2)
    axes = _axes_of_slice(c, begin, end, strides.tolist(), len(shape.dims))
    c.set_output(0, c.make_shape(_sliced_sizes(shape, axes, both_known=begin is not None and end is not None)))
    data = c.input_handle_shapes_and_types(0)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)


def _axes_of_slice(
    c: InferenceContext, begin: Array | None, end: Array | None, strides: list[int], rank: int
) -> list[_Axis]:
    """Expand the ellipsis (one is implied at the end) and spread the masks over the input's dimensions."""
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = (
        c.attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    )
    if ellipsis_mask & (ellipsis_mask - 1):
        raise errors.InvalidArgumentError("Multiple ellipses in slice spec not allowed")
    count = len(strides)
    ellipsis = ellipsis_mask.bit_length() - 1 if ellipsis_mask and ellipsis_mask < 1 << count else count
    new_axes_after = sum(bool(new_axis_mask >> i & 1) for i in range(ellipsis + 1, count))
    axes: list[_Axis] = []
    source = 0
    for index in range(max(count, ellipsis + 1)):
        bit = 1 << index
        if index == ellipsis:
            stop = min(rank - (max(count, ellipsis + 1) - index) + 1 + new_axes_after, rank)
            axes += [_Axis(i) for i in range(source, stop)]
            source = max(source, stop)
        elif new_axis_mask & bit:
            axes.append(_Axis(None))
        else:
            if source == rank:
                raise errors.InvalidArgumentError(
                    f"Index out of range using input dim {source}; input has only {rank} dims"
                )
            axes.append(
                _Axis(
                    source,
                    None if begin is None else int(begin[index]),
                    None if end is None else int(end[index]),
                    strides[index],
                    bool(begin_mask & bit),
                    bool(end_mask & bit),
                    bool(shrink_mask & bit),
                )
            )
            source += 1
    return axes


def _sliced_sizes(shape: Shape, axes: Sequence[_Axis], *, both_known: bool) -> list[int | None]:
    sizes: list[int | None] = []
    for axis in axes:
        if axis.source is None:
            sizes.append(1)
            continue
        if axis.stride == 0:
            raise errors.InvalidArgumentError(f"strides[{axis.source}] must be non-zero")
        size = (shape.dims or ())[axis.source]
        if size is not None:
            size = _sliced_size(axis, size, both_known=both_known)
        if not axis.shrink:
            sizes.append(size)
    return sizes


def _sliced_size(axis: _Axis, size: int, *, both_known: bool) -> int | None:
    if axis.shrink:
        if axis.stride < 0:
            raise errors.InvalidArgumentError("only stride 1 allowed on non-range indexing.")
        if both_known and axis.begin is not None:
            place = axis.begin + size if axis.begin < 0 else axis.begin
            if not 0 <= place < size:
                raise errors.InvalidArgumentError(f"slice index {place} of dimension {axis.source} out of bounds.")
        return 1
    if both_known or (axis.begin_masked and axis.end_masked):
        whole = slice(None if axis.begin_masked else axis.begin, None if axis.end_masked else axis.end, axis.stride)
        return len(range(*whole.indices(size)))
    return None


def strided_slice_grad(c: InferenceContext) -> None:
    """The shape given by input 0."""
    c.set_output(0, c.make_shape_from_shape_tensor(0))


# Blocks of space to batch and back


def _block_dims(c: InferenceContext, shape: Shape, block_shape: Shape, pairs: Shape) -> tuple[Shape, int]:
    if block_shape.rank != 1:
        raise errors.InvalidArgumentError("block_shape must have rank 1.")
    count = c.dim(block_shape, 0).value
    if count is None:
        raise errors.InvalidArgumentError("block_shape must have known size.")
    shape = c.with_rank_at_least(shape, count + 1)
    c.merge(pairs, c.matrix(count, 2))
    return shape, count


def _check_block(block: list[int]) -> None:
    if any(size < 1 for size in block):
        raise errors.InvalidArgumentError("block_shape must be positive")


def _pairs(value: Array | None, what: str) -> list[list[int]]:
    pairs: list[list[int]] = [] if value is None else value.tolist()
    if any(size < 0 for pair in pairs for size in pair):
        raise errors.InvalidArgumentError(f"{what} cannot be negative")
    return pairs


def _space_to_batch(c: InferenceContext, shape: Shape, block_shape: Shape, block: list[int] | None) -> None:
    pairs_index = c.num_inputs - 1
    shape, count = _block_dims(c, shape, block_shape, c.input(pairs_index))
    batch = c.dim(shape, 0)
    if block:
        _check_block(block)
        for size in block:
            batch = c.multiply(batch, size) if batch.value is not None else c.unknown_dim()
    elif count:
        batch = c.unknown_dim()
    dims: list[DimensionOrConstant] = [batch, *[None] * count]
    for index, (before, after) in enumerate(_pairs(c.input_tensor(pairs_index), "paddings")):
        if block is not None:
            padded = c.add(c.add(c.dim(shape, index + 1), before), after)
            dims[index + 1] = c.divide(padded, block[index], evenly=True)
    c.set_output(0, c.concatenate(c.make_shape(dims), c.subshape(shape, 1 + count)))


def _batch_to_space(c: InferenceContext, shape: Shape, block_shape: Shape, block: list[int] | None) -> None:
    pairs_index = c.num_inputs - 1
    shape, count = _block_dims(c, shape, block_shape, c.input(pairs_index))
    batch = c.dim(shape, 0)
    if block:
        _check_block(block)
        for size in block:
            batch = c.divide(batch, size, evenly=True) if batch.value is not None else c.unknown_dim()
    elif count:
        batch = c.unknown_dim()
    dims: list[DimensionOrConstant] = [batch, *[None] * count]
    for index, (before, after) in enumerate(_pairs(c.input_tensor(pairs_index), "crops")):
        if block is not None:
            whole = c.multiply(c.dim(shape, index + 1), block[index])
            dims[index + 1] = c.subtract(c.subtract(whole, before), after)
    c.set_output(0, c.concatenate(c.make_shape(dims), c.subshape(shape, 1 + count)))


def _block_value(c: InferenceContext) -> list[int] | None:
    value = c.input_tensor(1)
    return None if value is None else value.reshape(-1).tolist()


def space_to_batch_nd(c: InferenceContext) -> None:
    """Inputs array, block shape, paddings."""
    _space_to_batch(c, c.input(0), c.input(1), _block_value(c))


def batch_to_space_nd(c: InferenceContext) -> None:
    """Inputs array, block shape, crops."""
    _batch_to_space(c, c.input(0), c.input(1), _block_value(c))


def space_to_batch(c: InferenceContext) -> None:
    """Image and paddings; attr `block_size`."""
    block = [c.attr("block_size")] * 2
    _space_to_batch(c, c.with_rank(c.input(0), 4), c.vector(2), block)


def batch_to_space(c: InferenceContext) -> None:
    """Image and crops; attr `block_size`."""
    block = [c.attr("block_size")] * 2
    _batch_to_space(c, c.with_rank(c.input(0), 4), c.vector(2), block)


def space_to_depth(c: InferenceContext) -> None:
    """Blocks of an image become channels."""
    letters, block = data_format(c), c.attr("block_size")
    dims = dims_of_format(c, c.with_rank(c.input(0), len(letters)), letters)
    out: dict[str, DimensionOrConstant] = {"N": dims["N"]}
    for letter in "01":
        out[letter] = c.divide(dims[letter], block, evenly=True)
    out["C"] = c.multiply(dims["C"], block * block)
    c.set_output(0, shape_of_format(c, letters, out))


def depth_to_space(c: InferenceContext) -> None:
    """Channels become blocks of an image."""
    letters, block = data_format(c), c.attr("block_size")
    dims = dims_of_format(c, c.with_rank(c.input(0), len(letters)), letters)
    out: dict[str, DimensionOrConstant] = {"N": dims["N"]}
    for letter in "01":
        out[letter] = c.multiply(dims[letter], block)
    out["C"] = c.divide(dims["C"], block * block, evenly=True)
    c.set_output(0, shape_of_format(c, letters, out))


def _extract_patches(c: InferenceContext, op: str, rank: int, *, rated: bool) -> None:
    shape = c.with_rank(c.input(0), rank)
    ksizes, strides = c.attr("ksizes"), c.attr("strides")
    rates = c.attr("rates") if rated else [1] * rank
    for values, name in ((ksizes, "ksizes"), (strides, "stride"), (rates, "rates")):
        if len(values) != rank:
            raise errors.InvalidArgumentError(
                f"{op} requires the {name} attribute to contain {rank} values, but got: {len(values)}"
            )
    inner = range(1, rank - 1)
    depth = c.multiply(c.dim(shape, -1), math.prod(ksizes[i] for i in inner))
    dims: list[DimensionOrConstant] = [c.dim(shape, 0), *[None] * len(inner), depth]
    if shape.dims is not None and None not in shape.dims[1:-1]:
        padding = c.text("padding")
        for i in inner:
            dims[i] = windowed_int(shape.dims[i] or 0, ksizes[i], strides[i], padding, rates[i])
    c.set_output(0, c.make_shape(dims))


def extract_image_patches(c: InferenceContext) -> None:
    """[batch, rows, columns, patch]."""
    _extract_patches(c, "ExtractImagePatches", 4, rated=True)


def extract_volume_patches(c: InferenceContext) -> None:
    """[batch, planes, rows, columns, patch]."""
    _extract_patches(c, "ExtractVolumePatches", 5, rated=False)
