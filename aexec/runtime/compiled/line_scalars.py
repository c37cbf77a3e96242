"""Arithmetic of scalars in compiled plans: a loop's counters are added and compared by Python's operators.

    if type(m0) is int32:
        v6 = m0 + k2s
    else:
        v6 = c6(m0, k2)  # add (AddV2)

NumPy's scalars take 20 to 40 ns for what its functions, which are made for arrays, take 500 for; the answers are the
same bits, of the same type.  That a value is a scalar cannot be known before, but tested.  Only in loops is it worth
that: integers and truths there are likely counters and conditions; of floats it is said of those that begin as one.
Next to read: `line_writer.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["FLOATS", "operator_of"]

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
FLOATS = (dtypes.float32, dtypes.float64)


def operator_of(node: PlanNode) -> str | None:
    """Python's operator for what a node does to scalars; None if there is none that gives the same."""
    if not isinstance(node.compute, np.ufunc) or node.kind not in (Kind.PLAIN, Kind.KERNEL) or not node.trusted:
        return None
    if node.num_outputs != 1 or node.gives_tuple or node.last - node.first != 2:
        return None
    dtype = node.node.input_types[0]
    if dtype is dtypes.bool_:
        return _LOGIC.get(node.compute)
    return _ARITHMETIC.get(node.compute) if dtype in _INTEGERS or dtype in FLOATS else None
