"""Gradients of samples by the parameters of their distributions: how a sample moves at a fixed quantile."""

from __future__ import annotations

import math
from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import summed_to
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Tensor | None, ...]

no_gradient(
    *"RandomStandardNormal ParameterizedTruncatedNormal TruncatedNormal RandomUniform RandomUniformInt".split(),
    *"RandomShuffle Multinomial RandomPoisson RandomPoissonV2 StatelessMultinomial StatelessRandomBinomial".split(),
    *"StatelessRandomNormal StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformInt".split(),
    *"StatelessRandomUniformFullInt StatelessTruncatedNormal StatelessRandomNormalV2 StatelessRandomUniformV2".split(),
    *"StatelessRandomUniformIntV2 StatelessRandomUniformFullIntV2 StatelessTruncatedNormalV2".split(),
    "RandomIndexShuffle",
)


@gradient("RandomGamma")
def _random_gamma(op: ForwardOp, grad: Tensor) -> Grads:
    alpha = op.inputs[1]
    by_alpha = grad * ops.random_gamma_grad(alpha, op.outputs[0])
    return None, ops.sum(by_alpha, ops.range(0, ops.rank(by_alpha) - ops.rank(alpha), 1))


@gradient("StatelessRandomGammaV2", "StatelessRandomGammaV3")
def _stateless_random_gamma(op: ForwardOp, grad: Tensor) -> Grads:
    alpha = op.inputs[-1]
    by_alpha = summed_to(grad * ops.random_gamma_grad(alpha, op.outputs[0]), alpha)
    return (*[None] * (len(op.inputs) - 1), by_alpha)


@gradient("StatelessParameterizedTruncatedNormal")
def _truncated_normal(op: ForwardOp, grad: Tensor) -> Grads:
    """With z, a, b the sample and the bounds in standard units, F(z; a, b) stays the same.

    So dz = ((1 - F) φ(a) da + F φ(b) db) / φ(z); moving everything together moves the sample alike.
    """
    mean, deviation, low, high = op.inputs[2:]
    z, a, b = ((x - mean) / deviation for x in (op.outputs[0], low, high))
    quantile = (_phi(z) - _phi(a)) / (_phi(b) - _phi(a))
    by_low = (1.0 - quantile) * ops.exp(0.5 * (ops.square(z) - ops.square(a)))
    by_high = quantile * ops.exp(0.5 * (ops.square(z) - ops.square(b)))
    # An infinite bound has no influence.
    by_deviation = z - ops.mul_no_nan(a, by_low) - ops.mul_no_nan(b, by_high)
    made = (1.0 - by_low - by_high, by_deviation, by_low, by_high)
    return (None, None, *(summed_to(grad * part, x) for part, x in zip(made, op.inputs[2:], strict=True)))


def _phi(x: Any) -> Any:
    """The distribution function of the standard normal."""
    return 0.5 * ops.erfc(x * -math.sqrt(0.5))
