"""Tensor bundles (checkpoints of format V2): named tensors in data files, and an index of them.

`prefix.index` is a table: key "" holds the header, every other key the entry of a tensor
(type, shape, which data file, where in it, checksum).  The bytes are in
`prefix.data-00000-of-00001` and its like, one tensor after another.  A tensor that was
saved in slices has an entry that lists the slices, and each slice has its own entry.

**Writing is atomic.**  A checkpoint exists once its index is renamed into place, and not before.  A data file that an
existing index may refer to is never modified: a checkpoint that replaces one of the same prefix has another number of
data files in their names.  A crash therefore leaves either the old checkpoint or the new one.
Next to read: `table.py`; `aexec/kernels/io/save_restore_ops.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from types import TracebackType
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.progress import Advance, unheard
from aexec.framework.shape import shape_text
from aexec.framework.wire import variant
from aexec.framework.wire.wire_format import put_varint
from aexec.io.checkpoint_html import checkpoint_html
from aexec.io.coding import get_varint, name_slice_key
from aexec.io.crc32c import crc32c, mask, unmask
from aexec.io.files import (
    fsync_directory,
    make_directories,
    open_regular,
    reporting,
    temporary_name,
    text_path,
    write_atomically,
)
from aexec.io.table import Table, TableBuilder
from aexec.io.tensor_slice import TensorSlice

__all__ = ["BundleReader", "BundleWriter", "index_path", "merge_bundles", "remove_bundle"]

Array = Any

_MAX_RANK = 254
# Bytes that are read at once.
_PIECE = 16 << 20


def index_path(prefix: str) -> str:
    """The path of a checkpoint's index; the checkpoint exists if this file does."""
    return f"{prefix}.index"


def data_path(prefix: str, shard: int, num_shards: int) -> str:
    return f"{prefix}.data-{shard:05d}-of-{num_shards:05d}"


# Reading


