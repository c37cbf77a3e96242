"""What a step's report says of its nodes: which run, and which wait for what."""

from __future__ import annotations

from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.plan import PlanNode

__all__ = ["RunningNode", "WaitingNode"]


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A node that was started and is not done.

    Attributes:
        frame_iter: (frame id, iteration) that it runs in.
        where: `awaited`, `in a thread` (or queued for one), `postponed` until a variable can be read, or queued on a
            device: then of those that are, the last.
        since: `time.perf_counter()` when it was started.
    """

    node: PlanNode
    frame_iter: tuple[int, int]
    where: str
    since: float


@dataclass(frozen=True, slots=True)
class WaitingNode:
    """A node some of whose inputs have come and some have not.

    Attributes:
        frame_iter: (frame id, iteration) that it waits in.
        present, missing: its inputs by tensor name, control inputs as `^name`.
    """

    node: PlanNode
    frame_iter: tuple[int, int]
    present: tuple[str, ...]
    missing: tuple[str, ...]
