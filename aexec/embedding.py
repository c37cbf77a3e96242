"""`Embedding`: sessions for other languages and processes.  Bytes in, a status and bytes out, and no exceptions.

For programs in C, and for a worker process that talks through a pipe.  Graphs, settings and tensors are serialised
messages (GraphDef, ConfigProto, RunOptions, CallableOptions, TensorProto), sessions and callables are numbers, and an
error is a canonical code with a message.  Nothing else crosses the boundary, so the other side depends on no internals
and stays valid when these change.

Sessions use an event loop in a thread of its own, which exists while there are sessions.  Every method may be called
from any thread and waits; tensors are decoded and encoded in the thread that calls.  `scripts/embedding/` makes a
shared library of it, with a header; docs/embedding-c.md describes both.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.errors import Code
from aexec.framework.wire import tensor_codec
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph
from aexec.runtime.config import RunMetadata, RunOptions, SessionConfig
from aexec.runtime.session.callable import SessionCallable, canonical_name
from aexec.runtime.session.partial_run import PartialRun
from aexec.runtime.session.session import Session
from aexec.runtime.threads.loop_thread import LoopThread
from aexec.sources import load

__all__ = ["Embedding", "Status"]

T = TypeVar("T")
NamedTensor = tuple[str, bytes]


class Status(NamedTuple):
    """How a call ended: a canonical code, 0 for success, and the error's message, "" for success."""

    code: int
    message: str


_OK = Status(0, "")


