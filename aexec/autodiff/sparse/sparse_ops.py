"""Gradients of sparse tensors.  Indices and shapes have none; values have one each."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import conjugated, summed_to, transposed
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Tensor | None, ...]

no_gradient("SetSize", "DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation")
no_gradient("SparseAddGrad", "SparseConcat")


@gradient("SparseTensorDenseMatMul")
def _sparse_tensor_dense_mat_mul(op: ForwardOp, grad: Tensor) -> Grads:
    indices, values, shape, b = op.inputs
    adjoint_a, adjoint_b = op.get_attr("adjoint_a"), op.get_attr("adjoint_b")
    by_b = ops.sparse_tensor_dense_mat_mul(indices, values, shape, grad, adjoint_a=not adjoint_a)
    rows, columns = indices[:, 0], indices[:, 1]
    of_grad = ops.gather_v2(grad, columns if adjoint_a else rows, 0)
    of_b = ops.gather_v2(transposed(b) if adjoint_b else b, rows if adjoint_a else columns, 0)
    by_values = ops.sum(of_grad * conjugated(of_b), np.array([1], np.int32))
    if adjoint_a:
        by_values = conjugated(by_values)
    return None, by_values, None, transposed(by_b) if adjoint_b else by_b


@gradient("SparseTensorDenseAdd")
def _sparse_tensor_dense_add(op: ForwardOp, grad: Tensor) -> Grads:
    return None, ops.gather_nd(grad, op.inputs[0]), None, grad


@gradient("SparseAdd")
def _sparse_add(op: ForwardOp, _indices: Tensor, grad: Tensor, _shape: Tensor) -> Grads:
    by_a, by_b = ops.sparse_add_grad(grad, op.inputs[0], op.inputs[3], op.outputs[0])
    return None, by_a, None, None, by_b, None, None


@gradient("SparseReorder")
def _sparse_reorder(op: ForwardOp, _indices: Tensor, grad: Tensor) -> Grads:
    indices, values, shape = op.inputs
    places = ops.range(0, ops.size(values), 1)
    _, order = ops.sparse_reorder(indices, places, shape)
    return None, ops.gather_v2(grad, ops.invert_permutation(order), 0), None


@gradient("SparseToDense")
def _sparse_to_dense(op: ForwardOp, grad: Tensor) -> Grads:
    """Indices may be scalars, or a vector of them for a vector; one value may be used for all."""
    indices, _, values, _ = op.inputs
    rows = ops.reshape(indices, ops.pack([-1, ops.rank(grad)]))
    by_values = ops.gather_nd(grad, rows)
    by_default = ops.sum(grad, ops.range(0, ops.rank(grad), 1)) - ops.sum(by_values, np.array([0], np.int32))
    return None, None, summed_to(by_values, values), by_default


@gradient("SparseReduceSum")
def _sparse_reduce_sum(op: ForwardOp, grad: Tensor) -> Grads:
    indices, _, shape, axes = op.inputs
    rank = ops.size(shape)
    reduced = ops.reshape(ops.floor_mod(axes + rank, rank), [-1, 1])
    ones = ops.cast(ops.fill(ops.slice(ops.shape(reduced), [0], [1]), 1), DstT="int64")
    kept = ops.tensor_scatter_update(shape, reduced, ones)
    places = ops.floor_div(indices, ops.floor_div(shape, kept))
    return None, ops.gather_nd(ops.reshape(grad, kept), places), None, None


@gradient("SparseSoftmax")
def _sparse_softmax(op: ForwardOp, grad: Tensor) -> Grads:
    indices, _, shape = op.inputs
    y = op.outputs[0]
    sums = ops.sparse_reduce_sum(indices, grad * y, shape, np.array([-1], np.int32), keep_dims=True)
    return None, ops.sparse_dense_cwise_add(indices, grad, shape, -sums) * y, None


@gradient("SparseDenseCwiseMul")
def _sparse_dense_cwise_mul(op: ForwardOp, grad: Tensor) -> Grads:
    indices, values, shape, dense = op.inputs
    by_values = ops.sparse_dense_cwise_mul(indices, grad, shape, dense)
    return None, by_values, None, _to_dense(op, grad * values)


@gradient("SparseDenseCwiseDiv")
def _sparse_dense_cwise_div(op: ForwardOp, grad: Tensor) -> Grads:
    indices, _, shape, dense = op.inputs
    by_values = ops.sparse_dense_cwise_div(indices, grad, shape, dense)
    over = ops.sparse_dense_cwise_div(indices, -grad * op.outputs[0], shape, dense)
    return None, by_values, None, _to_dense(op, over)


@gradient("SparseDenseCwiseAdd")
def _sparse_dense_cwise_add(op: ForwardOp, grad: Tensor) -> Grads:
    return None, grad, None, _to_dense(op, grad)


def _to_dense(op: ForwardOp, values: Any) -> Any:
    """Values at the positions of the sparse operand, summed where the dense operand was broadcast."""
    indices, _, shape, dense = op.inputs
    dense_shape = ops.cast(ops.shape(dense), DstT="int64")
    added = ops.size(shape) - ops.size(dense_shape)
    places = ops.slice(indices, ops.pack([0, added]), [-1, -1])
    scaling = ops.floor_div(ops.slice(shape, ops.pack([added]), [-1]), dense_shape)
    return ops.scatter_nd(ops.floor_div(places, scaling), values, dense_shape)


@gradient("SparseFillEmptyRows")
def _sparse_fill_empty_rows(op: ForwardOp, _indices: Tensor, grad: Tensor, *_: Tensor) -> Grads:
    by_values, by_default = ops.sparse_fill_empty_rows_grad(op.outputs[3], grad)
    return None, by_values, None, by_default


@gradient("SparseSlice")
def _sparse_slice(op: ForwardOp, _indices: Tensor, grad: Tensor, _shape: Tensor) -> Grads:
    indices, _, _, start, _ = op.inputs
    return None, ops.sparse_slice_grad(grad, indices, start, op.outputs[0]), None, None, None
