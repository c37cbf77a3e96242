"""Nodes of a step as reports show them: running nodes, and waiting ones with what they wait for."""

from __future__ import annotations

from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.plan import PlanNode

__all__ = ["RunningNode", "WaitingNode"]


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A node that has started and not ended.

    Attributes:
        frame_iter: the (frame id, iteration) that it runs in.
        where: `awaited`, `in a thread` (or queued for one), `postponed` until a variable can be read, or queued on a
            device, which is said of the last queued node only.
        since: when it started, by `time.perf_counter()`.
    """

    node: PlanNode
    frame_iter: tuple[int, int]
    where: str
    since: float


@dataclass(frozen=True, slots=True)
class WaitingNode:
    """A node that has some of its inputs and waits for others.

    Attributes:
        frame_iter: the (frame id, iteration) that it waits in.
        present, missing: its inputs by tensor name, control inputs as `^name`.
    """

    node: PlanNode
    frame_iter: tuple[int, int]
    present: tuple[str, ...]
    missing: tuple[str, ...]
