"""Resource variables: a handle flows through the graph; reads and assignments use it.

A read returns the value itself, which stays unchanged: updates write in place only if nothing else holds the value.  So
DisableCopyOnRead has nothing to do.
Next to read: `variable_updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.resource_manager import (
    ContainerInfo,
    ResourceHandle,
    handle_from_tensor,
    make_handle_tensor,
)
from aexec.framework.state.resource_variable import ResourceVariable, VariableLookup
from aexec.framework.waiting.inline_call import check_inline
from aexec.kernels.array.gather_scatter_ops import gather_cost, gather_nd, gather_v2
from aexec.kernels.common.registration import INDEX
from aexec.kernels.state import variable_updates as updates
from aexec.kernels.state.variable_updates import DENSE_COST

_SMALL_FLOATS = (dtypes.float8_e5m2, dtypes.float8_e4m3fn, dtypes.float4_e2m1fn)
_ASSIGNED = (
    *dtypes.ALL,
    *(dtypes.qint8, dtypes.quint8, dtypes.qint32),
    *(dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2),
)
_SLICED = (*dtypes.ALL, dtypes.qint8, dtypes.quint8, dtypes.qint32, dtypes.float8_e5m2, dtypes.float8_e4m3fn)
_GATHERED = (*dtypes.ALL, dtypes.qint8, dtypes.quint8, dtypes.qint32)
_HELD_ON_DEVICE = (
    *(t for t in dtypes.ALL if t not in (dtypes.int32, dtypes.string, dtypes.resource)),
    *(dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2),
)


def _handle(c: OpKernelConstruction, info: ContainerInfo, dtype: dtypes.DType, shape: PartialTensorShape) -> Any:
    return make_handle_tensor(ResourceHandle.of_type(ResourceVariable, info, c.device, [(dtype, shape)]))


@kernel("VarHandleOp", cost=0)
@kernel("VarHandleOp", device="DEFAULT", host_memory=("resource",), dtype=_HELD_ON_DEVICE, cost=0)
def var_handle(c: OpKernelConstruction) -> Compute:
    """Return a handle; the first assignment makes the variable."""
    handle = _handle(c, _named(c, c.attr("container"), c.attr("shared_name")), c.attr("dtype"), c.attr("shape"))
    return lambda: handle


def _named(c: OpKernelConstruction, container: bytes, shared_name: bytes) -> ContainerInfo:
    """The name of a variable: as in TensorFlow only its shared_name counts, and all without one are the same
    variable.
    """
    info = ContainerInfo.from_attrs({"container": container, "shared_name": shared_name}, c.name)
    return info if shared_name else ContainerInfo(info.container, "")


@kernel("_VarHandlesOp", cost=0)
def var_handles(c: OpKernelConstruction) -> Compute:
    """Return several handles at once."""
    lists = [c.attr(attr) for attr in ("containers", "shared_names", "dtypes", "shapes")]
    if any(len(values) != c.attr("N") for values in lists):
        counts = ", ".join(str(len(values)) for values in lists)
        raise errors.InvalidArgumentError(
            f"Expected {c.attr('N')} containers, names, types and shapes of variables, got {counts}"
        )
    handles = tuple(
        _handle(c, _named(c, container, name), dtype, shape)
        for container, name, dtype, shape in zip(*lists, strict=True)
    )
    return lambda: handles


def _reading(dtype: dtypes.DType | None) -> Callable[[OpKernelContext, Any], Any]:
    """A function that returns the value of the variable of a handle.

    It raises FailedPreconditionError if there is none, InvalidArgumentError if the variable does not have type `dtype`.
    """
    lookup = VariableLookup()

    def read(context: OpKernelContext, handle: Any) -> Any:
        try:
            variable = lookup(context.resources, handle)
        except errors.NotFoundError as error:
            raise _no_value(handle, error.message) from None
        value = variable.value
        if value is None:
            raise _no_value(handle, "no value was assigned")
        if dtype is not None:
            updates.check_read_type(variable, dtype)
        return value

    return read


def _no_value(handle_tensor: Any, why: str) -> errors.FailedPreconditionError:
    handle = handle_from_tensor(handle_tensor, ResourceVariable)
    return errors.FailedPreconditionError(
        f"Could not find variable {handle.name}. This could mean that the variable has been deleted. "
        "In TF1, it can also mean the variable is uninitialized. "
        f"Debug info: container={handle.container}, status error message={why}"
    )


@kernel("ReadVariableOp", cost=0)
@kernel("ReadVariableOp", device="DEFAULT", host_memory=("resource",), cost=0)
def read_variable(c: OpKernelConstruction) -> Compute:
    """Return the variable's value."""
    c.need_context()
    c.in_any_thread = True
    return _reading(c.attr("dtype"))


@kernel("_ReadVariablesOp", cost=0)
@kernel("_ReadVariablesOp", device="DEFAULT", host_memory=("resources",), cost=0)
def read_variables(c: OpKernelConstruction) -> Compute:
    """Return the values of several variables."""
    if len(c.attr("dtypes")) != c.attr("N"):
        raise errors.InvalidArgumentError(f"Expected types of {c.attr('N')} variables, got {len(c.attr('dtypes'))}")
    readings = [_reading(dtype) for dtype in c.attr("dtypes")]
    c.need_context()
    c.in_any_thread = True
    return lambda context, *handles: tuple(read(context, h) for read, h in zip(readings, handles, strict=True))


@kernel("DisableCopyOnRead", cost=0)
@kernel("DisableCopyOnRead", device="DEFAULT", host_memory=("resource",), cost=0)
def disable_copy_on_read(c: OpKernelConstruction) -> Compute:
    """Does nothing, but raises if there is no such variable."""
    read = _reading(None)
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        read(context, handle)

    return compute


