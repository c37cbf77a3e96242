"""Resizing images [n, height, width, channels], and its gradients.

Results are float32 for images of all types, except with the nearest neighbour.
Next to read: `resampling.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import elements_asked_for, shape_text
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.allocation import allocator
from aexec.kernels.image import resampling
from aexec.kernels.image.resampling import Grid, Taps, picked

__all__ = ["output_shape", "resize_cost"]

_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_F32, _F32_BYTES = np.float32, 4
_SPARSE = ("scipy.sparse",)
# Images are resized in pieces of this size, whose intermediate arrays stay in the processor's cache.
_PIECE_BYTES = 1 << 17
# At most this many rows and columns of images have their positions kept from call to call.
_MOST_REMEMBERED = 1 << 14


def resize_cost(per_output: float) -> Callable[..., float]:
    """By the sizes of the images and of the output, which input 1 gives."""

    def cost(images: Any, size: Any, *_: Any) -> float:
        if images.ndim != 4 or size.shape != (2,):
            return 0.0
        inputs: int = images.size
        outputs: float = elements_asked_for(size) * images.shape[0] * images.shape[3]
        return inputs + per_output * outputs

    return cost


def _grid(c: OpKernelConstruction) -> Grid:
    """The node's grid.  Raises InvalidArgumentError for contradictory attrs."""
    align_corners, half_pixel_centers = c.attr("align_corners"), c.attrs.get("half_pixel_centers", False)
    if align_corners and half_pixel_centers and c.op != "ResizeNearestNeighborGrad":
        raise errors.InvalidArgumentError("If half_pixel_centers is True, align_corners must be False.")
    return Grid(align_corners, half_pixel_centers)


def _check_rank(x: Any, name: str) -> None:
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"{name} must be 4-dimensional{shape_text(x.shape)}")


def output_shape(images: Any, size: Any, name: str = "shape_t") -> tuple[int, int, int, int]:
    """Shape of resized images.  Raises InvalidArgumentError for inputs that are not images and a size."""
    if size.ndim != 1:
        raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{shape_text(size.shape)}")
    if size.size != 2:
        raise errors.InvalidArgumentError(f"{name} must have two elements{shape_text(size.shape)}")
    _check_rank(images, "input")
    height, width = size.tolist()
    if height <= 0 or width <= 0:
        raise errors.InvalidArgumentError("output dimensions must be positive")
    if not images.shape[1] or not images.shape[2]:
        raise errors.InvalidArgumentError("input image must be of non-zero size")
    if not images.shape[3]:
        raise errors.InvalidArgumentError("image must have at least one channel")
    return len(images), height, width, images.shape[3]


def _sparse_rows_first(xp: Any, x: Any, taps: Taps, axis: int) -> tuple[Any, Taps]:
    """(x, taps) without the rows that no tap uses, if most are unused."""
    if taps.index.size >= x.shape[axis]:
        return x, taps
    used, taps = taps.needed()
    return picked(x, xp.asarray(used), axis), taps


