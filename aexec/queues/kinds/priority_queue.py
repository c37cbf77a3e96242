"""`PriorityQueue`: the element with the smallest priority is taken first.

A batch is taken only when all of it is there: an element that comes while a dequeue waits may precede those that are
there already.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.queues.batching import Element, Zeros
from aexec.queues.queue_base import QueueBase, QueueSpec
from aexec.queues.queue_registry import register_queue_kind

__all__ = ["PriorityQueue"]


@register_queue_kind
class PriorityQueue(QueueBase):
    """Component 0 is the priority, an int64 scalar.  Elements of equal priority are taken first in, first out."""

    kind = "PriorityQueue"
    takes_whole_batches = True
    leading = ((dtypes.int64, PartialTensorShape([])),)

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
        heapq.heappush(self._heap, (_priority(element), self._number, element))

    def _put_all(self, elements: Iterable[Element]) -> None:
        for element in elements:
            self._put(element)

    def _take(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def _ordered(self) -> list[Element]:
        return [element for _, _, element in sorted(self._heap, key=lambda entry: entry[:2])]

    def _restore(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._restored -= 1
            heapq.heappush(self._heap, (_priority(element), self._restored, element))

    def _withdraw(self, element: Element) -> bool:
        kept = [entry for entry in self._heap if entry[2] is not element]
        found = len(kept) < len(self._heap)
        heapq.heapify(kept)
        self._heap = kept
        return found

    def check_element(self, element: Element) -> None:
        super().check_element(element)
        _check_priority(element[0].shape)

    def check_rows(self, components: Sequence[Any]) -> None:
        super().check_rows(components)
        _check_priority(components[0].shape[1:])

    def join(self, elements: list[Element], zeros: Zeros | None = None) -> Element:
        # A large batch is taken over several turns of the loop; elements put in between may precede earlier ones.
        return super().join(sorted(elements, key=_priority), zeros)


def _priority(element: Element) -> int:
    return int(element[0])


def _check_priority(shape: tuple[int, ...]) -> None:
    if shape:
        raise errors.InvalidArgumentError(
            f"Expected the priority element to be a scalar, but received shape: {shape_text(shape)}"
        )
