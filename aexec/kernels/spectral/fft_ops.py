"""Fourier transforms over the last one, two or three dimensions, or over chosen axes.

SciPy or the array module's replacement computes them, complex64 in complex64. A real transform takes the lengths from
an input: a longer dimension is cut, a shorter one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import scipy_of

__all__: list[str] = []

_COST = 10.0
# Bytes per element: factors, or a contiguous row.
_SCRATCH = 16
# Bytes per element of the longest axis: its roots of unity, and the line being transformed.
_PLAN = 32
_SCIPY = ("scipy.fft",)

# The ops' suffixes for the number of dimensions: none for 1, 2D, 3D.
_RANKS = {"": 1, "2D": 2, "3D": 3}
_COMPLEX = ("FFT", "IFFT")
_REAL = ("RFFT", "IRFFT")


def _scipys(xp: Any, op: str) -> Callable[..., Any]:
    transform: Callable[..., Any] = getattr(scipy_of(xp, "fft"), f"{op.lower()}n")
    return transform


def _check_rank(x: Any, rank: int) -> None:
    if x.ndim < rank:
        raise errors.InvalidArgumentError(f"Input must have rank of at least {rank} but got: {shape_text(x.shape)}")


def _complex_transform(op: str, rank: int) -> Builder:
    axes = tuple(range(-rank, 0))

    def build(c: OpKernelConstruction) -> Compute:
        xp, transform = c.xp, _scipys(c.xp, op)

        def compute(x: Any) -> Any:
            _check_rank(x, rank)
            return transform(x, axes=axes) if x.size else xp.zeros(x.shape, x.dtype)

        return compute

    return build


for _suffix, _rank in _RANKS.items():
    for _op in _COMPLEX:
        kernel(f"{_op}{_suffix}", f"Batch{_op}{_suffix}", cost=_COST, needs=_SCIPY, scratch=_SCRATCH)(
            _complex_transform(_op, _rank)
        )


def _check_real_types(c: OpKernelConstruction, *, forward: bool) -> None:
    given, made = c.input_types[0].base, c.output_types[0]
    real, spectrum = (given, made) if forward else (made, given)
    if spectrum.size != 2 * real.size:
        direction = "forward" if forward else "backward"
        raise errors.InvalidArgumentError(f"Wrong types for {direction} real FFT: in={given.enum} out={made.enum}")


def _check_lengths(x: Any, fft_length: Any, axes: range, *, forward: bool) -> list[int]:
    """The lengths of the real side.  Raises InvalidArgumentError if the input is shorter than they need."""
    _check_rank(x, len(axes))
    if fft_length.shape != (len(axes),):
        raise errors.InvalidArgumentError(f"fft_length must have shape [{len(axes)}]")
    lengths: list[int] = fft_length.tolist()
    for i, length in enumerate(lengths):
        if length < 0:
            raise errors.InvalidArgumentError(f"fft_length[{i}] must >= 0, but got: {length}")
        needed = length // 2 + 1 if not forward and i == len(axes) - 1 else length
        axis = x.ndim + axes[i]
        if 0 < x.shape[axis] < needed:
            raise errors.InvalidArgumentError(
                f"Input dimension {axis} must have length of at least {needed} but got: {x.shape[axis]}"
            )
    return lengths


def _real_transform(op: str, rank: int) -> Builder:
    axes, forward = range(-rank, 0), op == "RFFT"

    def build(c: OpKernelConstruction) -> Compute:
        _check_real_types(c, forward=forward)
        xp, transform, allocate = c.xp, _scipys(c.xp, op), allocator(c)

        def compute(x: Any, fft_length: Any) -> Any:
            lengths = _check_lengths(x, fft_length, axes, forward=forward)
            if x.size and all(lengths):
                return transform(x, s=lengths, axes=axes)
            if forward and lengths[-1]:
                lengths[-1] = lengths[-1] // 2 + 1
            return allocate((*x.shape[:-rank], *lengths), xp.zeros)

        return compute

    return build


for _suffix, _rank in _RANKS.items():
    for _op in _REAL:
        kernel(f"{_op}{_suffix}", cost=_COST, needs=_SCIPY, scratch=_SCRATCH)(_real_transform(_op, _rank))


def _check_axes(x: Any, fft_length: Any, axes: Any) -> tuple[list[int], list[int]]:
    """Return (lengths, non-negative axes) of a transform over chosen axes."""
    if fft_length.ndim != 1 or axes.shape != fft_length.shape:
        raise errors.InvalidArgumentError(
            "fft_length and axes must be vectors of one size, got shapes "
            f"{shape_text(fft_length.shape)} and {shape_text(axes.shape)}"
        )
    if axes.size > x.ndim:
        raise errors.InvalidArgumentError(f"There are {axes.size} axes, and the input has rank {x.ndim}")
    chosen = [axis + x.ndim if axis < 0 else axis for axis in axes.tolist()]
    if len(set(chosen)) != len(chosen) or not all(0 <= axis < x.ndim for axis in chosen):
        raise errors.InvalidArgumentError(
            f"axes must be different dimensions of the input of rank {x.ndim}, got {axes.tolist()}"
        )
    lengths: list[int] = fft_length.tolist()
    for i, length in enumerate(lengths):
        if length < 0:
            raise errors.InvalidArgumentError(f"fft_length[{i}] must >= 0, but got: {length}")
    return lengths, chosen


def _elements_over_axes(x: Any, fft_length: Any, axes: Any) -> float:
    dims = list(x.shape)
    if axes.ndim != 1 or axes.size > x.ndim or fft_length.shape != axes.shape:
        return 0.0  # the kernel refuses it
    for axis, length in zip(axes.tolist(), fft_length.tolist(), strict=True):
        dims[axis] = length
    return float(prod(dims))


def _scratch_over_axes(x: Any, fft_length: Any, axes: Any) -> float:
    if axes.ndim != 1 or axes.size > x.ndim or fft_length.shape != axes.shape:
        return 0.0  # the kernel refuses it
    longest = max(fft_length.tolist(), default=0)
    return _SCRATCH * max(float(x.size), _elements_over_axes(x, fft_length, axes)) + _PLAN * longest


@kernel(
    "FFTND",
    "IFFTND",
    "RFFTND",
    "IRFFTND",
    cost=PerOutput(_COST, _elements_over_axes),
    needs=_SCIPY,
    scratch=_scratch_over_axes,
)
def transform_axes(c: OpKernelConstruction) -> Compute:
    """A transform over `axes`, each cut or padded with zeros to its length in `fft_length`."""
    xp, transform = c.xp, _scipys(c.xp, c.op.removesuffix("ND"))
    halved = c.op == "RFFTND"
    if c.op in ("RFFTND", "IRFFTND"):
        _check_real_types(c, forward=halved)
    dtype, allocate = c.output_types[0].np, allocator(c)

    def compute(x: Any, fft_length: Any, axes: Any) -> Any:
        lengths, chosen = _check_axes(x, fft_length, axes)
        if not chosen:
            return x.astype(dtype)
        shape = list(x.shape)
        for axis, length in zip(chosen, lengths, strict=True):
            shape[axis] = length
        if halved and lengths[-1]:
            shape[chosen[-1]] = lengths[-1] // 2 + 1
        allocate(shape)  # refuses a shape that does not fit into memory
        if not x.size or not all(lengths):
            return xp.zeros(shape, dtype)
        return transform(x, s=lengths, axes=chosen)

    return compute