@kernel("ResizeBilinear", T=dtypes.REAL_NUMBER, host_memory=("size",), cost=resize_cost(8.0))
@kernel("ResizeBicubic", T=dtypes.REAL_NUMBER, host_memory=("size",), cost=resize_cost(20.0))
def interpolate(c: OpKernelConstruction) -> Compute:
    """Interpolation between two neighbours in each dimension, or by a cubic through four."""
    xp, grid, allocate = c.xp, _grid(c), allocator(c)
    linear = c.op == "ResizeBilinear"
    make_taps = Taps.linear if linear else Taps.cubic
    # TensorFlow's order, which affects rounding.
    first, second = (2, 1) if linear else (1, 2)

    def compute(images: Any, size: Any) -> Any:
        shape = output_shape(images, size)
        out = allocate(shape)  # refuses a shape that does not fit into memory
        if not out.size:
            return out
        taps = {axis: make_taps(grid, images.shape[axis], shape[axis]) for axis in (1, 2)}
        images, taps[second] = _sparse_rows_first(xp, images, taps[second], second)

        def resized(images: Any) -> Any:
            wide = 0 if images.dtype == _F32 else images.size
            announce_scratch(_F32_BYTES * (wide + images.size // images.shape[first] * shape[first]))
            x = taps[first].on(xp).blend(images.astype(_F32, copy=False), first)
            return taps[second].on(xp).blend(x, second)

        at_once = max(1, _PIECE_BYTES * len(images) // out.nbytes)
        if xp is not np or at_once >= len(images):
            return resized(images)

        def piece(number: int) -> None:
            some = slice(number * at_once, (number + 1) * at_once)
            out[some] = resized(images[some])

        in_pieces(-(-len(images) // at_once), piece)
        return out

    return compute


def _announce_taken(images: Any, axis: int, count: int) -> None:
    """Announce the result of `take`, `count` along an axis, and its copy of images that are not contiguous."""
    taken = images.size // max(1, images.shape[axis]) * count
    announce_scratch((taken + (0 if images.flags.c_contiguous else images.size)) * images.itemsize)


@kernel("ResizeNearestNeighbor", T=dtypes.REAL_NUMBER, host_memory=("size",), cost=resize_cost(2.0))
def nearest_neighbour(c: OpKernelConstruction) -> Compute:
    """Return the nearest pixel, or the one at the upper left."""
    xp, grid, allocate = c.xp, _grid(c), allocator(c)
    # Key: the last sizes; value: the old row and column of each new one, since a node's images mostly have one size.
    # Few, as their memory is not counted.
    known: tuple[Any, Any] = (None, None)
    # In this mode NumPy checks nothing and writes straight into `out`; CuPy never checks.
    unchecked = {"mode": "clip"} if xp is np else {}

    def compute(images: Any, size: Any) -> Any:
        nonlocal known
        shape = output_shape(images, size)
        out = allocate(shape)
        if not out.size:
            return out
        sizes = (*images.shape[1:3], *shape[1:3])
        seen, sources = known
        if seen != sizes:
            sources = [xp.asarray(grid.nearest(images.shape[axis], shape[axis])) for axis in (1, 2)]
            known = (sizes, sources) if max(sizes) <= _MOST_REMEMBERED else known
        rows, columns = sources
        if len(rows) < images.shape[1]:
            _announce_taken(images, 1, len(rows))
            images, rows = images.take(rows, 1), xp.arange(len(rows))
        _announce_taken(images, 2, len(columns))
        return images.take(columns, 2).take(rows, 1, out=out, **unchecked)

    return compute


@kernel("ResizeArea", T=dtypes.REAL_NUMBER, host_memory=("size",), cost=resize_cost(20.0), needs=_SPARSE, scratch=8)
def average_area(c: OpKernelConstruction) -> Compute:
    """Return the mean of the area that a new pixel covers."""
    grid, allocate = _grid(c), allocator(c)

    def compute(images: Any, size: Any) -> Any:
        shape = output_shape(images, size)
        empty = allocate(shape)  # refuses a shape that does not fit into memory
        if not empty.size:
            return empty
        rows, columns = (resampling.area_matrix(grid, images.shape[axis], shape[axis], allocate) for axis in (1, 2))
        out = resampling.through_matrices(images.astype(_F32, copy=False), rows, columns)
        out *= _F32(1) / (grid.scale(images.shape[1], shape[1]) * grid.scale(images.shape[2], shape[2]))
        return out

    return compute


# Gradients


def _sum_type(dtype: DType) -> Any:
    """The type of sums: integers wrap around at any width, narrow floats need more digits."""
    if dtype.is_integer:
        return np.dtype(np.int64)
    return np.promote_types(dtype.np, np.float32) if dtype is not dtypes.bfloat16 else np.dtype(np.float32)


def _spread(xp: Any, grads: Any, rows: Taps, columns: Taps, dtype: DType) -> Any:
    """Distributes the gradients of new pixels to the old ones that made them."""
    work = _sum_type(dtype)
    down, across = (taps.matrix(work).T.tocsr() for taps in (rows, columns))
    if xp is not np:  # dense: on a device calls cost more than products
        down, across = (xp.asarray(matrix.toarray()) for matrix in (down, across))
    spread = resampling.through_matrices(grads.astype(work, copy=False), down, across, xp)
    return spread.astype(dtype.np, copy=False)


def _check_gradients(grads: Any, original: Any) -> None:
    _check_rank(grads, "input_grad")
    _check_rank(original, "original_image")
    if not grads.shape[1] or not grads.shape[2]:
        raise errors.InvalidArgumentError("resized dimensions must be positive")
    if not original.shape[1] or not original.shape[2]:
        raise errors.InvalidArgumentError("original dimensions must be positive")


@kernel("ResizeBilinearGrad", T=_FLOATS, cost=30.0, needs=_SPARSE, scratch=16)
@kernel("ResizeBicubicGrad", T=(dtypes.float32, dtypes.float64), cost=60.0, needs=_SPARSE, scratch=16)
def interpolate_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradient with regard to the original image."""
    xp, grid, dtype, allocate = c.xp, _grid(c), c.attr("T"), allocator(c)
    make_taps = Taps.linear if c.op == "ResizeBilinearGrad" else Taps.cubic

    def compute(grads: Any, original: Any) -> Any:
        _check_gradients(grads, original)
        _, height, width, _ = original.shape
        out = allocate((len(grads), height, width, grads.shape[3]))  # refuses a shape that does not fit
        if not out.size:
            return out
        rows, columns = (make_taps(grid, original.shape[axis], grads.shape[axis]) for axis in (1, 2))
        return _spread(xp, grads, rows, columns, dtype)

    return compute


@kernel(
    "ResizeNearestNeighborGrad",
    T=dtypes.REAL_NUMBER,
    host_memory=("size",),
    cost=resize_cost(30.0),
    needs=_SPARSE,
    scratch=16,
)
def nearest_neighbour_grad(c: OpKernelConstruction) -> Compute:
    """Returns, for each pixel of an image of the given size, the sum of its gradients."""
    xp, grid, dtype, allocate = c.xp, _grid(c), c.attr("T"), allocator(c)

    def compute(grads: Any, size: Any) -> Any:
        _check_rank(grads, "input")
        if size.ndim != 1:
            raise errors.InvalidArgumentError(f"shape_t must be 1-dimensional{shape_text(size.shape)}")
        if size.size != 2:
            raise errors.InvalidArgumentError(f"shape_t must have two elements{shape_text(size.shape)}")
        sizes = size.tolist()
        if min(sizes) <= 0:
            raise errors.InvalidArgumentError("shape_t's elements must be positive")
        out = allocate((len(grads), *sizes, grads.shape[3]))  # refuses a shape that does not fit
        if not grads.size:
            out.fill(0)
            return out
        rows, columns = (
            Taps.single(grid.nearest(size, new_size), size)
            for size, new_size in zip(sizes, grads.shape[1:3], strict=True)
        )
        return _spread(xp, grads, rows, columns, dtype)

    return compute


# Scale and translate


def _pair(values: Any) -> list[float]:
    if values.ndim != 1 or values.size != 2:
        raise errors.InvalidArgumentError(f"t must have two elements{shape_text(values.shape)}")
    return list(values)


def _placement(c: OpKernelConstruction) -> Callable[..., tuple[Any, Any]]:
    """A function `(size, new size, scale, translation) -> (rows, columns)`; arguments are pairs, results matrices."""
    resampler, antialias = resampling.span_kernel(c.attr("kernel_type")), c.attr("antialias")
    allocate = allocator(c)

    def matrices(sizes: Any, new_sizes: Any, scale: Any, translation: Any) -> tuple[Any, Any]:
        scales, translations = _pair(scale), _pair(translation)
        if not all(value > 0 for value in scales):
            raise errors.InvalidArgumentError("Scale must be greater than zero.")
        rows, columns = (
            resampling.span_matrix(resampler, *values, allocate, antialias=antialias)
            for values in zip(sizes, new_sizes, scales, translations, strict=True)
        )
        return rows, columns

    return matrices


@kernel(
    "ScaleAndTranslate",
    T=dtypes.REAL_NUMBER,
    host_memory=("size", "scale", "translation"),
    cost=resize_cost(40.0),
    needs=_SPARSE,
)
def scale_and_translate(c: OpKernelConstruction) -> Compute:
    """Return images scaled and moved, cropped to a window of the given size."""
    matrices, allocate = _placement(c), allocator(c)

    def compute(images: Any, size: Any, scale: Any, translation: Any) -> Any:
        shape = output_shape(images, size, "output_shape_t")
        empty = allocate(shape)  # refuses a shape that does not fit into memory
        if not empty.size:
            return empty
        rows, columns = matrices(images.shape[1:3], shape[1:3], scale, translation)
        if images.dtype != _F32:
            announce_scratch(4 * images.size)
        return resampling.through_matrices(images.astype(_F32, copy=False), rows, columns)

    return compute


@kernel("ScaleAndTranslateGrad", T=(dtypes.float32,), host_memory=("scale", "translation"), cost=60.0, needs=_SPARSE)
def scale_and_translate_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradient with regard to the original image."""
    matrices, allocate = _placement(c), allocator(c)

    def compute(grads: Any, original: Any, scale: Any, translation: Any) -> Any:
        _check_rank(grads, "input_grad")
        _check_rank(original, "original_image")
        if not original.shape[1] or not original.shape[2]:
            raise errors.InvalidArgumentError("original dimensions must be positive")
        allocate((len(grads), *original.shape[1:3], grads.shape[3]))  # refuses a shape that does not fit
        rows, columns = matrices(original.shape[1:3], grads.shape[1:3], scale, translation)
        return resampling.through_matrices(grads, rows.T.tocsr(), columns.T.tocsr())

    return compute
