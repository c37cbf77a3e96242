"""Gradients of ops that keep every element, elsewhere or in another shape, and of ops that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import constant_value, like_input, reshaped_like, shape_of, size_along, summed_to
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

First = tuple[Tensor, None]

no_gradient(
    *"BroadcastArgs BroadcastGradientArgs ConcatOffset Const EditDistance Empty Fingerprint GuaranteeConst".split(),
    *"HostConst ImmutableConst InvertPermutation ListDiff OneHot OnesLike Placeholder PlaceholderV2 Rank Shape".split(),
    *"ShapeN Size StopGradient Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 UnravelIndex Where".split(),
    "ZerosLike",
)


# Identities


@gradient("Identity", "RefIdentity", "Snapshot", "Copy", "CopyHost", "DeepCopy", "PlaceholderWithDefault", rows=True)
def _identity(op: ForwardOp, grad: Any) -> Any:
    return grad


@gradient("IdentityN", rows=True)
def _identity_n(op: ForwardOp, *grads: Any) -> tuple[Any, ...]:
    return grads


@gradient("EnsureShape", "DebugGradientIdentity")
def _unchanged(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad


@gradient("CheckNumerics")
def _check_numerics(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.check_numerics(grad, message="Not a number (NaN) or infinity (Inf) values detected in gradient.")


@gradient("CheckNumericsV2")
def _check_numerics_v2(op: ForwardOp, grad: Tensor) -> Tensor:
    message = "Not a number (NaN) or infinity (Inf) values detected in gradient."
    return ops.check_numerics_v2(grad, message=message)


@gradient("PreventGradient")
def _prevented(op: ForwardOp, grad: Tensor) -> None:
    raise errors.InvalidValueError(
        f"Gradient explicitly disabled at node '{op.name}'. Reason: {op.get_attr('message')}", node=op.name, op=op.type
    )


# Shapes


@gradient("Reshape", "ExpandDims")
def _reshape(op: ForwardOp, grad: Tensor) -> First:
    return reshaped_like(grad, op.inputs[0]), None


@gradient("Squeeze")
def _squeeze(op: ForwardOp, grad: Tensor) -> Tensor:
    return reshaped_like(grad, op.inputs[0])


@gradient("BroadcastTo")
def _broadcast_to(op: ForwardOp, grad: Tensor) -> First:
    return summed_to(grad, op.inputs[0]), None


@gradient("Fill")
def _fill(op: ForwardOp, grad: Tensor) -> tuple[None, Tensor]:
    return None, ops.sum(grad, ops.range(0, ops.rank(grad), 1))


@gradient("Tile")
def _tile(op: ForwardOp, grad: Tensor) -> First:
    """Split each axis into the repetitions, which are summed, and the size."""
    x, multiples = op.inputs
    shape = shape_of(x)
    split = ops.reshape(ops.transpose(ops.pack([like_input(multiples, shape), shape]), [1, 0]), [-1])
    axes = ops.range(0, ops.size(split), 2)
    return reshaped_like(ops.sum(ops.reshape(grad, split), axes), x), None


@gradient("Transpose")
def _transpose(op: ForwardOp, grad: Tensor) -> First:
    return ops.transpose(grad, _inverse(op.inputs[1])), None


@gradient("ConjugateTranspose")
def _conjugate_transpose(op: ForwardOp, grad: Tensor) -> First:
    return ops.conjugate_transpose(grad, _inverse(op.inputs[1])), None


def _inverse(permutation: Tensor) -> Any:
    known = constant_value(permutation)
    return ops.invert_permutation(permutation) if known is None else np.argsort(known).astype(known.dtype)


# Order


@gradient("Reverse", "ReverseV2")
def _reverse(op: ForwardOp, grad: Tensor) -> First:
    again = ops.reverse if op.type == "Reverse" else ops.reverse_v2
    return again(grad, op.inputs[1]), None


@gradient("ReverseSequence")
def _reverse_sequence(op: ForwardOp, grad: Tensor) -> First:
    return ops.reverse_sequence(grad, op.inputs[1], **op.attrs("seq_dim", "batch_dim")), None


@gradient("Roll")
def _roll(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, None]:
    _, shift, axis = op.inputs
    return ops.roll(grad, -shift, axis), None, None


# Joining and splitting


@gradient("Pack")
def _pack(op: ForwardOp, grad: Tensor) -> list[Tensor]:
    return ops.unpack(grad, num=len(op.inputs), axis=op.get_attr("axis"))


@gradient("ParallelConcat")
def _parallel_concat(op: ForwardOp, grad: Tensor) -> list[Tensor]:
    return ops.split(0, grad, num_split=len(op.inputs))


@gradient("Unpack")
def _unpack(op: ForwardOp, *grads: Tensor) -> Tensor:
    return ops.pack(list(grads), axis=op.get_attr("axis"))


@gradient("Split")
def _split(op: ForwardOp, *grads: Tensor) -> tuple[None, Tensor]:
    return None, ops.concat_v2(list(grads), op.inputs[0])


@gradient("SplitV")
def _split_v(op: ForwardOp, *grads: Tensor) -> tuple[Tensor, None, None]:
    return ops.concat_v2(list(grads), op.inputs[2]), None, None


@gradient("ConcatV2", rows=True)
def _concat_v2(op: ForwardOp, grad: Any) -> list[Any]:
    return [*_parts(grad, list(op.inputs[:-1]), op.inputs[-1]), None]


@gradient("Concat", rows=True)
def _concat(op: ForwardOp, grad: Any) -> list[Any]:
    return [None, *_parts(grad, list(op.inputs[1:]), op.inputs[0])]


def _parts(grad: Any, values: list[Tensor], axis: Tensor) -> list[Any]:
    """The parts of a gradient that belong to the joined tensors."""
    if isinstance(grad, IndexedSlices):
        return _parts_of_rows(grad, values, axis)
    if len(values) == 1:
        return [grad]
    rank = values[0].static_shape.rank
    known = constant_value(axis)
    if known is not None and rank is not None:
        sizes = [size_along(value, int(known) % rank) for value in values]
        if all(isinstance(size, int) for size in sizes):
            return ops.split_v(grad, np.array(sizes, np.int32), int(known), num_split=len(values))
    shapes = ops.shape_n(values)
    axis = ops.floor_mod(like_input(axis, shapes[0]), ops.rank(values[0]))
    offsets = ops.concat_offset(axis, shapes)
    return [ops.slice(grad, offset, shape) for offset, shape in zip(offsets, shapes, strict=True)]


def _parts_of_rows(grad: IndexedSlices[Tensor], values: list[Tensor], axis: Tensor) -> list[Any]:
    """For rows of the joined tensor: each part gets the rows that lie in it."""
    known = constant_value(axis)
    if known is None or (
        int(known) != 0 and (values[0].static_shape.rank is None or int(known) % values[0].static_shape.rank)
    ):
        raise errors.UnsupportedError(
            f"the gradient of a concatenation along '{axis.name}' arrived as rows; these can only be cut along axis 0"
        )
    parts, start = [], ops.zeros_like(grad.indices[0])
    for value in values:
        size = ops.cast(ops.shape(value)[0], DstT=grad.indices.dtype.base)
        inside = ops.logical_and(ops.greater_equal(grad.indices, start), ops.less(grad.indices, start + size))
        chosen = ops.reshape(ops.where(inside), [-1])
        rows = ops.gather_v2(grad.values, chosen, 0)
        parts.append(IndexedSlices(rows, ops.gather_v2(grad.indices, chosen, 0) - start, ops.shape(value)))
        start = start + size
    return parts


# Borders


@gradient("Pad")
def _pad(op: ForwardOp, grad: Tensor) -> First:
    return _without_borders(op, grad), None


@gradient("PadV2")
def _pad_v2(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, Tensor]:
    inner = _without_borders(op, grad)
    axes = ops.range(0, ops.rank(grad), 1)
    # The rest of the gradient belongs to the padding.
    return inner, None, ops.sum(grad, axes) - ops.sum(inner, axes)


def _without_borders(op: ForwardOp, grad: Tensor) -> Tensor:
    x, paddings = op.inputs[:2]
    before = ops.reshape(ops.slice(paddings, [0, 0], [-1, 1]), [-1])
    return ops.slice(grad, before, like_input(shape_of(x), before))


@gradient("MirrorPad")
def _mirror_pad(op: ForwardOp, grad: Tensor) -> First:
    return ops.mirror_pad_grad(grad, op.inputs[1], mode=op.get_attr("mode")), None


@gradient("MirrorPadGrad")
def _mirror_pad_grad(op: ForwardOp, grad: Tensor) -> First:
    return ops.mirror_pad(grad, op.inputs[1], mode=op.get_attr("mode")), None
