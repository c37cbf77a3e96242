"""Gates: test kernels that announce that they run and wait until the test lets them go on.

    gate = gates.new()                      # a key to put into the graph
    step = session.start(...)               # runs a TestGate node with that key
    await gate.entered.wait()               # now the kernel is running
    gate.open.set()                         # let it return its input

`TestGate` is a coroutine, `TestThreadGate` blocks a worker thread, `TestFail` raises.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support.time_limit import LIMIT

_keys = itertools.count(1)
_gates: dict[int, Gate | ThreadGate] = {}


class Gate:
    """State of a `TestGate`; `cancelled` counts the cancellations of its waiting kernels."""

    def __init__(self) -> None:
        self.key = next(_keys)
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.count = 0
        self.cancelled = 0
        _gates[self.key] = self


class ThreadGate:
    """State of a `TestThreadGate`."""

    def __init__(self) -> None:
        self.key = next(_keys)
        self.entered = threading.Event()
        self.open = threading.Event()
        self.left = threading.Event()
        _gates[self.key] = self


register_op("TestGate(x: T) -> y: T", "key: int", "T: type", stateful=True)
register_op("TestThreadGate(x: T) -> y: T", "key: int", "T: type")
register_op("TestStatefulThreadGate(x: T) -> y: T", "key: int", "T: type", stateful=True)
register_op("TestFail(x: T) -> y: T", "message: string = 'failed on purpose'", "T: type")


@kernel("TestGate", cost=0)
def _gate(c: Any) -> Any:
    key = c.attr("key")

    async def compute(x: Any) -> Any:
        gate = _gates[key]
        assert isinstance(gate, Gate)
        gate.count += 1
        gate.entered.set()
        try:
            await gate.open.wait()
        except asyncio.CancelledError:
            gate.cancelled += 1
            raise
        return x

    return compute


# The cost is above any threshold, so the call is always offloaded.
@kernel("TestThreadGate", "TestStatefulThreadGate", cost=lambda x: 1e12)
def _thread_gate(c: Any) -> Any:
    key = c.attr("key")

    def compute(x: Any) -> Any:
        gate = _gates[key]
        assert isinstance(gate, ThreadGate)
        gate.entered.set()
        assert gate.open.wait(LIMIT), "nobody opened the gate"
        gate.left.set()
        return x

    return compute


@kernel("TestFail", cost=0)
def _fail(c: Any) -> Any:
    message = c.text("message")

    def compute(x: Any) -> Any:
        raise errors.InvalidArgumentError(message)

    return compute
