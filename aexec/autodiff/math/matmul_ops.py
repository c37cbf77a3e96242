"""Gradients of matrix products."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.math.einsum import einsum_gradients
from aexec.autodiff.shapes import conjugated, like_input, shape_of
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node


def _factors(transpose_a: bool, transpose_b: bool) -> tuple[tuple[str, bool, bool], ...]:
    """How the gradient of each factor of a product is a product: its two factors, and whether each is transposed.

    `g` is the gradient, `a` and `b` are the factors: for `a @ b` the first is `g @ b^T`, the second `a^T @ g`.
    """
    if not transpose_a and not transpose_b:
        return ("gb", False, True), ("ag", True, False)
    if not transpose_a:
        return ("gb", False, False), ("ga", True, False)
    if not transpose_b:
        return ("bg", False, True), ("ag", False, False)
    return ("bg", True, True), ("ga", True, True)


@gradient("MatMul")
def _mat_mul(op: ForwardOp, grad: Tensor) -> tuple[Tensor, ...]:
    values = {"a": conjugated(op.inputs[0]), "b": conjugated(op.inputs[1]), "g": grad}
    return tuple(
        ops.mat_mul(values[names[0]], values[names[1]], transpose_a=left, transpose_b=right)
        for names, left, right in _factors(op.get_attr("transpose_a"), op.get_attr("transpose_b"))
    )


@gradient("SparseMatMul")
def _sparse_mat_mul(op: ForwardOp, grad: Tensor) -> tuple[Tensor, ...]:
    a, b = op.inputs
    sparse = {"a": op.get_attr("a_is_sparse"), "b": op.get_attr("b_is_sparse"), "g": False}
    values = {"a": a, "b": b, "g": grad}
    made = []
    factors = _factors(op.get_attr("transpose_a"), op.get_attr("transpose_b"))
    for (names, left, right), of in zip(factors, op.inputs, strict=True):
        first, second = names[0], names[1]
        product = ops.sparse_mat_mul(
            values[first],
            values[second],
            transpose_a=left,
            transpose_b=right,
            a_is_sparse=sparse[first],
            b_is_sparse=sparse[second],
        )
        made.append(like_input(product, of))
    return tuple(made)


@gradient("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _batch_mat_mul(op: ForwardOp, grad: Tensor) -> tuple[Tensor, ...]:
    # `adj_x` conjugates as well as transposes, so a factor that is transposed need not be conjugated.
    values = {"a": op.inputs[0], "b": op.inputs[1], "g": grad}
    made = []
    for (names, left, right), of in zip(_factors(op.get_attr("adj_x"), op.get_attr("adj_y")), op.inputs, strict=True):
        product = create_node(
            op.type,
            {"x": values[names[0]], "y": values[names[1]]},
            {"adj_x": left, "adj_y": right, **_output_type(op, of)},
        ).output(0)
        made.append(product)
    return _summed_over_batches(op, made) if op.type != "BatchMatMul" else tuple(made)


def _output_type(op: ForwardOp, factor: Tensor) -> dict[str, Any]:
    return {"Tout": factor.dtype.base} if op.type == "BatchMatMulV3" else {}


def _summed_over_batches(op: ForwardOp, grads: list[Tensor]) -> tuple[Tensor, ...]:
    """Sum over the batch dimensions that were broadcast."""
    x, y = op.inputs
    if (
        x.static_shape.is_fully_defined
        and y.static_shape.is_fully_defined
        and x.static_shape[:-2] == y.static_shape[:-2]
    ):
        return tuple(grads)
    shapes = shape_of(x), shape_of(y)
    axes = ops.broadcast_gradient_args(shapes[0][:-2], shapes[1][:-2])
    return tuple(ops.reshape(ops.sum(g, a), shape) for g, a, shape in zip(grads, axes, shapes, strict=True))


@gradient("Einsum")
def _einsum(op: ForwardOp, grad: Tensor) -> list[Tensor]:
    return einsum_gradients(op, grad)
