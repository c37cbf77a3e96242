"""The behaviour of a simulated device: how long its work takes, and what fails.

Next to read: `simulated_device.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aexec.framework import errors

__all__ = ["Faults", "SimulatedTiming", "Stall"]


@dataclass
class SimulatedTiming:
    """Times of a device's work, added to those of the host.  May be changed at any time.

    Attributes:
        kernel_seconds: seconds added to each kernel call.
        copy_seconds: seconds added to each copy, independent of its size.
        bytes_per_second: speed of copies.
        sleep: how a stream spends that time.
    """

    kernel_seconds: float = 0.0
    copy_seconds: float = 0.0
    bytes_per_second: float = float("inf")
    sleep: Callable[[float], object] = time.sleep

    def compute(self) -> None:
        """Spend the time of a kernel call."""
        self._spend(self.kernel_seconds)

    def copy(self, num_bytes: int) -> None:
        """Spend the time of a copy of `num_bytes`."""
        self._spend(self.copy_seconds + num_bytes / self.bytes_per_second)

    def _spend(self, seconds: float) -> None:
        if seconds > 0:
            self.sleep(seconds)


class Stall:
    """A kernel call that waits until it is released; used as a context manager, until the context ends.

    Attributes:
        reached: set when the stream has reached the call.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        """Let the call continue."""
        self._released.set()

    def __enter__(self) -> Stall:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __call__(self) -> None:
        self.reached.set()
        self._released.wait()


@dataclass
class _Planned:
    """A fault that happens at the call that makes `left` zero, of one node or of any."""

    happen: Callable[[], object]
    left: int
    node: str | None

    def is_now(self, node: str) -> bool:
        if self.node not in (None, node):
            return False
        self.left -= 1
        return self.left == 0


@dataclass
class Faults:
    """The failures to simulate on a device, each once."""

    _kernels: list[_Planned] = field(default_factory=list)
    _allocations: list[_Planned] = field(default_factory=list)

    def fail(self, nth: int = 1, *, node: str | None = None, error: BaseException | None = None) -> None:
        """Make the nth kernel call from now, of a node or of any, fail: with InternalError, or the given error."""

        def happen() -> None:
            raise error or errors.InternalError("a fault that was planned")

        self._kernels.append(_Planned(happen, nth, node))

    def stall(self, nth: int = 1, *, node: str | None = None) -> Stall:
        """Make the nth kernel call from now, of a node or of any, wait until it is released."""
        stall = Stall()
        self._kernels.append(_Planned(stall, nth, node))
        return stall

    def run_out_of_memory(self, nth: int = 1, *, node: str | None = None) -> None:
        """Refuse the nth allocation from now, for a node or for any, as if the memory were used up."""

        def happen() -> None:
            raise errors.ResourceExhaustedError("out of memory, as was planned")

        self._allocations.append(_Planned(happen, nth, node))

    def before_kernel(self, node: str) -> None:
        """Called before a kernel is called.  Raises, or waits, as planned."""
        _happen(self._kernels, node)

    def before_allocation(self, node: str) -> None:
        """Called before memory is allocated.  Raises as planned."""
        _happen(self._allocations, node)


def _happen(plans: list[_Planned], node: str) -> None:
    due = [plan for plan in list(plans) if plan.is_now(node)]
    for plan in due:
        plans.remove(plan)
    for plan in due:
        plan.happen()
