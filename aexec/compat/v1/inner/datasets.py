"""`tensorflow.python.data.ops.dataset_ops`: the class of datasets under its other names, and what elements are.

Next to read: `aexec/compat/v1/functions/data.py`.
"""

from __future__ import annotations

from aexec.compat.v1.functions import data

__all__ = [
    "DatasetV1",
    "DatasetV1Adapter",
    "DatasetV2",
    "get_legacy_output_classes",
    "get_legacy_output_shapes",
    "get_legacy_output_types",
]

DatasetV1 = DatasetV1Adapter = DatasetV2 = data.Dataset
get_legacy_output_classes = data.get_output_classes
get_legacy_output_shapes = data.get_output_shapes
get_legacy_output_types = data.get_output_types
