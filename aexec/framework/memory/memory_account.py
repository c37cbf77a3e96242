"""Memory accounts: the memory that a step, a session or a server has in use, by node, with a limit.

An account counts buffers, each once, however many arrays are views of it, until its memory is freed.  A kernel's call
**reserves** the memory of its expected outputs before it begins, so that too much is refused before it is allocated; at
its end it returns the rest.  An account may be inside another one, as a step's is in its session's: then reservations
and buffers count for both.
Next to read: `kept_memory.py` for what resources keep, and `aexec/runtime/interpreter/memory_accountant.py`, which
counts the calls of a step.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import errors
from aexec.framework.memory.allocator import Allocator, AllocatorWrapper
from aexec.framework.memory.tensor_buffer import buffer_of, memory_bytes
from aexec.framework.memory.unique_tensor_references import UniqueTensorReferences

__all__ = ["CallMemory", "MemoryAccount", "bytes_text"]

# The number of nodes that a report names; it adds up the others.
REPORTED_NODES = 10


class _Buffer(NamedTuple):
    owner: int
    num_bytes: int
    node: str
    # Its callback runs when the memory is freed.
    reference: weakref.ref[Any]


class MemoryAccount:
    """Memory in use by one step, session or server, by node, with an optional limit.  Any thread may use it.

    Args:
        whose: `step`, `session` or `server`, for messages.
        setting: the name of the setting that has the limit.
        limit: the limit in bytes; None for no limit.
        within: the account that this one is a part of, or None.
    """

    def __init__(
        self, whose: str, setting: str = "", limit: int | None = None, within: MemoryAccount | None = None
    ) -> None:
        self.limit = limit
        self.within = within
        self._whose = whose
        self._setting = setting
        self._lock = threading.RLock()
        self._buffers: dict[int, _Buffer] = {}
        self._numbers: dict[int, int] = {}
        # The last reference to memory may be dropped anywhere: freed memory is noted here, and the next call accounts
        # for it.
        self._dead: deque[int] = deque()
        self._last = itertools.count()
        self._in_use = self._reserved = self._peak = 0
        # Called before a refusal, to give back reserved memory that is no longer needed.
        self._reviews: list[weakref.WeakMethod[Callable[[], None]]] = []

    @property
    def in_use(self) -> int:
        """The bytes of live buffers and of reservations."""
        with self._lock:
            self._account_for_dead()
            return self._in_use + self._reserved

    @property
    def peak(self) -> int:
        """The most bytes in use and reserved at a time."""
        return self._peak

    @property
    def room(self) -> float:
        """The bytes that may be reserved now, in this account and in those around it."""
        around = math.inf if self.within is None else self.within.room
        return around if self.limit is None else min(around, self.limit - self.in_use)

    def reserve(self, num_bytes: int) -> None:
        """Reserve bytes.

        Raises:
            ResourceExhaustedError: they would exceed the limit of this account or of one around it.
        """
        wanted = self._reserve(num_bytes)
        if wanted is None:
            self._review()
            wanted = self._reserve(num_bytes)
        if wanted is None:
            raise errors.ResourceExhaustedError(self._exceeded(num_bytes))
        if self.within is not None:
            try:
                self.within.reserve(num_bytes)
            except errors.ResourceExhaustedError:
                with self._lock:
                    self._reserved -= num_bytes
                raise
        if wanted > self._peak:
            self._peak = wanted

    def _reserve(self, num_bytes: int) -> int | None:
        """Reserve bytes if the limit allows; return the bytes in use and reserved then, or None."""
        with self._lock:
            self._account_for_dead()
            wanted = self._in_use + self._reserved + num_bytes
            if self.limit is not None and wanted > self.limit:
                return None
            self._reserved += num_bytes
            return wanted

    def reviewed_by(self, review: Callable[[], None]) -> None:
        """Call a method before this account, or one around it, refuses memory; does not keep its object alive."""
        self._reviews.append(weakref.WeakMethod(review))
        if self.within is not None:
            self.within.reviewed_by(review)

    def _review(self) -> None:
        for reference in list(self._reviews):
            review = reference()
            if review is not None:
                review()
            else:
                self._reviews.remove(reference)

    def give_back(self, num_bytes: int) -> None:
        """Give back reserved bytes, because they are not needed, or counted as in use."""
        with self._lock:
            self._reserved -= num_bytes
        if self.within is not None:
            self.within.give_back(num_bytes)

    def take(self, num_bytes: int) -> None:
        """Like `reserve`, for memory that exists already and is not refused."""
        with self._lock:
            self._reserved += num_bytes
            self._peak = max(self._peak, self._in_use + self._reserved)
        if self.within is not None:
            self.within.take(num_bytes)

    def knows(self, array: Any) -> bool:
        """True if the array's buffer is counted."""
        return id(buffer_of(array)) in self._numbers

    def add(self, array: Any, node: str) -> None:
        """Count an array that a node made or keeps, unless its buffer is counted already."""
        self._add(array, node, None)

    def add_sized(self, node: str, array: Any, size: int) -> None:
        """Like `add`, for a buffer of a known size."""
        self._add(array, node, size)

    def _add(self, array: Any, node: str, size: int | None) -> None:
        """Like `add`, with the size of the buffer if it is known."""
        owner = buffer_of(array)
        with self._lock:
            self._account_for_dead()
            known = id(owner) in self._numbers
        if not known:
            if size is None:  # measured before the lock is taken, because it may take long
                size = memory_bytes(owner if isinstance(owner, np.ndarray) else array)
            self._insert(owner, size, node)
        if self.within is not None:
            self.within._add(array, node, size)

    def _insert(self, owner: Any, size: int, node: str) -> None:
        with self._lock:
            if id(owner) in self._numbers:
                return
            number, dead = next(self._last), self._dead
            try:
                reference = weakref.ref(owner, lambda _: dead.append(number))
            except TypeError:
                return  # memory that no account counts: bytes, a memory map
            self._buffers[number] = _Buffer(id(owner), size, node, reference)
            self._numbers[id(owner)] = number
            self._in_use += size
            self._peak = max(self._peak, self._in_use + self._reserved)

    def hold(self, arrays: Mapping[str, Any], sizes: Mapping[str, int] = MappingProxyType({})) -> None:
        """Count kept arrays, by the name of what keeps each.

        Args:
            sizes: bytes of arrays that own their memory, where known.

        Raises:
            ResourceExhaustedError: the arrays not counted before would exceed the limit; none is counted then.
        """
        new = UniqueTensorReferences()
        for array in arrays.values():
            if id(buffer_of(array)) not in self._numbers:
                new.add(array)
        size = sum(array.nbytes for array in new.freeze())
        self.reserve(size)
        for name, array in arrays.items():
            self._add(array, name, sizes.get(name) if array.base is None else None)
        self.give_back(size)

    def forget(self, arrays: Iterable[Any]) -> None:
        """Stop counting arrays here; the accounts around this one go on counting them."""
        if not self._numbers:
            return
        with self._lock:
            for array in arrays:
                number = self._numbers.get(id(buffer_of(array)))
                if number is not None:
                    self._remove(number)

    def check(self) -> None:
        """Raise ResourceExhaustedError if the limit of this account, or of one around it, is exceeded."""
        with self._lock:
            self._account_for_dead()
            if self.limit is not None and self._in_use + self._reserved > self.limit:
                raise errors.ResourceExhaustedError(self._exceeded(0))
        if self.within is not None:
            self.within.check()

    def report(self) -> list[str]:
        """Lines with the nodes whose tensors take most, largest first, and one line for all others."""
        with self._lock:
            self._account_for_dead()
            sizes: Counter[str] = Counter()
            for buffer in self._buffers.values():
                sizes[buffer.node] += buffer.num_bytes
        largest = sizes.most_common()
        lines = [f"{bytes_text(size)} from {node}" for node, size in largest[:REPORTED_NODES]]
        rest = [size for _, size in largest[REPORTED_NODES:]]
        return [*lines, f"Remaining {len(rest)} nodes with {bytes_text(sum(rest))}"] if rest else lines

    def _exceeded(self, more: int) -> str:
        in_use = self._in_use + self._reserved
        adding = f", {more} more would exceed" if more else ", which is more than"
        return f"the tensors of the {self._whose} take {in_use} bytes{adding} the {self.limit} of {self._setting}"

    def _account_for_dead(self) -> None:
        while self._dead:
            self._remove(self._dead.popleft())

    def _remove(self, number: int) -> None:
        buffer = self._buffers.pop(number, None)
        if buffer is None:
            return  # it was forgotten before it died
        self._in_use -= buffer.num_bytes
        if self._numbers.get(buffer.owner) == number:  # otherwise another array has its address by now
            del self._numbers[buffer.owner]

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit}"
        return f"<MemoryAccount of a {self._whose}: {self.in_use}{limit} bytes, at most {self.peak}>"