class Embedding:
    """Sessions and callables by number, for programs in other languages; a status takes the place of exceptions.

    Every method returns a `Status`, alone or before its results, which are empty unless the status is OK.  The
    canonical codes: NOT_FOUND for unknown numbers and names; INVALID_ARGUMENT for bytes that cannot be parsed and
    values of a wrong type or shape; CANCELLED for a call that was cancelled or whose caller was interrupted; and the
    codes of errors of running the graph.

    Args of several methods:
        session: a number that `new_session` returned.
        feeds: pairs of a tensor's name, `x:0`, and a TensorProto.
        fetches: names of tensors; `y` is `y:0`.
        targets: names of operations to run.
        run_id: chosen by the caller, any number but 0; `cancel` finds the call by it while it is in flight.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[int, _Open] = {}
        self._loop: LoopThread | None = None
        # Number of sessions that are open, or being opened or closed: the loop is needed while there are any.
        self._users = 0
        self._numbers = 0

    # Sessions

    def new_session(self, graph_def: bytes = b"", config: bytes = b"") -> tuple[Status, int]:
        """Open a session.

        Args:
            graph_def: a GraphDef; empty for a graph to which `extend` will add.
            config: a ConfigProto; a field that is set but not supported is refused with UNIMPLEMENTED.

        Returns:
            Its number, never 0.
        """

        def work() -> int:
            settings = SessionConfig.from_proto(_message(config, proto.ConfigProto))
            graph = load(_bytes(graph_def, "graph_def")) if graph_def else Graph()
            loop = self._enter()
            try:

                async def opened() -> Session:
                    session = Session(graph, config=settings)
                    session.own_graph()
                    return await session

                session = loop.wait(opened())
            except BaseException:
                self._leave()
                raise
            with self._lock:
                self._numbers += 1
                self._sessions[self._numbers] = _Open(session, loop)
                return self._numbers

        return _said(work, 0)

    def extend(self, session: int, graph_def: bytes) -> Status:
        """Add the nodes of a GraphDef to the graph, which is unchanged if they are refused."""

        def work() -> None:
            opened = self._find(session)
            opened.loop.wait(opened.session.extend(_bytes(graph_def, "graph_def")))

        return _said(work, None)[0]

    def list_devices(self, session: int) -> tuple[Status, list[bytes]]:
        """The devices of a session, each a DeviceAttributes."""
        return _said(lambda: [d.to_proto().SerializeToString() for d in self._find(session).session.devices()], [])

    def close(self, session: int) -> Status:
        """Cancel the session's steps, wait until nothing of it runs, and delete it with all that it keeps."""

        def work() -> None:
            with self._lock:
                opened = self._sessions.pop(session, None)
            if opened is None:
                raise _no_session(session)
            try:
                opened.loop.wait(opened.session.close())
            finally:
                self._leave()

        return _said(work, None)[0]

    # Running

    def run(
        self,
        session: int,
        feeds: Sequence[NamedTensor] = (),
        fetches: Sequence[str] = (),
        targets: Sequence[str] = (),
        options: bytes = b"",
        run_id: int = 0,
    ) -> tuple[Status, list[bytes], bytes]:
        """Run one step.

        Args:
            options: a RunOptions, with the deadline and what to report in the metadata; empty for the session's
                defaults.

        Returns:
            A TensorProto for each fetch, and a RunMetadata, which is empty unless the options ask for something.
        """

        def work() -> tuple[list[bytes], bytes]:
            opened = self._find(session)
            arrays = _decoded(feeds)
            given, metadata = _options(options)
            tensors, nodes = _tensors(fetches), _names(targets, "targets")
            run = opened.session.run
            arguments = (tuple(tensors), arrays, nodes)
            encoded = opened.fetch(tensors, run_id, lambda: run(*arguments, options=given, metadata=metadata))
            return encoded, _encoded_metadata(metadata)

        nothing: tuple[list[bytes], bytes] = ([], b"")
        status, (tensors, metadata) = _said(work, nothing)
        return status, tensors, metadata

    def cancel(self, session: int, run_id: int) -> Status:
        """Cancel a call in flight, which ends with CANCELLED.  NOT_FOUND: there is no call of that number, or it has
        ended.
        """

        def work() -> None:
            opened = self._find(session)
            with opened.lock:
                call = opened.calls.get(run_id)
            if call is None:
                raise errors.NotFoundError(f"No call with run_id {run_id} is in flight in session {session}")
            opened.loop.call_soon(call.cancel)

        return _said(work, None)[0]

    # Partial runs

    def partial_run_setup(
        self,
        session: int,
        feeds: Sequence[str] = (),
        fetches: Sequence[str] = (),
        targets: Sequence[str] = (),
        options: bytes = b"",
    ) -> tuple[Status, str]:
        """Begin a step that is fed and fetched in several calls.

        Args:
            feeds: names of all tensors that will be fed.
            fetches, targets: names of everything that will be fetched or run.

        Returns:
            The handle of the partial run.
        """

        def work() -> str:
            opened = self._find(session)
            given = RunOptions.from_proto(_message(options, proto.RunOptions))
            tensors, fed, nodes = _tensors(fetches), _names(feeds, "feeds"), _names(targets, "targets")
            step = opened.loop.wait(opened.session.partial_run_setup(tensors, fed, nodes, options=given))
            with opened.lock:
                opened.partial_runs = {h: run for h, run in opened.partial_runs.items() if not run.done}
                opened.partial_runs[step.handle] = step
            return step.handle

        return _said(work, "")

    def partial_run(
        self,
        session: int,
        handle: str,
        feeds: Sequence[NamedTensor] = (),
        fetches: Sequence[str] = (),
    ) -> tuple[Status, list[bytes]]:
        """Continue a partial run: feed some of its feeds, and wait for some of its fetches, which are returned."""

        def work() -> list[bytes]:
            opened = self._find(session)
            arrays = _decoded(feeds)
            names = _tensors(fetches)
            return opened.fetch(names, 0, lambda: opened.session.partial_run(handle, names, arrays))

        return _said(work, [])

    def cancel_partial_run(self, session: int, handle: str) -> Status:
        """Cancel a partial run: its step, and calls that wait for part of it, end with CANCELLED."""

        def work() -> None:
            opened = self._find(session)
            with opened.lock:
                step = opened.partial_runs.pop(handle, None)
            if step is None or step.done:
                raise errors.NotFoundError(f"No partial run {handle!r} is in flight in session {session}")
            opened.loop.call_soon(step.cancel, "cancel_partial_run was called")

        return _said(work, None)[0]

    # Callables

    def make_callable(self, session: int, callable_options: bytes) -> tuple[Status, int]:
        """Resolve a CallableOptions once, for many runs.

        Returns:
            The number of the callable, never 0.
        """

        def work() -> int:
            opened = self._find(session)
            message = _message(callable_options, proto.CallableOptions)
            message.fetch[:] = tensors = _tensors(message.fetch)

            async def make() -> SessionCallable:
                return opened.session.make_callable(message)

            call = opened.loop.wait(make())
            with opened.lock:
                opened.numbers += 1
                opened.callables[opened.numbers] = (call, tensors)
                return opened.numbers

        return _said(work, 0)

    def run_callable(
        self, session: int, handle: int, feeds: Sequence[bytes] = (), run_id: int = 0
    ) -> tuple[Status, list[bytes], bytes]:
        """Run a callable.

        Args:
            handle: its number.
            feeds: TensorProtos, in the order of its options' feeds.

        Returns:
            As `run` does.
        """

        def work() -> tuple[list[bytes], bytes]:
            opened = self._find(session)
            with opened.lock:
                found = opened.callables.get(handle)
            if found is None:
                raise _no_callable(session, handle)
            call, fetches = found
            arrays = [_tensor(data, f"feed {i}") for i, data in enumerate(feeds)]
            metadata = _metadata_for(call.options)
            encoded = opened.fetch(fetches, run_id, lambda: call(*arrays, metadata=metadata))
            return encoded, _encoded_metadata(metadata)

        nothing: tuple[list[bytes], bytes] = ([], b"")
        status, (tensors, metadata) = _said(work, nothing)
        return status, tensors, metadata

    def release_callable(self, session: int, handle: int) -> Status:
        """Delete a callable.  Runs of it in flight go on."""

        def work() -> None:
            opened = self._find(session)
            with opened.lock:
                if opened.callables.pop(handle, None) is None:
                    raise _no_callable(session, handle)

        return _said(work, None)[0]

    # Helpers

    def _find(self, session: int) -> _Open:
        with self._lock:
            found = self._sessions.get(session)
        if found is None:
            raise _no_session(session)
        return found

    def _enter(self) -> LoopThread:
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread("aexec.embedding")
            self._users += 1
            return self._loop

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            unused = self._loop if not self._users else None
            if unused is not None:
                self._loop = None
        if unused is not None:
            unused.stop()


