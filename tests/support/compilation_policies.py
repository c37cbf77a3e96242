"""Helpers for compilation policies in tests: a check of their invariants, and a way to have a plan compiled anew."""

from __future__ import annotations

from aexec.runtime.plans.compilation_policy import CompilationPolicy, PlanState

WITH_LINE = {PlanState.COMPILED, PlanState.LATE, PlanState.HELD}


def check(policy: CompilationPolicy) -> None:
    """Check that the fields of a policy agree."""
    state = policy.state
    assert (policy.compiled is not None) is (state in WITH_LINE)
    assert policy.ready is (policy.compiled if state is PlanState.COMPILED else None)
    assert bool(policy.refused) is (state is PlanState.REFUSED)
    assert policy.busy or state is not PlanState.COMPILING
    assert policy.unsettled is any((policy.fallen_back, policy.late, policy.looks, policy.patience))
    assert policy.goes_on or policy.trial is None
    assert policy.chunk >= 1


def write_anew(policy: CompilationPolicy, *, goes_on: bool = False) -> None:
    """Make the plan's next run compile it, with `goes_on` as a line that can be continued in a thread."""
    policy.goes_on = policy.goes_on or goes_on
    policy._enter(PlanState.INTERPRETED)
