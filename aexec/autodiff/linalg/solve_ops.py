"""Gradients of solvers of linear equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.linalg.linalg_ops import adjoint, product
from aexec.autodiff.shapes import conjugated, like_input, summed_to
from aexec.framework import errors
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor

Pair = tuple[Tensor, Tensor]


def _of_matrix(by_rhs: Tensor, solution: Tensor, adjoint_used: bool) -> Tensor:
    """The matrix's gradient, from that of the right-hand side."""
    if adjoint_used:
        return -product(solution, by_rhs, adj_b=True)
    return -product(by_rhs, solution, adj_b=True)


@gradient("MatrixSolve")
def _matrix_solve(op: ForwardOp, grad: Tensor) -> Pair:
    matrix, _ = op.inputs
    used = op.get_attr("adjoint")
    by_rhs = ops.matrix_solve(matrix, grad, adjoint=not used)
    return _of_matrix(by_rhs, op.outputs[0], used), by_rhs


@gradient("MatrixTriangularSolve")
def _matrix_triangular_solve(op: ForwardOp, grad: Tensor) -> Pair:
    matrix, rhs = op.inputs
    lower, used = op.get_attr("lower"), op.get_attr("adjoint")
    by_rhs = ops.matrix_triangular_solve(matrix, grad, lower=lower, adjoint=not used)
    whole = _of_matrix(by_rhs, op.outputs[0], used)
    triangle = ops.matrix_band_part(whole, -1, 0) if lower else ops.matrix_band_part(whole, 0, -1)
    return summed_to(triangle, matrix), summed_to(by_rhs, rhs)


@gradient("MatrixSolveLs")
def _matrix_solve_ls(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    """By the normal equations, which the op's fast form solves."""
    matrix, rhs, l2 = op.inputs
    if not op.get_attr("fast"):
        raise errors.UnsupportedError("Gradient not defined for fast=False", node=op.name, op=op.type)
    if matrix.static_shape.rank is None or None in tuple(matrix.static_shape)[-2:]:
        raise errors.UnsupportedError(
            f"the gradient of MatrixSolveLs needs the sizes of its matrices to be known; '{matrix.name}' has shape "
            f"{matrix.static_shape}",
            node=op.name,
            op=op.type,
        )
    rows, columns = matrix.static_shape[-2:]
    weight = like_input(l2, matrix)
    if rows >= columns:
        x = op.outputs[0]
        normal = _regularised(product(matrix, matrix, adj_a=True), weight)
        z = ops.matrix_solve(normal, grad)
        both = product(x, z, adj_b=True)
        by_matrix = product(rhs, z, adj_b=True) - product(matrix, both + adjoint(both))
        return by_matrix, product(matrix, z), None
    normal = _regularised(product(matrix, matrix, adj_b=True), weight)
    by_rhs = ops.matrix_solve(normal, product(matrix, grad))
    inner = ops.matrix_solve(normal, rhs)
    first = -product(by_rhs, product(matrix, inner, adj_a=True), adj_b=True)
    second = product(inner, grad - product(matrix, by_rhs, adj_a=True), adj_b=True)
    return first + second, by_rhs, None


def _regularised(gram: Tensor, weight: Tensor) -> Any:
    return ops.matrix_set_diag(gram, ops.matrix_diag_part(gram) + weight)


# Bands


@gradient("TridiagonalMatMul")
def _tridiagonal_mat_mul(op: ForwardOp, grad: Tensor) -> tuple[Tensor, ...]:
    above, main, below, rhs = op.inputs
    rows = conjugated(rhs)

    def row(x: Tensor) -> Any:
        return ops.expand_dims(ops.sum(x, np.array([-1], np.int32)), -2)

    # The element beside the last row, and the one before the first, do not count.
    by_above = row(grad * _moved(rows, -1))
    by_below = row(grad * _moved(rows, 1))
    by_main = row(grad * rows)
    transposed = [conjugated(part) for part in (_moved_row(below, -1), main, _moved_row(above, 1))]
    return by_above, by_main, by_below, ops.tridiagonal_mat_mul(transposed[0], transposed[1], transposed[2], grad)


def _moved(x: Tensor, by: int) -> Tensor:
    """Rows moved down by one (1) or up (-1), with zeros in the free row."""
    zeros = ops.zeros_like(x[..., :1, :])
    parts = [zeros, x[..., :-1, :]] if by == 1 else [x[..., 1:, :], zeros]
    return ops.concat_v2(parts, -2)


def _moved_row(x: Tensor, by: int) -> Tensor:
    """Like `_moved`, for the last axis."""
    zeros = ops.zeros_like(x[..., :1])
    parts = [zeros, x[..., :-1]] if by == 1 else [x[..., 1:], zeros]
    return ops.concat_v2(parts, -1)


@gradient("TridiagonalSolve")
def _tridiagonal_solve(op: ForwardOp, grad: Tensor) -> Pair:
    diagonals, x = op.inputs[0], conjugated(op.outputs[0])
    above, main, below = diagonals[..., 0, :], diagonals[..., 1, :], diagonals[..., 2, :]
    turned = conjugated(ops.pack([_moved_row(below, -1), main, _moved_row(above, 1)], axis=-2))
    by_rhs = ops.tridiagonal_solve(turned, grad, partial_pivoting=op.get_attr("partial_pivoting"))

    def band(rows: Tensor) -> Any:
        return ops.sum(by_rhs * rows, np.array([-1], np.int32))

    bands = [band(_moved(x, -1)), band(x), band(_moved(x, 1))]
    return -ops.pack(bands, axis=-2), by_rhs


@gradient("BandedTriangularSolve")
def _banded_triangular_solve(op: ForwardOp, grad: Tensor) -> Pair:
    bands, rhs = op.inputs
    if bands.static_shape.rank is None or bands.static_shape[-2] is None:
        raise errors.UnsupportedError(
            f"the gradient of BandedTriangularSolve needs the number of bands to be known; '{bands.name}' has shape "
            f"{bands.static_shape}",
            node=op.name,
            op=op.type,
        )
    lower, used = op.get_attr("lower"), op.get_attr("adjoint")
    by_rhs = ops.banded_triangular_solve(bands, grad, lower=lower, adjoint=not used)
    whole = _of_matrix(by_rhs, op.outputs[0], used)
    zero = ops.zeros_like(ops.reshape(whole, [-1])[0])
    count = bands.static_shape[-2]
    if lower:
        # The diagonals are in descending order; bands are kept with the main one first.
        parts = ops.matrix_diag_part_v3(whole, np.array([1 - count, 0], np.int32), zero, align="LEFT_RIGHT")
    else:
        parts = ops.matrix_diag_part_v3(whole, np.array([0, count - 1], np.int32), zero, align="LEFT_RIGHT")
    return summed_to(parts, bands), summed_to(by_rhs, rhs)
