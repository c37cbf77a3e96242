"""Gradients of special functions: gamma, beta, Bessel, error functions, integrals.

The derivatives are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov), by chapter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import summed_to, unbroadcast
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor

Pair = tuple[Tensor | None, Tensor]


def _by(derivative: Callable[[Tensor, Tensor], Tensor], *names: str) -> None:
    """Register functions of one argument by their derivatives, functions of input and output."""
    gradient(*names)(lambda op, grad: grad * derivative(op.inputs[0], op.outputs[0]))


_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)

# Chapter 7.
_by(lambda x, y: _TWO_OVER_ROOT_PI * ops.exp(-ops.square(x)), "Erf")
_by(lambda x, y: -_TWO_OVER_ROOT_PI * ops.exp(-ops.square(x)), "Erfc")
_by(lambda x, y: 1.0 / _TWO_OVER_ROOT_PI * ops.exp(ops.square(y)), "Erfinv")
_by(lambda x, y: math.sqrt(2.0 * math.pi) * ops.exp(0.5 * ops.square(y)), "Ndtri")
_by(lambda x, y: 1.0 - 2.0 * x * y, "Dawsn")
_by(lambda x, y: ops.cos(math.pi / 2.0 * ops.square(x)), "FresnelCos")
_by(lambda x, y: ops.sin(math.pi / 2.0 * ops.square(x)), "FresnelSin")
# Chapters 6 and 25.
_by(lambda x, y: ops.exp(x) / x, "Expint")
# Chapter 5.
_by(lambda x, y: ops.digamma(x), "Lgamma")
_by(lambda x, y: ops.polygamma(ops.ones_like(x), x), "Digamma")
# Chapter 10.
_by(lambda x, y: ops.bessel_i1(x), "BesselI0")
_by(lambda x, y: ops.bessel_i1e(x) - ops.sign(x) * y, "BesselI0e")
_by(lambda x, y: -ops.bessel_j1(x), "BesselJ0")
_by(lambda x, y: ops.bessel_j0(x) - y / x, "BesselJ1")
_by(lambda x, y: -ops.bessel_k1(x), "BesselK0")
_by(lambda x, y: y - ops.bessel_k1e(x), "BesselK0e")
_by(lambda x, y: -ops.bessel_k0(x) - y / x, "BesselK1")
_by(lambda x, y: y * (1.0 - 1.0 / x) - ops.bessel_k0e(x), "BesselK1e")
_by(lambda x, y: -ops.bessel_y1(x), "BesselY0")
_by(lambda x, y: ops.bessel_y0(x) - y / x, "BesselY1")


@gradient("BesselI1")
def _bessel_i1(op: ForwardOp, grad: Tensor) -> Tensor:
    x = op.inputs[0]
    return grad * (ops.bessel_i0(x) - _half_at_zero(op))


@gradient("BesselI1e")
def _bessel_i1e(op: ForwardOp, grad: Tensor) -> Tensor:
    x = op.inputs[0]
    return grad * (ops.bessel_i0e(x) - ops.sign(x) * op.outputs[0] - _half_at_zero(op))


def _half_at_zero(op: ForwardOp) -> Tensor:
    """y / x, whose limit at 0 is 1/2."""
    x, y = op.inputs[0], op.outputs[0]
    zero = ops.equal(x, ops.zeros_like(x))
    ones = ops.ones_like(x)
    return ops.select_v2(zero, 0.5 * ones, y / ops.select_v2(zero, ones, x))


@gradient("Spence")
def _spence(op: ForwardOp, grad: Tensor) -> Tensor:
    x = op.inputs[0]
    one = ops.equal(x, ops.ones_like(x))
    safe = ops.select_v2(one, 2.0 * ops.ones_like(x), x)
    return grad * ops.select_v2(one, -ops.ones_like(x), ops.log(safe) / (1.0 - safe))


# Two arguments and more


@gradient("Igamma")
def _igamma(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _of_incomplete_gamma(op, grad)


@gradient("Igammac")
def _igammac(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _of_incomplete_gamma(op, -grad)


def _of_incomplete_gamma(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor]:
    a, x = op.inputs
    density = ops.exp((a - 1.0) * ops.log(x) - x - ops.lgamma(a))
    return unbroadcast(grad * ops.igamma_grad_a(a, x), a, grad * density, x)


@gradient("Betainc")
def _betainc(op: ForwardOp, grad: Tensor) -> tuple[None, None, Tensor]:
    a, b, x = op.inputs
    log_beta = ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)
    density = ops.exp(ops.xlog1py(b - 1.0, -x) + ops.xlogy(a - 1.0, x) - log_beta)
    return None, None, summed_to(grad * density, x)  # none by a and b, as in TensorFlow


@gradient("Polygamma")
def _polygamma(op: ForwardOp, grad: Tensor) -> Pair:
    n, x = op.inputs
    return None, summed_to(grad * ops.polygamma(n + 1.0, x), x)  # the order is an integer


@gradient("Zeta")
def _zeta(op: ForwardOp, grad: Tensor) -> Pair:
    x, q = op.inputs
    return None, summed_to(grad * -x * ops.zeta(x + 1.0, q), q)  # none by x, as in TensorFlow
