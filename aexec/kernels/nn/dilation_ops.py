"""Greyscale morphological dilation and its gradients: a pool over the maximum of input plus filter.

As in `pooling_ops`, each tap of the window is one NumPy operation on the whole tensor, and padding does not take part.
If several taps give the maximum, the first one gets the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common import windowing
from aexec.kernels.common.array_module import at
from aexec.kernels.nn.pooling import lowest, taps

__all__: list[str] = []

# Nanoseconds that a tap of the window takes by itself, and for each element of the input.
_TAP_NS, _ELEMENT_NS = 8_000.0, 2.0


def _cost(x: Any, weights: Any, *_: Any) -> float:
    return float(prod(weights.shape[:2]) * (_TAP_NS + _ELEMENT_NS * x.size))


class _Dilation:
    """The checked attrs; makes the windows over an input."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp = c.xp
        self.strides = self._spatial(c, "strides", "Sliding window stride", "Stride")
        self.rates = self._spatial(c, "rates", "Input stride (atrous rate)", "Rate")
        self.padding = c.text("padding")

    @staticmethod
    def _spatial(c: OpKernelConstruction, name: str, what: str, word: str) -> Sequence[int]:
        values: Sequence[int] = c.attr(name)
        if len(values) != 4:
            raise errors.InvalidArgumentError(f"{what} field must specify 4 dimensions")
        if values[0] != 1 or values[3] != 1:
            raise errors.UnimplementedError(f"{word} is only supported across spatial dimensions.")
        return values[1:3]

    def spec(self, x: Any, weights: Any) -> list[windowing.Window]:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"input must be 4-dimensional{shape_text(x.shape)}")
        if weights.ndim != 3:
            raise errors.InvalidArgumentError(f"filter must be 3-dimensional: {shape_text(weights.shape)}")
        if x.shape[3] != weights.shape[2]:
            raise errors.InvalidArgumentError(
                f"input and filter must have the same depth: {x.shape[3]} vs {weights.shape[2]}"
            )
        return [
            windowing.extent(length, size, stride, rate, self.padding)
            for length, size, stride, rate in zip(x.shape[1:3], weights.shape, self.strides, self.rates, strict=False)
        ]

    def maximum(self, x: Any, weights: Any, spec: Sequence[windowing.Window]) -> Any:
        out = self.xp.full((len(x), spec[0].count, spec[1].count, x.shape[3]), lowest(x.dtype), x.dtype)
        rows = weights.reshape(prod(weights.shape[:2]), x.shape[3])
        for number, where, source in taps(spec, x.shape) if out.size else ():
            part = out[where]
            self.xp.fmax(part, x[source] + rows[number], out=part)
        return out

    def winners(self, x: Any, weights: Any, grad: Any) -> tuple[list[windowing.Window], Any]:
        """Return (windows, number of the tap that gives each output; -1 if none is above the lowest number).

        Raises:
            InvalidArgumentError: the output's gradient does not have the output's shape.
        """
        xp, spec = self.xp, self.spec(x, weights)
        if grad.ndim != 4:
            raise errors.InvalidArgumentError(f"out_backprop must be 4-dimensional{shape_text(grad.shape)}")
        if grad.shape != (len(x), spec[0].count, spec[1].count, x.shape[3]):
            raise errors.InvalidArgumentError("out_backprop has incompatible size.")
        best, found = xp.full(grad.shape, lowest(x.dtype), x.dtype), xp.full(grad.shape, -1, np.int32)
        rows = weights.reshape(prod(weights.shape[:2]), x.shape[3])
        for number, where, source in taps(spec, x.shape) if grad.size else ():
            candidate = x[source] + rows[number]
            better = candidate > best[where]
            xp.copyto(best[where], candidate, where=better)
            found[where][better] = number
        return spec, found


def _accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of sums: float32 for narrower floats."""
    return dtype if dtype.kind in "iu" or dtype.itemsize > 2 else np.dtype(np.float32)


@kernel("Dilation2D", T=dtypes.REAL_NUMBER, cost=_cost, scratch=32)
def dilation_2d(c: OpKernelConstruction) -> Compute:
    """Return the maximum over each window of input [n, h, w, c] plus filter [h, w, c]."""
    dilation = _Dilation(c)
    return lambda x, weights: dilation.maximum(x, weights, dilation.spec(x, weights))


@kernel("Dilation2DBackpropInput", T=dtypes.REAL_NUMBER, cost=_cost, scratch=32)
def dilation_2d_backprop_input(c: OpKernelConstruction) -> Compute:
    """Adds the gradient of each output to the input element that gave it."""
    xp, dilation, add_at = c.xp, _Dilation(c), at(c.xp, "add")

    def compute(x: Any, weights: Any, grad: Any) -> Any:
        spec, found = dilation.winners(x, weights, grad)
        out = xp.zeros(x.shape, _accumulator(x.dtype))
        for number, where, source in taps(spec, x.shape) if grad.size else ():
            target = out[source]
            target += xp.where(found[where] == number, grad[where], grad.dtype.type(0))
        image, row, column, channel = lost = xp.nonzero(found < 0)
        if len(image):  # TensorFlow adds their gradient to the window's first element
            row, column = (xp.maximum(i * w.stride - w.before, 0) for i, w in zip((row, column), spec, strict=True))
            place = xp.ravel_multi_index((image, row, column, channel), out.shape)
            add_at(out.reshape(-1), place, grad[lost].astype(out.dtype))
        return out.astype(x.dtype, copy=False)

    return compute


@kernel("Dilation2DBackpropFilter", T=dtypes.REAL_NUMBER, cost=_cost, scratch=32)
def dilation_2d_backprop_filter(c: OpKernelConstruction) -> Compute:
    """Adds the gradient of each output to the filter element that gave it."""
    xp, dilation = c.xp, _Dilation(c)

    def compute(x: Any, weights: Any, grad: Any) -> Any:
        spec, found = dilation.winners(x, weights, grad)
        inner = _accumulator(x.dtype)
        out = xp.zeros((weights.shape[0] * weights.shape[1], x.shape[3]), inner)
        for number, where, _ in taps(spec, x.shape) if grad.size else ():
            part = xp.where(found[where] == number, grad[where], grad.dtype.type(0))
            out[number] = part.sum(axis=(0, 1, 2), dtype=inner)
        lost = found < 0  # TensorFlow adds their gradient to the first tap
        if len(out) and lost.any():
            out[0] += xp.where(lost, grad, grad.dtype.type(0)).sum(axis=(0, 1, 2), dtype=inner)
        return out.reshape(weights.shape).astype(x.dtype, copy=False)

    return compute
