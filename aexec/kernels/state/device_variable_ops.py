"""Ops on variables whose values are in a device's memory, in the order of its stream.

The kernels are functions from old values to new ones.  They overwrite nothing, so that a value that was read stays
unchanged, and an update that fails changes nothing.  `aexec/framework/kernel_contract/variable_use.py` finds the
values; the host's kernels are in `state_ops` and `resource_variable_ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.kernel_contract.variable_use import VariableUse
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.framework.state.resource_variable import ResourceVariable, VariableLookup
from aexec.framework.state.tensor_cell import TensorCell
from aexec.kernels.array.gather_scatter_ops import gather_nd, gather_v2
from aexec.kernels.array.slice_ops import SliceSpec, assign_slice
from aexec.kernels.common import scattering
from aexec.kernels.common.gpu.device_forms import device_form
from aexec.kernels.state import variable_updates as updates
from aexec.kernels.state.state_ops import check_assigned, initial_shape, make_temporary_variable

Found = tuple[Sequence[TensorCell], Sequence[Any]]


def _changing(c: OpKernelConstruction, wrong_type: str) -> VariableUse:
    """Return the change that a node makes to the variable that its first input refers to.

    Args:
        wrong_type: the message for a variable of another type than the node's.
    """
    if c.input_types[0].is_ref:
        return VariableUse(lambda _, inputs: (inputs[:1], inputs[1:]), (c.input_types[0].base,), num_outputs=1)
    find_variable = updates.variable_finder(c, wrong_type)

    def find(context: OpKernelContext, inputs: Sequence[Any]) -> Found:
        return [find_variable(context, inputs[0])], inputs[1:]

    return VariableUse(find, (updates.variable_type(c),))


def _reading(c: OpKernelConstruction) -> VariableUse:
    """Return the read that a node makes of the variable whose handle is its first input."""
    dtype, lookup = c.attrs.get("dtype"), VariableLookup()

    def find(context: OpKernelContext, inputs: Sequence[Any]) -> Found:
        variable = lookup(context.resources, inputs[0])
        if dtype is not None:
            updates.check_read_type(variable, dtype)
        return [variable], inputs[1:]

    return VariableUse(find)


# Assignments


@device_form("Assign", of_variables=True)
def assign(c: OpKernelConstruction) -> Compute:
    """Like the host's; a variable without a value gets one of its declared shape first."""
    validate_shape = c.attr("validate_shape")

    def find(_: OpKernelContext, inputs: Sequence[Any]) -> Found:
        return inputs[:1], inputs[1:]

    c.variables = VariableUse(find, (c.attr("T"),), 1, lambda cell: initial_shape(cell.shape))  # type: ignore[attr-defined]

    def compute(before: Any, value: Any) -> Any:
        if validate_shape and before is not None:
            check_assigned(before if isinstance(before, tuple) else before.shape, value.shape)
        return value

    return compute


@device_form("AssignVariableOp", of_variables=True)
def assign_variable(c: OpKernelConstruction) -> Compute:
    """Like the host's."""
    dtype, validate_shape = c.attr("dtype"), c.attr("validate_shape")

    def find(context: OpKernelContext, inputs: Sequence[Any]) -> Found:
        handle = handle_from_tensor(inputs[0], ResourceVariable)
        variable = context.resources.lookup_or_create(
            handle.container, handle.name, ResourceVariable, lambda: ResourceVariable(dtype)
        )
        updates.check_assigned_type(variable, dtype)
        return [variable], inputs[1:]

    c.variables = VariableUse(find, (dtype,), initial=lambda _: None)

    def compute(before: Any, value: Any) -> Any:
        if validate_shape:
            updates.check_assigned_shape(before, value)
        return value

    return compute


@device_form("TemporaryVariable", of_variables=True)
def temporary_variable(c: OpKernelConstruction) -> Compute:
    """Like the host's, with the zeros made on the device."""
    make, zeros = make_temporary_variable(c), scattering.zeros_of(c)

    def find(context: OpKernelContext, _: Sequence[Any]) -> Found:
        return [make(context)], ()

    c.variables = VariableUse(find, (c.attr("dtype"),), 1, lambda cell: initial_shape(cell.shape))  # type: ignore[attr-defined]
    return zeros


def dense_update(ufunc: str) -> Builder:
    """`variable = ufunc(variable, value)`, element by element."""

    def build(c: OpKernelConstruction) -> Compute:
        function, check = getattr(c.xp, ufunc), updates.same_shape_check(c)
        c.variables = _changing(c, updates.WRONG_TYPE)

        def compute(value: Any, delta: Any) -> Any:
            check(value, delta)
            return function(value, delta)

        return compute

    return build


def scatter(op: str) -> Builder:
    """The scatter of that name, on a copy of the variable's value."""

    def build(c: OpKernelConstruction) -> Compute:
        scattered, xp = updates.SCATTERS[op].into(c), c.xp
        c.variables = _changing(c, updates.WRONG_SCATTER_TYPE)

        def compute(value: Any, indices: Any, rows: Any) -> Any:
            out = xp.array(value)
            scattered(out, indices, rows)
            return out

        return compute

    return build


@device_form("StridedSliceAssign", "ResourceStridedSliceAssign", of_variables=True)
def strided_slice_assign(c: OpKernelConstruction) -> Compute:
    """Sets a strided slice of a copy of the variable's value to `value`, which may be broadcast."""
    spec, xp = SliceSpec(c), c.xp
    c.variables = _changing(c, updates.WRONG_SLICE_TYPE)

    def compute(before: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
        out = xp.array(before)
        assign_slice(out[spec.index(out.shape, begin, end, strides)], value)
        return out

    return compute


# Reading


@device_form("ResourceGather", of_variables=True)
def resource_gather(c: OpKernelConstruction) -> Compute:
    """Like the host's."""
    gather, axis = gather_v2(c), np.int64(c.attr("batch_dims"))
    c.variables = _reading(c)
    return lambda value, indices: gather(value, indices, axis)


@device_form("ResourceGatherNd", of_variables=True)
def resource_gather_nd(c: OpKernelConstruction) -> Compute:
    """Like the host's."""
    gather = gather_nd(c)
    c.variables = _reading(c)
    return gather


@device_form("VariableShape", of_variables=True)
def variable_shape(c: OpKernelConstruction) -> Compute:
    """Like the host's; on the device only the stream knows the shape of a value."""
    out_type = c.output_types[0].np
    c.variables = _reading(c)
    return lambda value: np.array(value.shape, out_type)


for _ufunc, _ops in {
    "add": ("AssignAdd", "AssignAddVariableOp"),
    "subtract": ("AssignSub", "AssignSubVariableOp"),
}.items():
    device_form(*_ops, of_variables=True)(dense_update(_ufunc))
for _op, _scatter in updates.SCATTERS.items():
    device_form(_op, of_variables=True, T=_scatter.device_types)(scatter(_op))
    _types: dict[str, Any] = {"T" if "Nd" in _op else "dtype": _scatter.device_types}
    device_form(f"Resource{_op}", of_variables=True, **_types)(scatter(_op))
