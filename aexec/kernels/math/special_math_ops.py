"""Kernels of special functions: error functions, gamma and beta functions, Bessel functions, integrals.

The algorithms are SciPy's, or the array module's replacements, imported when the first node that needs one is built.
The kernels add TensorFlow's results outside a function's domain, if the two differ, and faster `erf` and `erfc` for
large float32 arrays, as models use them.  One difference is left: TensorFlow loses the sign of `dawsn` below -1e9.
Next to read: `igamma_grad.py`, the one function that SciPy lacks, then `cwise_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import Varying
from aexec.framework.shape import shape_text
from aexec.kernels.common.array_module import scipy_of
from aexec.kernels.common.elementwise import (
    broadcast_error,
    in_float32,
    register,
    shared,
    shared_rows,
)
from aexec.kernels.common.single_erf import single_erf, single_erfc
from aexec.kernels.math.igamma_grad import IGAMMA_GRAD_COST, igamma_grad_a

__all__: list[str] = []

Function = Callable[..., Any]

_WIDE = (dtypes.float32, dtypes.float64)
_WITH_HALF = (dtypes.float16, *_WIDE)

# From this size on NumPy's vectorised loops are faster than SciPy's scalar `erf` and `erfc`.
_ERF_FROM = 8192


def _erf(xp: Any, special: Any) -> Function:
    small = special.erf

    def compute(x: Any) -> Any:
        if x.dtype == np.float64:
            # In double, TensorFlow's quotient of polynomials is infinity over infinity there.
            return xp.where(xp.isinf(x), np.nan, small(x))
        return single_erf(xp, x) if x.size >= _ERF_FROM else small(x)

    return compute


def _erfc(xp: Any, special: Any) -> Function:
    small = special.erfc
    return lambda x: single_erfc(xp, x) if x.dtype == np.float32 and x.size >= _ERF_FROM else small(x)


# Called with the array module and its `scipy.special`, returns the function for float32 and double. TensorFlow's Bessel
# functions of the second kind are infinite, not NaN, for negative x.
_UNARY: dict[str, Callable[[Any, Any], Function]] = {
    "BesselI0": lambda _, s: s.i0,
    "BesselI0e": lambda _, s: s.i0e,
    "BesselI1": lambda _, s: s.i1,
    "BesselI1e": lambda _, s: s.i1e,
    "BesselJ0": lambda _, s: s.j0,
    "BesselJ1": lambda _, s: s.j1,
    "BesselK0": lambda xp, s: lambda x: xp.where(x < 0, np.inf, s.k0(x)),
    "BesselK0e": lambda xp, s: lambda x: xp.where(x < 0, np.inf, s.k0e(x)),
    "BesselK1": lambda xp, s: lambda x: xp.where(x < 0, np.inf, s.k1(x)),
    "BesselK1e": lambda xp, s: lambda x: xp.where(x < 0, np.inf, s.k1e(x)),
    "BesselY0": lambda xp, s: lambda x: xp.where(x < 0, -np.inf, s.y0(x)),
    "BesselY1": lambda xp, s: _bessel_y1(xp, s),
    "Dawsn": lambda _, s: s.dawsn,
    "Digamma": lambda xp, s: _digamma(xp, s),
    "Erf": _erf,
    "Erfc": _erfc,
    "Erfinv": lambda xp, s: lambda x: s.erfinv(xp.where(xp.abs(x) <= 1, x, np.nan)),  # it warns at length otherwise
    "Expint": lambda xp, s: lambda x: xp.where((x >= 0) & (x < np.inf), s.expi(x), np.nan),
    "FresnelCos": lambda _, s: lambda x: s.fresnel(x)[1],
    "FresnelSin": lambda _, s: lambda x: s.fresnel(x)[0],
    "Lgamma": lambda xp, s: lambda x: xp.where(x == -np.inf, np.inf, s.gammaln(x)),
    "Ndtri": lambda _, s: s.ndtri,
    "Spence": lambda _, s: s.spence,
}


def _bessel_y1(xp: Any, special: Any) -> Function:
    """At zero TensorFlow's result is minus infinity in double and NaN in float32."""
    y1 = special.y1

    def compute(x: Any) -> Any:
        y = xp.where(x < 0, -np.inf, y1(x))
        return y if x.dtype == np.float64 else xp.where(x == 0, np.nan, y)

    return compute


def _digamma(xp: Any, special: Any) -> Function:
    """Undefined at zero, as at the negative integers."""
    psi = special.psi
    return lambda x: xp.where(x == 0, np.nan, psi(x))


def _igamma(xp: Any, special: Any) -> Function:
    function = special.gammainc
    return lambda a, x: xp.where(x == 0, 0, xp.where(a > 0, function(a, x), np.nan))


def _igammac(xp: Any, special: Any) -> Function:
    function = special.gammaincc
    return lambda a, x: xp.where(a > 0, function(a, x), np.nan)


