"""Cancellation: how a step, and whatever waits inside it, is told to stop.

A `CancellationManager` goes from *active* through *cancelling*, while the registered
callbacks run, to *cancelled*.  Each step has one of its own, child of its session's;
each function call inside a step has one too, child of the step's.  `wait` is the
pattern by which an operation waits on a manager's behalf; queues, receives and
kernels that do I/O use it.  Next to read: `device_contract/rendezvous.py`, a user of both.

A callback only unblocks: it wakes whoever waits, and the waiter's own normal path
reports how it ended.  Callbacks are called on the thread that cancels, with no lock
held that other methods need; they must be short and must not wait.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.futures import complete_on_loop

__all__ = [
    "INVALID_TOKEN",
    "CancelReason",
    "CancelSource",
    "CancellationManager",
    "closed_during",
    "register_cancellation_callback",
    "wait",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Callback = Callable[[], object]

# A token that no manager ever gives out.
INVALID_TOKEN = -1

_ACTIVE = "active"
_CANCELLING = "cancelling"
_CANCELLED = "cancelled"
_CLOSED = "closed"


class CancelSource(enum.Enum):
    """The sources of a cancellation; the value is the text in messages."""

    API = "cancelled by its caller"
    CLIENT_LEFT = "the client left"
    DEADLINE = "the deadline passed"
    SESSION_CLOSED = "the session was closed"
    SIBLING_FAILED = "another node failed"


@dataclass(frozen=True, slots=True)
class CancelReason:
    """Why something was cancelled.

    Attributes:
        source: who or what cancelled.
        node: name of the node that caused it, or None.
        words: further text for people.
    """

    source: CancelSource
    node: str | None = None
    words: str = ""

    def to_error(self) -> errors.OpError:
        """The error of operations cancelled for this reason: DEADLINE_EXCEEDED for a deadline, else CANCELLED."""
        if self.source is CancelSource.DEADLINE:
            tail = f" ({self.words})" if self.words else ""
            return errors.DeadlineExceededError(f"Timed out waiting for notification{tail}", node=self.node)
        derived = self.source is CancelSource.SIBLING_FAILED
        return errors.CancelledError(f"Run call was cancelled: {self}", derived=derived)

    def __str__(self) -> str:
        node = "" if self.node is None else f" ({{{{node {self.node}}}}})"
        words = f": {self.words}" if self.words else ""
        return f"{self.source.value}{node}{words}"


class CancellationManager:
    """Tells everything that waits on behalf of one step to stop.  All methods may be called from any thread.

    Args:
        parent: cancelled with it; born cancelled if it is cancelling or cancelled already.

    Use as a context manager, or call `close` when nothing waits any more: a parent keeps
    its children until then.
    """

    # A manager is made for every step, so it has to be cheap, and a signal handler or a finaliser
    # may cancel at any instruction, so no method may hold a lock while it changes the tables.
    # The methods rely instead on single dict operations being atomic, and on this order: code
    # that adds an entry checks the phase afterwards, code that cancels changes the phase before it
    # takes the entries.  Hence an entry is either taken by the canceller or withdrawn by its adder.
    #
    # The thread that runs the callbacks holds _lock; other threads acquire it to wait for them.
    # _operation tells whether the status names an operation that the closing of a session has ended.
    __slots__ = (
        "_callbacks",
        "_canceller",
        "_children",
        "_lock",
        "_operation",
        "_parent",
        "_phase",
        "_reason",
        "_status",
        "_tokens",
    )

    def __init__(self, parent: CancellationManager | None = None) -> None:
        self._phase = _ACTIVE
        self._callbacks: dict[int, Callback] = {}
        self._children: dict[CancellationManager, None] = {}
        self._lock = threading.Lock()
        self._canceller = 0
        self._tokens = itertools.count()
        self._status: errors.OpError | None = None
        self._reason: CancelReason | None = None
        self._operation = False
        self._parent = parent
        if parent is not None:
            parent._children[self] = None
            if parent._phase is not _ACTIVE:
                parent._children.pop(self, None)
                self._cancel(parent._status, parent._reason)

    @property
    def is_cancelled(self) -> bool:
        """True if it was cancelled and all callbacks have returned."""
        return self._phase is _CANCELLED

    @property
    def is_cancelling(self) -> bool:
        """True while the callbacks run."""
        return self._phase is _CANCELLING

    @property
    def cancel_requested(self) -> bool:
        """True if it is cancelling or cancelled.  Long computations look at it between their parts."""
        return self._phase in (_CANCELLING, _CANCELLED)

    @property
    def status(self) -> errors.OpError | None:
        """The error that it was cancelled with; None before, and after a bare `start_cancel()`."""
        if self._status is None and self._reason is not None:
            self._status = self._reason.to_error()
        return self._status

    @property
    def reason(self) -> CancelReason | None:
        """The reason that it was cancelled for, if one was given."""
        return self._reason

    def get_cancellation_token(self) -> int:
        """A new token to register a callback under: 0, 1, 2, …"""
        return next(self._tokens)

    def register_callback(self, token: int, callback: Callback) -> bool:
        """Have `callback` called when this manager is cancelled.

        Returns:
            False if that has begun already: then the callback is not kept, is not called, and the
            caller must not wait.

        Raises:
            InternalError: the token has a callback already.
        """
        callbacks = self._callbacks
        if callbacks.setdefault(token, callback) is not callback:
            raise errors.InternalError(f"cancellation token {token} has a callback already")
        # If it can no longer be withdrawn, the canceller has taken it, and calls it.
        return self._phase is _ACTIVE or callbacks.pop(token, None) is None

    def register_callback_with_error_logging(self, token: int, callback: Callback, name: str) -> bool:
        """`register_callback`, and log the status that `name` is cancelled with when it happens."""

        def logged() -> None:
            logger.warning("Cancellation callback %r is called with status: %s", name, self.status)
            callback()

        return self.register_callback(token, logged)

    def deregister_callback(self, token: int) -> bool:
        """Withdraw a callback; wait if callbacks are running.

        Afterwards the callback is neither running nor called later.  So the caller must not hold a
        lock that any callback needs, and code on an event loop should use `try_deregister_callback`.

        Returns:
            True if the manager was active, so that the callback was not called; else False.

        Raises:
            InternalError: called by one of the manager's own callbacks, which would wait for itself.
        """
        if self.try_deregister_callback(token):
            return True
        self._wait_for_callbacks("deregister_callback")
        return False

    def try_deregister_callback(self, token: int) -> bool:
        """Withdraw a callback without waiting; return False if cancellation has begun."""
        return self._callbacks.pop(token, None) is not None or self._phase is _ACTIVE

    def start_cancel(self, reason: CancelReason | None = None) -> bool:
        """Cancel: call all callbacks, then cancel all children.  Only the first call acts.

        Returns:
            True if this call is the one that cancels.
        """
        return self._cancel(None, reason)

    def start_cancel_with_status(self, status: errors.OpError, reason: CancelReason | None = None) -> bool:
        """Like `start_cancel`, with the error that cancelled operations report."""
        return self._cancel(status, reason)

    def close(self) -> None:
        """End the manager: cancel first if callbacks or children are left, and unlink from the parent.

        Afterwards none of its callbacks is running, except one that calls this, and callbacks are
        refused.  Idempotent.
        """
        if self._parent is not None:
            self._parent._children.pop(self, None)
            self._parent = None
        if self._phase is _CANCELLED:
            return
        if self._callbacks or self._children:
            self.start_cancel()
        if self._canceller and self._canceller == threading.get_ident() and self.is_cancelling:
            return
        with self._lock:
            if self._phase is _ACTIVE:
                self._phase = _CLOSED

    async def wait_cancelled(self) -> None:
        """Wait until cancellation begins.  Returns at once if it has begun."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        token = self.get_cancellation_token()
        if self.register_callback(token, lambda: complete_on_loop(future, _set_none)):
            try:
                await future
            finally:
                self.try_deregister_callback(token)

    def _cancel(self, status: errors.OpError | None, reason: CancelReason | None) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._phase is not _ACTIVE:
                return False
            self._canceller = threading.get_ident()
            self._status, self._reason = status, reason
            self._phase = _CANCELLING
            try:
                # Taken as a whole first: from here on no callback can be withdrawn.
                if self._callbacks:
                    callbacks = [callback for _, callback in _drain(self._callbacks)]
                    self._say_what_waited(callbacks)
                    _run_all(callbacks)
                if self._children:
                    children = [child for child, _ in _drain(self._children)]
                    _run_all([partial(child._cancel, status, reason) for child in children])
                    self._say_what_waited_in(children)
            finally:
                self._phase = _CANCELLED
                if self._parent is not None:
                    self._parent._children.pop(self, None)
            return True
        finally:
            self._lock.release()

    def _say_what_waited(self, callbacks: list[Callback]) -> None:
        """Add to the status of a closed session which waiting operation that ended."""
        if self._status is not None and self._was_closed:
            waits = [callback.message for callback in reversed(callbacks) if type(callback) is _Interruption]
            self._operation = any(map(_names_operation, waits))
            self._status = closed_during(self._status, waits)

    def _say_what_waited_in(self, children: list[CancellationManager]) -> None:
        # Not to the session's own status, which is for all its steps.
        if self._parent is not None and self._was_closed and not self._operation:
            for child in children:
                if child._operation:
                    self._operation, self._status = True, child._status
                    return

    @property
    def _was_closed(self) -> bool:
        return self._reason is not None and self._reason.source is CancelSource.SESSION_CLOSED

    def _wait_for_callbacks(self, method: str) -> None:
        if not self.is_cancelling:
            return
        if self._canceller == threading.get_ident():
            raise errors.InternalError(f"{method} was called by a cancellation callback of the same manager")
        with self._lock:
            pass

    def __enter__(self) -> CancellationManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        why = self._reason if self._reason is not None else self._status
        return (
            f"<CancellationManager {self._phase}, {len(self._callbacks)} callbacks, {len(self._children)} children"
            + ("" if why is None else f", {why}")
            + ">"
        )


