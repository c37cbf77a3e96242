"""Data types: every DataType of the wire with its NumPy counterpart.

A tensor is a plain `numpy.ndarray`; its type on an edge is known from the graph.  A `DType` expresses what a NumPy
dtype cannot: quantised types (stored as integers), string (object arrays of `bytes`), resource and variant (objects in
object arrays), and *ref* types (a variable's cell, enum value + 100).

Functions that take a type accept whatever `as_dtype` does.  If NumPy has the same type, the DType equals it and NumPy
accepts it: `np.zeros(3, aexec.float32)`.
Next to read: `shape.py`, then `wire/tensor_codec.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import ml_dtypes
import numpy as np

from aexec.framework import errors

if TYPE_CHECKING:
    from aexec import proto

__all__ = [
    "ALL",
    "ALWAYS_ON_HOST",
    "COMPLEX",
    "FLOAT",
    "GPU_NUMBER",
    "INTEGRAL",
    "NUMBER",
    "POD",
    "QUANTIZED",
    "REAL_NUMBER",
    "SIGNED_INTEGRAL",
    "UNSIGNED_INTEGRAL",
    "DType",
    "DTypeLike",
    "as_dtype",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "float4_e2m1fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "names",
    "qint8",
    "qint16",
    "qint32",
    "quint8",
    "quint16",
    "resource",
    "string",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
]

_REF_OFFSET = 100


class DType:
    """One element type.  Instances are unique, so that `is` and `==` agree among them.

    A DType also equals other names of its type: a NumPy dtype (`np.dtype("float32")`) or scalar class (`np.float32`), a
    name (`"float32"`, `"float"`), a dtype of TensorFlow's.  Its hash is that of the NumPy dtype; scalar classes and
    names, as with NumPy's own dtypes, compare equal but have another hash.  A ref type equals only itself, and a
    quantised type equals no NumPy dtype, which would be an integer's.

    Attributes:
        enum: DataType number of the wire format (1 = float32; a ref type adds 100).
        np: the NumPy dtype of its arrays; `object` for string, resource and variant.
        is_ref: True for the ref type of a variable's cell.
        is_floating, is_complex, is_quantized: of the value type.
        is_integer: True for integers that are not quantised.
        wire_name: TensorFlow's name in messages and attr text, e.g. `float`, `int32`, `float_ref`; `str` returns it.
    """

    __slots__ = (
        "_hash",
        "_partner",
        "_twin",
        "enum",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_quantized",
        "is_ref",
        "np",
        "wire_name",
    )

    _partner: DType
    # The NumPy dtype that equals it, or None.
    _twin: np.dtype[Any] | None
    is_floating: bool
    is_complex: bool
    is_quantized: bool
    is_integer: bool

    def __new__(cls, enum: int, name: str | None = None, *rest: Any, is_ref: bool = False) -> DType:
        """A new type, which only this module makes; of a number alone the type with that number, as `as_dtype`."""
        if name is not None:
            return super().__new__(cls)
        number = int(enum)
        if number not in _BY_ENUM:
            raise errors.InvalidTypeError(f"{number} does not correspond to a valid tensorflow::DataType")
        return _BY_ENUM[number]

    def __init__(self, enum: int, name: str | None = None, np_dtype: Any = None, *, is_ref: bool = False) -> None:
        if name is None:
            return
        # The cast is for type checkers: the generated stubs have an enum, the generated modules plain integers.
        self.enum = cast("proto.DataType", enum)
        self.wire_name = name
        self.np: np.dtype[Any] = np.dtype(np_dtype)
        self.is_ref = is_ref
        self._hash = enum

    def __eq__(self, other: object) -> bool:
        if type(other) is DType:
            return self is other
        return not self.is_ref and _equal_elsewhere(other) is self

    def __hash__(self) -> int:
        return self._hash

    @property
    def name(self) -> str:
        """The name in Python programs, also TensorFlow's, e.g. `float32`, `int32`, `float32_ref`."""
        name = _PYTHON_NAMES.get(self.base.wire_name, self.base.wire_name)
        return f"{name}_ref" if self.is_ref else name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that equals it; NumPy reads this attribute.

        Raises:
            AttributeError: there is none: a ref, quantised, resource or variant type.
        """
        if self._twin is None:
            raise AttributeError(f"NumPy has no dtype equal to {self!r}; {self.np} holds its values", obj=self)
        return self._twin

    @property
    def as_datatype_enum(self) -> proto.DataType:
        """`enum` by TensorFlow's name."""
        return self.enum

    @property
    def base(self) -> DType:
        """The value type: `float` for `float_ref`, otherwise itself."""
        return self._partner if self.is_ref else self

    @property
    def ref(self) -> DType:
        """The ref type: `float_ref` for `float`, otherwise itself."""
        return self if self.is_ref else self._partner

    @property
    def enum_name(self) -> str:
        """The name of the enum value, e.g. `DT_FLOAT_REF`."""
        return "DT_" + self.wire_name.upper()

    @property
    def is_signed(self) -> bool:
        """True for signed numbers: floating, complex, and signed integers; quantised types as their storage type."""
        kind = self.np.kind
        return self.is_floating or self.is_complex or kind == "i" or self.base in (int4, int2, qint8, qint16, qint32)

    @property
    def is_simple(self) -> bool:
        """True if elements are plain bytes: a buffer may be copied byte by byte."""
        return self.base not in ALWAYS_ON_HOST and self.base is not variant

    @property
    def size(self) -> int:
        """Bytes per element on the wire; 0 if elements have no fixed size."""
        return self.np.itemsize if self.is_simple else 0

    @property
    def min(self) -> Any:
        """Smallest finite value; of a quantised type, that of its storage."""
        return _limits(self).min

    @property
    def max(self) -> Any:
        """Largest finite value; of a quantised type, that of its storage."""
        return _limits(self).max

    def __repr__(self) -> str:
        return f"aexec.{self.base.name}.ref" if self.is_ref else f"aexec.{self.name}"

    def __str__(self) -> str:
        return self.wire_name

    def __reduce__(self) -> tuple[object, ...]:
        return (as_dtype, (self.enum,))


