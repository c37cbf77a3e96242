"""The ops of the attr `fused_ops` of a fused op: a bias, a normalisation, a residual, an activation.

`fused_ops=["BiasAdd", "Add", "Relu"]` with the extra inputs bias and residual makes an `Epilogue`, which the kernel of
the convolution or product applies to its output block by block.  The arithmetic equals that of the single ops, so a
float32 or float64 result is the same whether ops are fused or not.
Next to read: `aexec/kernels/nn/fused_conv_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import shape_text
from aexec.kernels.common.elementwise import CLIP_ABOVE, broadcast_error
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.scratch import scratch
from aexec.kernels.common.single_erf import single_erf
from aexec.kernels.common.single_loops import tanh

__all__ = ["BATCH_NORM_THEN", "BIAS_THEN", "Fusion"]

# A function that changes a block in place.
_InPlace = Callable[[Any], Any]

_SQRT_HALF = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654
_GELU_CUBE = 0.044715
# The approximate count of numbers to add in one loop: one row of few channels is too short.
_STRETCH = 1024


def _clip(xp: Any, dtype: Any, low: float, high: float, large: bool) -> Callable[[Any, Any], Any]:
    """A function `(x, out)` that clips x to [low, high], as `elementwise.clipper` does for a large or a small
    output.
    """
    lower, upper = xp.array(low, dtype), xp.array(high, dtype)
    if large:
        return lambda x, out: x.clip(lower, upper, out)
    if high == np.inf:
        return lambda x, out: xp.maximum(x, lower, out=out)
    if low == -np.inf:
        return lambda x, out: xp.minimum(x, upper, out=out)
    return lambda x, out: xp.minimum(xp.maximum(x, lower, out=out), upper, out=out)


def _relu(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    clip = _clip(xp, dtype, 0, np.inf, large)
    return lambda x: clip(x, x)


def _relu6(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    clip = _clip(xp, dtype, 0, 6, large)
    return lambda x: clip(x, x)


def _elu(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    positive, negative = _clip(xp, dtype, 0, np.inf, large), _clip(xp, dtype, -np.inf, 0, large)

    def compute(x: Any) -> None:
        above = positive(x, scratch.empty(xp, "above", x.shape, x.dtype))
        negative(x, x)
        xp.expm1(x, out=x)
        x += above

    return compute


def _leaky_relu(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    slope = dtype.type(np.float32(alpha))
    positive, negative = _clip(xp, dtype, 0, np.inf, large), _clip(xp, dtype, -np.inf, 0, large)

    def of_parts(x: Any) -> None:
        above = positive(x, scratch.empty(xp, "above", x.shape, x.dtype))
        negative(x, x)
        x *= slope
        x += above

    def chosen(x: Any) -> None:
        x[...] = xp.where(x > 0, x, x * slope)

    if 0 < slope <= 1:
        return of_parts if large else lambda x: xp.maximum(x, x * slope, out=x)
    return chosen


def _tanh(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    of_module = tanh if xp is np else xp.tanh
    return lambda x: of_module(x, out=x)


def _sigmoid(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    def compute(x: Any) -> None:
        xp.negative(x, out=x)
        xp.exp(x, out=x)
        x += 1
        xp.divide(1, x, out=x)

    return compute


def _gelu_approximate(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
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


def _gelu_exact(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    def compute(x: Any) -> None:
        inner = single_erf(xp, x * _SQRT_HALF)
        inner += 1
        x *= 0.5
        x *= inner

    return compute


def _hard_swish(xp: Any, dtype: Any, alpha: float, large: bool) -> _InPlace:
    def compute(x: Any) -> None:
        gate = x + 3
        xp.maximum(gate, 0, out=gate)
        xp.minimum(gate, 6, out=gate)
        gate /= 6
        x *= gate

    return compute


# Called with the array module, the type, the slope of LeakyRelu, and whether the whole output is large.
_ACTIVATIONS: dict[str, Callable[[Any, Any, float, bool], _InPlace]] = {
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
# The limits that a loop in C clips to before these activations, or without one; it has no others.
_LIMITS: dict[str | None, tuple[float, float]] = {
    None: (-np.inf, np.inf),
    "Relu": (0.0, np.inf),
    "Relu6": (0.0, 6.0),
    "GeluExact": (-np.inf, np.inf),
}
# The extra inputs of each fused op; Prelu is the web converter's, with its slopes as input.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "BiasAdd": ("bias",),
    "Add": ("side_input",),
    "FusedBatchNorm": ("scale", "offset", "estimated_mean", "estimated_variance"),
    "Prelu": ("alpha",),
}
_AFTER_BATCH_NORM = ("Relu", "Relu6", "Elu", "LeakyRelu")

# The lists of fused ops that kernels take, by their first op.  Every product that can begin this way takes all lists
# that one of TensorFlow's fused CPU kernels takes, or a converter writes.
BIAS_THEN = frozenset(
    ("BiasAdd", *add, *activation)
    for add in ((), ("Add",))
    for activation in ((), ("Prelu",), *((name,) for name in _ACTIVATIONS))
)
BATCH_NORM_THEN = frozenset(("FusedBatchNorm", *then) for then in ((), *((name,) for name in _AFTER_BATCH_NORM)))


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the fused ops, with the positions of its extra inputs."""

    op: str
    first: int

    @property
    def names(self) -> tuple[str, ...]:
        return _ARGUMENTS.get(self.op, ())


