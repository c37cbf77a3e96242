"""`aexec.SyncSession` and `aexec.blocking`: sessions for scripts, notebooks and plain threads.

These have no event loop in which to await, or must not block the one that they have; the session uses an event loop in
a thread of its own (`aexec/runtime/threads/loop_thread.py`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.signature import Signature, TensorInfo
from aexec.runtime.config import RunMetadata, SessionConfig
from aexec.runtime.session.run_types import Source, TargetsLike
from aexec.runtime.session.session import Session
from aexec.runtime.session.session_protocol import NativeSessionProtocol
from aexec.runtime.threads.loop_thread import LoopThread

__all__ = ["BlockingSession", "SyncSession", "blocking"]

T = TypeVar("T")


def blocking(session: NativeSessionProtocol) -> BlockingSession:
    """A session whose methods wait: `with aexec.blocking(aexec.connect(url, graph)) as session: session.run("y:0")`.

    Args:
        session: a session that was not used yet; it will belong to the event loop of a thread of its own.
    """
    return BlockingSession(session)


Wait = Callable[[Coroutine[Any, Any, Any]], Any]


def _waiting(value: Any, wait: Wait) -> Any:
    """The value; if it is a coroutine function, a function that waits for its result."""
    if not inspect.iscoroutinefunction(value):
        return value

    @functools.wraps(value)
    def call(*arguments: Any, **settings: Any) -> Any:
        return wait(value(*arguments, **settings))

    return call


class _Waiting:
    """Wraps an object of a session: its coroutine functions wait.

    Args:
        target: the object.
        wait: waits for a coroutine's result.
    """

    def __init__(self, target: Any, wait: Wait) -> None:
        self._target = target
        self._wait = wait

    def __getattr__(self, name: str) -> Any:
        return _waiting(getattr(self._target, name), self._wait)

    def __iter__(self) -> Iterator[Any]:
        elements = aiter(self._target)
        end = object()

        async def following() -> Any:
            return await anext(elements, end)

        while (element := self._wait(following())) is not end:
            yield element

    def __repr__(self) -> str:
        return f"<{self._target!r}, whose methods wait>"


class _WaitingStep(_Waiting):
    """A step in flight: `cancel` may be called from any thread, `result` waits for its results."""

    def result(self) -> Any:
        """The step's results; raises its error.  If the wait is interrupted, the step is cancelled."""

        async def end() -> Any:
            return await self._target

        return self._wait(end())


