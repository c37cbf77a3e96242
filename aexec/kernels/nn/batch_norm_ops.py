"""Normalisation kernels: batch normalisation and its gradient, local response normalisation.

The computation is in float32, the type of mean and variance, for inputs of all types.  Both layouts of the channels are
supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.gpu.device_code import Code, compiled
from aexec.kernels.nn.batch_norm_in_c import centred_sums, normalised

__all__: list[str] = []

_NARROW_AND_FLOAT = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
_FLOAT = (dtypes.float32,)


class _Channels:
    """The position of the channels, and sums over all other dimensions."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.first = c.text("data_format").startswith("NC")
        self.xp = c.xp
        self.in_c = c.xp is np and not self.first

    def count(self, x: Any) -> int:
        return int(x.shape[1 if self.first else -1])

    def spread(self, vector: Any, x: Any) -> Any:
        """A vector over the channels, shaped to be broadcast to `x`."""
        return vector.reshape(-1, *[1] * (x.ndim - 2)) if self.first else vector

    def moments(self, x: Any, out: Any) -> tuple[Any, Any, Any]:
        """Mean and biased variance of each channel; and x less the mean, or None if `normalised` takes x.

        What is needed is written to `out` if that is given.
        """
        count = x.size // self.count(x)
        if self.in_c:
            # Less something near the mean, large numbers close to each other are summed without loss.
            near = x.reshape(-1, x.shape[-1])[0].copy()
            near[~np.isfinite(near)] = 0
            shifted = centred_sums(x, near)
            if shifted is not None:
                mean = (near + shifted[0] / count).astype(np.float32)
                sums = centred_sums(x, mean)
                assert sums is not None
                # The first sum tells by how much the mean was rounded.
                squares = np.maximum(sums[1] - sums[0] ** 2 / count, 0)
                return mean, (squares / count).astype(np.float32), None
        mean = self.total(x) / np.float32(count)
        centred = self.xp.subtract(x, self.spread(mean, x), out)
        return mean, self.total(centred * centred) / np.float32(count), centred

    def total(self, x: Any) -> Any:
        """The sum of each channel."""
        if self.first:
            return x.sum(axis=(0, *range(2, x.ndim)), dtype=np.float32)
        rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
        # BLAS adds in blocks, which is more exact and faster than row after row.
        return self.xp.matmul(self.xp.ones(len(rows), np.float32), rows)


def _check_input(x: Any) -> None:
    if x.ndim not in (4, 5):
        raise errors.InvalidArgumentError(f"input must be 4 or 5-dimensional{shape_text(x.shape)}")


def _check_vectors(channels: int, **vectors: Any) -> None:
    for name, vector in vectors.items():
        if vector.ndim != 1:
            raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{shape_text(vector.shape)}")
    for name, vector in vectors.items():
        if vector.size != channels:
            raise errors.InvalidArgumentError(
                f"{name} must have the same number of elements as the channels of x, got {vector.size} and {channels}"
            )


_NORMALISED = Code(("x", "m", "v", "s", "o", "eps"), {"y": "(x - m) * (s / sqrt(v + eps)) + o"})


