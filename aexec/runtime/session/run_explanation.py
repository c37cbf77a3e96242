"""Explains how a run will be executed, from the session's settings and the plan's compilation policy.

Next to read: `plans/compilation_policy.py`; docs/how-a-node-runs.md lists all ways.
"""

from __future__ import annotations

import os
from typing import Any

from aexec.framework.memory import log_memory
from aexec.runtime.compiled.compiled_execution import CompiledExecution
from aexec.runtime.config import SessionConfig
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.plans.compilation_policy import Explanation
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan

__all__ = ["explain_run"]


def explain_run(
    plan: Plan | PartitionedPlan | None, make_executor: object, config: SessionConfig, *, needs_step: bool
) -> Explanation:
    """Explain how the next run of a plan will be executed, and why.

    Args:
        plan: None if it is not made yet.
        make_executor: the session's factory of executors.
        needs_step: True if every run needs a `Step`, because the session limits how many run at once.
    """
    reason = _setting_against(make_executor, config)
    if reason:
        return _interpreted(plan, reason)
    if plan is None:
        return Explanation("interpreted", "it has not been run yet: its first run makes the plan")
    found = plan.compilation.explain()
    if found.way == "interpreted":
        return _interpreted(plan, found.reason)
    if found.way == "compiled, at once" and (needs_step or log_memory.is_enabled()):
        needs = "max_steps counts steps" if needs_step else "the memory log names steps"
        return Explanation("compiled, as a line", f"each run is a step of its own, because {needs}")
    return found


def _interpreted(plan: Any, reason: str) -> Explanation:
    way = "interpreted, device by device" if isinstance(plan, PartitionedPlan) else "interpreted"
    return Explanation(way, reason)


def _setting_against(make_executor: object, config: SessionConfig) -> str:
    """The setting because of which no run of the session is compiled, as text; "" if there is none."""
    if config.executor_type and not _compiles(make_executor):
        return f"the session's executor_type is {config.executor_type!r}"
    if not config.compile_plans:
        return "the session has compile_plans=False"
    if os.environ.get("AEXEC_SHUFFLE"):
        return "AEXEC_SHUFFLE is set"
    if not _compiles(make_executor):
        return "the session accounts for the memory of each call"
    return "AEXEC_DEBUG is set, and nodes are seen one by one" if DEBUG else ""


def _compiles(make_executor: object) -> bool:
    return isinstance(make_executor, type) and issubclass(make_executor, CompiledExecution)
