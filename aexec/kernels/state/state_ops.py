"""Ref variables: ops whose output is the variable's cell, and ops that change its value.

The cell flows along ref edges; a consumer that takes it by value reads it when it runs.
Next to read: `variable_updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ContainerInfo
from aexec.kernels.common import scattering
from aexec.kernels.common.registration import INDEX
from aexec.kernels.state import variable_updates as updates
from aexec.kernels.state.variable_updates import DENSE_COST

__all__ = ["check_assigned", "initial_shape", "make_temporary_variable"]

_ON_DEVICE = (
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
    *(dtypes.int64, dtypes.uint32, dtypes.bool_),
)
_SLICED = (
    *dtypes.ALL,
    dtypes.qint8,
    dtypes.quint8,
    dtypes.qint32,
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
)
_ASSIGNED = (*dtypes.ALL, dtypes.qint8, dtypes.quint8, dtypes.quint16, dtypes.qint32)


@kernel("Variable", "VariableV2", cost=0)
@kernel("Variable", "VariableV2", device="DEFAULT", dtype=_ON_DEVICE, cost=0)
def variable(c: OpKernelConstruction) -> Compute:
    """Return the variable's cell, which the first step that uses the node makes."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    dtype, shape, name = c.attr("dtype"), c.attr("shape"), c.name
    c.need_context()
    c.in_any_thread = True

    def compute(context: OpKernelContext) -> RefCell:
        cell = context.resources.lookup_or_create(info.container, info.name, RefCell, lambda: RefCell(dtype, shape))
        if cell.dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"Output 0 of type {cell.dtype}_ref does not match declared output type {dtype}_ref "
                f"for node {{{{node {name}}}}}"
            )
        return cell

    return compute


class TemporaryVariable(RefCell):
    """The cell of a variable that lives within one step; a separate class, since resources are found by class."""

    __slots__ = ()


def _temporary_name(context: OpKernelContext, name: str) -> str:
    frame, iteration = context.frame_iter
    return f"{name}/frame:{frame}/iter:{iteration}"


@kernel("TemporaryVariable", cost=0)
@kernel("TemporaryVariable", device="DEFAULT", dtype=_ON_DEVICE, cost=0)
def temporary_variable(c: OpKernelConstruction) -> Compute:
    """Makes a variable that lives until DestroyTemporaryVariable or the end of the step; its first value is zeros."""
    make, zeros, shape = make_temporary_variable(c), scattering.zeros_of(c), c.attr("shape")
    c.need_context()

    def compute(context: OpKernelContext) -> RefCell:
        cell = make(context)
        cell.replace(np.asarray(zeros(initial_shape(shape))))
        return cell

    return compute


def make_temporary_variable(c: OpKernelConstruction) -> Callable[[OpKernelContext], RefCell]:
    """A function that makes a node's variable in a step, without a value."""
    dtype, shape, name = c.attr("dtype"), c.attr("shape"), c.text("var_name") or c.name

    def make(context: OpKernelContext) -> RefCell:
        cell = TemporaryVariable(dtype, shape)
        context.resources.create(context.step_container, _temporary_name(context, name), cell)
        return cell

    return make


def initial_shape(shape: PartialTensorShape) -> tuple[int, ...]:
    """The shape of a variable without a value: as in TensorFlow, a scalar's if none was declared."""
    return tuple(shape.as_tuple()) if shape.is_fully_defined else ()


@kernel("DestroyTemporaryVariable", cost=0)
@kernel("DestroyTemporaryVariable", device="DEFAULT", T=_ON_DEVICE, cost=0)
def destroy_temporary_variable(c: OpKernelConstruction) -> Compute:
    """Return the last value of a temporary variable, and deletes that."""
    name = c.text("var_name")
    c.need_context()

    def compute(context: OpKernelContext, cell: RefCell) -> Any:
        value = cell.value
        context.resources.delete(context.step_container, _temporary_name(context, name), TemporaryVariable)
        return value

    return compute


@kernel("IsVariableInitialized", cost=0)
@kernel("IsVariableInitialized", device="DEFAULT", dtype=_ON_DEVICE, host_memory=("is_initialized",), cost=0)
def is_variable_initialized(c: OpKernelConstruction) -> Compute:
    """Return whether the variable has a value.  Never raises."""
    return lambda cell: np.bool_(cell.value is not None)


@kernel("Assign", T=_ASSIGNED, cost=0)
def assign(c: OpKernelConstruction) -> Compute:
    """Assigns a value, whose shape must be the variable's unless `validate_shape` is false."""
    validate_shape = c.attr("validate_shape")
    c.take_list()
    c.in_any_thread = True

    def compute(context: OpKernelContext, inputs: list[Any]) -> RefCell:
        cell: RefCell = inputs[0]
        if validate_shape:
            value = cell.value
            check_assigned(initial_shape(cell.shape) if value is None else value.shape, np.shape(inputs[1]))
        cell.replace(updates.owned(inputs, 1))
        return cell

    return compute


def check_assigned(have: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise InvalidArgumentError if the assigned value does not have the variable's shape."""
    if have != given:
        raise errors.InvalidArgumentError(
            "Assign requires shapes of both tensors to match. "
            f"lhs shape= {shape_text(have)} rhs shape= {shape_text(given)}"
        )


kernel("AssignAdd", T=dtypes.NUMBER, cost=DENSE_COST)(updates.dense_update(np.add))
kernel("AssignSub", T=dtypes.NUMBER, cost=DENSE_COST)(updates.dense_update(np.subtract))
kernel("CountUpTo", T=INDEX, cost=0)(updates.count_up_to)
kernel("StridedSliceAssign", T=_SLICED, Index=INDEX, host_memory=("begin", "end", "strides"), cost=0)(
    updates.strided_slice_assign
)
for _op, _scatter in updates.SCATTERS.items():
    kernel(_op, T=_scatter.types, Tindices=INDEX, cost=updates.scatter_cost)(_scatter.build)
