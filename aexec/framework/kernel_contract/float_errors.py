"""Turns off NumPy's floating-point errors while kernels run: 1/0 is inf, as in TensorFlow.

`numpy.errstate` does the same, but costs as much as two small kernels.  So the code that runs a short line sets the
context variable in which NumPy keeps its error state, without the bookkeeping around it:

    token = FLOAT_ERRORS.set(IGNORED)
    try:
        ...
    finally:
        FLOAT_ERRORS.reset(token)

`OVERFLOW_RAISED` makes NumPy raise FloatingPointError for numbers that become infinite, and ignore all else.
"""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import Any, Literal

import numpy as np

__all__ = ["FLOAT_ERRORS", "IGNORED", "OVERFLOW_RAISED"]


def _find(overflow: Literal["ignore", "raise"]) -> tuple[ContextVar[Any], Any]:
    """NumPy's context variable, and its value for this treatment of overflows with all else ignored."""
    before, after = copy_context(), copy_context()
    after.run(np.seterr, all="ignore", over=overflow)
    ((variable, value),) = [(variable, value) for variable, value in after.items() if before.get(variable) is not value]
    return variable, value


FLOAT_ERRORS, IGNORED = _find("ignore")
OVERFLOW_RAISED = _find("raise")[1]
