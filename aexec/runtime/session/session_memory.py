"""`SessionMemory`: the memory limits of a session: its account, its expectations, and the accountants of its steps.

A session in process has one, as has each task of a session across machines.  Next to read:
`interpreter/memory_accountant.py`.
"""

from __future__ import annotations

from functools import partial

from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.state.resource_manager import ResourceManager
from aexec.runtime.config import SessionConfig
from aexec.runtime.interpreter.memory_accountant import EXACT_BELOW, Expectations, MemoryAccountant, StepMemory
from aexec.runtime.profiling.tracing import StepTracer, Tracer

__all__ = ["SessionMemory"]


class SessionMemory:
    """A session's memory account, and the accountants of its steps.

    Args:
        config: the settings with the limits.

    Attributes:
        account: the session's account; None if no limit is set.
        is_exact: True if the memory of each kernel call is counted.
        kept: counts the bytes that the session's resources keep; if each call is counted, only what they take besides
            arrays.  None if no limit is set.
        kept_between_steps: counts the bytes that iterators keep, which no step sees; None if no limit is set.
    """

    def __init__(self, config: SessionConfig) -> None:
        self._step_bytes = config.step_bytes
        limits = [most for most in (config.step_bytes, config.session_bytes) if most is not None]
        around = config.memory_account
        self.account = (
            MemoryAccount("session", "SessionConfig.session_bytes", config.session_bytes, around)
            if limits or around is not None
            else None
        )
        self._expectations = None if self.account is None else Expectations()
        self.is_exact = bool(limits) and min(limits) < EXACT_BELOW
        self.kept = None if self.account is None else KeptMemory(self.account, arrays=not self.is_exact)
        self.kept_between_steps = KeptMemory(self.account) if self.is_exact and self.account is not None else self.kept

    def close(self) -> None:
        """Called when the session has closed: stop counting."""
        for kept in (self.kept, self.kept_between_steps):
            if kept is not None:
                kept.close()
        if self._expectations is not None:
            self._expectations.clear()

    def watches(
        self, step_id: int, resources: ResourceManager, device: str, *, trace: bool, report: bool
    ) -> tuple[StepMemory | None, StepTracer | None]:
        """Return the accountant of a step's memory, and the tracer of its kernel calls; None for each that is off.

        Args:
            resources: the session's resources.
            device: the name of the host device.
            trace: whether step statistics are wanted.
            report: whether out-of-memory errors should list the nodes that hold most.
        """
        tracer = Tracer(device) if trace else None
        exact = trace or report or self.is_exact
        if not exact and self.account is None:
            return None, tracer
        memory = StepMemory(
            self._step_bytes,
            self.account,
            self._expectations,
            device,
            is_exact=exact,
            kept=resources.kept,
            step_tensors=partial(resources.tensors_of_step, step_id),
        )
        return memory, MemoryAccountant(memory, tracer, report=report) if exact else None
