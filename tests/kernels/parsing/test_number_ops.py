"""Strings turned into numbers, and back, with TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework.abridged_text import abridged
from tests.kernels.array_support import F32, I64, assert_gives, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings


@pytest.mark.parametrize("op", ops_of("parsing.number_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1), (" 1 ", 1), ("+1", 1), ("-1.5", -1.5), ("1e3", 1000), (".5", 0.5), ("5.", 5), ("0x10", 16),
        ("010", 10), ("0x1.8p1", 3),
        ("inf", np.inf), ("-Infinity", -np.inf), ("NaN", np.nan), ("1e999", np.inf), ("\t1\n", 1),
    ],
)  # fmt: skip
def test_string_to_float(text, number):
    assert_gives("StringToNumber", [strings(text)], F32([number]))
    assert_gives("StringToNumber", [np.array(text.encode(), object)], np.array(number, np.float64), out_type="double")


@pytest.mark.parametrize("text", ["", " ", "1_0", "1d", "--1", "1 2", "1e", "e1", "-", "0b1", "1\x002", "1\u0663"])
@pytest.mark.parametrize("out_type", ["float", "int32", "uint64"])
def test_texts_that_are_no_numbers_are_refused(text, out_type):
    message = f"StringToNumberOp could not correctly convert string: {text}"
    assert_refuses("StringToNumber", [strings(text)], message, out_type=out_type)


@pytest.mark.parametrize("out_type", ["int32", "int64", "uint32", "uint64"])
def test_string_to_integer(out_type):
    dtype = np.dtype(out_type)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    texts = strings(str(high), f" +{high} ", "0", "007", str(low))
    assert_gives("StringToNumber", [texts], np.array([high, high, 0, 7, low], dtype), out_type=out_type)
    for text in (str(high + 1), str(low - 1), "1.5", "0x1", "9" * 5000):
        message = f"StringToNumberOp could not correctly convert string: {abridged(text)}"
        assert_refuses("StringToNumber", [strings(text)], message, out_type=out_type)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_there_and_back(values):
    assert_gives("StringToNumber", [run_op("AsString", [I64(values)])], I64(values), out_type="int64")
