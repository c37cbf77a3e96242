"""TFRecord files: a stream of byte strings, each with its length and checksums.

A record is `length` (8 bytes), its masked checksum (4), the data, its masked checksum (4),
little-endian.  The whole file may be compressed.
"""

from __future__ import annotations

import enum
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, BinaryIO

from aexec import native
from aexec.framework import errors
from aexec.framework.memory.memory import available_memory
from aexec.io.crc32c import masked_crc32c
from aexec.io.files import open_regular, os_error, reporting, text_path

__all__ = [
    "Compression",
    "Inflating",
    "Plain",
    "RecordReader",
    "RecordWriter",
    "opened",
    "read_records",
    "write_records",
]

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_CHUNK = 256 << 10
# Below this, a record and the header of the next are read at once.
_SHORT = 64 << 10
# Below this, asking the system for its free memory takes longer than is worth it.
_UNCHECKED_BYTES = 256 << 20


class Compression(enum.Enum):
    """How a whole file of records is compressed; the values are TensorFlow's names."""

    NONE = ""
    ZLIB = "ZLIB"
    GZIP = "GZIP"

    @classmethod
    def of(cls, name: str | bytes | Compression) -> Compression:
        """Raises InvalidArgumentError for an unknown name."""
        if isinstance(name, Compression):
            return name
        text = name.decode(errors="replace") if isinstance(name, bytes) else name
        try:
            return cls(text)
        except ValueError:
            raise errors.InvalidArgumentError(f"Unsupported compression_type:{text}") from None


# zlib's window bits: with a zlib header, with a gzip header.
_WINDOW = {Compression.ZLIB: 15, Compression.GZIP: 31}


class RecordReader:
    """Reads records one after another.  Iterate, or call `read` until it returns None.

    Args:
        path: the file.
        compression: how the file is compressed.

    Raises:
        NotFoundError: there is no such file; and other errors of the system.
    """

    def __init__(self, path: str | bytes, compression: str | bytes | Compression = "") -> None:
        self.path = text_path(path)
        kind = Compression.of(compression)
        self._file: BinaryIO = open_regular(self.path)
        self._source = opened(self._file, kind)
        self._header = b""  # of the next record, if it has been read
        self.offset = 0

    def read(self) -> bytes | None:
        """The next record, or None at the end.

        Raises:
            DataLossError: the file is cut off or corrupt here.
        """
        try:
            header = self._header or self._source.read(_HEADER.size)
            self._header = b""
            if not header:
                return None
            length = self._length(header)
            data, footer = self._data(length)
        except OSError as error:
            raise os_error(error, self.path) from error
        if len(data) < length or len(footer) < _FOOTER.size:
            raise errors.DataLossError(f"truncated record at {self.offset}")
        if _FOOTER.unpack(footer)[0] != masked_crc32c(data):
            raise errors.DataLossError(f"corrupted record at {self.offset}")
        self.offset += _HEADER.size + length + _FOOTER.size
        return data

    def _data(self, length: int) -> tuple[bytes, bytes]:
        """The data and the footer of the record at hand.  With short data the next header is read too."""
        if length > _SHORT:
            return self._source.read(length), self._source.read(_FOOTER.size)
        rest = self._source.read(length + _FOOTER.size + _HEADER.size)
        self._header = rest[length + _FOOTER.size :]
        return rest[:length], rest[length : length + _FOOTER.size]

    def _length(self, header: bytes) -> int:
        if len(header) < _HEADER.size:
            raise errors.DataLossError(f"truncated record at {self.offset}")
        length, checksum = _HEADER.unpack(header)
        if checksum != masked_crc32c(header[:8]):
            hint = " (Is this even a TFRecord file?)" if self.offset == 0 else ""
            raise errors.DataLossError(f"corrupted record at {self.offset}{hint}")
        return int(length)

    def seek(self, offset: int) -> None:
        """Go to the record at a byte offset, counted in uncompressed data.

        Raises:
            InvalidArgumentError: the offset lies before the present one in a compressed file.
        """
        with reporting(self.path):
            if self._header:
                self._source.unread(self._header)
                self._header = b""
            self._source.seek(offset)
        self.offset = offset

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the remaining records.  `offset` may be ahead of the record that was yielded last."""
        for records in self.lists():
            yield from records

    def lists(self) -> Iterator[list[bytes]]:
        """Iterate over the remaining records in non-empty lists; `offset` is that of the record after the list."""
        size = 0
        while True:
            if native.records is not None and size <= _SHORT and (found := self._whole_records(native.records)):
                yield found
            record = self.read()  # across the end of a piece, or wrong, or the last one
            if record is None:
                return
            size = len(record)
            yield [record]

    def _whole_records(self, records: Any) -> list[bytes]:
        """Read a piece of the file; return the records that lie completely in it, up to a corrupt one."""
        with reporting(self.path):
            piece = self._header + self._source.read(_CHUNK)
            self._header = b""
            found: list[bytes]
            found, used = records.split_records(piece)
            self._source.unread(piece[used:])
        self.offset += used
        return found

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Plain:
    """The bytes of a file.  A false length does not cause an allocation of that size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, count: int) -> bytes:
        if count <= _CHUNK:
            return self._file.read(count)
        left = os.fstat(self._file.fileno()).st_size - self._file.tell()
        return self._file.read(min(count, max(left, 0)))

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def unread(self, data: bytes) -> None:
        """Give back the last bytes that were read."""
        if data:
            self._file.seek(-len(data), os.SEEK_CUR)


