"""Pooling kernels over two and three spatial dimensions, and their gradients; channels last.

Padding never takes part in a maximum or a mean.  `window_reduction.py` has the arithmetic of the pools.  A gradient
processes the positions (taps) of its window one after the other: each is one NumPy operation on the whole tensor, over
the part of the output for which that tap is inside the input.  `pooling.py` has the taps and the checks.
Next to read: `batch_norm_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.array_module import at
from aexec.kernels.nn import pooling_in_c
from aexec.kernels.nn.pooling import Layout, Pool, Pool2D, Pool3D, lowest, pool_cost, window_cost
from aexec.kernels.nn.window_reduction import maxima, sums

__all__ = ["max_over_depth", "max_over_windows"]

# Scratch per byte of the three inputs of a maximum's gradient, for the winners and their gradients; and bytes per
# element of an average's gradient, for its share, spread along one dimension after the other.
_GRAD_SCRATCH, _SPREAD_SCRATCH = 3, 13
# Bytes per window in search of its maximum: found now, equal to it, and not found before.
_HIT_BYTES = 3
# Bytes of an element of a narrow float that is computed with in float32.
_WIDE_BYTES = 4

_POOL_3D_TYPES = (dtypes.bfloat16, dtypes.float32)

# The approximate bytes of input for a piece of a gradient.
_PIECE_BYTES = 1 << 20

MakePool = Callable[..., Pool]


# ---------------------------------------------------------------- Max pool


def max_over_windows(xp: Any, x: Any, pool: Pool) -> Any:
    """Return the maximum of each window.  NaN is ignored, and nothing is below the lowest finite number."""
    layout, low = pool.windows(x.shape, centred=pool.spatial == 3), x.dtype.type(lowest(x.dtype))
    found = pooling_in_c.max_pool(x, layout) if xp is np else None
    if found is not None:
        return found
    out = maxima(xp, x, layout, low)
    if x.dtype.kind in "iu" or not out.size or not bool(xp.isnan(out.max())):
        return out
    return maxima(xp, xp.where(xp.isnan(x), low, x), layout, low)


def max_over_depth(x: Any, pool: Pool) -> Any:
    if any(k != 1 for k in pool.sizes):
        raise errors.UnimplementedError(
            "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
        )
    if x.shape[-1] % pool.depth:
        raise errors.UnimplementedError(
            "Depthwise max pooling requires the depth window to evenly divide the input depth"
        )
    if pool.depth != pool.depth_stride:
        raise errors.UnimplementedError("Depthwise max pooling requires the depth window to equal the depth stride")
    return x.reshape(*x.shape[:-1], x.shape[-1] // pool.depth, pool.depth).max(axis=-1)


@kernel("MaxPool", T=dtypes.REAL_NUMBER, cost=pool_cost)
def max_pool(c: OpKernelConstruction) -> Compute:
    """Maximum of windows over height and width, or over depth."""
    xp, pool = c.xp, Pool2D(c, "MaxPoolingOp")

    def compute(x: Any) -> Any:
        pool.check_input(x)
        return max_over_windows(xp, x, pool) if pool.depth == 1 else max_over_depth(x, pool)

    return compute


@kernel("MaxPoolV2", T=dtypes.REAL_NUMBER, cost=pool_cost)
def max_pool_v2(c: OpKernelConstruction) -> Compute:
    """Like MaxPool, with ksize and strides as inputs."""
    xp = c.xp

    def compute(x: Any, ksize: Any, strides: Any) -> Any:
        pool = Pool2D(c, "MaxPoolingOp", ksize=ksize, strides=strides)
        pool.check_input(x)
        return max_over_windows(xp, x, pool) if pool.depth == 1 else max_over_depth(x, pool)

    return compute


@kernel("MaxPool3D", T=_POOL_3D_TYPES, cost=pool_cost)
def max_pool_3d(c: OpKernelConstruction) -> Compute:
    """Maximum of windows over three spatial dimensions."""
    xp, pool = c.xp, Pool3D(c, "Pooling3DOp")

    def compute(x: Any) -> Any:
        pool.check_input(x)
        return max_over_windows(xp, x, pool)

    return compute


def _maximum(xp: Any, x: Any, layout: Layout) -> tuple[Any, bool]:
    """Return (maximum of each window, whether any is NaN): here every window with a NaN has a NaN as maximum."""
    real = x.dtype.kind not in "iu"
    best = maxima(xp, x, layout, x.dtype.type(-np.inf if real else np.iinfo(x.dtype).min))
    return best, real and bool(xp.count_nonzero(best != best))


def _first_maximum(xp: Any, x: Any, layout: Layout, best: Any, has_nan: bool) -> tuple[Any, Any]:
    """Return (maximum, number of its tap): the first of equals; a NaN that comes first stays."""
    if has_nan:
        return _first_maximum_with_nan(xp, x, layout)
    found = xp.zeros(layout.output, np.uint8 if layout.size <= 256 else np.int64)
    for number, where, source in layout.taps(backwards=True):
        part = found[where]
        part[...] = xp.where(x[source] == best[where], found.dtype.type(number), part)
    return best, found


def _first_maximum_with_nan(xp: Any, x: Any, layout: Layout) -> tuple[Any, Any]:
    best, found = xp.zeros(layout.output, x.dtype), xp.full(layout.output, -1, np.int64)
    for number, where, source in layout.taps():
        candidate = x[source]
        better = (candidate > best[where]) | (found[where] < 0)
        xp.copyto(best[where], candidate, where=better)
        found[where][better] = number
    return best, found


def _check_gradient_shapes(pool: Pool, x: Any, orig_output: Any, grad: Any, grad_like_input: bool = False) -> None:
    rank = len(pool.sizes) + 2
    for what, array in (("tensor_in", x), ("tensor_out", orig_output), ("out_backprop", grad)):
        if array.ndim != rank:
            raise errors.InvalidArgumentError(f"{what} must be {rank}-dimensional")
    if pool.depth != 1:
        raise errors.UnimplementedError("MaxPoolingGrad is not yet supported on the depth dimension.")
    pool.check_input(x)
    wanted = pool.windows(x.shape).output
    pairs = (("orig_output", orig_output, wanted), ("grad", grad, x.shape if grad_like_input else wanted))
    for what, array, shape in pairs:
        if array.shape != shape:
            raise errors.InvalidArgumentError(
                f"Expected {what} shape to be {shape_text(shape)}, but got {shape_text(array.shape)}"
            )


def _max_pool_grad(xp: Any, x: Any, grad: Any, pool: Pool) -> Any:
    # Zeroed piece by piece, if at all: adjacent windows may cover all of it.
    out = xp.empty(x.shape, _wide(grad.dtype))
    pieces = max(1, min(len(x), x.nbytes // _PIECE_BYTES))
    parts = [slice(len(x) * i // pieces, len(x) * (i + 1) // pieces) for i in range(pieces)]
    layouts = {n: pool.windows((n, *x.shape[1:])) for n in {part.stop - part.start for part in parts}}

    def piece(i: int) -> None:
        part = parts[i]
        _add_max_pool_grad(xp, x[part], grad[part], layouts[part.stop - part.start], out[part])

    if out.size:
        in_pieces(pieces, piece)
    return out.astype(grad.dtype, copy=False)


def _add_max_pool_grad(xp: Any, x: Any, grad: Any, layout: Layout, out: Any) -> None:
    """Write the gradients of the first maximum of each window into `out`, of the input's shape; zeros elsewhere."""
    if xp is np and pooling_in_c.add_max_pool_grad(x, grad, layout, out):
        return
    best, has_nan = _maximum(xp, x, layout)
    blocks = layout.side_by_side(x)
    if blocks is None or has_nan or blocks.size < out.size:
        out[...] = 0
    if blocks is not None and not has_nan:
        _put_max_pool_grad(xp, x, best, grad.astype(out.dtype, copy=False), layout, out)
        return
    _, found = _first_maximum(xp, x, layout, best, has_nan)
    for number, where, source in layout.taps():
        target = out[source]
        target += xp.where(found[where] == number, grad[where], grad.dtype.type(0))


