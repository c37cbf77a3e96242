"""`tf.linalg`: the namespace of functions of matrices.

Next to read: `aexec/kernels/linalg/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import rank_of
from aexec.compat.v1.namespace import namespace, renamed
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "adjoint",
    "logdet",
    "matrix_diag",
    "matrix_diag_part",
    "matrix_set_diag",
    "matrix_solve",
    "matrix_transpose",
    "matrix_triangular_solve",
    "qr",
    "self_adjoint_eig",
    "self_adjoint_eigvals",
    "svd",
    "trace",
]

_DIAGONALS = "k! num_rows!-1 num_cols!-1 padding_value! align!RIGHT_LEFT"


def matrix_diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """`tf.matrix_diag`: matrices [..., num_rows, num_cols] with the given diagonals.

    Args:
        diagonal: [..., size] for one diagonal, [..., diagonals, size] for several.
        k: number of the diagonal, 0 for the main one, positive above it; or (lowest, highest) for several.
        num_rows, num_cols: sizes of the matrices; by default the least that hold the diagonals.
        padding_value: value of all other elements.
        align: on which side shorter diagonals are aligned; the rest of their row is unused.
    """
    value = convert_to_tensor(diagonal)
    padding = convert_to_tensor(padding_value, value.dtype.base)
    return ops.matrix_diag_v3(value, _ints(k), _ints(num_rows), _ints(num_cols), padding, align=align, name=name)


def matrix_diag_part(
    input: Any, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """`tf.matrix_diag_part`: the diagonals of matrices, in the form that `matrix_diag` takes."""
    value = convert_to_tensor(input)
    padding = convert_to_tensor(padding_value, value.dtype.base)
    return ops.matrix_diag_part_v3(value, _ints(k), padding, align=align, name=name)


def matrix_set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """`tf.matrix_set_diag`: replace diagonals of matrices; the new ones have the form that `matrix_diag` takes."""
    value = convert_to_tensor(input)
    given = convert_to_tensor(diagonal, value.dtype.base)
    return ops.matrix_set_diag_v3(value, given, _ints(k), align=align, name=name)


def _ints(value: Any) -> Tensor:
    return convert_to_tensor(value, dtypes.int32)


matrix_solve = renamed(ops.matrix_solve, "matrix rhs adjoint name", "matrix_solve")
matrix_triangular_solve = renamed(
    ops.matrix_triangular_solve, "matrix rhs lower adjoint name", "matrix_triangular_solve"
)
qr = renamed(ops.qr, "input full_matrices name", "qr")


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """`tf.svd`: singular values, and the vectors if `compute_uv`."""
    found = ops.svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    return found if compute_uv else found[0]


def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.self_adjoint_eig`."""
    values, vectors = ops.self_adjoint_eig_v2(tensor, compute_v=True, name=name)
    return values, vectors


def self_adjoint_eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """`tf.self_adjoint_eigvals`."""
    return ops.self_adjoint_eig_v2(tensor, compute_v=False, name=name)[0]


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """`tf.matrix_transpose`: of the last two axes."""
    value = convert_to_tensor(a)
    order = [int(axis) for axis in np.arange(rank_of(value))]
    order[-2:] = order[:-3:-1]
    turn = ops.conjugate_transpose if conjugate and value.dtype.is_complex else ops.transpose
    return turn(value, order, name=name)


def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """`tf.linalg.adjoint`: the conjugate transpose."""
    return matrix_transpose(matrix, name or "adjoint", conjugate=True)


def trace(x: Any, name: str | None = None) -> Tensor:
    """`tf.trace`."""
    with name_scope(name or "Trace"):
        return ops.sum(ops.matrix_diag_part(x), [-1])


def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """`tf.linalg.logdet`: for a positive definite matrix."""
    with name_scope(name or "logdet"):
        chol = ops.cholesky(convert_to_tensor(matrix))
        return 2.0 * ops.sum(ops.log(ops.matrix_diag_part(chol)), [-1])


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"ops:{name}" for name in "cholesky einsum lu".split()},
        **{
            name: f"numerics.matrices:{name}"
            for name in """cholesky_solve lu_matrix_inverse lu_reconstruct lu_solve matrix_rank matvec normalize pinv
            slogdet tridiagonal_matmul tridiagonal_solve""".split()
        },
        **{
            f"LinearOperator{kind}": f"numerics.linear_operators:LinearOperator{kind}"
            for kind in """Adjoint Composition Diag FullMatrix Identity Inversion LowerTriangular
            ScaledIdentity""".split()
        },
        "LinearOperator": "numerics.linear_operators:LinearOperator",
        "band_part": "ops:matrix_band_part",
        "cross": "ops:cross",
        "det": "ops:matrix_determinant",
        "diag": "functions.linalg:matrix_diag",
        "diag_part": "functions.linalg:matrix_diag_part",
        "eigh": "functions.linalg:self_adjoint_eig",
        "eigvalsh": "functions.linalg:self_adjoint_eigvals",
        "einsum": "functions.math_ops:einsum",
        "expm": "ops:matrix_exponential",
        "eye": "functions.array_ops:eye",
        "global_norm": "aexec:global_norm",
        "inv": "ops:matrix_inverse",
        "logm": "ops:matrix_logarithm",
        "lstsq": "numerics.matrices:matrix_solve_ls",
        "l2_normalize": "networks.nn:l2_normalize",
        "matmul": "functions.math_ops:matmul",
        "norm": "functions.math_ops:norm",
        "set_diag": "functions.linalg:matrix_set_diag",
        "solve": "functions.linalg:matrix_solve",
        "sqrtm": "ops:matrix_square_root",
        "tensor_diag": "ops:diag",
        "tensor_diag_part": "ops:diag_part",
        "tensordot": "functions.math_ops:tensordot",
        "transpose": "functions.linalg:matrix_transpose",
        "triangular_solve": "functions.linalg:matrix_triangular_solve",
    },
)
