"""Attr values ↔ messages, and their text in messages (texts observed with TensorFlow)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from google.protobuf import text_format

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList, Placeholder, TensorAttr


def message(text: str) -> proto.AttrValue:
    return text_format.Parse(text, proto.AttrValue())


ROUND_TRIPS = [
    ("int", "i: -9223372036854775808", -(2**63), "-9223372036854775808"),
    ("float", "f: 0.5", 0.5, "0.5"),
    ("bool", "b: false", False, "false"),
    ("string", r's: "a\300"', b"a\xc0", r'"a\300"'),
    ("type", "type: DT_HALF", dtypes.float16, "DT_HALF"),
    ("shape", "shape { dim { size: 2 } dim { size: -1 } }", PartialTensorShape([2, None]), "[2,?]"),
    ("shape", "shape { unknown_rank: true }", UNKNOWN_RANK, "<unknown>"),
    (
        "func",
        'func { name: "f" attr { key: "T" value { type: DT_INT32 } } }',
        NameAttrList("f", {"T": dtypes.int32}),
        "f[T=DT_INT32]",
    ),
    ("list(int)", "list { i: [1, 2] }", [1, 2], "[1, 2]"),
    ("list(float)", "list { f: 0.25 }", [0.25], "[0.25]"),
    ("list(bool)", "list { b: [true, false] }", [True, False], "[true, false]"),
    ("list(string)", 'list { s: ["a", ""] }', [b"a", b""], '["a", ""]'),
    ("list(type)", "list { type: [DT_INT32, DT_FLOAT] }", [dtypes.int32, dtypes.float32], "[DT_INT32, DT_FLOAT]"),
    ("list(shape)", "list { shape { } }", [PartialTensorShape([])], "[[]]"),
    ("list(func)", 'list { func { name: "g" } }', [NameAttrList("g")], "[g[]]"),
]


@pytest.mark.parametrize(("kind", "text", "value", "summary"), ROUND_TRIPS)
def test_round_trip(kind, text, value, summary):
    wire = message(text)
    assert attr_value.kind(wire) == kind
    decoded = attr_value.decode(wire)
    assert decoded == value
    assert type(decoded) is type(value)
    assert attr_value.encode(decoded, kind) == wire
    assert attr_value.encode(decoded) == wire  # the type can be told from the value
    assert attr_value.equal(decoded, value)
    assert attr_value.hashable(decoded) == attr_value.hashable(value)
    hash(attr_value.hashable(decoded))
    assert attr_value.summarize(value) == summary
    assert attr_value.summarize(wire) == summary


def test_empty_list_placeholder_and_nothing():
    assert attr_value.decode(message("list { }")) == []
    assert attr_value.kind(message("list { }")) == "list"
    assert attr_value.encode([], "list(int)") == message("list { }")
    placeholder = attr_value.decode(message('placeholder: "T"'))
    assert isinstance(placeholder, Placeholder)
    assert placeholder == "T"
    assert attr_value.kind(message('placeholder: "T"')) == "placeholder"
    assert attr_value.encode(placeholder, "type") == message('placeholder: "T"')
    assert attr_value.decode(message("")) is None
    assert attr_value.kind(message("")) is None
    assert attr_value.encode(None) == message("")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("type: 9999", "AttrValue has invalid DataType enum: 9999"),
        ("type: DT_INVALID", "AttrValue has invalid DataType"),
        ("list { type: 77 }", "invalid DataType enum: 77"),
        ("shape { dim { size: -2 } }", "-2"),
        ("shape { dim { size: 1099511627776 } dim { size: 1099511627776 } }", "too large"),
    ],
)
def test_decode_refuses(text, error):
    with pytest.raises(errors.InvalidArgumentError, match=error):
        attr_value.decode(message(text))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("text", "string", b"text"),
        (np.int64(3), "int", 3),
        (True, "int", 1),
        (1, "float", 1.0),
        (0.1, "float", float(np.float32(0.1))),
        (1e300, "float", math.inf),
        (np.bool_(True), "bool", True),
        ("float32", "type", dtypes.float32),
        (np.int32, "type", dtypes.int32),
        ([2, None], "shape", PartialTensorShape([2, None])),
        (None, "shape", UNKNOWN_RANK),
        ("f", "func", NameAttrList("f")),
        ((1, 2), "list(int)", [1, 2]),
        (["a", b"b"], "list(string)", [b"a", b"b"]),
    ],
)
def test_encode_takes_what_plainly_means_a_value(value, kind, expected):
    assert attr_value.decode(attr_value.encode(value, kind)) == expected
    assert attr_value.normalize(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, "int"),
        (2**63, "int"),
        ("1", "float"),
        (1, "bool"),
        (1, "string"),
        ("no_such_type", "type"),
        (1, "func"),
        (1, "list(int)"),
        ([1, "a"], "list(int)"),
        ([1], "int"),
        (1, "no_such_kind"),
        (object(), None),
    ],
)
def test_encode_refuses(value, kind):
    with pytest.raises(errors.InvalidArgumentError):
        attr_value.encode(value, kind)


# ---- tensors


def test_tensor_is_decoded_late():
    broken = message('tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } tensor_content: "abc" }')
    value = attr_value.decode(broken)
    assert value.dtype is dtypes.float32
    assert value.shape == PartialTensorShape([2])
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse tensor from proto"):
        _ = value.array
    assert attr_value.encode(value, "tensor") == broken
    assert attr_value.summarize(value).startswith("<Invalid TensorProto: ")


def test_tensor_keeps_its_own_copy_of_the_message():
    wire = message("tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: [1, 2] }")
    value = attr_value.decode(wire)
    wire.tensor.int_val[0] = 5
    assert value.array.tolist() == [1, 2]
    assert value.array is value.array
    assert not value.array.flags.writeable


def test_tensor_equality_is_of_values_not_encodings():
    sparse = attr_value.decode(message("tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 1 }"))
    dense = TensorAttr(np.int32([1, 1]))
    assert sparse == dense
    assert hash(sparse) == hash(dense)
    assert attr_value.equal([sparse], [dense])
    assert dense != TensorAttr(np.int32([1, 2]))
    assert dense != TensorAttr(np.int32([1, 1]), dtypes.qint32)
    assert TensorAttr(np.array([b"a"], object)) == TensorAttr(np.array([b"a"], object))
    assert TensorAttr(np.float32([np.nan])) == TensorAttr(np.float32([np.nan]))


def test_tensor_quantized_type_survives():
    value = TensorAttr(np.int8([1, 2]), dtypes.qint8)
    assert attr_value.decode(attr_value.encode(value)) == value


# ---- equality


def test_equal_tells_apart_what_python_does_not():
    assert not attr_value.equal(True, 1)
    assert not attr_value.equal(1, 1.0)
    assert not attr_value.equal(0.0, -0.0)
    assert attr_value.equal(math.nan, math.nan)
    assert attr_value.equal([math.nan], [math.nan])
    assert not attr_value.equal([1], [1, 2])
    assert attr_value.equal(NameAttrList("f", {"a": math.nan}), NameAttrList("f", {"a": math.nan}))
    assert not attr_value.equal(NameAttrList("f", {"a": 1}), NameAttrList("f", {"a": True}))
    assert attr_value.hashable(True) != attr_value.hashable(1)
    assert attr_value.hashable(0.0) != attr_value.hashable(-0.0)
    assert attr_value.hashable(math.nan) == attr_value.hashable(math.nan)


# ---- text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"q" * 79, '"' + "q" * 79 + '"'),
        (b"a" * 40 + b"b" * 40, '"aaaaaaaaaa...bbbbbbbbbb"'),
        (b"\"'\\\n\t\r\0\xff", r'"\"\'\\\n\t\r\000\377"'),
        (list(range(14)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]"),
        (list(range(15)), "[0, 1, 2, 3, 4, ..., 10, 11, 12, 13, 14]"),
        (1.0, "1"),
        (float(np.float32(0.1)), "0.1"),
        (float(np.float32(1 / 3)), "0.333333343"),
        (16777216.0, "16777216"),
        (float(np.float32(1e20)), "1e+20"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (None, "<Unknown AttrValue type>"),
        (Placeholder("T"), "$T"),
        (NameAttrList("f", {"b": 1, "a": b"x"}), 'f[a="x", b=1]'),
        (TensorAttr(np.full(8, 1.5, np.float32)), "Tensor<type: float shape: [8] values: 1.5 1.5 1.5...>"),
        (TensorAttr(np.array(b"abc", object)), "Tensor<type: string shape: [] values: abc>"),
        (TensorAttr(np.int32([[1, 2], [3, 4]])), "Tensor<type: int32 shape: [2,2] values: [1 2][3...]...>"),
        (TensorAttr(np.int32([[1], [2]])), "Tensor<type: int32 shape: [2,1] values: [1][2]>"),
        (TensorAttr(np.array([1e300, 0.1])), "Tensor<type: double shape: [2] values: 1e+300 0.1>"),
        (TensorAttr(np.array(1 / 3)), "Tensor<type: double shape: [] values: 0.33333333333333331>"),
        (TensorAttr(np.array(1 / 3, np.float16)), "Tensor<type: half shape: [] values: 0.333251953>"),
        (TensorAttr(np.array([True, False])), "Tensor<type: bool shape: [2] values: 1 0>"),
        (TensorAttr(np.array(1 - 2j, np.complex64)), "Tensor<type: complex64 shape: [] values: (1,-2)>"),
    ],
)
def test_summarize(value, text):
    assert attr_value.summarize(value) == text


def test_summarize_of_what_cannot_be_decoded():
    assert attr_value.summarize(message("type: 9999")) == "<AttrValue has invalid DataType enum: 9999>"


def test_summarize_does_not_decode_huge_tensors():
    huge = message("tensor { dtype: DT_FLOAT tensor_shape { dim { size: 1000000000 } } float_val: 1 }")
    assert attr_value.summarize(huge) == "<TensorProto: DT_FLOAT [1000000000]>"


# ---- defaults of the mini-language


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("-1", "int", -1),
        ("0x10", "int", 16),
        ("1", "float", 1.0),
        ("1e-3", "float", float(np.float32(1e-3))),
        ("-inf", "float", -math.inf),
        ("2.5f", "float", 2.5),
        ("true", "bool", True),
        ("'SAME'", "string", b"SAME"),
        (r'"a\"b\n\101\x41"', "string", b'a"b\nAA'),
        ('"a" "b"', "string", b"ab"),
        ("DT_INT32", "type", dtypes.int32),
        ("float", "type", dtypes.float32),
        ("{ dim { size: 2 } dim { size: -1 } }", "shape", PartialTensorShape([2, None])),
        ("{ unknown_rank: true }", "shape", UNKNOWN_RANK),
        ("{ dtype: DT_INT32 int_val: 3 }", "tensor", TensorAttr(np.array(3, np.int32))),
        ("{ name: 'f' }", "func", NameAttrList("f")),
        ("[]", "list(int)", []),
        ("[1, 2]", "list(int)", [1, 2]),
        ("[0.5, 2]", "list(float)", [0.5, 2.0]),
        ("['a,b', \"]\"]", "list(string)", [b"a,b", b"]"]),
        ("[DT_INT32, float]", "list(type)", [dtypes.int32, dtypes.float32]),
        ("[{ }, { dim { size: 1 } }]", "list(shape)", [PartialTensorShape([]), PartialTensorShape([1])]),
    ],
)
def test_parse(text, kind, expected):
    assert attr_value.parse(text, kind) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "int"),
        ("1.5", "int"),
        ("99999999999999999999", "int"),
        ("one", "float"),
        ("True", "bool"),
        ("SAME", "string"),
        ("'SAME", "string"),
        ("", "string"),
        ("DT_NOTHING", "type"),
        ("int", "type"),
        ("2", "shape"),
        ("{ dim: x }", "shape"),
        ("1, 2", "list(int)"),
        ("[1,, 2]", "list(int)"),
        ("[1, 2", "list(int)"),
    ],
)
def test_parse_refuses(text, kind):
    with pytest.raises(errors.InvalidArgumentError, match="expected a value of type"):
        attr_value.parse(text, kind)


def test_small_tensor_goes_out_as_it_came_in_after_it_was_decoded():
    message = proto.TensorProto(dtype=3, int_val=[1, 2])
    message.tensor_shape.dim.add(size=2)
    tensor = attr_value.TensorAttr(message)
    assert tensor.array.tolist() == [1, 2]
    assert tensor.to_proto() == message


def test_tensors_of_one_value_are_compared_without_being_made() -> None:
    def repeated(value: float, size: int = 10**9) -> TensorAttr:
        message = proto.TensorProto(dtype=dtypes.float16.enum, half_val=[int(np.float16(value).view(np.uint16))])
        message.tensor_shape.dim.add(size=size)
        return TensorAttr(message)

    assert repeated(1) == repeated(1) and hash(repeated(1)) == hash(repeated(1))
    assert repeated(1) != repeated(2) and repeated(1) != repeated(1, 10**9 - 1)
    assert len({attr_value.hashable(repeated(value)) for value in (1, 1, 2)}) == 2


def test_messages_that_cannot_be_decoded_are_compared() -> None:
    one, other = (proto.AttrValue(s=text) for text in (b"one", b"other"))
    assert attr_value.hashable(one) == attr_value.hashable(proto.AttrValue(s=b"one")) != attr_value.hashable(other)
