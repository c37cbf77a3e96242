"""Describes, for an executor, which functions a kernel calls and when, and how the kernel continues in the middle.

A compiled plan uses it to write the call as Python: `if`, `while`, or a call of the function's own line.
Next to read: `aexec/kernels/control_flow/functional_ops.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.late_dataclass import dataclass

__all__ = ["CallKind", "FunctionalCall", "Running"]

# Awaited for the results of a function that runs.
Running = Awaitable[Sequence[Any]]


class CallKind(enum.Enum):
    """When a kernel calls its functions."""

    CALL = "the only one, once, with all inputs"
    IF = "the first if the first input is true, or else the second, with the other inputs"
    WHILE = "the first to ask whether to go on, the second for the next values"


@dataclass(frozen=True, slots=True)
class FunctionalCall:
    """How a kernel calls functions.

    Attributes:
        functions: see `aexec.runtime.functions.functions.Function`.
        go_on: `go_on(context, values, number, running)` does the rest of the kernel's work while the function of that
            number runs; `values` are those of a WHILE in this iteration.
    """

    kind: CallKind
    functions: tuple[Any, ...]
    go_on: Callable[[OpKernelContext, Sequence[Any], int, Running], Coroutine[Any, Any, Any]]
