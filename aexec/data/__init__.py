"""Datasets: input pipelines of graphs; `aexec.data.Dataset`.

::

    dataset = aexec.data.Dataset.range(1000).shuffle(100).map(lambda x: x * x).batch(32).prefetch(2)
    x = dataset.make_one_shot_iterator().get_next()

The kernels in `aexec/kernels/datasets` run them.  Read `dataset.py` first, then `dataset_base.py`.
"""

from aexec.data.dataset import Dataset
from aexec.data.element_spec import DatasetSpec, Optional, OptionalSpec, SparseTensorSpec
from aexec.data.grouping import Reducer
from aexec.data.iterator import Iterator
from aexec.data.options import AutotuneOptions, DistributeOptions, OptimizationOptions, Options, ThreadingOptions
from aexec.data.readers import CsvDataset, FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from aexec.data.transformations import AUTOTUNE

__all__ = [
    "AUTOTUNE",
    "AutotuneOptions",
    "CsvDataset",
    "Dataset",
    "DatasetSpec",
    "DistributeOptions",
    "FixedLengthRecordDataset",
    "Iterator",
    "OptimizationOptions",
    "Optional",
    "OptionalSpec",
    "Options",
    "Reducer",
    "SparseTensorSpec",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
]
