"""Attr values: AttrValue messages ↔ Python values, and their text.

| attr type | Python value |
|---|---|
| int, float, bool | int, float, bool |
| string | bytes |
| type | `DType` |
| shape | `PartialTensorShape` |
| tensor | `TensorAttr` |
| func | `NameAttrList` |
| list(...) | list of these |

A placeholder (in function bodies only) is a `Placeholder`, a message without a value is None.
A tensor is decoded when its array is asked for: a graph with a Const that cannot be parsed
loads, and fails where that Const is used.
Next to read: `op_def.py`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_text import value_text
from aexec.framework.wire.attr_types import NameAttrList, Placeholder, TensorAttr

__all__ = [
    "MEMBER_OF_TYPE",
    "NameAttrList",
    "Placeholder",
    "TensorAttr",
    "c_unescape",
    "decode",
    "encode",
    "equal",
    "hashable",
    "kind",
    "normalize",
    "parse",
    "summarize",
    "type_named",
]


# ---- messages to values

_DTYPES: dict[int, DType] = {d.enum: d for d in dtypes.ALL}


def _dtype(enum: int) -> DType:
    found = _DTYPES.get(enum)
    if found is None:
        if enum == 0:
            raise errors.InvalidArgumentError("AttrValue has invalid DataType")
        try:
            found = _DTYPES[enum] = dtypes.as_dtype(enum)
        except errors.InvalidArgumentError:
            raise errors.InvalidArgumentError(f"AttrValue has invalid DataType enum: {enum}") from None
    return found


def _name_attr_list(message: proto.NameAttrList) -> NameAttrList:
    attr = message.attr
    return NameAttrList(message.name, {name: decode(attr[name]) for name in attr})


# Oneof member → its attr type, and the function that reads one element of it.
_MEMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "s": ("string", bytes),
    "i": ("int", int),
    "f": ("float", float),
    "b": ("bool", bool),
    "type": ("type", _dtype),
    "shape": ("shape", PartialTensorShape.from_proto),
    "tensor": ("tensor", TensorAttr),
    "func": ("func", _name_attr_list),
}
MEMBER_OF_TYPE: dict[str, str] = {name: member for member, (name, _) in _MEMBERS.items()}


def kind(message: proto.AttrValue) -> str | None:
    """The attr type of a message: `int`, `list(int)`, ..., or `list` (empty), `placeholder`, None (no value)."""
    member: str | None = message.WhichOneof("value")
    if member is None or member in ("list", "placeholder"):
        if member == "list":
            for descriptor, _ in message.list.ListFields():
                return f"list({_MEMBERS[descriptor.name][0]})"
        return member
    return _MEMBERS[member][0]


def decode(message: proto.AttrValue) -> Any:
    """The Python value of a message, as the table at the head of this module says.

    Of a list with elements of several types, those of the type that comes first on the wire are returned.

    Raises:
        InvalidArgumentError: a DataType or shape in the message is invalid.
    """
    member = message.WhichOneof("value")
    if member is None:
        return None
    value = getattr(message, member)
    if member == "list":
        for descriptor, elements in value.ListFields():
            return [*map(_MEMBERS[descriptor.name][1], elements)]
        return []
    if member == "placeholder":
        return Placeholder(value)
    return _MEMBERS[member][1](value)


# ---- values to messages


def encode(value: Any, attr_type: str | None = None) -> proto.AttrValue:
    """The message of a Python value.

    Args:
        value: a value as `decode` returns it, or one that can be converted: str for bytes, names and NumPy dtypes for a
            DType, sequences of sizes (or None) for a shape, arrays or TensorProtos for a tensor, names for a function;
            tuples for lists.
        attr_type: e.g. `int`, `list(type)`.  Default: taken from the value itself.

    Raises:
        InvalidArgumentError: the value is not of that type.
    """
    message = proto.AttrValue()
    if isinstance(value, proto.AttrValue):
        message.CopyFrom(value)
    elif isinstance(value, Placeholder):
        message.placeholder = value
    elif value is None and attr_type is None:
        pass
    elif isinstance(value, list | tuple) and (attr_type is None or attr_type.startswith("list(")):
        message.list.SetInParent()
        if value:
            element_type = attr_type[5:-1] if attr_type else _type_of(value[0])
            _put(message.list, MEMBER_OF_TYPE[element_type], [normalize(v, element_type) for v in value])
    else:
        attr_type = attr_type or _type_of(value)
        if attr_type not in MEMBER_OF_TYPE:
            raise _not_of_type(value, attr_type)
        _put(message, MEMBER_OF_TYPE[attr_type], [normalize(value, attr_type)])
    return message


def _put(message: Any, member: str, values: list[Any]) -> None:
    for value in values:
        if member == "type":
            value = value.enum
        elif member in ("shape", "tensor"):
            value = value.to_proto()
        elif member == "func":
            value = proto.NameAttrList(name=value.name, attr={name: encode(v) for name, v in value.attrs.items()})
        if isinstance(message, proto.AttrValue.ListValue):
            getattr(message, member).append(value)
        elif member in ("shape", "tensor", "func"):
            getattr(message, member).CopyFrom(value)
        else:
            setattr(message, member, value)


def _type_of(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, int | np.integer):
        return "int"
    if isinstance(value, float | np.floating):
        return "float"
    for types, name in (
        ((bytes, str), "string"),
        ((DType,), "type"),
        ((PartialTensorShape,), "shape"),
        ((TensorAttr, np.ndarray, proto.TensorProto), "tensor"),
        ((NameAttrList,), "func"),
    ):
        if isinstance(value, types):
            return name
    raise errors.InvalidTypeError(f"no attr type holds a {type(value).__name__}: {value!r:.80}")


def normalize(value: Any, attr_type: str) -> Any:
    """The result of `decode(encode(value, attr_type))`, without the messages.  Raises InvalidArgumentError likewise."""
    if attr_type.startswith("list("):
        if not isinstance(value, list | tuple):
            raise _not_of_type(value, attr_type)
        return [normalize(v, attr_type[5:-1]) for v in value]
    if isinstance(value, Placeholder):
        return value
    try:
        return _NORMALIZERS[attr_type](value)
    except errors.OpError:
        raise
    except (TypeError, ValueError, KeyError):
        raise _not_of_type(value, attr_type) from None


def _not_of_type(value: Any, attr_type: str) -> errors.OpError:
    return errors.InvalidTypeError(f"Expected {attr_type} for attr, got {value!r:.80} of {type(value).__name__}")


def _int64(value: Any) -> int:
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise errors.InvalidArgumentError(f"attr value {number} does not fit 64 bits")
    return number


def _float32(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError
    return bytes(value)


def _shape(value: Any) -> PartialTensorShape:
    if isinstance(value, proto.TensorShapeProto):
        return PartialTensorShape.from_proto(value)
    return PartialTensorShape.of(value)


def _tensor(value: Any) -> TensorAttr:
    if isinstance(value, TensorAttr):
        return value
    return TensorAttr(value if isinstance(value, proto.TensorProto) else np.asarray(value))


def _func(value: Any) -> NameAttrList:
    if isinstance(value, str):
        return NameAttrList(value)
    if not isinstance(value, NameAttrList):
        raise TypeError
    return value


_NORMALIZERS: dict[str, Callable[[Any], Any]] = {
    "int": _int64,
    "float": _float32,
    "bool": _bool,
    "string": _bytes,
    "type": dtypes.as_dtype,
    "shape": _shape,
    "tensor": _tensor,
    "func": _func,
}


def equal(a: Any, b: Any) -> bool:
    """True if two decoded values mean the same.  A NaN equals a NaN, True is not 1, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, NameAttrList):
        return (
            a.name == b.name
            and a.attrs.keys() == b.attrs.keys()
            and all(equal(v, b.attrs[name]) for name, v in a.attrs.items())
        )
    return bool(a == b)