def _put_max_pool_grad(xp: Any, x: Any, best: Any, grad: Any, layout: Layout, out: Any) -> None:
    """Write the gradient of a max pool whose windows do not overlap."""
    # A product of integer bits with a truth value keeps all bits or none, also of infinities; faster than `where`.
    bits = np.dtype(f"i{grad.dtype.itemsize}")
    grad_bits, out_bits = grad.view(bits), out.view(bits)
    open_ = xp.ones(best.shape, bool)
    for _, _, source in layout.taps():
        hit = x[source] == best
        hit &= open_
        open_ ^= hit
        xp.multiply(grad_bits, hit, out=out_bits[source])


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of sums: float32 for narrower floats."""
    return dtype if dtype.kind in "iu" or dtype.itemsize > 2 else np.dtype(np.float32)


@kernel("MaxPoolGrad", T=dtypes.REAL_NUMBER, cost=window_cost, scratch=_GRAD_SCRATCH)
def max_pool_grad(c: OpKernelConstruction) -> Compute:
    """Adds the gradient to the first maximum of each window."""
    xp, pool = c.xp, Pool2D(c, "MaxPoolingGradOp")

    def compute(x: Any, orig_output: Any, grad: Any) -> Any:
        _check_gradient_shapes(pool, x, orig_output, grad)
        return _max_pool_grad(xp, x, grad, pool)

    return compute


@kernel(
    "MaxPoolGradV2", T=dtypes.REAL_NUMBER, host_memory=("ksize", "strides"), cost=window_cost, scratch=_GRAD_SCRATCH
)
def max_pool_grad_v2(c: OpKernelConstruction) -> Compute:
    """Like MaxPoolGrad, with ksize and strides as inputs."""
    xp = c.xp

    def compute(x: Any, orig_output: Any, grad: Any, ksize: Any, strides: Any) -> Any:
        pool = Pool2D(c, "MaxPoolingGradOp", ksize=ksize, strides=strides)
        _check_gradient_shapes(pool, x, orig_output, grad)
        return _max_pool_grad(xp, x, grad, pool)

    return compute


def max_pool_3d_grad(c: OpKernelConstruction) -> Compute:
    """Adds the gradient to every element of a window that equals its maximum."""
    xp, pool = c.xp, Pool3D(c, "MaxPooling3dGradOp")

    def compute(x: Any, orig_output: Any, grad: Any) -> Any:
        _check_gradient_shapes(pool, x, orig_output, grad)
        out = xp.zeros(x.shape, _wide(grad.dtype))
        for _, where, source in pool.windows(x.shape).taps():
            target = out[source]
            target += xp.where(x[source] == orig_output[where], grad[where], grad.dtype.type(0))
        return out.astype(grad.dtype, copy=False)

    return compute


for _dtype in _POOL_3D_TYPES:
    kernel("MaxPool3DGrad", T=(_dtype,), TInput=(_dtype,), cost=window_cost, scratch=_GRAD_SCRATCH)(max_pool_3d_grad)


def _grad_grad(make: MakePool, label: str) -> Builder:
    """Builder: for each window, the element of `grad` where the input first equals the maximum; else 0."""

    def builder(c: OpKernelConstruction) -> Compute:
        xp, pool = c.xp, make(c, label)
        return lambda x, orig_output, grad: _max_pool_grad_grad(xp, x, orig_output, grad, pool)

    return builder


def _max_pool_grad_grad(xp: Any, x: Any, orig_output: Any, grad: Any, pool: Any) -> Any:
    _check_gradient_shapes(pool, x, orig_output, grad, grad_like_input=True)
    announce_scratch(_HIT_BYTES * orig_output.size)
    out, open_ = xp.zeros(orig_output.shape, grad.dtype), xp.ones(orig_output.shape, bool)
    for _, where, source in pool.windows(x.shape).taps():
        hit = open_[where] & (x[source] == orig_output[where])
        xp.copyto(out[where], grad[source], where=hit)
        open_[where][hit] = False
    return out


@kernel("MaxPoolGradGradV2", T=dtypes.REAL_NUMBER, host_memory=("ksize", "strides"), cost=window_cost)
def max_pool_grad_grad_v2(c: OpKernelConstruction) -> Compute:
    """Like MaxPoolGradGrad, with ksize and strides as inputs."""

    def compute(x: Any, orig_output: Any, grad: Any, ksize: Any, strides: Any) -> Any:
        pool = Pool2D(c, "MaxPoolingGradGradOp", ksize=ksize, strides=strides)
        return _max_pool_grad_grad(c.xp, x, orig_output, grad, pool)

    return compute


kernel("MaxPoolGradGrad", T=dtypes.REAL_NUMBER, cost=window_cost)(_grad_grad(Pool2D, "MaxPoolingGradGradOp"))
kernel("MaxPool3DGradGrad", T=_POOL_3D_TYPES, cost=window_cost)(_grad_grad(Pool3D, "MaxPooling3dGradGradOp"))


@kernel("MaxPoolWithArgmax", T=dtypes.REAL_NUMBER, Targmax=(dtypes.int32, dtypes.int64), cost=window_cost, scratch=12)
def max_pool_with_argmax(c: OpKernelConstruction) -> Compute:
    """Return (maximum, its position (y × width + x) × channels + c, counted within the image or in the whole
    batch).
    """
    xp, pool, index_type = c.xp, Pool2D(c, "MaxPoolWithArgmaxOp"), c.output_types[1].np
    whole_batch = c.attr("include_batch_in_index")

    def compute(x: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError("tensor_in must be 4-dimensional (2)")
        if pool.depth != 1:
            raise errors.UnimplementedError("MaxPoolWithArgmax pools over height and width only")
        pool.check_input(x)
        layout = pool.windows(x.shape)
        best, found = _first_maximum(xp, x, layout, *_maximum(xp, x, layout))
        if not found.size:
            return best, found.astype(index_type)
        high, wide = layout.spec
        rows = xp.arange(high.count).reshape(-1, 1, 1) * high.stride - high.before + found // wide.size
        cols = xp.arange(wide.count).reshape(-1, 1) * wide.stride - wide.before + found % wide.size
        index = (rows * x.shape[2] + cols) * x.shape[3] + xp.arange(x.shape[3])
        if whole_batch:
            image = x.shape[1] * x.shape[2] * x.shape[3]
            index = index + xp.arange(x.shape[0]).reshape(-1, 1, 1, 1) * image
        return best, index.astype(index_type)

    return compute


@kernel("MaxPoolGradWithArgmax", T=dtypes.REAL_NUMBER, Targmax=(dtypes.int64,))
def max_pool_grad_with_argmax(c: OpKernelConstruction) -> Compute:
    """Adds the gradient to the positions that MaxPoolWithArgmax returned."""
    xp, pool, add_at = c.xp, Pool2D(c, "MaxPoolGradWithArgmaxOp"), at(c.xp, "add")
    whole_batch = c.attr("include_batch_in_index")

    def compute(x: Any, grad: Any, argmax: Any) -> Any:
        pool.check_input(x)
        wanted = pool.windows(x.shape).output
        _check_pooled_shape(wanted, grad=grad, argmax=argmax)
        index = _flat_argmax(xp, x, argmax, whole_batch)
        out = xp.zeros(x.size, _wide(grad.dtype))
        add_at(out, index.ravel(), grad.ravel().astype(out.dtype, copy=False))
        return out.reshape(x.shape).astype(grad.dtype, copy=False)

    return compute


def _check_pooled_shape(wanted: tuple[int, ...], **arrays: Any) -> None:
    for what, array in arrays.items():
        if array.shape != wanted:
            raise errors.InvalidArgumentError(
                f"Expected {what} shape to be {shape_text(wanted)}, but got {shape_text(array.shape)}"
            )


def _flat_argmax(xp: Any, x: Any, argmax: Any, whole_batch: bool) -> Any:
    """Positions in the whole of `x` for those of MaxPoolWithArgmax, which count in it or in each of its images."""
    image = x[:1].size
    limit = x.size if whole_batch else image
    if argmax.size and (int(argmax.min()) < 0 or int(argmax.max()) >= limit):
        raise errors.InvalidArgumentError(f"argmax must be in [0, {limit})")
    announce_scratch(2 * argmax.nbytes)  # positions in the batch, and what the caller makes of them
    return argmax if whole_batch or not argmax.size else argmax + xp.arange(x.shape[0]).reshape(-1, 1, 1, 1) * image


@kernel("MaxPoolGradGradWithArgmax", T=dtypes.REAL_NUMBER, Targmax=(dtypes.int64,))
def max_pool_grad_grad_with_argmax(c: OpKernelConstruction) -> Compute:
    """Return for each window the element of `grad` at the position that MaxPoolWithArgmax returned."""
    xp, pool = c.xp, Pool2D(c, "MaxPoolGradGradWithArgmaxOp")
    whole_batch = c.attr("include_batch_in_index")

    def compute(x: Any, grad: Any, argmax: Any) -> Any:
        pool.check_input(x)
        _check_pooled_shape(x.shape, grad=grad)
        _check_pooled_shape(pool.windows(x.shape).output, argmax=argmax)
        return grad.reshape(-1)[_flat_argmax(xp, x, argmax, whole_batch)]

    return compute


# ------------------------------------------------------------ Average pool


def _average(xp: Any, x: Any, pool: Pool) -> Any:
    layout = pool.windows(x.shape, centred=pool.spatial == 3)
    if x.dtype != _wide(x.dtype):  # the input and the result are made in float32 too
        announce_scratch(_WIDE_BYTES * (x.size + prod(layout.output)))
    out = sums(xp, x.astype(_wide(x.dtype), copy=False), layout)
    if not out.size:  # there may be any number of positions without elements
        return out.astype(x.dtype, copy=False)
    out /= layout.counts(xp, out.dtype)
    return out.astype(x.dtype, copy=False)


def _spread(xp: Any, shape: tuple[int, ...], grad: Any, pool: Pool) -> Any:
    layout = pool.windows(shape)
    if grad.shape != layout.output:
        raise errors.InvalidArgumentError(
            f"Expected grad shape to be {shape_text(layout.output)}, but got {shape_text(grad.shape)}"
        )
    out = xp.zeros(shape, _wide(grad.dtype))
    if grad.size and out.size:
        share = grad.astype(out.dtype, copy=False) / layout.counts(xp, out.dtype)
        blocks = layout.side_by_side(out)
        if blocks is not None:
            blocks[...] = layout.spread(share)
            return out.astype(grad.dtype, copy=False)
        layout.add_spread(xp, share, out)
    return out.astype(grad.dtype, copy=False)


def _avg_pool(make: MakePool, label: str) -> Builder:
    """Builder: the mean of each window's elements without padding."""

    def builder(c: OpKernelConstruction) -> Compute:
        xp, pool = c.xp, make(c, label)

        def compute(x: Any) -> Any:
            pool.check_input(x)
            if pool.depth != 1:
                raise errors.UnimplementedError(
                    "Depthwise max pooling requires the depth window to equal the depth stride"
                    if pool.depth != pool.depth_stride
                    else "Non-spatial pooling is not yet supported. Volunteers? :)"
                )
            return _average(xp, x, pool)

        return compute

    return builder


