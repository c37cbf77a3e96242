"""Stateful random ops: the bits that TensorFlow gives for seeds 5 and -9, in the first and the second run."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op
from tests.kernels.numeric_support import assert_refused

SEEDS = {"seed": 5, "seed2": -9}
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("op", ops_of("random.random_ops", "random.gamma_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def runs(op, inputs, **attrs):
    """Results of two runs of one node."""
    built, arrays, _ = build(op, inputs, **attrs)
    return built.compute(*arrays), built.compute(*arrays)


FLOATS = [
    ("RandomUniform", "half", "d036c030d23a402cd43b5239843a", "26380025a0366436dc34f63a2034"),
    ("RandomStandardNormal", "half", "d4b78c3b9138df39d53b6539963a", "0b3cecb74b39e6b901bac0c104b6"),
    ("TruncatedNormal", "half", "d4b78c3b9138df39a234ffb005be", "0b3cecb74b39e6b9f7bc7aba0338"),
    ("RandomUniform", "bfloat16", "d03e403e523f083f543fa43e043f", "183e203ea03e483edc3e763f803d"),
    ("RandomStandardNormal", "bfloat16", "fabe713f123f3c3f7b3f2d3f533f", "813ffdbe293f3dbf40bf38c0c1be"),
    ("TruncatedNormal", "bfloat16", "fabe713f123f3c3f943e20bec1bf", "813ffdbe293f3dbf9fbf4fbf003f"),
    (
        "RandomUniform",
        "float",
        "6893113f30816c3fd22e263f4084d73da89ffc3e48b51d3e085db83e",
        "26f4073f5020a53e50c31c3f6466c43e809b463cf6660a3f105a593f",
    ),
    (
        "RandomStandardNormal",
        "float",
        "f57bfabe4475713f7c22123ff7d33b3f059b7a3f78982c3f8ab8523f",
        "f950813f6174fdbe0f58293f02b23cbf4a1040bf59f737c0258dc0be",
    ),
    (
        "TruncatedNormal",
        "float",
        "f57bfabe4475713f7c22123ff7d33b3fdc3f943e61e91fbe19a8c0bf",
        "f950813f6174fdbe0f58293f02b23cbfdcdb9ebf06404fbf0c5b003f",
    ),
    (
        "RandomUniform",
        "double",
        "3081ec0c6993e13f20c26b3c4bbbc83f526d27b2d44fee3f3e0119d5852eec3f783dcbc0f404d53f7000f1dce47ec33fa42b4504fb67d53f",
        "a0404ac59ed0cf3f3233626d50c3ec3fb037535c74d3b83f8a399db3115ae93ff0d924d2bf13eb3ff46c72ad900ed03f8c2ff8a021f8de3f",
    ),
    (
        "RandomStandardNormal",
        "double",
        "9a9b44969c69f03ffc9c08066678d83fabf753c081b7ccbff1ac11e2ccd7ce3f21e88f289e84f33f0bc24c993381eb3faedf32b83503f2bf",
        "a531dc6abab2efbf4587d7d9e27bf53f0e861f6234ad00c0cded914a4422e23f5f9f13f6f47ee23fbdafc218ba726abfe6396991a262f0bf",
    ),
    (
        "TruncatedNormal",
        "double",
        "9a9b44969c69f03ffc9c08066678d83f0c6b230c1542f4bfaa7b460f0b50f3bfed95acfcd229edbfa3c348a9dd6ee03ffe04cccc9c69e6bf",
        "a531dc6abab2efbf4587d7d9e27bf53fa6679a56d6dbe23fa8b0a1a399a1d0bf673859d9c145ecbff5042c5c97ebc3bf40d81d23d780da3f",
    ),
]


@pytest.mark.parametrize(("op", "dtype", "first", "second"), FLOATS)
def test_floats(op, dtype, first, second):
    got = runs(op, [np.int32([7])], dtype=dtype, **SEEDS)
    assert [g.tobytes().hex() for g in got] == [first, second]


@pytest.mark.parametrize(
    ("op", "dtype", "digests"),
    [
        (
            "TruncatedNormal",
            "float",
            [
                "7c1d19cb0b7d1021757ae597879ed540312887bd8ac8e2053eeeef5890a4f9e1",
                "57512d295628ff508f220dd34de7cca4c07190e1cf8848a341c858b315ebdfae",
            ],
        ),
        (
            "RandomStandardNormal",
            "float",
            [
                "bc984aa341609fd6ccc80f188243f77f3165d5aea3f0910df549bfc46944b031",
                "524a95db395de9bb844e5409cb9ae7a451de78221209d15f28885a783ba6e1d9",
            ],
        ),
        (
            "TruncatedNormal",
            "double",
            [
                "bb4e5bcd113e9d479ebf4a4a9d3ea3d9ebda7fdd0fc825eeeb2cc5a1bd46bb29",
                "4900759f2bab98770110d659c196925e60d06414e759da3863e86a205b532cc6",
            ],
        ),
    ],
)
def test_thirty_thousand_floats(op, dtype, digests):
    got = runs(op, [np.int64([300, 100])], dtype=dtype, seed=3, seed2=4)
    assert [hashlib.sha256(g.tobytes()).hexdigest() for g in got] == digests


def test_integers():
    got = runs("RandomUniformInt", [np.int32([7]), np.int32(-5), np.int32(100)], **SEEDS)
    assert [g.tolist() for g in got] == [[26, 73, 78, 67, 54, 4, 48], [55, 52, 38, 89, 74, 15, 72]]
    got = runs("RandomUniformInt", [np.int32([7]), np.int64(-(2**63)), np.int64(2**63 - 1)], **SEEDS)
    assert [g.tolist()[:2] for g in got] == [
        [465630635798088116, -1761619643013589143],
        [6388716798300387859, -5282412740486471256],
    ]


def test_shuffle():
    got = runs("RandomShuffle", [np.arange(9, dtype=np.int32)], **SEEDS)
    assert [g.tolist() for g in got] == [[4, 1, 8, 3, 2, 6, 0, 5, 7], [1, 7, 5, 2, 4, 6, 3, 8, 0]]
    rows = np.arange(18).reshape(9, 2)
    assert run_op("RandomShuffle", [rows], **SEEDS).tolist() == rows[got[0]].tolist()


@pytest.mark.parametrize("value", [np.int32(3), np.int32([7]), np.zeros((0, 3), np.int32), np.zeros((3, 0), np.int32)])
def test_shuffle_of_less_than_two_rows_keeps_the_value(value):
    assert run_op("RandomShuffle", [value], **SEEDS).tolist() == value.tolist()


def test_multinomial():
    logits = np.float32([[0, 1, 2], [-INF, 1, NAN]])
    got = runs("Multinomial", [logits, np.int32(6)], **SEEDS)
    assert [g.tolist() for g in got] == [
        [[2, 1, 2, 2, 1, 1], [1, 1, 1, 1, 1, 1]],
        [[1, 2, 2, 2, 2, 1], [1, 1, 1, 1, 1, 1]],
    ]
    assert run_op("Multinomial", [logits, np.int32(0)], **SEEDS).shape == (2, 0)
    assert run_op("Multinomial", [logits[:0], np.int32(2)], **SEEDS).shape == (0, 2)


@pytest.mark.parametrize(
    ("logits", "count", "message"),
    [
        ([1.0, 2.0], 3, "logits should be a matrix, got shape [2]"),
        ([[1.0, 2.0]], -1, "num_samples should be non-negative, got -1"),
        ([[1.0, 2.0]], [3], "num_samples should be a scalar, got shape [1]"),
        ([[]], 3, "num_classes should be positive, got 0"),
    ],
)
def test_wrong_multinomial(logits, count, message):
    assert_refused(message, "Multinomial", [np.float32(logits), np.int32(count)])


def test_gamma():
    got = runs("RandomGamma", [np.int32([3]), np.float64([0.5, 1, 4])], **SEEDS)
    wanted = (
        "e4b318a4b767f73fbbe5239c7e44f53f3bfa9efdd7f20940b5481d445d2de13f536ad950c15ffa3f12d13ff6e58a1b408b176d8b1e9d0740"
        "a63b95249d030440b606cb3f68030b40"
    )
    first = np.frombuffer(bytes.fromhex(wanted)).reshape(3, 3)
    np.testing.assert_allclose(got[0], first, rtol=1e-15)
    assert not np.array_equal(got[0], got[1])


def test_gamma_at_the_edges():
    alpha = np.float64([NAN, -3, INF, 0])
    got = run_op("RandomGamma", [np.int32([2]), alpha], **SEEDS)
    assert got.tolist()[0][2:] == [INF, 0]
    assert np.isnan(got[:, :2]).all()
    assert run_op("RandomGamma", [np.int32([0]), np.float32([])]).shape == (0, 0)
    assert run_op("RandomGamma", [np.int32([2]), np.float32([])]).shape == (2, 0)
    assert run_op("RandomGamma", [np.int32([]), np.zeros((2, 0), np.float32)]).shape == (2, 0)


def test_gamma_moments():
    got = run_op("RandomGamma", [np.int32([20000]), np.float64([0.3, 1, 5])], **SEEDS)
    np.testing.assert_allclose(got.mean(axis=0), [0.3, 1, 5], rtol=0.03)
    np.testing.assert_allclose(got.var(axis=0), [0.3, 1, 5], rtol=0.06)


def test_kernels_without_seeds_differ():
    draws = {build("RandomUniform", [np.int32([4])], dtype="float")[0].compute(np.int32([4])).tobytes() for _ in "ab"}
    assert len(draws) == 2


@pytest.mark.parametrize("shape", [[], [0], [2, 0, 3], [1]])
@pytest.mark.parametrize("op", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"])
def test_small_shapes(op, shape):
    assert run_op(op, [np.array(shape, np.int64)], dtype="double", **SEEDS).shape == tuple(shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (3, "shape must be a vector of {int32,int64}, got shape []"),
        ([[1, 2]], "shape must be a vector of {int32,int64}, got shape [1,2]"),
        ([-1], "Dimension -1 must be >= 0"),
    ],
)
def test_wrong_shape(shape, message):
    assert_refused(message, "RandomUniform", [np.array(shape, np.int32)], dtype="float")


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([1, 2], 3, "minval must be 0-D, got shape [2]"),
        (1, [3], "maxval must be 0-D, got shape [1]"),
        (3, 3, "Need minval < maxval, got 3 >= 3"),
    ],
)
def test_wrong_bounds(low, high, message):
    assert_refused(message, "RandomUniformInt", [np.int32([2]), np.int32(low), np.int32(high)])


def test_empty_range_of_no_integers():
    assert run_op("RandomUniformInt", [np.int32([0]), np.int32(3), np.int32(3)]).shape == (0,)


def test_sample_larger_than_memory_is_refused():
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating tensor"):
        run_op("RandomUniform", [np.int64([2**50])], dtype="float")
