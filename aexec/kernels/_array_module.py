"""What NumPy and CuPy have under different names, or one of them lacks, for kernels that serve both.

A kernel takes its array module from the construction (`c.xp`).  Where that is NumPy these functions give the
bare ufunc methods, so that nothing is lost on the way.
Next to read: `_portable.py`, which lists the kernels that serve both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["accumulator", "reducer", "scipy_of"]

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
    """The part of SciPy, or of what an array module has in its place, named `special`, `fft` or `linalg`.

    It is slow to import: ask for it in the builders that need it.
    """
    own = getattr(xp, "scipy", None)
    return importlib.import_module(f"{_SCIPY[xp.__name__]}.{part}") if own is None else getattr(own, part)


def reducer(xp: Any, ufunc: str) -> Callable[..., Any]:
    """`ufunc.reduce`, called as `(x, axes, dtype, out, keepdims, initial)`; CuPy has it under other names."""
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
    if xp is np or ufunc in ("add", "multiply"):
        accumulate: Callable[..., Any] = function.accumulate
        return accumulate

    def compute(x: Any, axis: int, dtype: Any = None, out: Any = None) -> Any:
        rows = xp.moveaxis(x, axis, 0).astype(dtype or x.dtype)
        done = 1
        while done < len(rows):  # every element has been joined with the `done - 1` before it
            rows[done:] = function(rows[done:], rows[:-done])
            done *= 2
        result = xp.moveaxis(rows, 0, axis)
        if out is None:
            return result
        out[...] = result
        return out

    return compute
