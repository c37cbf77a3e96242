"""`tf.ConditionalAccumulator` and its kin: sum gradients of several workers until enough have arrived.

Next to read: `aexec/resources/accumulator.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from aexec import ops
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["ConditionalAccumulator", "ConditionalAccumulatorBase", "SparseConditionalAccumulator"]


def _long(value: Any) -> Tensor:
    return ops.cast(convert_to_tensor(value), DstT=dtypes.int64)


class ConditionalAccumulatorBase:
    """`tf.ConditionalAccumulatorBase`: the base of accumulators of dense and of sparse gradients.

    Args:
        dtype, shape: of a gradient.
        accumulator_ref: the accumulator's handle.

    Attributes:
        accumulator_ref: the accumulator's handle.
        name: the last part of the name of its node.
        dtype: the dtype of gradients.
    """

    # The ops of a kind of accumulator.
    _NUM_ACCUMULATED: ClassVar[Callable[..., Tensor]] = staticmethod(ops.resource_accumulator_num_accumulated)
    _SET_GLOBAL_STEP: ClassVar[Callable[..., Node]] = staticmethod(ops.resource_accumulator_set_global_step)

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Tensor) -> None:
        self._dtype = as_dtype(dtype)
        self._shape = PartialTensorShape.of(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.node.name.rpartition("/")[2]

    @property
    def accumulator_ref(self) -> Tensor:
        return self._accumulator_ref

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """The number of gradients applied since `take_grad` last took them, a scalar int32."""
        return self._NUM_ACCUMULATED(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Node:
        """The operation that sets the accumulator's step; gradients of earlier steps are dropped from then on."""
        return self._SET_GLOBAL_STEP(self._accumulator_ref, _long(new_global_step), name=name)


def _handle(
    make: Callable[..., Tensor], dtype: Any, shape: Any, shared_name: str | None, name: str, reduction_type: str
) -> Tensor:
    """Create an accumulator with the op `make`; return its handle."""
    return make(
        as_dtype(dtype), PartialTensorShape.of(shape), shared_name=shared_name, reduction_type=reduction_type, name=name
    )


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """`tf.ConditionalAccumulator`: accumulates dense gradients.

    Args:
        dtype, shape: of a gradient; a shape of None is unknown.
        shared_name: accumulators with the same shared name are one; by default the node's name.
        reduction_type: `"MEAN"` or `"SUM"`, the reduction that `take_grad` returns.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        make = ops.resource_conditional_accumulator
        super().__init__(dtype, shape, _handle(make, dtype, shape, shared_name, name, reduction_type))

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Node:
        """The operation that adds a gradient, or drops it if `local_step` is earlier than the accumulator's step.

        Raises:
            ValueError: the gradient's shape is incompatible with the accumulator's.
        """
        gradient = convert_to_tensor(grad, self._dtype)
        if not gradient.static_shape.is_compatible_with(self._shape):
            raise errors.InvalidValueError(f"Shapes {gradient.static_shape} and {self._shape} are incompatible")
        return ops.resource_accumulator_apply_gradient(self._accumulator_ref, _long(local_step), gradient, name=name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """The mean or sum, once `num_required` gradients were applied.

        Taking them empties the accumulator, and advances its step by 1.
        """
        taken = ops.resource_accumulator_take_gradient(self._accumulator_ref, num_required, self._dtype, name=name)
        taken.node.shapes = [self._shape]
        return taken


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """`tf.SparseConditionalAccumulator`: accumulates gradients of single rows.

    Arguments are those of `ConditionalAccumulator`.
    """

    _NUM_ACCUMULATED = staticmethod(ops.accumulator_num_accumulated)
    _SET_GLOBAL_STEP = staticmethod(ops.accumulator_set_global_step)

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        make = ops.sparse_conditional_accumulator
        super().__init__(dtype, shape, _handle(make, dtype, shape, shared_name, name, reduction_type))

    def apply_indexed_slices_grad(self, grad: IndexedSlices[Any], local_step: Any = 0, name: str | None = None) -> Node:
        """`apply_grad` for an `IndexedSlices`, as `tf.gradients` returns it."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Node:
        """The operation that adds rows, or drops them if `local_step` is earlier than the accumulator's step.

        Args:
            grad_indices: row numbers, [rows], an integer.
            grad_values: [rows, …], of the accumulator's dtype.
            grad_shape: shape of the dense gradient, or None if it is unknown.
        """
        return ops.sparse_accumulator_apply_gradient(
            self._accumulator_ref,
            _long(local_step),
            _long(grad_indices),
            convert_to_tensor(grad_values, self._dtype),
            convert_to_tensor([], dtypes.int64) if grad_shape is None else _long(grad_shape),
            has_known_shape=grad_shape is not None,
            name=name,
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """`ConditionalAccumulator.take_grad`, as row numbers (int64), rows, and the shape of the dense gradient."""
        return ops.sparse_accumulator_take_gradient(self._accumulator_ref, num_required, self._dtype, name=name)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices[Any]:
        """`take_grad` as an `IndexedSlices`."""
        indices, values, shape = self.take_grad(num_required, name)
        return IndexedSlices(values, indices, shape)
