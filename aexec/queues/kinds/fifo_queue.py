"""`FIFOQueue`: elements are taken in the order in which they were put."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aexec.queues.queue_base import Element, QueueBase, QueueSpec
from aexec.queues.queue_registry import register_queue_kind

__all__ = ["FIFOQueue"]


@register_queue_kind
class FIFOQueue(QueueBase):
    """First in, first out."""

    kind = "FIFOQueue"

    def __init__(self, name: str, spec: QueueSpec) -> None:
        super().__init__(name, spec)
        self._elements: deque[Element] = deque()
        self._size = self._elements.__len__
        self.available_locked = self._elements.__len__
        self._put = self._elements.append
        self._put_all = self._elements.extend
        self._clear = self._elements.clear
        self._take = self._elements.popleft

    def _ordered(self) -> list[Element]:
        return list(self._elements)

    def _restore(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))

    def _withdraw(self, element: Element) -> bool:
        for index, held in enumerate(self._elements):
            if held is element:
                del self._elements[index]
                return True
        return False
