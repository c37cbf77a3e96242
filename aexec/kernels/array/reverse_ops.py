"""Kernels that reorder elements along axes: Reverse, ReverseSequence, Roll."""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.registration import INDEX
from aexec.kernels.common.strings import elements_of

_TYPES = (*dtypes.POD, dtypes.string)
_FULL = slice(None)
_BACKWARDS = slice(None, None, -1)


@kernel("Reverse", host_memory=("dims",), cost=0, T=_TYPES)
def reverse(c: OpKernelConstruction) -> Compute:
    def compute(x: Any, dims: Any) -> Any:
        if dims.ndim != 1:
            raise errors.InvalidArgumentError(f"'dims' must be 1-dimension, not {dims.ndim}")
        if dims.size != x.ndim:
            raise errors.InvalidArgumentError(
                "'dims' must have the same number of values as 'input' has dimensions. "
                f"'input' has {x.ndim}'dims' has {dims.size} values"
            )
        return x[(..., *[_BACKWARDS if turned else _FULL for turned in dims.tolist()])]

    return compute


@kernel("ReverseV2", host_memory=("axis",), cost=0, T=_TYPES, Tidx=INDEX)
def reverse_v2(c: OpKernelConstruction) -> Compute:
    def compute(x: Any, axis: Any) -> Any:
        if axis.ndim != 1:
            raise errors.InvalidArgumentError(f"'dims' must be 1-dimension, not {axis.ndim}")
        rank = x.ndim
        if not rank:
            return x
        index = [_FULL] * rank
        for i, dim in enumerate(axis[: rank + 1].tolist()):  # beyond these, one must be wrong or repeated
            if not -rank <= dim < rank:
                raise errors.InvalidArgumentError(f"'axis'[{i}] = {dim} is out of valid range [0, {rank - 1}")
            if index[dim] is _BACKWARDS:
                raise errors.InvalidArgumentError(f"axis {dim % rank} specified more than once.")
            index[dim] = _BACKWARDS
        return x[tuple(index)]

    return compute


@kernel("ReverseSequence", T=_TYPES, Tlen=INDEX, scratch=16.0)
def reverse_sequence(c: OpKernelConstruction) -> Compute:
    """Reverses the first `seq_lengths[row]` elements in each row of a batch; the others stay."""
    seq_dim, batch_dim = c.attr("seq_dim"), c.attr("batch_dim")
    xp = c.xp
    plain = (batch_dim, seq_dim) == (0, 1)

    def check(x: Any, lengths: Any) -> None:
        if lengths.ndim != 1:
            raise errors.InvalidArgumentError(f"seq_lengths must be 1-dim, not {lengths.ndim}")
        if batch_dim == seq_dim:
            raise errors.InvalidArgumentError(f"batch_dim == seq_dim == {seq_dim}")
        for name, dim in (("seq_dim", seq_dim), ("batch_dim", batch_dim)):
            if dim >= x.ndim:
                raise errors.InvalidArgumentError(f"{name} must be < input rank ( {dim} vs. {x.ndim})")
            if dim < 0:
                raise errors.InvalidArgumentError(f"Invalid {name} {dim}")
        if lengths.size != x.shape[batch_dim]:
            raise errors.InvalidArgumentError(
                f"Length of seq_lengths != input.dims({batch_dim}), ({lengths.size} vs. {x.shape[batch_dim]})"
            )
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= x.shape[seq_dim]:
            row = int(((lengths < 0) | (lengths > x.shape[seq_dim])).argmax())
            why = "< 0" if lengths[row] < 0 else f"> input.dims({seq_dim})"
            raise errors.InvalidArgumentError(f"seq_lens({row}) {why}")

    def compute(x: Any, lengths: Any) -> Any:
        check(x, lengths)
        if not x.size:
            return xp.empty(x.shape, x.dtype)
        rows = x if plain else xp.moveaxis(x, (batch_dim, seq_dim), (0, 1))
        batch, steps = rows.shape[:2]
        if batch and not xp.count_nonzero(lengths != lengths[0]):
            # One length for all, as in a layer that reads a sequence both ways.
            end = int(lengths[0])
            turned = xp.concatenate((rows[:, :end][:, ::-1], rows[:, end:]), axis=1)
            return turned if plain else xp.moveaxis(turned, (0, 1), (batch_dim, seq_dim))
        step = xp.arange(steps)
        mirrored = lengths[:, None] - 1 - step
        # For each output element, the number of its source row in [batch * steps, ...].
        source = xp.where(mirrored >= 0, mirrored, step) + xp.arange(batch)[:, None] * steps
        turned = rows.reshape(batch * steps, *rows.shape[2:]).take(source, axis=0)
        return turned if plain else xp.moveaxis(turned, (0, 1), (batch_dim, seq_dim))

    return compute


def _roll(c: OpKernelConstruction) -> Compute:
    concatenate = c.xp.concatenate

    def compute(x: Any, shift: Any, axis: Any) -> Any:
        rank = x.ndim
        if not rank:
            raise errors.InvalidArgumentError("input must be 1-D or higher")
        for name, value in (("shift", shift), ("axis", axis)):
            if value.ndim > 1:
                raise errors.InvalidArgumentError(
                    f"{name} must be a scalar or a 1-D vector. Found: {shape_text(value.shape)}"
                )
        if shift.shape != axis.shape:
            raise errors.InvalidArgumentError("shift and axis must have the same size")
        total = [0] * rank  # shifts along one axis add up
        for dim, amount in zip(elements_of(axis), elements_of(shift), strict=True):
            if not -rank <= dim < rank:
                raise errors.InvalidArgumentError(f"axis {dim + rank if dim < 0 else dim} is out of range")
            total[dim] += amount
        for dim, amount in enumerate(total):
            size = x.shape[dim]
            cut = -amount % size if size else 0
            if cut:
                lead = (_FULL,) * dim
                x = concatenate((x[(*lead, slice(cut, None))], x[(*lead, slice(cut))]), dim)
        return x

    return compute


# TensorFlow registers one kernel for each type of the axis.
for _taxis in INDEX:
    kernel("Roll", host_memory=("shift", "axis"), T=dtypes.ALL, Tshift=INDEX, Taxis=[_taxis])(_roll)
