"""The derivative of the regularised lower incomplete gamma function by its shape parameter.

P(a, x) is a power series if x is small, and one minus a continued fraction elsewhere (Numerical Recipes 6.2; Cephes
igam.c).  Both are differentiated term by term: every quantity that is updated has a companion, its derivative by a.
`special_math_ops` and the gradients of gamma-distributed random numbers use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.output_sizes import Varying
from aexec.framework.waiting.abandoned_calls import check_wanted

__all__ = ["IGAMMA_GRAD_COST", "igamma_grad_a"]

# The slowest values need all terms, each of which takes the interpreter some microseconds.
IGAMMA_GRAD_COST = Varying(3_000.0, call_ns=4e6)

_MAX_TERMS = 2000
_AT_ONCE = 1 << 13
_TOLERANCE = 1e-15
# Numerators and denominators of the continued fraction are scaled down when they pass this.
_BIG = 1e30


def igamma_grad_a(xp: Any, special: Any, a: Any, x: Any) -> Any:
    """d P(a, x) / d a in double precision: 0 where x is 0, else NaN where a <= 0 or x < 0.

    Args:
        xp, special: the array module and its `scipy.special`.
        a, x: arrays that broadcast.
    """
    a, x = xp.broadcast_arrays(xp.asarray(a, np.float64), xp.asarray(x, np.float64))
    result = xp.full(a.shape, np.nan)
    valid = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    by_series = valid & ((x <= 1) | (x <= a))
    by_fraction = valid & ~by_series
    result[by_series] = _in_pieces(xp, special, _by_series, a[by_series], x[by_series])
    result[by_fraction] = _in_pieces(xp, special, _by_fraction, a[by_fraction], x[by_fraction])
    result[(a > 0) & (x > 0) & (xp.isinf(a) | xp.isinf(x))] = 0
    result[x == 0] = 0
    return result


def _in_pieces(xp: Any, special: Any, function: Callable[..., Any], a: Any, x: Any) -> Any:
    """The function of vectors; on the host some elements at a time, as it needs 22 arrays of their size."""
    if xp is not np or a.size <= _AT_ONCE:
        return function(xp, special, a, x)
    result = np.empty_like(a)
    for start in range(0, a.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        result[part] = function(xp, special, a[part], x[part])
    return result


def _by_series(xp: Any, special: Any, a: Any, x: Any) -> Any:
    """P = x**a e**-x / Gamma(a + 1) * sum of x**n / ((a + 1) ... (a + n))."""
    term, slope = xp.ones_like(a), xp.zeros_like(a)
    total, total_slope = term.copy(), slope.copy()
    r = a.copy()
    for _ in range(_MAX_TERMS):
        check_wanted()
        r += 1
        ratio = x / r
        slope = ratio * (slope - term / r)
        term = term * ratio
        total += term
        total_slope += slope
        if not (xp.abs(slope) > _TOLERANCE * xp.abs(total_slope)).any():  # an element that has become NaN stays NaN
            break
    front = xp.exp(a * xp.log(x) - x - special.gammaln(a + 1))
    return front * (total_slope + total * (xp.log(x) - special.psi(a + 1)))


def _by_fraction(xp: Any, special: Any, a: Any, x: Any) -> Any:
    """1 - P = x**a e**-x / Gamma(a) * p / q, with p and q from the continued fraction's recurrence."""
    y, z = 1 - a, x + 2 - a
    # Rows: p, q and their derivatives by a; `older` is two steps back, the other one step.
    older = xp.stack([xp.ones_like(a), x, xp.zeros_like(a), xp.zeros_like(a)])
    last = xp.stack([x + 1, z * x, xp.zeros_like(a), -x])
    value, slope = _quotient(last)
    for n in range(1, _MAX_TERMS):
        check_wanted()
        y, z = y + 1, z + 2
        new = last * z - older * (y * n)
        new[2:] += older[:2] * n - last[:2]
        older, last = last, new
        before, (value, slope) = slope, _quotient(last)
        if not (xp.abs(slope - before) > _TOLERANCE * xp.abs(slope)).any():
            break
        scale = xp.where(xp.abs(last[0]) > _BIG, 1 / _BIG, 1.0)
        older, last = older * scale, last * scale
    front = xp.exp(a * xp.log(x) - x - special.gammaln(a))
    return -front * (slope + value * (xp.log(x) - special.psi(a)))


def _quotient(rows: Any) -> tuple[Any, Any]:
    """p / q and its derivative by a."""
    p, q, dp, dq = rows
    value = p / q
    return value, (dp - value * dq) / q
