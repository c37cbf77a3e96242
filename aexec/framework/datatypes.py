"""What the Open Inference Protocol (github.com/kserve/open-inference-protocol) calls types; BF16 is Triton's."""

from __future__ import annotations

from aexec.framework import dtypes
from aexec.framework.dtypes import DType

__all__ = ["DATATYPES", "datatype_of", "has_datatype"]

DATATYPES = {
    "BOOL": dtypes.bool_,
    "INT8": dtypes.int8,
    "INT16": dtypes.int16,
    "INT32": dtypes.int32,
    "INT64": dtypes.int64,
    "UINT8": dtypes.uint8,
    "UINT16": dtypes.uint16,
    "UINT32": dtypes.uint32,
    "UINT64": dtypes.uint64,
    "FP16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "FP32": dtypes.float32,
    "FP64": dtypes.float64,
    "BYTES": dtypes.string,
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def has_datatype(dtype: DType) -> bool:
    """Has the protocol a name for it?"""
    return dtype in _NAMES


def datatype_of(dtype: DType) -> str:
    """The protocol's name; `DT_…` for types that only TensorFlow has."""
    return _NAMES.get(dtype) or dtype.enum_name
