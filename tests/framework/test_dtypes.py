"""Data types: what names one, and what one equals."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import DType, as_dtype

ALL = sorted({d for d in vars(dtypes).values() if isinstance(d, DType)}, key=lambda d: d.enum)
WITH_TWIN = [d for d in ALL if not d.is_quantized and d.name not in ("resource", "variant")]


class TensorFlowDType:
    """What TensorFlow's dtype objects look like."""

    def __init__(self, enum: int) -> None:
        self.as_datatype_enum = enum
        self.as_numpy_dtype = dtypes.as_dtype(enum).np.type


class TestNames:
    @pytest.mark.parametrize("dtype", ALL, ids=str)
    def test_tensorflows_dtypes_are_taken(self, dtype: DType) -> None:
        assert as_dtype(TensorFlowDType(dtype.enum)) is dtype
        assert as_dtype(TensorFlowDType(dtype.ref.enum)) is dtype.ref
        assert dtype == TensorFlowDType(dtype.enum)

    @pytest.mark.parametrize(
        ("python", "value"),
        [(float, 1.0), (int, 1), (bool, True), (complex, 1j), (str, "a"), (bytes, b"a")],
    )
    def test_pythons_types_mean_what_constants_of_them_are(self, python: type, value: Any) -> None:
        with aexec.Graph():
            assert as_dtype(python) is aexec.constant(value).dtype

    def test_every_type_is_a_name_of_the_package(self) -> None:
        for dtype in ALL:
            assert eval(repr(dtype)) is dtype
            assert eval(repr(dtype.ref)) is dtype.ref
        assert aexec.float32 is aexec.as_dtype(np.float32)
        assert aexec.bool is aexec.bool_ is as_dtype(np.bool_)
        assert aexec.half is aexec.float16 and aexec.double is aexec.float64

    def test_names_are_taken_wherever_a_type_is(self) -> None:
        with aexec.Graph():
            for given in (aexec.float64, np.float64, np.dtype(np.float64), "float64", TensorFlowDType(2)):
                assert aexec.placeholder(given).dtype is aexec.float64
                assert aexec.constant(1, given).dtype is aexec.float64
                assert aexec.ops.cast(1, given).dtype is aexec.float64
                assert aexec.ops.identity_n([1.0], T=[given])[0].dtype is aexec.float64
                assert aexec.ops.pack([1.0], T=given).dtype is aexec.float64

    @pytest.mark.parametrize("bad", [None, True, "flot", object(), [1], 1000, np.dtype("datetime64[s]"), dict])
    def test_unknown_type_names_are_refused(self, bad: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError):
            as_dtype(bad)


@pytest.mark.parametrize(
    ("dtype", "name", "wire_name"),
    [
        (aexec.float32, "float32", "float"),
        (aexec.float64, "float64", "double"),
        (aexec.float16, "float16", "half"),
        (aexec.bfloat16, "bfloat16", "bfloat16"),
        (aexec.int8, "int8", "int8"),
        (aexec.bool_, "bool", "bool"),
        (aexec.string, "string", "string"),
        (aexec.qint8, "qint8", "qint8"),
        (aexec.variant, "variant", "variant"),
    ],
)
def test_names_are_those_of_tensorflow(dtype: DType, name: str, wire_name: str) -> None:
    """One in programs, as `tf.DType.name` has it, and one in messages and attrs."""
    assert (dtype.name, dtype.wire_name, str(dtype)) == (name, wire_name, wire_name)
    assert (dtype.ref.name, dtype.ref.wire_name, str(dtype.ref)) == (f"{name}_ref", *[f"{wire_name}_ref"] * 2)
    assert as_dtype(name) is as_dtype(wire_name) is dtype and as_dtype(f"{name}_ref") is dtype.ref


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_name_of_a_type_finds_it(dtype: DType) -> None:
    assert as_dtype(dtype.name) is as_dtype(dtype.wire_name) is dtype
    if dtype in WITH_TWIN and dtype is not aexec.string:
        assert dtype.np == dtype.name == dtype.np.name


class TestEquality:
    @pytest.mark.parametrize("dtype", WITH_TWIN, ids=str)
    def test_same_type_of_numpy_is_equal_from_both_sides(self, dtype: DType) -> None:
        assert dtype == dtype.np and dtype.np == dtype
        assert dtype == dtype.np.type
        assert dtype == dtype.name
        assert hash(dtype) == hash(dtype.np)
        assert {dtype: 1}[dtype.np] == 1  # type: ignore[index]
        assert as_dtype(dtype.np) is dtype
        assert np.dtype(dtype) == dtype.np
        assert np.zeros(2, dtype).dtype == dtype.np

    @pytest.mark.parametrize("dtype", WITH_TWIN, ids=str)
    def test_type_of_numpy_equals_one_alone(self, dtype: DType) -> None:
        assert [d for d in [*ALL, *(d.ref for d in ALL)] if dtype.np == d] == [dtype]

    @pytest.mark.parametrize("dtype", [*[d.ref for d in ALL], *(d for d in ALL if d not in WITH_TWIN)], ids=str)
    def test_types_that_numpy_lacks_equal_none_of_its(self, dtype: DType) -> None:
        assert dtype != dtype.np and dtype.np != dtype
        assert dtype != dtype.np.type
        with pytest.raises(AttributeError, match="NumPy has no dtype equal to"):
            dtype.dtype

    def test_refs_equal_nothing_else(self) -> None:
        ref = aexec.float32.ref
        assert ref != aexec.float32 and ref != "float" and ref != "float_ref" and ref != TensorFlowDType(101)
        assert aexec.float32 != "float_ref"

    def test_different_types_differ(self) -> None:
        assert aexec.float32 != np.float64 and aexec.float32 != "float64"
        assert aexec.float32 != np.dtype(">f4")
        assert aexec.bfloat16 == ml_dtypes.bfloat16 and aexec.bfloat16 != np.float16
        # A number or a type of Python's names a DType where one is asked for, and is none.
        assert aexec.float32 != 1 and float not in ALL

    def test_pickled_ones_are_the_same(self) -> None:
        for dtype in ALL:
            assert pickle.loads(pickle.dumps(dtype)) is dtype
            assert pickle.loads(pickle.dumps(dtype.ref)) is dtype.ref

    def test_of_a_number(self) -> None:
        for dtype in ALL:
            assert aexec.DType(dtype.enum) is dtype and aexec.DType(dtype.ref.enum) is dtype.ref
        assert aexec.float32.np == np.float32  # as before
        with pytest.raises(TypeError, match="999 does not correspond to a valid"):
            aexec.DType(999)
        with pytest.raises(ValueError, match="invalid literal"):
            aexec.DType("a")  # type: ignore[arg-type]
