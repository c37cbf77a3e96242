"""How the host is notified of a CUDA stream's progress, in two ways; `scripts/gpu-check` says which is faster.

Neither blocks a thread of the event loop, and both call back in a thread that may call CUDA again, which a callback of
the driver itself must not.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from aexec.devices.serial_thread import SerialThread

__all__ = ["SIGNALS", "EventSignals"]

# Callback with None, or with the error at which the stream stopped.
Passed = Callable[[BaseException | None], object]


class EventSignals(abc.ABC):
    """Notifies of the progress of one stream of a device.

    Args:
        cupy: the module.
        stream: `cupy.cuda.Stream`.
        thread: the thread that calls back.
    """

    def __init__(self, cupy: Any, stream: Any, thread: SerialThread) -> None:
        self._cupy = cupy
        self._stream = stream
        self._thread = thread

    @abc.abstractmethod
    def when_passed(self, passed: Passed) -> None:
        """Call `passed` when the stream has done the work queued on it now."""


class WaitingSignals(EventSignals):
    """A sleeping thread waits for one event after another."""

    def when_passed(self, passed: Passed) -> None:
        event = self._cupy.cuda.Event(block=True, disable_timing=True)
        event.record(self._stream)

        def wait() -> None:
            error: BaseException | None = None
            try:
                event.synchronize()
            except BaseException as failed:
                error = failed
            passed(error)

        self._thread.submit(wait)


class CallbackSignals(EventSignals):
    """The driver calls a function in the stream.

    `add_callback`, not `launch_host_func`: the latter is never called once the context has failed.
    """

    def when_passed(self, passed: Passed) -> None:
        def reached(_stream: Any, status: int, _argument: Any) -> None:
            error = self._cupy.cuda.runtime.CUDARuntimeError(status) if status else None
            self._thread.submit(lambda: passed(error))

        self._stream.add_callback(reached, None)


SIGNALS: dict[str, type[EventSignals]] = {"waiting": WaitingSignals, "callback": CallbackSignals}
