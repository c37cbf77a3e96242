"""`aexec.connect`: a session in a server, used like one of this process."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block, table
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph, current_graph
from aexec.graph.signature import (
    Signature,
    TensorInfo,
    named_inputs,
    signature_tables,
)
from aexec.remote.http_client import HttpClient
from aexec.remote.http_service import HttpService
from aexec.remote.remote_callable import RemoteCallable
from aexec.remote.remote_graph import RemoteGraph
from aexec.remote.remote_partial_run import RemotePartialRun
from aexec.remote.remote_queue import RemoteQueue
from aexec.remote.remote_queues import RemoteQueues
from aexec.remote.remote_runs import RemoteRuns
from aexec.remote.remote_step import RemoteStep
from aexec.remote.remote_tensors import RemoteTensors
from aexec.remote.service import Service, SessionWishes
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds
from aexec.runtime.session.callable import Request
from aexec.runtime.threads.worker_pool import run_in_thread

__all__ = ["RemoteSession", "connect"]

_SESSIONS = "/v1/sessions"
_WARM_UP_RUNS = 5
_DURABILITIES = ("strict", "relaxed")
# What does not go by gRPC, and why.
_BY_GRPC = {"retry_runs": "a run is sent once", "durable": "no durable session is served"}
# Seconds for which the server of a durable session is waited for.
_PATIENCE = 30.0


def connect(
    url: str,
    graph: Any = None,
    *,
    session: str | None = None,
    config: proto.ConfigProto | Message | None = None,
    ttl: float | None = None,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    ca: str | Path | ssl.SSLContext | Any = None,
    retry_runs: bool = False,
    durable: bool = False,
    durability: str | None = None,
    keep: bool = False,
    reconnect: float | None = None,
) -> RemoteSession:
    """A session of a server: `async with aexec.connect("http://127.0.0.1:8500", graph) as session:`.

    It has the methods of `aexec.Session`, so that a program moves to a server by this line.

    Args:
        url: the server's address, `http://host:port` or, with the extra `aexec[grpc]`, `grpc://host:port`; `https://`
            and `grpcs://` have TLS.  With `/v1/sessions/NAME` it is that of an existing session, which is then used and
            not deleted.
        graph: the graph of a new session, as `aexec.Session` takes it; by default the graph that is being built.  Nodes
            that are added to it later are sent before the next run.  The session is deleted when it is closed.
        session: name of an existing session, instead of one in `url`.
        config: of a new session, as TensorFlow's message.
        ttl: seconds without use after which the server may close a new session.
        name: the name of a new session, if it is free; by default one that cannot be guessed.
        retry_runs: send a run again if its connection breaks: the server runs it once, and keeps its answer for that.
            Such a run goes on in the server if this program ends.  Not by gRPC.
        durable: make a new session that survives the end of the server, which must have a store.  Not by gRPC.
        durability: when requests of a durable session are answered: `strict`, the default, once their changes are on
            the disk, or `relaxed`, before.
        keep: do not delete a new session when it is closed: the next program joins it by its handle.
        reconnect: seconds for which a request that may be sent again is sent again while the server cannot be reached;
            by default 30 for a durable session, and one for any other.
        headers: sent with each request, such as one that identifies the client; by gRPC as metadata.
        token: identifies the client to the server; by default that of the environment variable `AEXEC_TOKEN`, if it is
            set. Without TLS, anybody on the network path can read it.
        ca: PEM file of the authority that signed the server's certificate; by default the authorities that the system
            trusts, or gRPC.  For a certificate of the client's an `ssl.SSLContext`, by gRPC `grpc.ChannelCredentials`.

    Raises:
        InvalidArgumentError: the address is invalid; both a session and a graph are given, or neither; an argument does
            not fit another.
        FailedPreconditionError: the address is one of gRPC, whose package is not installed.
        UnimplementedError: `retry_runs` or `durable` with an address of gRPC.
    """
    address, separator, given = url.partition(f"{_SESSIONS}/")
    if separator:
        if session is not None:
            raise errors.InvalidArgumentError(f"{url} names a session already: give its name once")
        session = unquote(given.rstrip("/"))
    if graph is None and session is None:
        graph = current_graph()
    if (graph is None) == (session is None):
        raise errors.InvalidArgumentError("give a graph for a new session, or the name of one that is there, not both")
    if session is not None:
        _check_for_old(name=name is not None, durable=durable, keep=keep)
    if reconnect is not None and not 0 <= reconnect < math.inf:
        raise errors.InvalidArgumentError(f"reconnect must be a number of seconds, not negative, got {reconnect!r}")
    if address.startswith(("grpc:", "grpcs:")):
        _check_for_rpc(retry_runs=retry_runs, durable=durable)
    service = _service(address, headers, token or os.environ.get("AEXEC_TOKEN") or None, ca, retry_runs=retry_runs)
    settings = proto.ConfigProto() if config is None else as_message(config, proto.ConfigProto)
    wishes = SessionWishes(settings, name, ttl, _durability(durability, durable=durable))
    return RemoteSession(service, graph, session, wishes, keep=keep, reconnect=reconnect)


def _check_for_old(**given: bool) -> None:
    for what, is_given in given.items():
        if is_given:
            raise errors.InvalidArgumentError(f"{what} is for a new session: leave out {what}, or session")


def _check_for_rpc(**wanted: bool) -> None:
    for what, is_wanted in wanted.items():
        if is_wanted:
            raise errors.UnimplementedError(f"{what} needs an address of HTTP: by gRPC {_BY_GRPC[what]}")


def _durability(given: str | None, *, durable: bool) -> str | None:
    if given is not None and not durable:
        raise errors.InvalidArgumentError("durability is for a session with durable=True")
    if given not in (None, *_DURABILITIES):
        raise errors.InvalidArgumentError(f'durability must be "strict" or "relaxed", got {given!r}')
    return (given or "strict") if durable else None


def _service(
    address: str, headers: Mapping[str, str] | None, token: str | None, ca: Any, *, retry_runs: bool
) -> Service:
    if not address.startswith(("grpc:", "grpcs:")):
        return HttpService(HttpClient(address, headers, token, ca), retry_runs=retry_runs)
    # Its package is an extra.
    from aexec.remote.rpc_service import RpcService

    return RpcService(address, headers, token, ca)


class RemoteSession:
    """Runs a graph in a server.  Made by `aexec.connect`: enter it, or await it, and close it when done.

    Its methods belong to one event loop; `RemoteStep.cancel` may be called from any thread.
    """

    def __init__(
        self,
        service: Service,
        source: Any,
        name: str | None,
        wishes: SessionWishes,
        *,
        keep: bool = False,
        reconnect: float | None = None,
    ) -> None:
        self._service = service
        self._source = source
        self._remote = RemoteGraph(service)
        self._runs = RemoteRuns(service, lambda: self.handle, self._remote)
        self._queues = RemoteQueues(service, lambda: self.handle, self._remote, self._runs.check_open)
        self._wishes = wishes
        self._handle = name
        self._is_new = name is None
        self._is_kept = keep or name is not None
        self._reconnect = reconnect
        self._outlast_restarts(durable=wishes.durability is not None)
        self._entering = asyncio.Lock()
        self._entered = False

    # Opening and closing

    async def __aenter__(self) -> RemoteSession:
        async with self._entering:
            self._runs.check_open()
            if not self._entered:
                await self._enter()
        return self

    async def _enter(self) -> None:
        self._service.open()
        try:
            await (self._create() if self._is_new else self._join())
        except BaseException:
            await self._service.close()
            raise
        self._entered = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, RemoteSession]:
        """Enter the session as `async with` does: the caller must call `close`."""
        return self.__aenter__().__await__()

    async def close(self) -> None:
        """Cancel its steps and wait for their end; delete the session if this object made it, unless it is to be kept.

        Idempotent.

        Raises:
            OpError: the server could not be told.
        """
        if self.closed:
            return
        await self._runs.close()
        try:
            if not self._is_kept and self._handle is not None:
                await self._service.delete(self._handle)
        finally:
            await self._service.close()

    async def _create(self) -> None:
        self._handle = await self._remote.create(self._source, self._wishes)

    async def _join(self) -> None:
        document = await self.describe()
        self._remote.read(document)
        self._outlast_restarts(durable=document.get("durable", False))

    def _outlast_restarts(self, *, durable: bool) -> None:
        patience = _PATIENCE if durable else 0.0
        self._service.patience = patience if self._reconnect is None else self._reconnect

    # Properties and runs

    @property
    def handle(self) -> str:
        """The session's name in the server.  A client that knows the name of a new session may use it."""
        if self._handle is None:
            raise errors.FailedPreconditionError("The session is not open: enter it with 'async with' first")
        return self._handle

    @property
    def graph(self) -> Graph:
        """The graph that the session was made of.

        Raises:
            FailedPreconditionError: the session existed before: `fetch_graph` asks the server.
        """
        return self._remote.made_of

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message.  Raises as `graph` does."""
        return self.graph.to_graph_def()

    async def fetch_graph(self) -> Graph:
        """The graph as the server has it now, extensions included."""
        data = await self._service.graph(self.handle)
        return await run_in_thread(lambda: Graph.from_bytes(data), on_cancel=OnCancel.WAIT)

    @property
    def closed(self) -> bool:
        return self._runs.closed

    @property
    def steps(self) -> tuple[RemoteStep, ...]:
        """The steps in flight that were started here, oldest first."""
        return self._runs.steps

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the model: name → `Signature`.  Empty for a plain graph."""
        return self._remote.signatures

    def signature(self, name: str | None = None) -> Signature:
        """One of `signatures`, or that of a plain graph.  As `Session.signature`.

        Raises:
            NotFoundError: there is no signature of that name, or no default.
        """
        return self._remote.signature(name)

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The inputs of the default signature, which `call` takes: name → tensor, type and shape."""
        return self.signature().inputs

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The outputs of the default signature, which `call` returns: name → tensor, type and shape."""
        return self.signature().outputs

    async def describe(self) -> dict[str, Any]:
        """The server's description of the session: graph version, runs, plans, idle time and signatures."""
        return await self._service.describe(self.handle)

    async def runs(self) -> list[dict[str, Any]]:
        """The server's list of all runs in flight, also of other clients: id, state, seconds, nodes ready."""
        return await self._service.runs(self.handle)

    async def devices(self) -> list[proto.DeviceAttributes]:
        """The devices that the session runs on."""
        return list(await self._service.devices(self.handle))

    # Running

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        run_id: str | None = None,
    ) -> Any:
        """Run one step.  If the caller is cancelled, the run is cancelled in the server, and its end is awaited.

        Args:
            run_id: its name in the server; by default one that cannot be guessed.

        The other arguments, results and errors are those of `aexec.Session.run`; and UnavailableError if the server
        cannot be reached or the connection broke, in which case the step may have run.
        """
        if type(fetches) is list and not fetches and not targets:
            self._runs.check_open()
            return []
        return await self.start(fetches, feeds, targets, options=options, metadata=metadata, run_id=run_id)

    async def warm_up(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        runs: int = _WARM_UP_RUNS,
        **settings: Any,
    ) -> None:
        """Like `Session.warm_up`, with inputs.

        Raises:
            UnimplementedError: there are no inputs: the server makes plans by running.
        """
        if not inputs and settings.keys() <= {"options"}:
            raise errors.UnimplementedError("warm_up of a session in a server needs inputs to run it with")
        for _ in range(runs):
            await self.call(signature, inputs, **settings)

    def start(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        run_id: str | None = None,
    ) -> RemoteStep:
        """Start a step.  Arguments as for `run`; its errors are raised when it is awaited."""
        feeds = flat_feeds(feeds or {})
        call = self._callable(fetches, feeds, targets, None, answer_fed=True)
        return call.start(*feeds.values(), options=options, metadata=metadata, run_id=run_id)

    async def call(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        **named: Any,
    ) -> dict[str, Any]:
        """Run one step by a signature's own names.  As `Session.call`."""
        chosen = self.signature(signature)
        feeds = chosen.feeds(named_inputs(inputs, named))
        values: dict[str, Any] = await self.run(chosen.fetches(), feeds, options=options, metadata=metadata)
        return values

    def make_callable(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        options: RunOptions | Message | None = None,
    ) -> RemoteCallable:
        """Resolve fetches, feeds and targets once, for many runs: `await call(x)`.

        Arguments as of `Session.make_callable`.  The server looks names up when it is called.
        """
        return self._callable(fetches, feeds, targets, options)

    def _callable(
        self, fetches: Any, feeds: Iterable[Any], targets: Iterable[Any], options: Any, *, answer_fed: bool = False
    ) -> RemoteCallable:
        self._runs.check_open()
        mapper = FetchMapper(fetches)
        request = Request(self._remote.names, mapper, feeds, targets)
        return RemoteCallable(self._runs, mapper, request, options, answer_fed=answer_fed)

    async def cancel(self, run_id: str, reason: str = "") -> bool:
        """Cancel a run by its name, started by any client; return True unless it has ended.

        A run that has not arrived yet is cancelled when it does.
        """
        self._runs.check_open()
        return await self._runs.cancel(run_id, reason)

    async def partial_run_setup(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
    ) -> RemotePartialRun:
        """Start a step that is fed and fetched in several calls of `partial_run`.  As `Session.partial_run_setup`.

        Raises:
            UnimplementedError: options other than a deadline.
        """
        self._runs.check_open()
        return await self._runs.set_up_partial_run(fetches, feeds, targets, options)

    async def partial_run(
        self, setup: RemotePartialRun | str, fetches: Any, feeds: Mapping[Any, Any] | None = None
    ) -> Any:
        """Continue a partial run.  As `Session.partial_run`; if the caller is cancelled, the step is cancelled."""
        self._runs.check_open()
        handle = setup if isinstance(setup, str) else setup.handle
        return await self._runs.go_on(handle, fetches, feeds or {})

    # State

    def queue(self, name: str) -> RemoteQueue:
        """A queue of the graph, for putting and taking elements from Python.  As `Session.queue`.

        If there is no such queue, its methods raise.
        """
        return self._queues.queue(name)

    async def queues(self) -> dict[str, RemoteQueue]:
        """The existing queues, by name."""
        return await self._queues.existing()

    @property
    def tensors(self) -> RemoteTensors:
        """The tensors that the session keeps under handles."""
        return RemoteTensors(self._service, self.handle)

    # Changing

    async def reset(self, containers: Iterable[str] = ()) -> None:
        """Cancel the steps in flight and delete containers.  As `Session.reset`."""
        self._runs.check_open()
        await self._service.reset(self.handle, containers)

    async def extend(self, more: Graph | Message | bytes) -> None:
        """Add nodes to the session's graph.  As `Session.extend`.

        Raises:
            FailedPreconditionError: another client has extended it meanwhile.
        """
        self._runs.check_open()
        if isinstance(more, Graph):
            more = more.to_graph_def()
        added = as_message(more, proto.GraphDef)
        await self._remote.extend(self.handle, added)

    def _repr_html_(self) -> str:
        steps = [(step.run_id, step.state.value) for step in self.steps]
        signatures = self._remote.signatures
        known = signatures or self._remote.local is None
        tables = [
            *(signature_tables(signatures) if known else self.signature().html_tables()),
            table("steps", ["state"], steps, len(steps)),
        ]
        return block("RemoteSession", f"{self._service.url}{', closed' if self.closed else ''}", *tables)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.steps)} steps in flight"
        return f"<RemoteSession {self._service.url}: {state}>"