class BundleReader:
    """Reads tensors of a checkpoint by name.

    Args:
        prefix: path of the checkpoint without `.index`.

    Attributes:
        on_read: called with the number of bytes that were read, while values are read.

    Raises:
        NotFoundError: there is no index file.
        DataLossError: the index is corrupt.
        UnimplementedError: it was written on a big-endian machine, or by a later version.
    """

    def __init__(self, prefix: str | bytes) -> None:
        self.prefix = text_path(prefix)
        self.on_read: Advance = unheard
        path = index_path(self.prefix)
        with reporting(path), open_regular(path) as file:
            data = file.read()
        self._table = Table(data)
        self._files: dict[int, BufferedReader] = {}
        header = self._table.get(b"")
        if header is None:
            raise errors.DataLossError(f"{path} has no header")
        self._header = _parsed(proto.BundleHeaderProto, header, path)
        if self._header.endianness != proto.BundleHeaderProto.LITTLE:
            raise errors.UnimplementedError(
                f"Reading a bundle with different endianness from the reader is not supported: {self.prefix}"
            )
        if self._header.version.min_consumer > 1:
            raise errors.InvalidArgumentError(
                f"Checkpoint min consumer version {self._header.version.min_consumer} above current version 1 "
                f"for TensorFlow: {self.prefix}"
            )

    def __enter__(self) -> BundleReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    @property
    def num_shards(self) -> int:
        return int(self._header.num_shards)

    def keys(self) -> Iterator[str]:
        """Names of the tensors, sorted.  A tensor that was saved in slices is named once."""
        for key, _ in self.entries():
            if not key.startswith(b"\0"):  # slices' keys begin with a zero
                yield key.decode(errors="surrogateescape")

    def __contains__(self, name: str | bytes) -> bool:
        return self._table.get(_key(name)) is not None

    def entry(self, name: str | bytes) -> proto.BundleEntryProto:
        """The index entry of a tensor.  Raises NotFoundError: `Key x not found in checkpoint`."""
        return self._entry(_key(name), name)

    def entries(self) -> Iterator[tuple[bytes, proto.BundleEntryProto]]:
        """All index entries, including those of slices, by key."""
        for key, value in self._table.items():
            if key:
                yield key, self._parsed_entry(value, key)

    def check_files(self) -> None:
        """Check that the data files exist and are as long as the index says.

        Raises:
            NotFoundError: a data file is missing.
            DataLossError: a data file is too short.
        """
        last: dict[int, proto.BundleEntryProto] = {}
        for _, entry in self.entries():
            if not entry.slices:
                end = last.setdefault(entry.shard_id, entry)
                if entry.offset + entry.size > end.offset + end.size:
                    last[entry.shard_id] = entry
        for entry in last.values():
            self._check_size(entry)

    def _repr_html_(self) -> str:
        return checkpoint_html(self, self.prefix)

    def __repr__(self) -> str:
        return f"<BundleReader of {self.prefix!r}, shards {self.num_shards}>"

    def _entry(self, key: bytes, name: str | bytes) -> proto.BundleEntryProto:
        value = self._table.get(key)
        if value is None:
            raise errors.NotFoundError(f"Key {_name(name)} not found in checkpoint")
        return self._parsed_entry(value, name)

    def _parsed_entry(self, value: bytes, name: str | bytes) -> proto.BundleEntryProto:
        entry: proto.BundleEntryProto = _parsed(proto.BundleEntryProto, value, f"entry of {_name(name)}")
        if not 0 <= entry.shard_id < self._header.num_shards:
            raise errors.DataLossError(f"shard {entry.shard_id} of {_name(name)} is not one of {self.num_shards}")
        return entry

    def dtype_and_shape(self, name: str | bytes) -> tuple[DType, tuple[int, ...]]:
        """The type and the whole shape of a tensor.  Raises NotFoundError."""
        return _dtype_and_shape(self.entry(name), name)

    def size(self, name: str | bytes, box: TensorSlice | None = None) -> int:
        """The number of bytes that are read for a tensor, or for a slice of it.  Raises as `read` and `read_slice`."""
        entry = self.entry(name)
        if not entry.slices:
            return int(entry.size)
        _, shape = _dtype_and_shape(entry, name)
        wanted = (box or TensorSlice.full(len(shape))).within(shape)
        parts = [TensorSlice.from_proto(part) for part in entry.slices]
        used = [part for part in parts if _overlap(part.within(shape), wanted) is not None]
        return sum(int(self._entry(name_slice_key(_key(name), part.extents), name).size) for part in used)

    def read(self, name: str | bytes) -> Array:
        """A tensor; one that was saved in slices is assembled.

        Raises:
            NotFoundError: there is no tensor of that name, or its data file is missing.
            DataLossError: it is corrupt.
        """
        entry = self.entry(name)
        if not entry.slices:
            return self._value(entry, name)
        _, shape = _dtype_and_shape(entry, name)
        return self._assemble(entry, name, TensorSlice.full(len(shape)))

    def read_slice(self, name: str | bytes, box: TensorSlice) -> Array:
        """A slice of a tensor, whether that was saved in slices or not.

        Raises:
            InvalidArgumentError: the slice lies outside the tensor, or not all of it was saved. And what `read` raises.
        """
        entry = self.entry(name)
        _, shape = _dtype_and_shape(entry, name)
        index = box.within(shape)
        if not entry.slices:
            return np.ascontiguousarray(self._value(entry, name)[index])
        return self._assemble(entry, name, box)

    def _assemble(self, entry: proto.BundleEntryProto, name: str | bytes, wanted: TensorSlice) -> Array:
        dtype, shape = _dtype_and_shape(entry, name)
        target = wanted.within(shape)
        stored = [TensorSlice.from_proto(s) for s in entry.slices]
        boxes = [box.within(shape) for box in stored]
        overlaps = [(box, _overlap(place, target)) for box, place in zip(stored, boxes, strict=True)]
        used = [(box, common) for box, common in overlaps if common is not None]
        _check_disjoint([common for _, common in used], name)
        size = math.prod(b.stop - b.start for b in target)
        if sum(math.prod(c.stop - c.start for c in common) for _, common in used) != size:
            raise errors.InvalidArgumentError(
                f"Does not have sufficient slices for partitioned tensor {_name(name)} "
                f"to restore in slice_spec: {wanted}"
            )
        if len(used) == 1 and used[0][0].within(shape) == target:
            return self._slice(name, used[0][0], dtype, shape)
        out = np.empty([b.stop - b.start for b in target], dtype.np)
        for box, common in used:
            part = self._slice(name, box, dtype, shape)
            out[_relative(common, target)] = part[_relative(common, box.within(shape))]
        return out

    def _slice(self, name: str | bytes, box: TensorSlice, dtype: DType, whole: Sequence[int]) -> Array:
        entry = self._entry(name_slice_key(_key(name), box.extents), name)
        if _dtype_and_shape(entry, name) != (dtype, box.shape(whole)) or entry.slices:
            raise errors.DataLossError(f"slice {box} of {_name(name)} has another type or shape than the whole")
        return self._value(entry, name)

    def _value(self, entry: proto.BundleEntryProto, name: str | bytes) -> Array:
        dtype, shape = _dtype_and_shape(entry, name)
        count = math.prod(shape)
        if dtype.size and entry.size != count * dtype.np.itemsize:
            raise errors.DataLossError(
                f"Invalid size in bundle entry: key {_name(name)}; stored size {entry.size}; "
                f"expected size {count * dtype.np.itemsize}"
            )
        if dtype.size:
            # The array owns its memory, so that a variable may take it without a copy.
            array = self._allocated(entry, shape, dtype.np)
            self._check(entry, crc32c(self._read_into(entry, array)))
            return array
        raw = self._read_into(entry, self._allocated(entry, (entry.size,), np.dtype(np.uint8))).tobytes()
        values, crc = (_decode_strings if dtype is dtypes.string else _decode_variants)(raw, count)
        self._check(entry, crc)
        return np.fromiter(values, object, count).reshape(shape)

    def _check(self, entry: proto.BundleEntryProto, crc: int) -> None:
        if unmask(entry.crc32c) != crc:
            raise errors.DataLossError(
                f"TensorBundle at {self.prefix} shard {entry.shard_id} ({entry.size} bytes): Checksum does not match: "
                f"stored {unmask(entry.crc32c):08d} vs. calculated on the restored bytes {crc}"
            )

    def _allocated(self, entry: proto.BundleEntryProto, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A new array for an entry's value, after checking that the data file is large enough."""
        self._check_size(entry)
        return np.empty(shape, dtype)

    def _check_size(self, entry: proto.BundleEntryProto) -> None:
        """Raises NotFoundError or DataLossError unless the data file holds all bytes of the entry."""
        path = data_path(self.prefix, entry.shard_id, self.num_shards)
        file = self._files.get(entry.shard_id)
        with reporting(path):
            if file is None:
                file = self._files[entry.shard_id] = open_regular(path)
            available = os.fstat(file.fileno()).st_size
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > available:
            raise errors.DataLossError(
                f"{path} has {available} bytes, not {entry.size} at {entry.offset}: it is cut off or not the one "
                "that belongs to the index"
            )

    def _read_into(self, entry: proto.BundleEntryProto, array: Array) -> Array:
        """Read the entry's bytes into an array; return them."""
        raw = array.reshape(-1).view(np.uint8)
        path, file = data_path(self.prefix, entry.shard_id, self.num_shards), self._files[entry.shard_id]
        with reporting(path):
            file.seek(entry.offset)
            for start in range(0, raw.size, _PIECE):
                piece = raw[start : start + _PIECE]
                if file.readinto(piece.data) != piece.size:
                    raise errors.DataLossError(f"{path} was cut off while it was read")
                self.on_read(piece.size)
        return raw


def _key(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode(errors="surrogateescape")


def _name(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


def _parsed(kind: Any, data: bytes, what: str) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise errors.DataLossError(f"{what} is no {kind.DESCRIPTOR.name}") from None


def _dtype_and_shape(entry: proto.BundleEntryProto, name: str | bytes) -> tuple[DType, tuple[int, ...]]:
    shape = tuple(d.size for d in entry.shape.dim)
    if any(size < 0 for size in shape) or math.prod(shape) > 2**63 - 1 or len(shape) > _MAX_RANK:
        raise errors.DataLossError(f"{_name(name)} has an impossible shape {shape_text(shape)}")
    try:
        dtype = dtypes.as_dtype(int(entry.dtype))
    except errors.InvalidArgumentError:
        dtype = dtypes.resource
    if dtype.is_ref or dtype is dtypes.resource:
        raise errors.DataLossError(f"{_name(name)} has an impossible type {entry.dtype}")
    return dtype, shape


def _overlap(first: Sequence[slice], second: Sequence[slice]) -> tuple[slice, ...] | None:
    common = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(first, second, strict=True))
    return common if all(c.start < c.stop for c in common) else None


def _relative(box: Sequence[slice], origin: Sequence[slice]) -> tuple[slice, ...]:
    """The box as an index into `origin`, within which it lies."""
    return tuple(slice(b.start - o.start, b.stop - o.start) for b, o in zip(box, origin, strict=True))


def _check_disjoint(boxes: Sequence[Sequence[slice]], name: str | bytes) -> None:
    if len(boxes) < 2 or not boxes[0]:
        overlapping = len(boxes) > 1
    else:
        starts = np.array([[b.start for b in box] for box in boxes])
        stops = np.array([[b.stop for b in box] for box in boxes])
        overlapping = any(
            ((starts[:i] < stops[i]) & (starts[i] < stops[:i])).all(axis=1).any() for i in range(1, len(boxes))
        )
    if overlapping:
        raise errors.DataLossError(f"slices of {_name(name)} overlap")


def _decode_strings(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Return the strings and the checksum of their entry.  The data is their lengths, a checksum of those, and their
    bytes.
    """
    if count > len(data):  # each length takes a byte: refuse before any list is made
        raise errors.DataLossError(f"{count} strings do not fit into {len(data)} bytes")
    lengths = []
    position = 0
    for _ in range(count):
        length, position = get_varint(data, position)
        lengths.append(length)
    stored = data[position : position + 4]
    crc = crc32c(_length_bytes(lengths))
    if int.from_bytes(stored, "little") != mask(crc) or len(stored) < 4:
        raise errors.DataLossError("The length checksum does not match: strings of a tensor are corrupt")
    position += 4
    if position + sum(lengths) != len(data):
        raise errors.DataLossError("the lengths of strings do not add up to the size of their entry")
    crc = crc32c(data[position:], crc32c(stored, crc))
    strings = []
    for length in lengths:
        strings.append(data[position : position + length])
        position += length
    return strings, crc


def _length_bytes(lengths: Iterable[int]) -> bytes:
    return b"".join(length.to_bytes(4 if length < 2**32 else 8, "little") for length in lengths)


def _decode_variants(data: bytes, count: int) -> tuple[list[Any], int]:
    """Return the variants and the checksum of their entry, which covers everything, with lengths as 64-bit
    integers.
    """
    if count > len(data):
        raise errors.DataLossError(f"{count} variants do not fit into {len(data)} bytes")
    values = []
    position = crc = 0
    for _ in range(count):
        length, start = get_varint(data, position)
        end = start + length
        crc = crc32c(data[start:end], crc32c(length.to_bytes(8, "little"), crc))
        stored = data[end : end + 4]
        if len(stored) < 4 or int.from_bytes(stored, "little") != mask(crc):
            raise errors.DataLossError("a variant of a tensor is corrupt")
        crc = crc32c(stored, crc)
        values.append(variant.decode(_parsed(proto.VariantTensorDataProto, data[start:end], "a variant")))
        position = end + 4
    return values, crc


# Writing


class BundleWriter:
    """Writes a checkpoint of one data file; nothing is visible at `prefix` before `finish`.

    Use it as a context manager: leaving the block finishes, an exception in it discards.

    Args:
        prefix: path without `.index`; its directory is created if missing.

    Raises:
        OpError: of the class that corresponds to the system's error.
    """

    def __init__(self, prefix: str | bytes) -> None:
        self.prefix = text_path(prefix)
        self._entries: dict[bytes, proto.BundleEntryProto] = {}
        self._offset = 0
        make_directories(os.path.dirname(self.prefix))
        self._temporary = temporary_name(data_path(self.prefix, 0, 1))
        with reporting(self._temporary):
            self._file = open(self._temporary, "xb")  # noqa: SIM115

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.discard()

    def add(self, name: str | bytes, array: Array, dtype: DType | None = None) -> None:
        """Write a tensor.

        Args:
            name: its name; not empty, and not added before.
            array: its value.
            dtype: its type, if the array's type does not tell (quantised types).

        Raises:
            InvalidArgumentError: the name is taken, or the value cannot be written.
        """
        key = _key(name)
        if not key:
            raise errors.InvalidArgumentError("a tensor of a checkpoint needs a name")
        self._add(key, name, array, dtype)

    def add_slice(
        self, name: str | bytes, shape: Sequence[int], box: TensorSlice, array: Array, dtype: DType | None = None
    ) -> None:
        """Write a slice of the tensor `name`, which has this shape as a whole.

        Raises:
            InvalidArgumentError: the value does not have the slice's shape, or an earlier slice gave another type or
                shape of the tensor.
        """
        array = np.asarray(array)
        kind = dtype or dtypes.from_numpy(array.dtype)
        if array.shape != box.shape(shape):
            raise errors.InvalidArgumentError(
                f"Slice {box} of {_name(name)} in shape {shape_text(shape)} has another shape than the "
                f"tensor's {shape_text(array.shape)}"
            )
        whole = self._entries.get(_key(name))
        if whole is None:
            whole = self._entries[_key(name)] = _entry(kind, shape)
        elif not whole.slices or _dtype_and_shape(whole, name) != (kind, tuple(shape)):
            raise errors.InvalidArgumentError(f"Slices of {_name(name)} disagree on its type or shape")
        whole.slices.append(box.to_proto())
        self._add(name_slice_key(_key(name), box.extents), name, array, kind)

    def _add(self, key: bytes, name: str | bytes, array: Array, dtype: DType | None) -> None:
        if key in self._entries:
            raise errors.InvalidArgumentError(f"Adding duplicate key: {_name(name)}")
        array = np.asarray(array)
        kind = dtype or dtypes.from_numpy(array.dtype)
        entry = _entry(kind, array.shape)
        with reporting(self._temporary):
            size, crc = self._write(array, kind, name)
        entry.shard_id, entry.offset, entry.size, entry.crc32c = 0, self._offset, size, mask(crc)
        self._entries[key] = entry
        self._offset += size

    def _write(self, array: Array, dtype: DType, name: str | bytes) -> tuple[int, int]:
        if dtype.size:
            raw = np.ascontiguousarray(array, dtype.np.newbyteorder("<")).reshape(-1).view(np.uint8)
            self._file.write(raw.data)
            return raw.size, crc32c(raw)
        if dtype not in (dtypes.string, dtypes.variant):
            raise errors.UnimplementedError(f"Saving tensor {_name(name)} of type {dtype} is not supported")
        encode = _encode_strings if dtype is dtypes.string else _encode_variants
        parts, crc = encode(array.reshape(-1).tolist())
        self._file.writelines(parts)
        return sum(map(len, parts)), crc

    def finish(self) -> None:
        """Make the written tensors the checkpoint `prefix`, replacing an existing one."""
        try:
            with reporting(self._temporary):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            _commit(self.prefix, [self._temporary], self._entries)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Delete the written files."""
        self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _entry(dtype: DType, shape: Sequence[int]) -> proto.BundleEntryProto:
    entry = proto.BundleEntryProto(dtype=dtype.enum)
    entry.shape.SetInParent()
    for size in shape:
        entry.shape.dim.add(size=size)
    return entry


def _encode_strings(values: Sequence[Any]) -> tuple[list[bytes], int]:
    """Return the pieces to write, and the checksum of their entry: see `_decode_strings`."""
    strings = [v if isinstance(v, bytes) else str(v).encode() for v in values]
    lengths = [len(s) for s in strings]
    crc = crc32c(_length_bytes(lengths))
    checksum = mask(crc).to_bytes(4, "little")
    data = b"".join(strings)
    return [*map(put_varint, lengths), checksum, data], crc32c(data, crc32c(checksum, crc))


def _encode_variants(values: Sequence[Any]) -> tuple[list[bytes], int]:
    parts = []
    crc = 0
    for value in values:
        data = variant.encode(value).SerializeToString()
        crc = crc32c(data, crc32c(len(data).to_bytes(8, "little"), crc))
        checksum = mask(crc).to_bytes(4, "little")
        crc = crc32c(checksum, crc)
        parts.append(put_varint(len(data)) + data + checksum)
    return parts, crc


def _commit(prefix: str, data_files: Sequence[str], entries: dict[bytes, proto.BundleEntryProto]) -> None:
    """Move data files into place, write the index that makes them a checkpoint, then delete the files that it
    replaced.
    """
    existing = _data_files(prefix)
    taken = {num_shards for _, num_shards in existing.values()}
    num_shards = max(len(data_files), 1)
    while num_shards in taken:
        num_shards += 1
    for shard, path in enumerate(data_files):
        with reporting(path):
            os.replace(path, data_path(prefix, shard, num_shards))
    fsync_directory(os.path.dirname(prefix))
    header = proto.BundleHeaderProto(num_shards=num_shards)
    header.version.producer = 1
    table = TableBuilder()
    table.add(b"", header.SerializeToString(deterministic=True))
    for key in sorted(entries):
        table.add(key, entries[key].SerializeToString(deterministic=True))
    with write_atomically(index_path(prefix)) as file:
        file.write(table.finish())
    for path in existing:
        with contextlib.suppress(OSError):
            os.unlink(path)


_DATA_SUFFIX = re.compile(r"\.data-(\d{5,})-of-(\d{5,})", re.ASCII)


def _data_files(prefix: str) -> dict[str, tuple[int, int]]:
    """The existing data files of a prefix: path → (shard, number of shards)."""
    directory, base = os.path.split(prefix)
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(directory or "."):
            match = _DATA_SUFFIX.fullmatch(name, len(base)) if name.startswith(base) else None
            if match is not None:
                found[os.path.join(directory, name)] = (int(match[1]), int(match[2]))
    return found


def remove_bundle(prefix: str | bytes) -> None:
    """Delete a checkpoint, its index first, so that an incomplete one does not count.  Missing files are ignored."""
    prefix = text_path(prefix)
    for path in (index_path(prefix), *_data_files(prefix)):
        with contextlib.suppress(errors.NotFoundError), reporting(path):
            os.unlink(path)


def merge_bundles(prefixes: Sequence[str | bytes], destination: str | bytes, *, allow_missing: bool = False) -> None:
    """Merge checkpoints into one by moving their data files and joining their indexes.

    Args:
        prefixes: the checkpoints to merge; they no longer exist afterwards.
        destination: prefix of the result.
        allow_missing: ignore prefixes that do not exist, as long as one does.

    Raises:
        InvalidArgumentError: a checkpoint is missing, a tensor is in several of them, or slices contradict each other.
        DataLossError: one of them is corrupt.
    """
    target = text_path(destination)
    entries: dict[bytes, proto.BundleEntryProto] = {}
    data_files: list[str] = []
    sources = []
    for prefix in dict.fromkeys(map(text_path, prefixes)):
        if not os.path.exists(index_path(prefix)):
            if allow_missing:
                continue
            raise errors.InvalidArgumentError(
                f"allow_missing_files was set to false and {prefix} did not exist.NOT_FOUND: {prefix} not found"
            )
        sources.append(prefix)
        with BundleReader(prefix) as reader:
            # Data files that no entry refers to need not exist: see `_commit`.
            moved: dict[int, int] = {}
            for key, entry in reader.entries():
                if not entry.slices:
                    entry.shard_id = moved.setdefault(entry.shard_id, len(data_files) + len(moved))
                _merge_entry(entries, key, entry, prefix)
            data_files += [data_path(prefix, shard, reader.num_shards) for shard in moved]
    if not sources:
        raise errors.InvalidArgumentError("At least one prefix checkpoint file must exist, but none existed.")
    make_directories(os.path.dirname(target))
    _commit(target, data_files, entries)
    for prefix in sources:
        if prefix != target:
            remove_bundle(prefix)


def _merge_entry(
    entries: dict[bytes, proto.BundleEntryProto], key: bytes, entry: proto.BundleEntryProto, prefix: str
) -> None:
    known = entries.get(key)
    if known is None:
        entries[key] = entry
        return
    if not (known.slices and entry.slices) or (known.dtype, known.shape) != (entry.dtype, entry.shape):
        raise errors.InvalidArgumentError(
            f"Duplicate tensor keyed by {_name(key)} encountered, when merging prefix: {prefix}"
        )
    # These are slices of a partitioned tensor, saved by several devices.
    known.slices.extend(entry.slices)
