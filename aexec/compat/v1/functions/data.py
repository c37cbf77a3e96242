"""`tf.data`: datasets and iterators with TensorFlow's shapes and sparse tensors, over `aexec.data`.

Next to read: `data_experimental.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.data import dataset as _dataset
from aexec.data import iterator as _iterator
from aexec.data import readers as _readers
from aexec.data.element_spec import Dialect

__all__ = [
    "CsvDataset",
    "Dataset",
    "FixedLengthRecordDataset",
    "Iterator",
    "TFRecordDataset",
    "TextLineDataset",
    "get_output_classes",
    "get_output_shapes",
    "get_output_types",
    "make_initializable_iterator",
    "make_one_shot_iterator",
]


class Dataset(_dataset.Dataset):
    """`tf.data.Dataset`."""


class Iterator(_iterator.Iterator):
    """`tf.data.Iterator`."""


Dataset.dialect = Iterator.dialect = Dialect(Dataset, Dataset, Iterator, SparseTensor, TensorShape)


class TFRecordDataset(_readers.TFRecordDataset, Dataset):
    """`tf.data.TFRecordDataset`."""


class TextLineDataset(_readers.TextLineDataset, Dataset):
    """`tf.data.TextLineDataset`."""


class FixedLengthRecordDataset(_readers.FixedLengthRecordDataset, Dataset):
    """`tf.data.FixedLengthRecordDataset`."""


class CsvDataset(_readers.CsvDataset, Dataset):
    """`tf.data.experimental.CsvDataset`."""


def make_one_shot_iterator(dataset: Dataset) -> Any:
    """`tf.data.make_one_shot_iterator`."""
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> Any:
    """`tf.data.make_initializable_iterator`."""
    return dataset.make_initializable_iterator(shared_name)


def get_output_types(dataset_or_iterator: Any) -> Any:
    """`tf.data.get_output_types`."""
    return dataset_or_iterator.output_types


def get_output_shapes(dataset_or_iterator: Any) -> Any:
    """`tf.data.get_output_shapes`."""
    return dataset_or_iterator.output_shapes


def get_output_classes(dataset_or_iterator: Any) -> Any:
    """`tf.data.get_output_classes`."""
    return dataset_or_iterator.output_classes


__getattr__, __dir__ = namespace(
    __name__,
    {
        "AUTOTUNE": "aexec.data:AUTOTUNE",
        "DatasetSpec": "functions.data_experimental:DatasetStructure",
        "INFINITE_CARDINALITY": "aexec.resources.datasets.dataset:INFINITE",
        "Options": "aexec.data:Options",
        "ThreadingOptions": "aexec.data:ThreadingOptions",
        "UNKNOWN_CARDINALITY": "aexec.resources.datasets.dataset:UNKNOWN",
        "experimental": "functions.data_experimental",
    },
    {"NumpyIterator": "there is no eager execution: use make_one_shot_iterator, or `async for` on a dataset"},
)
