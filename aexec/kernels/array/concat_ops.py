"""Kernels that join tensors along an axis and take them apart: Concat, Pack, Split, Unpack.

Parts of a tensor are views of it.
Next to read: `slice_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.framework.waiting.loop_budget import OBJECT_NS
from aexec.kernels.common.allocation import allocator, explain_with
from aexec.kernels.common.registration import INDEX, on_host

_FLOAT8 = (dtypes.float8_e5m2, dtypes.float8_e4m3fn)
_SPLIT_TYPES = (*dtypes.ALL, dtypes.quint8, dtypes.int4, dtypes.uint4, *_FLOAT8)
_PACK_TYPES = (*dtypes.ALL, *dtypes.QUANTIZED, *_FLOAT8)
_UNPACK_TYPES = (*dtypes.ALL, *_FLOAT8)
_CONCAT_TYPES = tuple(t for t in _PACK_TYPES if t not in (dtypes.resource, dtypes.variant))

_FULL = slice(None)


# ---- Concat


def _concat(c: OpKernelConstruction) -> Compute:
    concatenate = c.xp.concatenate

    def check(*inputs: Any) -> None:
        check_concat(inputs[0], inputs[1:], "concat_dim")

    c.explain = explain_with(check)
    return lambda axis, *values: concatenate(values, axis.item())


def _concat_v2(c: OpKernelConstruction) -> Compute:
    concatenate = c.xp.concatenate

    def check(*inputs: Any) -> None:
        check_concat(inputs[-1], inputs[:-1], "axis")

    c.explain = explain_with(check)
    if c.attr("N") == 2:
        return lambda first, second, axis: concatenate((first, second), axis.item())
    return lambda *inputs: concatenate(inputs[:-1], inputs[-1].item())


def check_concat(axis: Any, values: Sequence[Any], name: str) -> None:
    if axis.size != 1:
        raise errors.InvalidArgumentError(
            f"{name} tensor should be a scalar integer, but got shape {shape_text(axis.shape)}"
        )
    shapes = [value.shape for value in values]
    rank, axis = len(shapes[0]), axis.item()
    if any(not shape for shape in shapes):
        raise errors.InvalidArgumentError("ConcatOp : Can't concatenate scalars (use tf.stack instead)")
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(
            f"ConcatOp : Expected concatenating dimensions in the range [-{rank}, {rank}), but got {axis}"
        )
    axis %= rank
    for i, shape in enumerate(shapes):
        versus = f"shape[0] = {shape_text(shapes[0])} vs. shape[{i}] = {shape_text(shape)}"
        if len(shape) != rank:
            raise errors.InvalidArgumentError(f"ConcatOp : Ranks of all input tensors should match: {versus}")
        for d in range(rank):
            if d != axis and shape[d] != shapes[0][d]:
                raise errors.InvalidArgumentError(f"ConcatOp : Dimension {d} in both shapes must be equal: {versus}")


kernel("Concat", host_memory=("concat_dim",), T=_CONCAT_TYPES)(_concat)
kernel("Concat", device="DEFAULT", host_memory=("concat_dim", "values", "output"), T=[dtypes.int32])(on_host(_concat))
kernel("ConcatV2", host_memory=("axis",), T=_CONCAT_TYPES)(_concat_v2)
kernel("ConcatV2", device="DEFAULT", host_memory=("values", "axis", "output"), T=[dtypes.int32])(on_host(_concat_v2))


@kernel("ParallelConcat", T=(*dtypes.POD, dtypes.string))
def parallel_concat(c: OpKernelConstruction) -> Compute:
    """Joins rows of size 1 along dimension 0; the result's shape is static."""
    concatenate = c.xp.concatenate
    row = (1, *c.attr("shape").as_tuple()[1:])

    def check(*values: Any) -> None:
        for i, value in enumerate(values):
            if value.shape != row:
                raise errors.InvalidArgumentError(
                    f"ParallelConcat expects inputs of shape {shape_text(row)}, "
                    f"but value {i} has shape {shape_text(value.shape)}"
                )

    c.explain = explain_with(check)

    def compute(*values: Any) -> Any:
        for value in values:
            if value.shape != row:
                check(*values)
        return concatenate(values)

    return compute


# For each size: it is compared as a Python number.
_SIZE_NS = 3 * OBJECT_NS
_ON_HOST = ("concat_dim", "shape", "offset")


