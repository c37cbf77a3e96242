"""A snapshot of a run that began elsewhere: the nodes that have ended, in the iterations that are under way.

`PropagatorState.resume` makes a state of it.  Next to read: `compiled/take_over.py`, which takes one of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aexec.runtime.plans.plan import FramePlan, PlanNode

__all__ = ["IterationSnapshot", "NodeOutcome", "Snapshot"]


class NodeOutcome(NamedTuple):
    """The outcome of a node that has ended.

    Attributes:
        outs: its outputs, None in place of a dead one; for a retval, the fetched value.  None: the node is dead.  `()`:
            an Enter whose outputs need not be delivered, because its frame has ended or is itself in the snapshot.
    """

    node: PlanNode
    outs: Sequence[Any] | None


class IterationSnapshot(NamedTuple):
    """One iteration.

    Attributes:
        number: the iteration's number; no other is under way in its frame.
        outcomes: those of its nodes that have ended, of the Exits of frames in it, and of the frame's constant Enters.
    """

    frame: FramePlan
    number: int
    outcomes: Sequence[NodeOutcome]


# The iterations under way, from the root frame's inwards, each within the one before it.
Snapshot = Sequence[IterationSnapshot]
