"""`QueueBase`: what all kinds of queues have in common.

Two lines of attempts wait at a queue (`attempt_lines.py`), enqueues and dequeues.  An operation that can be done at
once, with no other before it, needs no future and no task: the methods return its result, or else an `Attempt` to wait
for.

A kind of queue defines the order in which elements are taken: see `kinds/fifo_queue.py`.  All methods may be called
from any thread.  The lock is held only while references are moved, and a limited number at a time: an operation on many
elements continues in the loop's next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.html_repr import block, facts_table, table
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ResourceManager, handle_from_tensor
from aexec.queues import batching
from aexec.queues.attempt_lines import UNBOUNDED, deliver
from aexec.queues.attempts import Attempt, Close, Dequeue, Enqueue
from aexec.queues.batching import Element, Zeros
from aexec.queues.recorded_queue import RecordedQueue

__all__ = ["Element", "QueueBase", "QueueSpec", "QueueStatistics", "lookup_queue"]

_shape_of = attrgetter("shape")


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """What two nodes that share a queue must agree on.

    Attributes:
        types: types of the components.
        shapes: shapes of the components; empty if elements may have any shapes.
        capacity: the most elements; negative for an unbounded queue.
        min_after_dequeue, seed, seed2: of a shuffling queue.
    """

    types: tuple[DType, ...]
    shapes: tuple[PartialTensorShape, ...] = ()
    capacity: int = -1
    min_after_dequeue: int = 0
    seed: int = 0
    seed2: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of a queue.

    Attributes:
        name, kind: its name and kind.
        size, capacity: elements in it now, and the most that it may hold.
        peak: the most that it has held.
        enqueued, dequeued: elements put and taken so far, without those that were put back.
        waiting_enqueues, waiting_dequeues: attempts in line.
        closed: whether it is closed.
    """

    name: str
    kind: str
    size: int
    capacity: int
    peak: int
    enqueued: int
    dequeued: int
    waiting_enqueues: int
    waiting_dequeues: int
    closed: bool

    def facts(self) -> tuple[str, str]:
        """Size and waiting attempts as texts, for people."""
        size = f"{self.size} of {self.capacity}{', closed' if self.closed else ''}"
        return size, f"{self.waiting_enqueues} enqueues and {self.waiting_dequeues} dequeues waiting"


