"""Arithmetic of scalars in compiled plans: Python's operators add and compare a loop's counters.

    if type(m0) is int32:
        v6 = m0 + k2s
    else:
        v6 = c6(m0, k2)  # add (AddV2)

Such an operation takes 20 to 40 ns with NumPy's scalars, and 500 ns with NumPy's functions, which are made for arrays;
the results have the same bits and type.  Whether a value is a scalar is known only when the line runs, so the line
tests it.  The test pays off only in loops, where integers and booleans are mostly counters and conditions; floats are
tested if they enter the loop as scalars.
Next to read: `line_writer.py`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.runtime.compiled.line_layout import LineLayout
from aexec.runtime.plans.blocks import Item, Loop
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["Scalars"]

_ARITHMETIC: dict[Any, str] = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
    np.equal: "==",
    np.not_equal: "!=",
}
_LOGIC: dict[Any, str] = {np.logical_and: "&", np.logical_or: "|"}
_INTEGERS = (dtypes.int32, dtypes.int64)
_FLOATS = (dtypes.float32, dtypes.float64)


class Scalars:
    """Finds the calls of a line that Python's operators can make.

    Args:
        once: the nodes that run only in the first iteration of their loop.
        namespace: the line's global variables; types and constants that the operators need are added to it.

    Attributes:
        variables: the variables that enter their loop as a scalar; the writer adds them.
    """

    def __init__(self, layout: LineLayout, once: Container[Item], namespace: dict[str, Any]) -> None:
        self.variables: set[str] = set()
        self._layout = layout
        self._once = once
        self._namespace = namespace

    def operation(self, node: PlanNode) -> tuple[str, str] | None:
        """Return the condition for using an operator, and the operation, as expressions; None if none can be used."""
        operands = self._operands(node)
        tests = [f"type({name}) is t_{number_type}" for name, number_type in operands if number_type]
        if not tests:
            return None
        left, right = (name for name, _ in operands)
        return " and ".join(dict.fromkeys(tests)), f"{left} {_operator_of(node)} {right}"

    def _operands(self, node: PlanNode) -> list[tuple[str, str]]:
        """Return the operands of a call if they may be scalars.

        Each is a name with the type that a scalar of it has, or with "" for a constant.
        """
        layout = self._layout
        if node.calls is not None or node in layout.lists or node in self._once or _operator_of(node) is None:
            return []
        if layout.name((node, 0)) in layout.listed:
            return []
        dtype = node.node.input_types[0]
        number_type = dtype.np.type.__name__
        operands = []
        for name in layout.inputs(node):
            if name in layout.constants:
                if layout.constants[name].ndim:
                    return []
                operands.append((self.unboxed(name), ""))
            elif dtype in _FLOATS and name not in self.variables:
                return []
            else:
                operands.append((f"u_{name}" if f"u_{name}" in self.variables else name, number_type))
        self._namespace[f"t_{number_type}"] = dtype.np.type
        return operands

    def unboxed(self, name: str) -> str:
        """Return the name of a constant array of no dimension as NumPy's scalar, `k…s`; any other name unchanged."""
        value = self._layout.constants.get(name)
        if not isinstance(value, np.ndarray) or value.ndim or value.dtype.kind not in "biuf":
            return name
        self._namespace[f"{name}s"] = value[()]
        return f"{name}s"

    def feeds_of(self, loop: Loop) -> list[str]:
        """Return the feeds that a loop counts with or compares: these may be arrays of no dimension."""
        nodes = (item for block in (loop.cond, loop.body) for item in block.items if isinstance(item, PlanNode))
        operands = dict.fromkeys(name for node in nodes for name, _ in self._operands(node))
        return [name for name in operands if name in self._layout.feeds.values()]


def _operator_of(node: PlanNode) -> str | None:
    """Return Python's operator for a node on scalars; None if none gives the same result."""
    if not isinstance(node.compute, np.ufunc) or node.kind not in (Kind.PLAIN, Kind.KERNEL) or not node.trusted:
        return None
    if node.num_outputs != 1 or node.gives_tuple or node.last - node.first != 2:
        return None
    dtype = node.node.input_types[0]
    if dtype is dtypes.bool_:
        return _LOGIC.get(node.compute)
    return _ARITHMETIC.get(node.compute) if dtype in _INTEGERS or dtype in _FLOATS else None
