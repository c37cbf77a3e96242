"""`LateContext`: what kernels are given in a run that has no step.

Most kernels that take a context look up a variable or a table in it, and nothing else.  A run of a short line therefore
begins without a step, and the first kernel that asks for more has it made (`session/session_steps.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.state.resource_manager import ResourceManager
from aexec.runtime.interpreter.execution import Execution

__all__ = ["LateContext"]

_OF_STEP = frozenset(OpKernelContext.__slots__) - {"resources"}


class LateContext(OpKernelContext):
    """The context of a run without a step, until a kernel asks for anything of its step.

    Args:
        resources: the session's resource manager.
        execution: makes the run's step and returns the step's execution; called once at most.
    """

    __slots__ = ("_make_execution",)

    def __init__(self, resources: ResourceManager, execution: Callable[[], Execution]) -> None:
        self.resources = resources
        self._make_execution = execution

    def __getattr__(self, name: str) -> Any:
        # Called for a slot without a value: the slots of a step have one once it is made.
        if name not in _OF_STEP:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        execution = self._make_execution()
        OpKernelContext.__init__(self, execution.environment, execution=execution)
        return getattr(self, name)
