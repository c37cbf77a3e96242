"""Reads the entries of a lookup table from a text file, one per line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.io.files import open_regular, reporting
from aexec.kernels.common.strings import string_array

__all__ = ["TextFileFormat"]

# A column index that stands for the whole line.
WHOLE_LINE = -2
LINE_NUMBER = -1

_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class TextFileFormat:
    """Says how the lines of a file are read as keys and values.

    Attributes:
        key_index, value_index: the column of each, or -2 for the whole line, -1 for its number.
        vocab_size: number of lines that are read and must be there; -1 for all.
        delimiter: one character, between columns.
        offset: added to line numbers.
    """

    key_index: int
    value_index: int
    vocab_size: int
    delimiter: bytes
    offset: int

    def check(self) -> None:
        """Raise InvalidArgumentError for inconsistent attrs."""
        if len(self.delimiter) != 1:
            raise errors.InvalidArgumentError("delimiter should be only 1 char")

    def read(self, path: str, key_dtype: DType, value_dtype: DType) -> tuple[Any, Any]:
        """Return keys and values, two vectors.

        Raises:
            InvalidArgumentError: a line has too few columns or does not parse, or there are too few lines.
            NotFoundError, PermissionDeniedError: the file cannot be opened.
            OutOfRangeError: the file is empty, or `vocab_size` is 0.
        """
        sides = [("Key", "key", self.key_index, key_dtype), ("Value", "value", self.value_index, value_dtype)]
        for title, name, index, dtype in sides:
            if index == LINE_NUMBER and dtype is not dtypes.int64:
                raise errors.InvalidArgumentError(
                    f"{title} index for line number requires table {name} dtype of int64, got {dtype}"
                )
        parsers = [_parser(dtype) for _, _, _, dtype in sides]
        columns: tuple[list[Any], list[Any]] = ([], [])
        if self.vocab_size == 0:
            raise errors.OutOfRangeError(f"Finished reading 0 of lines from {path}")
        with reporting(path), open_regular(path) as file:
            for number, line in enumerate(_lines(file, path)):
                if number == self.vocab_size:
                    break
                for column, parse, index in zip(columns, parsers, (self.key_index, self.value_index), strict=True):
                    column.append(self._field(path, line, number, index, parse))
        read = len(columns[0])
        if not read:
            raise errors.OutOfRangeError("Read less bytes than requested")
        if read < self.vocab_size:
            raise errors.InvalidArgumentError(
                f"Invalid vocab_size in {path}: expected {self.vocab_size} but got {read}"
            )
        return _array(columns[0], key_dtype), _array(columns[1], value_dtype)

    def _field(self, path: str, line: bytes, number: int, index: int, parse: Callable[[bytes, int], Any]) -> Any:
        if index == LINE_NUMBER:
            return number + self.offset
        if index == WHOLE_LINE:
            return parse(line, number)
        fields = line.split(self.delimiter)
        if index >= len(fields):
            raise errors.InvalidArgumentError(
                f"Invalid number of columns in {path} line {number} ({abridged(line)}) : "
                f"expected at least {index + 1} got {len(fields)}"
            )
        return parse(fields[index], number)


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    position = 0
    for raw in file:
        position += len(raw)
        line = raw.replace(b"\r", b"").removesuffix(b"\n")
        if not line:
            raise errors.InvalidArgumentError(f"Invalid content in {path}: empty line found at position {position}.")
        yield line


def _parser(dtype: DType) -> Callable[[bytes, int], Any]:
    """A function from a field and its line's number to a value."""
    if dtype is dtypes.string:
        return lambda field, number: field
    if dtype in (dtypes.int32, dtypes.int64):
        limits = np.iinfo(dtype.np)

        def integer(field: bytes, number: int) -> int:
            # A longer number is certainly out of range.
            value = int(field) if len(field) < 100 and _INTEGER.fullmatch(field) else None
            if value is None or not limits.min <= value <= limits.max:
                raise _invalid(field, number, dtype)
            return value

        return integer
    if dtype in (dtypes.float32, dtypes.float64):

        def floating(field: bytes, number: int) -> float:
            try:
                return float(field.replace(b"_", b"?"))
            except ValueError:
                raise _invalid(field, number, dtype) from None

        return floating
    raise errors.InvalidArgumentError(f"Data type {dtype} not supported.")


def _invalid(field: bytes, number: int, dtype: DType) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"Field {abridged(field)} in line {number} is not a valid {dtype}.")


def _array(values: list[Any], dtype: DType) -> Any:
    return string_array(values) if dtype is dtypes.string else np.array(values, dtype.np)
