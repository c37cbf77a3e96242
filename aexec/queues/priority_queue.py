"""`PriorityQueue`: the element with the smallest priority is taken first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.shape import shape_text
from aexec.queues.queue_base import Element, QueueBase, QueueSpec

__all__ = ["PriorityQueue"]


class PriorityQueue(QueueBase):
    """Component 0 is the priority, an int64 scalar.  Among equal ones first in, first out."""

    kind = "PriorityQueue"

    def __init__(self, name: str, spec: QueueSpec) -> None:
        super().__init__(name, spec)
        # The number tells equal priorities apart, so that elements themselves are never compared.
        self._heap: list[tuple[int, int, Element]] = []
        self._clear = self._heap.clear
        self._number = 0
        self._restored = 0

    def _size(self) -> int:
        return len(self._heap)

    def available_locked(self) -> int:
        return len(self._heap)

    def _put(self, element: Element) -> None:
        self._number += 1
        heapq.heappush(self._heap, (int(element[0]), self._number, element))

    def _put_all(self, elements: Iterable[Element]) -> None:
        for element in elements:
            self._put(element)

    def _take(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def _restore(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._restored -= 1
            heapq.heappush(self._heap, (int(element[0]), self._restored, element))

    def _withdraw(self, element: Element) -> bool:
        kept = [entry for entry in self._heap if entry[2] is not element]
        found = len(kept) < len(self._heap)
        heapq.heapify(kept)
        self._heap = kept
        return found

    def check_element(self, element: Element) -> None:
        if element[0].ndim:
            raise errors.InvalidArgumentError(
                f"Expected priority element to be a scalar, but received shape: {shape_text(element[0].shape)}"
            )
        super().check_element(element)

    def check_rows(self, components: Sequence[Any]) -> None:
        if components[0].ndim != 1:
            raise errors.InvalidArgumentError(
                f"Expected priority element to be a vector, but received shape: {shape_text(components[0].shape)}"
            )
        super().check_rows(components)
