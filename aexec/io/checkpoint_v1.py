"""Checkpoints of format V1: one sorted table per file, which holds the tensors' values as messages.

Key "" holds the names, types, shapes and slices of all tensors; every slice has a key of its own whose value holds its
elements.  TensorFlow wrote these before 2017 and still reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, giving_way, let_others_run
from aexec.framework.wire import tensor_codec
from aexec.framework.wire.wire_format import enclosed
from aexec.io.checkpoint_html import checkpoint_html
from aexec.io.coding import name_slice_key
from aexec.io.files import open_regular, reporting, text_path, write_atomically
from aexec.io.matching import matching_files
from aexec.io.table import Table, TableBuilder
from aexec.io.tensor_slice import TensorSlice

__all__ = ["CheckpointV1Reader", "CheckpointV1Writer"]

Array = Any

# Types that the format cannot hold.
_UNSUPPORTED = (dtypes.resource, dtypes.variant, dtypes.uint32, dtypes.uint64)

_MAX_MESSAGE = 2**31 - 1  # bytes: protobuf's limit
_MESSAGE_HEAD = 1 << 10
# The maximal bytes of one element in a message.  Integers are varints, of ten bytes if they are negative.
_MOST_BYTES = {"float_val": 4, "double_val": 8, "scomplex_val": 8, "dcomplex_val": 16, "bool_val": 1, "half_val": 3}
_VARINT_BYTES = 10
_UNSIGNED_BYTES = 3  # for types of up to 16 bits
# Fields whose numbers have the same bytes in a message as in memory.
_AS_IN_MEMORY = ("float_val", "double_val", "scomplex_val", "dcomplex_val", "bool_val")
# `_AT_ONCE`: number of elements added to a message at a time.  The other two: number of copies of the values in memory
# while the message grows, and while its bytes and the parts of the table are made.
_AT_ONCE = DEFAULT.pieces(OBJECT_NS)
_GROWING, _WRITTEN = 3, 4


class CheckpointV1Reader:
    """Reads tensors from all files that match a pattern.

    Args:
        pattern: e.g. `model.ckpt` or `model.ckpt-?????-of-00002`.

    Raises:
        NotFoundError: no file matches.
        DataLossError: a file is not a checkpoint of format V1, or corrupt.
    """

    def __init__(self, pattern: str | bytes) -> None:
        self.pattern = text_path(pattern)
        with reporting(self.pattern):
            paths = matching_files(self.pattern)
        if not paths:
            raise errors.NotFoundError(
                "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for " + self.pattern
            )
        # name → (type, shape, [(slice, table that has it)])
        self._tensors: dict[str, tuple[DType, tuple[int, ...], list[tuple[TensorSlice, Table]]]] = {}
        for path in paths:
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            with reporting(path), open_regular(path) as file:
                table = Table(file.read())
            meta = _parsed(table.get(b"") or b"", path).meta
        except errors.OpError as error:
            raise type(error)(
                f"Unable to open table file {path}: {error.code.name}: {error.message}: perhaps your file is in a "
                "different file format and you need to use a different restore operator?"
            ) from error
        for saved in meta.tensor:
            dtype, shape = _dtype_and_shape(saved)
            known = self._tensors.setdefault(saved.name, (dtype, shape, []))
            if known[:2] != (dtype, shape):
                raise errors.DataLossError(f"Files of {self.pattern} disagree on type or shape of {saved.name}")
            boxes = [TensorSlice.from_proto(s) for s in saved.slice]
            known[2].extend((box, table) for box in boxes)

    def keys(self) -> list[str]:
        return sorted(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def dtype_and_shape(self, name: str) -> tuple[DType, tuple[int, ...]]:
        """The type and the whole shape of a tensor.  Raises NotFoundError."""
        found = self._tensors.get(name)
        if found is None:
            raise errors.NotFoundError(f'Tensor name "{name}" not found in checkpoint files {self.pattern}')
        return found[0], found[1]

    def _repr_html_(self) -> str:
        return checkpoint_html(self, self.pattern)

    def __repr__(self) -> str:
        return f"<CheckpointV1Reader of {self.pattern!r}, tensors {len(self._tensors)}>"

    def read(self, name: str, box: TensorSlice | None = None) -> Array:
        """A tensor, or a slice of it.

        Raises:
            NotFoundError: there is no tensor of that name.
            InvalidArgumentError: the slice lies outside the tensor, or not all of it was saved.
            DataLossError: the value is corrupt.
        """
        dtype, shape = self.dtype_and_shape(name)
        wanted = box or TensorSlice.full(len(shape))
        target = wanted.within(shape)
        pieces: list[tuple[tuple[slice, ...], Array]] = []
        for stored, table in self._tensors[name][2]:
            place = stored.within(shape)
            if place == target:
                return self._value(name, stored, table, dtype, stored.shape(shape))
            if all(p.start < t.stop and t.start < p.stop for p, t in zip(place, target, strict=True)):
                pieces.append((place, self._value(name, stored, table, dtype, stored.shape(shape))))
        size = tuple(t.stop - t.start for t in target)
        if math.prod(size) > sum(value.size for _, value in pieces):  # before anything of that size is allocated
            raise self._insufficient(name, wanted)
        out, covered = np.empty(size, dtype.np), np.zeros(size, np.bool_)
        for place, value in pieces:
            common = [(max(p.start, t.start), min(p.stop, t.stop)) for p, t in zip(place, target, strict=True)]
            into = tuple(slice(a - t.start, b - t.start) for (a, b), t in zip(common, target, strict=True))
            out[into] = value[tuple(slice(a - p.start, b - p.start) for (a, b), p in zip(common, place, strict=True))]
            covered[into] = True
        if not covered.all():
            raise self._insufficient(name, wanted)
        return out

    def _insufficient(self, name: str, wanted: TensorSlice) -> errors.OpError:
        return errors.InvalidArgumentError(f"Not all of slice {wanted} of {name} is in checkpoint files {self.pattern}")

    def _value(self, name: str, box: TensorSlice, table: Table, dtype: DType, shape: Sequence[int]) -> Array:
        value = table.get(name_slice_key(name.encode(), box.extents))
        if value is None:
            raise errors.DataLossError(f"slice {box} of {name} is missing from checkpoint files {self.pattern}")
        message = _parsed(value, self.pattern).data.data
        message.dtype = dtype.enum
        del message.tensor_shape.dim[:]
        for size in shape:
            message.tensor_shape.dim.add(size=size)
        try:
            return tensor_codec.from_proto(message, max_fill_bytes=0)
        except errors.OpError as error:
            raise errors.DataLossError(f"slice {box} of {name} is corrupt: {error.message}") from error


def _parsed(data: bytes, path: str) -> proto.SavedTensorSlices:
    try:
        return proto.SavedTensorSlices.FromString(data)
    except DecodeError:
        raise errors.DataLossError(f"{path} holds something that is no SavedTensorSlices") from None


def _dtype_and_shape(saved: proto.SavedSliceMeta) -> tuple[DType, tuple[int, ...]]:
    shape = tuple(d.size for d in saved.shape.dim)
    try:
        dtype = dtypes.as_dtype(int(saved.type))
    except errors.InvalidArgumentError:
        dtype = dtypes.resource
    if any(size < 0 for size in shape) or len(shape) > 254 or dtype.is_ref or dtype in _UNSUPPORTED:
        raise errors.DataLossError(f"{saved.name} has an impossible type {saved.type} or shape {shape_text(shape)}")
    return dtype, shape


class CheckpointV1Writer:
    """Collects tensors; `finish` writes them atomically as one file of format V1."""

    def __init__(self, path: str | bytes) -> None:
        self.path = text_path(path)
        self._known: dict[str, proto.SavedSliceMeta] = {}
        self._data: dict[bytes, bytes] = {}
        self._grown = 0  # the most bytes that a tensor so far took while it was put into its message

    def add(
        self,
        name: str,
        array: Array,
        dtype: DType,
        whole: Sequence[int] | None = None,
        box: TensorSlice | None = None,
    ) -> None:
        """Add a tensor, or a slice `box` of one of shape `whole`.

        Raises:
            InvalidArgumentError: the slice was added before, contradicts another slice, or is larger than
                a message may be.
            UnimplementedError: the format cannot hold this type.
        """
        if dtype in _UNSUPPORTED or not dtype.np.itemsize:
            raise errors.UnimplementedError(f"Saving data type {dtype} not yet supported")
        shape = tuple(array.shape if whole is None else whole)
        part = box or TensorSlice.full(len(shape))
        if tuple(array.shape) != part.shape(shape):
            raise errors.InvalidArgumentError(
                f"Slice {part} of {name} in shape {shape_text(shape)} has another shape than the tensor's "
                f"{shape_text(array.shape)}"
            )
        size = _message_bytes(name, array, dtype)
        grown = _GROWING * (size if dtype is dtypes.string else array.nbytes)
        announce_scratch(max(0, grown - self._grown))
        self._grown = max(grown, self._grown)
        saved = self._known.get(name)
        if saved is None:
            if _has_surrogates(name):
                raise errors.InvalidArgumentError(f"the name of a tensor has to be UTF-8: {name!r}")
            saved = self._known[name] = proto.SavedSliceMeta(
                name=name,
                type=dtype.enum,
            )
            saved.shape.SetInParent()
            for size in shape:
                saved.shape.dim.add(size=size)
        elif (saved.type, [d.size for d in saved.shape.dim]) != (dtype.enum, list(shape)):
            raise errors.InvalidArgumentError(f"Mismatching shapes or types: slices of {name} disagree")
        key = name_slice_key(name.encode(), part.extents)
        if key in self._data:
            raise errors.InvalidArgumentError(f"Overlapping slices: {name} {part} is saved twice")
        saved.slice.append(part.to_proto())
        message = proto.SavedTensorSlices()
        message.data.name = name
        message.data.slice.CopyFrom(part.to_proto())
        _put_values(message.data.data, array, dtype)
        announce_scratch(_WRITTEN * message.ByteSize())
        self._data[key] = message.SerializeToString(deterministic=True)

    def finish(self) -> None:
        """Write the file.  Raises OpError of the class that corresponds to the system's error."""
        header = proto.SavedTensorSlices()
        header.meta.tensor.extend(self._known[name] for name in sorted(self._known))
        header.meta.versions.producer = 1
        table = TableBuilder()
        table.add(b"", header.SerializeToString(deterministic=True))
        for key in sorted(self._data):
            table.add(key, self._data[key])
        with write_atomically(self.path) as file:
            file.write(table.finish())


