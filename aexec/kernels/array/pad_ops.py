"""Kernels that put elements around a tensor: Pad with a constant, MirrorPad with its own elements."""

from __future__ import annotations

import math
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator, explain_with
from aexec.kernels.common.registration import INDEX

_PAD_TYPES = (*dtypes.POD, dtypes.string, dtypes.qint8, dtypes.quint8, dtypes.qint32)

Pairs = list[list[int]]

# Up to this many elements, making an array of zeros is faster than writing its borders one by one.
_ZEROED_BELOW = 16_384


def _pad_cost(x: Any, paddings: Any, *_: Any) -> Any:
    if paddings.shape != (x.ndim, 2):
        return 0.0  # the kernel refuses it
    added = math.prod([n + sum(pair) for n, pair in zip(x.shape, paddings.tolist(), strict=True)])
    return 0.3 * (x.size + added)


def _pairs(x: Any, paddings: Any, separator: str = " ") -> Pairs:
    """Return (before, after) for each dimension.

    Raises:
        InvalidArgumentError: paddings is not a matrix with two columns and a row for each dimension.
    """
    if paddings.ndim != 2 or paddings.shape[1] != 2:
        raise errors.InvalidArgumentError(f"paddings must be a matrix with 2 columns: {shape_text(paddings.shape)}")
    if paddings.shape[0] != x.ndim:
        raise errors.InvalidArgumentError(
            "The first dimension of paddings must be the rank of inputs"
            f"{shape_text(paddings.shape)}{separator}{shape_text(x.shape)}"
        )
    pairs: Pairs = paddings.tolist()
    return pairs


@kernel("Pad", host_memory=("paddings",), cost=_pad_cost, T=_PAD_TYPES, Tpaddings=INDEX)
@kernel("PadV2", host_memory=("paddings", "constant_values"), cost=_pad_cost, T=_PAD_TYPES, Tpaddings=INDEX)
def pad(c: OpKernelConstruction) -> Compute:
    allocate, zeros = allocator(c), c.xp.zeros
    dtype = c.attr("T")
    zero: Any = b"" if dtype is dtypes.string else None
    # Key: shapes of the input and the paddings, and the paddings' bytes; value: the output's shape, the input's
    # position in it, the borders.
    known: tuple[Any, Any] = (None, None)

    def layout_of(x: Any, paddings: Any) -> Any:
        pairs = _pairs(x, paddings)
        for before, after in pairs:
            if before < 0 or after < 0:
                raise errors.InvalidArgumentError(f"Paddings must be non-negative: {before} {after}")
        shape = tuple([size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)])
        place = tuple([slice(pair[0], pair[0] + size) for size, pair in zip(x.shape, pairs, strict=True)])
        around = [
            (*[slice(None)] * axis, part)
            for axis, (start, size) in enumerate(zip(pairs, shape, strict=True))
            for part in (slice(0, start[0]), slice(size - start[1], size))
            if part.start < part.stop
        ]
        return shape, place, around

    def padded(x: Any, paddings: Any, constant: Any) -> Any:
        nonlocal known
        wanted = (x.shape, paddings.shape, paddings.tobytes())
        seen, layout = known
        if seen != wanted:
            layout = layout_of(x, paddings)
            known = (wanted, layout)
        shape, place, around = layout
        if shape == x.shape:
            return x
        if constant is None and x.size < _ZEROED_BELOW:
            out = allocate(shape, zeros)
        else:
            out = allocate(shape)
            for border in around:
                out[border] = 0 if constant is None else constant
        out[place] = x
        return out

    def with_constant(x: Any, paddings: Any, constant_values: Any) -> Any:
        if constant_values.ndim:
            raise errors.InvalidArgumentError(
                f"constant_values must be a scalar. Found: {shape_text(constant_values.shape)}"
            )
        return padded(x, paddings, constant_values[()])

    if c.op == "PadV2":
        return with_constant
    return lambda x, paddings: padded(x, paddings, zero)


def _edge_offset(c: OpKernelConstruction) -> int:
    """The distance of the mirror from the edge: 1 for REFLECT, which does not repeat the border, 0 for SYMMETRIC."""
    return 1 if c.attr("mode") == b"REFLECT" else 0


