"""`RecordedQueue`: what a record of a queue holds, from which another process makes the queue again.

A record has the elements, whether the queue is closed, and what decides in which order elements are taken.  It has
nothing of the attempts that wait: they belong to steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.queues.attempt_lines import AttemptLines
from aexec.queues.batching import Element

__all__ = ["QueueContents", "QueueVersion", "RecordedQueue"]

# Counts of elements put, taken, and moves undone so far; and whether it is closed.
QueueVersion = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class QueueContents:
    """The state of a queue, for a record.

    Attributes:
        version: the queue's `version` then.
        elements: its elements, in the order in which another queue has to get them.
        closed: whether it was closed.
        order: what else decides in which order elements are taken.
    """

    version: QueueVersion
    elements: list[Element]
    closed: bool
    order: dict[str, int]


class RecordedQueue(AttemptLines):
    """The part of a queue that records need.

    Attributes:
        kept: counts the bytes of the elements, or None.
    """

    kept: KeptMemory | None
    _put_all: Callable[[Iterable[Element]], object]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._undone = 0
        self._peak = 0

    @property
    def version(self) -> QueueVersion:
        """Compares equal only if the queue has not changed."""
        return self._enqueued, self._dequeued, self._undone, self.closed

    def contents(self) -> QueueContents:
        """The state of the queue at one moment, without what waits at it."""
        with self._lock:
            return QueueContents(self.version, self._ordered(), self.closed, self._order_facts())

    def fill(self, elements: Sequence[Element], order: Mapping[str, int], *, closed: bool) -> None:
        """Take the `contents` of another queue; this one is new.

        Raises:
            KeyError: `order` lacks a fact that this kind of queue has.
            ResourceExhaustedError: the session's limit does not allow the elements.
        """
        if self.kept is not None:
            self.kept.keep(chain.from_iterable(elements))
        with self._lock:
            self._put_all(elements)
            self._take_order(order)
            self._enqueued = self._peak = len(elements)
            self.closed = closed

    def _ordered(self) -> list[Element]:
        """The elements, in an order in which `_put_all` makes the same queue of them."""
        raise NotImplementedError

    def _order_facts(self) -> dict[str, int]:
        """What besides the elements decides in which order they are taken."""
        return {}

    def _take_order(self, order: Mapping[str, int]) -> None:
        """Continue with the `_order_facts` of another queue."""
