"""`Column`: the values of one feature in a batch of examples, read by protobuf or by the extension in C.

The extension reads messages as writers write them.  It leaves a batch with any other message to protobuf, whose
meaning of repeated, unknown and malformed fields is what counts.  Next to read: `example_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common.strings import array_of
from aexec.kernels.parsing.example_records import Values, joined, lengths_of

__all__ = ["Column", "as_ragged", "as_sparse", "read_columns"]

_MISSING = -1
# The fields of the message Feature.
_KINDS = {dtypes.string: 1, dtypes.float32: 2, dtypes.int64: 3}
# The most examples, and the most bytes of several, for which the extension keeps the interpreter's lock.
_AT_ONCE, _BYTES_AT_ONCE = 1000, 256 << 10
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a feature in each of some examples.

    Attributes:
        values: a vector of all values, those of the first example first.
        lengths: int64 [examples], the number of values of each; -1 for an example without the feature.
    """

    values: Any
    lengths: Any

    @classmethod
    def of_rows(cls, rows: Sequence[Values | None], dtype: DType) -> Column:
        """The column with these values; None for an example without the feature."""
        lengths = np.array(lengths_of(rows), np.int64)
        if None in rows:
            lengths[[row is None for row in rows]] = _MISSING
        return cls(joined(rows, dtype), lengths)

    @property
    def sizes(self) -> Any:
        """`lengths`, with 0 for an example without the feature."""
        return np.maximum(self.lengths, 0)


def read_columns(examples: list[bytes], features: Sequence[tuple[str, DType]]) -> list[Column] | None:
    """The columns of some features, read by the extension; None if protobuf has to read these examples.

    Args:
        examples: serialised Example messages.
        features: the key and the type of each.
    """
    if native.records is None:
        return None
    keys, kinds = [key.encode() for key, _ in features], bytes([_KINDS[dtype] for _, dtype in features])
    parts: list[list[tuple[Any, bytearray]]] = []
    for piece, num_bytes in _pieces(examples):
        if parts:
            let_others_run()
        announce_scratch(_LENGTH_BYTES * len(keys) * len(piece) + num_bytes)
        part = native.records.parse_examples(piece, keys, kinds)
        if part is None:
            return None
        parts.append(part)
    return [_column([part[i] for part in parts], dtype) for i, (_, dtype) in enumerate(features)]


def _pieces(examples: list[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Some examples at a time, and their bytes."""
    for start in range(0, max(1, len(examples)), _AT_ONCE):
        piece = examples[start : start + _AT_ONCE]
        size = sum(map(len, piece))
        if size > _BYTES_AT_ONCE and len(piece) > 1:
            yield from _by_bytes(piece)
        else:
            yield piece, size


def _by_bytes(examples: list[bytes]) -> Iterator[tuple[list[bytes], int]]:
    piece: list[bytes] = []
    size = 0
    for example in examples:
        if piece and size + len(example) > _BYTES_AT_ONCE:
            yield piece, size
            piece, size = [], 0
        piece.append(example)
        size += len(example)
    yield piece, size


def _column(parts: Sequence[tuple[Any, bytearray]], dtype: DType) -> Column:
    values = [part for part, _ in parts]
    lengths = [np.frombuffer(part, np.int64) for _, part in parts]
    if dtype is dtypes.string:
        whole = array_of([value for part in values for value in part] if len(values) > 1 else values[0], object)
        return Column(whole, _whole(lengths))
    return Column(_whole([np.frombuffer(part, dtype.np) for part in values]), _whole(lengths))


def _whole(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def as_sparse(column: Column) -> tuple[Any, Any, Any]:
    """A sparse matrix with a row for each example."""
    lengths, values = column.sizes, column.values
    rows, longest = len(lengths), int(lengths.max(initial=0))
    indices = np.zeros((len(values), 2), np.int64)
    if longest == 1 and len(values) == rows:  # as words mostly are
        indices[:, 0] = np.arange(rows)
    else:
        starts = lengths.cumsum() - lengths
        indices[:, 0] = np.repeat(np.arange(rows), lengths)
        indices[:, 1] = np.arange(len(values)) - np.repeat(starts, lengths)
    return indices, values, np.array([rows, longest], np.int64)


def as_ragged(column: Column, splits_type: DType) -> tuple[Any, Any]:
    """Values and row splits, with a row for each example."""
    if len(column.values) > splits_type.max:
        raise errors.InvalidArgumentError(f"{len(column.values)} values are too many for row splits of {splits_type}")
    splits = np.zeros(len(column.lengths) + 1, splits_type.np)
    np.cumsum(column.sizes, out=splits[1:])
    return column.values, splits
