"""Resource variables: a handle flows through the graph, reads and assignments go through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.ref_cell import frozen
from aexec.framework.resource_manager import ContainerInfo, ResourceHandle, handle_from_tensor, make_handle_tensor
from aexec.framework.resource_variable import ResourceVariable
from aexec.framework.shape import UNKNOWN_RANK, shape_text


@kernel("VarHandleOp", cost=0)
def var_handle(c: OpKernelConstruction) -> Any:
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    handle = make_handle_tensor(
        ResourceHandle(
            device=c.device,
            container=info.container,
            name=info.name,
            type_name="Var",
            dtypes_and_shapes=((c.attr("dtype"), c.attr("shape")),),
        )
    )
    return lambda: handle


def _find(context: Any, handle_tensor: Any) -> ResourceVariable | None:
    handle = handle_from_tensor(handle_tensor)
    found = context.resources.find(handle.container, handle.name, ResourceVariable)
    return found if found is not None and found.value is not None else None


def _missing(handle_tensor: Any) -> errors.FailedPreconditionError:
    name = handle_from_tensor(handle_tensor).name
    return errors.FailedPreconditionError(
        f"Could not find variable {name}. This could mean that the variable has been deleted. "
        "In TF1, it can also mean the variable is uninitialized."
    )


@kernel("ReadVariableOp", cost=0)
def read_variable(c: OpKernelConstruction) -> Any:
    dtype = c.attr("dtype")
    c.need_context()

    def compute(context: Any, handle: Any) -> Any:
        variable = _find(context, handle)
        if variable is None:
            raise _missing(handle)
        if variable.dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"Trying to read variable with wrong dtype. Expected {dtype} got {variable.dtype}"
            )
        return variable.value

    return compute


@kernel("AssignVariableOp", cost=0)
def assign_variable(c: OpKernelConstruction) -> Any:
    dtype, validate_shape = c.attr("dtype"), c.attr("validate_shape")
    c.need_context()

    def compute(context: Any, handle_tensor: Any, value: Any) -> None:
        handle = handle_from_tensor(handle_tensor)
        variable = context.resources.lookup_or_create(
            handle.container, handle.name, ResourceVariable, lambda: ResourceVariable(dtype)
        )
        if variable.dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"Trying to assign variable with wrong dtype. Expected {variable.dtype} got {dtype}"
            )
        declared = handle.dtypes_and_shapes[0][1] if handle.dtypes_and_shapes else UNKNOWN_RANK
        if validate_shape and not declared.is_compatible_with(np.shape(value)):
            raise errors.InvalidArgumentError(
                "Trying to assign to variable with tensor with wrong shape. "
                f"Expected {declared} got {shape_text(np.shape(value))}"
            )
        # A copy: the caller may go on writing to what was fed.
        variable.value = frozen(np.array(value))

    return compute


def _update(op: Callable[[Any, Any], Any]) -> Callable[[OpKernelConstruction], Any]:
    def build(c: OpKernelConstruction) -> Any:
        c.need_context()

        def compute(context: Any, handle: Any, delta: Any) -> None:
            variable = _find(context, handle)
            if variable is None:
                raise _missing(handle)
            if variable.value.shape != np.shape(delta):
                raise errors.InvalidArgumentError(
                    f"Cannot update variable with shape {shape_text(variable.value.shape)} using a Tensor "
                    f"with shape {shape_text(np.shape(delta))}, shapes must be equal."
                )
            variable.value = frozen(np.asarray(op(variable.value, delta)))

        return compute

    return build


kernel("AssignAddVariableOp", cost=0, dtype=dtypes.NUMBER)(_update(np.add))
kernel("AssignSubVariableOp", cost=0, dtype=dtypes.NUMBER)(_update(np.subtract))


@kernel("VarIsInitializedOp", cost=0)
def var_is_initialized(c: OpKernelConstruction) -> Any:
    c.need_context()
    return lambda context, handle: np.bool_(_find(context, handle) is not None)


@kernel("VariableShape", cost=0)
def variable_shape(c: OpKernelConstruction) -> Any:
    out = c.output_types[0].np
    c.need_context()

    def compute(context: Any, handle: Any) -> Any:
        variable = _find(context, handle)
        if variable is None:
            raise _missing(handle)
        return np.array(variable.value.shape, out)

    return compute


@kernel("DestroyResourceOp", cost=0)
def destroy_resource(c: OpKernelConstruction) -> Any:
    ignore = c.attr("ignore_lookup_error")
    c.need_context()

    def compute(context: Any, handle_tensor: Any) -> None:
        handle = handle_from_tensor(handle_tensor)
        try:
            context.resources.delete(handle.container, handle.name, ResourceVariable)
        except errors.NotFoundError:
            if not ignore:
                raise

    return compute
