"""`SessionMemory`: what a session's limits of memory need: an account, expectations, and how its steps are watched.

A session in process has one, and each task of a session across machines.
Next to read: `interpreter/memory_accountant.py`.
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
    """A session's memory account, with what makes its steps count in it.

    Args:
        config: has the limits.

    Attributes:
        account: of the session; None where nothing is limited.
        is_exact: each call of a kernel is accounted for.
        kept: counts what the session's resources keep, where that is counted by itself.
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
        self.kept = None if self.is_exact or self.account is None else KeptMemory(self.account)

    def close(self) -> None:
        """The session has closed: nothing counts any more."""
        if self.kept is not None:
            self.kept.close()
        if self._expectations is not None:
            self._expectations.clear()

    def watches(
        self, step_id: int, resources: ResourceManager, device: str, *, trace: bool, report: bool
    ) -> tuple[StepMemory | None, StepTracer | None]:
        """What a step's memory is accounted for with, and what sees its kernel calls; None where nobody asked.

        Args:
            resources: of the session.
            device: the host's name.
            trace: step statistics are wanted.
            report: let errors of memory that is out say which nodes have most.
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