class Inflating:
    """The decompressed bytes of a file, decompressed on demand."""

    def __init__(self, file: BinaryIO, compression: Compression) -> None:
        self._file = file
        self._window = _WINDOW[compression]
        self._inflate = zlib.decompressobj(self._window)
        self._ready = bytearray()
        self._position = 0

    def read(self, count: int) -> bytes:
        checked = _UNCHECKED_BYTES
        while len(self._ready) < count and self._more():
            if len(self._ready) > checked:
                # A small file may decompress to terabytes.  The result is a copy.
                if len(self._ready) > available_memory():
                    raise errors.ResourceExhaustedError(f"OOM when decompressing {count} bytes of a record")
                checked += _UNCHECKED_BYTES
        with memoryview(self._ready) as ready:
            data = bytes(ready[:count])
        del self._ready[:count]
        self._position += len(data)
        return data

    def _more(self) -> bool:
        """Decompress a piece; False at the end of the file."""
        if self._inflate.eof:  # a gzip file may consist of several members
            rest = self._inflate.unused_data or self._file.read(_CHUNK)
            if not rest:
                return False
            self._inflate = zlib.decompressobj(self._window)
        else:
            rest = self._inflate.unconsumed_tail or self._file.read(_CHUNK)
            if not rest:
                return False
        try:
            self._ready += self._inflate.decompress(rest, _CHUNK)
        except zlib.error as error:
            raise errors.DataLossError(f"inflate() failed with error: {error}") from error
        return True

    def unread(self, data: bytes) -> None:
        """As `Plain.unread`."""
        self._ready[:0] = data
        self._position -= len(data)

    def seek(self, offset: int) -> None:
        if offset < self._position:
            raise errors.InvalidArgumentError("Trying to read a compressed file backwards")
        while self._position < offset and self.read(min(_CHUNK, offset - self._position)):
            pass


def opened(file: BinaryIO, compression: Compression) -> Plain | Inflating:
    """The bytes of an open file, decompressed as they are read."""
    return Plain(file) if compression is Compression.NONE else Inflating(file, compression)


class RecordWriter:
    """Writes a file of records; use it as a context manager.

    Args:
        path: the file; replaced if it exists.
        compression: how to compress it.

    Raises:
        OpError: of the class that corresponds to the system's error.
    """

    def __init__(self, path: str | bytes, compression: str | bytes | Compression = "") -> None:
        self.path = text_path(path)
        window = _WINDOW.get(Compression.of(compression))
        self._deflate = None if window is None else zlib.compressobj(wbits=window)
        with reporting(self.path):
            self._file: BinaryIO = open(self.path, "wb")  # noqa: SIM115

    def write(self, data: bytes) -> None:
        """Append a record."""
        length = struct.pack("<Q", len(data))
        self._put(length + _FOOTER.pack(masked_crc32c(length)) + data + _FOOTER.pack(masked_crc32c(data)))

    def _put(self, data: bytes) -> None:
        with reporting(self.path):
            self._file.write(data if self._deflate is None else self._deflate.compress(data))

    def flush(self) -> None:
        """Write the records to the file, so that readers see them; a compressed file may hold some back."""
        with reporting(self.path):
            if self._deflate is not None:
                self._file.write(self._deflate.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()

    def close(self) -> None:
        """Write the remaining data and close the file.  Idempotent."""
        if self._file.closed:
            return
        with reporting(self.path):
            try:
                if self._deflate is not None:
                    self._file.write(self._deflate.flush())
            finally:
                self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_records(path: str | bytes, compression: str | bytes | Compression = "") -> Iterator[bytes]:
    """All records of a file.  Raises what `RecordReader` raises."""
    with RecordReader(path, compression) as reader:
        yield from reader


def write_records(path: str | bytes, records: Iterable[bytes], compression: str | bytes | Compression = "") -> None:
    """Write a file of records.  Raises what `RecordWriter` raises."""
    with RecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
