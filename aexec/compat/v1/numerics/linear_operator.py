"""`LinearOperator`: the base of operators that act like a matrix, or a batch, without storing all its elements.

A subclass defines `_shape`, `_shape_tensor` and `_matmul`, as in TensorFlow.  The other methods, such as `_solve`,
`_determinant` and `_trace`, use the dense matrix unless a subclass overrides them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.linalg import adjoint as adjoint_of
from aexec.compat.v1.functions.linalg import logdet
from aexec.compat.v1.numerics.matrices import cholesky_solve
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["COMBINATIONS", "LinearOperator", "eye_of"]

# Constructors of adjoints, inverses, Cholesky factors and products.  `linear_operators.py`, which imports this module,
# registers its classes here.
COMBINATIONS: dict[str, Callable[..., LinearOperator]] = {}


def _combined(kind: str, *parts: Any, **hints: Any) -> LinearOperator:
    return COMBINATIONS[kind](*parts, **hints)


def _broadcast_batches(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors of matrices whose batch shapes, if they differ, are broadcast to a common one."""
    one, other = TensorShape(first.static_shape), TensorShape(second.static_shape)
    known = one.is_fully_defined() and other.is_fully_defined()
    if known and one.as_list()[:-2] == other.as_list()[:-2]:
        return first, second
    shapes = [ops.shape(value) for value in (first, second)]
    batch = ops.broadcast_args(shapes[0][:-2], shapes[1][:-2])
    wholes = [ops.concat_v2([batch, shape[-2:]], 0) for shape in shapes]
    return ops.broadcast_to(first, wholes[0]), ops.broadcast_to(second, wholes[1])


def eye_of(rows: Any, batch: Any, dtype: Any) -> Tensor:
    """Identity matrices [*batch, rows, rows], given a number or scalar tensor and a vector."""
    ones = ops.fill(ops.concat_v2([batch, ops.reshape(rows, [1])], 0), ops.cast(1, DstT=dtype))
    return ops.matrix_diag(ones)