def _avg_pool_grad(make: MakePool, label: str) -> Builder:
    """Builder: distributes each window's gradient equally to its elements."""

    def builder(c: OpKernelConstruction) -> Compute:
        xp, pool = c.xp, make(c, label)
        rank = len(pool.sizes) + 2
        first = "out_backprop" if rank == 4 else "tensor_in"

        def compute(orig_input_shape: Any, grad: Any) -> Any:
            if np.shape(orig_input_shape) != (rank,):
                raise errors.InvalidArgumentError(f"{first} must be 1-dimensional and {rank} elements")
            if grad.ndim != rank:
                raise errors.InvalidArgumentError(f"out_backprop must be {rank}-dimensional")
            shape = tuple(np.asarray(orig_input_shape).tolist())
            if min(shape) < 0:
                raise errors.InvalidArgumentError(f"Expected a non-negative size, got {min(shape)}")
            return _spread(xp, shape, grad, pool)

        return compute

    return builder


kernel("AvgPool", T=dtypes.FLOAT, cost=pool_cost)(_avg_pool(Pool2D, "AvgPoolingOp"))
kernel("AvgPool3D", T=_POOL_3D_TYPES, cost=pool_cost)(_avg_pool(Pool3D, "Pooling3DOp"))
kernel("AvgPoolGrad", T=dtypes.FLOAT, host_memory=("orig_input_shape",), cost=window_cost, scratch=_SPREAD_SCRATCH)(
    _avg_pool_grad(Pool2D, "AvgPoolingGradOp")
)
kernel("AvgPool3DGrad", T=_POOL_3D_TYPES, host_memory=("orig_input_shape",), cost=window_cost, scratch=_SPREAD_SCRATCH)(
    _avg_pool_grad(Pool3D, "AvgPooling3dGradOp")
)
