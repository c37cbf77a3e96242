"""An engine on Dask distributed: each Dask worker runs a `Worker`, and messages use Dask's connections.

A worker plugin registers two handlers with each Dask worker.  A client does not listen: it opens a channel to each
worker it calls, and the worker pushes messages on that channel.  Dask's scheduler is only asked for the list of
workers, and no Dask task is made.  Frames are sent as they are; nothing is pickled but the plugin, once, by Dask
itself.  A worker whose channel breaks is lost at once.
Next to read: `dask_channel.py`, `distributed/worker.py`, and docs/distributed.md for how such a cluster is started and
whom it trusts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import distributed

from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_messages import Message, error_fields
from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.dask.dask_channel import AskingChannel, Channel
from aexec.distributed.dask.dask_security import check_addresses, check_dask, security_of, with_protocol
from aexec.distributed.dask.dask_wire import FAMILIES, packed, unpacked
from aexec.distributed.engine import DeliveringEngine, Envelope, Handler
from aexec.distributed.worker import Worker
from aexec.framework import errors

__all__ = ["AexecWorkerPlugin", "DaskEngine", "connect_to_dask"]

# Seconds.  Long, because a very busy task answers late; one that died is noticed by its channel.
LEASE = 5.0
_DELIVER, _CHANNEL = "aexec_deliver", "aexec_channel"
_PLUGIN = "aexec"
_CONNECT_SECONDS = 30
# Most open connections to all others together; further calls wait.
_CONNECTIONS = 512


class DaskEngine(DeliveringEngine):
    """An end that calls workers by Dask's RPC: a client's, and the base of a worker's.

    Args:
        address: its own.
        handler: as of every engine.
        connection_args: of Dask's, with the certificate of this end.
        scheduler: lists the workers for a client; None for a worker.
    """

    def __init__(
        self, address: str, handler: Handler, connection_args: Mapping[str, Any], scheduler: Any = None
    ) -> None:
        super().__init__(address, handler, lease=LEASE, retry=None)
        self._connection_args = connection_args
        self._scheduler = scheduler
        # Address of a worker → (the task that keeps a channel to it, an event that is set when it is open or has
        # failed).
        self._channels: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        # A pool of its own, since Dask's tries for half a minute to connect to an end that is gone.
        self._pool: Any = distributed.core.ConnectionPool(
            limit=_CONNECTIONS, timeout=LEASE, connection_args=connection_args, **FAMILIES
        )

    async def workers(self) -> Sequence[str]:
        """Like `Engine.workers`: those that Dask's scheduler knows, by address."""
        return sorted((await self._identity())["workers"])

    async def addresses(self) -> Sequence[str]:
        """The addresses of the scheduler, as it names itself, and of all workers."""
        known = await self._identity()
        return [known["address"], *known["workers"]]

    async def _identity(self) -> Mapping[str, Any]:
        assert self._scheduler is not None
        try:
            return await self._scheduler.scheduler.identity(n_workers=-1)  # type: ignore[no-any-return]
        except OSError as error:
            raise errors.UnavailableError(f"Dask's scheduler does not answer: {error}") from None

    async def exchange(self, address: str, envelope: Envelope) -> Message:
        """Like `DeliveringEngine.exchange`."""
        *head, message = envelope
        given = packed(head, message)
        await self._line_to(address)
        try:
            pool = await self._started_pool()
            return unpacked(**await pool(address).aexec_deliver(**given))[1]
        except OSError as error:
            raise ConnectionError(str(error)) from None
        except (TypeError, errors.InvalidArgumentError) as error:
            self.lose(address, f"its answer is no message: {error}")
            raise ConnectionError(str(error)) from None

    async def _started_pool(self) -> Any:
        if self._pool.status is not distributed.core.Status.running:
            await self._pool.start()
        return self._pool

    async def received(self, body: Any = None, large: Any = ()) -> dict[str, Any]:
        """The answer to a packed message that came from another end, packed too."""
        try:
            (sender, number, oldest, verb), message = unpacked(body, large)
        except (TypeError, ValueError, errors.InvalidArgumentError) as error:
            refused = errors.InvalidArgumentError(f"This is no message: {error}")
            return packed([], Message({"error": error_fields(refused)}))
        return packed([], await self.receive((sender, number, oldest, verb, message)))

    # Channels to workers

    async def _line_to(self, address: str) -> None:
        """Wait until there is a channel to a worker.  Raises ConnectionError if it cannot be reached."""
        task, opened = self._channels.get(address) or self._begin_channel(address)
        await opened.wait()
        if task.done():
            raise ConnectionError(f"There is no connection to {address}")

    def _begin_channel(self, address: str) -> tuple[asyncio.Task[None], asyncio.Event]:
        opened = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._keep_channel(address, opened), name=f"channel to {address}")
        self._channels[address] = task, opened
        return task, opened

    async def _keep_channel(self, address: str, opened: asyncio.Event) -> None:
        channel: Channel | None = None
        try:
            channel = Channel(await distributed.comm.connect(address, timeout=LEASE, **self._connection_args))
            await channel.send({"op": _CHANNEL, "sender": self.address, "reply": False})
            await channel.receive()  # the worker has it, and can push
            opened.set()
            while True:
                self._answer(channel, await channel.receive())
        except Exception as error:  # invalid content ends the channel, too
            self.lose(address, f"its connection was closed: {error}")
        finally:
            opened.set()
            if channel is not None:
                channel.abort()

    def _answer(self, channel: Channel, pushed: dict[str, Any]) -> None:
        """Handle a pushed message in a task, so that later messages need not wait."""
        task = asyncio.get_running_loop().create_task(self._answered(channel, **pushed))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answered(self, channel: Channel, number: int, **message: Any) -> None:
        answer = await self.received(**message)
        with suppress(OSError):  # the asker is gone
            await channel.send({"number": number, **answer})

    def readmit(self, address: str) -> None:
        """Like `Engine.readmit`."""
        super().readmit(address)
        channel = self._channels.get(address)
        if channel is not None and channel[0].done():
            del self._channels[address]

    async def close(self) -> None:
        """Like `Engine.close`."""
        await super().close()
        ending = [*(task for task, _ in self._channels.values()), *self._answering]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        await self._pool.close()


