"""Checks that a kernel's outputs are what its op declares.

A node's outputs are checked when it first runs in a plan, and with AEXEC_DEBUG each time: a kernel whose first outputs
are right is nearly always right, and the check takes as long as a small kernel.  Next to read:
`interpreter/propagator_state.py`, which calls it.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType, from_numpy
from aexec.framework.state.tensor_cell import TensorCell
from aexec.runtime.plans.plan import PlanNode

__all__ = ["check_outputs"]


def check_outputs(node: PlanNode, out: Any) -> None:
    """Compare number, type and dtype of a kernel's outputs with the op's.

    Args:
        node: the kernel's node.
        out: the kernel's result: an array, a tuple with one for each output, or None.

    Raises:
        InternalError: they differ; it names node and op, the output, what was declared and what came.
    """
    types = node.node.output_types
    outputs = out if type(out) is tuple else () if out is None and not types else (out,)
    # The result of a kernel without outputs is ignored: many return that of their last call.
    if len(outputs) != len(types) and types:
        raise errors.InternalError(
            f"Kernel of {{{{node {node.name}}}}} ({node.op}) returned {len(outputs)} outputs, expected {len(types)}"
        )
    for slot, (value, dtype) in enumerate(zip(outputs, types, strict=False)):
        _check_output(node, slot, value, dtype)


def _check_output(node: PlanNode, slot: int, value: Any, dtype: DType) -> None:
    if value is None:
        raise errors.InternalError(f"Missing {slot}-th output from {{{{node {node.name}}}}}")
    if isinstance(value, TensorCell):  # of a variable, which Identity passes on too
        found: Any = value.dtype.base
        if found is dtype.base:
            return
    else:
        found = getattr(value, "dtype", None)
        if found == dtype.np and not dtype.is_ref and hasattr(value, "size"):
            return
        found = _described(value, found)
    raise errors.InternalError(
        f"Output {slot} of type {found} does not match declared output type {dtype} "
        f"for node {{{{node {node.name}}}}} ({node.op})"
    )


def _described(value: Any, dtype: Any) -> str:
    """The type of an output for people: an array's element type, otherwise the Python type."""
    if dtype is None:
        return f"{type(value).__module__}.{type(value).__name__} (no array)"
    try:
        known = from_numpy(dtype)
    except (errors.OpError, AttributeError):
        return str(dtype)
    return known.wire_name if known.np == dtype else str(dtype)  # text of fixed width, or another byte order
