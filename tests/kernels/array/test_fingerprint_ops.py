"""FarmHash, Fingerprint and EditDistance: values published or computed by TensorFlow, and its messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.numerics import farmhash_rows
from aexec.numerics.farmhash import fingerprint64
from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses
from tests.kernels.harness import strings

FARMHASH = strings("farmhash64").reshape(())


# ---- FarmHash


@pytest.mark.parametrize(
    ("data", "fingerprint"),
    [
        (b"", 0x9AE16A3B2F90404F),
        (b"a", 0xB3454265B6DF75E3),
        (b"abc", 0x24A5B3A074E7F369),
        (b"hello, world", 0x0BDDB94646E75817),
        (b"0123456789abcdef", 0x54B961E5DC834067),
        (b"x" * 17, 0x9CE745A1F3812FA5),
        (b"y" * 33, 0x777F79E52D060EFE),
        (b"z" * 64, 0x041756D0F401A218),
        (b"w" * 65, 0xAD68852F3C9C3280),
        (b"v" * 1000, 0xCF0EAEC848CF2309),
    ],
)
def test_fingerprint64(data, fingerprint):
    assert fingerprint64(data) == fingerprint
    rows = np.frombuffer(data * 3, np.uint8).reshape(3, len(data))
    assert farmhash_rows.fingerprint64_rows(rows).tolist() == [fingerprint] * 3


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_many_strings_hash_as_each_alone(data):
    alone = [fingerprint64(one) for one in data]
    assert farmhash_rows.fingerprint64_strings(data).tolist() == alone
    assert farmhash_rows.fingerprint64_strings(data * 40).tolist() == alone * 40


# ---- Fingerprint


def test_fingerprint_hashes_the_bytes_of_each_row():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    want = np.uint8([[97, 250, 103, 235, 2, 197, 12, 216], [137, 64, 115, 26, 94, 100, 213, 1]])
    assert_gives("Fingerprint", [x, FARMHASH], want)
    assert_gives("Fingerprint", [np.asfortranarray(x), FARMHASH], want)


def test_fingerprint_of_strings():
    one_each = np.uint8([[105, 243, 231, 116, 160, 179, 165, 36], [79, 64, 144, 47, 59, 106, 225, 154]])
    assert_gives("Fingerprint", [strings("abc", ""), FARMHASH], one_each)
    assert_gives("Fingerprint", [strings("abc", "", shape=(2, 1)), FARMHASH], one_each)
    two_each = np.uint8([[255, 52, 51, 78, 100, 133, 8, 62], [20, 230, 232, 213, 226, 189, 67, 159]])
    assert_gives("Fingerprint", [strings("abc", "x", "", "yy", shape=(2, 2)), FARMHASH], two_each)


def test_fingerprint_of_nothing():
    assert_gives("Fingerprint", [np.zeros((0, 2), np.float32), FARMHASH], np.zeros((0, 8), np.uint8))
    empty = [79, 64, 144, 47, 59, 106, 225, 154]
    assert_gives("Fingerprint", [np.zeros((2, 0), np.float32), FARMHASH], np.uint8([empty, empty]))


@pytest.mark.parametrize(
    ("data", "method", "message"),
    [
        (F32([1]), strings("md5").reshape(()), "Unsupported fingerprint method: md5"),
        (F32(1), FARMHASH, "`data` should have at least one dimension: []"),
        (F32([1]), strings("farmhash64"), "`method` should be a scalar string: [1]"),
    ],
)
def test_fingerprint_refuses(data, method, message):
    assert_refuses("Fingerprint", [data, method], message)


# ---- EditDistance


def sparse(indices, values, shape):
    rank = len(shape)
    return [I64(indices).reshape(-1, rank), np.array(values), I64(shape)]


@pytest.mark.parametrize(
    ("hypothesis", "truth", "normalized", "plain"),
    [
        (sparse([[0, 0], [0, 1]], [1, 2], [1, 2]), sparse([[0, 0], [0, 1]], [1, 3], [1, 2]), [0.5], [1]),
        # A sequence in one of them only, in neither, and shapes that differ.
        (
            sparse([[0, 0], [2, 0]], [1, 2], [4, 2]),
            sparse([[0, 0], [1, 1]], [1, 3], [3, 2]),
            [0, 1, np.inf, 0],
            [0, 1, 1, 0],
        ),
        (sparse([], I32([]), [2, 2]), sparse([], I32([]), [2, 2]), [0, 0], [0, 0]),
        (
            sparse([[0, 0], [0, 1], [0, 2]], F32([np.nan, 1, 2]), [1, 3]),
            sparse([[0, 0], [0, 1]], F32([np.nan, 2]), [1, 2]),
            [1],
            [2],
        ),
        # kitten and sitting
        (
            sparse([[0, i] for i in range(6)], list(b"kitten"), [1, 6]),
            sparse([[0, i] for i in range(7)], list(b"sitting"), [1, 7]),
            np.float32([3]) / np.float32(7),
            [3],
        ),
        # Runs of equal coordinates that are not in order are taken as they come.
        (sparse([[1, 0], [0, 0]], [1, 2], [2, 2]), sparse([[0, 0]], [1], [2, 2]), [np.inf, np.inf], [1, 1]),
    ],
)
def test_edit_distance(hypothesis, truth, normalized, plain):
    assert_gives("EditDistance", [*hypothesis, *truth], F32(normalized))
    assert_gives("EditDistance", [*hypothesis, *truth], F32(plain), normalize=False)


def test_edit_distance_of_strings_in_a_grid():
    hypothesis = [I64([[0, 0, 0], [0, 1, 0], [1, 0, 1]]), strings("a", "b", "c"), I64([2, 2, 1])]
    truth = [I64([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]]), strings("a", "b", "c", "a"), I64([2, 2, 2])]
    assert_gives("EditDistance", [*hypothesis, *truth], F32([[0.5, np.inf], [0, 1]]))


ONE = sparse([[0, 0]], [1], [1, 1])


@pytest.mark.parametrize(
    ("hypothesis", "truth", "message"),
    [
        ([I64([0, 0]), I32([1]), I64([1, 1])], ONE, "hypothesis_indices should be a matrix, but got shape: [2]"),
        ([I64([[0, 0]]), I32([[1]]), I64([1, 1])], ONE, "hypothesis_values should be a vector, but got shape: [1,1]"),
        (ONE, [I64([[0, 0]]), I32([1]), I64([[1, 1]])], "truth_shape should be a vector, but got shape: [1,2]"),
        (
            ONE,
            [I64([[0, 0]]), I32([1, 2]), I64([1, 1])],
            "Expected truth_values.NumElements == #rows(truth_indices), their shapes are: [2] and [1,2]",
        ),
        (
            [I64([[0, 0]]), I32([1]), I64([1, 2, 3])],
            ONE,
            "Expected hypothesis_shape.NumElements == #cols(hypothesis_indices), their shapes are: [3] and [1,2]",
        ),
        (
            sparse([[0]], [1], [3]),
            sparse([[0]], [1], [3]),
            "Input SparseTensors must have rank at least 2, but truth_shape rank is: 1",
        ),
        (ONE, [I64([[0, 0]]), I32([1]), I64([-1, 2])], "Dimension -1 must be >= 0"),
    ],
)
def test_edit_distance_refuses(hypothesis, truth, message):
    assert_refuses("EditDistance", [*hypothesis, *truth], message)


@pytest.mark.parametrize("place", [3, -1])
def test_edit_distance_outside_of_the_output(place):
    text = (
        f"Got an inner product {place} which would require writing to outside of the buffer "
        "for the output tensor (max elements 1)"
    )
    outside = [I64([[place, 0]]), I32([1]), I64([1, 1])]
    assert_refuses("EditDistance", [*outside, *ONE], text, error=errors.InvalidArgumentError)
