"""The error function of float32 arrays, over NumPy's vectorised loops: many times faster than SciPy's scalar one.

Networks use it in `Erf` and `GeluExact`.  Next to read: `aexec/kernels/math/special_math_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["single_erf"]

# Elements at a time: what the loops touch stays in cache.
_CHUNK = 32768
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


def _horner(xp: Any, coefficients: tuple[float, ...], x: Any, out: Any) -> None:
    """The polynomial at x, highest power first, into `out`."""
    xp.multiply(x, np.float32(coefficients[0]), out=out)
    for value in coefficients[1:-1]:
        out += np.float32(value)
        out *= x
    out += np.float32(coefficients[-1])


def single_erf(xp: Any, x: Any) -> Any:
    """erf of a float32 array, with an error below 5e-7."""
    flat = x.reshape(-1)
    result = xp.empty_like(flat)
    square, below = xp.empty((2, _CHUNK), np.float32)
    for start in range(0, flat.size, _CHUNK):
        out = result[start : start + _CHUNK]
        clipped = xp.clip(flat[start : start + _CHUNK], np.float32(-4), np.float32(4))
        z, q = square[: out.size], below[: out.size]
        xp.multiply(clipped, clipped, out=z)
        _horner(xp, _NUMERATOR, z, out)
        _horner(xp, _DENOMINATOR, z, q)
        out *= clipped
        out /= q
        xp.clip(out, np.float32(-1), np.float32(1), out=out)
    return result.reshape(x.shape)
