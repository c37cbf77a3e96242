"""The error functions of float32 arrays by vectorised loops: many times faster than SciPy's scalar ones.

Models use them in `Erf`, `Erfc` and `GeluExact`.  Next to read: `aexec/kernels/math/special_math_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.scratch import scratch

__all__ = ["single_erf", "single_erfc"]

# Elements of a block, whose arrays stay in a core's second-level cache.
_BLOCK = 32768
# erf(x) / x as a quotient of polynomials in x**2 on [-4, 4], highest power first; error below 5e-7.
_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_DENOMINATOR = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
# log(erfc(x) / t) + x**2 as a polynomial in t = 1 / (1 + x / 2), for x >= 0, highest power first; the fit of Numerical
# Recipes' `erfcc`, with a relative error of 1.2e-7.
_LOGARITHM = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)


def _horner(xp: Any, coefficients: tuple[float, ...], x: Any, out: Any) -> None:
    """Evaluate the polynomial at x, highest power first, into `out`."""
    xp.multiply(x, np.float32(coefficients[0]), out=out)
    for value in coefficients[1:-1]:
        out += np.float32(value)
        out *= x
    out += np.float32(coefficients[-1])


def single_erf(xp: Any, x: Any) -> Any:
    """erf of a float32 array, with an error below 5e-7."""
    return _in_cache_blocks(xp, _erf if native.loops is None or xp is not np else _erf_in_c, x)


def single_erfc(xp: Any, x: Any) -> Any:
    """erfc of a float32 array, with a relative error below 1e-6 where it is a normal number."""
    return _in_cache_blocks(xp, _erfc, x)


def _in_cache_blocks(xp: Any, function: Callable[[Any, Any, Any], None], x: Any) -> Any:
    """`function(xp, part, out)` for cache blocks of an array, which several threads may take."""
    flat = x.reshape(-1)
    result = xp.empty_like(flat)

    def piece(i: int) -> None:
        part = slice(i * _BLOCK, (i + 1) * _BLOCK)
        function(xp, flat[part], result[part])

    in_pieces(-(-flat.size // _BLOCK), piece)
    return result.reshape(x.shape)


def _erf(xp: Any, x: Any, out: Any) -> None:
    clipped, square, below = scratch.empty(xp, "erf", (3, x.size), x.dtype)
    xp.clip(x, np.float32(-4), np.float32(4), out=clipped)
    xp.multiply(clipped, clipped, out=square)
    _horner(xp, _NUMERATOR, square, out)
    _horner(xp, _DENOMINATOR, square, below)
    out *= clipped
    out /= below
    xp.clip(out, np.float32(-1), np.float32(1), out=out)


def _erf_in_c(xp: Any, x: Any, out: Any) -> None:
    assert native.loops is not None
    native.loops.erfs(x if native.are_single(x) else np.ascontiguousarray(x, np.float32), out)


def _erfc(xp: Any, x: Any, out: Any) -> None:
    z = xp.abs(x)
    xp.minimum(z, np.float32(11), out=z)  # erfc is 0 from there on
    t = xp.reciprocal(np.float32(1) + np.float32(0.5) * z)
    _horner(xp, _LOGARITHM, t, out)
    # exp(-z**2) as two factors: the square of a multiple of 1/16 is exact.
    near = xp.rint(z * np.float32(16)) * np.float32(0.0625)
    out -= (z - near) * (z + near)
    xp.exp(out, out=out)
    out *= t
    out *= xp.exp(-near * near)
    # For negative x, erfc(x) = 2 - erfc(-x).
    side = xp.copysign(np.float32(1), x)
    out *= side
    out += np.float32(1) - side
