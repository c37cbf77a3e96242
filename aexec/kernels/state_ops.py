"""Ref variables: ops whose output is the variable's cell, and ops that assign to it.

An assignment replaces the cell's array and never writes into it, so a value that was
read, fed or fetched before stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.ref_cell import RefCell, frozen
from aexec.framework.resource_manager import ContainerInfo
from aexec.framework.shape import shape_text


@kernel("Variable", "VariableV2", cost=0)
def variable(c: OpKernelConstruction) -> Any:
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    dtype, shape = c.attr("dtype"), c.attr("shape")
    c.need_context()

    def compute(context: Any) -> Any:
        return context.resources.lookup_or_create(info.container, info.name, RefCell, lambda: RefCell(dtype, shape))

    return compute


@kernel("IsVariableInitialized", cost=0)
def is_variable_initialized(c: OpKernelConstruction) -> Any:
    return lambda cell: np.bool_(cell.value is not None)


@kernel("Assign", cost=0)
def assign(c: OpKernelConstruction) -> Any:
    validate_shape = c.attr("validate_shape")

    def compute(cell: RefCell, value: Any) -> RefCell:
        if validate_shape and not cell.shape.is_compatible_with(np.shape(value)):
            raise errors.InvalidArgumentError(
                "Assign requires shapes of both tensors to match. "
                f"lhs shape= {cell.shape} rhs shape= {shape_text(np.shape(value))}"
            )
        cell.value = frozen(np.array(value))
        return cell

    return compute


def _update(op: Callable[[Any, Any], Any]) -> Callable[[OpKernelConstruction], Any]:
    def build(c: OpKernelConstruction) -> Any:
        def compute(cell: RefCell, delta: Any) -> RefCell:
            current = cell.value
            if current.shape != np.shape(delta):
                raise errors.InvalidArgumentError(
                    f"{c.op} requires shapes of both tensors to match. "
                    f"lhs shape= {shape_text(current.shape)} rhs shape= {shape_text(np.shape(delta))}"
                )
            cell.value = frozen(np.asarray(op(current, delta)))
            return cell

        return compute

    return build


kernel("AssignAdd", cost=0, T=dtypes.NUMBER)(_update(np.add))
kernel("AssignSub", cost=0, T=dtypes.NUMBER)(_update(np.subtract))
