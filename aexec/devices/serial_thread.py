"""`SerialThread`: a thread that runs queued functions in order.

It is a daemon, so that a hanging stream does not keep the process from exiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from aexec.framework import errors

__all__ = ["SerialThread"]

Work = Callable[[], object]


class SerialThread:
    """A thread that is started by the first `submit`.

    Args:
        name: for errors; the thread's name is `aexec-` and this.
        set_up: called in the thread before anything else.
    """

    def __init__(self, name: str, set_up: Work | None = None) -> None:
        self.name = name
        self._set_up = set_up
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    def check_open(self) -> None:
        """Raise FailedPreconditionError if it is closed."""
        if self._closed:
            raise errors.FailedPreconditionError(f"{self.name} is closed")

    def submit(self, work: Work) -> None:
        """Queue work, which must not raise.  Raises as `check_open`."""
        if self._thread is None or self._closed:
            self._start()
        self._queue.put(work)

    def _start(self) -> None:
        with self._starting:
            self.check_open()
            if self._thread is None:
                arguments = (self._queue, self._set_up)
                self._thread = threading.Thread(target=_run, args=arguments, name=f"aexec-{self.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Refuse further work; the thread ends when it has done the queued work."""
        with self._starting:
            if not self._closed:
                self._closed = True
                self._queue.put(None)

    @property
    def running(self) -> bool:
        """True while its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    async def ended(self) -> None:
        """Wait for the thread's end; call it after `close` and after the queued work is done, when it takes
        microseconds.
        """
        while self.running:
            await asyncio.sleep(0)


def _run(queue: SimpleQueue[Work | None], set_up: Work | None) -> None:
    # Not a method: the thread must not keep its owner alive.
    if set_up is not None:
        set_up()
        del set_up
    while (work := queue.get()) is not None:
        work()
        del work
