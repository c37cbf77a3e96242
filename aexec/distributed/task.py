"""`ClusterTask`: a client's record of a task of its cluster."""

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
        address: the address of its worker.
        incarnation: a number that is different each time it is started.
        devices: its devices, the preferred ones first.
        registered: names of the graphs that it has.
        lost: why it will not answer any more, or "".
        clock_offset: nanoseconds by which its clock is ahead of the client's.
        round_trip: nanoseconds that the message took, with its answer, by which `clock_offset` was measured.
        in_flight: steps of this session that are there.
        others: steps of other sessions that were there at its last report.
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
        """The number of steps there, as far as this client knows."""
        return self.in_flight + self.others

    def steps_told(self, steps: int) -> None:
        """Called when the task has reported the number of steps there, those of this session included."""
        self.others = max(0, steps - self.in_flight)

    def clock_told(self, asked: int, told: int, answered: int) -> None:
        """Called when the task has reported its clock, in answer to a message sent and answered at these times of the
        client's.

        The task is assumed to have read its clock halfway between the two; the faster the message, the smaller the
        possible error.
        """
        # Clocks drift apart, so an old measurement gets worse with each report.
        self.round_trip *= _AGEING
        if answered - asked <= self.round_trip:
            self.round_trip = answered - asked
            self.clock_offset = told - (asked + answered) // 2
