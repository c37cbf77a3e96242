"""An array module as strict as CuPy, without a GPU: `strict`, for kernels that take their module from `c.xp`.

Its arrays wrap NumPy arrays, and refuse every operation that would need their values on the host:

* NumPy's functions and ufuncs, conversion to a NumPy array, buffers, NumPy arrays as the other operand
  or as an index (CuPy lets some of that through; a kernel that relies on it is no longer of one module);
* functions, methods and parameters that CuPy lacks, by the lists in `data/cupy_names.json`, ufunc methods
  that it has for few ufuncs only, and element types that it has not.

As in CuPy all results are arrays, 0-d ones too, Python's and NumPy's scalars are accepted as operands, and indices out
of range wrap instead of being refused. What makes the host wait for the device (`bool(x)`, `x.tolist()`, a result whose
shape depends on values) works, and is counted: see `waits`.
"""

from __future__ import annotations

import importlib
import json
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from aexec.framework.memory.tensor_buffer import buffer_of

__all__ = ["StrictArray", "memories", "observing", "strict", "waits"]

_CUPY: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data" / "cupy_names.json").read_text())
_TYPES = frozenset(np.dtype(t) for t in [*"?bBhHiIlLqQefdFD", ml_dtypes.bfloat16])

# ufunc methods → names for which CuPy has them, and types for those that are atomic operations of CUDA.
_METHODS = {"reduce": ("add", "multiply"), "accumulate": ("add", "multiply"), "reduceat": ("add",)}
_AT = {
    "add": frozenset("iIQefd"),
    "subtract": frozenset("iI"),
    "maximum": frozenset("iIQfd"),
    "minimum": frozenset("iIQfd"),
    "bitwise_and": frozenset("iIQ"),
    "bitwise_or": frozenset("iIQ"),
    "bitwise_xor": frozenset("iIQ"),
}
# Functions whose results have a shape or type that depends on values: the host has to read them.
_WAITING = frozenset(
    "allclose argwhere array_equal bincount compress digitize extract flatnonzero histogram item nonzero setdiff1d "
    "intersect1d tolist trim_zeros union1d unique unique_all unique_counts unique_inverse unique_values".split()
)
_ON_HOST = frozenset(
    "broadcast_shapes can_cast common_type iscomplexobj isdtype isrealobj isscalar issubdtype iterable "
    "may_share_memory min_scalar_type ndim promote_types result_type shape shares_memory size tolist item".split()
)
_IN_PLACE = frozenset({"fill", "partition", "put", "sort"})
_REFUSED_PARAMETERS = {"initial", "where", "subok"}
_REFUSED_BY_METHOD = {
    "argpartition": {"order"},
    "argsort": {"order", "stable"},
    "partition": {"order"},
    "reshape": {"copy", "shape"},
    "sort": {"order", "stable"},
    "take": {"mode"},
}
_waits = 0
# The observer of accesses to arrays in this thread.
observing = threading.local()
# What `errstate` has asked for in this thread.
_raising = threading.local()
# id of the array that owns memory → the stand-in device's object for it.
memories: dict[int, Any] = {}


@contextmanager
def waits() -> Iterator[Callable[[], int]]:
    """Context manager: gives a function that returns how often the host has waited for the device since."""
    before = _waits
    yield lambda: _waits - before


def _wait() -> None:
    global _waits
    _waits += 1
    _tell("waits", None)


def _refuse(what: str) -> Any:
    raise TypeError(f"{what}: the array is on a device")


def _in(value: Any) -> Any:
    """Return an argument as NumPy takes it; NumPy arrays are refused."""
    if isinstance(value, StrictArray):
        _tell("reads", value._host)
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)([_in(v) for v in value])
    return value


def _written(array: StrictArray) -> Any:
    """Return the NumPy array that is about to be changed."""
    _tell("writes", array._host)
    return array._host


def _tell(what: str, host: Any) -> None:
    observer = getattr(observing, "by", None)
    if observer is not None:
        getattr(observer, what)(host)