@kernel("ConcatOffset", cost=_SIZE_NS, shape_type=INDEX)
@kernel("ConcatOffset", device="DEFAULT", host_memory=_ON_HOST, cost=_SIZE_NS, shape_type=INDEX)
def concat_offset(c: OpKernelConstruction) -> Compute:
    """The start of each concatenated tensor in the result, which ConcatV2's gradient slices by."""
    numpy_dtype = c.attr("shape_type").np
    limits = np.iinfo(numpy_dtype)

    def compute(concat_dim: Any, *shapes: Any) -> Any:
        if concat_dim.ndim:
            raise errors.InvalidArgumentError(
                f"Concat dim tensor should be a scalar integer, but got shape {shape_text(concat_dim.shape)}"
            )
        for i, shape in enumerate(shapes):
            if shape.ndim != 1:
                raise errors.InvalidArgumentError(
                    f"input {i} should be a vector, but got shape {shape_text(shape.shape)}"
                )
        rank, axis = shapes[0].size, concat_dim.item()
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"Concat dim is out of range: {axis} vs. {rank}")
        axis %= rank
        offset = 0
        numbers: Callable[[Any], Any] = np.ndarray.tolist
        if rank > MAX_RANK:
            announce_scratch(3 * shapes[0].nbytes)
            numbers = np.ndarray.copy  # Python's numbers would take far more memory
        first = numbers(shapes[0])
        out = np.zeros((len(shapes), rank), numpy_dtype)
        for i, shape in enumerate(shapes):
            dims = numbers(shape)
            if len(dims) != rank:
                raise errors.InvalidArgumentError(f"input {i} should contain {rank} elements, but got {len(dims)}")
            if not limits.min <= offset <= limits.max:
                raise errors.InvalidArgumentError(f"Input {i} begins at {offset}, which {numpy_dtype.name} cannot hold")
            out[i, axis] = offset
            offset += int(dims[axis])
            dims[axis] = first[axis]
            if dims != first if rank <= MAX_RANK else not np.array_equal(dims, first):
                dims[axis] = shape[axis]
                raise errors.InvalidArgumentError(
                    f"All dimensions except {axis} must match. Input {i} has shape {_plain(shape)} "
                    f"and doesn't match input 0 with shape {_plain(shapes[0])}."
                )
        return tuple(out)

    return compute


def _plain(shape: Any) -> str:
    return "[" + " ".join(map(str, shape[:MAX_RANK].tolist())) + ("…]" if shape.size > MAX_RANK else "]")


# ---- Pack and Unpack

# Up to this many elements in an input, numpy.array is the fastest way to stack; above, it is several times slower than
# one assignment for each input.
_SMALL = 4096


@kernel("Pack", T=_PACK_TYPES)
def pack(c: OpKernelConstruction) -> Compute:
    axis = c.attr("axis")
    numpy_dtype = c.output_types[0].base.np
    allocate, xp = allocator(c), c.xp
    plain = xp is np and not numpy_dtype.hasobject

    def check(*values: Any) -> None:
        rank = values[0].ndim + 1
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"axis = {axis} not in [{-rank}, {rank})")
        for i, value in enumerate(values):
            if value.shape != values[0].shape:
                raise errors.InvalidArgumentError(
                    f"Shapes of all inputs must match: values[0].shape = {shape_text(values[0].shape)} "
                    f"!= values[{i}].shape = {shape_text(value.shape)}"
                )

    def stacked(*values: Any) -> Any:
        if plain and values[0].size <= _SMALL:
            return np.array(values, numpy_dtype)
        shape = values[0].shape
        out = allocate((len(values), *shape))
        for i, value in enumerate(values):
            if value.shape != shape:
                check(*values)
            out[i, ...] = value
        return out

    c.explain = explain_with(check)
    if axis == 0:
        return stacked

    def compute(*values: Any) -> Any:
        out = stacked(*values)
        rank = out.ndim
        # Bring dimension 0 to its place by a view.
        order = list(range(1, rank))
        if not -rank <= axis < rank:
            check(*values)
        order.insert(axis if axis > 0 else axis + rank, 0)
        return out.transpose(order)

    return compute


# Nanoseconds that a view takes, and pieces that are not worth asking about.
_VIEW_NS = 200.0
_FEW_PIECES = 250


def _pieces(attr: str) -> AttrCost:
    """The cost of a kernel that returns as many views as an attr says."""

    def of_attrs(attrs: Mapping[str, Any]) -> Any:
        count = attrs[attr]
        return 0 if count <= _FEW_PIECES else lambda *_: _VIEW_NS * count

    return AttrCost(of_attrs)


@kernel("Unpack", cost=_pieces("num"), T=_UNPACK_TYPES)
@kernel(
    "Unpack",
    device="DEFAULT",
    host_memory=("value", "output"),
    cost=_pieces("num"),
    T=INDEX,
)
def unpack(c: OpKernelConstruction) -> Compute:
    num, axis = c.attr("num"), c.attr("axis")
    # The ellipsis keeps a scalar an array, which strings and handles need to be.
    at = min(max(axis, -MAX_RANK - 1), MAX_RANK)  # no tensor has more axes, and an attr may be two billion
    indices = [_at(at, i) for i in range(num)]

    def check(value: Any) -> None:
        rank = value.ndim
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"axis = {axis} not in [{-rank}, {rank})")
        if value.shape[axis] != num:
            raise errors.InvalidArgumentError(
                f"Input shape axis {axis % rank} must equal {num}, got shape {shape_text(value.shape)}"
            )

    c.explain = explain_with(check)

    def compute(value: Any) -> Any:
        if value.shape[axis] != num:
            check(value)
        return tuple([value[index] for index in indices])

    return compute


