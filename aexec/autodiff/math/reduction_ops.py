"""Gradients of sums, products, means, extremes and running sums."""

from __future__ import annotations

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import conjugated, constant_value, like_input, reshaped_like, shape_of
from aexec.client.building import constant
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Reduced = tuple[Tensor, None]

no_gradient("All", "Any", "ArgMax", "ArgMin")


def _static_axes(op: ForwardOp) -> list[int] | None:
    """The reduced axes, if they and the rank are known."""
    rank, axes = op.inputs[0].static_shape.rank, constant_value(op.inputs[1])
    if rank is None or axes is None:
        return None
    return sorted({int(axis) % rank for axis in np.atleast_1d(axes)}) if rank else []


def _kept_shape(op: ForwardOp) -> Tensor:
    """The shape of the input with a 1 for each reduced axis."""
    x = op.inputs[0]
    axes = _static_axes(op)
    if axes is not None and x.static_shape.is_fully_defined:
        return constant(np.array([1 if i in axes else n for i, n in enumerate(x.static_shape)], np.int32))
    shape, rank = ops.shape(x), ops.rank(x)
    indices = ops.floor_mod(ops.cast(op.inputs[1], DstT="int32") + rank, rank)
    indices = ops.reshape(indices, [-1])
    ones = ops.fill(ops.shape(indices), 1)
    return ops.tensor_scatter_update(shape, ops.expand_dims(indices, 1), ones)


def _kept(op: ForwardOp, tensor: Tensor) -> Tensor:
    """A tensor of the output's shape with its reduced axes as 1."""
    if op.get_attr("keep_dims"):
        return tensor
    axes = _static_axes(op)
    if axes is not None and len(axes) == op.inputs[0].static_shape.rank:
        return ops.reshape(tensor, [1] * len(axes))
    return ops.reshape(tensor, _kept_shape(op))


def _spread(op: ForwardOp, tensor: Tensor) -> Tensor:
    """A tensor of the output's shape, repeated along the reduced axes."""
    return ops.broadcast_to(_kept(op, tensor), shape_of(op.inputs[0]))


@gradient("Sum")
def _sum(op: ForwardOp, grad: Tensor) -> Reduced:
    return _spread(op, grad), None


@gradient("Mean")
def _mean(op: ForwardOp, grad: Tensor) -> Reduced:
    x, y = op.inputs[0], op.outputs[0]
    if x.static_shape.num_elements is not None and y.static_shape.num_elements:
        return _spread(op, grad / float(x.static_shape.num_elements // y.static_shape.num_elements)), None
    count = ops.floor_div(ops.size(x), ops.maximum(ops.size(y), 1))
    return _spread(op, grad / ops.cast(count, DstT=grad.dtype.base)), None


@gradient("Prod")
def _prod(op: ForwardOp, grad: Tensor) -> Reduced:
    """The gradient of each factor has the product of the others, so that factors of zero need no division."""
    x = op.inputs[0]
    shape, rank = shape_of(x), ops.rank(x)
    indices = ops.reshape(ops.floor_mod(ops.cast(op.inputs[1], DstT="int32") + rank, rank), [-1])
    reduced, _ = ops.unique(indices)
    others, _ = ops.list_diff(ops.range(0, rank, 1), reduced)
    order = ops.concat_v2([reduced, others], 0)
    count = ops.prod(ops.gather_v2(shape, reduced, 0), [0])
    rows = ops.pack([count, ops.prod(ops.gather_v2(shape, others, 0), [0])])
    flat = ops.reshape(ops.transpose(x, order), rows)
    before = ops.cumprod(flat, 0, exclusive=True)
    after = ops.cumprod(flat, 0, exclusive=True, reverse=True)
    product = before * after
    permuted = ops.gather_v2(shape, order, 0)
    others_product = ops.transpose(ops.reshape(conjugated(product), permuted), ops.invert_permutation(order))
    return reshaped_like(_spread(op, grad) * others_product, x), None


@gradient("Max", "Min")
def _extreme(op: ForwardOp, grad: Tensor) -> Reduced:
    """The gradient is shared equally among equal extremes."""
    x = op.inputs[0]
    chosen = like_input(ops.equal(_kept(op, op.outputs[0]), x), x)
    count = ops.sum(chosen, op.inputs[1], keep_dims=True)
    return chosen / count * _kept(op, grad), None


@gradient("EuclideanNorm")
def _euclidean_norm(op: ForwardOp, grad: Tensor) -> Reduced:
    return ops.div_no_nan(op.inputs[0], _kept(op, op.outputs[0])) * _kept(op, grad), None


@gradient("L2Loss")
def _l2_loss(op: ForwardOp, grad: Tensor) -> Tensor:
    return op.inputs[0] * grad


# Running sums and products


@gradient("Cumsum")
def _cumsum(op: ForwardOp, grad: Tensor) -> Reduced:
    return _running(op, "Cumsum", grad), None


def _running(op: ForwardOp, kind: str, x: Tensor) -> Tensor:
    """Add the running reduction `kind` of x, from the other end than the forward op's."""
    attrs = {"exclusive": op.get_attr("exclusive"), "reverse": not op.get_attr("reverse")}
    return create_node(kind, {"x": x, "axis": op.inputs[1]}, attrs).output(0)


@gradient("Cumprod")
def _cumprod(op: ForwardOp, grad: Tensor) -> Reduced:
    """A factor's gradient is the products' gradient times the products, divided by the factor.

    The first zero cannot be divided by: its gradient has the products without it.  All later products are zero.
    """
    x, product = conjugated(op.inputs[0]), conjugated(op.outputs[0])
    ones, is_zero = ops.ones_like(x), ops.equal(x, ops.zeros_like(x))
    attrs = {"exclusive": True, "reverse": op.get_attr("reverse")}
    zeros_before = ops.cumsum(ops.cast(is_zero, DstT="int32"), op.inputs[1], **attrs)
    is_first = ops.logical_and(is_zero, ops.equal(zeros_before, 0))
    without = ops.cumprod(ops.select_v2(is_first, ones, x), op.inputs[1], **op.attrs("exclusive", "reverse"))
    of_first = _running(op, "Cumsum", without * grad)
    of_others = _running(op, "Cumsum", product * grad) / ops.select_v2(is_zero, ones, x)
    return ops.select_v2(is_first, of_first, of_others), None


@gradient("CumulativeLogsumexp")
def _cumulative_logsumexp(op: ForwardOp, grad: Tensor) -> Reduced:
    x, y = op.inputs[0], op.outputs[0]
    lowest = constant(x.dtype.min, x.dtype.base)
    zeros = ops.zeros_like(grad)
    parts = []
    # In logarithms throughout, with positive and negative parts apart, so that nothing overflows.
    for sign in (1.0, -1.0):
        part = ops.select_v2(ops.greater(sign * grad, zeros), ops.log(ops.abs(grad)), lowest * ops.ones_like(grad))
        parts.append(ops.exp(_running(op, "CumulativeLogsumexp", part - y) + x))
    return parts[0] - parts[1], None
