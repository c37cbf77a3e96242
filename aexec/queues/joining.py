"""`Joining`: a batch that is awaited, first for its elements and then until they are joined.

It is a future and not a coroutine, because it has taken elements before anything awaits it, and must put them back
however it ends; the task of a coroutine that is cancelled before its first turn would not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from aexec.framework.waiting.futures import PendingOutputs, without_frame
from aexec.framework.waiting.loop_budget import current_budget
from aexec.framework.waiting.worker_threads import WorkerThreads
from aexec.queues.attempts import Attempt, Dequeue
from aexec.queues.batching import Element, join_ns
from aexec.queues.queue_base import QueueBase

__all__ = ["Joining"]

Join = Callable[[list[Element]], Any]


class Joining(PendingOutputs):
    """The future of a batch: its elements are taken first, then joined, and put back if it is cancelled.

    The result is that of `join`.

    Args:
        queue: the queue of the elements.
        elements: the taken elements, or the attempt to take them, whose result is a list of elements.
        join: makes the batch.
        pool: the threads in which a large batch is joined.
    """

    cancelled_message = Dequeue.cancelled_message

    def __init__(
        self,
        queue: QueueBase,
        elements: list[Element] | Attempt,
        join: Join,
        pool: WorkerThreads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._queue = queue
        self._make = join
        self._pool = pool
        self._elements: list[Element] = []
        self._attempt: Attempt | None = None
        self._call: Future[Any] | None = None
        if isinstance(elements, Attempt):
            self._attempt = elements
            elements.add_done_callback(self._arrived)
        else:
            self._join(elements)

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting.  No element has then been taken."""
        if not super().cancel(msg):
            return False
        self._let_go()
        return True

    def fail(self, error: BaseException) -> None:
        """Stop waiting, with this error.  Called on the loop."""
        if not self.done():
            self.set_exception(error)
            self._let_go()

    def give_back(self) -> None:
        """Put the elements back, since the waiter has gone.  Called when it is completed, with or without an error."""
        if not self.cancelled() and self.exception() is None:
            self._return_elements()

    def _let_go(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()  # if its elements are being delivered, `_arrived` puts them back
        if self._call is not None:
            self._call.cancel()
        self._return_elements()

    def _return_elements(self) -> None:
        elements, self._elements = self._elements, []
        if elements:
            self._queue.give_back(elements)

    def _arrived(self, attempt: asyncio.Future[Any]) -> None:
        self._attempt = None
        if self.done():
            assert isinstance(attempt, Attempt)
            attempt.give_back()
        elif attempt.cancelled():
            self.cancel()
        elif (error := attempt.exception()) is not None:
            self.set_exception(error)
        else:
            self._join(attempt.result())

    def _join(self, elements: list[Element]) -> None:
        self._elements = elements
        if not current_budget().allows(join_ns(elements)):
            self._call = self._pool.submit(self.get_loop(), self._make, (elements,), self._joined)
            return
        try:
            self.set_result(self._make(elements))
        except Exception as error:
            self.fail(without_frame(error))

    def _joined(self, call: Future[Any]) -> None:
        self._call = None
        if self.done():
            return
        error = call.exception()
        if error is not None:
            self.fail(error)
        else:
            self.set_result(call.result()[0])
