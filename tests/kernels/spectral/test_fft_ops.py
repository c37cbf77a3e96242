"""Fourier transforms: NumPy's in double as the oracle, cutting, padding, and TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import F32, I32, assert_refuses, assert_same
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

RANKS = {"": 1, "2D": 2, "3D": 3}
COMPLEX = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn}


@pytest.mark.parametrize("op", [op for op in ops_of("spectral.fft_ops") if in_tensorflow(op) is not None])
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("suffix", RANKS)
@pytest.mark.parametrize("op", COMPLEX)
def test_complex_transforms(op, suffix, dtype):
    x = noise((2, 3, 4, 5)) + 1j * noise((2, 3, 4, 5), 1)
    got = run_op(op + suffix, [x.astype(dtype)])
    want = COMPLEX[op](x, axes=range(-RANKS[suffix], 0))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.complex64 else 1e-12, atol=1e-5)


@settings(deadline=None)  # SciPy is imported on the way
@given(st.data())
def test_real_transforms_and_back(data):
    suffix, rank = data.draw(st.sampled_from(list(RANKS.items())))
    lengths = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    shape = [data.draw(st.integers(1, 3)), *[n + data.draw(st.integers(0, 2)) for n in lengths]]
    x = noise(shape)
    spectrum = run_op(f"RFFT{suffix}", [x, I32(lengths)], Tcomplex="complex128")
    axes = range(-rank, 0)
    cut = x[(slice(None), *map(slice, lengths))]
    np.testing.assert_allclose(spectrum, np.fft.rfftn(cut, axes=axes), atol=1e-12)
    back = run_op(f"IRFFT{suffix}", [spectrum, I32(lengths)], Treal="double")
    np.testing.assert_allclose(back, cut, atol=1e-12)


def test_known_answers():
    assert_same(run_op("RFFT", [F32([1, 2, 3, 4]), I32([4])]), np.complex64([10, -2 + 2j, -2]))
    assert_same(run_op("IRFFT", [np.complex64([10, -2 + 2j, -2]), I32([4])]), F32([1, 2, 3, 4]))
    assert_same(run_op("BatchFFT", [np.complex64([[1, 1]])]), np.complex64([[2, 0]]))


def test_transforms_of_empty_inputs():
    assert run_op("FFT", [np.zeros((2, 0), np.complex64)]).shape == (2, 0)
    assert run_op("RFFT2D", [F32(np.zeros((0, 6))), I32([3, 4])]).tolist() == [[0j] * 3] * 3
    assert run_op("RFFT", [F32(np.ones((2, 6))), I32([0])]).shape == (2, 0)
    assert run_op("IRFFT", [np.zeros((2, 0), np.complex64), I32([4])]).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize(
    ("op", "x", "length", "message"),
    [
        ("RFFT", np.ones((2, 6)), [8], "Input dimension 1 must have length of at least 8 but got: 6"),
        ("IRFFT", np.ones((2, 6), complex), [12], "Input dimension 1 must have length of at least 7 but got: 6"),
        ("RFFT", np.ones((2, 6)), [-1], "fft_length[0] must >= 0, but got: -1"),
        ("RFFT", np.ones((2, 6)), [2, 2], "fft_length must have shape [1]"),
        ("RFFT2D", np.ones(6), [2, 2], "Input must have rank of at least 2 but got: [6]"),
    ],
)
def test_lengths_are_checked(op, x, length, message):
    other = {"Tcomplex": "complex128"} if op.startswith("R") else {"Treal": "double"}
    assert_refuses(op, [x, I32(length)], message, **other)


def test_rank_and_types_are_checked():
    assert_refuses("FFT2D", [np.ones(6, np.complex64)], "Input must have rank of at least 2 but got: [6]")
    assert_refuses("RFFT", [F32([1]), I32([1])], "Wrong types for forward real FFT: in=1 out=18", Tcomplex="complex128")
    assert_refuses(
        "IRFFT", [np.ones(1, complex), I32([1])], "Wrong types for backward real FFT: in=18 out=1", Treal="float"
    )
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("RFFT2D", [F32(np.zeros((2, 0, 0))), I32([2**31 - 1, 2**31 - 1])])


# Over chosen axes


def test_chosen_axes_are_cut_and_padded():
    x = noise((3, 4, 5))
    lengths, axes = [4, 3], [-1, 0]
    args = [I32(lengths), I32(axes)]
    np.testing.assert_allclose(
        run_op("RFFTND", [x, *args], Tcomplex="complex128"), np.fft.rfftn(x, lengths, axes), atol=1e-12
    )
    np.testing.assert_allclose(run_op("FFTND", [x.astype(complex), *args]), np.fft.fftn(x, lengths, axes), atol=1e-12)
    np.testing.assert_allclose(
        run_op("IRFFTND", [x.astype(complex), *args], Treal="double"), np.fft.irfftn(x, lengths, axes), atol=1e-12
    )
    assert run_op("FFTND", [x.astype(complex), I32([]), I32([])]).tolist() == x.tolist()
    assert run_op("RFFTND", [x, I32([0, 3]), I32([0, 1])], Tcomplex="complex128").shape == (0, 2, 5)


@pytest.mark.parametrize(
    ("lengths", "axes", "message"),
    [
        ([2, 2], [0], "fft_length and axes must be vectors of one size, got shapes [2] and [1]"),
        ([2, 2], [0, -2], "axes must be different dimensions of the input of rank 2, got [0, -2]"),
        ([2], [2], "axes must be different dimensions of the input of rank 2, got [2]"),
        ([-2], [1], "fft_length[0] must >= 0, but got: -2"),
    ],
)
def test_chosen_axes_are_checked(lengths, axes, message):
    assert_refuses("FFTND", [np.ones((2, 3), complex), I32(lengths), I32(axes)], message)
