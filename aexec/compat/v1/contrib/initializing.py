"""Initializers of `tf.contrib.layers`: random numbers whose variance depends on a layer's size.

Next to read: `layers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.variables.initializers import Initializer, RandomUniform, TruncatedNormal

__all__ = ["variance_scaling_initializer", "xavier_initializer"]


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = "float32"
) -> Initializer:
    """Random numbers of variance `factor` / n, where n is the number of inputs, of outputs, or the mean of both.

    Args:
        mode: "FAN_IN", "FAN_OUT" or "FAN_AVG".
        uniform: True for uniform numbers in ±√(3 × factor / n); False for a normal distribution of standard deviation
            √(1.3 × factor / n), truncated at two standard deviations.
        dtype: floating; the variable's own dtype takes precedence.

    Raises:
        TypeError: `dtype` is not floating, or `mode` is unknown.
    """
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise errors.InvalidTypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise errors.InvalidTypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def initialize(shape: Sequence[int], dtype: Any = kind, partition_info: Any = None) -> Tensor:
        sizes = list(shape if partition_info is None else partition_info.full_shape)
        inputs = float(sizes[-2] if len(sizes) > 1 else sizes[-1] if sizes else 1)
        outputs = float(sizes[-1] if sizes else 1)
        window = math.prod(sizes[:-2])
        n = {"FAN_IN": inputs, "FAN_OUT": outputs, "FAN_AVG": (inputs + outputs) / 2.0}[mode] * window
        if uniform:
            limit = math.sqrt(3.0 * factor / n)
            return RandomUniform(-limit, limit, seed)(shape, dtype)
        return TruncatedNormal(0.0, math.sqrt(1.3 * factor / n), seed)(shape, dtype)

    return initialize


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = "float32") -> Initializer:
    """Glorot and Bengio 2010: variance 2 / (inputs + outputs)."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)