class LinearOperator:
    """`tf.linalg.LinearOperator`: acts like a matrix [..., M, N].

    Hints such as `is_self_adjoint` are not checked; they decide which algorithm solves equations.
    """

    def __init__(
        self,
        dtype: Any,
        graph_parents: Any = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if is_positive_definite:
            if is_non_singular is False:
                raise errors.InvalidValueError("A positive definite matrix is always non-singular.")
            is_non_singular = True
        if is_non_singular or is_self_adjoint:
            if is_square is False:
                raise errors.InvalidValueError("A non-singular or self-adjoint matrix is always square.")
            is_square = True
        self.dtype = dtypes.as_dtype(dtype).base
        self.graph_parents = list(graph_parents or ())
        self.parameters = dict(parameters or {})
        self.is_non_singular = is_non_singular
        self.is_self_adjoint = is_self_adjoint
        self.is_positive_definite = is_positive_definite
        self._is_square = is_square
        self.name = name or type(self).__name__

    # Defined by subclasses

    def _shape(self) -> TensorShape:
        raise NotImplementedError("_shape is not implemented.")

    def _shape_tensor(self) -> Tensor:
        raise NotImplementedError("_shape_tensor is not implemented.")

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        raise NotImplementedError("_matmul is not implemented.")

    def _to_dense(self) -> Tensor:
        shape = self.shape_tensor()
        dense: Tensor = self.matmul(eye_of(shape[-1], shape[:-2], self.dtype))
        return dense

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        right = adjoint_of(rhs) if adjoint_arg else rhs
        dense, right = _broadcast_batches(self.to_dense(), right)
        if self._has_cholesky:
            return cholesky_solve(ops.cholesky(dense), right)
        return ops.matrix_solve(dense, right, adjoint=adjoint)

    def _determinant(self) -> Tensor:
        if self._has_cholesky:
            return ops.exp(self.log_abs_determinant())
        return ops.matrix_determinant(self.to_dense())

    def _log_abs_determinant(self) -> Tensor:
        if self._has_cholesky:
            return logdet(self.to_dense())
        return ops.log_matrix_determinant(self.to_dense())[1]

    def _diag_part(self) -> Tensor:
        return ops.matrix_diag_part(self.to_dense())

    def _trace(self) -> Tensor:
        return ops.sum(self.diag_part(), [-1])

    def _cond(self) -> Tensor:
        values = ops.svd(self.to_dense(), compute_uv=False)[0]
        return ops.max(values, [-1]) / ops.min(values, [-1])

    def _eigvals(self) -> Tensor:
        if not self.is_self_adjoint:
            raise NotImplementedError("Only self-adjoint matrices are supported.")
        return ops.self_adjoint_eig_v2(self.to_dense(), compute_v=False)[0]

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return self.to_dense() + x

    def _adjoint(self) -> LinearOperator:
        return self if self.is_self_adjoint else _combined("adjoint", self)

    def _inverse(self) -> LinearOperator:
        return _combined("inverse", self)

    def _cholesky(self) -> LinearOperator:
        return _combined("factor", ops.cholesky(self.to_dense()), is_non_singular=True, is_square=True)

    @property
    def _has_cholesky(self) -> bool:
        return bool(self.is_self_adjoint and self.is_positive_definite)

    # Shapes

    @property
    def shape(self) -> TensorShape:
        """The static shape [..., M, N]."""
        return self._shape()

    @property
    def batch_shape(self) -> TensorShape:
        """The static shape of the batch."""
        return TensorShape(self.shape[:-2])

    @property
    def tensor_rank(self) -> int | None:
        """The rank of the dense tensor."""
        return self.shape.ndims

    @property
    def range_dimension(self) -> Any:
        """M."""
        return self.shape[-2]

    @property
    def domain_dimension(self) -> Any:
        """N."""
        return self.shape[-1]

    @property
    def is_square(self) -> bool | None:
        """Whether M is N; None if that is not known."""
        rows, columns = self.range_dimension.value, self.domain_dimension.value
        return self._is_square if rows is None or columns is None else rows == columns

    def shape_tensor(self, name: str = "shape_tensor") -> Tensor:
        """The shape, a vector."""
        with name_scope(name):
            shape = self.shape
            if shape.is_fully_defined():
                return convert_to_tensor(shape.as_list(), dtypes.int32)
            return self._shape_tensor()

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """The shape of the batch, a vector."""
        return self.shape_tensor(name)[:-2]

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Tensor:
        """The rank of the dense tensor, a scalar."""
        return ops.size(self.shape_tensor(name))

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Tensor:
        """M, a scalar."""
        return self.shape_tensor(name)[-2]

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Tensor:
        """N, a scalar."""
        return self.shape_tensor(name)[-1]

    # Products and equations

    def _of(self, value: Any) -> Tensor:
        found = convert_to_tensor(value, self.dtype if not isinstance(value, Tensor) else None)
        if found.dtype.base is not self.dtype:
            raise TypeError(f"Expected argument to have dtype {self.dtype}. Found: {found.dtype}")
        return found

    def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> Any:
        """A x, or A^H x; another operator as `x` makes a composition."""
        with name_scope(name):
            if isinstance(x, LinearOperator):
                return _combined("product", self.adjoint() if adjoint else self, x.adjoint() if adjoint_arg else x)
            return self._matmul(self._of(x), adjoint=adjoint, adjoint_arg=adjoint_arg)

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other)

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> Tensor:
        """A x of vectors x [..., N]."""
        with name_scope(name):
            column = ops.expand_dims(self._of(x), -1)
            return ops.squeeze(self.matmul(column, adjoint=adjoint), squeeze_dims=[-1])

    def _check_solvable(self) -> None:
        if self.is_non_singular is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to be singular.")
        if self.is_square is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to not be square.")

    def solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> Any:
        """The x with A x = rhs, or A^H x = rhs; another operator as `rhs` makes a composition."""
        self._check_solvable()
        with name_scope(name):
            if isinstance(rhs, LinearOperator):
                left = self.adjoint() if adjoint else self
                return left.inverse().matmul(rhs.adjoint() if adjoint_arg else rhs)
            return self._solve(self._of(rhs), adjoint=adjoint, adjoint_arg=adjoint_arg)

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> Tensor:
        """The x with A x = rhs of vectors rhs [..., M]."""
        self._check_solvable()
        with name_scope(name):
            column = ops.expand_dims(self._of(rhs), -1)
            return ops.squeeze(self.solve(column, adjoint=adjoint), squeeze_dims=[-1])

    # Other operators

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """The conjugate transpose."""
        with name_scope(name):
            return self._adjoint()

    @property
    def H(self) -> LinearOperator:  # noqa: N802  (TensorFlow's name)
        """The conjugate transpose."""
        return self.adjoint()

    def inverse(self, name: str = "inverse") -> LinearOperator:
        """The inverse."""
        if self.is_square is False:
            raise errors.InvalidValueError("Cannot take the Inverse: This operator represents a non square matrix.")
        if self.is_non_singular is False:
            raise errors.InvalidValueError("Cannot take the Inverse: This operator represents a singular matrix.")
        with name_scope(name):
            return self._inverse()

    def cholesky(self, name: str = "cholesky") -> LinearOperator:
        """The lower Cholesky factor; needs the hints that the operator is positive definite and self-adjoint."""
        if not self._has_cholesky:
            raise errors.InvalidValueError(
                "Cannot take the Cholesky decomposition: Not a positive definite self adjoint matrix."
            )
        with name_scope(name):
            return self._cholesky()

    # Numbers

    def _check_square(self, what: str) -> None:
        if self.is_square is False:
            raise NotImplementedError(f"{what} not implemented for an operator that is expected to not be square.")

    def to_dense(self, name: str = "to_dense") -> Tensor:
        """The matrix as a tensor [..., M, N]."""
        with name_scope(name):
            return self._to_dense()

    def determinant(self, name: str = "det") -> Tensor:
        """The determinants [...]."""
        self._check_square("Determinant")
        with name_scope(name):
            return self._determinant()

    def log_abs_determinant(self, name: str = "log_abs_det") -> Tensor:
        """The logarithms of the determinants' absolute values."""
        self._check_square("Determinant")
        with name_scope(name):
            return self._log_abs_determinant()

    def diag_part(self, name: str = "diag_part") -> Tensor:
        """The diagonals [..., min(M, N)]."""
        with name_scope(name):
            return self._diag_part()

    def trace(self, name: str = "trace") -> Tensor:
        """The sums of the diagonals."""
        with name_scope(name):
            return self._trace()

    def cond(self, name: str = "cond") -> Tensor:
        """The condition numbers: largest singular values by smallest."""
        with name_scope(name):
            return self._cond()

    def eigvals(self, name: str = "eigvals") -> Tensor:
        """The eigenvalues of a self-adjoint operator, ascending."""
        with name_scope(name):
            return self._eigvals()

    def add_to_tensor(self, x: Any, name: str = "add_to_tensor") -> Tensor:
        """The sum of the matrix and a tensor."""
        with name_scope(name):
            return self._add_to_tensor(self._of(x))
