"""Optional values: a tuple of tensors or nothing, in a variant.  Next to read: `aexec/resources/optional_value.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.tensor_buffer import dtype_of
from aexec.framework.shape import shape_text
from aexec.framework.wire import variant
from aexec.kernels.common.variants import add_tensors, boxed, is_of_type, zeros_like_tensor
from aexec.resources.optional_value import OptionalValue

__all__: list[str] = []


def _optional(tensor: Any, op: str) -> OptionalValue:
    if tensor.ndim:
        raise errors.InvalidArgumentError(
            f"Input to {op} must be a scalar tensor containing an OptionalVariant object."
        )
    value = tensor[()]
    if not isinstance(value, OptionalValue):
        raise errors.InvalidArgumentError(f"Input to {op} must be an OptionalVariant object.")
    return value


@kernel("OptionalNone", cost=0)
def optional_none(c: OpKernelConstruction) -> Compute:
    return lambda: boxed(OptionalValue())


@kernel("OptionalFromValue", cost=0)
def optional_from_value(c: OpKernelConstruction) -> Compute:
    return lambda *components: boxed(OptionalValue(components))


@kernel("OptionalHasValue", cost=0)
def optional_has_value(c: OpKernelConstruction) -> Compute:
    return lambda optional: np.bool_(_optional(optional, c.op).components is not None)


@kernel("OptionalGetValue", cost=0)
def optional_get_value(c: OpKernelConstruction) -> Compute:
    types, shapes = c.attr("output_types"), c.attr("output_shapes")
    if len(types) != len(shapes):
        raise errors.InvalidArgumentError(
            "output_types and output_shapes must be same length, got:\n"
            f"output_types: {len(types)}\noutput_shapes: {len(shapes)}"
        )

    def compute(optional: Any) -> Any:
        components = _optional(optional, c.op).components
        if components is None:
            raise errors.InvalidArgumentError("The given optional does not have a value.")
        if len(components) != len(types):
            raise errors.InvalidArgumentError(
                f"The given optional has {len(components)} components, expected {len(types)}"
            )
        for index, (component, dtype, shape) in enumerate(zip(components, types, shapes, strict=True)):
            if not is_of_type(component, dtype):
                raise errors.InvalidArgumentError(
                    f"The given optional does not match the expected type for component {index}. "
                    f"Expected: {dtype}. Actual: {dtype_of(component)}."
                )
            if not shape.is_compatible_with(component.shape):
                raise errors.InvalidArgumentError(
                    f"The given optional does not match the expected shape for component {index}. "
                    f"Expected: {shape}. Actual: {shape_text(component.shape)}."
                )
        return components if len(components) != 1 else components[0]

    return compute


# ZerosLike and AddN of optional values in variants


def _zeros_like(value: OptionalValue) -> OptionalValue:
    if value.components is None:
        return value
    return OptionalValue(tuple(map(zeros_like_tensor, value.components)))


def _add(first: OptionalValue, second: OptionalValue) -> OptionalValue:
    """The sum of the components; None if both have none."""
    if (first.components is None) != (second.components is None):
        raise errors.InvalidArgumentError("Cannot add optionals because one has a value and the other doesn't.")
    if first.components is None or second.components is None:
        return first
    if len(first.components) != len(second.components):
        raise errors.InvalidArgumentError(
            "Cannot add optionals because they have different numbers of components: "
            f"{len(first.components)} vs. {len(second.components)}."
        )
    return OptionalValue(tuple(map(add_tensors, first.components, second.components)))


variant.register_unary_op("ZEROS_LIKE", "CPU", OptionalValue, _zeros_like)
variant.register_binary_op("ADD", "CPU", OptionalValue, _add)
