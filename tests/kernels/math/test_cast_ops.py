"""Cast: every pair of types, values out of range, truncation.  Bitcast: shapes and bytes."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import dtypes, errors
from tests.kernels.harness import run_op, strings

INF, NAN = np.inf, np.nan
FLOAT8 = (dtypes.float8_e5m2, dtypes.float8_e4m3fn)
INT4 = (dtypes.int4, dtypes.uint4)
INTEGERS = (*dtypes.INTEGRAL, *dtypes.QUANTIZED)
COMMON = (*dtypes.POD, *dtypes.QUANTIZED)
EVERY = (*COMMON, *FLOAT8, *INT4, dtypes.int2, dtypes.float8_e4m3fnuz, dtypes.string, dtypes.variant)


def cast(x, source, target, **attrs):
    return run_op("Cast", [x], SrcT=source, DstT=target, **attrs)


def supported(source, target):
    """Observed, pair by pair, with TensorFlow 2.21."""
    if source is target:
        return True
    if source in dtypes.FLOAT or source in FLOAT8:
        return target in COMMON or target in FLOAT8
    if source in INTEGERS:
        return target in COMMON or target in INT4
    if source in INT4:
        return target in INTEGERS or target in INT4
    return source in COMMON and target in COMMON


def test_every_pair_of_types():
    for source, target in itertools.product(EVERY, EVERY):
        x = np.array([1] if source.is_simple else [b"1"], source.np)
        if supported(source, target):
            got = cast(x, source, target)
            assert got.dtype == target.np
            assert got.shape == (1,)
            assert not source.is_simple or got.astype(bool).tolist() == [True]
        else:
            with pytest.raises(errors.UnimplementedError, match=f"Cast {source} to {target} is not supported"):
                cast(x, source, target)


def test_same_type_is_the_same_array():
    x = strings("a", "b")
    assert cast(x, "string", "string").tolist() == [b"a", b"b"]


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize(
    ("target", "values", "want"),
    [
        ("uint8", [-1.9, 300, -300, NAN], [255, 44, 212, 0]),
        ("int8", [-1.9, 300, 128, NAN], [-1, 44, -128, 0]),
        ("int16", [65537.5, -32769, INF], [1, 32767, 0]),
        ("quint16", [65537.5, -1, NAN], [1, 65535, 0]),
        ("int32", [1.9, -1.9, 3e9, -3e9, NAN, INF], [1, -1, -(2**31), -(2**31), -(2**31), -(2**31)]),
        ("int64", [1.9, -1.9, 1e19, NAN, -INF], [1, -1, -(2**63), -(2**63), -(2**63)]),
        ("uint32", [4294967040, -1.0, 2.0**32, NAN], [4294967040, 2**32 - 1, 0, 0]),
        ("uint64", [2.0**63, 1.5 * 2.0**63, -1, INF, NAN, 7.9], [2**63, 3 * 2**62, 2**64 - 1, 2**63, 2**63, 7]),
        ("uint64", [0.5, 7.9], [0, 7]),
        ("bool", [0, -0.0, 0.1, NAN], [False, False, True, True]),
        ("half", [65504, 65520, 1e-8, NAN], [65504, INF, 0, NAN]),
    ],
)
def test_floats_out_of_range(source, target, values, want):
    x = np.array(values, dtypes.as_dtype(source).np)
    got = cast(x, source, target)
    np.testing.assert_array_equal(got, np.array(want, got.dtype))


@pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16, dtypes.float8_e5m2])
def test_narrow_floats_go_to_integers_through_float32(source):
    x = np.array([1.5, -1.5, 160, -160, NAN], source.np)
    assert cast(x, source, "int8").tolist() == [1, -1, -96, 96, 0]
    assert cast(x, source, "uint8").tolist() == [1, 255, 160, 96, 0]
    assert cast(x, source, "int32").tolist() == [1, -1, 160, -160, -(2**31)]
    assert cast(x, source, "uint32").tolist() == [1, 2**32 - 1, 160, 2**32 - 160, 0]


@pytest.mark.parametrize(
    ("source", "target", "values", "want"),
    [
        ("int32", "int8", [127, 128, -129, 300], [127, -128, 127, 44]),
        ("int64", "uint32", [-1, 2**32 + 5], [2**32 - 1, 5]),
        ("uint8", "int4", [7, 8, 15, 16], [7, -8, -1, 0]),
        ("int8", "uint4", [-1, 16, 17], [15, 0, 1]),
        ("int4", "int32", [-8, 7], [-8, 7]),
        ("bool", "float", [True, False], [1, 0]),
        ("int64", "float", [2**53 + 1, -3], [9007199254740992, -3]),
        ("int32", "bfloat16", [257, 258, 259], [256, 258, 260]),
        ("int32", "half", [2049, 65520], [2048, INF]),
        ("qint8", "float", [-3, 5], [-3, 5]),
    ],
)
def test_integers(source, target, values, want):
    got = cast(np.array(values, dtypes.as_dtype(source).np), source, target)
    assert got.astype(np.float64).tolist() == np.float64(want).tolist()


def test_float_to_bfloat16_rounds_to_even():
    """SEMANTICS: 0x3f818000 -> 0x3f82, NaN -> 0x7fc0, overflow to infinity, denormals survive."""
    bits = np.uint32([0x3F818000, 0x3F808000, 0x7F7FFFFF, 0x7FC12345, 0x00010000])
    got = cast(bits.view(np.float32), "float", "bfloat16")
    assert got.view(np.uint16).tolist() == [0x3F82, 0x3F80, 0x7F80, 0x7FC0, 0x0001]


def test_double_to_bfloat16_flushes_denormals():
    got = cast(np.float64([1e-40, -1e-40, 1e300, NAN, 1.5]), "double", "bfloat16")
    np.testing.assert_array_equal(got.astype(np.float64), [0, 0, INF, NAN, 1.5])


@pytest.mark.parametrize(
    ("source", "target", "value", "rounded", "truncated"),
    [
        ("float", "bfloat16", 1.0117188, 1.015625, 1.0078125),
        ("float", "half", 65520.0, INF, 65504.0),
        ("float", "half", 1.0009, 1.0009765625, 1.0),
        ("double", "float", 1.00000009, 1.0000001192092896, 1.0),
        ("double", "half", 1.0009, 1.0009765625, 1.0),
        ("double", "bfloat16", 1.0117188, 1.015625, 1.015625),  # TensorFlow rounds here too
        ("half", "float8_e5m2", 1.2, 1.25, 1.0),
        ("complex64", "half", 1.0009, 1.0009765625, 1.0),
        ("complex64", "bfloat16", 1.0117188, 1.015625, 1.015625),
        ("float", "double", 0.1, 0.10000000149011612, 0.10000000149011612),
        ("float", "int32", 1.9, 1.0, 1.0),
    ],
)
def test_truncation(source, target, value, rounded, truncated):
    x = np.array([value, NAN] if target != "int32" else [value], dtypes.as_dtype(source).np)
    for truncate, want in ((False, rounded), (True, truncated)):
        got = cast(x, source, target, Truncate=truncate).astype(np.float64)
        assert got[0] == want
        assert np.isnan(got[1:]).all()
        scalar = cast(x[0], source, target, Truncate=truncate)
        assert float(scalar) == want


def test_truncation_keeps_the_largest_finite_value():
    assert float(cast(np.float32(3.4e38), "float", "bfloat16", Truncate=True)) == float(ml_dtypes.finfo("bfloat16").max)


def test_complex_casts_drop_the_imaginary_part():
    z = np.complex64([1.9 + 5j, -300 + 1j, 2j])
    assert cast(z, "complex64", "int8").tolist() == [1, -44, 0]
    assert cast(z, "complex64", "float").tolist() == np.float32([1.9, -300, 0]).tolist()
    assert cast(z, "complex64", "bool").tolist() == [True, True, False]
    assert cast(z, "complex64", "complex128").tolist() == z.astype(np.complex128).tolist()
    assert cast(np.int32([3]), "int32", "complex64").tolist() == [3 + 0j]


@given(
    x=hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, min_side=0, max_side=4), elements=st.floats(-100, 100)),
    target=st.sampled_from([t for t in COMMON if t not in (dtypes.uint16, dtypes.uint32, dtypes.uint64)]),
)
def test_values_in_range_are_numpys(x, target):
    if target.np.kind == "u":
        x = np.abs(x)
    got = np.asarray(cast(x, "double", target))
    np.testing.assert_array_equal(got, x.astype(np.float32 if target is dtypes.bfloat16 else x.dtype).astype(target.np))
    assert got.dtype == target.np


# Bitcast


@pytest.mark.parametrize(
    ("values", "source", "target", "want"),
    [
        (np.float32([1, -2]), "float", "int32", [0x3F800000, -0x40000000]),
        (np.float32([1]), "float", "uint8", [[0, 0, 0x80, 0x3F]]),
        (np.float32(1), "float", "uint8", [0, 0, 0x80, 0x3F]),
        (np.uint8([[0, 0, 0x80, 0x3F]]), "uint8", "float", [1.0]),
        (np.float32([1, 2]), "float", "double", 2.000000473111868),
        (np.zeros((0, 2), np.float32), "float", "complex64", np.zeros(0)),
        (np.zeros((2, 0), np.float32), "float", "int8", np.zeros((2, 0, 4))),
        (np.float32([1]), "float", "qint32", [0x3F800000]),
        (np.int8([-1]), "qint8", "quint8", [255]),
    ],
)
def test_bitcast(values, source, target, want):
    got = np.asarray(run_op("Bitcast", [values], T=source, type=target))
    assert got.dtype == dtypes.as_dtype(target).np
    np.testing.assert_array_equal(got, want)
    assert got.shape == np.shape(want)


def test_bitcast_of_a_strided_array():
    x = np.arange(12, dtype=np.uint8).reshape(3, 4).T
    np.testing.assert_array_equal(run_op("Bitcast", [x.T], type="uint32"), x.T.copy().view(np.uint32)[:, 0])
    np.testing.assert_array_equal(
        run_op("Bitcast", [np.float32([[1, 2], [3, 4]]).T], type="uint8"),
        np.float32([[1, 3], [2, 4]]).view(np.uint8).reshape(2, 2, 4),
    )


@pytest.mark.parametrize("shape", [(3,), (), (2, 1), (0, 3)])
def test_bitcast_to_a_wider_type_takes_up_the_last_dimension(shape):
    with pytest.raises(errors.InvalidArgumentError, match="Cannot bitcast from 1 to 2"):
        run_op("Bitcast", [np.zeros(shape, np.float32)], type="double")
