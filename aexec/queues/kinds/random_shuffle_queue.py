"""`RandomShuffleQueue`: elements are taken in random order, the same as TensorFlow's for the same seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from aexec.framework import errors
from aexec.numerics.philox import Philox
from aexec.queues.queue_base import Element, QueueBase, QueueSpec
from aexec.queues.queue_registry import register_queue_kind

__all__ = ["RandomShuffleQueue"]

# Blocks of random words drawn at once, and the words of a block.
_BLOCKS = 16
_WORDS = 4


@register_queue_kind
class RandomShuffleQueue(QueueBase):
    """Takes elements in random order.  While it is open, `min_after_dequeue` elements stay, to shuffle among.

    Raises:
        InvalidArgumentError: `min_after_dequeue` is negative, or not less than the capacity.
    """

    kind = "RandomShuffleQueue"
    settings = ("min_after_dequeue", "seed", "seed2")

    def __init__(self, name: str, spec: QueueSpec) -> None:
        super().__init__(name, spec)
        self._minimum = spec.min_after_dequeue
        if self._minimum < 0:
            raise errors.InvalidArgumentError(f"min_after_dequeue {self._minimum} must be >= 0")
        if self._minimum >= self.capacity:
            raise errors.InvalidArgumentError(f"min_after_dequeue {self._minimum} must be < capacity {self.capacity}")
        seed, seed2 = spec.seed, spec.seed2
        if seed == 0 and seed2 == 0:
            seed, seed2 = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        self._seeds = seed, seed2
        self._generator = Philox.from_seeds(seed, seed2)
        self._blocks = 0
        self._words: list[int] = []
        self._elements: list[Element] = []
        self._size = self._elements.__len__
        self._put = self._elements.append
        self._put_all = self._elements.extend
        self._clear = self._elements.clear

    def available_locked(self) -> int:
        size = len(self._elements)
        return size if self.closed else max(0, size - self._minimum)

    def _take(self) -> Element:
        elements = self._elements
        last = elements.pop()
        index = self._next_word() % (len(elements) + 1)
        if index == len(elements):
            return last
        chosen, elements[index] = elements[index], last
        return chosen

    def _next_word(self) -> int:
        if not self._words:
            words = self._generator.words(self._blocks, _BLOCKS).reshape(-1)
            self._words = words[::-1].tolist()
            self._blocks += _BLOCKS
        return self._words.pop()

    def _ordered(self) -> list[Element]:
        return list(self._elements)

    def _order_facts(self) -> dict[str, int]:
        seed, seed2 = self._seeds
        return {"seed": seed, "seed2": seed2, "drawn": self._blocks * _WORDS - len(self._words)}

    def _take_order(self, order: Mapping[str, int]) -> None:
        self._seeds = order["seed"], order["seed2"]
        self._generator = Philox.from_seeds(*self._seeds)
        calls, used = divmod(order["drawn"], _BLOCKS * _WORDS)
        self._blocks, self._words = calls * _BLOCKS, []
        for _ in range(used):
            self._next_word()

    def _restore(self, elements: Sequence[Element]) -> None:
        self._elements.extend(elements)

    def _withdraw(self, element: Element) -> bool:
        for index, held in enumerate(self._elements):
            if held is element:
                del self._elements[index]
                return True
        return False
