"""Datasets of the records in files of comma-separated values."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.io.record import Compression
from aexec.io.text_records import CSVError, CSVFields, Field, csv_records
from aexec.kernels.datasets.arguments import Made, flag, integer, text
from aexec.kernels.datasets.file_dataset_ops import names_of, of_files, piece_of
from aexec.kernels.parsing.number_ops import check_default, number_parser
from aexec.resources.datasets.dataset import Element
from aexec.resources.datasets.file_elements import Outcome


class _Column:
    """Makes a component of a field.

    Args:
        number: the position among the components.
        default: a scalar or a vector of at most one element; without an element the field is required.
        missing: a text that stands for no value, as the empty text does.
    """

    def __init__(self, number: int, dtype: DType, default: Any, missing: bytes) -> None:
        check_default(number, default)
        self._number, self._dtype, self._missing = number, dtype, missing
        self._default = default.reshape(()) if default.size else None
        self._parse = None if dtype is dtypes.string else number_parser(dtype)

    def value(self, field: bytes) -> Any:
        """Raises InvalidArgumentError for a field that is missing, or that is no number of this type."""
        if not field or field == self._missing:
            if self._default is None:
                raise errors.InvalidArgumentError(f"Field {self._number} is required but missing in record!")
            return self._default
        if self._parse is None:
            return np.array(field, object)
        value = self._parse(field)
        if value is None:
            raise errors.InvalidArgumentError(
                f"Field {self._number} in record is not a valid {self._dtype}: {abridged(field)}"
            )
        with np.errstate(over="ignore"):
            return np.array(value, self._dtype.np)


class _Records:
    """Makes elements of records.

    Args:
        columns: the components.
        selected: the numbers of the fields to take; empty for all.
        excluded: the numbers of the fields to leave out.
    """

    def __init__(self, columns: Sequence[_Column], selected: Sequence[int], excluded: Sequence[int]) -> None:
        self._columns = columns
        self._selected = frozenset(selected)
        self._excluded = frozenset(excluded)

    def element(self, fields: Sequence[Field]) -> Element:
        """Raises InvalidArgumentError for what is wrong with the record."""
        taken = list[bytes]()
        for number, field in enumerate(fields):
            if isinstance(field, CSVError):
                raise errors.InvalidArgumentError(field)
            if self._takes(number):
                taken.append(field)
        element = tuple([column.value(field) for column, field in zip(self._columns, taken, strict=False)])
        if len(taken) > len(self._columns):
            raise errors.InvalidArgumentError(f"Expect {len(self._columns)} fields but have more in record")
        if len(taken) < len(self._columns):
            raise errors.InvalidArgumentError(f"Expect {len(self._columns)} fields but have {len(taken)} in record")
        return element

    def _takes(self, number: int) -> bool:
        return number in self._selected if self._selected else number not in self._excluded

    def elements(
        self, name: bytes, fields: CSVFields, compression: Compression, *, has_header: bool
    ) -> Generator[Outcome, None, None]:
        """The elements of a file.  An error in a record comes in place of its element."""
        records = csv_records(name, fields, compression)
        if has_header:
            header = next(records, None)
            if header is None or any(isinstance(field, CSVError) for field in header):
                yield errors.InvalidArgumentError("Can't read header of file")
        for record in records:
            try:
                yield self.element(record)
            except errors.InvalidArgumentError as error:
                yield error


def _columns_of(tensor: Any, name: str) -> list[int]:
    """The numbers of an argument with columns.  Raises InvalidArgumentError unless they increase from 0 or more."""
    if tensor.ndim != 1:
        raise errors.InvalidArgumentError(f"`{name}` must be a vector.")
    numbers: list[int] = tensor.tolist()
    if any(after <= before for before, after in pairwise(numbers)):
        raise errors.InvalidArgumentError(f"{name} should be strictly increasing indices")
    if numbers and numbers[0] < 0:
        raise errors.InvalidArgumentError(f"{name} should be non-negative indices")
    return numbers


def _compression(tensor: Any) -> Compression:
    name = text(tensor, "compression_type")
    try:
        return Compression.of(name)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(f"Unsupported compression_type: {name.decode(errors='replace')}.") from None


@kernel("CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", cost=0)
def csv_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    types = made.types

    def compute(
        filenames: Any,
        compression_type: Any,
        buffer_size: Any,
        header: Any,
        field_delim: Any,
        use_quote_delim: Any,
        na_value: Any,
        select_cols: Any,
        *others: Any,
    ) -> Any:
        names = names_of(filenames)
        missing = text(na_value, "na_value")
        columns = [
            _Column(number, dtype, default, missing)
            for number, (dtype, default) in enumerate(zip(types, others, strict=False))
        ]
        size = integer(buffer_size, "buffer_size")
        if size <= 0:
            raise errors.InvalidArgumentError("buffer_size should be positive")
        delimiter = text(field_delim, "field_delim")
        if len(delimiter) != 1:
            raise errors.InvalidArgumentError("field_delim should be only 1 char")
        selected = _columns_of(select_cols, "select_cols")
        excluded = _columns_of(others[-1], "exclude_cols") if len(others) > len(types) else []
        if selected and len(selected) != len(types):
            raise errors.InvalidArgumentError("select_cols should match output size")
        if selected and excluded:
            raise errors.InvalidArgumentError("Either select_cols or exclude_cols should be empty")
        fields = CSVFields(delimiter, uses_quotes=flag(use_quote_delim, "use_quote_delim"))
        elements = partial(
            _Records(columns, selected, excluded).elements,
            fields=fields,
            compression=_compression(compression_type),
            has_header=flag(header, "header"),
        )
        return of_files(c, types, made.shapes, lambda: (partial(elements, name) for name in names), piece_of(size))

    return compute
