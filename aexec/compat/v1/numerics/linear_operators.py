"""Linear operators of `tf.linalg`: dense, triangular, diagonal, identities, and combinations of operators.

Next to read: `linear_operator.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import broadcast_static_shape
from aexec.compat.v1.functions.linalg import adjoint as adjoint_of
from aexec.compat.v1.functions.math_ops import matmul
from aexec.compat.v1.numerics.linear_operator import COMBINATIONS, LinearOperator, eye_of
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "LinearOperator",
    "LinearOperatorAdjoint",
    "LinearOperatorComposition",
    "LinearOperatorDiag",
    "LinearOperatorFullMatrix",
    "LinearOperatorIdentity",
    "LinearOperatorInversion",
    "LinearOperatorLowerTriangular",
    "LinearOperatorScaledIdentity",
]


def _static(value: Tensor) -> TensorShape:
    return TensorShape(value.static_shape)


def _conj(value: Tensor) -> Tensor:
    return ops.conj(value) if value.dtype.is_complex else value


def _log_abs(value: Tensor) -> Tensor:
    size = ops.complex_abs(value) if value.dtype.is_complex else ops.abs(value)
    return ops.cast(ops.log(size), DstT=value.dtype.base)


def _argument(x: Tensor, adjoint: bool) -> Tensor:
    return adjoint_of(x) if adjoint else x


class LinearOperatorFullMatrix(LinearOperator):
    """`tf.linalg.LinearOperatorFullMatrix`: a tensor of matrices."""

    def __init__(
        self,
        matrix: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorFullMatrix",
    ) -> None:
        with name_scope(name):
            self.matrix = convert_to_tensor(matrix)
        super().__init__(
            self.matrix.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, is_square, name
        )

    def _shape(self) -> TensorShape:
        return _static(self.matrix)

    def _shape_tensor(self) -> Tensor:
        return ops.shape(self.matrix)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return matmul(self.matrix, x, adjoint_a=adjoint, adjoint_b=adjoint_arg)

    def _to_dense(self) -> Tensor:
        return self.matrix


class LinearOperatorLowerTriangular(LinearOperator):
    """`tf.linalg.LinearOperatorLowerTriangular`: the lower triangle of a tensor of square matrices."""

    def __init__(
        self,
        tril: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:
        if is_square is False:
            raise errors.InvalidValueError(
                "Only square lower triangular operators supported at this time. User-specified hint was `False`."
            )
        with name_scope(name):
            self.tril = ops.matrix_band_part(convert_to_tensor(tril), -1, 0)
            self._diagonal = ops.matrix_diag_part(self.tril)
        super().__init__(self.tril.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name)

    def _shape(self) -> TensorShape:
        return _static(self.tril)

    def _shape_tensor(self) -> Tensor:
        return ops.shape(self.tril)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return matmul(self.tril, x, adjoint_a=adjoint, adjoint_b=adjoint_arg)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return ops.matrix_triangular_solve(self.tril, _argument(rhs, adjoint_arg), lower=True, adjoint=adjoint)

    def _to_dense(self) -> Tensor:
        return self.tril

    def _diag_part(self) -> Tensor:
        return self._diagonal

    def _determinant(self) -> Tensor:
        return ops.prod(self._diagonal, [-1])

    def _log_abs_determinant(self) -> Tensor:
        return ops.sum(_log_abs(self._diagonal), [-1])

    def _eigvals(self) -> Tensor:
        return self._diagonal


class LinearOperatorDiag(LinearOperator):
    """`tf.linalg.LinearOperatorDiag`: square matrices by their diagonals [..., N]."""

    def __init__(
        self,
        diag: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorDiag",
    ) -> None:
        if is_square is False:
            raise errors.InvalidValueError("Only square diagonal operators currently supported.")
        with name_scope(name):
            self.diag = convert_to_tensor(diag)
        if not self.diag.dtype.is_complex:
            if is_self_adjoint is False:
                raise errors.InvalidValueError("A real diagonal operator is always self adjoint.")
            is_self_adjoint = True
        super().__init__(self.diag.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name)

    def _hints(self) -> dict[str, Any]:
        return {
            "is_non_singular": self.is_non_singular,
            "is_self_adjoint": self.is_self_adjoint,
            "is_positive_definite": self.is_positive_definite,
        }

    def _shape(self) -> TensorShape:
        diagonal = _static(self.diag)
        return diagonal.concatenate(diagonal[-1:])

    def _shape_tensor(self) -> Tensor:
        shape = ops.shape(self.diag)
        return ops.concat_v2([shape, shape[-1:]], 0)

    def _factors(self, adjoint: bool) -> Tensor:
        return ops.expand_dims(_conj(self.diag) if adjoint else self.diag, -1)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._factors(adjoint) * _argument(x, adjoint_arg)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return _argument(rhs, adjoint_arg) / self._factors(adjoint)

    def _to_dense(self) -> Tensor:
        return ops.matrix_diag(self.diag)

    def _diag_part(self) -> Tensor:
        return self.diag

    def _determinant(self) -> Tensor:
        return ops.prod(self.diag, [-1])

    def _log_abs_determinant(self) -> Tensor:
        return ops.sum(_log_abs(self.diag), [-1])

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return ops.matrix_set_diag(x, ops.matrix_diag_part(x) + self.diag)

    def _cond(self) -> Tensor:
        sizes = ops.complex_abs(self.diag) if self.dtype.is_complex else ops.abs(self.diag)
        return ops.cast(ops.max(sizes, [-1]) / ops.min(sizes, [-1]), DstT=self.dtype)

    def _eigvals(self) -> Tensor:
        return self.diag

    def _adjoint(self) -> LinearOperator:
        return self if self.is_self_adjoint else LinearOperatorDiag(_conj(self.diag), **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorDiag(ops.reciprocal(self.diag), **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorDiag(ops.sqrt(self.diag), is_self_adjoint=True, is_positive_definite=True)


class _Multiple(LinearOperator):
    """The base of scaled identities: matrices [rows, rows] that are a multiple of the identity."""

    def __init__(self, num_rows: Any, dtype: Any, *hints: Any) -> None:
        self._rows = convert_to_tensor(num_rows, dtypes.int32)
        self._static_rows = num_rows if isinstance(num_rows, int) else None
        if self._static_rows is not None and self._static_rows < 0:
            raise errors.InvalidValueError(f"Argument num_rows must be non-negative.  Found: {num_rows}")
        is_non_singular, is_self_adjoint, is_positive_definite, is_square, name = hints
        if is_square is False:
            raise errors.InvalidValueError("An identity operator is always square.")
        super().__init__(dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name)

    def _number(self) -> Tensor:
        """The factor of each identity matrix, [batch]."""
        raise NotImplementedError

    def _static_batch(self) -> TensorShape:
        return _static(self._number())

    def _shape(self) -> TensorShape:
        return self._static_batch().concatenate(TensorShape([self._static_rows] * 2))

    def _shape_tensor(self) -> Tensor:
        rows = ops.reshape(self._rows, [1])
        return ops.concat_v2([ops.shape(self._number()), rows, rows], 0)

    def _factors(self, adjoint: bool) -> Tensor:
        number = _conj(self._number()) if adjoint else self._number()
        return ops.expand_dims(ops.expand_dims(number, -1), -1)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._factors(adjoint) * _argument(x, adjoint_arg)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return _argument(rhs, adjoint_arg) / self._factors(adjoint)

    def _to_dense(self) -> Tensor:
        number = self._number()
        return self._factors(False) * eye_of(self._rows, ops.shape(number), self.dtype)

    def _diag_part(self) -> Tensor:
        number = self._number()
        shape = ops.concat_v2([ops.shape(number), ops.reshape(self._rows, [1])], 0)
        return ops.broadcast_to(ops.expand_dims(number, -1), shape)

    def _trace(self) -> Tensor:
        return self._number() * ops.cast(self._rows, DstT=self.dtype)

    def _determinant(self) -> Tensor:
        return ops.pow(self._number(), ops.cast(self._rows, DstT=self.dtype))

    def _log_abs_determinant(self) -> Tensor:
        return _log_abs(self._number()) * ops.cast(self._rows, DstT=self.dtype)

    def _cond(self) -> Tensor:
        return ops.ones_like(self._number())

    def _eigvals(self) -> Tensor:
        return self.diag_part()

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return ops.matrix_set_diag(x, ops.matrix_diag_part(x) + ops.expand_dims(self._number(), -1))


class LinearOperatorScaledIdentity(_Multiple):
    """`tf.linalg.LinearOperatorScaledIdentity`: identity matrices times numbers [...]."""

    def __init__(
        self,
        num_rows: Any,
        multiplier: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorScaledIdentity",
    ) -> None:
        with name_scope(name):
            self.multiplier = convert_to_tensor(multiplier)
            if not self.multiplier.dtype.is_complex:
                if is_self_adjoint is False:
                    raise errors.InvalidValueError("A real diagonal operator is always self adjoint.")
                is_self_adjoint = True
            hints = is_non_singular, is_self_adjoint, is_positive_definite, is_square, name
            super().__init__(num_rows, self.multiplier.dtype, *hints)

    def _number(self) -> Tensor:
        return self.multiplier

    def _again(self, multiplier: Tensor) -> LinearOperatorScaledIdentity:
        hints = self.is_non_singular, self.is_self_adjoint, self.is_positive_definite
        rows = self._rows if self._static_rows is None else self._static_rows
        return LinearOperatorScaledIdentity(rows, multiplier, *hints)

    def _adjoint(self) -> LinearOperator:
        return self if self.is_self_adjoint else self._again(_conj(self.multiplier))

    def _inverse(self) -> LinearOperator:
        return self._again(ops.reciprocal(self.multiplier))

    def _cholesky(self) -> LinearOperator:
        return self._again(ops.sqrt(self.multiplier))


class LinearOperatorIdentity(_Multiple):
    """`tf.linalg.LinearOperatorIdentity`: an identity matrix, or a batch of them."""

    def __init__(
        self,
        num_rows: Any,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool = True,
        is_self_adjoint: bool = True,
        is_positive_definite: bool = True,
        is_square: bool = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorIdentity",
    ) -> None:
        if not (is_self_adjoint and is_non_singular and is_positive_definite):
            raise errors.InvalidValueError("An identity operator is always self-adjoint, and positive definite.")
        with name_scope(name):
            kind = dtypes.as_dtype(dtype or dtypes.float32)
            batch = convert_to_tensor([] if batch_shape is None else batch_shape, dtypes.int32)
            self._ones = ops.fill(batch, ops.cast(1, DstT=kind))
            super().__init__(num_rows, kind, True, True, True, is_square, name)

    def _number(self) -> Tensor:
        return self._ones

    def _inverse(self) -> LinearOperator:
        return self

    def _cholesky(self) -> LinearOperator:
        return self


class LinearOperatorAdjoint(LinearOperator):
    """`tf.linalg.LinearOperatorAdjoint`: the conjugate transpose of another operator."""

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        self.operator = operator
        super().__init__(
            operator.dtype,
            None,
            operator.is_non_singular if is_non_singular is None else is_non_singular,
            operator.is_self_adjoint if is_self_adjoint is None else is_self_adjoint,
            operator.is_positive_definite if is_positive_definite is None else is_positive_definite,
            operator.is_square if is_square is None else is_square,
            name or f"{operator.name}_adjoint",
        )

    def _shape(self) -> TensorShape:
        ends = [self.operator.domain_dimension.value, self.operator.range_dimension.value]
        return self.operator.batch_shape.concatenate(TensorShape(ends))

    def _shape_tensor(self) -> Tensor:
        shape = self.operator.shape_tensor()
        return ops.concat_v2([shape[:-2], shape[-1:], shape[-2:-1]], 0)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator.matmul(x, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator.solve(rhs, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _to_dense(self) -> Tensor:
        return adjoint_of(self.operator.to_dense())

    def _determinant(self) -> Tensor:
        return _conj(self.operator.determinant())

    def _log_abs_determinant(self) -> Tensor:
        return self.operator.log_abs_determinant()

    def _diag_part(self) -> Tensor:
        return _conj(self.operator.diag_part())

    def _adjoint(self) -> LinearOperator:
        return self.operator


class LinearOperatorInversion(LinearOperator):
    """`tf.linalg.LinearOperatorInversion`: the inverse of another operator; multiplies by calling its `solve`."""

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        if operator.is_non_singular is False or is_non_singular is False:
            raise errors.InvalidValueError("operator and supplied hints must have `is_non_singular` as True or None.")
        self.operator = operator
        super().__init__(
            operator.dtype,
            None,
            True,
            operator.is_self_adjoint if is_self_adjoint is None else is_self_adjoint,
            operator.is_positive_definite if is_positive_definite is None else is_positive_definite,
            operator.is_square if is_square is None else is_square,
            name or f"{operator.name}_inv",
        )

    def _shape(self) -> TensorShape:
        return self.operator.shape

    def _shape_tensor(self) -> Tensor:
        return self.operator.shape_tensor()

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator.solve(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator.matmul(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _determinant(self) -> Tensor:
        return ops.reciprocal(self.operator.determinant())

    def _log_abs_determinant(self) -> Tensor:
        return -self.operator.log_abs_determinant()

    def _cond(self) -> Tensor:
        return self.operator.cond()

    def _inverse(self) -> LinearOperator:
        return self.operator


def _composed(first: LinearOperator, second: LinearOperator) -> LinearOperator:
    """The product of two operators: diagonals make a diagonal, others a composition."""
    if isinstance(first, LinearOperatorIdentity) and first.batch_shape.as_list() == []:
        return second
    if isinstance(second, LinearOperatorIdentity) and second.batch_shape.as_list() == []:
        return first
    if isinstance(first, LinearOperatorDiag) and isinstance(second, LinearOperatorDiag):
        return LinearOperatorDiag(first.diag * second.diag, first.is_non_singular and second.is_non_singular)
    return LinearOperatorComposition([first, second])


class LinearOperatorComposition(LinearOperator):
    """`tf.linalg.LinearOperatorComposition`: a product of operators, the last of which is applied first."""

    def __init__(
        self,
        operators: Sequence[LinearOperator],
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        if not operators:
            raise errors.InvalidValueError("Expected a non-empty list of operators. Found: []")
        self.operators = list(operators)
        if any(one.dtype is not operators[0].dtype for one in operators):
            raise TypeError("Expected all operators to have the same dtype.")
        for left, right in zip(self.operators, self.operators[1:], strict=False):
            inner, outer = left.domain_dimension.value, right.range_dimension.value
            if None not in (inner, outer) and inner != outer:
                raise errors.InvalidValueError(f"Operators are incompatible: {left.shape} and {right.shape}.")
        if is_non_singular is None and all(one.is_non_singular for one in operators):
            is_non_singular = True
        super().__init__(
            operators[0].dtype,
            None,
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name or "_o_".join(one.name for one in operators),
        )

    def _shape(self) -> TensorShape:
        batch = self.operators[0].batch_shape
        for one in self.operators[1:]:
            batch = TensorShape(broadcast_static_shape(batch, one.batch_shape).as_list())
        ends = [self.operators[0].range_dimension.value, self.operators[-1].domain_dimension.value]
        return batch.concatenate(TensorShape(ends))

    def _shape_tensor(self) -> Tensor:
        shapes = [one.shape_tensor() for one in self.operators]
        batch = shapes[0][:-2]
        for shape in shapes[1:]:
            batch = ops.broadcast_args(batch, shape[:-2])
        return ops.concat_v2([batch, shapes[0][-2:-1], shapes[-1][-1:]], 0)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        result = _argument(x, adjoint_arg)
        for one in self.operators if adjoint else reversed(self.operators):
            result = one.matmul(result, adjoint=adjoint)
        return result

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        result = _argument(rhs, adjoint_arg)
        for one in reversed(self.operators) if adjoint else self.operators:
            result = one.solve(result, adjoint=adjoint)
        return result

    def _determinant(self) -> Tensor:
        result = self.operators[0].determinant()
        for one in self.operators[1:]:
            result = result * one.determinant()
        return result

    def _log_abs_determinant(self) -> Tensor:
        result = self.operators[0].log_abs_determinant()
        for one in self.operators[1:]:
            result = result + one.log_abs_determinant()
        return result


COMBINATIONS.update(
    adjoint=LinearOperatorAdjoint,
    inverse=LinearOperatorInversion,
    factor=LinearOperatorLowerTriangular,
    product=_composed,
)