class Fusion:
    """The fused ops of one node.

    Args:
        what: the product, for messages: `Conv2D`.
        taken: the lists of fused ops that are supported for it.
        num_args: the number of the node's extra inputs.

    Raises:
        InvalidArgumentError: there is no fused op, or the extra inputs do not match them.
        UnimplementedError: the list of fused ops is not supported.
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
        # Half and bfloat16 are computed in float32 and rounded once at the end.
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
        activation = ops[-1] if ops[-1] in _ACTIVATIONS else None
        self._activations = [
            None if activation is None else _ACTIVATIONS[activation](c.xp, dtype, alpha, large)
            for large in (False, True)
        ]
        # The last call with constants: the output's shape, the extra inputs, and the epilogue.
        self._kept: tuple[tuple[int, ...], Sequence[Any], Epilogue] | None = None

    def of(self, shape: tuple[int, ...], args: Sequence[Any], make: Callable[[Epilogue], Any]) -> Any:
        """Return the output of this shape, [..., channels], which `make` makes, with the fused ops applied.

        Raises:
            InvalidArgumentError: an extra input does not fit the output.
        """
        kept = self._kept
        if (
            kept is not None
            and kept[0] == shape
            and all(one is other for one, other in zip(kept[1], args, strict=True))
        ):
            return make(kept[2])
        for at, step in enumerate(self._steps):
            if step.op == "Add" and args[step.first].shape != shape:
                return self._broadcast(at, shape, args, make)
        epilogue = self._epilogue(self._steps, shape, args)
        if self._xp is np and not any(arg.flags.writeable for arg in args):
            self._kept = shape, args, epilogue
        return make(epilogue)

    def of_small(self) -> Callable[[Any, Any], bool] | None:
        """A function `(out, bias)` that applies the fused ops to a small output in place, or None unless they are a
        bias and at most an activation.

        It returns False if the bias does not fit the output.
        """
        add, activation = self._xp.add, self._activations[False]
        if self._steps[0].op != "BiasAdd" or len(self._steps) != (1 if activation is None else 2):
            return None

        def finish(out: Any, bias: Any) -> bool:
            if bias.shape != out.shape[1:]:
                return False
            add(out, bias, out=out)
            if activation is not None:
                activation(out)
            return True

        return finish

    def _broadcast(self, at: int, shape: Sequence[int], args: Sequence[Any], make: Callable[[Epilogue], Any]) -> Any:
        """Like `of`, if step `at` adds an array of another shape, which may enlarge the output."""
        out = make(self._epilogue(self._steps[:at], shape, args))
        side = args[self._steps[at].first].astype(self._dtype, copy=False)
        try:
            out = self._xp.add(out, side)
        except ValueError as error:
            raise broadcast_error(error, out, side) from None
        apply_in_blocks(out, self._epilogue(self._steps[at + 1 :], out.shape, args))
        return out

    def _epilogue(self, steps: Sequence[_Step], shape: Sequence[int], args: Sequence[Any]) -> Epilogue:
        return self._in_one_pass(steps, shape, args) or self._in_passes(steps, shape, args)

    def _in_one_pass(self, steps: Sequence[_Step], shape: Sequence[int], args: Sequence[Any]) -> Epilogue | None:
        """The steps by one loop in C, if that has them: a bias, perhaps a residual, perhaps an activation."""
        loops, ops = native.loops, [step.op for step in steps]
        activation = ops.pop() if ops[-1:] and ops[-1] in _ACTIVATIONS else None
        if loops is None or self._xp is not np or ops not in (["BiasAdd"], ["BiasAdd", "Add"]):
            return None
        if activation not in _LIMITS or not native.are_single(*args) or args[0].shape != shape[-1:]:
            return None
        (low, high), bias, channels = _LIMITS[activation], args[0], shape[-1]
        side = args[1].reshape(-1, channels) if len(ops) > 1 else None
        finish, gelu = loops.finish, loops.gelu if activation == "GeluExact" else None

        def epilogue(block: Any, pixels: slice) -> None:
            finish(block, bias, None if side is None else side[pixels], len(block), channels, low, high)
            if gelu is not None:
                gelu(block)

        return epilogue

    def _in_passes(self, steps: Sequence[_Step], shape: Sequence[int], args: Sequence[Any]) -> Epilogue:
        passes: list[Epilogue] = []
        for step in steps:
            mine = args[step.first : step.first + len(step.names)]
            if step.op in _ACTIVATIONS:
                passes.append(_without_pixels(self._activation(prod(shape))))
            elif step.op == "Add":
                passes.append(self._add(mine[0].astype(self._dtype, copy=False), shape))
            else:
                passes.append(self._of_vectors(step, mine, shape))
        return _in_turn(passes)

    def _activation(self, size: int) -> _InPlace:
        """The activation of the last step, for an output of this many elements."""
        activation = self._activations[size > CLIP_ABOVE]
        assert activation is not None
        return activation

    def _of_vectors(self, step: _Step, args: Sequence[Any], shape: Sequence[int]) -> Epilogue:
        """A step that takes one number per channel from each extra input."""
        flat = [arg.reshape(-1) for arg in args] if step.op == "Prelu" else args
        checked = [_of_channels(name, arg, shape) for name, arg in zip(step.names, flat, strict=True)]
        vectors = [vector.astype(self._dtype, copy=False) for vector in checked]
        if step.op == "BiasAdd":
            return self._by_channel("add", *vectors)
        return self._prelu(*vectors) if step.op == "Prelu" else self._batch_norm(*vectors)

    def _by_channel(self, ufunc: str, vector: Any) -> Epilogue:
        """Adds, subtracts or multiplies by a number per channel; several pixels at once if they have few channels."""
        change, channels = getattr(self._xp, ufunc), len(vector)
        pixels = _STRETCH // max(1, channels)
        if pixels < 2:
            return lambda block, where: change(block, vector, out=block)
        repeated = self._xp.tile(vector, pixels)

        def epilogue(block: Any, where: slice) -> None:
            whole = len(block) // pixels * pixels
            if whole:
                rows = block[:whole].reshape(-1, pixels * channels)
                change(rows, repeated, out=rows)
            if whole < len(block):
                change(block[whole:], vector, out=block[whole:])

        return epilogue

    def _add(self, side: Any, shape: Sequence[int]) -> Epilogue:
        rows, add = side.reshape(-1, shape[-1]), self._xp.add
        return lambda block, pixels: add(block, rows[pixels], out=block)

    def _batch_norm(self, scale: Any, offset: Any, mean: Any, variance: Any) -> Epilogue:
        factor = scale / self._xp.sqrt(variance + self._epsilon)
        return _in_turn(
            [
                self._by_channel("subtract", mean),
                self._by_channel("multiply", factor),
                self._by_channel("add", offset),
            ]
        )

    def _prelu(self, alpha: Any) -> Epilogue:
        maximum, minimum = self._xp.maximum, self._xp.minimum

        def epilogue(block: Any, pixels: slice) -> None:
            negative = minimum(block, 0)
            negative *= alpha
            maximum(block, 0, out=block)
            block += negative

        return epilogue


def _in_turn(passes: Sequence[Epilogue]) -> Epilogue:
    if len(passes) == 1:
        return passes[0]

    def epilogue(block: Any, pixels: slice) -> None:
        for change in passes:
            change(block, pixels)

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