@kernel("MirrorPad", host_memory=("paddings",), cost=_pad_cost, T=_PAD_TYPES, Tpaddings=INDEX)
def mirror_pad(c: OpKernelConstruction) -> Compute:
    offset = _edge_offset(c)
    allocate = allocator(c)

    def check(x: Any, paddings: Any) -> None:
        for size, (before, after) in zip(x.shape, _pairs(x, paddings, ", "), strict=True):
            if before < 0 or after < 0:
                raise errors.InvalidArgumentError(f"paddings must be non-negative: {before} {after}")
            if offset and not (before < size and after < size):
                raise errors.InvalidArgumentError(
                    f"paddings must be less than the dimension size: {before}, {after} not less than {size}"
                )
            if not (before <= size and after <= size):
                raise errors.InvalidArgumentError(
                    f"paddings must be no greater than the dimension size: {before}, {after} greater than {size}"
                )

    def compute(x: Any, paddings: Any) -> Any:
        check(x, paddings)
        pairs: Pairs = paddings.tolist()
        if not any(map(any, pairs)):
            return x
        out = allocate(tuple([size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)]))
        inside = [slice(before, before + size) for (before, _), size in zip(pairs, x.shape, strict=True)]
        out[tuple(inside)] = x
        # Axis by axis, mirror the elements: the full output along earlier axes, the input along later ones.
        every = slice(None)
        for axis, (before, after) in enumerate(pairs):
            lead, rest, end = [every] * axis, inside[axis + 1 :], inside[axis].stop
            backwards = (*lead, slice(None, None, -1))
            if before:
                source = slice(before + offset, 2 * before + offset)
                out[(*lead, slice(0, before), *rest)] = out[(*lead, source, *rest)][backwards]
            if after:
                source = slice(end - offset - after, end - offset)
                out[(*lead, slice(end, None), *rest)] = out[(*lead, source, *rest)][backwards]
        return out

    c.explain = explain_with(check)
    return compute


@kernel(
    "MirrorPadGrad",
    host_memory=("paddings",),
    T=dtypes.NUMBER,
    Tpaddings=INDEX,
    scratch=lambda x, paddings: x.nbytes,  # the gradient of the dimensions before
)
def mirror_pad_grad(c: OpKernelConstruction) -> Compute:
    """Adds the padding's gradient to the elements that MirrorPad mirrored, dimension by dimension."""
    offset = _edge_offset(c)

    def check(x: Any, paddings: Any) -> None:
        for size, (before, after) in zip(x.shape, _pairs(x, paddings), strict=True):
            if before < 0 or after < 0:
                raise errors.InvalidArgumentError(f"Paddings must be non-negative: {before}, {after}")
            kept = size - before - after
            if kept <= 0:
                raise errors.InvalidArgumentError(
                    "Total paddings must be less than the input dimension size: "
                    f"{before + after} was not less than {size}"
                )
            if offset and not (before < kept and after < kept):
                raise errors.InvalidArgumentError(
                    f"paddings must be less than the output dimension size: {before}, {after} not less than {kept}"
                )
            if not (before <= kept and after <= kept):
                raise errors.InvalidArgumentError(
                    f"paddings must be no greater than the output dimension size: {before}, {after} greater than {kept}"
                )

    def compute(x: Any, paddings: Any) -> Any:
        check(x, paddings)
        for axis, (before, after) in enumerate(paddings.tolist()):
            if before or after:
                lead = (slice(None),) * axis
                size = x.shape[axis]
                kept = size - before - after
                backwards = (*lead, slice(None, None, -1))
                core = x[(*lead, slice(before, before + kept))].copy()
                if before:
                    core[(*lead, slice(offset, offset + before))] += x[(*lead, slice(0, before))][backwards]
                if after:
                    core[(*lead, slice(kept - offset - after, kept - offset))] += x[(*lead, slice(size - after, size))][
                        backwards
                    ]
                x = core
        return x

    c.explain = explain_with(check)
    return compute
