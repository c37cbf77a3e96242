"""Sorted tables (SSTable): keys in ascending order with a value each, in checksummed blocks.

The index of a checkpoint is one.  A file is data blocks, an empty meta-index block, an index block (for each data block
a key not below its last one, and the block's position), and a footer with the position of the index.  Within a block a
key is stored as the number of bytes that it shares with its predecessor and the rest; at *restarts* it shares nothing,
so that a search can begin there.  A table is not unpacked as a whole: because keys share bytes, a small file may hold
gigabytes of keys.  Blocks compressed with snappy (`snappy.py`) can be read; none are written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aexec.framework import errors
from aexec.framework.wire.wire_format import put_varint
from aexec.io.coding import get_varint
from aexec.io.crc32c import masked_crc32c
from aexec.io.snappy import uncompress

__all__ = ["Table", "TableBuilder"]

_MAGIC = 0xDB4775248B80FB57
_FOOTER_SIZE = 48
_TRAILER = struct.Struct("<BI")  # type of compression, checksum
_PLAIN, _SNAPPY = 0, 1
_BLOCK_SIZE = 262144
_RESTART_INTERVAL = 16
_MAX_KEY = 1 << 20
_MAX_KEPT = 1 << 26

Handle = tuple[int, int]


class Table:
    """A table in memory.

    Args:
        data: the whole file.

    Raises:
        DataLossError: it is not a table, or a block that is needed is corrupt.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        if len(data) < _FOOTER_SIZE:
            raise errors.DataLossError("file is too short to be an sstable")
        if struct.unpack("<Q", data[-8:])[0] != _MAGIC:
            raise errors.DataLossError("not an sstable (bad magic number)")
        footer = data[-_FOOTER_SIZE:-8]
        _, position = _get_handle(footer, 0)
        index, _ = _get_handle(footer, position)
        self._index = [(key, _get_handle(value, 0)[0]) for key, value in self._read_block(index).entries()]
        self._blocks: dict[Handle, _Block] = {}  # blocks that were read, in the order of their first use
        self._kept = 0  # the bytes of `_blocks`

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None if there is none."""
        low, high = 0, len(self._index)
        while low < high:
            middle = (low + high) // 2
            if self._index[middle][0] < key:
                low = middle + 1
            else:
                high = middle
        return None if low == len(self._index) else self._block(self._index[low][1]).get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys with their values, in order."""
        for _, handle in self._index:
            yield from self._block(handle).entries()

    def _block(self, handle: Handle) -> _Block:
        block = self._blocks.get(handle)
        if block is None:
            block = self._blocks[handle] = self._read_block(handle)
            self._kept += block.size
            while self._kept > _MAX_KEPT and len(self._blocks) > 1:
                self._kept -= self._blocks.pop(next(iter(self._blocks))).size
        return block

    def _read_block(self, handle: Handle) -> _Block:
        offset, size = handle
        end = offset + size
        if end + _TRAILER.size > len(self._data):
            raise errors.DataLossError("truncated block read")
        kind, checksum = _TRAILER.unpack_from(self._data, end)
        if masked_crc32c(self._data[offset : end + 1]) != checksum:
            raise errors.DataLossError("block checksum mismatch")
        contents = self._data[offset:end]
        if kind == _SNAPPY:
            contents = uncompress(contents)
        elif kind != _PLAIN:
            raise errors.DataLossError(f"bad block type {kind}")
        return _Block(contents)


def _get_handle(data: bytes, position: int) -> tuple[Handle, int]:
    offset, position = get_varint(data, position)
    size, position = get_varint(data, position)
    return (offset, size), position