class _BatchNorm:
    """FusedBatchNorm: y, the running mean and variance, and what the gradient needs.

    Args:
        result: the type of y, if not the node's.
    """

    def __init__(self, c: OpKernelConstruction, result: np.dtype[Any] | None = None) -> None:
        self.epsilon = np.float32(c.attr("epsilon"))
        self.training = c.attr("is_training")
        self.factor = np.float32(c.attr("exponential_avg_factor"))
        self.channels = _Channels(c)
        self.result = c.output_types[0].np if result is None else result
        self.third = len(c.output_types) == 6
        self.xp = c.xp
        self._in_one_launch = compiled(c.xp, "BatchNorm", _NORMALISED, dtypes.float32)

    def check(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> None:
        _check_input(x)
        for name, vector in (("estimated_mean", mean), ("estimated_variance", variance)):
            if vector.ndim != 1:
                raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{shape_text(vector.shape)}")
        channels = self.channels.count(x)
        _check_vectors(channels, scale=scale, offset=offset)
        if self.training and self.factor == 1:
            return
        why = "When exponential_avg_factor != 1, " if self.training else "When is_training=false, "
        for name, vector in (("mean", mean), ("variance", variance)):
            if vector.size != channels:
                raise errors.InvalidArgumentError(
                    f"{why}{name} must have the same number of elements as the channels of x, "
                    f"got {vector.size} and {channels}"
                )

    def __call__(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any, out: Any = None) -> tuple[Any, ...]:
        self.check(x, scale, offset, mean, variance)
        if not x.size:
            return self._empty(x)
        train = self._train if self.training else self._infer
        outputs = train(x.astype(np.float32, copy=False), scale, offset, mean, variance, out)
        return (*outputs, self.xp.zeros((), np.float32)) if self.third else outputs

    def _empty(self, x: Any) -> tuple[Any, ...]:
        size = self.channels.count(x)
        nan, zero = self.xp.full(size, np.nan, np.float32), self.xp.zeros(size, np.float32)
        out = (x.astype(self.result), nan, nan.copy(), zero, zero.copy())
        return (*out, self.xp.zeros((), np.float32)) if self.third else out

    def _normalised(self, x: Any, mean: Any, variance: Any, scale: Any, offset: Any, out: Any) -> Any:
        if self._in_one_launch is not None:
            vectors = [self.channels.spread(vector, x) for vector in (mean, variance, scale, offset)]
            return self._in_one_launch(x, *vectors, self.epsilon).astype(self.result, copy=False)
        centred = self.xp.subtract(x, self.channels.spread(mean, x), out)
        return self._scaled(centred, variance, scale, offset)

    def _scaled(self, centred: Any, variance: Any, scale: Any, offset: Any) -> Any:
        spread = self.channels.spread
        centred *= spread(scale / self.xp.sqrt(variance + self.epsilon), centred)
        centred += spread(offset, centred)
        return centred.astype(self.result, copy=False)

    def _infer(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any, out: Any) -> tuple[Any, ...]:
        return self._normalised(x, mean, variance, scale, offset, out), mean, variance, mean, variance

    def _train(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any, out: Any) -> tuple[Any, ...]:
        count = x.size // self.channels.count(x)
        own_mean, own_variance, centred = self.channels.moments(x, out)
        # The running variance uses the unbiased one.
        new_mean = own_mean
        new_variance = own_variance * np.float32(count / max(1, count - 1))
        if self.factor != 1:
            new_mean = (1 - self.factor) * mean + self.factor * new_mean
            new_variance = (1 - self.factor) * variance + self.factor * new_variance
        if centred is None:
            factor = scale / np.sqrt(own_variance + self.epsilon)
            y = normalised(x, own_mean, factor, offset, out).astype(self.result, copy=False)
        else:
            y = self._scaled(centred, own_variance, scale, offset)
        return y, new_mean, new_variance, own_mean, own_variance


def fused_batch_norm(c: OpKernelConstruction) -> Compute:
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, with the batch's own statistics in training.

    Outputs: y, running mean, running variance, and the mean and (biased) variance that were used.
    """
    if c.output_types[0] is dtypes.float32:
        c.forward_inputs(0)
    return _BatchNorm(c).__call__


def fused_batch_norm_ex(c: OpKernelConstruction) -> Compute:
    """Like FusedBatchNorm; then adds an optional input of the same shape, and applies Relu if an attr asks."""
    sides, activation = c.attr("num_side_inputs"), c.text("activation_mode")
    if sides > 1:
        raise errors.InvalidArgumentError("FusedBatchNorm accepts at most one side input.")
    if activation not in ("Identity", "Relu"):
        raise errors.InvalidArgumentError(f"Unsupported activation mode: {activation}")
    normalise, xp, result = _BatchNorm(c, np.dtype(np.float32)), c.xp, c.output_types[0].np
    zero = xp.zeros((), np.float32)

    def compute(x: Any, scale: Any, offset: Any, mean: Any, variance: Any, *side: Any) -> tuple[Any, ...]:
        y, *statistics = normalise(x, scale, offset, mean, variance)
        if side:
            if side[0].shape != x.shape:
                raise errors.InvalidArgumentError(
                    f"side_input shape must be equal to input shape: {shape_text(side[0].shape)} != "
                    f"{shape_text(x.shape)}"
                )
            xp.add(y, side[0], out=y)
        if activation == "Relu":
            xp.maximum(y, zero, out=y)
        return (y.astype(result, copy=False), *statistics)

    return compute


def fused_batch_norm_grad(c: OpKernelConstruction) -> Compute:
    """Return gradients for x, scale and offset, and two empty vectors, from the mean and variance of the forward
    op.
    """
    xp, channels = c.xp, _Channels(c)
    epsilon, training, result = np.float32(c.attr("epsilon")), c.attr("is_training"), c.output_types[0].np

    def check(grad: Any, x: Any, scale: Any, mean: Any, variance: Any) -> None:
        _check_input(grad)
        if x.shape != grad.shape:
            raise errors.InvalidArgumentError(
                f"x and y_backprop must have same shape, but x has shape {shape_text(x.shape)} "
                f"and y_backprop has shape {shape_text(grad.shape)}"
            )
        _check_vectors(channels.count(x), scale=scale, reserve_space_1=mean, reserve_space_2=variance)

    def compute(grad: Any, x: Any, scale: Any, mean: Any, variance: Any, *reserved: Any) -> Any:
        check(grad, x, scale, mean, variance)
        empty = xp.zeros(0, np.float32)
        if not x.size:
            zeros = xp.zeros(scale.shape, np.float32)
            return x.astype(result), zeros, zeros.copy(), empty, empty.copy()
        grad, x = grad.astype(np.float32, copy=False), x.astype(np.float32, copy=False)
        inverse = 1 / xp.sqrt(variance + epsilon)
        for_x, for_offset, with_centred = slopes(grad, x, mean, inverse, scale)
        return for_x.astype(result, copy=False), with_centred * inverse, for_offset, empty, empty.copy()

    def slopes(grad: Any, x: Any, mean: Any, inverse: Any, scale: Any) -> tuple[Any, Any, Any]:
        """The gradient for x, the sums of grad, and of its products with x less the mean."""
        count = np.float32(x.size // channels.count(x))
        sums = centred_sums(x, mean, grad) if channels.in_c else None
        if sums is not None:
            for_offset, with_centred = (total.astype(np.float32) for total in sums)
            factor = scale * inverse
            if not training:
                return grad * factor, for_offset, with_centred
            along = -factor * (inverse * inverse * with_centred / count)
            for_x = normalised(x, mean, along, -factor * (for_offset / count), of_grad=(grad, factor))
            return for_x, for_offset, with_centred
        centred = x - channels.spread(mean, x)
        for_offset, with_centred = channels.total(grad), channels.total(grad * centred)
        if not training:
            return grad * channels.spread(scale * inverse, x), for_offset, with_centred
        centred *= channels.spread(inverse * inverse * with_centred / count, x)
        for_x = grad - channels.spread(for_offset / count, x)
        for_x -= centred
        for_x *= channels.spread(scale * inverse, x)
        return for_x, for_offset, with_centred

    return compute


_BN_COST = 3.0
kernel("FusedBatchNorm", T=_FLOAT, cost=_BN_COST, scratch=8)(fused_batch_norm)
kernel("FusedBatchNormV2", "FusedBatchNormV3", T=_NARROW_AND_FLOAT, U=_FLOAT, cost=_BN_COST, scratch=8)(
    fused_batch_norm
)
kernel("_FusedBatchNormEx", T=(dtypes.bfloat16, dtypes.float32), U=_FLOAT, cost=_BN_COST, scratch=8)(
    fused_batch_norm_ex
)
kernel("FusedBatchNormGrad", T=_FLOAT, cost=_BN_COST, scratch=8)(fused_batch_norm_grad)
kernel("FusedBatchNormGradV2", "FusedBatchNormGradV3", T=_NARROW_AND_FLOAT, U=_FLOAT, cost=_BN_COST, scratch=8)(
    fused_batch_norm_grad
)


def _wider(t: Any, channels: Any, narrow: tuple[int, int], plain: tuple[int, int]) -> int:
    """Scratch bytes: (numbers per element of t, numbers per channel), `narrow` if half is widened, else `plain`."""
    of_element, of_channel = narrow if t.itemsize == 2 else plain
    return int(max(4, t.itemsize) * (of_element * t.size + of_channel * channels.size))


@kernel(
    "BatchNormWithGlobalNormalization",
    T=(dtypes.float16, dtypes.float32, dtypes.float64),
    cost=_BN_COST,
    scratch=lambda t, mean, *_: _wider(t, mean, (2, 3), (0, 3)),
)
def batch_norm_with_global_normalization(c: OpKernelConstruction) -> Compute:
    """The op of old graphs: takes mean and variance, channels last, scaled by gamma if an attr asks."""
    epsilon, scaled = c.attr("variance_epsilon"), c.attr("scale_after_normalization")
    xp, dtype = c.xp, c.output_types[0].np
    inner = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    if inner == dtype:
        c.forward_inputs(0)

    def compute(t: Any, mean: Any, variance: Any, beta: Any, gamma: Any, out: Any = None) -> Any:
        _check_channels(t, mean=mean, var=variance, beta=beta, gamma=gamma)
        factor = 1 / xp.sqrt(variance.astype(inner) + inner.type(epsilon))
        if scaled:
            factor *= gamma
        centred = xp.subtract(t.astype(inner, copy=False), mean, out)
        centred *= factor
        centred += beta
        return centred.astype(dtype, copy=False)

    return compute


def _check_channels(t: Any, **vectors: Any) -> None:
    if t.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{shape_text(t.shape)}")
    for name, vector in vectors.items():
        if vector.ndim != 1:
            raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{shape_text(vector.shape)}")
        if vector.size != t.shape[3]:
            raise errors.InvalidArgumentError(
                f"{name} must have as many elements as t has channels, got {vector.size} and {t.shape[3]}"
            )


@kernel(
    "BatchNormWithGlobalNormalizationGrad",
    T=(dtypes.float16, dtypes.float32, dtypes.float64),
    cost=2 * _BN_COST,
    scratch=lambda t, mean, *_: _wider(t, mean, (5, 14), (2, 6)),
)
def batch_norm_with_global_normalization_grad(c: OpKernelConstruction) -> Compute:
    """Gradients for the input, mean, variance, beta and gamma; zero for gamma if nothing is scaled by it."""
    epsilon, scaled = c.attr("variance_epsilon"), c.attr("scale_after_normalization")
    xp, dtype = c.xp, c.output_types[0].np
    inner = np.dtype(np.float32) if dtype.itemsize == 2 else dtype

    def compute(t: Any, mean: Any, variance: Any, gamma: Any, grad: Any) -> Any:
        _check_channels(t, mean=mean, var=variance, gamma=gamma)
        if grad.shape != t.shape:
            raise errors.InvalidArgumentError(
                f"backprop must have the input's shape, got {shape_text(grad.shape)} and {shape_text(t.shape)}"
            )
        t, mean, variance, gamma, grad = (x.astype(inner, copy=False) for x in (t, mean, variance, gamma, grad))
        inverse = 1 / xp.sqrt(variance + inner.type(epsilon))
        factor = inverse * gamma if scaled else inverse
        by_beta = grad.sum(axis=(0, 1, 2))
        along = (grad * (t - mean)).sum(axis=(0, 1, 2))
        by_variance = inner.type(-0.5) * along * factor * inverse * inverse
        by_gamma = along * inverse if scaled else xp.zeros_like(along)
        found = (grad * factor, -by_beta * factor, by_variance, by_beta, by_gamma)
        return tuple(gradient.astype(dtype, copy=False) for gradient in found)

    return compute


# ---------------------------------------------- Local response normalisation


class _Neighbours:
    """The attrs of LRN, and sums over neighbouring channels."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp = c.xp
        self.radius: int = c.attr("depth_radius")
        self.bias, self.alpha, self.beta = (np.float32(c.attr(n)) for n in ("bias", "alpha", "beta"))

    def total(self, x: Any) -> Any:
        """For each channel, the sum over those at most `radius` away."""
        out = x.copy()
        for distance in giving_way(range(1, min(self.radius, x.shape[-1] - 1) + 1), 2.0 * (1 + x.size)):
            out[..., distance:] += x[..., :-distance]
            out[..., :-distance] += x[..., distance:]
        return out

    def norm(self, x: Any) -> Any:
        return self.bias + self.alpha * self.total(x * x)


_LRN_TYPES = (dtypes.float16, dtypes.float32)


def _lrn_builder(compute_with: Callable[..., Any]) -> Builder:
    def builder(c: OpKernelConstruction) -> Compute:
        neighbours, dtype = _Neighbours(c), c.output_types[0].np

        def compute(*inputs: Any) -> Any:
            return compute_with(neighbours, *inputs).astype(dtype, copy=False)

        return compute

    return builder


def _lrn(neighbours: _Neighbours, x: Any) -> Any:
    if x.ndim != 4:
        raise errors.InvalidArgumentError("in must be 4-dimensional")
    x = x.astype(np.float32, copy=False)
    return x * neighbours.norm(x) ** -neighbours.beta


def _lrn_grad(neighbours: _Neighbours, grad: Any, x: Any, y: Any) -> Any:
    if not grad.ndim == x.ndim == y.ndim == 4:
        raise errors.InvalidArgumentError("inputs must be 4-dimensional")
    if not grad.shape == x.shape == y.shape:
        raise errors.InvalidArgumentError("input_grads, input_image, and out_image should have the same shape")
    grad, x, y = (a.astype(np.float32, copy=False) for a in (grad, x, y))
    norm = neighbours.norm(x)
    others = neighbours.total(grad * y / norm)
    return grad * norm**-neighbours.beta - 2 * neighbours.alpha * neighbours.beta * x * others


def _lrn_cost(element_ns: float, sums: int) -> AttrCost:
    """By the elements, and the neighbours of each, in `sums` sums."""

    def of_attrs(attrs: Mapping[str, Any]) -> Callable[..., float]:
        radius = max(0, attrs["depth_radius"])

        def cost(x: Any, *_: Any) -> float:
            neighbours = min(radius, x.shape[-1]) if x.ndim else 0
            return float(x.size * (element_ns + sums * neighbours))

        return cost

    return AttrCost(of_attrs)


kernel("LRN", T=_LRN_TYPES, cost=_lrn_cost(30.0, 1), scratch=24)(_lrn_builder(_lrn))
kernel("LRNGrad", T=_LRN_TYPES, cost=_lrn_cost(40.0, 2), scratch=32)(_lrn_builder(_lrn_grad))