def _zeta(xp: Any, special: Any) -> Function:
    """Hurwitz's zeta function; at its poles in q it is infinite for even x only."""
    function = special.zeta

    def compute(x: Any, q: Any) -> Any:
        at_pole = (q <= 0) & (q == xp.floor(q))
        undefined = at_pole & (xp.fmod(x, 2) != 0) & (x != 1) & (x != np.inf)
        far = (q < _FAR) & ~at_pole & (x == xp.floor(x))
        if not far.any():
            return xp.where(undefined, np.nan, function(x, q))
        value = xp.where(undefined, np.nan, function(x, xp.where(far, 1, q)))
        return xp.where(far, _far_zeta(xp, function, x, xp.where(far, q, _FAR)), value)

    return compute


# The library adds terms below zero one by one; from here on that is done in one step.
_FAR = -1000.0


def _far_zeta(xp: Any, function: Function, x: Any, q: Any) -> Any:
    """For integer x and negative q: the terms below zero equal, except for their sign, those of two series above it."""
    terms = xp.ceil(-q)
    below = function(x, 1 - q - terms) - function(x, 1 - q)
    return function(x, q + terms) + xp.where(xp.fmod(x, 2) == 0, below, -below)


def _polygamma(xp: Any, special: Any) -> Function:
    """The n-th derivative of the digamma function, for integer n from 0 on."""
    digamma, zeta, gamma = _digamma(xp, special), _zeta(xp, special), special.gamma

    def compute(n: Any, x: Any) -> Any:
        sign = xp.where(xp.fmod(n, 2) == 0, -1, 1)
        derivative = xp.where((n > 0) & (n == xp.floor(n)), sign * gamma(n + 1) * zeta(n + 1, x), np.nan)
        return xp.where(n == 0, digamma(x), derivative)

    return compute


_BINARY: dict[str, Callable[[Any, Any], Function]] = {
    "Igamma": _igamma,
    "Igammac": _igammac,
    "IgammaGradA": lambda xp, s: lambda a, x: igamma_grad_a(xp, s, a, x),
    "Polygamma": _polygamma,
    "Zeta": _zeta,
}

# Nanoseconds per element, where not near 15.  Where series are added up, some values take a hundred times as long as
# others.
_COSTS: dict[str, float | Varying] = {
    "Digamma": Varying(200.0),
    "Erf": 3.0,
    "Erfc": 5.0,
    "Expint": 80.0,
    "Igamma": Varying(600.0),
    "Igammac": Varying(600.0),
    "IgammaGradA": IGAMMA_GRAD_COST,
    "Polygamma": Varying(300.0),
    "Zeta": 80.0,
}


# Elements of a function of several arrays that are computed together; for each it makes up to 25 values on its way.
_PIECE = 1 << 13


def _unary(c: OpKernelConstruction) -> Function:
    return in_float32(c, shared(c.xp, _UNARY[c.op](c.xp, scipy_of(c.xp, "special"))))


def _binary(c: OpKernelConstruction) -> Function:
    function, out = _BINARY[c.op](c.xp, scipy_of(c.xp, "special")), c.output_types[0].np
    c.explain = broadcast_error
    return shared_rows(c.xp, function, out, piece=_PIECE)


for _op in _UNARY:
    if _op in ("Erf", "Erfc"):
        _types: tuple[dtypes.DType, ...] = dtypes.FLOAT
    else:
        _types = _WITH_HALF if _op.startswith("Bessel") or _op in ("Lgamma", "Digamma") else _WIDE
    register(_op, _unary, _types, cost=_COSTS.get(_op, 15.0), needs=("scipy.special",))

for _op in _BINARY:
    register(_op, _binary, _WIDE, cost=_COSTS.get(_op, 30.0), needs=("scipy.special",))


@kernel("Betainc", T=_WIDE, cost=80.0, needs=("scipy.special",))
def betainc(c: OpKernelConstruction) -> Function:
    """Regularised incomplete beta function; its inputs are scalars or of one common shape."""
    xp = c.xp
    function = scipy_of(xp, "special").betainc

    def of_rows(a: Any, b: Any, x: Any) -> Any:
        inside = xp.where(x == 0, 0, xp.where(x == 1, 1, function(a, b, x)))
        return xp.where((a <= 0) | (b <= 0), np.nan, inside)

    in_rows = shared_rows(xp, of_rows, c.output_types[0].np, piece=_PIECE)

    def compute(a: Any, b: Any, x: Any) -> Any:
        for (name, first), (other, second) in ((("a", a), ("b", b)), (("a", a), ("x", x)), (("b", b), ("x", x))):
            if first.ndim and second.ndim and first.shape != second.shape:
                raise errors.InvalidArgumentError(
                    f"Shapes of {name} and {other} are inconsistent: "
                    f"{shape_text(first.shape)} vs. {shape_text(second.shape)}"
                )
        return in_rows(a, b, x)

    return compute
