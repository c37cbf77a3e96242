"""`ReplicatedSession`: a session with its whole graph on every worker; each step runs on the least busy one.

`SessionConfig(replicated=True)` asks for it, to serve a model by many machines.  Each worker is a replica,
`/job:worker/replica:1/task:0`, and shares nothing with the others: each has variables of its own, which `ready`
restores before it gets steps.  New workers are taken in, and lost ones are left out, so the session goes on while there
is one worker.  Next to read: `replica_planner.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_messages import Message
from aexec.distributed.cluster_planner import RemotePlan
from aexec.distributed.cluster_session import ClusterSession, check_config, open_at
from aexec.distributed.cluster_spec import task_name
from aexec.distributed.remote_device import RemoteDevice
from aexec.distributed.replica_planner import ReplicaPlanner
from aexec.distributed.task import ClusterTask
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import LOCAL_CPU, DeviceName
from aexec.graph.graph import Graph
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.planner import Planner
from aexec.runtime.session.session import Session

__all__ = ["ReplicatedSession", "open_replicas"]

logger = logging.getLogger("aexec")

# Seconds between two looks for new workers.
_LOOK_SECONDS = 1.0
# The replica on which steps of this asyncio task run, even if it is busier than others.
_chosen: ContextVar[ClusterTask | None] = ContextVar("aexec_replica", default=None)


async def open_replicas(connection: ClusterConnection, handle: str, config: SessionConfig) -> dict[str, ClusterTask]:
    """Open a session on all workers; return them by name, without those that are lost.

    Raises:
        UnavailableError: there is none.
        UnimplementedError: a setting that would be ignored.
    """
    check_config(config)
    if config.cluster is not None:
        raise errors.InvalidArgumentError("replicated: all workers are replicas, there are no jobs: leave cluster out")
    addresses = await connection.engine.workers()
    names = {task_name("worker", 0, number): address for number, address in enumerate(addresses)}
    opened = await asyncio.gather(
        *(open_at(connection, handle, config, {name: address}, [name]) for name, address in names.items()),
        return_exceptions=True,
    )
    found: dict[str, ClusterTask] = {}
    for outcome in opened:
        if not isinstance(outcome, BaseException):
            found |= outcome
        elif not isinstance(outcome, errors.UnavailableError):
            raise outcome
    if not found:
        raise errors.UnavailableError("The cluster has no workers")
    return found


class ReplicatedSession(ClusterSession):
    """A session with its whole graph on every worker; each step runs on the least busy one.

    Args:
        tasks: the result of `open_replicas`.
        ready: prepares a replica, such as by restoring variables; its steps run on that replica.
        others: as of `ClusterSession`.
    """

    def __init__(
        self,
        graph: Graph | Any,
        connection: ClusterConnection,
        config: SessionConfig,
        handle: str,
        tasks: Mapping[str, ClusterTask],
        ready: Callable[[Session], Awaitable[None]] | None = None,
    ) -> None:
        # Replicas that get steps; among equally busy ones, the one chosen longest ago is first.
        self._replicas: list[ClusterTask] = []
        self._numbered = 1 + max(DeviceName.parse(name).replica or 0 for name in tasks)
        self._looking = asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None
        super().__init__(graph, connection, config, handle, dict(tasks), ready)

    def _make_devices(self) -> tuple[Device, ...]:
        first, *_ = self.tasks.values()
        return _as_in_process(first)

    def _make_planner(self, graph: Graph) -> Planner:
        return ReplicaPlanner(graph, self._devices, self.config)

    async def _make_ready(self) -> None:
        outcomes = await asyncio.gather(*map(self._take_in, list(self.tasks.values())), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed and not self._replicas:
            raise failed[0]
        self._keeping = asyncio.get_running_loop().create_task(self._keep_looking(), name="look for workers")

    # Choosing a replica

    def _task_of(self, plan: RemotePlan) -> ClusterTask:
        chosen = _chosen.get()
        if chosen is not None:
            return chosen  # even if it is lost: `ready` must not run on another
        if not self._replicas:
            raise errors.UnavailableError(f"None of the workers at which session {self.handle} was open answers")
        least = min(self._replicas, key=lambda replica: replica.load)
        self._replicas.remove(least)
        self._replicas.append(least)
        return least

    # Replicas that come and go

    async def _take_in(self, task: ClusterTask) -> None:
        """Make a replica ready; it gets steps from then on."""
        try:
            there, wanted = ([device.name for device in found] for found in (_as_in_process(task), self._devices))
            if there != wanted:
                raise errors.FailedPreconditionError(f"it has devices {there}, and the first replica has {wanted}")
            if self._ready is not None:
                _chosen.set(task)
                await self._ready(self)
            if task.name in self.tasks:
                self._replicas.append(task)
                logger.info("session %s: %s at %s gets steps", self.handle, task.name, task.address)
        except errors.OpError as error:
            logger.warning("session %s: %s at %s cannot be made ready: %s", self.handle, task.name, task.address, error)
            self._leave_out(task)
            raise

    def _leave_out(self, task: ClusterTask) -> None:
        if self.tasks.pop(task.name, None) is not None and not task.lost:
            self.engine.push(task.address, "close_session", Message({"session": self.handle}))
        if task in self._replicas:
            self._replicas.remove(task)

    def task_lost(self, task: ClusterTask, why: str) -> None:
        """Fail the steps that are there; it gets no others."""
        super().task_lost(task, why)
        self._leave_out(task)

    def _tell_others(self, task: ClusterTask) -> None:
        """Nothing to do: replicas do not wait for each other."""

    async def _keep_looking(self) -> None:
        said = ""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.recover()
                said = ""
            except errors.OpError as error:
                if error.message != said:
                    logger.warning("session %s: the cluster's workers are not known: %s", self.handle, error)
                said = error.message

    async def recover(self, timeout: float = 30.0) -> Sequence[str]:
        """Take in the workers that have come since.  This happens by itself, too, and delays no step.

        Returns:
            the names of the new replicas.
        """
        async with self._looking:
            known = {task.address for task in self.tasks.values()}
            come = [address for address in await self.engine.workers() if address not in known]
            taken = await asyncio.gather(*map(self._open_there, come), return_exceptions=True)
            return [name for name in taken if isinstance(name, str) and name in self.tasks]

    async def _open_there(self, address: str) -> str:
        name = task_name("worker", 0, self._numbered)
        self._numbered += 1
        self.engine.readmit(address)
        opened = await open_at(self._connection, self.handle, self.config, {name: address}, [name])
        task = opened[name]
        self.tasks[name] = task
        self._keep_pinging(task, asyncio.get_running_loop())
        await self._take_in(task)
        return name

    async def _close(self, containers: tuple[str, ...]) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await super()._close(containers)


def _as_in_process(task: ClusterTask) -> tuple[RemoteDevice, ...]:
    """A replica's devices, with the names that they would have in this process, so that one placement serves all."""
    local = DeviceName.parse(LOCAL_CPU)
    names = [replace(local, type=(own := DeviceName.parse(d.name)).type, id=own.id) for d in task.devices]
    return tuple(
        RemoteDevice(str(name), device.type, task.incarnation, is_host=device.is_host)
        for name, device in zip(names, task.devices, strict=True)
    )