class DaskWorkerEngine(DaskEngine):
    """A worker's end: a client is reached by the channel that it has opened.

    Args:
        server: the Dask worker; `aexec_deliver` and `aexec_channel` are registered with it.
        handler: as of every engine.
    """

    def __init__(self, server: Any, handler: Handler) -> None:
        super().__init__(server.address, handler, server.rpc.connection_args)
        self._server = server
        self._opened: dict[str, AskingChannel] = {}
        server.handlers[_DELIVER] = self.received
        server.handlers[_CHANNEL] = self._take_channel

    async def exchange(self, address: str, envelope: Envelope) -> Message:
        """Like `DeliveringEngine.exchange`."""
        if _is_worker(address):
            return await super().exchange(address, envelope)
        if address not in self._opened:
            raise ConnectionError(f"There is no channel from {address}")
        *head, message = envelope
        return await self._opened[address].ask(head, message)

    async def _take_channel(self, comm: Any, sender: str) -> None:
        """Called by Dask with a connection that another end has opened: use it as that end's channel until it is
        closed.
        """
        channel = self._opened[sender] = AskingChannel(comm)
        try:
            await channel.send({})
            await channel.take_answers()
        finally:
            channel.abort()
            if self._opened.get(sender) is channel:
                del self._opened[sender]
                self.lose(sender, "its channel was closed")

    async def close(self) -> None:
        """Like `Engine.close`."""
        await super().close()
        for name in (_DELIVER, _CHANNEL):
            self._server.handlers.pop(name, None)
        for channel in list(self._opened.values()):
            channel.abort()


def _is_worker(address: str) -> bool:
    """True for the address of a worker; a client cannot be connected to."""
    return "://" in address


class AexecWorkerPlugin(distributed.WorkerPlugin):  # type: ignore[misc]  # Dask's class is untyped
    """Makes a Dask worker a worker of aexec's.  `connect_to_dask` registers it."""

    name = _PLUGIN
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Called by Dask, on the worker's event loop."""
        made = Worker()
        made.connect(DaskWorkerEngine(worker, made.handle))
        worker.aexec = made
        # Columns of the table of workers in Dask's dashboard.
        worker.metrics["aexec_sessions"] = lambda worker: len(worker.aexec.sessions)
        worker.metrics["aexec_steps"] = lambda worker: worker.aexec.steps

    async def teardown(self, worker: Any) -> None:
        """Called by Dask."""
        await worker.aexec.close()


def _own_address() -> str:
    """Return a unique address of a client, which people can recognise as one."""
    return f"client-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


async def connect_to_dask(address: str, given: ClusterSecurity | None = None) -> ClusterConnection:
    """A connection to the cluster of a Dask scheduler.

    Args:
        address: `HOST:PORT` of the scheduler, connected to as Dask's settings say; or with a protocol,
            `tls://HOST:PORT`. "" starts a LocalCluster, with a process for each core.
        given: certificates, and whether TLS is required; None to use Dask's settings.

    Raises:
        UnavailableError: the scheduler does not answer.
        FailedPreconditionError: the cluster needs TLS, which is not set up; or a certificate cannot be used.
    """
    given = given or ClusterSecurity()
    check_dask(address, given)
    security = security_of(given)
    cluster: Any = None
    try:
        if not address:
            cluster = await _own_cluster(security)
        where = cluster if cluster is not None else with_protocol(address, security)
        client: Any = await distributed.Client(where, asynchronous=True, timeout=_CONNECT_SECONDS, security=security)
    except (OSError, TimeoutError) as error:
        if cluster is not None:
            await cluster.close()
        raise errors.UnavailableError(f"There is no Dask scheduler at {address}: {error}") from None
    connection = ClusterConnection(LEASE)

    async def close() -> None:
        await client.close()
        if cluster is not None:
            await cluster.close()

    connection.also_close = close
    connection.engine = engine = DaskEngine(_own_address(), connection.handle, client.connection_args, client)
    try:
        if given.required:
            # Before any connection but the scheduler's, with the addresses that it reports.
            check_addresses(await engine.addresses(), security)
        await client.register_plugin(AexecWorkerPlugin())
    except BaseException:
        await connection.close()
        raise
    return connection


def _own_cluster(security: Any) -> Any:
    """A LocalCluster, to be awaited; it listens on loopback addresses."""
    return distributed.LocalCluster(
        asynchronous=True,
        threads_per_worker=1,
        dashboard_address=None,
        security=security,
        # No spilling, pausing or restarting: these look at Dask's tasks, and a restart loses the variables.
        memory_limit=0,
    )
