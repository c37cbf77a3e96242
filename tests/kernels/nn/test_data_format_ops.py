"""Dimension numbers and vectors from one layout to another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

LAYOUTS = [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "HWNC"), ("NDHWC", "NCDHW"), ("NHWC", "NCWH")]


@pytest.mark.parametrize("op", ops_of("nn.data_format_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(("source", "target"), LAYOUTS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_two_ops_agree_with_the_letters(source, target, dtype):
    attrs = {"src_format": source, "dst_format": target}
    numbers = np.arange(len(source), dtype=dtype)
    mapped = run_op("DataFormatDimMap", [numbers], **attrs)
    assert mapped.dtype == dtype
    assert [target[i] for i in mapped] == list(source)
    np.testing.assert_array_equal(run_op("DataFormatDimMap", [numbers - len(source)], **attrs), mapped)
    moved = run_op("DataFormatVecPermute", [numbers], **attrs)
    assert [source[i] for i in moved] == list(target)
    pairs = run_op("DataFormatVecPermute", [np.stack([numbers, -numbers], axis=1)], **attrs)
    np.testing.assert_array_equal(pairs, np.stack([moved, -moved], axis=1))


def test_vector_of_spatial_dimensions():
    for source, target in itertools.permutations(["NHWC", "NCWH", "WHCN"], 2):
        letters = [x for x in source if x not in "NC"]
        got = run_op("DataFormatVecPermute", [[0, 1]], src_format=source, dst_format=target)
        assert [letters[i] for i in got] == [x for x in target if x not in "NC"]


def test_scalar_dimension():
    assert int(run_op("DataFormatDimMap", [3])) == 1


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("NHWC", "NCH", "Destination format must be of length 4 or 5, received dst_format = NCH"),
        ("NHW", "NCH", "Source format must be of length 4 or 5, received src_format = NHW"),
        ("NHWC", "NCHX", "Destination and source format must determine a permutation, got NHWC and NCHX"),
        ("NHHC", "NCHH", "Destination and source format must determine a permutation, got NHHC and NCHH"),
    ],
)
def test_refuses_layouts(source, target, message):
    for op in ops_of("nn.data_format_ops"):
        assert_refuses(op, [[0, 1]], message, src_format=source, dst_format=target)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), "input must be a vector or 2D tensor, but got shape []"),
        ((3,), "1D input must be of size 2 or 4, but got shape [3]"),
        ((5, 2), "First dimension of 2D input must be of size 2 or 4, but got shape [5,2]"),
        ((4, 3), "Second dimension of 2D input must be of size 2, but got shape [4,3]"),
    ],
)
def test_refuses_shapes(shape, message):
    assert_refuses("DataFormatVecPermute", [np.zeros(shape, np.int32)], message)
