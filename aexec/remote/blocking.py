"""`aexec.SyncSession` and `aexec.blocking`: sessions for scripts, notebooks and plain threads.

They have no event loop to await in, or may not wait in the one that they have; the session is in one of a thread of its
own (`aexec/runtime/threads/loop_thread.py`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from google.protobuf.message import Message

from aexec.framework import errors
from aexec.remote.remote_session import RemoteSession
from aexec.runtime.config import SessionConfig
from aexec.runtime.session.run_types import Source
from aexec.runtime.session.session import Session
from aexec.runtime.threads.loop_thread import LoopThread

__all__ = ["BlockingSession", "SyncSession", "blocking"]

T = TypeVar("T")


def blocking(session: Session | RemoteSession) -> BlockingSession:
    """A session whose methods wait: `with aexec.blocking(aexec.connect(url, graph)) as session: session.run("y:0")`.

    Args:
        session: one of either kind that was not used yet; it will belong to the event loop of a thread of its own.
    """
    return BlockingSession(session)


Wait = Callable[[Coroutine[Any, Any, Any]], Any]


def _waiting(value: Any, wait: Wait) -> Any:
    """The value; if it is a method to be awaited, one that waits."""
    if not inspect.iscoroutinefunction(value):
        return value

    @functools.wraps(value)
    def call(*arguments: Any, **settings: Any) -> Any:
        return wait(value(*arguments, **settings))

    return call


class _Waiting:
    """What a session keeps, with methods that wait.

    Args:
        target: has methods to be awaited.
        wait: waits for what they give.
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
    """A step in flight: `cancel` may be called from any thread, `result` waits for what it gives."""

    def result(self) -> Any:
        """What the step gives; raises its error.  Who is interrupted while waiting cancels it."""

        async def end() -> Any:
            return await self._target

        return self._wait(end())


class BlockingSession:
    """Has the methods of the session, of which those to be awaited wait.  Enter it, and leave it to close it.

    May be used from any thread, by several at a time, and where an event loop runs already, as in a notebook: that
    stands still meanwhile.  Who is interrupted while a method waits cancels it: Ctrl-C stops a run.  Callables that
    `make_callable` gives wait, too; of a step that `start` gives, `result` does.
    """

    def __init__(self, session: Session | RemoteSession) -> None:
        self._given = session
        self._session: Any = None
        self._thread: LoopThread | None = None

    def __enter__(self) -> BlockingSession:
        if self._thread is not None:
            raise errors.FailedPreconditionError("A blocking session is entered once")
        self._enter()
        return self

    def _enter(self) -> None:
        self._thread = LoopThread("aexec.blocking")
        try:
            self._session = self._thread.wait(self._open())
        except BaseException:
            self._thread.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *arguments: Any, **settings: Any) -> None:
        """Close the session, as its own `close` does, and end its thread.  Idempotent."""
        session, self._session = self._session, None
        if session is not None and self._thread is not None:
            try:
                self._thread.wait(session.close(*arguments, **settings))
            finally:
                self._thread.stop()

    def start(self, *arguments: Any, **settings: Any) -> _WaitingStep:
        """As the session's: begins a step and returns it, whose `result()` waits."""

        async def begin() -> Any:
            return self._opened().start(*arguments, **settings)

        return _WaitingStep(self._wait(begin()), self._wait)

    def make_callable(self, *arguments: Any, **settings: Any) -> Any:
        """As the session's; calls of it wait."""

        async def make() -> Any:
            return self._opened().make_callable(*arguments, **settings)

        call = self._wait(make())
        return lambda *values, **options: self._wait(call(*values, **options))

    def wait(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Call a function that takes a session, on the loop of this one; if what it gives is awaitable, wait for it.

        Savers and queue runners are used so: `session.wait(saver.save, "run/model", 100)`.

        Args:
            function: is called with the session whose methods are to be awaited, and what follows.

        Raises:
            BaseException: what the function raises.
        """

        async def call() -> Any:
            given = function(self._opened(), *arguments, **settings)
            return await given if inspect.isawaitable(given) else given

        return self._wait(call())

    def queue(self, name: str) -> _Waiting:
        """As the session's; its methods wait, and so does going through its elements."""

        async def find() -> Any:
            return self._opened().queue(name)

        return _Waiting(self._wait(find()), self._wait)

    @property
    def tensors(self) -> _Waiting:
        """As the session's; its methods wait."""
        return _Waiting(self._opened().tensors, self._wait)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return _waiting(getattr(self._opened(), name), self._wait)

    def _opened(self) -> Any:
        if self._session is None:
            raise errors.InvalidStateError(
                "The session is not open: use `with aexec.blocking(...) as session`, or make another aexec.SyncSession"
            )
        return self._session

    async def _open(self) -> Any:
        return await self._given

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._session is None or self._thread is None:
            coroutine.close()
            self._opened()  # which refuses
        assert self._thread is not None
        return self._thread.wait(coroutine)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._session or self._given!r}>"

    def _repr_html_(self) -> str | None:
        show = getattr(self._session or self._given, "_repr_html_", None)
        return None if show is None else show()


class SyncSession(BlockingSession):
    """A `Session` whose methods wait, for scripts, notebooks and plain threads.  See `BlockingSession`.

    It is open when it is made.  Leave its `with` block to close it, or call `close`.

    Args:
        graph, target, config: as of `Session`: `aexec.SyncSession("model.pb")`.

    Raises:
        OpError: as making and entering a `Session` does.
    """

    def __init__(self, graph: Source = None, target: str = "", config: SessionConfig | Message | None = None) -> None:
        super().__init__(Session(graph, target, config))
        self._enter()

    def __enter__(self) -> SyncSession:
        self._opened()
        return self
