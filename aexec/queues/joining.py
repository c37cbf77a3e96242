"""`Joining`: a batch that somebody waits for, first for its elements and then for their being joined.

It is a future and not a coroutine because it has taken elements before anybody awaits it, and
gives them back however it ends: a task that is cancelled before its first turn would not.
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
    """The future of a batch: its elements are taken first, then joined, and given back if it is cancelled.

    The result is what `join` makes of the elements.

    Args:
        queue: where the elements are from.
        elements: what was taken already, or the attempt to take it, whose result is a list of elements.
        join: makes the batch.
        pool: where that is done if it takes long.
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
        """Undo what was done: whoever asked for it has gone.  Called when it is done, whatever the outcome."""
        if not self.cancelled() and self.exception() is None:
            self._return_elements()

    def _let_go(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()  # or, if its elements are on their way here, `_arrived` gives them back
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
