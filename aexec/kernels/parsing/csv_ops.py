"""Comma-separated values.  Next to read: `aexec/kernels/string/convert_ops.py`, which reads the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.strings import elements_of, string_array, string_cost
from aexec.kernels.parsing.number_ops import check_default, number_parser

__all__: list[str] = []

_COST = string_cost(2000, 50)
# Nanoseconds that a field takes, at least.
_FIELD_NS = 500.0
_QUOTE = b'"'


def _plain_fields(text: bytes, delimiter: bytes, allows_quotes: bool) -> list[bytes]:
    if b"\n" in text or b"\r" in text or (not allows_quotes and _QUOTE in text):
        raise errors.InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
    return text.split(delimiter)


def _quoted_field(record: bytes, start: int, delimiter: bytes) -> tuple[bytes, int]:
    """The field whose opening quote is before `start`, and the position of the closing quote."""
    pieces = []
    while True:
        end = record.find(_QUOTE, start)
        if end < 0:
            raise errors.InvalidArgumentError("Quoted field has to end with quote followed by delim or end")
        pieces.append(record[start:end])
        after = record[end + 1 : end + 2]
        if after in (b"", delimiter):
            return b"".join(pieces), end
        if after != _QUOTE:
            raise errors.InvalidArgumentError("Quote inside a string has to be escaped by another quote")
        pieces.append(_QUOTE)
        start = end + 2


def _fields(record: bytes, delimiter: bytes) -> list[bytes]:
    """The fields of a record, some of which may be in quotes."""
    if not record:
        return []
    if _QUOTE not in record:
        return _plain_fields(record, delimiter, allows_quotes=False)
    fields, at = [], 0
    while True:
        if record.startswith(_QUOTE, at):
            field, end = _quoted_field(record, at + 1, delimiter)
            end += 1
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            (field,) = _plain_fields(record[at:end], delimiter, allows_quotes=False)
        fields.append(field)
        if end >= len(record):
            return fields
        at = end + 1


class _Column:
    """Converts the texts of a column into an array.

    Args:
        number: its position among the outputs.
        default: a scalar or a vector of at most one element; without an element the field is required.
        missing: a text that stands for no value, as the empty text does.
    """

    def __init__(self, number: int, dtype: DType, default: Any, missing: bytes) -> None:
        check_default(number, default)
        self._number, self._dtype, self._missing = number, dtype, missing
        self._default = default.reshape(-1)[0] if default.size else None
        self._parse = None if dtype is dtypes.string else number_parser(dtype)

    def values(self, texts: Sequence[bytes], shape: Sequence[int]) -> Any:
        found = [self._value(i, text) for i, text in enumerate(giving_way(texts, _FIELD_NS))]
        if self._parse is None:
            return string_array(found, shape)
        with np.errstate(over="ignore"):
            return np.array(found, self._dtype.np).reshape(shape)

    def _value(self, record: int, text: bytes) -> Any:
        if not text or text == self._missing:
            if self._default is None:
                raise errors.InvalidArgumentError(f"Field {self._number} is required but missing in record {record}!")
            return self._default
        if self._parse is None:
            return text
        value = self._parse(text)
        if value is None:
            raise errors.InvalidArgumentError(
                f"Field {self._number} in record {record} is not a valid {self._dtype}: {abridged(text)}"
            )
        return value


@kernel("DecodeCSV", cost=_COST)
def decode_csv(c: OpKernelConstruction) -> Compute:
    """Return a tensor for each field, or each selected one, in the shape of the records."""
    types, selected, missing = c.attr("OUT_TYPE"), c.attr("select_cols"), c.attr("na_value")
    delimiter, uses_quotes = c.attr("field_delim"), c.attr("use_quote_delim")
    if len(delimiter) != 1:
        raise errors.InvalidArgumentError("field_delim should be only 1 char")
    if selected:
        if len(selected) != len(types):
            raise errors.InvalidArgumentError("select_cols should match output size")
        if any(b <= a for a, b in zip([-1, *selected], selected, strict=False)):
            raise errors.InvalidArgumentError("select_cols should be strictly increasing indices")

    def fields(record: bytes) -> list[bytes]:
        if uses_quotes:
            found = _fields(record, delimiter)
        else:
            found = _plain_fields(record, delimiter, allows_quotes=True) if record else []
        return [found[i] for i in selected if i < len(found)] if selected else found

    def compute(records: Any, *defaults: Any) -> Any:
        columns = [_Column(i, t, d, missing) for i, (t, d) in enumerate(zip(types, defaults, strict=True))]
        texts: list[list[bytes]] = [[] for _ in columns]
        for i, record in enumerate(giving_way(elements_of(records), _FIELD_NS)):
            found = fields(record)
            if len(found) != len(columns):
                raise errors.InvalidArgumentError(f"Expect {len(columns)} fields but have {len(found)} in record {i}")
            for column, text in zip(texts, found, strict=True):
                column.append(text)
        return tuple(column.values(t, records.shape) for column, t in zip(columns, texts, strict=True))

    return compute