class BlockingSession:
    """Has the methods of the session, but coroutine functions wait.  Enter it, and leave it to close it.

    It may be used from any thread, by several at a time, and where an event loop runs already, as in a notebook: that
    loop stands still meanwhile.  Interrupting a waiting method cancels it: Ctrl-C stops a run.  The callables of
    `make_callable` wait, too; of a step that `start` returns, `result` does.  Methods that only some sessions have,
    such as `Session.plan_source`, are available under their names.
    """

    def __init__(self, session: NativeSessionProtocol) -> None:
        self._session: Any = session
        self._thread: LoopThread | None = None
        self._closed = False

    def __enter__(self) -> BlockingSession:
        if self._thread is not None:
            raise errors.FailedPreconditionError("A blocking session is entered once")
        self._enter()
        return self

    def _enter(self) -> None:
        thread = self._thread = LoopThread("aexec.blocking")
        try:
            self._session = session = thread.wait(self._open())
            if isinstance(session, Session):
                session.own_loop(thread.has_one_caller)
        except BaseException:
            self._closed = True
            thread.stop()
            raise

    async def _open(self) -> Any:
        return await self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *arguments: Any, **settings: Any) -> None:
        """Close the session, as its own `close` does, and end its thread.  Idempotent."""
        thread, was_closed, self._closed = self._thread, self._closed, True
        if thread is not None and not was_closed:
            try:
                thread.wait(self._session.close(*arguments, **settings))
            finally:
                thread.stop()

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    # Running

    def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: TargetsLike = (),
        *,
        options: Any = None,
        metadata: RunMetadata | None = None,
        **settings: Any,
    ) -> Any:
        """Like the session's."""
        return self._wait(self._session.run(fetches, feeds, targets, options=options, metadata=metadata, **settings))

    def call(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        options: Any = None,
        metadata: RunMetadata | None = None,
        **named: Any,
    ) -> dict[str, Any]:
        """Like the session's."""
        return self._wait(self._session.call(signature, inputs, options=options, metadata=metadata, **named))

    def warm_up(
        self, signature: str | None = None, inputs: Mapping[str, Any] | None = None, /, **settings: Any
    ) -> None:
        """Like the session's."""
        self._wait(self._session.warm_up(signature, inputs, **settings))

    def start(self, *arguments: Any, **settings: Any) -> _WaitingStep:
        """Like the session's: begins a step and returns it; its `result()` waits."""
        return _WaitingStep(self._at_once(lambda session: session.start(*arguments, **settings)), self._wait)

    def make_callable(self, *arguments: Any, **settings: Any) -> Any:
        """Like the session's; calls of it wait."""
        call = self._at_once(lambda session: session.make_callable(*arguments, **settings))
        return lambda *values, **options: self._wait(call(*values, **options))

    def partial_run_setup(self, fetches: Any, feeds: Iterable[Any] = (), *arguments: Any, **settings: Any) -> Any:
        """Like the session's."""
        return self._wait(self._session.partial_run_setup(fetches, feeds, *arguments, **settings))

    def partial_run(self, setup: Any, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Like the session's."""
        return self._wait(self._session.partial_run(setup, fetches, feeds))

    def wait(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Call a function that takes a session, on this session's event loop; if the result is awaitable, wait for it.

        For savers and queue runners: `session.wait(saver.save, "run/model", 100)`.

        Args:
            function: called with the wrapped session, whose methods are coroutine functions, and the arguments.

        Raises:
            BaseException: the error that the function raises.
        """

        async def call() -> Any:
            given = function(self._session, *arguments, **settings)
            return await given if inspect.isawaitable(given) else given

        return self._wait(call())

    # Properties and runs

    @property
    def graph(self) -> Graph:
        """Like the session's."""
        graph: Graph = self._entered().graph
        return graph

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        return self.graph.to_graph_def()

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Like the session's."""
        signatures: Mapping[str, Signature] = self._entered().signatures
        return signatures

    def signature(self, name: str | None = None) -> Signature:
        """Like the session's."""
        signature: Signature = self._entered().signature(name)
        return signature

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """Like the session's."""
        return self.signature().inputs

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """Like the session's."""
        return self.signature().outputs

    @property
    def steps(self) -> tuple[_WaitingStep, ...]:
        """The steps in flight, oldest first."""
        return tuple(_WaitingStep(step, self._wait) for step in self._at_once(lambda session: session.steps))

    def devices(self) -> Any:
        """Like the session's."""
        return self.wait(lambda session: session.devices())

    # State

    def queue(self, name: str) -> _Waiting:
        """Like the session's; its methods wait, and so does iterating over its elements."""
        return _Waiting(self._at_once(lambda session: session.queue(name)), self._wait)

    def queues(self) -> dict[str, _Waiting]:
        """Like the session's; their methods wait."""
        found = self.wait(lambda session: session.queues())
        return {name: _Waiting(queue, self._wait) for name, queue in found.items()}

    @property
    def tensors(self) -> _Waiting:
        """Like the session's; its methods wait."""
        return _Waiting(self._entered().tensors, self._wait)

    def extend(self, more: Any) -> None:
        """Like the session's."""
        self._wait(self._session.extend(more))

    def reset(self, containers: Iterable[str] = ()) -> None:
        """Like the session's."""
        self._wait(self._session.reset(containers))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return _waiting(getattr(self._entered(), name), self._wait)

    def _at_once(self, function: Callable[[Any], Any]) -> Any:
        """The result of a function of the session, called on the session's event loop."""

        async def call() -> Any:
            return function(self._session)

        return self._wait(call())

    def _entered(self) -> Any:
        """The session.  Raises InvalidStateError before it is entered."""
        if self._thread is None and not self._closed:
            raise errors.InvalidStateError(
                "The session is not open: use `with aexec.blocking(...) as session`, or make another aexec.SyncSession"
            )
        return self._session

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        if thread is None or self._closed:
            coroutine.close()
            self._entered()
            raise errors.CancelledError("Session has been closed.")
        return thread.wait(coroutine)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._session!r}>"

    def _repr_html_(self) -> str | None:
        show = getattr(self._session, "_repr_html_", None)
        return None if show is None else show()


class SyncSession(BlockingSession):
    """A `Session` whose methods wait, for scripts, notebooks and plain threads.  See `BlockingSession`.

    It is open once it is made.  Leave its `with` block to close it, or call `close`.

    Args:
        graph, target, config: as of `Session`: `aexec.SyncSession("model.pb")`.

    Raises:
        OpError: as making and entering a `Session` does.
    """

    def __init__(self, graph: Source = None, target: str = "", config: SessionConfig | Message | None = None) -> None:
        super().__init__(Session(graph, target, config))
        self._enter()

    def __enter__(self) -> SyncSession:
        if self._closed:
            raise errors.CancelledError("Session has been closed.")
        return self
