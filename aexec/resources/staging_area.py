"""Staging areas: tuples that one step puts in and another takes out, first in first out, or by key.

Putting waits while the area is full, taking until the tuple is there.  Waiting is atomic: a cancelled call has put
nothing and taken nothing.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.resources.waiting_lines import NOT_YET, WaitingLines

__all__ = ["StagingArea", "StagingMap"]

Tuple = tuple[Any, ...]


class _Bounded:
    """Counts an area's tuples and bytes against its limits; 0 is no limit."""

    def __init__(self, capacity: int, memory_limit: int) -> None:
        self.capacity = capacity
        self.memory_limit = memory_limit
        self.bytes = 0
        self.lines = WaitingLines()
        self.kept: KeptMemory | None = None

    def check_size(self, values: Sequence[Any]) -> int:
        """The bytes of a tuple.

        Raises:
            ResourceExhaustedError: it is larger than the area's limit, or the session's limit does not allow it.
        """
        num_bytes = _num_bytes(values)
        if 0 < self.memory_limit < num_bytes:
            raise errors.ResourceExhaustedError(
                f"Attempted to insert tensors with combined size of '{num_bytes}' bytes into Staging Area "
                f"with a memory limit of '{self.memory_limit}'."
            )
        if self.kept is not None:
            self.kept.keep(values)
        return num_bytes

    def is_full(self, count: int, more_bytes: int) -> bool:
        """True if there is no room for a further tuple beside `count` others."""
        return 0 < self.capacity <= count or self.lacks_memory(more_bytes)

    def lacks_memory(self, more_bytes: int) -> bool:
        """True if there is no room for `more_bytes` bytes."""
        return 0 < self.memory_limit < self.bytes + more_bytes


def _num_bytes(values: Sequence[Any]) -> int:
    return sum(value.nbytes for value in values if value is not None)


