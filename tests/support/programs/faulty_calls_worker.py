"""`extreme_calls_worker` with a fault in a kernel, which the tests that make extreme calls have to find.

`python -m tests.support.programs.faulty_calls_worker FAULT OP`; a fault is one of `FAULTS`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from tests.support.programs import extreme_calls_worker

__all__ = ["FAULTS"]

_HELD = 0.04


def _set(registration: KernelRegistration, name: str, value: Any) -> None:
    object.__setattr__(registration, name, value)


def _without_cost(op: str) -> None:
    """Its calls are taken to be as cheap as views."""
    for registration in kernel_registry.global_registry.kernels_of(op):
        _set(registration, "cost", 0)


def _without_scratch(op: str) -> None:
    """The memory that its calls need for themselves is not announced."""
    for registration in kernel_registry.global_registry.kernels_of(op):
        _set(registration, "scratch", 0.0)


def _holding(op: str) -> None:
    """Each call computes on the event loop for 40 ms more."""
    for registration in kernel_registry.global_registry.kernels_of(op):
        _set(registration, "builder", _slow(registration.builder))


def _slow(builder: Callable[[OpKernelConstruction], Any]) -> Callable[[OpKernelConstruction], Any]:
    return lambda c: _slowed(builder(c))


def _slowed(compute: Callable[..., Any]) -> Callable[..., Any]:
    def slowed(*inputs: Any, **out: Any) -> Any:
        until = time.thread_time() + _HELD
        while time.thread_time() < until:
            pass
        return compute(*inputs, **out)

    return slowed


FAULTS = {"without cost": _without_cost, "without scratch": _without_scratch, "holding": _holding}


if __name__ == "__main__":
    FAULTS[sys.argv[1]](sys.argv[2])
    extreme_calls_worker.main()