def hashable(value: Any) -> Any:
    """A hashable key for a decoded value: `equal` values have equal keys."""
    if isinstance(value, list):
        return tuple(hashable(v) for v in value)
    if isinstance(value, NameAttrList):
        return (value.name, tuple(sorted((name, hashable(v)) for name, v in value.attrs.items())))
    if isinstance(value, float):
        return ("float", float.hex(value))
    if isinstance(value, proto.AttrValue):  # it could not be decoded
        return ("message", value.SerializeToString(deterministic=True))
    return (type(value), value)


def summarize(value: Any, *, shorten: bool = True) -> str:
    """The text of a value (decoded, or an AttrValue) for errors and logs, e.g. `DT_FLOAT`, `[1, 2]`, `"SAME"`.

    Strings of 80 characters and more keep their first and last ten; with `shorten`, lists of 15 and more keep their
    first and last five elements.
    """
    if isinstance(value, proto.AttrValue):
        try:
            value = decode(value)
        except errors.InvalidArgumentError as e:
            return f"<{e.message}>"
    return value_text(value, shorten=shorten)


# ---- the text of defaults in op definitions

_STRING = re.compile(r"""\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_SIMPLE_ESCAPE = re.compile(rb"\\([abfnrtv\\'\"?]|[0-7]{1,3}|[xX][0-9a-fA-F]{1,2})")
_ESCAPED = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))


def c_unescape(text: str) -> bytes:
    """The bytes of a quoted string with C escapes; does not check the quotes."""

    def replace(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code[0] in _ESCAPED:
            return bytes([_ESCAPED[code[0]]])
        return bytes([(int(code[1:], 16) if code[0] in b"xX" else int(code, 8)) & 255])

    return _SIMPLE_ESCAPE.sub(replace, text.encode())


_TYPE_NAMES = {d.wire_name: d for d in vars(dtypes).values() if isinstance(d, DType)}
_TYPE_NAMES |= {d.enum_name: d for d in _TYPE_NAMES.values()}
_TYPE_NAMES |= {"float32": dtypes.float32, "float64": dtypes.float64, "float16": dtypes.float16}


def type_named(text: str) -> DType | None:
    """The value type of that name (`float`, `float32`, `DT_FLOAT`), or None; unlike `as_dtype`, no NumPy names."""
    return _TYPE_NAMES.get(text)


def parse(text: str, attr_type: str) -> Any:
    """The value of an attr's default in text form, e.g. `[1, 2]` for `list(int)`, `{unknown_rank: true}`.

    The text is that of a protobuf text format field of the type; a type is given by its name or enum name, lists in
    brackets.

    Raises:
        InvalidArgumentError: the text is not a value of that type.
    """
    text = text.strip()
    if not attr_type.startswith("list("):
        return _parse_one(text, attr_type)
    if not (text.startswith("[") and text.endswith("]")):
        raise _unparsed(text, attr_type)
    return [_parse_one(piece, attr_type[5:-1]) for piece in _split_list(text[1:-1])]


def _unparsed(text: str, attr_type: str) -> errors.OpError:
    return errors.InvalidArgumentError(f"expected a value of type {attr_type}, got '{text}'")


def _split_list(text: str) -> list[str]:
    """The parts of `text` between commas that are outside of quotes and brackets."""
    pieces, depth, start, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        quoted = _STRING.match(text, position) if char in "\"'" else None
        if quoted:
            position = quoted.end()
            continue
        depth += (char in "{[<") - (char in "}]>")
        if char == "," and not depth:
            pieces.append(text[start:position])
            start = position + 1
        position += 1
    last = text[start:].strip()
    return [p.strip() for p in pieces] + ([last] if last or pieces else [])


def _parse_one(text: str, attr_type: str) -> Any:
    try:
        if attr_type == "int":
            return _int64(int(text, 0) if not re.fullmatch(r"-?0\d+", text) else int(text, 8))
        if attr_type == "float":
            return _float32(float(text[:-1] if text.endswith("f") and not text.endswith("inf") else text))
        if attr_type == "bool":
            return {"true": True, "false": False}[text]
        if attr_type == "type":
            return _TYPE_NAMES[text]
    except (ValueError, KeyError, errors.InvalidArgumentError):
        raise _unparsed(text, attr_type) from None
    if attr_type == "string":
        return _parse_string(text)
    return _parse_message(text, attr_type)


def _parse_string(text: str) -> bytes:
    value, position = b"", 0
    while position < len(text):
        match = _STRING.match(text, position)
        if match is None:
            raise _unparsed(text, "string")
        value += c_unescape(match[1][1:-1])
        position = match.end()
    if not position:
        raise _unparsed(text, "string")
    return value


def _parse_message(text: str, attr_type: str) -> Any:
    from google.protobuf import text_format  # slow to import, and few ops have such a default

    if not text.startswith("{"):
        raise _unparsed(text, attr_type)
    try:
        message = text_format.Parse(f"{MEMBER_OF_TYPE[attr_type]} {text}", proto.AttrValue())
    except (text_format.ParseError, KeyError):
        raise _unparsed(text, attr_type) from None
    return decode(message)
