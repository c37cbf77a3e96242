"""Encodings, code points, scripts and n-grams: known answers, round trips, TensorFlow's messages."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.kernels.string import unicode_ops
from tests.kernels.array_support import I32, I64, assert_gives, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings

UTF8 = {"input_encoding": "UTF-8"}
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4)


@pytest.mark.parametrize("op", ops_of("string.unicode_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


# Decode


@given(TEXTS)
def test_decode_is_pythons_and_encode_its_inverse(texts):
    codes = [ord(ch) for t in texts for ch in t]
    splits = np.cumsum([0, *map(len, texts)])
    assert_gives("UnicodeDecode", [strings(*texts)], (I64(splits), I32(codes)), **UTF8)
    offsets = [len(t[:i].encode()) for t in texts for i in range(len(t))]
    assert_gives("UnicodeDecodeWithOffsets", [strings(*texts)], (I64(splits), I32(codes), I64(offsets)), **UTF8)
    for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        want = strings(*[t.encode(encoding) for t in texts])
        assert_gives("UnicodeEncode", [I32(codes), I32(splits)], want, output_encoding=encoding)
        assert_gives("UnicodeTranscode", [strings(*texts)], want, **UTF8, output_encoding=encoding)


BROKEN = strings(b"a\xff\xc3b", b"\xed\xa0\x80", b"a\x1f\n\x7f")


@pytest.mark.parametrize(
    ("attrs", "codes", "offsets", "splits"),
    [
        (
            {},
            [97, 0xFFFD, 0xFFFD, 98, 0xFFFD, 0xFFFD, 0xFFFD, 97, 31, 10, 127],
            [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3],
            [0, 4, 7, 11],
        ),
        ({"errors": "ignore"}, [97, 98, 97, 31, 10, 127], [0, 3, 0, 1, 2, 3], [0, 2, 2, 6]),
        (
            {"replacement_char": 63, "replace_control_characters": True},
            [97, 63, 63, 98, 63, 63, 63, 97, 63, 63, 127],
            [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3],
            [0, 4, 7, 11],
        ),
        ({"errors": "ignore", "replace_control_characters": True}, [97, 98, 97, 127], [0, 3, 0, 3], [0, 2, 2, 4]),
    ],
)
def test_invalid_sequences_and_control_characters(attrs, codes, offsets, splits):
    want = I64(splits), I32(codes), I64(offsets)
    assert_gives("UnicodeDecodeWithOffsets", [BROKEN], want, **UTF8, **attrs)
    assert_gives("UnicodeDecode", [BROKEN], want[:2], **UTF8, **attrs)
    rows = ["".join(map(chr, codes[a:b])) for a, b in pairwise(splits)]
    assert_gives("UnicodeTranscode", [BROKEN], strings(*rows), **UTF8, output_encoding="UTF-8", **attrs)


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16-BE", "UTF-16-LE", "UTF-32-BE", "UTF-7", "Shift_JIS", "Latin-1"])
@pytest.mark.parametrize("piece", [1, 2, 3, 5])
def test_pieces_of_a_string_are_the_string(encoding, piece, monkeypatch):
    rng = random.Random(f"{encoding} {piece}")
    texts = ["".join(rng.choices("aé€ああ\U0001f600+-\n", k=12)).encode(encoding, "ignore") for _ in range(10)]
    data = strings(*texts, *[rng.randbytes(12) for _ in range(30)], *[text[1:-1] for text in texts])

    def converted():
        found = [*run_op("UnicodeDecodeWithOffsets", [data], input_encoding=encoding)]
        found += run_op("UnicodeDecode", [data], input_encoding=encoding)
        found.append(run_op("UnicodeTranscode", [data], input_encoding=encoding, output_encoding="UTF-16-BE"))
        found.append(run_op("UnicodeEncode", [found[1], found[0]], output_encoding="UTF-8"))
        return [value.tolist() for value in found]

    whole = converted()
    monkeypatch.setattr(unicode_ops, "_PIECE", piece)
    assert converted() == whole


def test_many_invalid_bytes_take_linear_time():
    splits, codes, _ = run_op("UnicodeDecodeWithOffsets", [strings(b"\xff" * 100_000)], **UTF8)
    assert splits.tolist() == [0, 100_000]
    assert (codes == 0xFFFD).all()


@pytest.mark.parametrize(
    ("encoding", "codes", "offsets"),
    [
        ("UTF-16-BE", [97, 128512, 0xFFFD], [0, 2, 6]),
        ("utf-16", [97, 128512, 0xFFFD], [0, 2, 6]),
        ("latin1", [0, 97, 216, 61, 222, 0, 0], range(7)),
        ("US-ASCII", [0, 97, 0xFFFD, 61, 0xFFFD, 0, 0], range(7)),
    ],
)
def test_other_encodings(encoding, codes, offsets):
    x = strings(b"\x00a\xd8\x3d\xde\x00\x00")
    want = I32([0, len(codes)]), I32(codes), I64(offsets)
    assert_gives("UnicodeDecodeWithOffsets", [x], want, input_encoding=encoding, Tsplits="int32")


def test_decode_of_any_shape():
    assert_gives("UnicodeDecode", [strings("ab", "c", shape=(2, 1))], (I64([0, 2, 3]), I32([97, 98, 99])), **UTF8)
    assert_gives("UnicodeDecode", [strings("ab", shape=())], (I64([0, 2]), I32([97, 98])), **UTF8)
    assert_gives("UnicodeDecode", [strings()], (I64([0]), I32([])), **UTF8)


def test_decode_errors():
    message = "Invalid formatting on input string"
    assert_refuses("UnicodeDecode", [BROKEN], message, **UTF8, errors="strict")
    assert_refuses("UnicodeDecodeWithOffsets", [BROKEN], message, **UTF8, errors="strict")
    for encoding in ("nothing", "base64"):
        message = f"Could not create converter for input encoding: {encoding}"
        assert_refuses("UnicodeDecode", [BROKEN], message, input_encoding=encoding)
    message = "replacement_char out of unicode codepoint range"
    assert_refuses("UnicodeDecode", [BROKEN], message, **UTF8, replacement_char=0x110000)


# Encode


def test_code_points_that_are_none():
    inputs = [I32([97, 0x110000, -1, 0xD800]), I32([0, 2, 4])]
    assert_gives("UnicodeEncode", inputs, strings("a\ufffd", "\ufffd\ufffd"), output_encoding="UTF-8")
    assert_gives("UnicodeEncode", inputs, strings("a", ""), output_encoding="UTF-8", errors="ignore")
    message = "Code point is out of range for Unicode, or is a surrogate."
    assert_refuses("UnicodeEncode", inputs, message, output_encoding="UTF-8", errors="strict")


@pytest.mark.parametrize(
    ("values", "splits", "message"),
    [
        ([[97]], [0, 1], "Both the input_tensor and input_splits should be of rank 1."),
        ([97], [], "Input_splits should contain elements, but given input_values has 0 elements"),
        ([97], [1, 1], "First value in input_splits must be zero."),
        ([97], [0, 2], "Last value in input_splits must be equal to length of input_tensor."),
        ([97], [0, 1, 0, 1], "Values in input_splits must be equal or in ascending order."),
    ],
)
def test_encode_errors(values, splits, message):
    assert_refuses("UnicodeEncode", [I32(values), I32(splits)], message, output_encoding="UTF-8")


def test_scripts():
    codes = [ord("A"), ord("α"), ord("ж"), ord("漢"), ord(" "), 0x1F600, 0xD800, -1, 0x110000]
    assert_gives("UnicodeScript", [I32(codes)], I32([25, 14, 8, 17, 0, 0, 103, -1, -1]))
    assert_gives("UnicodeScript", [np.int32(65)], I32(25))


# NGrams

LETTERS = strings(*"abcde")
ROWS = I64([0, 3, 4, 4, 5])


@pytest.mark.parametrize(
    ("widths", "padding", "preserve", "want"),
    [
        ([2], 0, False, [["a|b", "b|c"], [], [], []]),
        ([1, 3], 0, False, [["a", "b", "c", "a|b|c"], ["d"], [], ["e"]]),
        ([2], 1, False, [["<|a", "a|b", "b|c", "c|>"], ["<|d", "d|>"], ["<|>"], ["<|e", "e|>"]]),
        ([3], 0, True, [["a|b|c"], ["d"], [], ["e"]]),
        ([3], 1, True, [["<|a|b", "a|b|c", "b|c|>"], ["<|d|>"], [], ["<|e|>"]]),
        ([], 0, False, [[], [], [], []]),
    ],
)
def test_ngrams(widths, padding, preserve, want):
    attrs = {
        "separator": "|",
        "ngram_widths": widths,
        "left_pad": "<",
        "right_pad": ">",
        "pad_width": padding,
        "preserve_short_sequences": preserve,
    }
    grams = strings(*[gram for row in want for gram in row])
    assert_gives("StringNGrams", [LETTERS, ROWS], (grams, I64(np.cumsum([0, *map(len, want)]))), **attrs)
    if padding == 1:
        dynamic = run_op("StringNGrams", [LETTERS, ROWS], **{**attrs, "pad_width": -1})[0].tolist()
        assert dynamic[0] == b"|".join([b"<"] * (widths[0] - 1) + [b"a"])


NGRAMS = {
    "separator": "|",
    "ngram_widths": [2],
    "left_pad": "",
    "right_pad": "",
    "pad_width": 0,
    "preserve_short_sequences": False,
}


def test_ngrams_of_nothing():
    assert_gives("StringNGrams", [strings(), I32([0, 0])], (strings(), I32([0, 0])), **NGRAMS)
    assert_gives("StringNGrams", [strings(), I64([])], (strings(), I64([])), **NGRAMS)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([1, 5], "First split value must be 0, got 1"),
        ([0, 3], "Last split value must be data size. Expected 5, got 3"),
        ([0, 3, 2, 5], "Invalid split value 2, must be in [3, 5]"),
        ([0, 6], "Invalid split value 6, must be in [0, 5]"),
    ],
)
def test_ngram_errors(splits, message):
    assert_refuses("StringNGrams", [LETTERS, I64(splits)], message, **NGRAMS)
    message = "ngram_widths must contain positive values"
    assert_refuses("StringNGrams", [LETTERS, ROWS], message, **{**NGRAMS, "ngram_widths": [0]})
