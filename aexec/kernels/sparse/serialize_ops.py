"""Sparse tensors in rows of three elements: as serialised tensors or as variants.

In this form a minibatch of sparse tensors goes through queues and batching: its first dimension is cut into rows, and
rows are stacked again, with the smallest shape that holds them all.
Next to read: `map_ops.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, giving_way, let_others_run
from aexec.framework.wire import tensor_codec
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import repeated
from aexec.kernels.common.joining import ROW_NS, joined
from aexec.kernels.sparse import sparse_tensors as sparse

__all__ = ["Parts", "cut_into_rows", "stacked"]

# Indices, values, shape.
Parts = tuple[Any, Any, Any]

_COST = 50.0
# Nanoseconds per byte of a string; and the number of strings whose bytes are counted at most, twice.
_BYTE_NS, _SAMPLE = 3.0, 100
_AT_ONCE = DEFAULT.pieces(ROW_NS)
# For arrays of this many bytes, protobuf, which copies them several times, holds the interpreter's lock for too long.
_LARGE_PART = 1 << 20
# Rows without entries that are filled at a time.
_ROWS_AT_ONCE = 1 << 16


# ---- Taking apart


def cut_into_rows(indices: Any, values: Any, shape: Any) -> tuple[Any, Iterable[Parts], Parts]:
    """Cut the tensor along its first dimension.

    Returns:
        The numbers of the rows that have entries, the parts of each of them, and those of an empty row.

    Raises:
        InvalidArgumentError: it is a vector, or not a sparse tensor in row-major order.
    """
    sparse.check_ranks(indices, values, shape)
    dims = sparse.dims_of(shape)
    if len(dims) <= 1:
        raise errors.InvalidArgumentError(f"Rank of input SparseTensor should be > 1, but saw rank: {len(dims)}")
    sparse.create(indices, values, dims)
    sparse.check_order(indices, dims)
    starts = sparse.group_starts(indices[:, 0])
    empty = (np.empty((0, len(dims) - 1), np.int64), values[:0], shape[1:])
    bounds = [*starts.tolist(), len(indices)]
    parts = ((indices[i:j, 1:], values[i:j], shape[1:]) for i, j in itertools.pairwise(bounds))
    return indices[starts, 0], parts, empty


def _encoder(c: OpKernelConstruction) -> Callable[[Parts], list[Any]]:
    """A function from three arrays to three elements of the output type."""
    if c.attr("out_type") is dtypes.variant:
        return list
    types = (dtypes.int64, c.attr("T"), dtypes.int64)

    def encode(parts: Parts) -> list[Any]:
        return [_message(part, dtype) for part, dtype in zip(parts, types, strict=True)]

    return encode


def _message(part: Any, dtype: DType) -> bytes:
    if part.nbytes > _LARGE_PART and dtype.size:
        # Copied once, without the interpreter's lock.
        return b"".join(tensor_codec.to_parts(part, dtype))
    return tensor_codec.to_proto(part, dtype, compact=False, content_strings=True).SerializeToString()


def _set(out: Any, elements: Sequence[Any]) -> None:
    """Set arrays as elements of an object array: NumPy would unpack them in a single assignment."""
    for i, element in enumerate(elements):
        out[i] = element


def _text_bytes(values: Any) -> int:
    """Bytes of strings, of many estimated from a sample; 0 if the values are no strings."""
    if values.dtype != object:
        return 0
    every = max(1, values.size // _SAMPLE)
    return int(every * sum(map(len, values.flat[::every].tolist())))


def _serialized_scratch(indices: Any, values: Any, shape: Any) -> int:
    """Bytes of the tensors' messages, which hold strings one by one."""
    copied = indices.nbytes + values.nbytes + shape.nbytes + _text_bytes(values)
    return int(4 * copied + (100 * values.size if values.dtype == object else 0))


def _serialized_ns(indices: Any, values: Any, shape: Any) -> float:
    elements: int = indices.size + values.size + shape.size
    return _COST * elements + _BYTE_NS * _text_bytes(values)


@kernel("SerializeSparse", out_type=(dtypes.string, dtypes.variant), cost=_serialized_ns, scratch=_serialized_scratch)
def serialize_sparse(c: OpKernelConstruction) -> Compute:
    """Return a vector of three elements: indices, values and shape."""
    encode = _encoder(c)

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        sparse.check_ranks(indices, values, shape)
        out = np.empty(3, object)
        _set(out, encode((indices, values, shape)))
        return out

    return compute


@kernel(
    "SerializeManySparse",
    T=dtypes.ALL,
    out_type=(dtypes.string, dtypes.variant),
    cost=_serialized_ns,
    scratch=_serialized_scratch,
)
def serialize_many_sparse(c: OpKernelConstruction) -> Compute:
    """Like `serialize_sparse`, with a row for each index in the first dimension."""
    encode, allocate = _encoder(c), allocator(c)

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        present, parts, empty = cut_into_rows(indices, values, shape)
        out = allocate((int(shape[0]), 3))
        for column, element in enumerate(encode(empty)):
            boxed = np.empty((), object)
            boxed[()] = element
            for start in range(0, len(out), _ROWS_AT_ONCE):
                let_others_run()
                out[start : start + _ROWS_AT_ONCE, column] = boxed
        for row, part in zip(present.tolist(), parts, strict=True):
            _set(out[row], encode(part))
        return out

    return compute


