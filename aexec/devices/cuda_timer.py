"""Times of work on a CUDA stream, by events, in nanoseconds of the host's clock.

`CudaClock` knows the time of the host's clock at which an idle stream of its own reached an event; `CudaTimer` measures
from there.  Only traced steps make them.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from aexec.devices.cuda_signals import EventSignals
from aexec.framework.device_contract.device import StreamTimer

__all__ = ["CudaClock", "CudaTimer"]

# The clocks of host and GPU drift apart, and a time since an event is less exact the longer ago that was.
_COMPARED_EVERY_NS = 1_000_000_000


class CudaClock:
    """Converts times of CUDA events to nanoseconds of the host's clock.

    Used in threads of the device; two threads may compare the clocks at once.

    Args:
        cupy: the module.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._compared: tuple[Any, int] | None = None

    def compared(self) -> tuple[Any, int]:
        """An event, and the `perf_counter_ns()` time when it passed."""
        if self._compared is None or perf_counter_ns() - self._compared[1] > _COMPARED_EVERY_NS:
            event = self._cupy.cuda.Event(block=False)
            event.record(self._stream)
            event.synchronize()
            self._compared = event, perf_counter_ns()
        return self._compared


class CudaTimer(StreamTimer):
    """Measures the work queued on `stream` until `stop`.

    Args:
        clock: the device's.
        signals: notify of the stream's progress.
        name: the stream's, as traces show it.
    """

    def __init__(self, cupy: Any, clock: CudaClock, stream: Any, signals: EventSignals, name: str) -> None:
        self.stream = name
        self._cupy = cupy
        self._signals = signals
        self._on = stream
        self._base, self._then = clock.compared()
        self._begun = self._recorded()

    def _recorded(self) -> Any:
        event = self._cupy.cuda.Event(block=True)
        event.record(self._on)
        return event

    def stop(self, told: Callable[[int, int], object]) -> None:
        ended = self._recorded()

        def passed(error: BaseException | None) -> None:
            if error is None:
                told(self._moment(self._begun), self._moment(ended))

        self._signals.when_passed(passed)

    def _moment(self, event: Any) -> int:
        milliseconds: float = self._cupy.cuda.get_elapsed_time(self._base, event)
        return self._then + round(milliseconds * 1e6)