class _Block:
    """One block: entries, then the offsets of the restarts and their count."""

    def __init__(self, data: bytes) -> None:
        if len(data) < 4:
            raise errors.DataLossError("bad block contents")
        count = struct.unpack("<I", data[-4:])[0]
        self._end = len(data) - 4 * (count + 1)
        if self._end < 0:
            raise errors.DataLossError("bad block contents")
        self._data = data
        self._restarts = struct.unpack(f"<{count}I", data[self._end : -4])
        if any(restart > self._end for restart in self._restarts):
            raise errors.DataLossError("bad restart in block")

    @property
    def size(self) -> int:
        return len(self._data)

    def entries(self, position: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """The entries from a restart on."""
        data, key = self._data, b""
        while position < self._end:
            shared, position = get_varint(data, position)
            rest, position = get_varint(data, position)
            length, position = get_varint(data, position)
            split = position + rest
            if shared > len(key) or split + length > self._end or shared + rest > _MAX_KEY:
                raise errors.DataLossError("bad entry in block")
            following = key[:shared] + data[position:split]
            if following < key:
                raise errors.DataLossError("keys of a block are not in order")
            key, position = following, split + length
            yield key, data[split:position]

    def get(self, key: bytes) -> bytes | None:
        low, high = 0, max(len(self._restarts) - 1, 0)
        while low < high:  # find the last restart whose key is not above `key`
            middle = (low + high + 1) // 2
            first = next(self.entries(self._restarts[middle]), None)
            if first is None or first[0] > key:
                high = middle - 1
            else:
                low = middle
        start = self._restarts[low] if self._restarts else 0
        for found, value in self.entries(start):
            if found >= key:
                return value if found == key else None
        return None


class TableBuilder:
    """Makes the bytes of a table; they equal TensorFlow's for the same entries."""

    def __init__(self, block_size: int = _BLOCK_SIZE) -> None:
        self._block_size = block_size
        self._out = bytearray()
        self._block = _BlockBuilder(_RESTART_INTERVAL)
        self._index = _BlockBuilder(1)
        self._last = b""
        self._pending: Handle | None = None

    def add(self, key: bytes, value: bytes) -> None:
        """Append an entry.  Raises InvalidArgumentError unless its key is above all keys before it."""
        if self._out or self._block.count:
            if key <= self._last:
                raise errors.InvalidArgumentError(f"keys of a table have to ascend: {self._last!r}, then {key!r}")
            if self._pending is not None:
                self._end_block(_separator(self._last, key))
        self._block.add(key, value)
        self._last = key
        if self._block.size >= self._block_size:
            self._pending = self._write(self._block)
            self._block = _BlockBuilder(_RESTART_INTERVAL)

    def finish(self) -> bytes:
        """Return the whole file."""
        if self._block.count:
            self._pending = self._write(self._block)
        meta = self._write(_BlockBuilder(_RESTART_INTERVAL))
        if self._pending is not None:
            self._end_block(_successor(self._last))
        index = self._write(self._index)
        footer = _put_handle(meta) + _put_handle(index)
        self._out += footer.ljust(_FOOTER_SIZE - 8, b"\0") + struct.pack("<Q", _MAGIC)
        return bytes(self._out)

    def _end_block(self, separator: bytes) -> None:
        assert self._pending is not None
        self._index.add(separator, _put_handle(self._pending))
        self._pending = None

    def _write(self, block: _BlockBuilder) -> Handle:
        contents = block.finish()
        handle = (len(self._out), len(contents))
        self._out += contents + _TRAILER.pack(_PLAIN, masked_crc32c(contents + b"\0"))
        return handle


def _put_handle(handle: Handle) -> bytes:
    return put_varint(handle[0]) + put_varint(handle[1])


class _BlockBuilder:
    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._out = bytearray()
        self._restarts = [0]
        self._last = b""
        self.count = 0

    @property
    def size(self) -> int:
        return len(self._out) + 4 * (len(self._restarts) + 1)

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count % self._interval:
            shared = _shared(self._last, key)
        elif self.count:
            self._restarts.append(len(self._out))
        self._out += put_varint(shared) + put_varint(len(key) - shared) + put_varint(len(value)) + key[shared:] + value
        self._last = key
        self.count += 1

    def finish(self) -> bytes:
        return bytes(self._out) + struct.pack(f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts))


def _shared(first: bytes, second: bytes) -> int:
    """Length of the common prefix."""
    shared = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        shared += 1
    return shared


def _separator(last: bytes, following: bytes) -> bytes:
    """A short key that is at least `last` and below `following`."""
    shared = _shared(last, following)
    if shared < min(len(last), len(following)) and last[shared] + 1 < following[shared]:
        return last[:shared] + bytes([last[shared] + 1])
    return last


def _successor(last: bytes) -> bytes:
    """A short key that is at least `last`."""
    for position, byte in enumerate(last):
        if byte != 255:
            return last[:position] + bytes([byte + 1])
    return last
