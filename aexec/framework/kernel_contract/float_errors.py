"""NumPy's floating-point errors, which nobody is told of while kernels run: 1/0 is inf, as in TensorFlow.

`numpy.errstate` does it at the price of two small kernels, so what runs a line of few calls does what that does,
without its bookkeeping: it sets the context variable in which NumPy keeps what to do about such errors.

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
    """The variable, and its value for such a treatment of overflows and ignoring all else: what setting it changes."""
    before, after = copy_context(), copy_context()
    after.run(np.seterr, all="ignore", over=overflow)
    ((variable, value),) = [(variable, value) for variable, value in after.items() if before.get(variable) is not value]
    return variable, value


FLOAT_ERRORS, IGNORED = _find("ignore")
OVERFLOW_RAISED = _find("raise")[1]