def _at(axis: int, entry: Any) -> tuple[Any, ...]:
    """The index that applies `entry` to one axis, counted from the front or, if negative, from the back."""
    return (*[_FULL] * axis, entry, ...) if axis >= 0 else (..., entry, *[_FULL] * (-axis - 1))


# ---- Split


@kernel("Split", host_memory=("split_dim",), cost=_pieces("num_split"), T=_SPLIT_TYPES)
def split(c: OpKernelConstruction) -> Compute:
    num = c.attr("num_split")
    pieces = _piece_indices()

    def check(split_dim: Any, value: Any) -> None:
        if split_dim.ndim:
            raise errors.InvalidArgumentError(f"split_dim must be a scalar but has rank {split_dim.ndim}")
        axis, rank = split_dim.item(), value.ndim
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(
                f"-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}"
            )
        if value.shape[axis] % num:
            raise errors.InvalidArgumentError(
                "Number of ways to split should evenly divide the split dimension, but got split_dim "
                f"{axis % rank} (size = {value.shape[axis]}) and num_split {num}"
            )

    c.explain = explain_with(check)

    def compute(split_dim: Any, value: Any) -> Any:
        if split_dim.ndim:
            check(split_dim, value)
        axis = split_dim.item()
        length, rest = divmod(value.shape[axis], num)
        if rest:
            check(split_dim, value)
        return tuple([value[index] for index in pieces(axis, (length,) * num)])

    return compute


@kernel(
    "SplitV",
    host_memory=("size_splits", "split_dim"),
    cost=_pieces("num_split"),
    T=_SPLIT_TYPES,
    Tlen=(dtypes.int8, *INDEX),
)
def split_v(c: OpKernelConstruction) -> Compute:
    num = c.attr("num_split")
    pieces = _piece_indices()

    def check(value: Any, size_splits: Any, split_dim: Any) -> None:
        if split_dim.size != 1:
            raise errors.InvalidArgumentError("split_dim_tensor must have exactly one element.")
        if size_splits.ndim != 1 or size_splits.size != num:
            raise errors.InvalidArgumentError(
                "size of the split_tensor must be 1-D and have the same elements as outputs got "
                f"{size_splits.ndim} -D and {size_splits.size} elements"
            )
        axis, rank = split_dim.item(), value.ndim
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(
                f"-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}"
            )
        _split_sizes(size_splits.tolist(), value.shape[axis])

    c.explain = explain_with(check)

    def compute(value: Any, size_splits: Any, split_dim: Any) -> Any:
        if size_splits.ndim != 1 or size_splits.size != num:  # there may be very many sizes
            check(value, size_splits, split_dim)
        axis, sizes = split_dim.item(), size_splits.tolist()
        length = value.shape[axis]
        if sum(sizes) != length or min(sizes) < 0:
            check(value, size_splits, split_dim)
            sizes = _split_sizes(sizes, length)
        return tuple([value[index] for index in pieces(axis, tuple(sizes))])

    return compute


def _split_sizes(sizes: list[int], length: int) -> list[int]:
    """The sizes, with -1 replaced.

    Raises:
        InvalidArgumentError: the sizes do not add up to `length`.
    """
    if len(sizes) == 1:
        if sizes[0] != length:
            raise errors.InvalidArgumentError(
                "If there is only one output, it must have the same size as the input. "
                f"Input size: {length} output size: {sizes[0]}"
            )
        return sizes
    if sizes.count(-1) > 1:
        raise errors.InvalidArgumentError("There can only be one -1 in the input.")
    known = 0
    for i, size in enumerate(sizes):
        if size < -1:
            raise errors.InvalidArgumentError(f"Split size at index {i} must be >= 0. Got: {size}")
        known += max(size, 0)
    if known > length or (known != length and -1 not in sizes):
        raise errors.InvalidArgumentError(
            "Determined shape must either match input shape along split_dim exactly if fully specified, "
            f"or be less than the size of the input along split_dim if not fully specified.  Got: {known}"
        )
    return [length - known if size == -1 else size for size in sizes]


def _piece_indices() -> Callable[[int, tuple[int, ...]], list[Any]]:
    """A function `(axis, sizes) -> indices` of the consecutive pieces; keeps the last result."""
    known: tuple[Any, list[Any]] = (None, [])

    def indices(axis: int, sizes: tuple[int, ...]) -> list[Any]:
        nonlocal known
        wanted = (axis, sizes)
        seen, answer = known
        if seen == wanted:
            return answer
        start, answer = 0, []
        for size in sizes:
            answer.append(_at(axis, slice(start, start + size)))
            start += size
        known = (wanted, answer)
        return answer

    return indices
