"""Arrays of other libraries as feeds: without a copy where their layout allows it; unsupported ones are refused."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import as_dtype
from aexec.runtime.feeding.feeds import FeedSpec

FLOATS = np.array([1.5, 2.5], np.float32)


def fed(value: Any, dtype: Any = "float32") -> Any:
    """The array that a kernel gets for a fed value."""
    return FeedSpec("x:0", as_dtype(dtype)).convert(value)


def series(values: Any, dtype: str) -> pd.Series:
    return pd.Series(values, dtype=dtype)


FRAME = pd.DataFrame(np.arange(6, dtype=np.float32).reshape(3, 2), columns=["a", "b"])
PAIRS = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))


@pytest.mark.parametrize(
    ("value", "memory"),
    [
        (series(FLOATS, "float32"), lambda value: value.to_numpy()),
        (FRAME, lambda value: value.to_numpy()),
        (pd.Index(FLOATS), lambda value: value.to_numpy()),
        (pa.array(FLOATS)[1:], np.from_dlpack),
        (pa.chunked_array([pa.array(FLOATS)]), lambda value: np.from_dlpack(value.chunk(0))),
        (pa.Tensor.from_numpy(FLOATS), lambda value: value.to_numpy()),
        (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)), lambda value: np.from_dlpack(value.flatten())),
    ],
    ids=["Series", "DataFrame", "Index", "pyarrow", "one chunk", "Tensor", "fixed-size lists"],
)
async def test_foreign_arrays_are_fed_without_a_copy(value: Any, memory: Any) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", name="x")
        y = aexec.ops.identity(x)
    async with aexec.Session(graph) as session:
        given, result = await session.run([x, y], {x: value})
    assert np.shares_memory(given, memory(value)) and np.shares_memory(result, memory(value))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (series([1, 2], "Int64"), "int64", [1, 2]),
        (series([1, 2], "int32[pyarrow]"), "int32", [1, 2]),
        (series([True, False], "boolean"), "bool", [True, False]),
        (series(["a", "é"], "str"), "string", [b"a", "é".encode()]),
        (series(["a", "b", "a"], "category"), "string", [b"a", b"b", b"a"]),
        (series([3, 4, 3], "category"), "int64", [3, 4, 3]),
        (series([0.0, 1.0], "Sparse[float64]"), "float64", [0, 1]),
        (pd.array([1, 2], dtype="Int32"), "int32", [1, 2]),
        (pd.RangeIndex(3), "int64", [0, 1, 2]),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), "float32", [[1, 0.5], [2, 1.5]]),
        (pd.DataFrame({"a": series([1, 2], "Int64"), "b": [0.5, 1.5]}), "float32", [[1, 0.5], [2, 1.5]]),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "string", [[b"x", b"y"]]),
    ],
    ids=lambda value: getattr(value, "dtype", None),
)
def test_pandas(value: Any, dtype: str, expected: Any) -> None:
    assert fed(value, dtype).tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (pa.array([1, 2], pa.int8()), "int8", [1, 2]),
        (pa.array(np.array([1, 2], np.float16)), "float16", [1, 2]),
        (pa.array([True, False, True])[1:], "bool", [False, True]),
        (pa.array(["a", "é"]), "string", [b"a", "é".encode()]),
        (pa.array([b"\xff"], pa.large_binary()), "string", [b"\xff"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", [b"a", b"b", b"a"]),
        (pa.chunked_array([[1, 2], [3]], pa.int64()), "int64", [1, 2, 3]),
        (pa.chunked_array([], pa.int32()), "int32", []),
        (PAIRS[1:], "int32", [[3, 4], [5, 6]]),
        (pa.array([[1, 2], [3, 4]]), "int32", [[1, 2], [3, 4]]),
        (
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8).reshape(2, 2, 2)),
            "int64",
            [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        ),
        (pa.scalar(2.5), "float32", 2.5),
        (pa.scalar([1, 2]), "int64", [1, 2]),
        (pa.table({"a": [1, 2], "b": [3, 4]}), "int64", [[1, 3], [2, 4]]),
        (pa.record_batch({"a": ["x", "y"]}), "string", [[b"x"], [b"y"]]),
    ],
    ids=lambda value: str(getattr(value, "type", None)),
)
def test_pyarrow(value: Any, dtype: str, expected: Any) -> None:
    assert fed(value, dtype).tolist() == expected


@pytest.mark.parametrize(
    ("mode", "dtype", "shape"),
    [
        ("L", "uint8", (2, 3)),
        ("RGB", "uint8", (2, 3, 3)),
        ("1", "bool", (2, 3)),
        ("I;16", "uint16", (2, 3)),
        ("F", "float32", (2, 3)),
        ("P", "uint8", (2, 3)),
    ],
)
def test_images(mode: str, dtype: str, shape: tuple[int, ...]) -> None:
    image = fed(Image.new(mode, (3, 2), 1), dtype)
    assert image.shape == shape and image.ravel()[0] == 1


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (series([1, None], "Int64"), "int64", "of type pandas.Series, is no tensor: 1 of its values are missing"),
        (series(["a", None], "str"), "string", "1 of its values are missing: fill or drop them first"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), "int64", "Expects arg[0] to be int64 but datetime64"),
        (pd.DataFrame({"a": ["x"], "b": [1]}), "float32", "to be float but a value of type str is provided (feed x:0)"),
        (FRAME, "int32", "Expects arg[0] to be int32 but float is provided (feed x:0)"),
        (pa.array([1, None]), "int64", "of type pyarrow.Int64Array, is no tensor: 1 of its values are null"),
        (pa.scalar(None, pa.int8()), "int8", "of type pyarrow.Int8Scalar, is no tensor: it is null"),
        (pa.array([[1, None]], pa.list_(pa.int32(), 2)), "int32", "1 of its values are null"),
        (pa.array([[1], [2, 3]]), "int32", "Cannot feed x:0: setting an array element with a sequence"),
        (pa.array([{"a": 1}]), "int32", "a value of type dict is provided"),
        (pa.table({"a": [1], "b": [1.0]}), "float32", "its columns are of several types (double, int64)"),
        (pa.table({}), "float32", "of type pyarrow.Table, is no tensor: it has no columns"),
    ],
    ids=lambda value: None,
)
def test_values_that_are_no_tensors_are_refused_by_name(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        fed(value, dtype)
    assert message in caught.value.message


async def test_long_conversions_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    threads = []
    of_series = pd.Series.to_numpy

    def to_numpy(self: Any, *args: Any, **settings: Any) -> Any:
        threads.append(threading.current_thread())
        return of_series(self, *args, **settings)

    monkeypatch.setattr(pd.Series, "to_numpy", to_numpy)
    with aexec.Graph() as graph:
        aexec.ops.identity(aexec.placeholder("string", name="x"), name="y")
    async with aexec.Session(graph) as session:
        assert (await session.run("y:0", {"x:0": series(["a"], "str")})).tolist() == [b"a"]
        assert (await session.run("y:0", {"x:0": series(["a"] * 100_000, "str")})).shape == (100_000,)
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


# Libraries that are not installed here


class Bits:
    """A tensor with the methods of PyTorch's that aexec uses."""

    requires_grad = True

    def __init__(self, array: Any, dtype: str = "", device: str = "cpu", layout: str = "strided") -> None:
        self.array = array
        self.dtype = f"torch.{dtype or array.dtype}"
        self.device = type("device", (), {"type": device, "__str__": lambda _: device})()
        self.layout = layout
        self.is_quantized = dtype == "quint8"
        self.nbytes = array.nbytes
        self.conjugated = False

    def is_conj(self) -> bool:
        return self.conjugated

    def is_neg(self) -> bool:
        return False

    def detach(self) -> Bits:
        made = Bits(self.array, self.dtype.removeprefix("torch."), self.device.type)
        made.requires_grad, made.conjugated = False, self.conjugated
        return made

    def resolve_conj(self) -> Bits:
        return Bits(self.array.conj()).detach() if self.conjugated else self

    def resolve_neg(self) -> Bits:
        return self

    def view(self, dtype: Any) -> Bits:
        return Bits(self.array.view(dtype)).detach()

    def numpy(self) -> Any:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if "bfloat16" in self.dtype or "float8" in self.dtype:
            raise TypeError("Got unsupported ScalarType")
        return self.array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self.device.type == "cuda" else (1, 0)


