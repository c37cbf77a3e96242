"""`aexec.connect`: a session in a server, used like one of this process."""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block, table
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.framework.wire.messages import as_message
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.graph import Graph, current_graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import (
    Signature,
    TensorInfo,
    choose_signature,
    graph_signature,
    named_inputs,
    signature_tables,
)
from aexec.queues.queue_base import QueueStatistics
from aexec.remote.descriptions import default_signature, read_signatures
from aexec.remote.remote_callable import RemoteCallable
from aexec.remote.remote_partial_run import RemotePartialRun
from aexec.remote.remote_queue import RemoteQueue
from aexec.remote.remote_step import RemoteStep
from aexec.remote.remote_tensors import RemoteTensors
from aexec.remote.run_messages import (
    both_fed_and_fetched,
    fed_once,
    options_message,
    read_response,
    read_tensors,
    run_message,
    sent_feeds,
)
from aexec.remote.service import KEY, Service, quoted
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds, to_values
from aexec.runtime.session.callable import Request, canonical_name
from aexec.runtime.threads.worker_pool import run_in_thread
from aexec.sources import load

__all__ = ["RemoteSession", "connect"]

T = TypeVar("T")

_SESSIONS = "/v1/sessions"
_WARM_UP_RUNS = 5
# Larger messages, in bytes, are written and read in a thread.
_LARGE = 1 << 20


def _answered(fetches: Sequence[str], body: bytes) -> dict[str, Any]:
    """Fetch → its value, for fetches that are fed in a run's message."""
    sent = sent_feeds(body)
    return {name: sent[canonical_name(name)] for name in fetches}


