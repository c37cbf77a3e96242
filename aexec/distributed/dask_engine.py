"""An engine on Dask distributed: its workers run a `Worker` each, and messages go by its RPC, from one to another.

A worker plugin registers one handler with each Dask worker; the client is a server of Dask's too, which workers push
to.  Nothing goes through Dask's scheduler but the question who there is, and no task is made.  Frames are sent as they
are, by Dask's serialisation of buffers; nothing is pickled but the plugin, once, by Dask itself.
A worker whose connection breaks is lost at once: a call that is never answered is kept open to each.
Next to read: `worker.py`, and docs/distributed.md for how such a cluster is started and whom it trusts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_messages import Message
from aexec.distributed.engine import DeliveringEngine, Envelope, Handler
from aexec.distributed.worker import Worker
from aexec.framework import errors

try:
    import distributed
    import msgpack  # a dependency of it
except ImportError:  # which `connect_to_dask` says
    distributed = None

__all__ = ["AexecWorkerPlugin", "DaskEngine", "connect_to_dask"]

# Seconds: a task that is busy beyond measure answers late; one that died is known by its connection.
LEASE = 5.0
_VERB, _WATCH = "aexec_deliver", "aexec_watch"
_PLUGIN = "aexec"
_CONNECT_SECONDS = 30
# Bytes; less is copied into the message, which takes less time than a frame of its own.
_SMALL = 1 << 16
# Open at most, to all others together; more calls at a time wait.
_CONNECTIONS = 512


class DaskEngine(DeliveringEngine):
    """An end that is a server of Dask's: a worker's, or a client's own.

    Args:
        server: of Dask's; `aexec_deliver` is registered with it.
        handler: as of every engine.
        scheduler: whom the client asks for workers; None for a worker.
    """

    def __init__(self, server: Any, handler: Handler, scheduler: Any = None) -> None:
        super().__init__(server.address, handler, lease=LEASE, retry=None)
        self._server = server
        self._scheduler = scheduler
        self._watched: dict[str, asyncio.Task[None]] = {}
        # Of its own, as Dask's goes on for half a minute to try to connect to who is gone.
        self._pool: Any = distributed.core.ConnectionPool(
            limit=_CONNECTIONS, deserialize=True, timeout=LEASE, connection_args=server.rpc.connection_args
        )
        server.handlers[_VERB] = self._deliver
        server.handlers[_WATCH] = self._watch_me

    async def workers(self) -> Sequence[str]:
        """As `Engine.workers`: those that Dask's scheduler knows, by address."""
        assert self._scheduler is not None
        try:
            known = await self._scheduler.scheduler.identity(n_workers=-1)
        except OSError as error:
            raise errors.UnavailableError(f"Dask's scheduler does not answer: {error}") from None
        return sorted(known["workers"])

    async def exchange(self, address: str, envelope: Envelope) -> Message:
        """As `DeliveringEngine.exchange`."""
        self._watch(address)
        *head, message = envelope
        try:
            pool = await self._started_pool()
            answer = await pool(address).aexec_deliver(**_packed(head, message))
        except ConnectionRefusedError as error:
            self.lose(address, f"its connection was refused: {error}")
            raise
        except (OSError, distributed.comm.CommClosedError) as error:
            raise ConnectionError(str(error)) from None
        return _unpacked(**answer)[1]

    async def _started_pool(self) -> Any:
        if self._pool.status is not distributed.core.Status.running:
            await self._pool.start()
        return self._pool

    async def _deliver(self, body: bytes, large: list[Any]) -> dict[str, Any]:
        (sender, number, oldest, verb), message = _unpacked(body, large)
        return _packed([], await self.receive((sender, number, oldest, verb, message)))

    # Who is alive

    def _watch(self, address: str) -> None:
        if address not in self._watched:
            self._watched[address] = asyncio.get_running_loop().create_task(self._watching(address))

    def readmit(self, address: str) -> None:
        """As `Engine.readmit`."""
        super().readmit(address)
        watching = self._watched.get(address)
        if watching is not None and watching.done():
            del self._watched[address]

    async def _watching(self, address: str) -> None:
        connection = distributed.core.rpc(address, timeout=LEASE, connection_args=self._server.rpc.connection_args)
        try:
            await connection.aexec_watch()
            self.lose(address, "it was closed")
        except (OSError, distributed.comm.CommClosedError) as error:
            self.lose(address, f"its connection was closed: {error}")
        finally:
            await connection.close_rpc()

    async def _watch_me(self) -> None:
        """Never answered: who asks learns of the end of this process by its connection."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """As `Engine.close`."""
        await super().close()
        for task in self._watched.values():
            task.cancel()
        if self._watched:
            await asyncio.wait(self._watched.values())
        await self._pool.close()
        for name in (_VERB, _WATCH):
            self._server.handlers.pop(name, None)


def _packed(head: list[Any], message: Message) -> dict[str, Any]:
    """What Dask is given: one piece, as it looks at each part of what it sends, and frames that are large."""
    small, large = [], []
    for frame in message.frames:
        is_small = memoryview(frame).nbytes < _SMALL
        small.append(bytes(frame) if is_small else None)
        if not is_small:
            large.append(distributed.protocol.Serialize(memoryview(frame)))
    return {"body": msgpack.packb([head, message.fields, small]), "large": large}


def _unpacked(body: bytes, large: list[Any]) -> tuple[list[Any], Message]:
    """What was packed: the head, and the message."""
    head, fields, frames = msgpack.unpackb(body)
    rest = iter(large)
    for position, frame in enumerate(frames):
        if frame is None:
            given = next(rest)
            frames[position] = given.data if isinstance(given, distributed.protocol.Serialize) else given
    return head, Message(fields, frames)


_Plugin: Any = object if distributed is None else distributed.WorkerPlugin


class AexecWorkerPlugin(_Plugin):  # type: ignore[misc]  # whatever Dask's is
    """Makes a Dask worker a worker of aexec's.  `connect_to_dask` registers it."""

    name = _PLUGIN
    idempotent = True

    def setup(self, worker: Any) -> None:
        """As Dask calls it, on the worker's event loop."""
        made = Worker()
        made.connect(DaskEngine(worker, made.handle))
        worker.aexec = made
        # Columns of the table of workers in Dask's dashboard.
        worker.metrics["aexec_sessions"] = lambda worker: len(worker.aexec.sessions)
        worker.metrics["aexec_steps"] = lambda worker: worker.aexec.steps

    async def teardown(self, worker: Any) -> None:
        """As Dask calls it."""
        await worker.aexec.close()


