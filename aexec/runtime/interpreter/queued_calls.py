"""The kernel calls that an execution queues on devices with streams: their outputs, errors and end.

All calls on one device go through one `QueuedWork`.  Nothing here waits: outputs in host memory, errors, and the end of
all calls come by callbacks to the loop, when the stream has got there.
Next to read: `aexec/framework/device_contract/device.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

from aexec.framework.device_contract.device import Device, QueuedWork
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.waiting.futures import PendingOutputs, complete_from, complete_on_loop
from aexec.runtime.plans.node_activity import RunningNode
from aexec.runtime.plans.plan import PlanNode

__all__ = ["QueuedCalls"]


class QueuedCalls:
    """The queued calls of one execution.  Its methods are called on the loop's thread.

    Args:
        loop: of the step.
        failed: called on the loop for each node whose call failed after it was queued.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: Callable[[PlanNode, BaseException], object]) -> None:
        self._loop = loop
        self._failed = failed
        self._works: dict[Device, QueuedWork] = {}
        self._nodes: dict[QueuedKernel, PlanNode] = {}
        # By device, its last call: node, (frame, iteration), and when it was queued.
        self._last: dict[Device, tuple[PlanNode, tuple[int, int], float]] = {}

    def enqueue(
        self, node: PlanNode, kernel: QueuedKernel, arguments: Sequence[Any], frame_iter: tuple[int, int]
    ) -> Any:
        """Queue a call; return its outputs, or `PendingOutputs` if the host has to wait for some.

        Args:
            kernel: the node's kernel, or a wrapper of it.

        Raises:
            What `QueuedWork.enqueue` raises.
        """
        device = node.queued_on
        assert device is not None
        work = self._works.get(device)
        if work is None:
            work = self._works[device] = device.begin_work(self._call_failed)
        self._nodes[kernel] = node
        self._last[device] = (node, frame_iter, perf_counter())
        outputs = work.enqueue(kernel, arguments)
        return _Awaited(self._loop, outputs).pending if kernel.host_outputs else outputs

    def running(self) -> list[RunningNode]:
        """The last call of each device that has not finished its queue."""
        return [
            RunningNode(node, frame_iter, f"queued on {device.name}", since)
            for device, (node, frame_iter, since) in self._last.items()
            if not self._works[device].record_event().done
        ]

    def stop(self) -> None:
        """Let no further queued call begin."""
        for work in self._works.values():
            work.stop()

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop when the streams have finished all calls queued so far.

        Raises:
            OpError: a device found something wrong with how it is used.
        """
        left = [work.record_event() for work in self._works.values()]

        def next_one() -> None:
            if left:
                left.pop().when_done(next_one)
            else:
                self._call_soon(callback)

        next_one()

    def _call_failed(self, kernel: QueuedKernel, error: BaseException) -> None:
        self._call_soon(partial(self._failed, self._nodes[kernel], error))

    def _call_soon(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has closed, so nothing waits
            self._loop.call_soon_threadsafe(callback)


class _Awaited:
    """The outputs of one call, some of which have not reached the host yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outputs: Sequence[Any]) -> None:
        self.pending = PendingOutputs(loop=loop)
        self._outputs = list(outputs)
        self._next_one()

    def _next_one(self) -> None:
        for position, output in enumerate(self._outputs):
            if isinstance(output, Future):
                output.add_done_callback(partial(self._came, position))
                return
        complete_on_loop(self.pending, lambda pending: pending.set_result(tuple(self._outputs)))

    def _came(self, position: int, output: Future[Any]) -> None:
        if output.exception() is None:
            self._outputs[position] = output.result()
            self._next_one()
        else:
            complete_from(output, self.pending)
