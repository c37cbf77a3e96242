"""BLAS and LAPACK without the interpreter's lock.

SciPy's functions hold the lock while a routine works: seconds for a large matrix, during which the event loop waits.
Its Cython modules offer the routines as C pointers, and ctypes releases the lock while it calls one. Here are the
routines that kernels need and NumPy, which releases the lock too, lacks.
Next to read: `solve_ops.py`, `linalg_ops.py` and `matrix_function_ops.py`, which call them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

__all__ = ["PREFIX", "lu_factors", "schur_form", "shortest_least_squares", "solve_sylvester", "solve_triangle"]

Array = np.ndarray[Any, Any]
# The first letter of routines' names, by the type of their matrices.
PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


@cache
def _routine(name: str) -> Callable[..., None]:
    """The BLAS or LAPACK routine with this name; all its arguments are pointers."""
    from scipy.linalg import cython_blas, cython_lapack

    offered = cython_blas.__pyx_capi__ if name in cython_blas.__pyx_capi__ else cython_lapack.__pyx_capi__
    capsule = ctypes.py_object(offered[name])
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, pointer_of.restype = ctypes.c_char_p, ctypes.c_void_p
    signature = name_of(capsule)  # such as "void (char *, int *, …)"
    pointers = [ctypes.c_void_p] * (signature.count(b",") + 1)
    return ctypes.CFUNCTYPE(None, *pointers)(pointer_of(capsule, ctypes.c_char_p(signature)))


def _call(name: str, dtype: Any, *arguments: Any) -> int:
    """Call a routine for a type with arguments that are text, integers, arrays in Fortran order, or None for NULL.

    Returns:
        its `info`, if the last argument is an array of one integer.
    """
    kept = [_as_pointer(argument) for argument in arguments]
    _routine(PREFIX[np.dtype(dtype).name] + name)(*(pointer for pointer, _ in kept))
    last = arguments[-1]
    return int(last[0]) if isinstance(last, np.ndarray) and last.dtype == np.intc else 0


def _call_with_room(name: str, dtype: Any, arguments: Sequence[Any], rest: Sequence[Any]) -> int:
    """`_call` of a routine that needs a workspace between other arguments; a first call asks it for the size."""
    wanted = np.empty(1, dtype)
    _call(name, dtype, *arguments, wanted, -1, *rest)
    size = int(wanted[0].real)
    return _call(name, dtype, *arguments, np.empty(size, dtype), size, *rest)


def _as_pointer(argument: Any) -> tuple[Any, Any]:
    """A pointer to an argument, and the object to keep alive until the pointer was used."""
    if argument is None:
        return None, None
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data, argument
    kept = ctypes.c_char(argument.encode()) if isinstance(argument, str) else ctypes.c_int(argument)
    return ctypes.addressof(kept), kept


def _info() -> Array:
    return np.zeros(1, np.intc)


def solve_triangle(a: Array, b: Array, *, lower: bool, adjoint: bool) -> Array:
    """Return X of a X = b, or of a^H X = b.

    Args:
        a: [n, n]; only one triangle of it is read.
        b: [n, k], of the same type.
    """
    # BLAS is column-major, so it sees our matrices transposed.  Solving X^T a^T = b^T copies only the result; the
    # triangle changes sides.
    a, solution = np.ascontiguousarray(a), np.array(b, order="C")
    n, k = b.shape
    uplo, trans, one = "U" if lower else "L", "C" if adjoint else "N", np.ones(1, a.dtype)
    _call("trsm", a.dtype, "R", uplo, trans, "N", k, n, one, a, n, solution, k)
    return solution


def lu_factors(matrix: Array) -> tuple[Array, Array]:
    """Return both triangular factors of a matrix [n, n] in one array, and the row with which each row was
    exchanged.
    """
    factors, n = np.array(matrix, order="F"), len(matrix)
    swaps = np.empty(n, np.intc)
    _call("getrf", matrix.dtype, n, n, factors, n, swaps, _info())
    return factors, swaps - 1


def shortest_least_squares(matrix: Array, rhs: Array, cutoff: float) -> Array:
    """Return the X [n, k] of least norm that minimises the norm of matrix X - rhs.

    Args:
        matrix: [m, n].
        rhs: [m, k], of the same type.
        cutoff: singular values below this share of the largest count as zero.
    """
    (m, n), k, dtype = matrix.shape, rhs.shape[1], matrix.dtype
    solution = np.zeros((max(m, n), k), dtype, order="F")
    solution[:m] = rhs
    a, pivots, rank = np.array(matrix, order="F"), np.zeros(n, np.intc), np.zeros(1, np.intc)
    least = np.array([cutoff], dtype.char.lower())
    rest = [np.empty(2 * n, least.dtype)] if dtype.kind == "c" else []
    arguments = (m, n, k, a, m, solution, max(m, n), pivots, least, rank)
    _call_with_room("gelsy", dtype, arguments, (*rest, _info()))
    return solution[:n]


def schur_form(matrix: Array) -> tuple[Array, Array] | None:
    """Return (T, Z) with matrix = Z T Z^H, or None if the iteration fails.  T is triangular, or has blocks of one or
    two if the matrix is real.

    Args:
        matrix: [n, n] of float64 or complex128, without NaN and infinities.
    """
    n, dtype = len(matrix), matrix.dtype
    t, z, chosen = np.array(matrix, order="F"), np.empty((n, n), dtype, order="F"), np.zeros(1, np.intc)
    if dtype.kind == "c":
        values, rest = [np.empty(n, dtype)], [np.empty(n, np.float64)]
    else:
        values, rest = [np.empty(n, dtype), np.empty(n, dtype)], []
    arguments = ("V", "N", None, n, t, n, chosen, *values, z, n)
    return None if _call_with_room("gees", dtype, arguments, (*rest, None, _info())) else (t, z)


def solve_sylvester(a: Array, b: Array, c: Array) -> Array | None:
    """Return X of a X + X b = c, for triangular a and b; None if they have opposite eigenvalues, so that it cannot be
    solved.

    Args:
        a, b, c: [m, m], [n, n] and [m, n] of complex128.
    """
    m, n = c.shape
    left, right, x = np.asfortranarray(a), np.asfortranarray(b), np.array(c, order="F")
    scale = np.empty(1, np.float64)
    if _call("trsyl", c.dtype, "N", "N", 1, m, n, left, m, right, n, x, m, scale, _info()):
        return None
    solved: Array = x / scale[0]
    return solved