class _Open:
    """An open session.

    Attributes:
        lock: held for every use of the fields below.
        calls: calls in flight that can be cancelled, by run_id.
        callables: by number, with the names of their fetches.
        numbers: numbers of callables.
        partial_runs: by handle.
    """

    def __init__(self, session: Session, loop: LoopThread) -> None:
        self.session = session
        self.loop = loop
        self.lock = threading.Lock()
        self.calls: dict[int, _Call] = {}
        self.callables: dict[int, tuple[SessionCallable, list[str]]] = {}
        self.numbers = 0
        self.partial_runs: dict[str, PartialRun] = {}

    def fetch(self, names: Sequence[str], run_id: int, run: Callable[[], Awaitable[Any]]) -> list[bytes]:
        """The values that a run fetches, as TensorProtos of their tensors' types, which arrays alone do not tell."""

        async def run_and_keep_graph() -> tuple[Graph | None, Sequence[Any]]:
            # As soon as the run has ended, another thread may close the session, which then frees its graph.
            graph = None if self.session.closed else self.session.graph
            return graph, await run()

        graph, values = self.call(run_id, run_and_keep_graph)
        assert graph is not None, "a closed session refuses to run"
        return [
            tensor_codec.to_proto(value, graph.tensor(name).dtype.base, compact=False).SerializeToString()
            for name, value in zip(names, values, strict=True)
        ]

    def call(self, run_id: int, run: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a run, which `Embedding.cancel` can cancel."""
        call = _Call(run_id)
        if not run_id:
            return self.loop.wait(call.through(run))
        with self.lock:
            if run_id in self.calls:
                raise errors.AlreadyExistsError(f"A call with run_id {run_id} is in flight")
            self.calls[run_id] = call
        try:
            return self.loop.wait(call.through(run))
        finally:
            with self.lock:
                del self.calls[run_id]


class _Call:
    """A run on the loop that may be cancelled before it has begun."""

    def __init__(self, run_id: int) -> None:
        self._run_id = run_id
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Called on the loop."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def through(self, run: Callable[[], Awaitable[Any]]) -> Any:
        self._task = asyncio.current_task()
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            return await run()
        except asyncio.CancelledError:
            if not self._cancelled:
                raise  # the waiter was interrupted, or the loop stops
            raise errors.CancelledError(f"The call with run_id {self._run_id} was cancelled") from None
        finally:
            self._task = None


# Statuses


def _said(work: Callable[[], T], otherwise: T) -> tuple[Status, T]:
    """The result of `work`, or `otherwise`, with the status.  Nothing is raised."""
    try:
        return _OK, work()
    except BaseException as error:
        return _status_of(error), otherwise


def _status_of(error: BaseException) -> Status:
    if isinstance(error, errors.OpError):
        return Status(int(error.code), str(error))
    if isinstance(error, asyncio.CancelledError | concurrent.futures.CancelledError):
        return Status(int(Code.CANCELLED), "The call was cancelled: its session was closed meanwhile")
    if isinstance(error, KeyboardInterrupt):
        return Status(int(Code.CANCELLED), "The call was cancelled: its thread was interrupted")
    if isinstance(error, MemoryError):
        return Status(int(Code.RESOURCE_EXHAUSTED), f"Out of memory: {error}")
    return Status(int(Code.INTERNAL), f"{type(error).__name__}: {error}")


def _no_session(session: object) -> errors.NotFoundError:
    return errors.NotFoundError(f"There is no session {session!r}: it was closed, or never opened")


def _no_callable(session: int, handle: object) -> errors.NotFoundError:
    return errors.NotFoundError(f"Session {session} has no callable {handle!r}: it was released, or never made")


# Bytes


def _bytes(value: Any, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise errors.InvalidArgumentError(f"Expected {what} as bytes, got {type(value).__name__}")


def _message(data: Any, kind: type[Any]) -> Any:
    return as_message(_bytes(data, kind.DESCRIPTOR.name), kind)


def _names(values: Any, what: str) -> list[str]:
    for value in (names := list(values)):
        if not isinstance(value, str):
            raise errors.InvalidArgumentError(f"Expected {what} as names, got {type(value).__name__}")
    return names


def _tensors(fetches: Any) -> list[str]:
    """Names of tensors; `y` means `y:0` here, whereas in a session it is an operation."""
    return [canonical_name(name) for name in _names(fetches, "fetches")]


def _tensor(data: Any, what: str) -> Any:
    try:
        return tensor_codec.from_proto(_message(data, proto.TensorProto))
    except errors.OpError as error:
        raise type(error)(f"{what}: {error.message}") from None


def _decoded(feeds: Sequence[NamedTensor]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, data in feeds:
        (name,) = _names([name], "feeds")
        if name in arrays:
            raise errors.InvalidArgumentError(f"The tensor {name} is fed twice")
        arrays[name] = _tensor(data, f"feed {name}")
    return arrays


def _options(data: Any) -> tuple[RunOptions | None, RunMetadata | None]:
    if not data:
        return None, None
    options = RunOptions.from_proto(_message(data, proto.RunOptions))
    return options, _metadata_for(options)


def _metadata_for(options: RunOptions | None) -> RunMetadata | None:
    """The metadata that a run has to fill; None if its options ask for none."""
    asked = options is not None and (options.is_traced or options.output_partition_graphs)
    return RunMetadata() if asked else None


def _encoded_metadata(metadata: RunMetadata | None) -> bytes:
    return b"" if metadata is None else metadata.to_proto().SerializeToString()