_BY_ENUM: dict[int, DType] = {}
_BY_NAME: dict[str, DType] = {}


def _define(enum: int, name: str, np_dtype: Any, *aliases: str) -> DType:
    value = DType(enum, name, np_dtype)
    ref = DType(enum + _REF_OFFSET, name + "_ref", np_dtype, is_ref=True)
    value._partner, ref._partner = ref, value
    for dtype in (value, ref):
        _BY_ENUM[dtype.enum] = dtype
    for alias in (name, *aliases):
        _BY_NAME[alias] = value
        _BY_NAME[alias + "_ref"] = ref
        _BY_NAME["DT_" + alias.upper()] = value
        _BY_NAME["DT_" + alias.upper() + "_REF"] = ref
    return value


float32 = _define(1, "float", np.float32, "float32")
float64 = _define(2, "double", np.float64, "float64")
int32 = _define(3, "int32", np.int32)
uint8 = _define(4, "uint8", np.uint8)
int16 = _define(5, "int16", np.int16)
int8 = _define(6, "int8", np.int8)
string = _define(7, "string", object)
complex64 = _define(8, "complex64", np.complex64)
int64 = _define(9, "int64", np.int64)
bool_ = _define(10, "bool", np.bool_)
qint8 = _define(11, "qint8", np.int8)
quint8 = _define(12, "quint8", np.uint8)
qint32 = _define(13, "qint32", np.int32)
bfloat16 = _define(14, "bfloat16", ml_dtypes.bfloat16)
qint16 = _define(15, "qint16", np.int16)
quint16 = _define(16, "quint16", np.uint16)
uint16 = _define(17, "uint16", np.uint16)
complex128 = _define(18, "complex128", np.complex128)
float16 = _define(19, "half", np.float16, "float16")
resource = _define(20, "resource", object)
variant = _define(21, "variant", object)
uint32 = _define(22, "uint32", np.uint32)
uint64 = _define(23, "uint64", np.uint64)
float8_e5m2 = _define(24, "float8_e5m2", ml_dtypes.float8_e5m2)
float8_e4m3fn = _define(25, "float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _define(26, "float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e4m3b11fnuz = _define(27, "float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz)
float8_e5m2fnuz = _define(28, "float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
int4 = _define(29, "int4", ml_dtypes.int4)
uint4 = _define(30, "uint4", ml_dtypes.uint4)
int2 = _define(31, "int2", ml_dtypes.int2)
uint2 = _define(32, "uint2", ml_dtypes.uint2)
float4_e2m1fn = _define(33, "float4_e2m1fn", ml_dtypes.float4_e2m1fn)

# Type groups, used in kernel registrations, in the order of error messages.
QUANTIZED = (qint8, quint8, qint16, quint16, qint32)
COMPLEX = (complex64, complex128)
FLOATING = (float16, bfloat16, float32, float64, float8_e5m2, float8_e4m3fn)
FLOAT = (float16, bfloat16, float32, float64)
SIGNED_INTEGRAL = (int8, int16, int32, int64)
UNSIGNED_INTEGRAL = (uint8, uint16, uint32, uint64)
INTEGRAL = (int64, int32, uint16, int16, uint8, int8, uint32, uint64)
INTEGER = (*INTEGRAL, int4, uint4, int2, uint2)
REAL_NUMBER = (float32, float64, int64, int32, uint8, uint16, int16, int8, float16, bfloat16, uint32, uint64)
NUMBER = (*REAL_NUMBER, complex64, complex128)
POD = (*NUMBER, bool_)
ALL = (*POD, string, resource, variant)
GPU_NUMBER = (float16, float32, float64)
ALWAYS_ON_HOST = (string, resource)


def _limits(dtype: DType) -> Any:
    if dtype.np.kind in "iu" or dtype.base in (int4, uint4, int2, uint2):
        return ml_dtypes.iinfo(dtype.np)
    if dtype.is_floating:
        return ml_dtypes.finfo(dtype.np)
    raise errors.InvalidTypeError(f"{dtype} has no numeric limits")


# Value types only: a quantised type shares its NumPy dtype with an integer type, which takes precedence.
_BY_NUMPY: dict[np.dtype[Any], DType] = {
    dtype.np: dtype for dtype in reversed(list(_BY_ENUM.values())) if dtype.is_simple and not dtype.is_ref
} | {dtype.np: dtype for dtype in (*REAL_NUMBER, bool_)}

_BY_TWIN = {**_BY_NUMPY, string.np: string}
_BY_SCALAR: dict[type, DType] = {twin.type: dtype for twin, dtype in _BY_TWIN.items()}


def _complete() -> None:
    """Set what depends on the groups and on NumPy's types."""
    for dtype in _BY_ENUM.values():
        dtype.is_floating = dtype.base in FLOATING
        dtype.is_complex = dtype.base in COMPLEX
        dtype.is_quantized = dtype.base in QUANTIZED
        dtype.is_integer = dtype.base in INTEGER
        dtype._twin = dtype.np if _BY_TWIN.get(dtype.np) is dtype else None
        if dtype._twin is not None:
            dtype._hash = hash(dtype._twin)


_complete()

# Python's types → the dtype that `constant` gives their values.
_BY_PYTHON: dict[Any, DType] = {
    bool: bool_,
    int: int32,
    float: float32,
    complex: complex128,
    str: string,
    bytes: string,
    object: string,
}

# Names in Python programs that differ from the wire's.
_PYTHON_NAMES = {"float": "float32", "double": "float64", "half": "float16"}


class TensorFlowDType(Protocol):
    """A dtype object of TensorFlow's, recognised by its attribute, so that nothing need be imported."""

    @property
    def as_datatype_enum(self) -> int: ...


# The values that `as_dtype` takes.
DTypeLike: TypeAlias = "DType | np.dtype[Any] | type | str | int | TensorFlowDType"


def as_dtype(value: DTypeLike) -> DType:
    """The DType that a value names.

    Args:
        value: a DType; a name (`float`, `float32`, `DT_FLOAT`, `float_ref`); an enum number; a NumPy dtype or scalar
            class; a dtype of TensorFlow's; or a type of Python's, which means the type that `constant` gives its
            values: `float` is float32 and `int` is int32.

    Raises:
        InvalidArgumentError: no type has that name or number.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _BY_ENUM:
            return _BY_ENUM[value]
        raise errors.InvalidTypeError(f"invalid DataType enum: {value}")
    found = _equal_elsewhere(value) or (_BY_PYTHON.get(value) if isinstance(value, type) else None)
    if found is not None:
        return found
    if value is not None and not isinstance(value, int):
        try:
            numpy_dtype = np.dtype(cast(Any, value))  # other byte orders, NumPy's names, string types
        except (TypeError, ValueError):
            numpy_dtype = None
        if numpy_dtype is not None and not (numpy_dtype.kind == "O" and isinstance(value, type)):
            return from_numpy(numpy_dtype)
    raise errors.InvalidTypeError(
        f"{value!r} is not a data type: expected one such as aexec.float32, 'float32' or np.float32"
    )


def _equal_elsewhere(value: object) -> DType | None:
    """The type that is equal to a NumPy dtype or scalar class, a name, or a dtype of TensorFlow's."""
    if isinstance(value, np.dtype):
        return _BY_TWIN.get(value)
    if isinstance(value, str):
        return _BY_NAME.get(value)
    if isinstance(value, type):
        return _BY_SCALAR.get(value)
    enum = getattr(value, "as_datatype_enum", None)
    return _BY_ENUM.get(enum) if isinstance(enum, int) else None


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The DType of arrays with this NumPy dtype: object, `S` and `U` arrays are strings.

    Raises:
        InvalidArgumentError: TensorFlow has no such type (e.g. datetime64, float128).
    """
    found = _BY_NUMPY.get(dtype)
    if found is not None:
        return found
    if dtype.kind in "OSU":
        return string
    native = _BY_NUMPY.get(dtype.newbyteorder("="))
    if native is not None:
        return native
    raise errors.InvalidTypeError(f"NumPy dtype {dtype} has no TensorFlow counterpart")


def names(dtypes: Iterable[DType]) -> str:
    """Comma-separated names, for errors."""
    return ", ".join(map(str, dtypes))
