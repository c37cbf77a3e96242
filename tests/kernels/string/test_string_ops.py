"""Strings cut, joined, hashed, encoded, and turned into numbers and back, with TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.common.strings import lists_of, map_strings, string_cost, values_of
from aexec.kernels.string import string_ops
from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses, assert_same
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op, strings

MODULES = ("string.string_ops", "string.hash_ops", "string.convert_ops")


@pytest.mark.parametrize("op", ops_of(*MODULES))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def scalar(value):
    return strings(value, shape=())


# One at a time


@pytest.mark.parametrize("shape", [(), (1,), (2, 2), (0,), (0, 3)])
def test_shapes_are_kept(shape):
    x = strings(*["aB"] * int(np.prod(shape)), shape=shape)
    assert run_op("StringLower", [x]).tolist() == strings(*[b"ab"] * x.size, shape=shape).tolist()
    assert run_op("StringLength", [x]).shape == shape
    assert run_op("StringToHashBucketFast", [x], num_buckets=3).shape == shape


def test_case():
    x = strings("HéÉß", b"\xffAz")
    assert run_op("StringLower", [x]).tolist() == ["héÉß".encode(), b"\xffaz"]
    assert run_op("StringUpper", [x]).tolist() == ["HéÉß".encode(), b"\xffAZ"]
    assert run_op("StringLower", [x], encoding="utf-8").tolist() == ["hééß".encode(), "\ufffdaz".encode()]
    assert run_op("StringUpper", [x], encoding="utf-8").tolist() == ["HÉÉSS".encode(), "\ufffdAZ".encode()]
    message = "only utf-8 or '' (no encoding) is supported, received latin-1"
    assert_refuses("StringLower", [x], message, encoding="latin-1")


def test_strip_and_length():
    assert_gives("StringStrip", [strings(" \t\n\x0b\x0c\ra b ", b"\x00a")], strings("a b", b"\x00a"))
    x = strings("héllo", b"\xff\x80", "")
    assert_gives("StringLength", [x], I32([6, 2, 0]))
    assert_gives("StringLength", [x], I32([5, 1, 0]), unit="UTF8_CHAR")


def test_base64():
    x, web = strings("a", "ab", "abc", b"\xff\xfe\xfb", ""), strings("YQ", "YWI", "YWJj", "__77", "")
    assert_gives("EncodeBase64", [x], web)
    assert_gives("DecodeBase64", [web], x)
    padded = strings("YQ==", "YWI=", "YWJj", "__77", "")
    assert_gives("EncodeBase64", [x], padded, pad=True)
    assert_gives("DecodeBase64", [padded], x)


@pytest.mark.parametrize("text", ["YQ=", "+/7", "YQ===", "Y=Q", "YW Jj", "===="])
def test_base64_characters(text):
    assert_refuses("DecodeBase64", [strings(text)], "Invalid character found in base64.")


def test_base64_length():
    assert_refuses("DecodeBase64", [strings("YWJjY")], "Base64 string length cannot be 1 modulo 4.")


# Substr


@pytest.mark.parametrize(
    ("x", "pos", "length", "want"),
    [
        ("hello", 1, 3, "ell"),
        ("hello", -3, 2, "ll"),
        ("hello", -5, 99, "hello"),
        ("hello", 5, 1, ""),
        ("hello", 1, -1, "ello"),
        ("", 0, 1, ""),
    ],
)
def test_substr(x, pos, length, want):
    assert_gives("Substr", [scalar(x), np.int32(pos), np.int32(length)], scalar(want))
    assert_gives("Substr", [scalar(x), np.int64(pos), np.int64(length)], scalar(want))


def test_substr_broadcasts():
    x = strings("hello", "ab", shape=(2, 1))
    assert_gives("Substr", [x, I32([0, 1]), I32([1, 9])], strings("h", "ello", "a", "b", shape=(2, 2)))
    assert_gives("Substr", [strings("hello"), I32([[1], [2]]), I32([[1], [2]])], strings("e", "ll", shape=(2, 1)))


def test_substr_of_characters():
    for pos, length, want in ((1, 2, "él"), (-4, 1, "é"), (5, 2, "")):
        inputs = [scalar("héllo"), np.int32(pos), np.int32(length)]
        assert_gives("Substr", inputs, scalar(want), unit="UTF8_CHAR")
    broken = [scalar(b"a\xffb\x80\x80c"), np.int32(1), np.int32(2)]
    assert_gives("Substr", broken, scalar(b"\xffb\x80\x80"), unit="UTF8_CHAR")


@given(
    st.lists(st.sampled_from([65, 0x80, 0xBF, 0xC3]), max_size=30).map(bytes), st.integers(-35, 35), st.integers(-1, 35)
)
def test_characters_of_long_strings(text, pos, length):
    inputs = [scalar(text), np.int32(pos), np.int32(length)]

    def found():
        try:
            count = run_op("StringLength", [scalar(text)], unit="UTF8_CHAR").item()
            return count, run_op("Substr", inputs, unit="UTF8_CHAR").item()
        except errors.InvalidArgumentError as error:
            return error.message

    at_once = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(string_ops, "_LONG", 4)
        assert found() == at_once


@pytest.mark.parametrize(
    ("x", "pos", "length", "attrs", "message"),
    [
        (scalar("hello"), 6, 1, {}, "pos 6 out of range for string b'hello' at index 0"),
        (scalar("hello"), -6, 1, {}, "pos -6 out of range for string b'hello' at index 0"),
        (strings("hello", "ab"), [1, 3], [1, 1], {}, "pos 3 out of range for string b'ab' at index 1"),
        (
            strings("a", "b", shape=(2, 1)),
            [[0, 9]] * 2,
            [[1, 1]] * 2,
            {},
            "pos 9 out of range for string b'a' at index (0, 1)",
        ),
        (scalar("hé"), 3, 1, {"unit": "UTF8_CHAR"}, "pos 3 out of range for string at index 0"),
        (strings("a", "b"), [0, 0], 1, {}, "pos and len should have the same shape, got: [2] vs. []"),
        (strings("a", "b"), [0] * 3, [1] * 3, {}, "Incompatible shapes: [2] vs. [3]"),
    ],
)
def test_substr_errors(x, pos, length, attrs, message):
    assert_refuses("Substr", [x, I32(pos), I32(length)], message, **attrs)


# Split


def split(op, texts, *separator, **attrs):
    """The rows of the sparse result; checks that indices and shape say the same."""
    indices, values, shape = run_op(op, [strings(*texts), scalar(*separator)], **attrs)
    assert indices.dtype == shape.dtype == np.int64
    rows = [[] for _ in texts]
    for (row, column), value in zip(indices.tolist(), values.tolist(), strict=True):
        assert column == len(rows[row])
        rows[row].append(value.decode())
    assert shape.tolist() == [len(texts), max(map(len, rows), default=0)]
    return rows


@pytest.mark.parametrize(
    ("separator", "maxsplit", "want"),
    [
        ("", -1, [["a", "b", "c"], [], ["a,", "b"], ["abxab"]]),
        ("", 0, [["  a b  c "], [""], ["a, b"], ["abxab"]]),
        ("", 1, [["a", "b  c "], [], ["a,", "b"], ["abxab", ""]]),
        ("", 2, [["a", "b", "c "], [], ["a,", "b", ""], ["abxab"]]),
        (", ", -1, [["  a b  c "], [""], ["a", "b"], ["abxab"]]),
        ("ab", -1, [["  a b  c "], [""], ["a, b"], ["", "x", ""]]),
        ("ab", 1, [["  a b  c "], [""], ["a, b"], ["", "xab"]]),
        (" ", 2, [["", "", "a b  c "], [""], ["a,", "b"], ["abxab"]]),
    ],
)
def test_split_v2(separator, maxsplit, want):
    assert split("StringSplitV2", ["  a b  c ", "", "a, b", "abxab"], separator, maxsplit=maxsplit) == want


@pytest.mark.parametrize(
    ("delimiter", "skip_empty", "want"),
    [
        (", ", True, [["a", "b"], []]),
        (", ", False, [["a", "", "b", ""], []]),
        ("", True, [["a", ",", " ", "b", " "], []]),
        ("]^-", True, [["a, b "], []]),
    ],
)
def test_split(delimiter, skip_empty, want):
    assert split("StringSplit", ["a, b ", ""], delimiter, skip_empty=skip_empty) == want


def test_split_of_nothing_and_errors():
    assert split("StringSplitV2", [], "") == []
    assert_refuses("StringSplitV2", [scalar("a"), scalar("")], "input must be a vector, got shape: []")
    assert_refuses("StringSplitV2", [strings("a"), strings("")], "sep must be a scalar, got shape: [1]")
    assert_refuses("StringSplit", [strings("a"), strings("")], "delimiter must be a scalar, got shape: [1]")


# Join


def test_join():
    assert_gives("StringJoin", [[strings("a", "b"), scalar("x")]], strings("a-x", "b-x"), separator="-")
    assert_gives("StringJoin", [[scalar("a"), scalar("x")]], scalar("ax"))
    assert_gives("StringJoin", [[strings(), scalar("x")]], strings())
    message = "Input shapes do not match: [1] vs. [2]"
    assert_refuses("StringJoin", [[strings("a"), strings("x", "y")]], message)


LETTERS = strings(*"abcdefghijkl", shape=(2, 3, 2))


@pytest.mark.parametrize(
    ("dims", "keep", "want"),
    [
        (0, False, strings("a-g", "b-h", "c-i", "d-j", "e-k", "f-l", shape=(3, 2))),
        ([0, 1], False, strings("a-g-c-i-e-k", "b-h-d-j-f-l")),
        ([1, 0], False, strings("a-c-e-g-i-k", "b-d-f-h-j-l")),
        ([2, 0], True, strings("a-b-g-h", "c-d-i-j", "e-f-k-l", shape=(1, 3, 1))),
        ([-1], False, strings("a-b", "c-d", "e-f", "g-h", "i-j", "k-l", shape=(2, 3))),
        ([], False, LETTERS),
    ],
)
def test_reduce_join(dims, keep, want):
    assert_gives("ReduceJoin", [LETTERS, I32(dims)], want, keep_dims=keep, separator="-")


def test_reduce_join_of_nothing_and_errors():
    assert_gives("ReduceJoin", [strings(shape=(0, 2)), np.int32(0)], strings("", ""))
    message = "Invalid reduction dimension 3 for input with 3 dimension(s)"
    assert_refuses("ReduceJoin", [LETTERS, I32([3])], message, errors.OutOfRangeError)
    assert_refuses("ReduceJoin", [LETTERS, I32([0, -3])], "Duplicate reduction dimension -3")


def test_unsorted_segment_join():
    abc = strings("a", "b", "c")
    assert_gives("UnsortedSegmentJoin", [abc, I32([0, 2, 0]), np.int32(3)], strings("a:c", "", "b"), separator=":")
    want = strings("c:e:i", "d:f:j", "a", "b", "g:k", "h:l", shape=(3, 2))
    inputs = [LETTERS, I64([[1, 0, 0], [2, 0, 2]]), np.int64(3)]
    assert_gives("UnsortedSegmentJoin", inputs, want, separator=":")
    message = "segment_ids are not allowed to exceed num_segments or to have negative values."
    for ids in ([0, -2, 0], [0, 3, 0]):
        assert_refuses("UnsortedSegmentJoin", [abc, I32(ids), np.int32(3)], message)
    assert_refuses("UnsortedSegmentJoin", [abc, I32([0] * 3), I32([1])], "Number of segments must be a scalar")
    message = "Number of segments must be non-negative but got -2"
    assert_refuses("UnsortedSegmentJoin", [abc, I32([0] * 3), np.int32(-2)], message)
    message = "Segment dimension is 2 while input dimension is 3 in rank 0"
    assert_refuses("UnsortedSegmentJoin", [abc, I32([0] * 2), np.int32(2)], message)


# Hash buckets


def test_hash_buckets():
    assert_gives("StringToHashBucketFast", [strings("a", "b", "c")], I64([9, 2, 2]), num_buckets=10)
    assert_gives("StringToHashBucket", [strings("a", "")], I64([8, 9]), num_buckets=10)
    want = I64([546566331822570742, 443797209252341627])
    assert_gives("StringToHashBucketStrong", [strings("a", "")], want, num_buckets=2**62, key=[1, 2])
    assert_refuses("StringToHashBucketStrong", [strings("a")], "Key must have 2 elements", num_buckets=9, key=[1])


def test_many_strings_hash_as_each_of_them():
    words = [f"word {i}" * (i % 7) for i in range(600)]
    alone = [run_op("StringToHashBucketFast", [scalar(w)], num_buckets=1000).item() for w in words]
    assert_gives(
        "StringToHashBucketFast", [strings(*words, shape=(2, 300))], I64(alone).reshape(2, 300), num_buckets=1000
    )


# Numbers as strings


@pytest.mark.parametrize(
    ("x", "attrs", "want"),
    [
        (F32([1.5, -2, 1e10]), {}, ["1.500000", "-2.000000", "10000000000.000000"]),
        (F32([1.5, np.inf, -np.inf, np.nan]), {"precision": 1}, ["1.5", "inf", "-inf", "nan"]),
        (F32([1.5]), {"scientific": True}, ["1.500000e+00"]),
        (F32([1.5, 1e10]), {"shortest": True}, ["1.5", "1e+10"]),
        (F32([1.5, np.nan]), {"width": 6, "precision": 1, "fill": "0"}, ["0001.5", "   nan"]),
        (F32([1.5]), {"width": 6, "precision": 1, "fill": "-"}, ["1.5   "]),
        (F32([1.5]), {"width": 6, "precision": 1, "fill": "+"}, ["  +1.5"]),
        (np.array([1.5], np.float16), {}, ["1.500000"]),
        (I32([1, -20]), {"width": 5, "fill": "0"}, ["00001", "-0020"]),
        (np.array([2**64 - 1], np.uint64), {}, [str(2**64 - 1)]),
        (np.array([True, False]), {"width": 7}, ["true", "false"]),
        (np.array([1 + 2j], np.complex64), {"precision": 1, "width": 9}, ["(1.0,2.0)"]),
        (strings("ab"), {"width": 4, "fill": "0"}, ["  ab"]),
        (strings("ab"), {"width": 4, "fill": "-"}, ["ab  "]),
    ],
)
def test_as_string(x, attrs, want):
    assert_gives("AsString", [x], strings(*want), **attrs)
    assert_gives("AsString", [x.reshape(-1, 1)[0, 0]], scalar(want[0]), **attrs) if x.dtype != object else None


@pytest.mark.parametrize(
    ("x", "attrs", "message"),
    [
        (I32([1]), {"precision": 2}, "precision not supported for datatype int32"),
        (I32([1]), {"shortest": True}, "scientific and shortest format not supported for datatype int32"),
        (F32([1]), {"shortest": True, "scientific": True}, "Cannot select both scientific and shortest notation"),
        (F32([1]), {"fill": "00"}, "Fill string must be one or fewer characters"),
        (F32([1]), {"fill": "x"}, 'Fill argument not supported: "x"'),
    ],
)
def test_as_string_errors(x, attrs, message):
    assert_refuses("AsString", [x], message, **attrs)


# StringFormat


@pytest.mark.parametrize(
    ("x", "summarize", "want"),
    [
        (F32([0, 1, 2]), 3, "[0 1 2]"),
        (F32(range(8)), 3, "[0 1 2 ... 5 6 7]"),
        (F32(range(8)), 0, "[ ...]"),
        (F32(range(8)), -1, "[0 1 2 3 4 5 6 7]"),
        (F32(1.5), 3, "1.5"),
        (F32([[0, 1], [2, 3]]), 3, "[[0 1]\n [2 3]]"),
        (F32(range(8)).reshape(2, 2, 2), 3, "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"),
        (F32(range(9)).reshape(3, 3), 1, "[[0 ... 2]\n ...\n [6 ... 8]]"),
        (np.zeros((0, 2), np.float32), 3, "[]"),
        (np.zeros((2, 0), np.float32), 3, "[\n ...]"),
        (F32([0.1, 1 / 3, 1e10, 1e7, 1234567]), -1, "[0.1 0.333333343 1e+10 1e+07 1234567]"),
        (F32([np.nan, -np.inf, 1e-45]), -1, "[nan -inf 0]"),
        (np.float64([0.1, 2 / 3, 1e10]), -1, "[0.1 0.66666666666666663 10000000000]"),
        (np.float16([0.1]), -1, "[0.0999755859]"),
        (np.array([True, False]), -1, "[1 0]"),
        (np.array([1j]), -1, "[?]"),
        (np.uint8([200]), -1, "[200]"),
        (strings("a", b'b"\n\xff\\', "é", "'\x01"), -1, b'["a" "b\\"\\n\xff\\\\" "\xc3\xa9" "\\\'\\001"]'),
        (scalar("a"), 3, '"a"'),
    ],
)  # fmt: skip
def test_string_format(x, summarize, want):
    got = run_op("StringFormat", [[x]], template="<%>", placeholder="%", summarize=summarize)
    want = want.encode() if isinstance(want, str) else want
    assert_same(got, scalar(b"<" + want + b">"))


def test_string_format_counts_its_placeholders():
    assert_gives("StringFormat", [[F32(1), I32(2)]], scalar("1 and 2"), template="{} and {}", placeholder="{}")
    assert_gives("StringFormat", [[]], scalar("none"), template="none", placeholder="{}", T=[])
    message = "num placeholders in template and num inputs must match: 2 vs. 1"
    assert_refuses("StringFormat", [[F32(1)]], message, template="{} and {}", placeholder="{}")


def test_long_strings_cost_more_than_short_ones():
    cost = string_cost(200, 0.5)
    assert cost(np.array([], object)) == 0
    assert cost(np.array([b"abcd"] * 3, object), np.int32(1)) == 3 * 202
    assert cost(np.array(b"x" * 2_000_000, object)) > 500_000


@pytest.mark.parametrize("count", [101, 2000])
def test_cost_of_strings_is_not_that_of_the_first(count):
    """Where their number leaves it to their length whether they are for the event loop, all are looked at."""
    strings = np.full(count, b"", object)
    strings[-1] = b"x" * 10_000_000
    assert string_cost(200, 0.5)(strings) == count * 200 + 5_000_000


def test_cost_of_very_many_strings_is_found_without_a_copy_of_them():
    strings = np.broadcast_to(np.array(b"abcd", object), (10**9,))
    assert string_cost(200, 0.5)(strings) == pytest.approx(202e9)


def test_cost_of_n_grams_is_by_rows_too():
    splits = np.zeros(1_000_000, np.int64)
    attrs = {"separator": "", "left_pad": "", "right_pad": "", "pad_width": 0, "preserve_short_sequences": False}
    built, _, _ = build("StringNGrams", [strings(), splits], ngram_widths=[1], Tsplits="int64", **attrs)
    assert built.cost(strings(), splits) > 10_000_000


def test_strings_of_a_view_are_not_copied_to_be_gone_through():
    strings_of_one = np.broadcast_to(np.array(b"ab", object), (10**6, 10**6))
    assert next(lists_of(strings_of_one, 3)) == [b"ab"] * 3
    few = np.broadcast_to(np.array([[b"a"], [b"b"]], object), (2, 40_000))
    assert map_strings(len, few, np.int32).sum() == 80_000 and values_of(few)[40_000] == b"b"
