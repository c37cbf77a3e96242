"""Reads lines and CSV records from text files, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

from aexec.framework import errors
from aexec.framework.memory.memory import available_memory
from aexec.io.files import open_regular, reporting, text_path
from aexec.io.record import Compression, opened

__all__ = ["CSVError", "CSVFields", "Field", "csv_records", "lines", "lists_of_lines"]

_CHUNK = 64 << 10
# Below this, asking the system for its free memory takes longer than is worth it.
_UNCHECKED_BYTES = 256 << 20
_QUOTE = b'"'


class CSVError(str):
    """Takes the place of a malformed field, with the reason."""

    __slots__ = ()


# A field's text, or what is wrong with it.
Field = bytes | CSVError


def lines(path: bytes, compression: Compression = Compression.NONE) -> Iterator[bytes]:
    """The lines of a file, split at LF and without any CR; text after the last LF is a line as well.

    Raises:
        NotFoundError: there is no such file; and other errors of the system.
        DataLossError: the file is not compressed in this way.
        ResourceExhaustedError: a line does not fit into memory.
    """
    for some in lists_of_lines(path, compression):
        yield from some


def lists_of_lines(path: bytes, compression: Compression = Compression.NONE) -> Iterator[list[bytes]]:
    """`lines` in non-empty lists."""
    name = text_path(path)
    file = open_regular(name)
    with closing(file), reporting(name):
        source = opened(file, compression)
        rest: list[bytes] = []
        while chunk := source.read(_CHUNK):
            some = chunk.split(b"\n")
            rest.append(some[0])
            if len(some) == 1:
                _check_memory(sum(map(len, rest)))
                continue
            some[0] = b"".join(rest)
            rest = [some.pop()]
            yield [line.replace(b"\r", b"") for line in some] if b"\r" in chunk or b"\r" in some[0] else some
        if last := b"".join(rest):
            yield [last.replace(b"\r", b"")]


def _check_memory(num_bytes: int) -> None:
    if num_bytes > _UNCHECKED_BYTES and num_bytes > available_memory():
        raise errors.ResourceExhaustedError(f"OOM when reading a record of more than {num_bytes} bytes")


class CSVFields:
    """Splits text into CSV records and their fields.

    Args:
        delimiter: the byte between two fields.
        uses_quotes: whether a quoted field may contain delimiters and line ends.
    """

    def __init__(self, delimiter: bytes, *, uses_quotes: bool) -> None:
        self._delimiter = delimiter
        self._uses_quotes = uses_quotes
        self._field_end = re.compile(b"[\n\r" + re.escape(delimiter) + b"]")

    def record(self, text: bytes, at: int, *, is_all: bool) -> tuple[list[Field], int] | None:
        """Split the record that begins at a position; return its fields, and the position of the next record.

        Args:
            is_all: True if the file ends with the text.

        Returns:
            None if the record does not end within the text.
        """
        fields: list[Field] = []
        while at < len(text):
            is_quoted = self._uses_quotes and text.startswith(_QUOTE, at)
            field, end = (self._quoted if is_quoted else self._plain)(text, at)
            if end >= len(text) and not is_all:
                return None
            fields.append(field)
            if text[end : end + 1] != self._delimiter:
                return self._ended(fields, text, end, is_all=is_all)
            at = end + 1
        return ([*fields, b""], at) if is_all else None

    @staticmethod
    def _ended(fields: list[Field], text: bytes, end: int, *, is_all: bool) -> tuple[list[Field], int] | None:
        """The record whose last field ends before `end`, at a line end or at the end of the text."""
        if not text.startswith(b"\r", end):
            return fields, end + 1
        if end + 1 == len(text) and not is_all:
            return None  # an LF that follows belongs to the same line end
        return fields, end + (2 if text.startswith(b"\n", end + 1) else 1)

    def _plain(self, text: bytes, at: int) -> tuple[Field, int]:
        """The field, and the position of what ends it."""
        found = self._field_end.search(text, at)
        end = len(text) if found is None else found.start()
        field = text[at:end]
        if self._uses_quotes and _QUOTE in field:
            return CSVError("Unquoted fields cannot have quotes inside"), end
        return field, end

    def _quoted(self, text: bytes, at: int) -> tuple[Field, int]:
        pieces, error = [], None
        at += 1
        while True:
            quote = text.find(_QUOTE, at)
            if quote < 0:
                return CSVError("Reached end of file without closing quoted field in record"), len(text)
            pieces.append(text[at:quote])
            after = text[quote + 1 : quote + 2]
            if not after or after in (self._delimiter, b"\n", b"\r"):
                return error or b"".join(pieces), quote + 1
            if after != _QUOTE:
                error = CSVError("Quote inside a string has to be escaped by another quote")
            pieces.append(_QUOTE)
            at = quote + 2


def csv_records(path: bytes, fields: CSVFields, compression: Compression = Compression.NONE) -> Iterator[list[Field]]:
    """The records of a file, each with its fields.

    Raises:
        As `lines`.
    """
    name = text_path(path)
    file = open_regular(name)
    with closing(file), reporting(name):
        source = opened(file, compression)
        text, at, size = source.read(_CHUNK), 0, _CHUNK
        is_all = not text
        while at < len(text) or not is_all:
            found = fields.record(text, at, is_all=is_all) if at < len(text) else None
            if found is not None:
                record, at = found
                yield record
                size = _CHUNK
                continue
            chunk = source.read(size)
            size *= 2  # so that a long record is looked through only a few times
            is_all = not chunk
            text, at = text[at:] + chunk, 0
            _check_memory(len(text))
