"""Describes what a step is doing: which nodes run, where and since when; which wait, for which inputs; missing feeds.

`Step.dump` and the error of an exceeded deadline consist of these lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter

from aexec.runtime.interpreter.executor import Executor, StepEnvironment
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode

__all__ = ["report"]


def report(
    executor: Executor, environment: StepEnvironment, feeds: Sequence[str], limit: int | None = None
) -> list[str]:
    """A line for each node that runs or waits, and for each feed that has not been given.

    Args:
        executor: the step's own; those of the functions it calls are in `environment`.
        feeds: names of the feeds, by position.
        limit: most lines, after which one more line counts the rest; None for all.
    """
    lines = _lines(executor, environment, feeds)
    found = list(islice(lines, limit))
    left_out = sum(1 for _ in lines)
    return [*found, f"and {left_out} more"] if left_out else found


def _lines(executor: Executor, environment: StepEnvironment, feeds: Sequence[str]) -> Iterator[str]:
    for position in executor.unfed():
        yield f"to be fed: {feeds[position]}"
    executions = [(executor, ""), *((call, f" in function {name}") for call, name in environment.calls.items())]
    now = perf_counter()
    for execution, inside in executions:
        for running in execution.running():
            yield f"running {running.node.name} ({running.node.op}){inside}{_where(running)} for {_ago(now, running)}"
    for execution, inside in executions:
        for waiting in execution.waiting():
            yield f"waiting {waiting.node.name} ({waiting.node.op}){inside}{_iteration(waiting)}{_inputs(waiting)}"


def _where(running: RunningNode) -> str:
    return f"{_iteration(running)}, {running.where}"


def _ago(now: float, running: RunningNode) -> str:
    return f"{max(0.0, now - running.since):.3f} s"


def _iteration(node: RunningNode | WaitingNode) -> str:
    frame, iteration = node.frame_iter
    return f" in iteration {iteration} of '{node.node.frame.name}'" if frame else ""


def _inputs(waiting: WaitingNode) -> str:
    present = f" has {', '.join(waiting.present)}" if waiting.present else ""
    return f":{present}{' and' if present else ''} waits for {', '.join(waiting.missing)}"
