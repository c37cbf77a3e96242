"""`ClusterTask`: what a client knows of a task of its cluster."""

from __future__ import annotations

from dataclasses import field

from aexec.distributed.remote_device import RemoteDevice
from aexec.framework.late_dataclass import dataclass

__all__ = ["ClusterTask"]


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
    """

    name: str
    address: str
    incarnation: int
    devices: list[RemoteDevice] = field(default_factory=list)
    registered: set[str] = field(default_factory=set)
    lost: str = ""
