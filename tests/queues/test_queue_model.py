"""Model checking: each kind of queue against a plain list, with waiting and cancelled operations."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.numerics.philox import Philox
from aexec.queues.attempts import Attempt
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.kinds.padding_fifo_queue import PaddingFIFOQueue
from aexec.queues.kinds.priority_queue import PriorityQueue
from aexec.queues.kinds.random_shuffle_queue import RandomShuffleQueue
from aexec.queues.queue_base import QueueBase, QueueSpec

CAPACITY, MINIMUM, SEED = 4, 2, 7
SPEC = QueueSpec((dtypes.int64, dtypes.int64), (PartialTensorShape([]),) * 2, CAPACITY)


def element(value: int) -> tuple[Any, Any]:
    """A priority, of which there are few, and a payload."""
    return np.int64(value % 3), np.int64(value)


class Waiting:
    """An operation of the model: what is still to be put, or what was taken of how many."""

    def __init__(self, what: str, items: list[int], count: int = 0) -> None:
        self.what = what
        self.items = items
        self.count = count
        self.result: Any = None


class Model:
    """A list, and two lists of operations that wait."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.items: list[int] = []
        self.closed = False
        self.putting: list[Waiting] = []
        self.taking: list[Waiting] = []
        self.words = iter(Philox.from_seeds(SEED, 0).words(0, 2000).reshape(-1).tolist())

    def available(self) -> int:
        kept = MINIMUM if self.kind == "RandomShuffleQueue" and not self.closed else 0
        return len(self.items) - kept

    def take(self) -> int:
        index = 0
        if self.kind == "PriorityQueue":
            index = min(range(len(self.items)), key=lambda i: (self.items[i] % 3, i))
        elif self.kind == "RandomShuffleQueue":
            index = next(self.words) % len(self.items)
            self.items.append(self.items[index])
            self.items[index] = self.items[-2]
            value = self.items.pop()
            self.items.pop()
            return value
        return self.items.pop(index)

    def restore(self, items: list[int]) -> None:
        self.items = self.items + items if self.kind == "RandomShuffleQueue" else items + self.items

    def begin(self, line: list[Waiting], operation: Waiting) -> Waiting:
        line.append(operation)
        self.settle()
        return operation

    def settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for line, advance in ((self.putting, self.put_on), (self.taking, self.take_on)):
                while line and (moved := advance(line[0])):
                    changed = True
                    if line[0].result is None:
                        break
                    line.pop(0)
                    assert moved

    def put_on(self, operation: Waiting) -> bool:
        if operation.what == "close":
            operation.result = "CANCELLED" if self.closed else "done"
            self.closed = True
            return True
        if self.closed:
            operation.result = "CANCELLED"
            return True
        moved = False
        while operation.items and len(self.items) < CAPACITY:
            self.items.append(operation.items.pop(0))
            moved = True
        if not operation.items:
            operation.result = "done"
        return moved or not operation.items

    def take_on(self, operation: Waiting) -> bool:
        if self.closed and len(self.items) < operation.count - len(operation.items):
            self.restore(operation.items)
            operation.items = []
            if not (operation.what == "up_to" and self.items):
                operation.result = "OUT_OF_RANGE"
                return True
            operation.count = len(self.items)
        moved = False
        if self.kind == "PriorityQueue" and self.available() < operation.count:
            return False
        while len(operation.items) < operation.count and self.available() > 0:
            operation.items.append(self.take())
            moved = True
        if len(operation.items) == operation.count:
            operation.result = operation.items
        return moved

    def cancel(self, operation: Waiting) -> None:
        operation.result = "cancelled"
        if operation in self.taking:
            self.taking.remove(operation)
            self.restore(operation.items)
        else:
            self.putting.remove(operation)
        self.settle()

    def close_and_cancel(self) -> None:
        self.closed = True
        for operation in self.putting:
            operation.result = "CANCELLED"
        self.putting.clear()
        self.settle()