class QueueBase(RecordedQueue):
    """The base class of all kinds of queues: two lines of waiting attempts, each served in order of arrival.

    Args:
        name: for errors.
        spec: types, shapes and capacity.

    Raises:
        InvalidArgumentError: numbers of types and shapes differ, or a shape is less complete than the queue needs.

    Attributes:
        takes_whole_batches: True if a dequeue of many takes nothing until all its elements are there.
        leading: types and shapes of the components before those that a node's attrs name.
        settings: further attrs of its ops, which are fields of `QueueSpec`, besides those that all kinds have.
        capacity: the most elements that it may hold.
        dropped: True once it has left its container.
        kept: counts the bytes of the elements, or None.
    """

    takes_whole_batches: ClassVar[bool] = False
    leading: ClassVar[tuple[tuple[DType, PartialTensorShape], ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, spec: QueueSpec) -> None:
        if spec.shapes and len(spec.shapes) != len(spec.types):
            raise errors.InvalidArgumentError(
                f"Different number of component types.  Types: {_types_text(spec.types)}, "
                f"Shapes: {_shapes_text(spec.shapes)}"
            )
        self.check_shapes(spec.shapes)
        super().__init__(name)
        self.spec = spec if spec.capacity >= 0 else replace(spec, capacity=UNBOUNDED)
        self.capacity = self.spec.capacity
        exact = all(shape.is_fully_defined for shape in spec.shapes)
        self._exact_shapes = [shape.as_tuple() for shape in spec.shapes] if exact else None
        self.dropped = False
        self.kept: KeptMemory | None = None

    # A kind of queue defines these six, which may be bound methods of its container, and some of the methods below

    _size: Callable[[], int]
    # The number of elements that may be taken now.
    available_locked: Callable[[], int]
    _put: Callable[[Element], object]
    _put_all: Callable[[Iterable[Element]], object]
    _take: Callable[[], Element]
    _clear: Callable[[], object]

    def _restore(self, elements: Sequence[Element]) -> None:
        """Put taken elements back in their places; they are in the order in which they were taken."""
        raise NotImplementedError

    def _withdraw(self, element: Element) -> bool:
        """Remove this very element; False if it is not there."""
        raise NotImplementedError

    def check_shapes(self, shapes: Iterable[PartialTensorShape]) -> None:
        """Raise InvalidArgumentError unless the components may have these shapes."""
        for shape in shapes:
            if not shape.is_fully_defined:
                raise errors.InvalidArgumentError(f"Shape {shape} is not fully defined")

    def check_element(self, element: Element) -> None:
        """Raise InvalidArgumentError unless the element may be put.  Its types are not checked."""
        if self._exact_shapes is None or [*map(_shape_of, element)] != self._exact_shapes:
            batching.check_element(element, self.spec.shapes)

    def check_rows(self, components: Sequence[Any]) -> None:
        """Raise InvalidArgumentError unless the rows of these may be put as elements."""
        batching.check_rows(components, self.spec.shapes)

    def join(self, elements: list[Element], zeros: Zeros | None = None) -> Element:
        """A batch of elements.

        Args:
            zeros: makes an array for padding, given the component's position and the shape.
        """
        if not elements:
            return batching.empty_batch(self.spec.types, self.spec.shapes)
        return batching.join(elements, self.spec.types)

    # Operations

    @classmethod
    def with_leading(
        cls, types: Sequence[DType], shapes: Sequence[PartialTensorShape]
    ) -> tuple[list[DType], list[PartialTensorShape]]:
        """Types and shapes of all components, given those of a node's attrs; no shapes if these name none."""
        all_types = [*(dtype for dtype, _ in cls.leading), *types]
        return all_types, [*(shape for _, shape in cls.leading), *shapes] if shapes else []

    def __len__(self) -> int:
        """The number of elements."""
        return self._size()

    def enqueue(self, element: Element, limit: int | None = None) -> Attempt | None:
        """Put an element, whose arrays must not be written to any more.

        Args:
            limit: replaces the capacity, if that is more.

        Returns:
            None, or the attempt if it has to wait for room.

        Raises:
            InvalidArgumentError: a component does not have its required shape.
            CancelledError: the queue is closed.
            ResourceExhaustedError: the session's limit does not allow it.
        """
        self.check_element(element)
        if self.kept is not None:
            self.kept.keep(element)
        room = self.capacity if limit is None else min(limit, self.capacity)
        with self._lock:
            size = self._size()
            waiting = size >= room or bool(self._enqueues) or self.closed
            if not waiting:
                self._put(element)
                self._enqueued += 1
                if size >= self._peak:
                    self._peak = size + 1
                if not self._dequeues:
                    return None
                completed = self._flush()
        if waiting:
            begun: Attempt | None = self._begin(Enqueue([element], room), self._enqueues)
            return begun
        deliver(completed)
        return None

    def enqueue_many(self, components: Sequence[Any]) -> Attempt | None:
        """Put the rows of `components`, in order, each as soon as there is room.

        If it is cancelled in between, the rows that were put stay.  Returns and raises as `enqueue`.
        """
        self.check_rows(components)
        if self.kept is not None:  # before they are cut
            self.kept.keep(components, len(components[0]))
        return self.enqueue_all(batching.cut(components), counted=True)

    def enqueue_all(self, elements: list[Element], *, counted: bool = False) -> Attempt | None:
        """`enqueue_many` for elements that are checked and cut; `counted` if their bytes were counted before they were
        cut.
        """
        if self.kept is not None and not counted:
            self.kept.keep(chain.from_iterable(elements))
        return self._begin(Enqueue(elements, self.capacity), self._enqueues) if elements else None

    def dequeue(self) -> Element | Attempt:
        """Take an element.

        Returns:
            the element, or the attempt if it has to wait for one.

        Raises:
            OutOfRangeError: the queue is closed and empty.
        """
        with self._lock:
            waiting = not self.available_locked() or bool(self._dequeues)
            if not waiting:
                element = self._take()
                self._dequeued += 1
                if not self._enqueues:
                    return element
                completed = self._flush()
        if waiting:
            begun: Element | Attempt = self._begin(Dequeue(1, up_to=False, finish=_first), self._dequeues)
            return begun
        deliver(completed)
        return element

    def dequeue_many(self, count: int, *, up_to: bool = False, finish: Any = None) -> Any:
        """Take `count` elements, each as soon as it is there.

        Args:
            up_to: once the queue is closed, take fewer, but at least one.
            finish: makes the result from the list of elements; by default `join`.

        Returns:
            the result of `finish`, or the attempt if it has to wait.

        Raises:
            InvalidArgumentError: a negative count, or the components' shapes are not specified.
            OutOfRangeError: the queue is closed before there are enough; the taken elements were put back.
        """
        self.check_count(count, up_to=up_to)
        finish = finish or self.join
        return self._begin(Dequeue(count, up_to=up_to, finish=finish), self._dequeues) if count else finish([])

    def check_count(self, count: int, *, up_to: bool) -> None:
        """Raise InvalidArgumentError for a negative count, or if elements cannot be joined to a batch."""
        if count < 0:
            op = "DequeueUpToOp" if up_to else "DequeueManyOp"
            raise errors.InvalidArgumentError(f"{op} requested {count} < 0 elements")
        if not self.spec.shapes:
            raise errors.InvalidArgumentError(
                f"{self.kind}'s DequeueMany and DequeueUpTo require the components to have specified shapes."
            )

    def request_close(self, *, cancel_pending_enqueues: bool = False) -> Attempt | None:
        """Close the queue: elements may still be taken, but none put.

        Args:
            cancel_pending_enqueues: close at once, and fail the waiting enqueues with CancelledError.  Otherwise it
                takes effect after them, as if it were an enqueue.

        Returns:
            None, or the attempt if it has to wait for enqueues before it.

        Raises:
            CancelledError: the queue is closed already; never if enqueues are cancelled.
        """
        if not cancel_pending_enqueues:
            begun: Attempt | None = self._begin(Close(), self._enqueues)
            return begun
        with self._lock:
            self.closed = True
            completed = self._fail_all(self._enqueues)
            completed += self._flush()
        deliver(completed)
        return None

    def close(self) -> None:
        """Called when the queue leaves its container: fail all waiting attempts with CancelledError, and drop the
        elements.
        """
        with self._lock:
            self.closed = self.dropped = True
            completed = self._fail_all(self._enqueues) + self._fail_all(self._dequeues)
            # Kernels that have looked the queue up may still refer to it.
            self._clear()
        deliver(completed)

    def statistics(self) -> QueueStatistics:
        with self._lock:
            return QueueStatistics(
                self.name,
                self.kind,
                len(self),
                self.capacity,
                self._peak,
                self._enqueued,
                self._dequeued,
                len(self._enqueues),
                len(self._dequeues),
                self.closed,
            )

    def waiting_since(self) -> float | None:
        """The `perf_counter()` time since which the oldest dequeue waits, or None."""
        with self._lock:
            return self._dequeues[0].since if self._dequeues else None

    # For attempts, with the lock held

    def put_locked(self, elements: Sequence[Element]) -> None:
        self._put_all(elements)
        self.moves_left -= len(elements)
        self._enqueued += len(elements)
        size = self._size()
        if size > self._peak:
            self._peak = size

    def take_locked(self, count: int) -> list[Element]:
        self._dequeued += count
        self.moves_left -= count
        take = self._take
        return [take() for _ in range(count)]

    def restore_locked(self, elements: Sequence[Element]) -> None:
        self._undone += 1
        self._dequeued -= len(elements)
        self._restore(elements)

    def withdraw_locked(self, element: Element) -> None:
        if self._withdraw(element):
            self._undone += 1
            self._enqueued -= 1

    def close_locked(self) -> None:
        self.closed = True

    def closed_error(self) -> errors.OpError:
        return errors.CancelledError(f"{self.kind} '{self.name}' is closed.")

    def insufficient_error(self, requested: int, size: int) -> errors.OpError:
        return errors.OutOfRangeError(
            f"{self.kind} '{self.name}' is closed and has insufficient elements "
            f"(requested {requested}, current size {size})"
        )

    def give_back(self, elements: Sequence[Element]) -> None:
        """Put taken elements back in their places."""
        with self._lock:
            self.restore_locked(elements)
            completed = self._flush()
        deliver(completed)

    # Sharing

    def check_same(self, op: str, spec: QueueSpec) -> None:
        """Raise InvalidArgumentError unless a node of type `op` with this spec may share the queue."""
        ours = self.spec
        if op.removesuffix("V2") != self.kind:
            raise errors.InvalidArgumentError(f"Expected {self.kind}, found {op}")
        capacity = spec.capacity if spec.capacity >= 0 else UNBOUNDED
        if capacity != self.capacity:
            raise self._differs(f"has capacity {self.capacity} but requested capacity was {capacity}")
        if spec.types != ours.types:
            raise self._differs(
                f"has component types {_types_text(ours.types)} "
                f"but requested component types were {_types_text(spec.types)}"
            )
        if not self.same_shapes(spec.shapes):
            raise self._differs(
                f"has component shapes {_shapes_text(ours.shapes)} "
                f"but requested component shapes were {_shapes_text(spec.shapes)}"
            )
        if spec.min_after_dequeue != ours.min_after_dequeue:
            raise self._differs(
                f"has min_after_dequeue {ours.min_after_dequeue} "
                f"but requested min_after_dequeue was {spec.min_after_dequeue}."
            )
        if (spec.seed, spec.seed2) not in ((0, 0), (ours.seed, ours.seed2)):  # without seeds any order will do
            raise self._differs(
                f"has random seeds ({ours.seed}, {ours.seed2}) but requested seeds are ({spec.seed}, {spec.seed2})."
            )

    def same_shapes(self, shapes: tuple[PartialTensorShape, ...]) -> bool:
        """True if these are the components' shapes, for a node that shares the queue."""
        return shapes == self.spec.shapes

    def _differs(self, how: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(f"Shared queue '{self.name}' {how}")

    def __repr__(self) -> str:
        size, waiting = self.statistics().facts()
        return f"<{self.kind} '{self.name}' {size}, {waiting}>"

    def _repr_html_(self) -> str:
        statistics = self.statistics()
        size, waiting = statistics.facts()
        facts = {"elements": size, "peak": statistics.peak, "enqueued": statistics.enqueued}
        facts |= {"dequeued": statistics.dequeued, "waiting": waiting}
        shapes = self.spec.shapes or [""] * len(self.spec.types)
        components = [
            (i, dtype.wire_name, shape) for i, (dtype, shape) in enumerate(zip(self.spec.types, shapes, strict=True))
        ]
        return block(
            self.kind, self.name, facts_table(facts), table("component", ["type", "shape"], components, len(components))
        )


def lookup_queue(resources: ResourceManager, handle: Any) -> QueueBase:
    """The queue that a handle of either kind names.

    Raises:
        InvalidArgumentError: it is not a handle, or a handle of something else.
        NotFoundError: there is no such queue.
    """
    if not isinstance(handle, RefCell):
        return resources.lookup_handle(handle_from_tensor(handle, QueueBase), QueueBase)
    names = handle.read("handle")
    if names.shape != (2,):
        raise errors.InvalidArgumentError(
            f"Queue handle must have two elements, but had shape: {shape_text(names.shape)}"
        )
    container, name = (str(part, "utf-8", "replace") for part in names.tolist())
    return resources.lookup(container, name, QueueBase)


def _first(elements: list[Element]) -> Element:
    return elements[0]


def _types_text(types: Iterable[DType]) -> str:
    return ", ".join(map(str, types))


def _shapes_text(shapes: Iterable[PartialTensorShape]) -> str:
    return f"[{', '.join(str(shape) for shape in shapes)}]"