class TestTorch:
    """Tensors of PyTorch, by a stand-in."""

    @pytest.fixture(autouse=True)
    def torch(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        torch = ModuleType("torch")
        for name, value in {"Tensor": Bits, "strided": "strided", "uint8": np.uint8, "int16": np.int16}.items():
            setattr(torch, name, value)
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    def test_memory_is_shared_without_gradients(self) -> None:
        assert np.shares_memory(fed(Bits(FLOATS)), FLOATS)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
    def test_types_that_numpy_has_from_ml_dtypes(self, dtype: str) -> None:
        bits = np.array([1, 2], getattr(ml_dtypes, dtype))
        array = fed(Bits(bits, dtype), dtype)
        assert array.dtype == bits.dtype and array.tolist() == [1, 2] and np.shares_memory(array, bits)

    def test_lazy_conjugate_is_resolved(self) -> None:
        tensor = Bits(np.array([1 + 2j], np.complex64))
        tensor.conjugated = True
        assert fed(tensor, "complex64").tolist() == [1 - 2j]

    @pytest.mark.parametrize(
        ("tensor", "message"),
        [
            (Bits(FLOATS, layout="sparse_coo"), "its layout is sparse_coo, feed tensor.to_dense()"),
            (Bits(FLOATS, "quint8"), "it is quantized (torch.quint8), feed tensor.int_repr() or tensor.dequantize()"),
            (Bits(FLOATS, device="mps"), "it is on device mps, feed tensor.cpu()"),
            (Bits(FLOATS, device="cuda"), "is in the memory of a device (DLPack's type 2, number 0)"),
        ],
        ids=["sparse", "quantized", "mps", "cuda"],
    )
    def test_unsupported_tensors_are_refused(self, tensor: Bits, message: str) -> None:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            fed(tensor)
        assert message in caught.value.message


def test_feeding_imports_no_other_library() -> None:
    looked_up = (
        "import sys, aexec, numpy; from aexec.framework import dtypes\n"
        "from aexec.runtime.feeding.feeds import FeedSpec\n"
        "FeedSpec('x:0', dtypes.float32).convert(numpy.float64(1))\n"
        "print([name for name in ('torch', 'cupy', 'pandas', 'pyarrow', 'PIL') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", looked_up], capture_output=True, text=True).stdout == "[]\n"


def test_dlpack_type_unknown_to_numpy_is_taken_by_other_means_or_refused() -> None:
    class Other:
        """As JAX's arrays of bfloat16."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **settings: Any) -> Any:
            raise BufferError("no such type")

    class Array(Other):
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1, 2], ml_dtypes.bfloat16)

    assert fed(Array(), dtypes.bfloat16).tolist() == [1, 2]
    with pytest.raises(errors.InvalidArgumentError, match="of type Other, cannot be taken by DLPack: no such type"):
        fed(Other())