class QueueMachine(RuleBasedStateMachine):
    """Real and model operations side by side."""

    kind: type[QueueBase] = FIFOQueue
    spec = SPEC
    operations = Bundle("operations")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.queue = self.kind("q", self.spec)
        self.model = Model(self.kind.kind)
        self.pairs: list[tuple[Any, Waiting]] = []
        self.next = 0

    def teardown(self) -> None:
        async def end() -> None:
            self.queue.close()
            for real in [_unwrapped(real) for real, _ in self.pairs]:
                if isinstance(real, Attempt) and not real.cancelled():
                    real.exception()

        self.runner.run(end())
        self.runner.close()

    def call(self, operation: Any) -> Any:
        async def call() -> Any:
            try:
                return operation()
            except errors.OpError as error:
                return error

        return self.runner.run(call())

    def both(self, real: Any, line: list[Waiting], waiting: Waiting) -> tuple[Any, Waiting]:
        pair = (self.call(real), self.model.begin(line, waiting))
        self.pairs.append(pair)
        return pair

    def fresh(self, count: int) -> list[int]:
        self.next += count
        return list(range(self.next - count, self.next))

    @rule(target=operations)
    def enqueue(self) -> Any:
        values = self.fresh(1)
        return self.both(
            lambda: self.queue.enqueue(element(values[0])), self.model.putting, Waiting("put", list(values))
        )

    @rule(target=operations, count=st.integers(1, 6))
    def enqueue_many(self, count: int) -> Any:
        values = self.fresh(count)
        rows = [np.array(column) for column in zip(*map(element, values), strict=True)]
        return self.both(lambda: self.queue.enqueue_many(rows), self.model.putting, Waiting("put", list(values)))

    @rule(target=operations)
    def dequeue(self) -> Any:
        return self.both(lambda: [self.queue.dequeue()], self.model.taking, Waiting("take", [], 1))

    @rule(target=operations, count=st.integers(1, 6), up_to=st.booleans())
    def dequeue_many(self, count: int, up_to: bool) -> Any:
        return self.both(
            lambda: self.queue.dequeue_many(count, up_to=up_to, finish=list),
            self.model.taking,
            Waiting("up_to" if up_to else "take", [], count),
        )

    @precondition(lambda self: self.next > 12)
    @rule(target=operations)
    def close(self) -> Any:
        return self.both(self.queue.request_close, self.model.putting, Waiting("close", []))

    @precondition(lambda self: self.next > 12)
    @rule()
    def close_and_cancel(self) -> None:
        assert self.call(lambda: self.queue.request_close(cancel_pending_enqueues=True)) is None
        self.model.close_and_cancel()

    @rule(pair=consumes(operations))
    def cancel(self, pair: Any) -> None:
        real, waiting = _unwrapped(pair[0]), pair[1]
        if isinstance(real, Attempt) and not real.done():
            self.call(real.cancel)
            self.model.cancel(waiting)

    @invariant()
    def same(self) -> None:
        statistics = self.queue.statistics()
        assert statistics.size == len(self.model.items)
        assert statistics.closed == self.model.closed
        assert statistics.waiting_enqueues == len(self.model.putting)
        assert statistics.waiting_dequeues == len(self.model.taking)
        assert statistics.enqueued - statistics.dequeued == statistics.size
        for real, waiting in self.pairs:
            assert _outcome(_unwrapped(real)) == waiting.result
        self.pairs = [pair for pair in self.pairs if pair[1].result is None]


def _unwrapped(real: Any) -> Any:
    """A single dequeue comes as a list: of the element, or of the attempt."""
    return real[0] if isinstance(real, list) and isinstance(real[0], Attempt) else real


def _outcome(real: Any) -> Any:
    if isinstance(real, Attempt):
        if not real.done():
            return None
        if real.cancelled():
            return "cancelled"
        real = real.exception() or real.result()
    if isinstance(real, errors.OpError):
        return real.code.name
    if real is None:
        return "done"
    return [int(part[1]) for part in ([real] if isinstance(real, tuple) else real)]


class PaddingMachine(QueueMachine):
    kind = PaddingFIFOQueue


class PriorityMachine(QueueMachine):
    kind = PriorityQueue


class ShuffleMachine(QueueMachine):
    kind = RandomShuffleQueue
    spec = QueueSpec(SPEC.types, SPEC.shapes, CAPACITY, MINIMUM, SEED)


STEPS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFIFOQueue = QueueMachine.TestCase
TestPaddingFIFOQueue = PaddingMachine.TestCase
TestPriorityQueue = PriorityMachine.TestCase
TestRandomShuffleQueue = ShuffleMachine.TestCase
for _case in (TestFIFOQueue, TestPaddingFIFOQueue, TestPriorityQueue, TestRandomShuffleQueue):
    _case.settings = STEPS
