"""What the attr `fused_ops` of a fused op asks for: a bias, a normalisation, a residual, an activation.

`fused_ops=["BiasAdd", "Add", "Relu"]` with the extra inputs bias and residual makes an `Epilogue`, which the kernel
of the convolution or product does to its output while it makes it.  The arithmetic is that of the ops named, number
for number, so that it makes no difference to a float32 or float64 result whether a graph says them apart.
Next to read: `aexec/kernels/nn/fused_conv_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.elementwise import broadcast_error
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.single_erf import single_erf

__all__ = ["BATCH_NORM_THEN", "BIAS_THEN", "Fusion"]

# A function that changes a block in place.
_InPlace = Callable[[Any], Any]

_SQRT_HALF = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654
_GELU_CUBE = 0.044715


def _relu(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    maximum, zero = xp.maximum, xp.zeros((), dtype)
    return lambda x: maximum(x, zero, out=x)


def _relu6(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    maximum, minimum = xp.maximum, xp.minimum
    zero, six = xp.zeros((), dtype), xp.array(6, dtype)

    def compute(x: Any) -> None:
        maximum(x, zero, out=x)
        minimum(x, six, out=x)

    return compute


def _elu(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    maximum, minimum, expm1 = xp.maximum, xp.minimum, xp.expm1

    def compute(x: Any) -> None:
        negative = minimum(x, 0)
        expm1(negative, out=negative)
        maximum(x, 0, out=x)
        x += negative

    return compute


def _leaky_relu(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    slope = dtype.type(np.float32(alpha))
    if 0 < slope <= 1:
        return lambda x: xp.maximum(x, x * slope, out=x)

    def compute(x: Any) -> None:
        x[...] = xp.where(x > 0, x, x * slope)

    return compute


def _tanh(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    return lambda x: xp.tanh(x, out=x)


def _sigmoid(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    def compute(x: Any) -> None:
        xp.negative(x, out=x)
        xp.exp(x, out=x)
        x += 1
        xp.divide(1, x, out=x)

    return compute


def _gelu_approximate(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    def compute(x: Any) -> None:
        inner = x * x
        inner *= _GELU_CUBE
        inner += 1
        inner *= x
        inner *= _SQRT_2_OVER_PI
        xp.tanh(inner, out=inner)
        inner += 1
        x *= 0.5
        x *= inner

    return compute


def _gelu_exact(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    def compute(x: Any) -> None:
        inner = single_erf(xp, x * _SQRT_HALF)
        inner += 1
        x *= 0.5
        x *= inner

    return compute


def _hard_swish(xp: Any, dtype: Any, alpha: float) -> _InPlace:
    def compute(x: Any) -> None:
        gate = x + 3
        xp.maximum(gate, 0, out=gate)
        xp.minimum(gate, 6, out=gate)
        gate /= 6
        x *= gate

    return compute


_ACTIVATIONS: dict[str, Callable[[Any, Any, float], _InPlace]] = {
    "Relu": _relu,
    "Relu6": _relu6,
    "Elu": _elu,
    "LeakyRelu": _leaky_relu,
    "Tanh": _tanh,
    "Sigmoid": _sigmoid,
    "GeluApproximate": _gelu_approximate,
    "GeluExact": _gelu_exact,
    "_FusedHardSwish": _hard_swish,
}
# Extra inputs by the name of what takes them; Prelu is the web converter's, with its slopes as input.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "BiasAdd": ("bias",),
    "Add": ("side_input",),
    "FusedBatchNorm": ("scale", "offset", "estimated_mean", "estimated_variance"),
    "Prelu": ("alpha",),
}
_AFTER_BATCH_NORM = ("Relu", "Relu6", "Elu", "LeakyRelu")

# The lists that kernels take, by how they begin: all that one of TensorFlow's fused CPU kernels takes, or a converter
# writes, is taken by every product that can begin so.
BIAS_THEN = frozenset(
    ("BiasAdd", *add, *activation)
    for add in ((), ("Add",))
    for activation in ((), ("Prelu",), *((name,) for name in _ACTIVATIONS))
)
BATCH_NORM_THEN = frozenset(("FusedBatchNorm", *then) for then in ((), *((name,) for name in _AFTER_BATCH_NORM)))


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the fused ops, with its places among the extra inputs."""

    op: str
    first: int

    @property
    def names(self) -> tuple[str, ...]:
        return _ARGUMENTS.get(self.op, ())