def _message_bytes(name: str, array: Array, dtype: DType) -> int:
    """An upper bound of the bytes that these values take in a message.

    Raises InvalidArgumentError for values that might not fit; no message is built to find out.
    """
    if dtype is dtypes.string:
        size: int = sum(map(len, giving_way(array.flat, OBJECT_NS))) + array.size * _VARINT_BYTES
    else:
        whole = _UNSIGNED_BYTES if dtype.np.kind == "u" else _VARINT_BYTES
        size = array.size * _MOST_BYTES.get(tensor_codec.value_field(dtype), whole)
    if size + _MESSAGE_HEAD > _MAX_MESSAGE:
        raise errors.InvalidArgumentError(
            f"{name}: Tensor slice is too large to serialize (conservative estimate: {size + _MESSAGE_HEAD} bytes; "
            f"format V1 holds up to {_MAX_MESSAGE}): save in format V2, or in slices"
        )
    return size


def _has_surrogates(name: str) -> bool:
    """True if the name stands for bytes that are not UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in name)


def _put_values(message: proto.TensorProto, array: Array, dtype: DType) -> None:
    """Put the elements into the repeated field of their type, the only form that readers of this format accept."""
    field = tensor_codec.value_field(dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif dtype.is_complex:
        flat = flat.view(np.float32 if dtype is dtypes.complex64 else np.float64)
    number = message.DESCRIPTOR.fields_by_name[field].number
    values = getattr(message, field)
    for start in range(0, flat.size, _AT_ONCE):
        let_others_run()
        part = flat[start : start + _AT_ONCE]
        if field in _AS_IN_MEMORY:
            message.MergeFromString(b"".join(enclosed(number, [part.tobytes()])))
        else:
            values.extend(part.tolist())
