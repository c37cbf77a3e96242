"""A snapshot of a run that was begun elsewhere: what is over in the iterations that are under way.

`PropagatorState.resume` makes a state of it.  Next to read: `compiled/take_over.py`, which takes one of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aexec.runtime.plans.plan import FramePlan, PlanNode

__all__ = ["IterationSnapshot", "NodeOutcome", "Snapshot"]


class NodeOutcome(NamedTuple):
    """How a node ended.

    Attributes:
        outs: its outputs, None in place of a dead one; for a retval, the fetched value.  None: the node is dead.  `()`:
            an Enter whose outputs need not be delivered, because its frame has ended or is itself in the snapshot.
    """

    node: PlanNode
    outs: Sequence[Any] | None


class IterationSnapshot(NamedTuple):
    """One iteration.

    Attributes:
        number: of the iteration; it is the only one under way in its frame.
        outcomes: of its nodes that are over, of the Exits of frames in it, and of the frame's constant Enters.
    """

    frame: FramePlan
    number: int
    outcomes: Sequence[NodeOutcome]


# The iterations that are under way, each within the one before it; the first is the root frame's.
Snapshot = Sequence[IterationSnapshot]
