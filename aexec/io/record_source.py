"""Record sources: iterators of (key, value) pairs over one file, for the reader ops.

A function per kind of file opens a path and returns the iterator.  The call raises errors at the start of the file, the
iterator later ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from aexec.framework import errors
from aexec.io.files import open_regular, read_file, reporting, text_path
from aexec.io.record import Compression, Inflating, Plain, RecordReader, opened

__all__ = [
    "Record",
    "fixed_length_records",
    "identity",
    "text_lines",
    "tf_records",
    "whole_file",
    "whole_fixed_length_records",
]

# Key and value.
Record = tuple[bytes, bytes]


def identity(work: bytes) -> Iterator[Record]:
    """Yield the name itself as key and value; no file is read."""
    yield work, work


def whole_file(work: bytes) -> Iterator[Record]:
    """Yield the contents of the file, with its name as key."""
    yield work, read_file(text_path(work))


def text_lines(work: bytes, skip_header_lines: int = 0) -> Iterator[Record]:
    """The lines without their ends (LF or CR LF), with keys `name:number` from 1."""
    path = text_path(work)
    file = open_regular(path)

    def lines() -> Iterator[Record]:
        with closing(file), reporting(path):
            for number, line in enumerate(file, 1):
                if number > skip_header_lines:
                    if line.endswith(b"\n"):
                        line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
                    yield b"%s:%d" % (work, number), line

    return lines()


def tf_records(work: bytes, compression: Compression = Compression.NONE) -> Iterator[Record]:
    """The records of a TFRecord file, with keys `name:offset`."""
    reader = RecordReader(work, compression)

    def records() -> Iterator[Record]:
        with reader:
            while True:
                key = b"%s:%d" % (work, reader.offset)
                record = reader.read()
                if record is None:
                    return
                yield key, record

    return records()


def fixed_length_records(
    work: bytes,
    record_bytes: int,
    *,
    header_bytes: int = 0,
    footer_bytes: int = 0,
    hop_bytes: int = 0,
    compression: Compression = Compression.NONE,
) -> Iterator[Record]:
    """Records of one length between header and footer, with keys `name:number` from 0.

    Args:
        work: the file.
        record_bytes: length of a record.
        header_bytes, footer_bytes: bytes to leave out at both ends.
        hop_bytes: from the start of one record to that of the next; 0 for `record_bytes`.
        compression: how the file is compressed.

    Raises:
        OutOfRangeError: the file is shorter than the header.
    """
    path = text_path(work)
    file = open_regular(path)
    source = opened(file, compression)
    try:
        with reporting(path):
            if _skip(source, header_bytes) < header_bytes:
                raise errors.OutOfRangeError("reached end of file")
    except BaseException:
        file.close()
        raise

    def records() -> Iterator[Record]:
        window = b""
        hop = hop_bytes or record_bytes
        number = 0
        with closing(file), reporting(path):
            while True:
                # A record and the footer must be there in full; the next record may overlap this one.
                window += source.read(record_bytes + footer_bytes - len(window))
                if len(window) < record_bytes + footer_bytes:
                    return
                yield b"%s:%d" % (work, number), window[:record_bytes]
                number += 1
                if _skip(source, hop - len(window)) < hop - len(window):
                    return
                window = window[hop:]

    return records()


def whole_fixed_length_records(
    path: bytes, record_bytes: int, *, header_bytes: int, footer_bytes: int, compression: Compression
) -> Iterator[bytes]:
    """Records of one length between header and footer, in a file without incomplete records.

    Raises:
        InvalidArgumentError: the body's length is not a multiple of the record's; raised when the file is opened.
        DataLossError: the same for a compressed file; raised after the last complete record.
    """

    def refusal(length: int) -> str:
        return (
            f"Excluding the header ({header_bytes} bytes) and footer ({footer_bytes} bytes), input file "
            f'"{name}" has body length {length} bytes, which is not an exact multiple of the record length '
            f"({record_bytes} bytes)."
        )

    name = text_path(path)
    file = open_regular(name)
    with closing(file), reporting(name):
        if compression is Compression.NONE:
            length = os.fstat(file.fileno()).st_size - header_bytes - footer_bytes
            if length < 0 or length % record_bytes:
                raise errors.InvalidArgumentError(refusal(length))
        source = opened(file, compression)
        length = _skip(source, header_bytes) - header_bytes
        window = source.read(footer_bytes)
        length += len(window) - footer_bytes
        while more := source.read(record_bytes):
            length += len(more)
            window += more
            if len(more) == record_bytes:
                yield window[:record_bytes]
                window = window[record_bytes:]
        if length < 0 or length % record_bytes:
            raise errors.DataLossError(refusal(length))


def _skip(source: Plain | Inflating, count: int) -> int:
    """Read and drop up to `count` bytes; return how many there were."""
    skipped = 0
    while skipped < count:
        data = source.read(min(count - skipped, 1 << 20))
        if not data:
            break
        skipped += len(data)
    return skipped
