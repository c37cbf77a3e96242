"""Gradients of factorisations, inverses, determinants and eigenvalues.

The formulas are those of M. Giles, "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic
Differentiation" (2008), and for the QR of wide matrices of Roberts and Roberts, "QR and LQ Decomposition Matrix
Backpropagation Algorithms" (arXiv 2009.10071).
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import conjugated, like_input, real_type, transposed
from aexec.framework import errors
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

__all__ = ["adjoint", "product"]

no_gradient("Lu")


def product(a: Tensor, b: Tensor, *, adj_a: bool = False, adj_b: bool = False) -> Tensor:
    """The product of matrices or batches of them; each conjugated and transposed first if requested."""
    return ops.batch_mat_mul_v2(a, b, adj_x=adj_a, adj_y=adj_b)


adjoint = transposed


def _lower(x: Tensor) -> Tensor:
    return ops.matrix_band_part(x, -1, 0)


def _diagonal(x: Tensor) -> Any:
    return ops.matrix_diag_part(x)


def _columns(x: Tensor) -> Any:
    """Vectors in a shape that scales columns."""
    return ops.expand_dims(x, -2)


def _of_matrices(x: Tensor) -> Tensor:
    """One number for each matrix, in a shape that scales it."""
    return ops.expand_dims(ops.expand_dims(x, -1), -1)


@gradient("MatrixInverse")
def _matrix_inverse(op: ForwardOp, grad: Tensor) -> Tensor:
    y = op.outputs[0]
    if op.get_attr("adjoint"):
        return -product(y, product(grad, y, adj_a=True))
    return -product(y, product(grad, y, adj_b=True), adj_a=True)


@gradient("MatrixDeterminant")
def _matrix_determinant(op: ForwardOp, grad: Tensor) -> Tensor:
    inverse = ops.matrix_inverse(op.inputs[0], adjoint=True)
    return _of_matrices(grad * conjugated(op.outputs[0])) * inverse


@gradient("LogMatrixDeterminant")
def _log_matrix_determinant(op: ForwardOp, _: Tensor, grad: Tensor) -> Tensor:
    return _of_matrices(grad) * ops.matrix_inverse(op.inputs[0], adjoint=True)


@gradient("Cholesky")
def _cholesky(op: ForwardOp, grad: Tensor) -> Tensor:
    factor = op.outputs[0]
    identity = ops.matrix_diag(ops.ones_like(_diagonal(factor)))
    inverse = ops.matrix_triangular_solve(factor, identity)
    middle = product(factor, grad, adj_a=True)
    middle = _lower(ops.matrix_set_diag(middle, 0.5 * _diagonal(middle)))
    made = product(product(inverse, middle, adj_a=True), inverse)
    return 0.5 * (made + adjoint(made))


@gradient("Qr")
def _qr(op: ForwardOp, grad_q: Tensor, grad_r: Tensor) -> Tensor:
    q, r = op.outputs
    rows, columns = _sizes(op)
    if op.get_attr("full_matrices") and rows > columns:
        raise errors.UnsupportedError(
            f"the QR of a matrix with more rows than columns ({rows} and {columns}) can be differentiated only with "
            "full_matrices=False",
            node=op.name,
            op=op.type,
        )
    if rows >= columns:
        return _qr_of_tall(q, grad_q, r, grad_r)
    left = op.inputs[0][..., :rows], r[..., :rows], grad_r[..., :rows]
    right = op.inputs[0][..., rows:], grad_r[..., rows:]
    by_left = _qr_of_tall(q, grad_q + product(right[0], right[1], adj_b=True), left[1], left[2])
    return ops.concat_v2([by_left, product(q, right[1])], -1)


def _qr_of_tall(q: Tensor, grad_q: Tensor, r: Tensor, grad_r: Tensor) -> Tensor:
    inner = product(q, grad_q, adj_a=True)
    by_r = product(r, grad_r, adj_b=True)
    lower = _lower((inner - adjoint(inner)) + (by_r - adjoint(by_r)))

    def over_r(x: Tensor) -> Tensor:
        """x r⁻ᴴ"""
        return adjoint(ops.matrix_triangular_solve(r, adjoint(x), lower=False, adjoint=False))

    return product(q, grad_r + over_r(lower)) + over_r(grad_q - product(q, inner))


def _sizes(op: ForwardOp) -> tuple[int, int]:
    """Rows and columns of the input's matrices.  Raises UnimplementedError if they are unknown."""
    shape = op.inputs[0].static_shape
    if shape.rank is None or None in shape[-2:]:
        raise errors.UnsupportedError(
            f"the gradient of {op.type} needs the sizes of its matrices to be known; '{op.inputs[0].name}' has shape "
            f"{shape}",
            node=op.name,
            op=op.type,
        )
    rows, columns = shape[-2:]
    return rows, columns


