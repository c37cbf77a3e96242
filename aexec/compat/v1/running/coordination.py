"""`Coordinator`, queue runners and queues for programs with threads, over `aexec.queues`.

With a `tf.Session`, queue runners are tasks on the session's event loop, and any thread may use the coordinator.  With
an `AsyncSession`, they are tasks on the program's loop, and `join` must be awaited.
Next to read: `training.py`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aexec import proto
from aexec.client import data_flow
from aexec.compat.v1.namespace import refuse, renamed
from aexec.compat.v1.running.session import AsyncSession, Session, in_session
from aexec.compat.v1.values.default_session import default_session
from aexec.compat.v1.values.operations import give
from aexec.compat.v1.values.shapes import Dimension, TensorShape
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.queues import queue_runner as _runners
from aexec.queues.coordinator import Coordinator as _Coordinator

__all__ = [
    "Coordinator",
    "FIFOQueue",
    "PaddingFIFOQueue",
    "PriorityQueue",
    "QueueRunner",
    "RandomShuffleQueue",
    "add_queue_runner",
    "start_queue_runners",
]


class _ThreadAwareCoordinator(_Coordinator):
    """An asyncio coordinator whose stop also sets `stopped`, a `threading.Event`."""

    def __init__(self, clean: tuple[type[BaseException], ...]) -> None:
        super().__init__(clean)
        self.stopped = threading.Event()

    def request_stop(self, error: BaseException | None = None) -> None:
        try:
            super().request_stop(error)
        finally:
            self.stopped.set()

    def clear_stop(self) -> None:
        super().clear_stop()
        self.stopped.clear()


class Coordinator:
    """`tf.train.Coordinator`: stops threads and queue runners together.

    Attributes:
        ours: the `aexec.Coordinator`.
    """

    def __init__(self, clean_stop_exception_types: Sequence[type[BaseException]] | None = None) -> None:
        self.ours = _ThreadAwareCoordinator(tuple(clean_stop_exception_types or (errors.OutOfRangeError,)))
        self._session: Any = None
        self._threads: list[Any] = []

    def start(self, session: Any, runners: Iterable[_runners.QueueRunner]) -> list[Any]:
        """Start queue runners, which this coordinator stops."""
        self._session = session
        tasks: list[Any] = in_session(session, _runners.start_queue_runners, self.ours, runners)
        return tasks

    def _on_loop(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the session's event loop if a session is open, else in this thread."""
        if isinstance(self._session, Session):
            try:
                return self._session.waiting.wait(lambda _: function(*arguments))
            except (errors.FailedPreconditionError, errors.CancelledError):
                pass  # The session is closed, so none of its tasks can run at the same time.
        return function(*arguments)

    def should_stop(self) -> bool:
        """True if the stop was requested."""
        return self.ours.should_stop()

    def request_stop(self, ex: Any = None) -> None:
        """Request the stop.  `ex` is an error to raise in `join`: an exception, or a result of `sys.exc_info`."""
        error = ex[1] if isinstance(ex, tuple) else ex
        self._on_loop(self.ours.request_stop, error)

    def clear_stop(self) -> None:
        """Clear the stop and its error."""
        self._on_loop(self.ours.clear_stop)

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait for the stop, at most `timeout` seconds; return whether it was requested."""
        return self.ours.stopped.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Make `join` wait for a thread."""
        self._threads.append(thread)

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Context manager: an error in the block requests the stop and is not raised."""
        try:
            yield
        except Exception as error:
            self.request_stop(error)

    def raise_requested_exception(self) -> None:
        """Raise the stored error, if there is one."""
        self.ours.raise_requested_exception()

    @property
    def joined(self) -> bool:
        """True once `join` has ended."""
        return self.ours.joined

    def join(
        self,
        threads: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> Any:
        """Wait until the stop is requested or all threads have ended, then for the threads; raise the stored error.

        Args:
            threads: threads and tasks to wait for, besides the registered ones.
            stop_grace_period_secs: seconds to wait for threads after the stop.
            ignore_live_threads: do not raise RuntimeError for threads that are still running.

        Returns:
            None, or with an `AsyncSession` an awaitable that does all this.

        Raises:
            RuntimeError: threads are still running, or tasks had to be cancelled.
        """
        given = [part for item in (*(threads or ()), *self._threads) for part in getattr(item, "tasks", [item])]
        tasks = [item for item in given if isinstance(item, asyncio.Task)]
        settings: dict[str, Any] = {
            "stop_grace_period": stop_grace_period_secs,
            "ignore_live_tasks": ignore_live_threads,
        }
        if isinstance(self._session, AsyncSession):
            return self.ours.join(tasks, **settings)
        plain = [item for item in given if not isinstance(item, asyncio.Task)]
        while not self.should_stop() and any(thread.is_alive() for thread in plain):
            self.ours.stopped.wait(0.1)
        until = time.monotonic() + stop_grace_period_secs
        for thread in plain:
            thread.join(max(0.0, until - time.monotonic()))
        late = [thread.name for thread in plain if thread.is_alive()]
        if isinstance(self._session, Session):
            self._on_loop(lambda: self.ours.join(tasks, **settings))
        self.raise_requested_exception()
        if late and not ignore_live_threads:
            raise RuntimeError(f"Coordinator stopped with threads still running: {' '.join(late)}")
        return None


class QueueRunner(_runners.QueueRunner):
    """`tf.train.QueueRunner`."""

    def __init__(
        self,
        queue: Any = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: Sequence[type[BaseException]] | None = None,
        queue_runner_def: proto.QueueRunnerDef | None = None,
        import_scope: str | None = None,
    ) -> None:
        """Raises ValueError if both a queue and a message are given."""
        if queue_runner_def is None:
            super().__init__(
                getattr(queue, "handle", queue),
                enqueue_ops or (),
                close_op=close_op,
                cancel_op=cancel_op,
                queue_closed_exception_types=queue_closed_exception_types or (errors.OutOfRangeError,),
            )
        elif queue is not None or enqueue_ops is not None:
            raise ValueError("queue_runner_def and queue are mutually exclusive.")
        else:
            read = _runners.QueueRunner.from_proto(queue_runner_def, import_scope=import_scope or "")
            vars(self).update(vars(read))


class _Unstarted:
    """Stands for the tasks of queue runners until `start` creates them; has the methods of a thread.

    Attributes:
        tasks: the tasks; empty before `start`.
    """

    daemon = True

    def __init__(self, begin: Callable[[], list[Any]]) -> None:
        self._begin = begin
        self.tasks: list[Any] = []

    def start(self) -> None:
        self.tasks = self._begin()

    def is_alive(self) -> bool:
        return any(not task.done() for task in self.tasks)


def add_queue_runner(qr: _runners.QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """`tf.train.add_queue_runner`."""
    _runners.add_queue_runner(qr, collection=collection)


def start_queue_runners(
    sess: Any = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[Any]:
    """`tf.train.start_queue_runners`: start the queue runners of a collection.

    Args:
        sess: by default the default session.
        start: False to return an object whose method `start` starts them.

    Returns:
        Tasks, which `coord.join` accepts as threads.
    """
    session = default_session() if sess is None else sess
    return _threads(session, coord, _runners.queue_runners(session.graph, collection), start)


def _threads(
    session: Any, coord: Coordinator | None, runners: Sequence[_runners.QueueRunner], start: bool
) -> list[Any]:
    def begin() -> list[Any]:
        if coord is not None:
            return coord.start(session, runners)
        tasks: list[Any] = in_session(session, _runners.start_queue_runners, None, runners)
        return tasks

    return begin() if start else [_Unstarted(begin)]


def _create_threads(
    self: _runners.QueueRunner,
    sess: Any,
    coord: Coordinator | None = None,
    daemon: bool = False,
    start: bool = False,
) -> list[Any]:
    """`QueueRunner.create_threads`: started tasks, or if `start` is False one object whose `start` starts them."""
    return _threads(sess, coord, [self], start)


# Programs call it on the runners that input functions added to the collection.
give(_runners.QueueRunner, create_threads=_create_threads)


# Queues


def _shapes(shapes: Any) -> Any:
    """The shapes of a queue's components as a list; a single shape is that of the only component."""
    if shapes is None:
        return None
    if isinstance(shapes, PartialTensorShape | TensorShape):
        return [shapes]
    if all(size is None or isinstance(size, int | Dimension) for size in shapes):
        return [shapes]
    return list(shapes)


def _queue(ours: Callable[..., data_flow.GraphQueue], arguments: str, name: str) -> Callable[..., data_flow.GraphQueue]:
    def make(shapes: Any = None, names: Any = None, **settings: Any) -> data_flow.GraphQueue:
        refuse(name, names=names)
        return ours(shapes=_shapes(shapes), **settings)

    return renamed(make, arguments, name)


FIFOQueue = _queue(data_flow.fifo_queue, "capacity dtypes=types shapes names shared_name name", "FIFOQueue")
PaddingFIFOQueue = _queue(
    data_flow.padding_fifo_queue, "capacity dtypes=types shapes names shared_name name", "PaddingFIFOQueue"
)
PriorityQueue = _queue(data_flow.priority_queue, "capacity types shapes names shared_name name", "PriorityQueue")
RandomShuffleQueue = _queue(
    data_flow.random_shuffle_queue,
    "capacity min_after_dequeue dtypes=types shapes names seed shared_name name",
    "RandomShuffleQueue",
)