class CallMemory:
    """The memory of one call of a kernel; a watcher of its allocations (`allocator.watching`).

    Args:
        step: the step's account.
        node: the node's name.
    """

    def __init__(self, step: MemoryAccount, node: str) -> None:
        self._step = step
        self._node = node
        # Reserved bytes that are not in use yet; and bytes of scratch memory.
        self._left = self._scratch = 0

    def begin(self, expected: int, scratch: int = 0) -> None:
        """Reserve the expected outputs and scratch memory of the call.

        Raises ResourceExhaustedError if they exceed the limit.
        """
        self._step.reserve(expected + scratch)
        self._left += expected
        self._scratch += scratch

    def announce(self, num_bytes: int) -> None:
        """Note that the call is about to make an array of this size, which may be one of the expected outputs.

        Raises ResourceExhaustedError if it exceeds the limit.
        """
        if num_bytes > self._left:
            self.begin(num_bytes - self._left)

    def announce_scratch(self, num_bytes: int) -> None:
        """Note that the call needs these bytes until it ends, besides its expected outputs.

        Raises ResourceExhaustedError if they exceed the limit.
        """
        self.begin(0, num_bytes)

    def made(self, array: Any) -> None:
        """Count an array that was announced."""
        self._use(array, self._step)

    def wrap(self, allocator: Allocator) -> Allocator:
        return _Announced(allocator, self)

    def kept(self, array: Any) -> None:
        """Count an array for the session, as it outlives the step."""
        self._use(array, self._step.within)

    def is_scratch(self, array: Any) -> None:
        """Do nothing: the array was counted when it was made."""

    @contextmanager
    def of_part(self) -> Iterator[CallMemory]:
        """Context manager: memory of its own, as the part may end after the call has given back what it reserved."""
        part = self._part()
        try:
            yield part
        finally:
            part.release()

    def end(self, outputs: Iterable[Any] = (), inputs: Sequence[Any] = ()) -> None:
        """End the call: count its outputs, and give back the rest of the reservation.

        Args:
            inputs: arrays that outputs may be views of.

        Raises:
            ResourceExhaustedError: it made more than was expected, and that exceeds the limit.
        """
        given = {id(buffer_of(array)) for array in inputs}
        new = UniqueTensorReferences()
        for array in outputs:
            if id(buffer_of(array)) not in given:
                new.add(array)
        self.release()
        for array in new.freeze():
            # A read-only value belongs to a variable or another resource, and not to the step.
            self._use(array, self._step if array.flags.writeable else self._step.within)
        self._step.check()

    def _part(self) -> CallMemory:
        return CallMemory(self._step, self._node)

    def release(self) -> None:
        """Give back the rest of the reservation."""
        self._step.give_back(self._left + self._scratch)
        self._left = self._scratch = 0

    def _use(self, array: Any, account: MemoryAccount | None) -> None:
        covered = min(self._left, array.nbytes)
        self._left -= covered
        self._step.give_back(covered)
        if account is not None:
            account.add(array, self._node)


class _Announced(AllocatorWrapper):
    """A wrapper of an allocator that counts its allocations."""

    def __init__(self, allocator: Allocator, call: CallMemory) -> None:
        super().__init__(allocator)
        self._call = call

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Any:
        self._call.announce(num_bytes)
        memory = super()._allocate(num_bytes, alignment, zeros=zeros)
        self._call.made(memory)
        return memory


def bytes_text(count: float) -> str:
    """Bytes as TensorFlow prints them: `512B`, `1.5KiB`, `2.00MiB`."""
    if count < 1024:
        return f"{count:.0f}B"
    for unit, digits in (("KiB", 1), ("MiB", 2)):
        count /= 1024
        if count < 1024:
            return f"{count:.{digits}f}{unit}"
    return f"{count / 1024:.2f}GiB"