def _with_protocol(address: str) -> str:
    """The address with `tls://` where Dask's settings want encryption."""
    if "://" in address:
        return address
    return f"{'tls' if distributed.Security().require_encryption else 'tcp'}://{address}"


async def connect_to_dask(address: str, **client_arguments: Any) -> ClusterConnection:
    """A connection to the cluster of a Dask scheduler.

    Args:
        address: `HOST:PORT` of the scheduler, to which Dask's settings say how to connect; `tls://HOST:PORT` says it
            itself.  "" starts a LocalCluster, with a process for each core.
        client_arguments: of `distributed.Client`, such as `security`.

    Raises:
        UnavailableError: nobody answers there.
        FailedPreconditionError: Dask distributed is not installed.
    """
    if distributed is None:
        raise errors.FailedPreconditionError("target dask:// needs Dask distributed: pip install aexec[dask]")
    cluster: Any = None
    try:
        if not address:
            cluster = await distributed.LocalCluster(
                asynchronous=True,
                threads_per_worker=1,
                dashboard_address=None,
                # No spilling, pausing or restarting: these look at Dask's tasks, and a restart loses the variables.
                memory_limit=0,
            )
        where = cluster if cluster is not None else _with_protocol(address)
        client: Any = await distributed.Client(where, asynchronous=True, timeout=_CONNECT_SECONDS, **client_arguments)
    except (OSError, TimeoutError) as error:
        if cluster is not None:
            await cluster.close()
        raise errors.UnavailableError(f"There is no Dask scheduler at {address}: {error}") from None
    server: Any = distributed.core.Server(
        {},
        connection_args=client.connection_args,
        deserialize=True,
        timeout=_CONNECT_SECONDS,
    )
    connection = ClusterConnection(LEASE)

    async def close() -> None:
        await server.close()
        await client.close()
        if cluster is not None:
            await cluster.close()

    connection.also_close = close
    try:
        own = client.scheduler_comm.comm.local_address.rsplit(":", 1)[0]
        await server.listen(f"{own}:0", **client.security.get_listen_args("client"))
        await server.rpc.start()
        connection.engine = DaskEngine(server, connection.handle, client)
        await client.register_plugin(AexecWorkerPlugin())
    except BaseException:
        await close()
        raise
    return connection