def _drain(table: dict[K, V]) -> list[tuple[K, V]]:
    """Take all entries; other threads may take some at the same time."""
    taken = []
    while table:
        try:
            taken.append(table.popitem())
        except KeyError:
            break
    return taken


def _run_all(callbacks: list[Callback]) -> None:
    """Call each once, even if others raise.  Logs errors, and raises an interrupt at the end."""
    interrupt: BaseException | None = None
    for callback in callbacks:
        try:
            callback()
        except Exception:
            logger.exception("a cancellation callback failed: %r", callback)
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def register_cancellation_callback(manager: CancellationManager | None, callback: Callback) -> Callable[[], object]:
    """Register a callback with a manager or None; return a function that deregisters it without waiting.

    Raises:
        CancelledError: the manager is cancelling or cancelled.
    """
    if manager is None:
        return lambda: None
    token = manager.get_cancellation_token()
    if not manager.register_callback(token, callback):
        raise errors.CancelledError("Operation was cancelled")
    return lambda: manager.try_deregister_callback(token)


async def wait(
    manager: CancellationManager | None,
    future: asyncio.Future[T],
    message: str = "Operation was cancelled",
    *,
    derived: bool = False,
    give_back: Callable[[T], object] | None = None,
) -> T:
    """Wait for a future of the running loop, unless the manager is cancelled first.

    Exactly one of three ends the wait: a result of the future, the manager, or a cancellation of
    the waiting task.  In the latter two cases the future is done when its owner looks at it next,
    so an owner that gives values to a line of waiters only has to skip futures that are `done()`:

        waiter = loop.create_future()
        self._waiters.append(waiter)
        item = await wait(context.cancellation, waiter, "Dequeue operation was cancelled", give_back=self._unget)

    Args:
        manager: None never cancels.
        message: the CancelledError's message.
        derived: mark that error as one that only follows from another.
        give_back: called with the future's result if the task was cancelled in the short time
            between its delivery and the task's turn, so that nothing is lost.

    Raises:
        CancelledError: the manager is or gets cancelled; the future then holds this error.
        asyncio.CancelledError: the waiting task was cancelled.
        BaseException: the future's exception.
    """
    token, interrupt = INVALID_TOKEN, None
    if manager is not None and not future.done():
        token = manager.get_cancellation_token()
        interrupt = _Interruption(future, message, derived)
        if not manager.register_callback(token, interrupt):
            interrupt.fail(future)
    try:
        return await future
    except asyncio.CancelledError:
        delivered = future.done() and not future.cancelled() and future.exception() is None
        if delivered and give_back is not None:
            give_back(future.result())
        raise
    finally:
        if token != INVALID_TOKEN and manager is not None:
            manager.try_deregister_callback(token)
        del future, interrupt  # the future may hold an error whose traceback refers to this frame


def closed_during(status: errors.OpError, waits: Iterable[str]) -> errors.OpError:
    """The status of a step whose session was closed, with the message of the first operation that waited.

    Args:
        waits: the messages of all waiting operations; those that name no operation are ignored.
    """
    named = next(filter(_names_operation, waits), None)
    return status if named is None else errors.CancelledError(f"{status.message} {named}")


def _names_operation(message: str) -> bool:
    return message.endswith(" operation was cancelled")


class _Interruption:
    """A callback that ends a wait with a CancelledError."""

    __slots__ = ("_derived", "_future", "message")

    def __init__(self, future: asyncio.Future[Any], message: str, derived: bool) -> None:
        self._future, self.message, self._derived = future, message, derived

    def __call__(self) -> None:
        complete_on_loop(self._future, self.fail)

    def fail(self, future: asyncio.Future[Any]) -> None:
        future.set_exception(errors.CancelledError(self.message, derived=self._derived))


def _set_none(future: asyncio.Future[None]) -> None:
    future.set_result(None)
