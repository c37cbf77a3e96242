"""`ClusterTask`: what a client knows of a task of its cluster."""

from __future__ import annotations

import math
from dataclasses import field

from aexec.distributed.remote_device import RemoteDevice
from aexec.framework.late_dataclass import dataclass

__all__ = ["ClusterTask"]

_AGEING = 1.05


@dataclass(slots=True, eq=False)
class ClusterTask:
    """A task of the cluster.

    Attributes:
        name: `/job:worker/replica:0/task:1`.
        address: of its worker.
        incarnation: another one when it is started anew.
        devices: of it, the preferred ones first.
        registered: names of the graphs that it has.
        lost: why it will not answer any more, or "".
        clock_offset: nanoseconds by which its clock is ahead of the client's.
        round_trip: nanoseconds that the message took by which that is known, and its answer.
        in_flight: steps of this session that are there.
        others: steps of others that were there when it told last.
    """

    name: str
    address: str
    incarnation: int
    devices: list[RemoteDevice] = field(default_factory=list)
    registered: set[str] = field(default_factory=set)
    lost: str = ""
    clock_offset: int = 0
    round_trip: float = math.inf
    in_flight: int = 0
    others: int = 0

    @property
    def load(self) -> int:
        """How many steps are there, as far as is known."""
        return self.in_flight + self.others

    def steps_told(self, steps: int) -> None:
        """The task has told how many steps are there, those of this session included."""
        self.others = max(0, steps - self.in_flight)

    def clock_told(self, asked: int, told: int, answered: int) -> None:
        """The task has told its clock, by a message that was sent and answered at these times of the client's.

        It is taken to have looked at it halfway; the faster the message, the less that can be wrong.
        """
        # Clocks drift apart: what was good becomes worse with each time.
        self.round_trip *= _AGEING
        if answered - asked <= self.round_trip:
            self.round_trip = answered - asked
            self.clock_offset = told - (asked + answered) // 2
