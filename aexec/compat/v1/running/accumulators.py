"""`tf.ConditionalAccumulator` and its kin: gradients of several workers, taken when enough have come.

Next to read: `aexec/resources/accumulator.py`.
"""

from __future__ import annotations

from typing import Any

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
    """`tf.ConditionalAccumulatorBase`: what accumulators of dense and of sparse gradients have in common.

    Attributes:
        accumulator_ref: its handle.
        name: the last part of the name of its node.
        dtype: of its gradients.
    """

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
        """The number of gradients that were applied since the last ones were taken, int32."""
        name = name or f"{self._name}_NumAccumulated"
        return ops.resource_accumulator_num_accumulated(self._accumulator_ref, name=name)

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Node:
        """The operation that sets the accumulator's step: it drops gradients of earlier ones."""
        return ops.resource_accumulator_set_global_step(self._accumulator_ref, _long(new_global_step), name=name)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """`tf.ConditionalAccumulator`: of dense gradients.

    Args:
        reduction_type: `"MEAN"` or `"SUM"` of the gradients is taken.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = ops.resource_conditional_accumulator(
            as_dtype(dtype),
            PartialTensorShape.of(shape),
            shared_name=shared_name,
            reduction_type=reduction_type,
            name=name,
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Node:
        """The operation that adds a gradient, which is dropped if its step is earlier than the accumulator's.

        Raises:
            InvalidArgumentError: it has another shape.
        """
        gradient = convert_to_tensor(grad, self._dtype)
        if not gradient.static_shape.is_compatible_with(self._shape):
            raise errors.InvalidValueError(f"Shapes {gradient.static_shape} and {self._shape} are incompatible")
        return ops.resource_accumulator_apply_gradient(self._accumulator_ref, _long(local_step), gradient, name=name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """The mean or sum, once that many gradients were applied; begins anew at the next step."""
        taken = ops.resource_accumulator_take_gradient(self._accumulator_ref, num_required, self._dtype, name=name)
        taken.node.shapes = [self._shape]
        return taken


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """`tf.SparseConditionalAccumulator`: of gradients of some rows.  Arguments as of `ConditionalAccumulator`."""

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = ops.sparse_conditional_accumulator(
            as_dtype(dtype),
            PartialTensorShape.of(shape),
            shared_name=shared_name,
            reduction_type=reduction_type,
            name=name,
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(self, grad: IndexedSlices[Any], local_step: Any = 0, name: str | None = None) -> Node:
        """The operation that adds a gradient of `tf.gradients`."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Node:
        """The operation that adds rows, which are dropped if their step is earlier than the accumulator's.

        Args:
            grad_indices: [rows], numbers of the rows.
            grad_values: [rows, ...], the rows.
            grad_shape: of the whole gradient, or None.
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
        """Indices, values and shape of the mean or sum, once that many gradients were applied."""
        return ops.sparse_accumulator_take_gradient(self._accumulator_ref, num_required, self._dtype, name=name)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices[Any]:
        """The mean or sum, as `tf.gradients` gives gradients of rows."""
        indices, values, shape = self.take_grad(num_required, name)
        return IndexedSlices(values, indices, shape)

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """The number of gradients that were applied since the last ones were taken, int32."""
        return ops.accumulator_num_accumulated(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Node:
        """The operation that sets the accumulator's step: it drops gradients of earlier ones."""
        return ops.accumulator_set_global_step(self._accumulator_ref, _long(new_global_step), name=name)
