"""Functions of square matrices: exponential, square root, logarithm.

SciPy has them, too, but holds the interpreter's lock for a whole matrix, so that the event loop waits. Here all long
work is in calls of NumPy or of `lapack.py`, which release the lock.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.linalg.lapack import schur_form, solve_sylvester, solve_triangle
from aexec.kernels.linalg.linalg_ops import COMPLEX_TYPES, each_matrix, square_batch
from aexec.kernels.linalg.solve_ops import LINALG_TYPES, SCIPY, adjoint_of, cubic_ns

__all__: list[str] = []

Array = np.ndarray[Any, Any]

# complex128 matrices of the input's size that are in memory at once.
_MATRICES = 12


def _scratch(x: Any) -> int:
    return _MATRICES * 16 * int(math.prod(x.shape[-2:]))


# Exponential

# Coefficients of the diagonal Padé approximant of degree 13, divided by the first, so that the result for zeros is
# exact; and the norm up to which it is exact to double precision.  Nicholas Higham, The scaling and squaring method for
# the matrix exponential revisited, 2005, algorithm 2.3.
_COEFFICIENTS = (
    *(64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600),
    *(670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1),
)
_PADE = [coefficient / _COEFFICIENTS[0] for coefficient in _COEFFICIENTS]
_PADE_NORM = 5.371920351148152


@kernel("MatrixExponential", T=LINALG_TYPES, cost=cubic_ns(0.5), scratch=_scratch)
def matrix_exponential(c: OpKernelConstruction) -> Compute:
    """Matrix exponentials."""
    wide = np.complex128 if c.attr("T").base.is_complex else np.float64
    return square_batch(partial(each_matrix, np, lambda x: _exponential(x.astype(wide))), copies=0)


def _exponential(x: Array) -> Array:
    """Exponential of a matrix of float64 or complex128, by scaling and squaring."""
    norm = float(np.abs(x).sum(0).max())
    if not math.isfinite(norm):
        return np.full_like(x, np.nan)
    squarings = max(0, math.ceil(math.log2(norm / _PADE_NORM))) if norm else 0
    x = x / 2.0**squarings
    b, one = _PADE, np.eye(len(x), dtype=x.dtype)
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    odd = x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    odd = x @ odd
    check_wanted()
    result: Array = np.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        check_wanted()
        result = result @ result
    return result


# Square root and logarithm, of a triangular form


def _triangular_form(x: Array) -> tuple[Array, Array] | None:
    """Return (T, Z) with x = Z T Z^H and T upper triangular, both complex128; None if x is not finite or the iteration
    fails.

    The real eigenvalues of a real matrix are exactly real in T.
    """
    from scipy.linalg import rsf2csf

    if not np.isfinite(x).all():
        return None
    if x.imag.any():
        return schur_form(x.astype(np.complex128))
    form = schur_form(x.real.astype(np.float64))
    if form is None:
        return None
    t, z = rsf2csf(*form)
    return t, z


@kernel("MatrixSquareRoot", T=LINALG_TYPES, cost=cubic_ns(2.0), needs=SCIPY, scratch=_scratch)
def matrix_square_root(c: OpKernelConstruction) -> Compute:
    """Return the principal square root; NaN if there is none, or, for a real matrix, none that is real."""
    dtype = c.attr("T").base
    eps = float(np.finfo(dtype.np).eps)

    def root(x: Array) -> Any:
        form = _triangular_form(x)
        if form is None:
            return np.nan
        t, z = form
        if not dtype.is_complex:
            values = t.diagonal()
            negative = (values.imag == 0) & (values.real < 0)
            if (values.real[negative] < -eps * len(x) * np.abs(t).max()).any():
                return np.nan
            # Zero, in the input's precision.
            t[negative, negative] = 0
        result = z @ _root_of_triangle(t) @ adjoint_of(z)
        return result if dtype.is_complex else result.real

    return square_batch(partial(each_matrix, np, root), copies=0)


def _root_of_triangle(t: Array) -> Array:
    """Square root of an upper triangular matrix, half by half (Björck and Hammarling's method, in blocks)."""
    n = len(t)
    if n == 1:
        return np.sqrt(t)
    check_wanted()
    half = n // 2
    root = np.zeros_like(t)
    root[:half, :half] = first = _root_of_triangle(t[:half, :half])
    root[half:, half:] = second = _root_of_triangle(t[half:, half:])
    # first X + X second = the remaining block; cannot be solved if both have the eigenvalue 0.
    block = solve_sylvester(first, second, t[:half, half:])
    root[:half, half:] = np.nan if block is None else block
    return root


# A quadrature of _NODES nodes gives the logarithm to double precision up to the distance _NEAR from the identity.
_NEAR, _NODES = 0.25, 10
_MOST_ROOTS = 100


@kernel("MatrixLogarithm", T=COMPLEX_TYPES, cost=cubic_ns(20.0), needs=SCIPY, scratch=_scratch)
def matrix_logarithm(c: OpKernelConstruction) -> Compute:
    """Return the principal logarithm; NaN for a singular matrix."""

    def log(x: Array) -> Any:
        form = _triangular_form(x)
        if form is None or np.linalg.slogdet(x.astype(np.complex128))[0] == 0:
            return complex(np.nan, np.nan)
        t, z = form
        return z @ _log_of_triangle(t) @ adjoint_of(z)

    return square_batch(partial(each_matrix, np, log), copies=0)


def _log_of_triangle(t: Array) -> Array:
    """Logarithm of an upper triangular matrix.

    Roots are taken until the matrix is 1 + r, near the identity.  Its logarithm is the integral of r (1 + s r)^-1 over
    s from 0 to 1, times two for each root.
    """
    one, values = np.eye(len(t), dtype=t.dtype), t.diagonal()
    roots = 0
    while np.abs(t - one).sum(0).max() > _NEAR and roots < _MOST_ROOTS:
        t = _root_of_triangle(t)
        roots += 1
    rest = t - one
    log = np.zeros_like(t)
    for node, weight in zip(*np.polynomial.legendre.leggauss(_NODES), strict=True):
        check_wanted()
        log += weight / 2 * solve_triangle(one + (1 + node) / 2 * rest, rest, lower=False, adjoint=False)
    log *= 2.0**roots
    # Roots cost digits; the diagonal is known exactly.
    np.fill_diagonal(log, np.log(values))
    return log
