"""Linear operators: refused arguments, and a program's own operators.  `recorded/operator_cases.py` has values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

SQUARE = np.float32([[2, 1], [0, 3]])


def test_operator_of_ones_own_needs_its_shape_and_products() -> None:
    class Flip(tf.linalg.LinearOperator):  # type: ignore[misc]  # TensorFlow's names have no types
        def __init__(self) -> None:
            super().__init__(tf.float32, is_square=True)

        def _shape(self) -> Any:
            return tf.TensorShape([2, 2])

        def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
            return tf.reverse(tf.linalg.adjoint(x) if adjoint_arg else x, [-2])

    flip = Flip()
    with tf.Session() as sess:
        dense, applied, solved, det = sess.run(
            [flip.to_dense(), flip.matvec([1.0, 2.0]), flip.solvevec([1.0, 2.0]), flip.determinant()]
        )
    assert dense.tolist() == [[0, 1], [1, 0]]
    assert applied.tolist() == solved.tolist() == [2, 1] and det == -1


def test_operator_of_unknown_shape() -> None:
    matrix, x = tf.placeholder(tf.float32), tf.placeholder(tf.float32, [None, 1])
    diagonal = tf.placeholder(tf.float32, [None])
    full, diag = tf.linalg.LinearOperatorFullMatrix(matrix), tf.linalg.LinearOperatorDiag(diagonal)
    assert full.shape.ndims is None and diag.shape.as_list() == [None, None]
    with tf.Session() as sess:
        found = sess.run(
            [full.solve(x), full.shape_tensor(), diag.to_dense(), diag.shape_tensor()],
            {matrix: SQUARE, x: [[3.0], [3.0]], diagonal: [1.0, 2.0]},
        )
    assert [part.tolist() for part in found] == [[[1], [1]], [2, 2], [[1, 0], [0, 2]], [2, 2]]


def test_gradient_goes_through_a_solution() -> None:
    tril = tf.constant(SQUARE.T.copy())
    solution = tf.linalg.LinearOperatorLowerTriangular(tril).solvevec([2.0, 4.0])
    with tf.Session() as sess:
        x, (grad,) = sess.run([solution, tf.gradients(solution[0], tril)])
    assert x.tolist() == [1, 1] and grad.tolist() == [[-0.5, 0], [0, 0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda L: L.LinearOperatorFullMatrix(SQUARE, is_non_singular=False, is_positive_definite=True),
            ValueError,
            "A positive definite matrix is always non-singular",
        ),
        (
            lambda L: L.LinearOperatorFullMatrix(SQUARE, is_self_adjoint=True, is_square=False),
            ValueError,
            "always square",
        ),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE).cholesky(), ValueError, "Not a positive definite self adjoint"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE[:1]).determinant(), NotImplementedError, "not be square"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE[:1]).solve(SQUARE), NotImplementedError, "not be square"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE[:1]).inverse(), ValueError, "non square"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE, is_non_singular=False).inverse(), ValueError, "singular"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE).matmul(tf.constant([[1, 2]])), TypeError, "dtype"),
        (lambda L: L.LinearOperatorFullMatrix(SQUARE).eigvals(), NotImplementedError, "self-adjoint"),
        (lambda L: L.LinearOperatorDiag([1.0], is_square=False), ValueError, "Only square diagonal"),
        (lambda L: L.LinearOperatorDiag([1.0], is_self_adjoint=False), ValueError, "always self adjoint"),
        (lambda L: L.LinearOperatorLowerTriangular(SQUARE, is_square=False), ValueError, "Only square lower"),
        (lambda L: L.LinearOperatorIdentity(2, is_non_singular=False), ValueError, "identity operator"),
        (lambda L: L.LinearOperatorIdentity(-2), ValueError, "non-negative"),
        (lambda L: L.LinearOperatorComposition([]), ValueError, "non-empty"),
        (
            lambda L: L.LinearOperatorComposition([L.LinearOperatorDiag([1.0]), L.LinearOperatorFullMatrix(SQUARE)]),
            ValueError,
            "incompatible",
        ),
        (
            lambda L: L.LinearOperatorInversion(L.LinearOperatorFullMatrix(SQUARE), is_non_singular=False),
            ValueError,
            "is_non_singular",
        ),
    ],
)
def test_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(tf.linalg)
