"""Type names of the Open Inference Protocol (github.com/kserve/open-inference-protocol); BF16 is Triton's."""

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
    """True if the protocol has a name for the type."""
    return dtype in _NAMES


def datatype_of(dtype: DType) -> str:
    """The protocol's name of a type; `DT_…` if it has none."""
    return _NAMES.get(dtype) or dtype.enum_name
