"""Factors of sparse matrices in variants, and orderings of their rows that leave the factors sparse.

Next to read: `csr_matrix_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.files import blocking
from aexec.kernels.common.variants import boxed
from aexec.kernels.sparse.csr_matrix import CSRSparseMatrix, csr_of, csr_of_parts

__all__: list[str] = []

Array = Any
_TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
# Bytes per entry of a matrix while it is ordered, and of a factor while it is computed.
_ORDER_BYTES, _FACTOR_BYTES = 64, 64


def _check_square(found: CSRSparseMatrix) -> int:
    rows, columns = found.shape[-2:]
    if rows != columns:
        raise errors.InvalidArgumentError(f"sparse matrix must be square; got: {rows} != {columns}")
    return rows


def _hermitian(matrix: Any) -> Any:
    """The matrix of which this is the lower triangle."""
    from scipy import sparse

    lower = sparse.tril(matrix, -1)
    return (lower + lower.conj().T + sparse.diags_array(matrix.diagonal())).tocsr()


@kernel("SparseMatrixOrderingAMD", cost=blocking, needs=("scipy.sparse.csgraph",))
def ordering(c: OpKernelConstruction) -> Compute:
    """Return a permutation of the rows after which a Cholesky factor has few entries, for each matrix of a batch.

    It is SciPy's reverse Cuthill-McKee ordering, which keeps entries near the diagonal; TensorFlow's is by minimum
    degree.
    """

    def compute(matrix: Array) -> Any:
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        found = csr_of(matrix)
        rows = _check_square(found)
        announce_scratch(_ORDER_BYTES * (found.values.size + rows))
        orders = np.empty((found.batch, rows), np.int32)
        for number, order in enumerate(orders if rows else ()):
            check_wanted()
            pattern = found.with_values(np.ones(len(found.values), np.float32)).scipy(number)
            order[...] = reverse_cuthill_mckee(_hermitian(pattern), symmetric_mode=True)
        return orders if len(found.shape) == 3 else orders[0]

    return compute


def _envelope(matrix: Any) -> int:
    """The most entries that a Cholesky factor can have: in each row those from the first entry to the diagonal."""
    rows = np.arange(matrix.shape[0])
    first = rows.copy()
    entries = matrix.tocoo()
    np.minimum.at(first, entries.row, entries.col)
    return int((rows - first + 1).sum())


def _factor(matrix: Any, number: int) -> Any:
    from scipy import sparse
    from scipy.sparse.linalg import splu

    announce_scratch(_FACTOR_BYTES * (_envelope(matrix) + matrix.nnz))
    failure = errors.InvalidArgumentError(
        f"Sparse Cholesky factorization failed for batch index {number}. The input might not be valid."
    )
    if not np.isfinite(matrix.data).all():
        raise failure
    try:
        found = splu(matrix.tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError as error:  # exactly singular
        raise failure from error
    pivots = found.U.diagonal().real
    if not (pivots > 0).all() or (found.perm_r != np.arange(len(pivots))).any():
        raise failure
    factor = (found.L @ sparse.diags_array(np.sqrt(pivots).astype(pivots.dtype))).tocsr()
    factor.sort_indices()
    return factor.astype(matrix.dtype, copy=False)


@kernel("SparseMatrixSparseCholesky", type=_TYPES, cost=blocking, needs=("scipy.sparse.linalg",))
def cholesky(c: OpKernelConstruction) -> Compute:
    """Return the lower factor of the matrix with its rows and columns permuted, for each matrix of a batch.

    The lower triangle of the input is used.  The factor is that of SciPy's LU decomposition, without pivoting, of
    which each column is scaled by the root of its pivot.
    """
    wanted = c.attr("type").np

    def compute(matrix: Array, permutation: Array) -> Any:
        found = csr_of(matrix, wanted)
        rows = _check_square(found)
        if permutation.ndim != len(found.shape) - 1:
            raise errors.InvalidArgumentError(
                f"permutation must have rank {len(found.shape) - 1}; got: {permutation.ndim}"
            )
        orders = permutation if permutation.ndim == 2 else permutation[None]
        if permutation.shape[-1] != rows or len(orders) != found.batch:
            raise errors.InvalidArgumentError(
                "permutation must have the same number of elements in each batch as the number of rows in sparse "
                f"matrix; got: {permutation.shape[-1]} != {rows}"
            )
        announce_scratch(_ORDER_BYTES * (found.values.size + rows))
        factors = []
        for number, order in enumerate(orders):
            check_wanted()
            if (np.sort(order) != np.arange(rows)).any():
                raise errors.InvalidArgumentError(
                    f"Sparse Cholesky factorization failed for batch index {number}. The input might not be valid."
                )
            permuted = _hermitian(found.scipy(number))[order][:, order]
            factors.append(_factor(permuted, number) if rows else permuted)
        return boxed(csr_of_parts(factors, found.shape, wanted))

    return compute
