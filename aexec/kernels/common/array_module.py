"""Functions that NumPy and CuPy name differently, or that one of them lacks, for kernels that serve both.

A kernel takes its array module from the construction (`c.xp`).  If that is NumPy, these functions return the bare ufunc
methods, without overhead.
Next to read: `portable.py`, which lists the kernels that serve both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting import loop_budget
from aexec.kernels.common.choosing import choose

__all__ = [
    "accumulate_at",
    "accumulate_in_turns",
    "accumulator",
    "apply_at",
    "at",
    "chooser",
    "raising_of_linalg",
    "reducer",
    "repeated",
    "scipy_of",
]

# Nanoseconds that NumPy takes per element in `apply_at`, or a few times more; and the elements of one of its calls.
_AT_NS = 4.0
_AT_ONCE = loop_budget.DEFAULT.pieces(_AT_NS)

_SCIPY = {"numpy": "scipy", "cupy": "cupyx.scipy"}

_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


def scipy_of(xp: Any, part: str) -> Any:
    """The part of SciPy named `special`, `fft`, `linalg` or `sparse`, or the array module's replacement for it.

    It is slow to import: kernels that use it declare it by `needs`.
    """
    own = getattr(xp, "scipy", None)
    return importlib.import_module(f"{_SCIPY[xp.__name__]}.{part}") if own is None else getattr(own, part)


def raising_of_linalg(xp: Any) -> AbstractContextManager[object]:
    """Context manager in which `xp.linalg` raises NumPy's LinAlgError if there is no result, which CuPy does only on
    request.
    """
    if xp is np:
        return nullcontext()
    own = getattr(xp, "cupyx", None)
    errstate: AbstractContextManager[object] = (own or importlib.import_module("cupyx")).errstate(linalg="raise")
    return errstate


def chooser(xp: Any, dtype: Any) -> Callable[[Any, Any, Any], Any]:
    """`xp.where` of two arrays of a type, with a result of that type: CuPy returns float32 for bfloat16."""
    where: Callable[[Any, Any, Any], Any] = choose if xp is np else xp.where
    if xp is np or dtype != bfloat16:
        return where
    return lambda condition, then, otherwise: where(condition, then, otherwise).astype(dtype, copy=False)


@cache
def reducer(xp: Any, ufunc: str) -> Callable[..., Any]:
    """`ufunc.reduce`, called as `(x, axes, dtype, out, keepdims, initial)`; CuPy has other names for it."""
    if xp is np:
        reduce: Callable[..., Any] = getattr(np, ufunc).reduce
        return reduce
    function = getattr(xp, _REDUCTIONS[ufunc])

    def compute(
        x: Any, axes: Any, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None
    ) -> Any:
        if axes == ():
            return x.astype(bool if ufunc.startswith("logical") else dtype or x.dtype)
        if initial is not None and not x.size:
            return xp.full(np.empty(x.shape, bool).any(axes, keepdims=keepdims).shape, initial, x.dtype)
        typed = {} if dtype is None else {"dtype": dtype}
        return function(x, axis=axes, keepdims=keepdims, **typed)

    return compute


def accumulator(xp: Any, ufunc: str) -> Callable[..., Any]:
    """`ufunc.accumulate`, called as `(x, axis, dtype, out)`; CuPy has it for sums and products only."""
    function = getattr(xp, ufunc)
    if xp is np:
        return partial(accumulate_in_turns, function)
    if ufunc in ("add", "multiply"):
        accumulate: Callable[..., Any] = function.accumulate
        return accumulate

    def compute(x: Any, axis: int, dtype: Any = None, out: Any = None) -> Any:
        rows = xp.moveaxis(x, axis, 0).astype(dtype or x.dtype)
        done = 1
        while done < len(rows):  # every element is combined with the `done - 1` before it
            rows[done:] = function(rows[done:], rows[:-done])
            done *= 2
        result = xp.moveaxis(rows, 0, axis)
        if out is None:
            return result
        out[...] = result
        return out

    return compute


def accumulate_in_turns(ufunc: Any, x: Any, axis: int, dtype: Any = None, out: Any = None) -> Any:
    """`ufunc.accumulate(x, axis, dtype, out)` of a NumPy ufunc, some elements at a time.

    NumPy holds the interpreter's lock meanwhile, except for vectors.
    """
    if x.ndim < 2 or x.size <= _AT_ONCE:
        return ufunc.accumulate(x, axis, dtype, out)
    out = np.empty(x.shape, x.dtype if dtype is None else dtype) if out is None else out
    longest = int(np.argmax(x.shape))
    step = max(1, _AT_ONCE * x.shape[longest] // x.size)
    x, out_rows = np.moveaxis(x, longest, 0), np.moveaxis(out, longest, 0)
    inner = axis + 1 if axis < longest else axis
    for start in range(0, len(x), step):
        loop_budget.let_others_run()
        part = out_rows[start : start + step]
        if axis != longest:
            accumulate_in_turns(ufunc, x[start : start + step], inner, dtype, part)
            continue
        part[...] = x[start : start + step]
        if start:
            ufunc(out_rows[start - 1], part[0], out=part[0])
        accumulate_in_turns(ufunc, part, 0, dtype, part)
    return out


def at(xp: Any, ufunc: str) -> Callable[[Any, Any, Any], None]:
    """`ufunc.at`, called as `(out, index, rows)`; see `accumulate_at`."""
    return partial(apply_at, getattr(np, ufunc)) if xp is np else partial(accumulate_at, xp, ufunc)


def apply_at(ufunc: Any, out: Any, index: Any, rows: Any) -> None:
    """`ufunc.at(out, index, rows)` of a NumPy ufunc, some rows at a time, since it holds the interpreter's lock.

    Args:
        out: array [m, ...], changed in place.
        index: vector of n integers in [0, m).
        rows: array [n, ...], as wide as `out`.
    """
    if rows.size <= _AT_ONCE:
        ufunc.at(out, index, rows)
        return
    step = max(1, _AT_ONCE * len(rows) // rows.size)
    for start in range(0, len(rows), step):
        loop_budget.let_others_run()
        ufunc.at(out, index[start : start + step], rows[start : start + step])


def repeated(values: Any, counts: Any) -> Any:
    """`numpy.repeat(values, counts)` of vectors, in pieces, since it holds the interpreter's lock."""
    total = int(counts.sum())
    if total <= _AT_ONCE:
        return np.repeat(values, counts)
    announce_scratch(total * values.itemsize)
    out = np.empty(total, values.dtype)
    ends = counts.cumsum()
    done = first = 0
    while done < total:
        loop_budget.let_others_run()
        last = int(ends.searchsorted(done + _AT_ONCE, "right"))
        if last > first:
            stop = int(ends[last - 1])
            out[done:stop] = np.repeat(values[first:last], counts[first:last])
        else:  # a single value is a large part, but a copy does not hold the lock
            last = first + 1
            stop = int(ends[first])
            out[done:stop] = values[first]
        done, first = stop, last
    return out


def accumulate_at(xp: Any, ufunc: str, out: Any, index: Any, rows: Any) -> None:
    """`ufunc.at(out, index, rows)` for an associative ufunc (and `subtract`), of any type.

    CuPy's `at` uses atomic operations, which exist for few ufuncs and types.  Here the rows for one position are
    brought together and combined pairwise, twice as many in each round.

    Args:
        out: array [m, ...], changed in place.
        index: vector of n integers in [0, m).
        rows: array [n, ...], as wide as `out`.
    """
    if not index.size:
        return
    if ufunc == "subtract":
        ufunc, rows = "add", -rows
    function, order = getattr(xp, ufunc), xp.argsort(index, kind="stable")
    index, rows = index[order], rows[order]
    done = 1
    while done < len(rows):
        same = (index[done:] == index[:-done]).reshape(-1, *(1,) * (rows.ndim - 1))
        rows[done:] = xp.where(same, function(rows[:-done], rows[done:]), rows[done:])
        done *= 2
    is_last = xp.ones(index.shape, bool)
    is_last[:-1] = index[1:] != index[:-1]
    place = index[is_last]
    out[place] = function(out[place], rows[is_last])
