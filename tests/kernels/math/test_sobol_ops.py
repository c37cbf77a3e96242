"""Sobol's sequence: TensorFlow's numbers, parts of a long sequence, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import errors
from aexec.kernels.math import sobol_ops
from tests.kernels.harness import run_op

FIRST = [
    [0.5, 0.5, 0.5, 0.5, 0.5],
    [0.75, 0.25, 0.25, 0.25, 0.75],
    [0.25, 0.75, 0.75, 0.75, 0.25],
    [0.375, 0.375, 0.625, 0.875, 0.375],
    [0.875, 0.875, 0.125, 0.375, 0.875],
    [0.625, 0.125, 0.875, 0.625, 0.625],
]
AFTER_SEVEN = [
    [0.1875, 0.3125, 0.9375, 0.4375],
    [0.6875, 0.8125, 0.4375, 0.9375],
    [0.9375, 0.0625, 0.6875, 0.1875],
    [0.4375, 0.5625, 0.1875, 0.6875],
    [0.3125, 0.1875, 0.3125, 0.5625],
]

LATE_DIMENSIONS = [0.125, 0.875, 0.875, 0.875, 0.625, 0.625, 0.375, 0.375, 0.625]
FAR = np.float32(
    [
        [0.7720468044281006, 0.4215843677520752, 0.10291123390197754],
        [0.2720468044281006, 0.9215843677520752, 0.6029112339019775],
    ]
)


def sample(dim, num_results, skip, **attrs):
    return run_op("SobolSample", [np.int32(dim), np.int32(num_results), np.int32(skip)], **attrs)


def test_known_numbers():
    got = sample(5, 6, 0)
    assert got.dtype == np.float32 and got.tolist() == FIRST
    got = sample(4, 5, 7, dtype="double")
    assert got.dtype == np.float64 and got.tolist() == AFTER_SEVEN
    assert sample(2000, 1, 5)[0, 1111:1120].tolist() == LATE_DIMENSIONS
    np.testing.assert_array_equal(sample(3, 2, 3_000_001), FAR)


def test_long_sequence_is_made_in_parts(monkeypatch):
    whole = sample(3, 20, 11)
    monkeypatch.setattr(sobol_ops, "_AT_ONCE", 12)
    np.testing.assert_array_equal(sample(3, 20, 11), whole)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((0, 3, 0), "dim must be at least one"),
        ((3, 0, 0), "num_results must be at least one"),
        ((3, 2, -1), "skip must be non-negative"),
        ((30000, 2, 0), "dim must be at most 21201, got 30000"),
        (([3], 2, 0), "dim must be a scalar"),
    ],
)
def test_refused(inputs, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        sample(*inputs)
    assert caught.value.message == message
