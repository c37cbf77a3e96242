"""Datasets of what is in files: records, lines, and the names of files.

Next to read: `aexec/resources/datasets/file_elements.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import PartialTensorShape
from aexec.io import text_records
from aexec.io.files import reporting, text_path
from aexec.io.matching import matching_files
from aexec.io.record import Compression, RecordReader
from aexec.io.record_source import whole_fixed_length_records
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import integer, text
from aexec.resources.datasets.bare_strings import Strings
from aexec.resources.datasets.dataset import Element, Elements, Pass
from aexec.resources.datasets.file_elements import DEFAULT_PIECE, FileElements, Many, OpenFile

__all__ = ["Files", "names_of", "of_files", "piece_of"]

# The records of a file, in lists of one or more.
Records = Callable[[bytes], Iterable[list[bytes]]]
# The records that are made elements at a time.
_AT_ONCE = 250
# Begins a pass through files: opens each of them.
Files = Callable[[], Iterator[OpenFile]]


def names_of(filenames: Any) -> Any:
    """The file names of an argument, a scalar or a vector, as a view [n].

    There may be millions: a list of them would hold the event loop.  Raises InvalidArgumentError for another shape.
    """
    if filenames.ndim > 1:
        raise errors.InvalidArgumentError("`filenames` must be a scalar or a vector.")
    return filenames.reshape(-1)


def piece_of(buffer_size: int) -> int:
    """The bytes to read at a time for a `buffer_size`; 0 stands for the default."""
    return buffer_size or DEFAULT_PIECE


def _compression(tensor: Any) -> Compression:
    try:
        return Compression.of(text(tensor, "compression_type"))
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError("Unsupported compression_type.") from None


def of_files(
    c: OpKernelConstruction,
    types: tuple[dtypes.DType, ...],
    shapes: tuple[PartialTensorShape, ...],
    files: Files,
    piece: int,
) -> Any:
    """The node's output: a dataset of the elements of files.

    Args:
        types, shapes: of an element's components.
        files: goes through the files.
        piece: the bytes to read at a time.
    """
    return boxed(Elements(c.name, types, shapes, lambda one: FileElements(one, files(), piece)))


# Opens each of the files to read its records.
_Files = Callable[[], Iterator[Callable[[], Iterable[list[bytes]]]]]


def _of_records(c: OpKernelConstruction, files: _Files, buffer_size: int) -> Any:
    piece = piece_of(buffer_size)

    def made(elements: Callable[[list[bytes]], list[Element]]) -> Callable[[Pass], FileElements]:
        return lambda one: FileElements(one, (partial(_many, records, elements) for records in files()), piece)

    return boxed(Strings(c.name, made(_arrays), made(_bare)))


def _files(names: Any, records: Records) -> _Files:
    return lambda: (partial(records, name) for name in names)


def _many(
    records: Callable[[], Iterable[list[bytes]]], elements: Callable[[list[bytes]], list[Element]]
) -> Generator[Many, None, None]:
    for found in records():
        for start in range(0, len(found), _AT_ONCE):
            some = found[start : start + _AT_ONCE]
            yield Many(elements(some), sum(map(len, some)))


def _arrays(strings: list[bytes]) -> list[Element]:
    return [(np.array(string, object),) for string in strings]


def _bare(strings: list[bytes]) -> list[Element]:
    return list(zip(strings, strict=True))


def _not_negative(number: int, name: str, hint: str = "") -> int:
    if number < 0:
        raise errors.InvalidArgumentError(f"`{name}` must be >= 0{hint}")
    return number


@kernel("TextLineDataset", cost=0)
def text_line_dataset(c: OpKernelConstruction) -> Compute:
    def compute(filenames: Any, compression_type: Any, buffer_size: Any) -> Any:
        names, compression = names_of(filenames), _compression(compression_type)
        size = _not_negative(integer(buffer_size, "buffer_size"), "buffer_size", " (0 == default)")
        return _of_records(c, _files(names, partial(text_records.lists_of_lines, compression=compression)), size)

    return compute


def _record_compression(tensor: Any) -> Compression:
    """As TensorFlow does for these files, take an unknown name for no compression."""
    try:
        return _compression(tensor)
    except errors.InvalidArgumentError:
        return Compression.NONE


def _records(name: bytes, compression: Compression, offset: int = 0) -> Iterator[list[bytes]]:
    with RecordReader(name, compression) as reader:
        if offset:
            reader.seek(offset)
        yield from reader.lists()


@kernel("TFRecordDataset", "TFRecordDatasetV2", cost=0.3)
def tf_record_dataset(c: OpKernelConstruction) -> Compute:
    """Records of each file from its start, or from its byte offset."""

    def compute(filenames: Any, compression_type: Any, buffer_size: Any, byte_offsets: Any = None) -> Any:
        names, compression = names_of(filenames), _record_compression(compression_type)
        size = max(0, integer(buffer_size, "buffer_size"))
        if byte_offsets is None or not byte_offsets.size:
            return _of_records(c, _files(names, partial(_records, compression=compression)), size)
        if byte_offsets.ndim > 1:
            raise errors.InvalidArgumentError("`byte_offsets` must be a scalar or a vector.")
        if byte_offsets.size != len(names):
            raise errors.InvalidArgumentError("`byte_offsets` must be of same size as `filenames`")
        _not_negative(int(byte_offsets.min()), "byte_offsets")
        offsets = byte_offsets.reshape(-1)

        def files() -> Iterator[Callable[[], Iterable[list[bytes]]]]:
            for name, offset in zip(names, offsets, strict=True):
                yield partial(_records, name, compression, int(offset))

        return _of_records(c, files, size)

    return compute


@kernel("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2", cost=0)
def fixed_length_record_dataset(c: OpKernelConstruction) -> Compute:
    def compute(
        filenames: Any,
        header_bytes: Any,
        record_bytes: Any,
        footer_bytes: Any,
        buffer_size: Any,
        compression_type: Any = None,
    ) -> Any:
        names = names_of(filenames)
        header = _not_negative(integer(header_bytes, "header_bytes"), "header_bytes")
        size = integer(record_bytes, "record_bytes")
        if size <= 0:
            raise errors.InvalidArgumentError("`record_bytes` must be > 0")
        footer = _not_negative(integer(footer_bytes, "footer_bytes"), "footer_bytes")
        buffer = _not_negative(integer(buffer_size, "buffer_size"), "buffer_size")
        compression = Compression.NONE if compression_type is None else _compression(compression_type)
        records = partial(
            _fixed_length_records,
            record_bytes=size,
            header_bytes=header,
            footer_bytes=footer,
            compression=compression,
        )
        return _of_records(c, _files(names, records), buffer)

    return compute


def _fixed_length_records(name: bytes, **layout: Any) -> Iterator[list[bytes]]:
    for record in whole_fixed_length_records(name, **layout):
        yield [record]


@kernel("MatchingFilesDataset", "ExperimentalMatchingFilesDataset", cost=0)
def matching_files_dataset(c: OpKernelConstruction) -> Compute:
    """The names of the files, not folders, that match each pattern, sorted; an error if none matches any."""

    def compute(patterns: Any) -> Any:
        return _of_records(c, lambda: iter([partial(_matching, patterns.reshape(-1))]), 0)

    return compute


def _matching(patterns: Iterable[bytes]) -> Iterator[list[bytes]]:
    found = False
    for pattern in map(text_path, patterns):
        with reporting(pattern):
            for name in matching_files(pattern):
                if not os.path.isdir(name):
                    found = True
                    yield [os.fsencode(name if os.path.dirname(name) else f"./{name}")]
    if not found:
        raise errors.NotFoundError("Don't find any matched files")
