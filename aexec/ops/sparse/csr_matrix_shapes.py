"""Shape functions of sparse matrices in variants.  A variant is a scalar; what shape its matrix has is not known."""

from __future__ import annotations

from aexec.framework.shape_functions.shape_inference import InferenceContext

__all__ = ["components", "dense_product", "from_dense", "from_sparse_tensor", "matrix_to_matrix", "to_sparse_tensor"]


def components(c: InferenceContext) -> None:
    """Row pointers, columns and values of one matrix of a batch."""
    c.with_rank(c.input(1), 0)
    for index in range(3):
        c.set_output(index, c.vector(None))


def from_sparse_tensor(c: InferenceContext) -> None:
    """Inputs: indices, values and shape of a sparse tensor."""
    entries = c.dim(c.with_rank(c.input(0), 2), 0)
    c.merge(c.with_rank(c.input(1), 1), c.vector(entries))
    c.with_rank(c.input(2), 1)
    c.set_output(0, c.scalar())


def from_dense(c: InferenceContext) -> None:
    """Inputs: a matrix, or a batch, and indices of its elements."""
    c.with_rank_at_most(c.with_rank_at_least(c.input(0), 2), 3)
    c.with_rank(c.input(1), 2)
    c.set_output(0, c.scalar())


def to_sparse_tensor(c: InferenceContext) -> None:
    """Indices, values and shape of a sparse tensor."""
    c.set_output(0, c.matrix(None, None))
    c.set_output(1, c.vector(None))
    c.set_output(2, c.vector(None))


def dense_product(c: InferenceContext) -> None:
    """The product has the rank of the dense operand."""
    dense = c.with_rank_at_most(c.with_rank_at_least(c.input(1), 2), 3)
    c.set_output(0, c.unknown_shape_of_rank(dense.rank) if dense.rank is not None else c.unknown_shape())


def matrix_to_matrix(c: InferenceContext) -> None:
    """A variant in, a variant out."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.scalar())
