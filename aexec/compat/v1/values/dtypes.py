"""`tf.dtypes`: the namespace of dtypes and casts."""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace
from aexec.framework import dtypes as _dtypes

__all__ = ["QUANTIZED_DTYPES"]

# With those of the cells of variables.
QUANTIZED_DTYPES = frozenset(kind for dtype in _dtypes.QUANTIZED for kind in (dtype, dtype.ref))

_TYPES = """bfloat16 complex128 complex64 double float16 float32 float64 half int16 int32 int64 int8 qint16 qint32 qint8
quint16 quint8 resource string uint16 uint32 uint64 uint8 variant DType""".split()

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"aexec:{name}" for name in _TYPES},
        "as_dtype": "aexec:as_dtype | type_value=value",
        "as_string": "functions.strings:as_string",
        "bool": "aexec:bool_",
        "cast": "functions.array_ops:cast",
        "complex": "ops:complex | real imag name",
        "saturate_cast": "numerics.special:saturate_cast",
    },
)
