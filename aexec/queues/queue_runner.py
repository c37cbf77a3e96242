"""`QueueRunner`: keeps a queue filled by running its enqueue operations repeatedly, each in a task.

Runners come from a MetaGraph's collection `queue_runners`, or are added to that collection of a graph while it is
built.  `start_queue_runners` starts those of a session.  Next to read: `coordinator.py`.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import require_graph
from aexec.queues.coordinator import Coordinator
from aexec.runtime.session.session import Session

__all__ = ["QueueRunner", "add_queue_runner", "queue_runners", "start_queue_runners"]

logger = logging.getLogger(__name__)


class QueueRunner:
    """Runs enqueue operations until the queue is closed, the input ends, or the coordinator stops.

    Args:
        queue: the node that makes the queue, or its name.
        enqueue_ops: the operations, a task for each; one may be listed several times.
        close_op: run when the last task has reached the end of its input; by default the queue is closed.
        cancel_op: run when the coordinator stops; by default the queue is closed and waiting enqueues fail.
        queue_closed_exception_types: errors that mean the end of input.

    Raises:
        InvalidArgumentError: there are no enqueue operations.

    Attributes:
        exceptions_raised: errors of tasks without a coordinator, since the last start.
    """

    def __init__(
        self,
        queue: str | Node | Tensor,
        enqueue_ops: Iterable[str | Node | Tensor],
        *,
        close_op: str | Node | None = None,
        cancel_op: str | Node | None = None,
        queue_closed_exception_types: Sequence[type[BaseException]] = (errors.OutOfRangeError,),
    ) -> None:
        self.queue = _name(queue)
        self.enqueue_ops = [_name(op) for op in enqueue_ops]
        if not self.queue or not self.enqueue_ops:
            raise errors.InvalidArgumentError("A QueueRunner needs a queue and enqueue operations")
        self.close_op = _name(close_op) if close_op else ""
        self.cancel_op = _name(cancel_op) if cancel_op else ""
        self.queue_closed_exception_types = tuple(queue_closed_exception_types)
        self.exceptions_raised: list[BaseException] = []
        # Session → numbers of its tasks that have not ended.
        self._running: weakref.WeakKeyDictionary[Session, set[int]] = weakref.WeakKeyDictionary()

    @classmethod
    def from_proto(cls, message: proto.QueueRunnerDef, *, import_scope: str = "") -> QueueRunner:
        """Decode a message.  Raises InvalidArgumentError if a name is missing.

        Args:
            import_scope: scope that the graph's nodes were imported into.
        """
        prefix = f"{import_scope}/" if import_scope else ""
        codes = message.queue_closed_exception_types
        ended = tuple(errors.error_class(code) for code in codes if code)
        return cls(
            prefix + message.queue_name if message.queue_name else "",
            [prefix + name for name in message.enqueue_op_name],
            close_op=prefix + message.close_op_name if message.close_op_name else None,
            cancel_op=prefix + message.cancel_op_name if message.cancel_op_name else None,
            queue_closed_exception_types=ended or (errors.OutOfRangeError,),
        )

    def to_proto(self) -> proto.QueueRunnerDef:
        return proto.QueueRunnerDef(
            queue_name=self.queue,
            enqueue_op_name=self.enqueue_ops,
            close_op_name=self.close_op,
            cancel_op_name=self.cancel_op,
            queue_closed_exception_types=[
                kind("").code.name for kind in self.queue_closed_exception_types if issubclass(kind, errors.OpError)
            ],
        )

    @property
    def name(self) -> str:
        """The name of its queue."""
        return self.queue

    def start(self, session: Session, coordinator: Coordinator | None = None) -> list[asyncio.Task[Any]]:
        """Start the tasks; return [] if those of an earlier start with this session still run.

        Args:
            coordinator: owns the tasks, stops them, and gets their errors.  Without one an error is logged, kept in
                `exceptions_raised`, and raised by the task.
        """
        if self._running.get(session):
            return []
        running = self._running[session] = set(range(len(self.enqueue_ops)))
        self.exceptions_raised = []
        create: Any = asyncio.create_task if coordinator is None else coordinator.create_task
        tasks = []
        for number, op in enumerate(self.enqueue_ops):
            task = create(self._run(session, op, number, coordinator), name=f"QueueRunner-{self.queue}-{op}")
            # A task that is cancelled before its first turn does not run its `finally`.
            task.add_done_callback(lambda _, number=number: running.discard(number))
            tasks.append(task)
        if coordinator is not None:
            stopper = self._cancel_on_stop(session, coordinator)
            tasks.append(create(stopper, name=f"QueueRunner-{self.queue}-cancel_on_stop"))
        return tasks

    async def _run(self, session: Session, op: str, number: int, coordinator: Coordinator | None) -> None:
        ended = False
        try:
            while coordinator is None or not coordinator.should_stop():
                await session.run([], targets=[op])
                # A run that does not wait never yields to the event loop.
                await asyncio.sleep(0)
        except self.queue_closed_exception_types:
            ended = True
        except Exception as error:
            if coordinator is not None:
                coordinator.request_stop(error)
                return
            logger.error("%r: %s", self, error)
            self.exceptions_raised.append(error)
            raise
        finally:
            self._running[session].discard(number)
        if ended and not self._running[session]:
            await self._close(session, self.close_op, cancel_pending=False)

    async def _cancel_on_stop(self, session: Session, coordinator: Coordinator) -> None:
        await coordinator.wait_for_stop()
        await self._close(session, self.cancel_op, cancel_pending=True)

    async def _close(self, session: Session, op: str, *, cancel_pending: bool) -> None:
        try:
            if op:
                await session.run([], targets=[op])
            else:
                await session.queue(self.queue).close(cancel_pending=cancel_pending)
        except errors.OpError as error:
            logger.info("%r: closing the queue: %s", self, error)

    def __repr__(self) -> str:
        return f"<QueueRunner of '{self.queue}': {', '.join(self.enqueue_ops)}>"


def _name(item: str | Node | Tensor) -> str:
    if isinstance(item, str):
        return item.partition(":")[0].removeprefix("^")
    return item.node.name if isinstance(item, Tensor) else item.name


def add_queue_runner(
    runner: QueueRunner, graph: Graph | None = None, collection: str = GraphKeys.QUEUE_RUNNERS
) -> None:
    """Let `start_queue_runners` start this runner for sessions of a graph, by default the one being built.

    Args:
        collection: where it is kept; runners of other collections than the default are started only if they are given.
    """
    (graph if graph is not None else require_graph()).collections.add(collection, runner)


def queue_runners(source: Graph | proto.MetaGraphDef, collection: str = GraphKeys.QUEUE_RUNNERS) -> list[QueueRunner]:
    """The runners in a collection of a graph or MetaGraph.

    Raises:
        InvalidArgumentError: an item of the collection is not a runner, or not a QueueRunnerDef.
    """
    if isinstance(source, Graph):
        found = source.collections.get(collection)
        wrong = [item for item in found if not isinstance(item, QueueRunner)]
        if wrong:
            raise errors.InvalidArgumentError(f"collection '{collection}': {wrong[0]!r} is not a QueueRunner")
        return found
    runners = []
    for data in source.collection_def[collection].bytes_list.value if collection in source.collection_def else ():
        try:
            runners.append(QueueRunner.from_proto(proto.QueueRunnerDef.FromString(data)))
        except (DecodeError, ValueError, KeyError) as error:
            raise errors.InvalidArgumentError(f"collection '{collection}': not a QueueRunnerDef: {error}") from None
    return runners


def start_queue_runners(
    session: Session, coordinator: Coordinator | None = None, runners: Iterable[QueueRunner] | None = None
) -> list[asyncio.Task[Any]]:
    """Start the tasks of runners, by default those of the session's graph."""
    chosen = queue_runners(session.graph) if runners is None else runners
    return [task for runner in chosen for task in runner.start(session, coordinator)]