def _perform(make: Callable[[], Any]) -> Any:
    """Return the result of a kernel, or during capture the one that it will have."""
    captured = getattr(getattr(observing, "by", None), "graph", None)
    return make() if captured is None else captured.add(make)


def _out(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        made = StrictArray(np.asarray(value))
        _tell("makes", made._host)
        return made
    if isinstance(value, tuple):
        return tuple(_out(v) for v in value)
    return [_out(v) for v in value] if isinstance(value, list) else value


def _call(function: Callable[..., Any], arguments: Any, keywords: dict[str, Any]) -> Any:
    out = keywords.get("out")
    if out is not None:
        for array in out if isinstance(out, tuple) else (out,):
            _tell("writes", array._host)
    hosts, named = _in(arguments), {k: _in(v) for k, v in keywords.items()}
    result = _perform(lambda: function(*hosts, **named))
    return _out(result) if out is None else out


class StrictArray:
    """An array of `strict`; like CuPy's, it refuses implicit reads by the host."""

    __slots__ = ("_host",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, host: Any) -> None:
        if host.dtype not in _TYPES:
            raise TypeError(f"Unsupported dtype {host.dtype}")
        self._host = host

    def get(self) -> Any:
        """Return the values as a NumPy array: an explicit copy to the host."""
        _wait()
        return _in(self).copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        _refuse("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        # Operators between a NumPy scalar and an array come here too; CuPy accepts them.
        if method == "__call__" and not keywords and any(isinstance(x, np.generic) for x in inputs):
            return getattr(strict, ufunc.__name__)(*inputs)
        return _refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        _refuse(f"numpy.{function.__name__}")

    def __getitem__(self, index: Any) -> Any:
        if any(isinstance(i, StrictArray) and i.dtype == bool for i in _parts(index)):
            _wait()
        host = _in(self)
        return _out(_perform(lambda: host[_index(index, self.shape)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        host, new = _written(self), _in(value)
        _perform(lambda: host.__setitem__(_index(index, self.shape), new))

    def __iter__(self) -> Iterator[Any]:
        return (_out(row) for row in _in(self))

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return f"strict {self._host!r}"

    def __bool__(self) -> bool:
        _wait()
        return bool(_in(self))

    def __int__(self) -> int:
        _wait()
        return int(_in(self))

    def __float__(self) -> float:
        _wait()
        return float(_in(self))

    def __complex__(self) -> complex:
        _wait()
        return complex(_in(self))

    @property
    def data(self) -> Any:
        """Its memory, with `ptr` and `mem` as CuPy's MemoryPointer has."""
        owner = buffer_of(self._host)
        return SimpleNamespace(ptr=self._host.ctypes.data, mem=memories.get(id(owner), owner))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._host.__array_interface__, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)  # the first CUDA device

    @property
    def flat(self) -> Any:
        return _out(self._host.reshape(-1))

    @property
    def real(self) -> Any:
        return _out(self._host.real)

    @real.setter
    def real(self, value: Any) -> None:
        host, new = _written(self), _in(value)
        _perform(lambda: host.real.__setitem__(..., new))

    @property
    def imag(self) -> Any:
        return _out(self._host.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        host, new = _written(self), _in(value)
        _perform(lambda: host.imag.__setitem__(..., new))


def _parts(index: Any) -> Any:
    return index if isinstance(index, tuple) else (index,)


def _index(index: Any, shape: tuple[int, ...]) -> Any:
    """Return the index for NumPy, with integer arrays wrapped into their dimension."""
    parts = list(_parts(index))
    kinds = [np.ndim(p) if isinstance(p, list) else 1 for p in parts]
    taken = sum(
        p.ndim if isinstance(p, StrictArray) and p.dtype == bool else 1
        for p in parts
        if p is not None and p is not Ellipsis
    )
    axis = 0
    for i, part in enumerate(parts):
        if part is None:
            continue
        if part is Ellipsis:
            axis += len(shape) - taken
            continue
        if isinstance(part, StrictArray) and part.dtype != bool and part.dtype.kind in "iu" and shape[axis]:
            parts[i] = _in(part) % shape[axis]
        else:
            parts[i] = _in(part)
        axis += part.ndim if isinstance(part, StrictArray) and part.dtype == bool else kinds[i]
    return tuple(parts) if isinstance(index, tuple) else parts[0]


def _operator(name: str, function: Callable[..., Any]) -> None:
    def forward(self: StrictArray, *others: Any) -> Any:
        if any(isinstance(o, np.ndarray | list | tuple) for o in others):
            raise TypeError(f"Unsupported type {type(others[0])}")
        if name == "matmul":
            _refuse_product_in_a_capture()
        hosts = _in(self), *_in(others)
        return _out(_perform(lambda: function(*hosts)))

    def reflected(self: StrictArray, other: Any) -> Any:
        if isinstance(other, np.ndarray | list | tuple):
            raise TypeError(f"Unsupported type {type(other)}")
        hosts = _in(other), _in(self)
        return _out(_perform(lambda: function(*hosts)))

    setattr(StrictArray, f"__{name}__", forward)
    if name in _BINARY:
        setattr(StrictArray, f"__r{name}__", reflected)
        setattr(StrictArray, f"__i{name}__", _in_place(getattr(operator, f"__i{name}__")))


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """`x += y` writes into x, even if x is 0-d, as with NumPy's and CuPy's arrays."""

    def in_place(self: StrictArray, other: Any) -> Any:
        host, by = _written(self), _in(other)
        _perform(lambda: function(host, by))
        return self

    return in_place


_BINARY = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor".split()
for _name in [*_BINARY, *"neg pos abs invert lt le eq ne gt ge".split()]:
    _operator(_name, getattr(operator, f"__{_name}__"))


def _method(name: str) -> Callable[..., Any]:
    def method(self: StrictArray, *arguments: Any, **keywords: Any) -> Any:
        if wrong := (_REFUSED_PARAMETERS | _REFUSED_BY_METHOD.get(name, set())) & set(keywords):
            raise TypeError(f"ndarray.{name} of CuPy has no parameter {wrong}")
        if name in _PRODUCTS:
            _refuse_product_in_a_capture()
        if name in _WAITING:
            _wait()
        if name in _ON_HOST:
            return getattr(self._host, name)(*arguments, **keywords)
        host = _written(self) if name in _IN_PLACE else _in(self)
        bound = partial(_OTHERWISE[name], host) if name in _OTHERWISE else getattr(host, name)
        return _call(bound, arguments, keywords)

    return method


for _name in _CUPY["ndarray"].split():
    if not hasattr(StrictArray, _name):
        _attribute = getattr(np.ndarray, _name)
        if callable(_attribute):
            setattr(StrictArray, _name, _method(_name))
        else:
            setattr(StrictArray, _name, property(lambda self, n=_name: _attribute_of(self, n)))


def _attribute_of(array: StrictArray, name: str) -> Any:
    value = getattr(array._host, name)
    return _out(value) if name in ("T", "mT") else value


class _Ufunc:
    """A ufunc, with the methods that CuPy's has."""

    def __init__(self, name: str) -> None:
        self.name, self.ufunc = name, getattr(np, name)
        self.__name__, self.nin, self.nout = name, self.ufunc.nin, self.ufunc.nout

    def __call__(self, *arguments: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        keywords = {k: v for k, v in (("out", out), ("dtype", dtype)) if v is not None}
        for x in arguments:
            if isinstance(x, list | tuple):
                raise TypeError(f"Unsupported type {type(x)}")
        return _call(lambda *a, **k: self.ufunc(*a, casting=casting, **k), arguments, keywords)

    def _through(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        if self.name not in _METHODS[method]:
            raise NotImplementedError(f"`cupy_{self.name}.{method}` is not supported yet")
        if wrong := _REFUSED_PARAMETERS & set(keywords):
            raise TypeError(f"{self.name}.{method} of CuPy has no parameter {wrong}")
        return _call(getattr(self.ufunc, method), arguments, keywords)

    def reduce(self, array: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._through("reduce", array, *arguments, **keywords)

    def accumulate(self, array: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._through("accumulate", array, *arguments, **keywords)

    def reduceat(self, array: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._through("reduceat", array, *arguments, **keywords)

    def outer(self, *arguments: Any, **keywords: Any) -> Any:
        return _call(self.ufunc.outer, arguments, keywords)

    def at(self, array: Any, indices: Any, values: Any = None) -> None:
        if self.name not in _AT:
            raise NotImplementedError(f"`cupy_{self.name}.at` is not supported yet")
        if array.dtype.char not in _AT[self.name] | ({"L"} if "Q" in _AT[self.name] else set()):
            raise TypeError(f"`cupy_{self.name}.at` does not support {array.dtype}")
        host, new = _written(array), _in(values)
        _perform(lambda: self.ufunc.at(host, _index(indices, array.shape), new))


def _where(*arguments: Any) -> Any:
    """As CuPy's, which has no bfloat16 form and returns float32."""
    chosen = np.where(*arguments)
    return chosen.astype(np.float32) if len(arguments) == 3 and chosen.dtype == ml_dtypes.bfloat16 else chosen


def _take(*arguments: Any, **keywords: Any) -> Any:
    return np.take(*arguments, **keywords, mode="wrap")


# Functions for which CuPy calls cuBLAS, which it refuses during capture.
_PRODUCTS = frozenset("dot inner matmul tensordot vdot".split())


def _refuse_product_in_a_capture() -> None:
    if getattr(getattr(observing, "by", None), "graph", None) is not None:
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


# Functions that differ from NumPy's.
_OTHERWISE: dict[str, Callable[..., Any]] = {"where": _where, "take": _take}


def _function(module: Any, name: str, parameters: str | None) -> Callable[..., Any]:
    plain = _OTHERWISE.get(name) or getattr(module, name)
    known = None if parameters is None else set(parameters.split())

    def function(*arguments: Any, **keywords: Any) -> Any:
        wrong = set(keywords) & _REFUSED_PARAMETERS if known is None else set(keywords) - known
        if wrong:
            raise TypeError(f"{name} of CuPy has no parameter {wrong}")
        if name in _PRODUCTS:
            _refuse_product_in_a_capture()
        if name in _WAITING:
            _wait()
        if name in _ON_HOST:
            return plain(*[_in(a) for a in arguments], **keywords)
        return _call(plain, arguments, keywords)

    function.__name__ = name
    return function


def _upload(name: str) -> Callable[..., Any]:
    """Return `asarray` or a similar function, which copies NumPy arrays to the device."""
    plain = getattr(np, name)

    def function(value: Any, *arguments: Any, **keywords: Any) -> Any:
        host = _uploaded(value)
        return _out(_perform(lambda: plain(host, *arguments, **keywords)))

    return function


def _uploaded(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_uploaded(v) for v in value]
    if isinstance(value, np.ndarray):
        _tell("uploads", value)
        return value.copy(order="K")  # otherwise later changes by the host would show on the device
    return _in(value) if isinstance(value, StrictArray) else value


@contextmanager
def _errstate(*, linalg: str) -> Iterator[None]:
    before = getattr(_raising, "linalg", "ignore")
    _raising.linalg = linalg
    try:
        yield
    finally:
        _raising.linalg = before


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """As CuPy's functions, which raise for singular matrices only on request, and otherwise return anything."""

    def quiet(x: Any, *others: Any, **keywords: Any) -> Any:
        try:
            return function(x, *others, **keywords)
        except np.linalg.LinAlgError:
            if getattr(_raising, "linalg", "ignore") == "raise":
                raise
            return _out(np.full(x.shape, 1e30, x.dtype))

    return quiet


_TRIANGULAR = "a b trans lower unit_diagonal overwrite_b check_finite"


def _solve_triangular(a: Any, b: Any, trans: int = 0, lower: bool = False) -> Any:
    """As CuPy's: for batches of one shape, and without an error for zeros on the diagonal."""
    if a.shape[:-2] != b.shape[:-2]:
        raise ValueError("incompatible batch count")
    (trsm,) = importlib.import_module("scipy.linalg.blas").get_blas_funcs(("trsm",), dtype=b.dtype)
    x = np.empty(b.shape, b.dtype)
    for place in np.ndindex(*b.shape[:-2]):
        x[place] = trsm(1.0, a[place], b[place], lower=lower, trans_a=trans)
    return x


class _SparseMatrix:
    """As CuPy's sparse matrices: of the types that its libraries multiply."""

    def __init__(self, entries: Any, shape: tuple[int, int]) -> None:
        values, (rows, columns) = entries
        if values.dtype.char not in "fdFD":
            raise ValueError(f"Only bool, float32, float64, complex64 and complex128 are supported, not {values.dtype}")
        self._entries, self._shape = (values, rows, columns), shape

    def tocsr(self) -> _SparseMatrix:
        _wait()
        return self

    def __matmul__(self, other: Any) -> Any:
        def product(values: Any, rows: Any, columns: Any, dense: Any) -> Any:
            matrix = importlib.import_module("scipy.sparse").csr_array((values, (rows, columns)), shape=self._shape)
            return np.asfortranarray(matrix @ dense)

        return _call(product, (*self._entries, other), {})


def _make() -> Any:
    scipy = SimpleNamespace()
    module = ModuleType("strict")
    module.__version__, module.ndarray = _CUPY["version"], StrictArray
    for name in ("pi", "inf", "nan", "e", "newaxis", "finfo", "iinfo", "dtype", "generic"):
        setattr(module, name, getattr(np, name))
    for name in np.sctypeDict.values():
        setattr(module, name.__name__.rstrip("_") if name is not np.bool_ else "bool_", name)
    for name, parameters in _CUPY["functions"].items():
        if hasattr(np, name):  # NumPy 2.5 has no `row_stack`
            setattr(module, name, _function(np, name, parameters))
    for name in _CUPY["ufuncs"].split():
        plain = getattr(np, name)
        setattr(module, name, _Ufunc(name) if isinstance(plain, np.ufunc) else _function(np, name, None))
    for name in ("array", "asarray", "asanyarray", "ascontiguousarray"):
        setattr(module, name, _upload(name))
    module.fft = SimpleNamespace(**{n: _function(np.fft, n, p) for n, p in _CUPY["fft"].items()})
    module.linalg = SimpleNamespace(**{n: _quiet(_function(np.linalg, n, p)) for n, p in _CUPY["linalg"].items()})
    module.cupyx = SimpleNamespace(errstate=_errstate)
    tricks = {
        n: _function(np.lib.stride_tricks, n, p)
        for n, p in {"as_strided": "x shape strides", "sliding_window_view": "x window_shape axis writeable"}.items()
    }
    for part, names in _CUPY["scipy"].items():
        plain = importlib.import_module(f"scipy.{part}")
        setattr(scipy, part, SimpleNamespace(**{n: _function(plain, n, p) for n, p in names.items()}))
    scipy.sparse = SimpleNamespace(coo_matrix=_SparseMatrix)
    scipy.linalg = SimpleNamespace(
        solve_triangular=_function(
            SimpleNamespace(solve_triangular=_solve_triangular), "solve_triangular", _TRIANGULAR
        ),
        lu_factor=_function(importlib.import_module("scipy.linalg"), "lu_factor", "a overwrite_a check_finite"),
    )
    module.scipy = scipy
    module.lib = SimpleNamespace(stride_tricks=SimpleNamespace(**tricks))
    return module


strict = _make()