class Fusion:
    """The fused ops of one node.

    Args:
        what: the product, for messages: `Conv2D`.
        taken: the lists of fused ops that there are for it.
        num_args: how many extra inputs the node has.

    Raises:
        InvalidArgumentError: no fused op, or extra inputs that do not go with them.
        UnimplementedError: another list of fused ops.
    """

    def __init__(
        self,
        c: OpKernelConstruction,
        what: str,
        taken: frozenset[tuple[str, ...]],
        num_args: int,
    ) -> None:
        ops = tuple(str(name, "utf-8", "replace") for name in c.attr("fused_ops"))
        if not ops:
            raise errors.InvalidArgumentError(f"Fused {what} must have at least one fused op.")
        if ops not in taken:
            raise errors.UnimplementedError(f"Fusion is not implemented: [{','.join(ops)}]")
        # Half and bfloat16 are computed in float32, and rounded once at the end.
        narrow = c.output_types[0] in (dtypes.float16, dtypes.bfloat16)
        self._xp, self._dtype = c.xp, np.dtype(np.float32) if narrow else c.output_types[0].np
        dtype = self._dtype
        self._epsilon = dtype.type(np.float32(c.attr("epsilon")))
        self._steps: list[_Step] = []
        first = 0
        for op in ops:
            self._steps.append(_Step(op, first))
            first += len(self._steps[-1].names)
        if num_args != first:
            _refuse_arguments(what, self._steps, num_args)
        alpha = c.attr("leakyrelu_alpha")
        self._activations = {op: _ACTIVATIONS[op](c.xp, dtype, alpha) for op in ops if op in _ACTIVATIONS}

    def of(self, shape: Sequence[int], args: Sequence[Any], make: Callable[[Epilogue], Any]) -> Any:
        """The output of this shape, [..., channels], which `make` makes, with the fused ops done to it.

        Raises:
            InvalidArgumentError: an extra input that does not go with the output.
        """
        for at, step in enumerate(self._steps):
            if step.op == "Add" and args[step.first].shape != tuple(shape):
                return self._broadcast(at, shape, args, make)
        return make(self._epilogue(self._steps, shape, args))

    def _broadcast(self, at: int, shape: Sequence[int], args: Sequence[Any], make: Callable[[Epilogue], Any]) -> Any:
        """As `of`, where step `at` adds an array of another shape, which may make a larger one of the output."""
        out = make(self._epilogue(self._steps[:at], shape, args))
        side = args[self._steps[at].first].astype(self._dtype, copy=False)
        try:
            out = self._xp.add(out, side)
        except ValueError as error:
            raise broadcast_error(error, out, side) from None
        apply_in_blocks(out, self._epilogue(self._steps[at + 1 :], out.shape, args))
        return out

    def _epilogue(self, steps: Sequence[_Step], shape: Sequence[int], args: Sequence[Any]) -> Epilogue:
        passes: list[Epilogue] = []
        for step in steps:
            mine = [arg.astype(self._dtype, copy=False) for arg in args[step.first : step.first + len(step.names)]]
            if step.op in self._activations:
                passes.append(_without_pixels(self._activations[step.op]))
            elif step.op == "Add":
                passes.append(self._add(mine[0], shape))
            elif step.op == "Prelu":
                passes.append(self._prelu(_of_channels("alpha", mine[0].reshape(-1), shape)))
            else:
                vectors = [_of_channels(name, arg, shape) for name, arg in zip(step.names, mine, strict=True)]
                passes.append(self._bias(*vectors) if step.op == "BiasAdd" else self._batch_norm(*vectors))
        if len(passes) == 1:
            return passes[0]

        def epilogue(block: Any, pixels: slice) -> None:
            for change in passes:
                change(block, pixels)

        return epilogue

    def _bias(self, bias: Any) -> Epilogue:
        add = self._xp.add
        return lambda block, pixels: add(block, bias, out=block)

    def _add(self, side: Any, shape: Sequence[int]) -> Epilogue:
        rows, add = side.reshape(-1, shape[-1]), self._xp.add
        return lambda block, pixels: add(block, rows[pixels], out=block)

    def _batch_norm(self, scale: Any, offset: Any, mean: Any, variance: Any) -> Epilogue:
        factor = scale / self._xp.sqrt(variance + self._epsilon)

        def epilogue(block: Any, pixels: slice) -> None:
            block -= mean
            block *= factor
            block += offset

        return epilogue

    def _prelu(self, alpha: Any) -> Epilogue:
        maximum, minimum = self._xp.maximum, self._xp.minimum

        def epilogue(block: Any, pixels: slice) -> None:
            negative = minimum(block, 0)
            negative *= alpha
            maximum(block, 0, out=block)
            block += negative

        return epilogue


def _without_pixels(change: _InPlace) -> Epilogue:
    return lambda block, pixels: change(block)


def _refuse_arguments(what: str, steps: Sequence[_Step], num_args: int) -> None:
    if [step.op for step in steps[:1]] == ["FusedBatchNorm"]:
        raise errors.InvalidArgumentError(
            f"Fused {what} with FusedBatchNorm must have four extra arguments: scale, offset, mean, variance."
        )
    names = [name for step in steps for name in step.names]
    if len(names) > 1:
        raise errors.InvalidArgumentError(
            f"Fused {what} with {' and '.join(s.op for s in steps if s.names)} must have {len(names)} extra arguments: "
            f"{', '.join(names)}; got {num_args}"
        )
    raise errors.InvalidArgumentError(
        f"Fused {what} with BiasAdd must have one extra argument: bias or 4 extra arguments: bias, side_input, "
        "conv_input_scale and side_input_scale"
    )


def _of_channels(name: str, vector: Any, shape: Sequence[int]) -> Any:
    if vector.ndim != 1:
        raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{shape_text(vector.shape)}")
    if vector.shape[0] != shape[-1]:
        raise errors.InvalidArgumentError(
            f"{name} must have as many elements as the output has channels: "
            f"{shape_text(vector.shape)} vs. {shape_text(shape)}"
        )
    return vector
