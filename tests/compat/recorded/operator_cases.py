"""Cases of linear operators.  Next to read: `cases.py`, which has them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]

RANDOM = np.random.RandomState(7)
SQUARE = RANDOM.randn(2, 3, 3).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
POSITIVE = np.matmul(SQUARE, SQUARE.transpose(0, 2, 1))
COMPLEX = (SQUARE[0] + 1j * SQUARE[1]).astype(np.complex64)
DIAGONAL = RANDOM.uniform(0.5, 2, (2, 3)).astype(np.float32)
TALL = RANDOM.randn(2, 3, 2).astype(np.float32)
VECTORS = RANDOM.randn(2, 3).astype(np.float32)


def everything(operator: Any, x: Any = TALL, v: Any = VECTORS) -> list[Any]:
    """The results of all methods of a square operator."""
    return [
        operator.to_dense(),
        operator.matmul(x),
        operator.matmul(x, adjoint=True),
        operator @ x,
        operator.matmul(np.swapaxes(x, -1, -2), adjoint_arg=True),
        operator.matvec(v),
        operator.solve(x),
        operator.solve(x, adjoint=True),
        operator.solvevec(v),
        operator.determinant(),
        operator.log_abs_determinant(),
        operator.trace(),
        operator.diag_part(),
        operator.cond(),
        operator.add_to_tensor(np.zeros(operator.shape.as_list(), operator.dtype.as_numpy_dtype)),
        operator.adjoint().to_dense(),
        operator.H.matvec(v),
        operator.inverse().matmul(x),
        operator.inverse().solve(x),
        operator.inverse().determinant(),
        operator.shape_tensor(),
        operator.batch_shape_tensor(),
        operator.tensor_rank_tensor(),
        operator.domain_dimension_tensor(),
        operator.range_dimension_tensor(),
    ]


def positive(operator: Any) -> list[Any]:
    """The results of the methods that need a positive definite operator."""
    return [operator.cholesky().to_dense(), operator.solve(TALL), operator.log_abs_determinant(), operator.eigvals()]


def products(tf: Any) -> list[Any]:
    """Operators of operators."""
    full, diag = tf.linalg.LinearOperatorFullMatrix(SQUARE), tf.linalg.LinearOperatorDiag(DIAGONAL)
    lower, scaled = tf.linalg.LinearOperatorLowerTriangular(SQUARE), tf.linalg.LinearOperatorScaledIdentity(3, 2.0)
    chain = tf.linalg.LinearOperatorComposition([full, diag, lower])
    return [
        *everything(chain),
        diag.matmul(diag).to_dense(),
        full.matmul(lower).to_dense(),
        full.matmul(lower, adjoint=True, adjoint_arg=True).to_dense(),
        scaled.matmul(full).to_dense(),
        diag.solve(full).to_dense(),
    ]


def hints(tf: Any) -> list[Any]:
    """The hints of operators as numbers: 1 for True, 0 for False, -1 for None."""
    operators = [
        tf.linalg.LinearOperatorFullMatrix(SQUARE),
        tf.linalg.LinearOperatorFullMatrix(TALL),
        tf.linalg.LinearOperatorFullMatrix(POSITIVE, is_self_adjoint=True, is_positive_definite=True),
        tf.linalg.LinearOperatorDiag(DIAGONAL, is_positive_definite=True),
        tf.linalg.LinearOperatorIdentity(3),
        tf.linalg.LinearOperatorLowerTriangular(SQUARE),
        tf.linalg.LinearOperatorScaledIdentity(3, [1.0, 2.0]),
    ]
    names = "is_non_singular is_self_adjoint is_positive_definite is_square".split()
    values = [[getattr(one, name) for name in names] for one in operators]
    shapes = [one.shape.as_list() for one in operators]
    return [
        tf.constant([[-1 if value is None else int(value) for value in row] for row in values]),
        *(tf.constant(shape) for shape in shapes),
    ]


CASES: dict[str, Callable[[Any], Any]] = {
    "LinearOperatorFullMatrix": lambda tf: everything(tf.linalg.LinearOperatorFullMatrix(SQUARE)),
    "LinearOperatorFullMatrix of positive": lambda tf: positive(
        tf.linalg.LinearOperatorFullMatrix(POSITIVE, is_self_adjoint=True, is_positive_definite=True)
    ),
    "LinearOperatorFullMatrix of one matrix": lambda tf: [
        tf.linalg.LinearOperatorFullMatrix(SQUARE[0]).solve(TALL),
        tf.linalg.LinearOperatorFullMatrix(SQUARE[0]).matvec(VECTORS),
        tf.linalg.LinearOperatorFullMatrix(TALL).matmul(TALL, adjoint=True),
    ],
    "LinearOperatorLowerTriangular": lambda tf: everything(tf.linalg.LinearOperatorLowerTriangular(SQUARE)),
    "LinearOperatorDiag": lambda tf: everything(tf.linalg.LinearOperatorDiag(DIAGONAL)),
    "LinearOperatorDiag of positive": lambda tf: positive(
        tf.linalg.LinearOperatorDiag(DIAGONAL, is_positive_definite=True)
    ),
    "LinearOperatorIdentity": lambda tf: everything(tf.linalg.LinearOperatorIdentity(3, batch_shape=[2])),
    "LinearOperatorScaledIdentity": lambda tf: everything(
        tf.linalg.LinearOperatorScaledIdentity(3, np.float32([2.0, -0.5]))
    ),
    "LinearOperator of complex numbers": lambda tf: [
        part(value)
        for value in (
            tf.linalg.LinearOperatorDiag(COMPLEX[0]).matvec(COMPLEX[1], adjoint=True),
            tf.linalg.LinearOperatorDiag(COMPLEX[0]).H.to_dense(),
            tf.linalg.LinearOperatorFullMatrix(COMPLEX).H.solve(COMPLEX),
            tf.linalg.LinearOperatorLowerTriangular(COMPLEX).solve(COMPLEX, adjoint=True, adjoint_arg=True),
            tf.linalg.LinearOperatorScaledIdentity(3, COMPLEX[0, 0]).H.determinant(),
        )
        for part in (tf.real, tf.imag)
    ],
    "LinearOperatorComposition": products,
    "hints of linear operators": hints,
}