@gradient("SelfAdjointEigV2")
def _self_adjoint_eig(op: ForwardOp, grad_e: Tensor, grad_v: Tensor) -> Tensor:
    if op.get_attr("compute_v"):
        e, v = op.outputs
        middle = ops.matrix_diag(grad_e) + _reciprocal_differences(e) * product(v, grad_v, adj_a=True)
    else:
        _, v = ops.self_adjoint_eig_v2(op.inputs[0])
        middle = ops.matrix_diag(grad_e)
    made = product(v, product(middle, v, adj_b=True))
    # Only the lower triangle is read.
    both = _lower(made + adjoint(made))
    return ops.matrix_set_diag(both, 0.5 * _diagonal(both))


def _reciprocal_differences(values: Tensor) -> Any:
    """The matrix 1 / (v[j] - v[i]), with 0 where they are equal."""
    differences = _columns(values) - ops.expand_dims(values, -1)
    return ops.div_no_nan(ops.ones_like(differences), differences)


@gradient("Eig")
def _eig(op: ForwardOp, grad_e: Tensor, grad_v: Tensor) -> Tensor:
    if op.get_attr("compute_v"):
        e, v = op.outputs
        inner = product(v, grad_v, adj_a=True)
        # Eigenvectors have length 1: the part that would change it is left out.
        own = ops.matrix_diag(ops.cast(ops.real(_diagonal(inner), Tout=real_type(v.dtype)), DstT=v.dtype.base))
        inner = inner - product(product(v, v, adj_a=True), own)
        middle = ops.matrix_diag(grad_e) + ops.conj(_reciprocal_differences(e)) * inner
    else:
        _, v = ops.eig(op.inputs[0], Tout=op.outputs[0].dtype.base)
        middle = ops.matrix_diag(grad_e)
    made = ops.matrix_solve(adjoint(v), product(middle, v, adj_b=True))
    source = op.inputs[0]
    if not source.dtype.is_complex:
        made = ops.real(made, Tout=real_type(made.dtype))
    return like_input(made, source)


@gradient("Svd")
def _svd(op: ForwardOp, grad_s: Tensor, grad_u: Tensor, grad_v: Tensor) -> Tensor:
    x = op.inputs[0]
    if not op.get_attr("compute_uv"):
        _, u, v = ops.svd(x, full_matrices=False)
        return product(u * _columns(like_input(grad_s, u)), v, adj_b=True)
    rows, columns = _sizes(op)
    if op.get_attr("full_matrices") and rows != columns:
        raise errors.UnsupportedError(
            f"the full SVD of a matrix that is not square ({rows} by {columns}) cannot be differentiated; "
            "use full_matrices=False",
            node=op.name,
            op=op.type,
        )
    s, u, v = op.outputs
    s = like_input(s, u)
    inverse = _columns(ops.div_no_nan(ops.ones_like(s), s))
    differences = _reciprocal_differences(ops.square(s))
    by_u, by_v = product(u, grad_u, adj_a=True), product(v, grad_v, adj_a=True)
    of_u, of_v = differences * by_u, differences * by_v
    middle = ops.matrix_diag(like_input(grad_s, u)) + (of_u + adjoint(of_u)) * _columns(s)
    middle = middle + ops.expand_dims(s, -1) * (of_v + adjoint(of_v))
    if x.dtype.is_complex:
        # The phases of the vectors are free; these are the ones that the op chooses.
        phases = ops.matrix_diag(_diagonal(by_v))
        middle = middle + 0.5 * ops.expand_dims(ops.div_no_nan(ops.ones_like(s), s), -1) * (adjoint(phases) - phases)
    outside_u = (grad_u - product(u, by_u)) * inverse
    outside_v = (grad_v - product(v, by_v)) * inverse
    return product(product(u, middle) + outside_u, v, adj_b=True) + product(u, outside_v, adj_b=True)


@gradient("MatrixSquareRoot")
def _matrix_square_root(op: ForwardOp, grad: Tensor) -> Tensor:
    """Solve z yᴴ + yᴴ z = grad, whose matrix is a sum of Kronecker products."""
    y = op.outputs[0]
    identity = ops.matrix_diag(ops.ones_like(_diagonal(y)))
    matrix = _kronecker(identity, conjugated(y)) + _kronecker(adjoint(y), identity)
    shape = ops.shape(grad)
    size = shape[-1]
    flat = ops.concat_v2([shape[:-2], ops.pack([size * size, 1])], 0)
    square = ops.concat_v2([shape[:-2], ops.pack([size * size, size * size])], 0)
    solution = ops.matrix_solve(ops.reshape(matrix, square), ops.reshape(grad, flat))
    return ops.reshape(solution, shape)


def _kronecker(a: Tensor, b: Tensor) -> Tensor:
    """[…, i, j, k, l]: a[i, k] b[j, l]."""
    return a[..., :, None, :, None] * b[..., None, :, None, :]
