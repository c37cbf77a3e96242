"""What the tests of the fused kernels share: extra inputs, and what the ops that are fused give one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.harness import run_op

__all__ = ["EPSILON", "apply", "arguments"]

EPSILON = 1e-4
# Ops whose kernels do the same arithmetic as the fused op.
_EXACT = ("BiasAdd", "Add", "FusedBatchNorm", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh")


def arguments(fused: Sequence[str], shape: Sequence[int]) -> list[Any]:
    """Extra inputs of float32 for these fused ops on an output of this shape."""
    rng = np.random.default_rng(3)

    def normal(*dims: int) -> Any:
        return rng.normal(0, 1, dims).astype(np.float32)

    makers = {
        "BiasAdd": lambda: [normal(shape[-1])],
        "Add": lambda: [normal(*shape)],
        "FusedBatchNorm": lambda: [*(normal(shape[-1]) for _ in range(3)), abs(normal(shape[-1])) + 0.1],
        "Prelu": lambda: [normal(shape[-1])],
    }
    return [arg for name in fused for arg in makers.get(name, list)()]


def apply(x: Any, fused: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
    """What the ops give one after the other, and whether the fused op does so to the last bit."""
    rest = list(args)
    for name in fused:
        if name == "BiasAdd":
            x = run_op("BiasAdd", [x, rest.pop(0)])
        elif name == "Add":
            x = run_op("AddV2", [x, rest.pop(0)])
        elif name == "FusedBatchNorm":
            vectors = [rest.pop(0) for _ in range(4)]
            x = run_op("FusedBatchNormV3", [x, *vectors], is_training=False, epsilon=EPSILON)[0]
        elif name == "Prelu":
            x = np.where(x > 0, x, x * rest.pop(0))
        elif name == "GeluExact":
            x = x * 0.5 * (1 + run_op("Erf", [x * np.float32(np.sqrt(0.5))]))
        elif name == "GeluApproximate":
            x = x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))
        elif name == "_FusedHardSwish":
            x = x * np.clip(x + 3, 0, 6) / 6
        else:
            x = run_op(name, [x])
    assert not rest
    return x.astype(np.float32), all(name in _EXACT for name in fused)