# ---- Putting together


def _decode(element: Any) -> Any:
    if isinstance(element, bytes):
        try:
            return tensor_codec.from_proto(proto.TensorProto.FromString(element))
        except errors.ResourceExhaustedError:
            raise
        except Exception as e:  # protobuf's DecodeError differs between its implementations
            raise errors.InvalidArgumentError("Could not parse serialized proto") from e
    if not isinstance(element, np.ndarray | np.generic):
        raise errors.InvalidArgumentError("Could not get a tensor from serialized sparse variant")
    return np.asarray(element)


def _checked(index: int, elements: Sequence[Any], dtype: DType) -> Parts:
    """The arrays of sparse tensor number `index`."""
    indices, values, shape = map(_decode, elements)
    name = f"SparseTensor[{index}]"
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(
            f"Expected serialized_sparse[{index}, 0] to represent an index matrix but received shape "
            f"{shape_text(indices.shape)}"
        )
    if values.ndim != 1:
        raise errors.InvalidArgumentError(
            f"Expected serialized_sparse[{index}, 1] to represent a values vector but received shape "
            f"{shape_text(values.shape)}"
        )
    if shape.ndim != 1:
        raise errors.InvalidArgumentError(
            f"Expected serialized_sparse[{index}, 1] to be a shape vector but its shape is {shape_text(shape.shape)}"
        )
    if values.dtype != dtype.np:
        raise errors.InvalidArgumentError(
            f"Requested SparseTensor of type {dtype} but {name}.values.dtype() == {dtypes.from_numpy(values.dtype)}"
        )
    for place, array in ((0, indices), (2, shape)):
        if array.dtype != np.int64:
            raise errors.InvalidArgumentError(
                f"Expected serialized_sparse[{index}, {place}] to be of type int64 but received "
                f"{dtypes.from_numpy(array.dtype)}"
            )
    if values.size != len(indices):
        raise errors.InvalidArgumentError(
            f"Expected row counts of {name}.indices and {name}.values to match but they do not: "
            f"{len(indices)} vs. {values.size}"
        )
    if shape.size != indices.shape[1]:
        raise errors.InvalidArgumentError(
            f"Expected column counts of {name}.indices to match size of {name}.shape but they do not: "
            f"{indices.shape[1]} vs. {shape.size}"
        )
    return indices, values, shape


def stacked(tensors: Sequence[Parts], leading: tuple[int, ...], dtype: DType) -> Parts:
    """Stack sparse tensors of one rank to one whose rank is higher by the number of leading dimensions."""
    rank = tensors[0][2].size
    for i, (_, _, shape) in enumerate(giving_way(tensors, OBJECT_NS)):
        if shape.size != rank:
            raise errors.InvalidArgumentError(
                f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{i}] was: {rank} "
                f"but rank of SparseTensor[{i}] is: {shape.size}"
            )
    shape = np.concatenate((np.array(leading, np.int64), _widest([t[2] for t in tensors]).astype(np.int64)))
    sparse.check_shape(shape.tolist())
    lengths = np.fromiter((len(t[0]) for t in giving_way(tensors, OBJECT_NS)), np.int64, len(tensors))
    total = int(lengths.sum())
    rows = repeated(np.arange(len(tensors)), lengths)
    places = np.stack(np.unravel_index(rows, leading), axis=1).astype(np.int64)
    columns = tensors[0][0].shape[1]
    announce(total * (8 * (len(leading) + columns) + dtype.np.itemsize))
    inner = joined([t[0] for t in tensors], np.empty((total, columns), np.int64))
    values = joined([t[1] for t in tensors], np.empty(total, dtype.np))
    return np.concatenate((places, inner), axis=1), values, shape


def _widest(shapes: Sequence[Any]) -> Any:
    """The largest size in each dimension."""
    parts = (shapes[start : start + _AT_ONCE] for start in range(0, len(shapes), _AT_ONCE))
    return np.max([np.max(part, axis=0) for part in giving_way(parts, _AT_ONCE * ROW_NS)], axis=0)


@kernel("DeserializeSparse", Tserialized=(dtypes.string, dtypes.variant), cost=_COST)
@kernel("DeserializeManySparse", cost=_COST)
def deserialize_sparse(c: OpKernelConstruction) -> Compute:
    """Return the sparse tensor of a vector of three elements; for an array [..., 3], one with these leading
    dimensions.
    """
    dtype = c.attr("dtype")

    def compute(serialized: Any) -> Any:
        if not serialized.ndim:
            raise errors.InvalidArgumentError("Serialized sparse should have non-zero rank []")
        text = shape_text(serialized.shape)
        if serialized.shape[-1] != 3:
            raise errors.InvalidArgumentError(f"Serialized sparse should have 3 as the last dimension {text}")
        leading = serialized.shape[:-1]
        if not math.prod(leading):
            raise errors.InvalidArgumentError(
                f"Serialized sparse should have at least 1 serialized tensor, but has a zero dimension {text}"
            )
        rows = giving_way(serialized.reshape(-1, 3), _COST)
        tensors = [_checked(i, list(row), dtype) for i, row in enumerate(rows)]
        return tensors[0] if not leading else stacked(tensors, leading, dtype)

    return compute
