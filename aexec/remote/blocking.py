"""`aexec.blocking`: sessions for scripts and notebooks, which have no event loop of their own to await in."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.remote.remote_session import RemoteSession
from aexec.runtime.session import Session
from aexec.sources import OpeningSession

__all__ = ["BlockingSession", "blocking"]

T = TypeVar("T")


def blocking(session: Session | RemoteSession | OpeningSession) -> BlockingSession:
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


class BlockingSession:
    """Has the methods of the session, of which those to be awaited wait.  Enter it, and leave it to close it.

    May be used from any thread, by several at a time.  Who is interrupted while a method waits cancels it: Ctrl-C
    stops a run.  Callables that `make_callable` gives wait, too.
    """

    def __init__(self, session: Session | RemoteSession | OpeningSession) -> None:
        self._given = session
        self._session: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BlockingSession:
        if self._thread is not None:
            raise errors.FailedPreconditionError("A blocking session is entered once")
        runner = asyncio.Runner()
        self._loop = runner.get_loop()
        self._thread = threading.Thread(target=self._serve, args=(runner,), name="aexec.blocking", daemon=True)
        self._thread.start()
        try:
            self._session = self._wait(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._wait(self._session.close())
        finally:
            self._stop()

    def make_callable(self, *arguments: Any, **settings: Any) -> Any:
        """As the session's; calls of it wait."""

        async def make() -> Any:
            return self._session.make_callable(*arguments, **settings)

        call = self._wait(make())
        return lambda *values, **options: self._wait(call(*values, **options))

    def queue(self, name: str) -> _Waiting:
        """As the session's; its methods wait, and so does going through its elements."""

        async def find() -> Any:
            return self._session.queue(name)

        return _Waiting(self._wait(find()), self._wait)

    @property
    def tensors(self) -> _Waiting:
        """As the session's; its methods wait."""
        return _Waiting(self._session.tensors, self._wait)

    def __getattr__(self, name: str) -> Any:
        return _waiting(getattr(self._session, name), self._wait)

    async def _open(self) -> Any:
        return await self._given

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None or self._thread is None or threading.current_thread() is self._thread:
            coroutine.close()
            raise errors.FailedPreconditionError(
                "The session is not open, or this is its own thread: use `with aexec.blocking(...) as session`"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of an interrupted wait; one that has ended does not mind
            raise

    def _serve(self, runner: asyncio.Runner) -> None:
        loop = runner.get_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            runner.close()

    def _stop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