@kernel("AssignVariableOp", dtype=(*_ASSIGNED, *_SMALL_FLOATS), cost=0)
@kernel("AssignVariableOp", device="DEFAULT", host_memory=("resource",), dtype=_ASSIGNED, cost=0)
def assign_variable(c: OpKernelConstruction) -> Compute:
    """Assigns a value, after making the variable if necessary; with `validate_shape` the shape must not change."""
    dtype, validate_shape = c.attr("dtype"), c.attr("validate_shape")
    c.take_list()
    c.in_any_thread = True

    def compute(context: OpKernelContext, inputs: list[Any]) -> None:
        handle = handle_from_tensor(inputs[0], ResourceVariable)
        variable = context.resources.lookup_or_create(
            handle.container, handle.name, ResourceVariable, lambda: ResourceVariable(dtype)
        )
        updates.check_assigned_type(variable, dtype)
        if validate_shape:
            updates.check_assigned_shape(variable.value, inputs[1])
        variable.replace(updates.owned(inputs, 1))

    return compute


@kernel("VarIsInitializedOp", cost=0)
@kernel("VarIsInitializedOp", device="DEFAULT", host_memory=("resource", "is_initialized"), cost=0)
def var_is_initialized(c: OpKernelConstruction) -> Compute:
    """Return whether the variable exists and has a value.  Raises only for a value that is not a variable's handle."""
    c.need_context()

    def compute(context: OpKernelContext, handle_tensor: Any) -> Any:
        handle = handle_from_tensor(handle_tensor, ResourceVariable)
        found = context.resources.find(handle.container, handle.name, ResourceVariable)
        return np.bool_(found is not None and found.value is not None)

    return compute


@kernel("VariableShape", out_type=INDEX, cost=0)
@kernel("VariableShape", device="DEFAULT", out_type=INDEX, host_memory=("input", "output"), cost=0)
def variable_shape(c: OpKernelConstruction) -> Compute:
    """Return the shape of the variable's value, a vector."""
    out_type = c.output_types[0].np
    lookup = VariableLookup()
    c.need_context()
    return lambda context, handle: np.array(np.shape(lookup(context.resources, handle).value), out_type)


@kernel("DestroyResourceOp", cost=0)
@kernel("DestroyResourceOp", device="DEFAULT", host_memory=("resource",), cost=0)
def destroy_resource(c: OpKernelConstruction) -> Compute:
    """Remove the resource of any kind that the handle names."""
    ignore = c.attr("ignore_lookup_error")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> None:
        try:
            context.resources.delete_handle(handle_from_tensor(handle))
        except errors.NotFoundError:
            if not ignore:
                raise

    return compute


# Gathering, which is the kernel of plain tensors on the variable's value


def _gathered(c: OpKernelConstruction, gather: Callable[[Any, Any], Any]) -> Compute:
    lookup, dtype = VariableLookup(), c.attr("dtype")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, indices: Any) -> Any:
        variable = lookup(context.resources, handle)
        updates.check_read_type(variable, dtype)
        value = variable.value
        check_inline(gather_cost(value, indices))
        return gather(value, indices)

    return compute


@kernel("ResourceGather", dtype=_GATHERED, Tindices=INDEX, host_memory=("resource",), cost=0)
@kernel(
    "ResourceGather",
    device="DEFAULT",
    dtype=[dtypes.variant],
    Tindices=INDEX,
    host_memory=("resource", "indices"),
    cost=0,
)
def resource_gather(c: OpKernelConstruction) -> Compute:
    """Return rows of the variable; the first `batch_dims` dimensions of variable and indices correspond."""
    gather, axis = gather_v2(c), np.int64(c.attr("batch_dims"))
    return _gathered(c, lambda value, at: gather(value, at, axis))


@kernel("ResourceGatherNd", dtype=dtypes.ALL, Tindices=INDEX, host_memory=("resource",), cost=0)
def resource_gather_nd(c: OpKernelConstruction) -> Compute:
    """Return elements or slices of the variable at the index tuples in the last dimension of `indices`."""
    return _gathered(c, gather_nd(c))


# Updates

for _op, _ufunc in {"AssignAddVariableOp": np.add, "AssignSubVariableOp": np.subtract}.items():
    kernel(_op, dtype=dtypes.NUMBER, cost=DENSE_COST)(updates.dense_update(_ufunc))
    kernel(_op, device="DEFAULT", dtype=dtypes.NUMBER, host_memory=("resource",), cost=DENSE_COST)(
        updates.dense_update(_ufunc)
    )
kernel("ResourceCountUpTo", T=INDEX, cost=0)(updates.count_up_to)
kernel("ResourceStridedSliceAssign", T=_SLICED, Index=INDEX, host_memory=("ref", "begin", "end", "strides"), cost=0)(
    updates.strided_slice_assign
)
for _op, _scatter in updates.SCATTERS.items():
    _first = "ref" if "Nd" in _op else "resource"
    _attr = "T" if "Nd" in _op else "dtype"
    _types = tuple(t for t in _scatter.types if t is not dtypes.resource)
    _constraints: Any = {_attr: _types, "Tindices": INDEX}
    kernel(f"Resource{_op}", host_memory=(_first,), cost=updates.scatter_cost, **_constraints)(_scatter.build)
kernel(
    "ResourceScatterUpdate",
    device="DEFAULT",
    dtype=[dtypes.variant],
    Tindices=INDEX,
    host_memory=("resource", "indices"),
    cost=updates.scatter_cost,
)(updates.SCATTERS["ScatterUpdate"].build)
