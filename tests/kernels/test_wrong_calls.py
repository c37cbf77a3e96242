"""Calls that were answered with words of Python's, or as a fault of ours: what is wrong is named, or it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import aexec
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from tests.kernels.harness import run_op, strings
from tests.support.foreign_errors import is_foreign
from tests.support.programs.graphs import GraphBuilder

F32, I32 = np.float32, np.int32


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "words"),
    [
        ("OneHot", [np.array([1], I32), np.array([2, 3], I32), F32(1), F32(0)], {}, "depth must be a scalar"),
        ("OneHot", [np.array([1], I32), I32(2), F32(1), F32(0)], {"axis": 2**31}, "Expected axis to be -1 or between"),
        ("NonDeterministicInts", [np.array([-1], I32)], {"dtype": "int64"}, "must be >= 0"),
        ("NonDeterministicInts", [np.array([[1]], I32)], {"dtype": "int64"}, "shape must be a vector"),
        ("BroadcastTo", [F32(1), np.ones(200_000, I32)], {}, "Too many dimensions"),
        ("Range", [np.float16(0), np.float16(np.inf), np.float16(1)], {}, r"Requires \(\(limit - start\) / delta\)"),
        ("Squeeze", [np.zeros((1, 0, 1), F32)], {"squeeze_dims": [2, -6]}, "Tried to squeeze dim index -6"),
        ("Range", [*np.array([0, 1, -3], bfloat16)], {}, "start >= limit when delta < 0: 0/1"),
        ("Mfcc", [np.zeros((0, 3, 65), F32), I32(16000)], {"upper_frequency_limit": np.inf}, "initialization failed"),
        ("DecodeJSONExample", [strings(b"\xff")], {}, "invalid JSON"),
        ("DecodeJSONExample", [strings(b"1e999")], {}, "invalid JSON"),
        ("StringNGrams", [strings(b"a", shape=()), np.array(1)], {"ngram_widths": [2]}, "First split value must be 0"),
        ("SparseSegmentSqrtNGrad", [F32(0), np.array([2], I32), np.array([0], I32), I32(3)], {}, "rank 1 at least"),
        ("RandomPoissonV2", [np.array([1]), np.array([2**63 - 1])], {"dtype": "int32"}, "rate is too large"),
    ],
)
def test_error_of_a_wrong_call_names_the_fault(op: str, inputs: list[Any], attrs: dict[str, Any], words: str) -> None:
    if op == "StringNGrams":
        attrs |= {
            "separator": b"",
            "left_pad": b"",
            "right_pad": b"",
            "pad_width": 0,
            "preserve_short_sequences": False,
        }
    with pytest.raises(errors.InvalidArgumentError, match=words) as caught:
        run_op(op, inputs, **attrs)
    assert not is_foreign(caught.value)


def test_placeholder_of_nothing_is_between_characters() -> None:
    """TensorFlow's answers."""
    assert run_op("StringFormat", [[I32(1)]], template=b"ab", placeholder=b"", summarize=3).item() == b"a1b"
    assert run_op("StringFormat", [[]], template=b"a", placeholder=b"", summarize=3).item() == b"a"


def test_resized_images_of_an_empty_batch_take_no_time() -> None:
    images, size = np.zeros((0, 4, 4, 3), F32), np.array([10**9, 2], I32)
    for op in ("ResizeBicubic", "ResizeBilinear", "ResizeArea", "ResizeNearestNeighbor"):
        assert run_op(op, [images, size]).shape == (0, 10**9, 2, 3)


def test_grams_that_would_not_fit_are_refused() -> None:
    attrs = {"separator": b"-", "left_pad": b"l", "right_pad": b"r", "preserve_short_sequences": False}
    with pytest.raises(errors.ResourceExhaustedError, match="n-grams of a row need"):
        run_op("StringNGrams", [strings(b"a"), np.array([0, 1])], ngram_widths=[10**6], pad_width=-1, **attrs)


async def test_variable_that_is_not_there() -> None:
    """TensorFlow: INTERNAL, which is for faults of ours."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float32, shape=PartialTensorShape([]))
    g.const("x", 1.0, dtypes.float32)
    g("y", "ResourceApplyGradientDescent", "v", "x", "x", T=dtypes.float32)
    with pytest.raises(errors.OpError) as caught:
        async with aexec.Session(g.graph()) as session:
            await session.run([], targets=["y"])
    assert caught.value.code is errors.Code.FAILED_PRECONDITION and not is_foreign(caught.value)