async def _beside(size: int, work: Callable[[], T]) -> T:
    """Do work on this many bytes; in a thread if it would block the event loop."""
    if size <= _LARGE:
        try:
            return work()
        except NeedsThreadError:
            pass
    return await run_in_thread(work, on_cancel=OnCancel.ABANDON)


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
    ca: str | Path | ssl.SSLContext | None = None,
    retry_runs: bool = False,
) -> RemoteSession:
    """A session of a server: `async with aexec.connect("http://127.0.0.1:8500", graph) as session:`.

    It has the methods of `aexec.Session`, so that a program moves to a server by this line.

    Args:
        url: the server's address; with `/v1/sessions/NAME`, that of an existing session, which is then used and not
            deleted.
        graph: the graph of a new session, as `aexec.Session` takes it; by default the graph that is being built.  Nodes
            that are added to it later are sent before the next run.  The session is deleted when it is closed.
        session: name of an existing session, instead of one in `url`.
        config: of a new session, as TensorFlow's message.
        ttl: seconds without use after which the server may close a new session.
        name: the name of a new session, if it is free; by default one that nobody can guess.
        retry_runs: send a run again if its connection breaks: the server runs it once, and keeps its answer for that.
            Such a run goes on in the server if this program ends.
        headers: sent with each request, such as one that identifies the client.
        token: identifies the client to the server; by default that of the environment variable `AEXEC_TOKEN`, if it is
            set. Without TLS, anybody on the network path can read it.
        ca: PEM file of the authority that signed the server's certificate, or an `ssl.SSLContext`, which may also have
            a client certificate; by default the system's.

    Raises:
        InvalidArgumentError: the address is invalid; both a session and a graph are given, or neither.
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
    if name is not None and session is not None:
        raise errors.InvalidArgumentError("a session that is there has its name: leave out name, or session")
    service = Service(address, headers, token or os.environ.get("AEXEC_TOKEN") or None, ca)
    return RemoteSession(service, graph, session, config, ttl, name, retry_runs=retry_runs)


class RemoteSession:
    """Runs a graph in a server.  Made by `aexec.connect`: enter it, or await it, and close it when done.

    Its methods belong to one event loop; `RemoteStep.cancel` may be called from any thread.
    """

    def __init__(
        self,
        service: Service,
        source: Any,
        name: str | None,
        config: proto.ConfigProto | Message | None,
        ttl: float | None,
        new_name: str | None = None,
        *,
        retry_runs: bool = False,
    ) -> None:
        self._service = service
        self._source = source
        self._config = proto.ConfigProto() if config is None else as_message(config, proto.ConfigProto)
        self._ttl = ttl
        self._new_name = new_name
        self._retry_runs = retry_runs
        self._partial_runs: dict[str, RemotePartialRun] = {}
        self._handle = name
        self._is_new = name is None
        self._graph: Graph | None = None
        self._sent_nodes = 0
        self._version = 0
        self._signatures: Mapping[str, Signature] = {}
        self._whole: Signature | None = None
        self._steps: dict[str, RemoteStep] = {}
        self._entering = asyncio.Lock()
        self._entered = False
        self._extending = asyncio.Lock()
        self._closed = False

    # Opening and closing

    async def __aenter__(self) -> RemoteSession:
        async with self._entering:
            self._check_open()
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
        """Cancel its steps and wait for their end; delete the session if this object made it.  Idempotent.

        Raises:
            OpError: the server could not be told.
        """
        if self._closed:
            return
        self._closed = True
        steps = tuple(self._steps.values())
        for step in steps:
            step.cancel("the session was closed")
        for step in steps:
            await step.settle()
        for partial_run in self._partial_runs.values():
            await partial_run.settle()
        try:
            if self._is_new and self._handle is not None:
                await self._service.delete(self._path())
        finally:
            await self._service.close()

    async def _create(self) -> None:
        loaded = self._source
        if not isinstance(loaded, Graph | MetaGraph):
            loaded = await run_in_thread(lambda: load(self._source), on_cancel=OnCancel.WAIT)
        if isinstance(loaded, MetaGraph):
            self._signatures, loaded = loaded.public_signatures, loaded.graph
        if not isinstance(loaded, Graph):
            raise errors.InvalidArgumentError(
                f"{loaded!r} has variables, which a graph alone does not: make one graph of it with "
                "aexec.saved_model.freeze, or let the server load it"
            )
        self._graph, self._sent_nodes = loaded, len(loaded)
        message = await run_in_thread(self._creation, on_cancel=OnCancel.WAIT)
        wishes = {"ttl_s": self._ttl, "name": self._new_name}
        query = urlencode({key: value for key, value in wishes.items() if value is not None})
        path = f"{_SESSIONS}?{query}" if query else _SESSIONS
        answer = proto.CreateSessionResponse.FromString(
            await self._service.post_message(path, message, {KEY: secrets.token_hex(16)})
        )
        self._handle, self._version = answer.session_handle, answer.graph_version

    def _creation(self) -> bytes:
        assert self._graph is not None
        request = proto.CreateSessionRequest(graph_def=self._graph.to_graph_def(), config=self._config)
        return request.SerializeToString()

    async def _join(self) -> None:
        document = await self.describe()
        self._version = document["graph_version"]
        self._signatures = read_signatures(document)
        self._whole = default_signature(document)

    # What it is and does

    @property
    def handle(self) -> str:
        """The session's name in the server.  Whoever knows the name of a new session may use it."""
        if self._handle is None:
            raise errors.FailedPreconditionError("The session is not open: enter it with 'async with' first")
        return self._handle

    @property
    def graph(self) -> Graph:
        """The graph that the session was made of.

        Raises:
            FailedPreconditionError: the session existed before: `fetch_graph` asks the server.
        """
        if self._graph is None:
            raise errors.FailedPreconditionError("The graph is in the server: await fetch_graph()")
        return self._graph

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message.  Raises as `graph` does."""
        return self.graph.to_graph_def()

    async def fetch_graph(self) -> Graph:
        """The graph as the server has it now, extensions included."""
        data = await self._service.look(f"{self._path()}/graph", "application/octet-stream")
        return await run_in_thread(lambda: Graph.from_bytes(data), on_cancel=OnCancel.WAIT)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def steps(self) -> tuple[RemoteStep, ...]:
        """The steps in flight that were started here, oldest first."""
        return tuple(self._steps.values())

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the model: name → `Signature`.  Empty for a plain graph."""
        return self._signatures

    def signature(self, name: str | None = None) -> Signature:
        """One of `signatures`, or that of a plain graph.  As `Session.signature`.

        Raises:
            NotFoundError: there is no signature of that name, or no default.
        """
        if name is not None or self._signatures:
            return choose_signature(self._signatures, name)
        if self._whole is None:
            self._whole = graph_signature(self.graph)
        return self._whole

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
        return await self._service.look_at(self._path())

    async def runs(self) -> list[dict[str, Any]]:
        """The server's list of all runs in flight, also of other clients: id, state, seconds, nodes ready."""
        answer = await self._service.look_at(f"{self._path()}/runs")
        runs: list[dict[str, Any]] = answer["runs"]
        return runs

    async def devices(self) -> list[proto.DeviceAttributes]:
        """The devices that the session runs on."""
        data = await self._service.look(f"{self._path()}/devices", "application/x-protobuf")
        return list(proto.ListDevicesResponse.FromString(data).local_device)

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
            run_id: its name in the server; by default one that nobody can guess.

        The other arguments, results and errors are those of `aexec.Session.run`; and UnavailableError if the server
        cannot be reached or the connection broke, in which case the step may have run.
        """
        if type(fetches) is list and not fetches and not targets:
            self._check_open()
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
        """As `Session.warm_up`, with inputs.

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
        self._check_open()
        mapper = FetchMapper(fetches)
        request = Request(self._graph or Graph(), mapper, feeds, targets)
        return RemoteCallable(self, mapper, request, options, answer_fed=answer_fed)

    def start_run(
        self,
        fetches: Sequence[str],
        feeds: dict[str, Any],
        targets: Sequence[str],
        build: Callable[[Sequence[Any]], Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        run_id: str | None = None,
    ) -> RemoteStep:
        """Start a run; called by callables."""
        self._check_open()
        settings = options_message(options)
        name = secrets.token_hex(8) if run_id is None else run_id
        # A server does not return fed values.
        fed = both_fed_and_fetched(feeds, fetches)
        asked = [each for each in fetches if each not in fed]

        async def run() -> Any:
            try:
                await self._send_new_nodes()
                known = self._known(feeds)
                size = sum(getattr(value, "nbytes", 0) for value in feeds.values())
                body = await _beside(size, lambda: run_message(feeds, known, asked, targets, settings))
                values = _answered(fed, body) if fed else {}
                if asked or targets:
                    headers = {"Aexec-Run-Id": name}
                    if self._retry_runs:
                        headers[KEY] = secrets.token_hex(16)
                    answer = await self._service.post_message(f"{self._path()}:run", body, headers)
                    got = await _beside(len(answer), lambda: read_response(answer, asked, metadata))
                    values.update(zip(asked, got, strict=True))
                return build(to_values([values[each] for each in fetches]))
            finally:
                del self._steps[name]

        if name in self._steps:
            raise errors.AlreadyExistsError(f"Run '{name}' is in flight")
        seconds = settings.timeout_in_ms / 1e3 if settings.timeout_in_ms else None
        step = self._steps[name] = RemoteStep(name, run, lambda reason: self._cancel(name, reason), seconds)
        return step

    async def cancel(self, run_id: str, reason: str = "") -> bool:
        """Cancel a run by its name, whoever started it; True unless it has ended.

        A run that has not arrived yet is cancelled when it does.
        """
        self._check_open()
        return await self._cancel(run_id, reason)

    async def _cancel(self, run_id: str, reason: str) -> bool:
        try:
            answer = await self._service.post_json(
                f"{self._path()}/runs/{quoted(run_id)}:cancel", {"reason": reason} if reason else {}
            )
        except errors.NotFoundError:
            return True  # the server remembers it
        return bool(answer["cancelled"])

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
        self._check_open()
        settings = options_message(options)
        timeout, settings.timeout_in_ms = settings.timeout_in_ms, 0
        if settings != options_message(None):
            raise errors.UnimplementedError("Of the options of a partial run in a server the timeout counts")
        await self._send_new_nodes()
        request = Request(self._graph or Graph(), FetchMapper(fetches), feeds, targets)
        message = proto.PartialRunSetupRequest(feed=request.feeds, fetch=request.fetches, target=request.targets)
        answer = await self._service.post_message(
            f"{self._path()}:partialRunSetup", message.SerializeToString(), {"Aexec-Timeout-Ms": str(timeout)}
        )
        handle = proto.PartialRunSetupResponse.FromString(answer).partial_run_handle
        step = self._partial_runs[handle] = RemotePartialRun(handle, lambda reason: self._cancel(handle, reason))
        return step

    async def partial_run(
        self, setup: RemotePartialRun | str, fetches: Any, feeds: Mapping[Any, Any] | None = None
    ) -> Any:
        """Continue a partial run.  As `Session.partial_run`; if the caller is cancelled, the step is cancelled."""
        self._check_open()
        handle = setup if isinstance(setup, str) else setup.handle
        given = flat_feeds(feeds or {})
        mapper = FetchMapper(fetches)
        request = Request(self._graph or Graph(), mapper, given, ())
        if request.targets:
            raise errors.InvalidArgumentError("partial_run() requires empty target_list.")
        values = fed_once(request.feeds, given.values())
        body = run_message(values, self._known(values), request.fetches, (), proto.RunOptions(), handle)
        answer = await self._service.post_message(f"{self._path()}:run", body)
        return mapper.build(to_values(read_response(answer, request.fetches, None)))

    # What it keeps

    def queue(self, name: str) -> RemoteQueue:
        """A queue of the graph, for putting and taking elements from Python.  As `Session.queue`.

        If there is no such queue, its methods raise.
        """
        self._check_open()
        node = None if self._graph is None else self._graph.find(name)
        types = None if node is None else tuple(node.attrs.get("component_types", ())) or None
        return RemoteQueue(self, name, f"/queues/{quoted(name)}", types)

    async def queues(self) -> dict[str, RemoteQueue]:
        """The existing queues, by name."""
        answer = await self._service.look_at(f"{self._path()}/queues")
        return {fields["name"]: self.queue(fields["name"]) for fields in answer["queues"]}

    async def queue_statistics(self, name: str) -> QueueStatistics:
        """The statistics of a queue; called by queues."""
        answer = await self._service.look_at(f"{self._path()}/queues")
        for fields in answer["queues"]:
            if fields["name"] == name:
                waiting = fields.pop("waiting_producers"), fields.pop("waiting_consumers")
                return QueueStatistics(**fields, waiting_enqueues=waiting[0], waiting_dequeues=waiting[1])
        raise errors.NotFoundError(f"There is no queue '{name}', or nobody has used it yet")

    async def exchange(
        self, call: str, feeds: Mapping[str, Any], known: Mapping[str, TensorInfo], query: Mapping[str, Any]
    ) -> list[Any]:
        """Send tensors to a call of the session, and return those of the answer; called by queues."""
        self._check_open()
        await self._send_new_nodes()
        body = run_message(feeds, known, (), (), proto.RunOptions())
        answer = await self._service.post_message(f"{self._path()}{call}?{urlencode(query)}", body)
        return [value for _, value in read_tensors(answer)]

    @property
    def tensors(self) -> RemoteTensors:
        """The tensors that the session keeps under handles."""
        return RemoteTensors(self._service, f"{self._path()}/tensors")

    # Changing

    async def reset(self, containers: Iterable[str] = ()) -> None:
        """Cancel the steps in flight and delete containers.  As `Session.reset`."""
        self._check_open()
        message = proto.ResetRequest(container=containers)
        await self._service.post_message(f"{self._path()}:reset", message.SerializeToString())

    async def extend(self, more: Graph | Message | bytes) -> None:
        """Add nodes to the session's graph.  As `Session.extend`.

        Raises:
            FailedPreconditionError: another client has extended it meanwhile.
        """
        self._check_open()
        if isinstance(more, Graph):
            more = more.to_graph_def()
        added = as_message(more, proto.GraphDef)
        async with self._extending:
            await self._extend(added)

    async def _extend(self, added: proto.GraphDef) -> None:
        request = proto.ExtendSessionRequest(graph_def=added, current_graph_version=self._version)
        answer = await self._service.post_message(
            f"{self._path()}:extend", request.SerializeToString(), {KEY: secrets.token_hex(16)}
        )
        self._version = proto.ExtendSessionResponse.FromString(answer).new_graph_version

    async def _send_new_nodes(self) -> None:
        """Send the nodes that were added to the graph since it was sent."""
        graph = self._graph
        if graph is None or len(graph) == self._sent_nodes:
            return
        async with self._extending:
            count = len(graph)
            if count == self._sent_nodes:
                return
            added = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes[self._sent_nodes : count]])
            added.versions.CopyFrom(graph.versions)
            if len(graph.library):
                added.library.CopyFrom(graph.library.to_proto())
            await self._extend(added)
            self._sent_nodes, self._whole = count, None

    # Helpers

    def _known(self, feeds: Iterable[str]) -> dict[str, TensorInfo]:
        """The known types of tensors, by the names that they are fed by."""
        known = {}
        for name in feeds:
            info = self._info(name)
            if info is not None:
                known[name] = info
        return known

    def _info(self, name: str) -> TensorInfo | None:
        tensor = name if ":" in name else f"{name}:0"
        if self._graph is not None:
            try:
                return TensorInfo.of(self._graph.tensor(tensor))
            except errors.OpError:
                return None  # a node of another client's extension, or an error that the server will report
        signatures = [*self._signatures.values(), *([self._whole] if self._whole else ())]
        infos = (info for signature in signatures for info in signature.inputs.values())
        return next((info for info in infos if info.name == tensor), None)

    def _path(self) -> str:
        return f"{_SESSIONS}/{quoted(self.handle)}"

    def _check_open(self) -> None:
        if self._closed:
            raise errors.CancelledError("Session has been closed.")

    def _repr_html_(self) -> str:
        steps = [(step.run_id, step.state.value) for step in self.steps]
        known = self._signatures or self._graph is None
        tables = [
            *(signature_tables(self._signatures) if known else self.signature().html_tables()),
            table("steps", ["state"], steps, len(steps)),
        ]
        return block("RemoteSession", f"{self._service.url}{', closed' if self._closed else ''}", *tables)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._steps)} steps in flight"
        return f"<RemoteSession {self._service.url}: {state}>"
