"""Datasets that read files: records, lines, and rows of CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from aexec.control_flow.function import TensorSpec
from aexec.data.dataset import Dataset
from aexec.data.dataset_base import building
from aexec.data.file_names import filenames_of
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["CsvDataset", "FixedLengthRecordDataset", "TFRecordDataset", "TextLineDataset"]

_SCALAR = PartialTensorShape([])
_STRING = TensorSpec(_SCALAR, dtypes.string)
_BUFFER, _CSV_BUFFER = 256 * 1024, 4 * 1024 * 1024


def _read(
    dataset_class: type[Any], filenames: Any, num_parallel_reads: Any, read_one: Callable[[Tensor], Any]
) -> Tensor:
    """Build the variant of a reader over several files, sequential or interleaved."""
    with building():
        names = filenames_of(dataset_class, filenames)
        if num_parallel_reads is None:
            made = names.flat_map(read_one)
        else:
            made = names.interleave(
                read_one, cycle_length=num_parallel_reads, block_length=1, num_parallel_calls=num_parallel_reads
            )
        variant: Tensor = made.variant
        return variant


class _StringsOfFiles(Dataset):
    """The base of readers whose elements are strings; `_op` is the op.  Arguments are those of `TFRecordDataset`."""

    _op: ClassVar[str]

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        def read_one(filename: Tensor) -> Any:
            inputs = {
                "filenames": filename,
                "compression_type": compression_type or "",
                "buffer_size": _BUFFER if buffer_size is None else buffer_size,
            }
            return self.made(self._op, inputs, _STRING, name=name)

        super().__init__(_read(self.dialect.dataset_class, filenames, num_parallel_reads, read_one), _STRING)


class TFRecordDataset(_StringsOfFiles):
    """The records of TFRecord files, each a string.

    Args:
        filenames: one name, a tensor of names, or a dataset of them.
        compression_type: `""`, `"ZLIB"` or `"GZIP"`.
        buffer_size: bytes to read ahead.
        num_parallel_reads: number of files to interleave; by default files are read one after another.
    """

    _op = "TFRecordDataset"


class TextLineDataset(_StringsOfFiles):
    """The lines of text files, without line ends.  Arguments are those of `TFRecordDataset`."""

    _op = "TextLineDataset"


class FixedLengthRecordDataset(Dataset):
    """The records of files in which all records have the same length.

    Args:
        record_bytes: bytes of a record.
        header_bytes, footer_bytes: bytes to skip at the start and the end of a file; 0 by default.
        filenames, compression_type, buffer_size, num_parallel_reads: as for `TFRecordDataset`.
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        def read_one(filename: Tensor) -> Any:
            inputs = {
                "filenames": filename,
                "header_bytes": 0 if header_bytes is None else header_bytes,
                "record_bytes": record_bytes,
                "footer_bytes": 0 if footer_bytes is None else footer_bytes,
                "buffer_size": _BUFFER if buffer_size is None else buffer_size,
                "compression_type": compression_type or "",
            }
            return self.made("FixedLengthRecordDatasetV2", inputs, _STRING, name=name)

        super().__init__(_read(self.dialect.dataset_class, filenames, num_parallel_reads, read_one), _STRING)


class CsvDataset(Dataset):
    """The rows of CSV files: tuples with a scalar for each column.

    Args:
        filenames: one name, or a tensor of names.
        record_defaults: per column a default value, or the dtype of a column that is required.
        compression_type, buffer_size: as for `TFRecordDataset`.
        header: each file has a first line to skip.
        field_delim: the character between columns.
        use_quote_delim: double quotes enclose values.
        na_value: text of a field that counts as missing.
        select_cols: indices of the columns to read, ascending; all by default.
        exclude_cols: indices of the columns to skip, in place of `select_cols`.

    Raises:
        InvalidArgumentError: both `select_cols` and `exclude_cols` are given.
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: Any = None,
        buffer_size: Any = None,
        header: Any = False,
        field_delim: Any = ",",
        use_quote_delim: Any = True,
        na_value: Any = "",
        select_cols: Any = None,
        exclude_cols: Any = None,
    ) -> None:
        if select_cols is not None and exclude_cols is not None:
            raise errors.InvalidValueError("Should not specify both select_cols and exclude_cols.")
        with building():
            defaults = [_default(value) for value in record_defaults]
            spec = tuple(TensorSpec(_SCALAR, value.dtype.base) for value in defaults)
            inputs = {
                "filenames": filenames,
                "compression_type": compression_type or "",
                "buffer_size": _CSV_BUFFER if buffer_size is None else buffer_size,
                "header": header,
                "field_delim": field_delim,
                "use_quote_delim": use_quote_delim,
                "na_value": na_value,
                "select_cols": convert_to_tensor([] if select_cols is None else select_cols, dtypes.int64),
                "record_defaults": defaults,
            }
            op = "CSVDataset"
            if exclude_cols is not None:
                op, inputs["exclude_cols"] = "CSVDatasetV2", convert_to_tensor(exclude_cols, dtypes.int64)
            super().__init__(self.made(op, inputs, spec).variant, spec)


def _default(value: Any) -> Tensor:
    if isinstance(value, DType):
        return convert_to_tensor([], value, "record_default")
    return convert_to_tensor(value, name="record_default")