class StagingArea(_Bounded):
    """Tuples, first in first out.

    Args:
        capacity: most tuples.
        memory_limit: most bytes; 0 is no limit for both.
    """

    def __init__(self, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(capacity, memory_limit)
        self._tuples: deque[Tuple] = deque()

    def __len__(self) -> int:
        return len(self._tuples)

    async def put(self, values: Tuple, manager: CancellationManager | None) -> None:
        """Add a tuple, once there is room.

        Raises:
            ResourceExhaustedError: it is larger than the memory limit, or the session's limit does not allow it.
            CancelledError: cancelled while waiting.
        """
        size = self.check_size(values)

        def attempt() -> Any:
            if self.is_full(len(self._tuples), size):
                return NOT_YET
            self._tuples.append(values)
            self.bytes += size
            return None

        def undo(_: None) -> None:
            with self.lines.lock:
                for index, held in enumerate(self._tuples):
                    if held is values:
                        del self._tuples[index]
                        self.bytes -= size
                        break
                self.lines.changed()

        await self.lines.join("put", attempt, manager, "Stage operation was cancelled", undo)

    async def get(self, manager: CancellationManager | None) -> Tuple:
        """Take the first tuple, once there is one.  Raises CancelledError if cancelled."""

        def attempt() -> Any:
            if not self._tuples:
                return NOT_YET
            values = self._tuples.popleft()
            self.bytes -= _num_bytes(values)
            return values

        taken: Tuple = await self.lines.join("get", attempt, manager, "Unstage operation was cancelled", self._put_back)
        return taken

    async def peek(self, index: int, manager: CancellationManager | None) -> Tuple:
        """Tuple number `index`, once there is one; it stays.  Raises CancelledError if cancelled."""

        def attempt() -> Any:
            return self._tuples[index] if 0 <= index < len(self._tuples) else NOT_YET

        found: Tuple = await self.lines.join(("peek", index), attempt, manager, "StagePeek operation was cancelled")
        return found

    def clear(self) -> None:
        """Remove all tuples."""
        with self.lines.lock:
            self._tuples.clear()
            self.bytes = 0
            self.lines.changed()

    def _put_back(self, values: Tuple) -> None:
        with self.lines.lock:
            self._tuples.appendleft(values)
            self.bytes += _num_bytes(values)
            self.lines.changed()

    def __repr__(self) -> str:
        return f"<StagingArea of {len(self)} tuples>"


class StagingMap(_Bounded):
    """Tuples by key, which may be put in and taken out in parts.

    Parts of a tuple count against `memory_limit` when they are put, and against `capacity` once the tuple is complete:
    only the part that completes a tuple waits for room for it.

    Args:
        width: components of each tuple; None until a put says it, since a get does not know it.
        ordered: without a key, take the tuple with the smallest key; otherwise the oldest tuple.
        capacity, memory_limit: as of `StagingArea`.
    """

    def __init__(self, width: int | None, *, ordered: bool, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(capacity, memory_limit)
        self.width = width
        self.ordered = ordered
        self._complete: dict[int, list[Any]] = {}
        self._incomplete: dict[int, list[Any]] = {}
        self._keys: list[int] = []  # of an ordered map: a heap of the complete keys, and of some that were taken

    def __len__(self) -> int:
        return len(self._complete)

    @property
    def incomplete(self) -> int:
        """The number of keys that lack components."""
        return len(self._incomplete)

    async def put(self, key: int, indices: Sequence[int], values: Tuple, manager: CancellationManager | None) -> None:
        """Add components of a key's tuple, whose width is known, once there is room.

        Raises:
            InvalidArgumentError: an index is out of range, its component is there already, or the tuple is complete.
            ResourceExhaustedError: larger than the memory limit, or the session's limit does not allow it.
            CancelledError: cancelled while waiting.
        """
        self._check_bounds(key, indices)
        width = self.width or 0
        size = self.check_size(values)

        def attempt() -> Any:
            if self.is_full(len(self._complete), size) if len(indices) == width else self.lacks_memory(size):
                return NOT_YET
            if key in self._complete:
                raise errors.InvalidArgumentError(f"The tensor for key '{key}' was already inserted.")
            parts = self._incomplete.get(key) or [None] * width
            for index in indices:
                if parts[index] is not None:
                    raise errors.InvalidArgumentError(
                        f"The tensor for index '{index}' for key '{key}' was already initialized '{width}'."
                    )
            self._incomplete[key] = parts
            for index, value in zip(indices, values, strict=True):
                parts[index] = value
            self.bytes += size
            if all(part is not None for part in parts):
                self._incomplete.pop(key)
                self._add(key, parts)
            return None

        def undo(_: None) -> None:
            self._withdraw(key, indices, values)

        await self.lines.join("put", attempt, manager, f"{self._name}Stage operation was cancelled", undo)

    async def get(self, key: int, indices: Sequence[int], manager: CancellationManager | None) -> Tuple:
        """Take components of a complete tuple, once there is one of this key; the tuple is removed with its last
        component.

        Raises:
            InvalidArgumentError: an index is out of range, or its component was taken.
            CancelledError: cancelled while waiting.
        """

        def attempt() -> Any:
            return self._take(key, indices) if key in self._complete else NOT_YET

        def undo(values: Tuple) -> None:
            self._put_back(key, indices, values)

        message = f"{self._name}Unstage operation was cancelled"
        taken: Tuple = await self.lines.join(("get", key), attempt, manager, message, undo)
        return taken

    async def peek(self, key: int, indices: Sequence[int], manager: CancellationManager | None) -> Tuple:
        """Components of a complete tuple, once there is one of this key; it stays.  Raises as `get` does."""

        def attempt() -> Any:
            return self._components(key, indices) if key in self._complete else NOT_YET

        found: Tuple = await self.lines.join(
            ("peek", key), attempt, manager, f"{self._name}Peek operation was cancelled"
        )
        return found

    async def get_any(self, indices: Sequence[int], manager: CancellationManager | None) -> tuple[int, Tuple]:
        """Key and components of the first complete tuple, once there is one.  Raises as `get` does."""

        def attempt() -> Any:
            if not self._complete:
                return NOT_YET
            key = self._first_key()
            return key, self._take(key, indices)

        def undo(taken: tuple[int, Tuple]) -> None:
            self._put_back(taken[0], indices, taken[1])

        message = f"{self._name}UnstageNoKey operation was cancelled"
        taken: tuple[int, Tuple] = await self.lines.join("get any", attempt, manager, message, undo)
        return taken

    def clear(self) -> None:
        """Remove everything, incomplete tuples too."""
        with self.lines.lock:
            self._complete.clear()
            self._incomplete.clear()
            self._keys.clear()
            self.bytes = 0
            self.lines.changed()

    # With the lock held

    def _add(self, key: int, parts: list[Any]) -> None:
        self._complete[key] = parts
        if self.ordered:
            heapq.heappush(self._keys, key)
            if len(self._keys) > 2 * len(self._complete) + 64:  # mostly keys that were taken
                self._keys = sorted(self._complete)

    def _first_key(self) -> int:
        if not self.ordered:
            oldest: int = next(iter(self._complete))
            return oldest
        while self._keys[0] not in self._complete:
            heapq.heappop(self._keys)
        return self._keys[0]

    def _components(self, key: int, indices: Sequence[int]) -> Tuple:
        self._check_bounds(key, indices)
        parts = self._complete[key]
        for index in indices:
            if parts[index] is None:
                raise errors.InvalidArgumentError(
                    f"Tensor at index '{index}' for key '{key}' has already been removed."
                )
        return tuple(parts[index] for index in indices)

    def _take(self, key: int, indices: Sequence[int]) -> Tuple:
        values = self._components(key, indices)
        parts = self._complete[key]
        for index in indices:
            parts[index] = None
        self.bytes -= _num_bytes(values)
        if all(part is None for part in parts):
            del self._complete[key]
        return values

    def _withdraw(self, key: int, indices: Sequence[int], values: Tuple) -> None:
        """Undo a put, except of values that were taken."""
        with self.lines.lock:
            parts = self._complete.pop(key, None) or self._incomplete.pop(key, [])
            for index, value in zip(indices, values, strict=True):
                if parts and parts[index] is value:
                    parts[index] = None
                    self.bytes -= value.nbytes
            if any(part is not None for part in parts):
                self._incomplete[key] = parts
            self.lines.changed()

    def _put_back(self, key: int, indices: Sequence[int], values: Tuple) -> None:
        with self.lines.lock:
            if key not in self._complete:
                self._add(key, [None] * (self.width or 0))
            for index, value in zip(indices, values, strict=True):
                self._complete[key][index] = value
            self.bytes += _num_bytes(values)
            self.lines.changed()

    def _check_bounds(self, key: int, indices: Sequence[int]) -> None:
        width = self.width or 0
        for index in indices:
            if not 0 <= index < width:
                raise errors.InvalidArgumentError(f"Index '{index}' for key '{key}' was out of bounds '{width}'.")

    @property
    def _name(self) -> str:
        return "OrderedMap" if self.ordered else "Map"

    def __repr__(self) -> str:
        return f"<StagingMap of {len(self)} tuples and {self.incomplete} incomplete ones>"
