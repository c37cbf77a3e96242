"""Memory accounts: what a step, a session or a whole server has in use, node by node, and the limit of it.

An account knows buffers, each once however many arrays are views of it, and forgets one when its memory dies.  A call
of a kernel **reserves** what it is expected to make before it begins, so that what does not fit is refused before it
is allocated, and gives back in the end what it did not use.  An account may be within another one, a step's within its
session's: what is reserved or made counts for both.
Next to read: `kept_memory.py` for what resources keep, and `aexec/runtime/interpreter/memory_accountant.py`, which has
the calls of a step's kernels accounted for.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import errors
from aexec.framework.memory.allocator import Allocator, AllocatorWrapper
from aexec.framework.memory.tensor_buffer import buffer_of, memory_bytes
from aexec.framework.memory.unique_tensor_references import UniqueTensorReferences

__all__ = ["CallMemory", "MemoryAccount", "bytes_text"]

# A report names so many nodes, and adds up the others.
REPORTED_NODES = 10


class _Buffer(NamedTuple):
    owner: int
    num_bytes: int
    node: str
    # Its callback tells when the memory is gone.
    reference: weakref.ref[Any]


class MemoryAccount:
    """Memory in use by one step, session or server, by node, with an optional limit.  Any thread may use it.

    Args:
        whose: what is accounted for, for messages: `step`, `session` or `server`.
        setting: name of the setting that has the limit.
        limit: bytes; None for no limit.
        within: the account of what this is a part of, or None.
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
        # Memory dies wherever its last reference is dropped: that is noted here, and accounted for by the next call.
        self._dead: deque[int] = deque()
        self._last = itertools.count()
        self._in_use = self._reserved = self._peak = 0
        # Called before anything is refused: whoever has reserved memory that it may not need any more.
        self._reviews: list[weakref.WeakMethod[Callable[[], None]]] = []

    @property
    def in_use(self) -> int:
        """Bytes of the buffers that are alive, and that are reserved."""
        with self._lock:
            self._account_for_dead()
            return self._in_use + self._reserved

    @property
    def peak(self) -> int:
        """The most bytes that were in use, or reserved, at a time."""
        return self._peak

    @property
    def room(self) -> float:
        """Bytes that may be reserved now, also of the accounts around this one."""
        around = math.inf if self.within is None else self.within.room
        return around if self.limit is None else min(around, self.limit - self.in_use)

    def reserve(self, num_bytes: int) -> None:
        """Let nobody else have so many bytes.

        Raises:
            ResourceExhaustedError: they would exceed the limit, or that of an account around this one.
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
        """Bytes that are in use and reserved then; None if they would exceed the limit."""
        with self._lock:
            self._account_for_dead()
            wanted = self._in_use + self._reserved + num_bytes
            if self.limit is not None and wanted > self.limit:
                return None
            self._reserved += num_bytes
            return wanted

    def reviewed_by(self, review: Callable[[], None]) -> None:
        """Call a method, which is not kept alive, before anything is refused here or by an account around this one."""
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
        """What was reserved is not needed, or in use."""
        with self._lock:
            self._reserved -= num_bytes
        if self.within is not None:
            self.within.give_back(num_bytes)

    def take(self, num_bytes: int) -> None:
        """`reserve` for what is there already, and is not refused."""
        with self._lock:
            self._reserved += num_bytes
            self._peak = max(self._peak, self._in_use + self._reserved)
        if self.within is not None:
            self.within.take(num_bytes)

    def knows(self, array: Any) -> bool:
        """Is the array's buffer counted?"""
        return id(buffer_of(array)) in self._numbers

    def add(self, array: Any, node: str) -> None:
        """A node made an array, or keeps it.  Nothing changes if its buffer is known."""
        self._add(array, node, None)

    def _add(self, array: Any, node: str, size: int | None) -> None:
        """As `add`; the size of the buffer, where it is known, is not asked for again."""
        owner = buffer_of(array)
        with self._lock:
            self._account_for_dead()
            known = id(owner) in self._numbers
        if not known:
            if size is None:  # which may take long, and nobody is to wait for the lock meanwhile
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
                return  # memory that is nobody's to account for: bytes, a memory map
            self._buffers[number] = _Buffer(id(owner), size, node, reference)
            self._numbers[id(owner)] = number
            self._in_use += size
            self._peak = max(self._peak, self._in_use + self._reserved)

    def hold(self, arrays: Mapping[str, Any], sizes: Mapping[str, int] = MappingProxyType({})) -> None:
        """Arrays are kept, by whom says their names.

        Args:
            sizes: what they take in memory where that is their own, as far as it is known.

        Raises:
            ResourceExhaustedError: those that are not known would exceed the limit; none is kept then.
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

    def forget(self, array: Any) -> None:
        """An array is somebody else's from now on; the accounts around this one go on counting it."""
        with self._lock:
            number = self._numbers.get(id(buffer_of(array)))
            if number is not None:
                self._remove(number)

    def check(self) -> None:
        """Raises ResourceExhaustedError if more is in use than the limit allows, or one of an account around this."""
        with self._lock:
            self._account_for_dead()
            if self.limit is not None and self._in_use + self._reserved > self.limit:
                raise errors.ResourceExhaustedError(self._exceeded(0))
        if self.within is not None:
            self.within.check()

    def report(self) -> list[str]:
        """The nodes whose tensors take most, largest first: a line for each, and one for all others."""
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
        if self._numbers.get(buffer.owner) == number:  # else another one is at its address by now
            del self._numbers[buffer.owner]

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit}"
        return f"<MemoryAccount of a {self._whose}: {self.in_use}{limit} bytes, at most {self.peak}>"


class CallMemory:
    """What one call of a kernel makes; a watcher of what it allocates (`allocator.watching`).

    Args:
        step: the step's account.
        node: name of the node.
    """

    def __init__(self, step: MemoryAccount, node: str) -> None:
        self._step = step
        self._node = node
        # Bytes that are reserved and not yet in use, and that it has for itself.
        self._left = self._scratch = 0

    def begin(self, expected: int, scratch: int = 0) -> None:
        """Reserve what the call is expected to make, and to need for itself besides.

        Raises ResourceExhaustedError if that does not fit.
        """
        self._step.reserve(expected + scratch)
        self._left += expected
        self._scratch += scratch

    def announce(self, num_bytes: int) -> None:
        """The call is about to make something of so many bytes, maybe of what it was expected to.

        Raises ResourceExhaustedError.
        """
        if num_bytes > self._left:
            self.begin(num_bytes - self._left)

    def announce_scratch(self, num_bytes: int) -> None:
        """The call needs so many bytes more until it ends, besides what it was expected to make.

        Raises ResourceExhaustedError.
        """
        self.begin(0, num_bytes)

    def made(self, array: Any) -> None:
        """What was announced is there."""
        self._use(array, self._step)

    def wrap(self, allocator: Allocator) -> Allocator:
        return _Announced(allocator, self)

    def kept(self, array: Any) -> None:
        """It is the session's, beyond the step."""
        self._use(array, self._step.within)

    def is_scratch(self, array: Any) -> None:
        """It was noted when it was made."""

    def end(self, outputs: Iterable[Any] = (), inputs: Sequence[Any] = ()) -> None:
        """The call has ended: its outputs are in use, and nothing is reserved for it any more.

        Args:
            inputs: what outputs may be parts of.

        Raises:
            ResourceExhaustedError: it made more than was expected, and than there is room for.
        """
        given = {id(buffer_of(array)) for array in inputs}
        new = UniqueTensorReferences()
        for array in outputs:
            if id(buffer_of(array)) not in given:
                new.add(array)
        self._step.give_back(self._left + self._scratch)
        self._left = self._scratch = 0
        for array in new.freeze():
            # A value that cannot be written to is a variable's, say: no step's.
            self._use(array, self._step if array.flags.writeable else self._step.within)
        self._step.check()

    def _use(self, array: Any, account: MemoryAccount | None) -> None:
        covered = min(self._left, array.nbytes)
        self._left -= covered
        self._step.give_back(covered)
        if account is not None:
            account.add(array, self._node)


class _Announced(AllocatorWrapper):
    """Another allocator, whose allocations are accounted for."""

    def __init__(self, allocator: Allocator, call: CallMemory) -> None:
        super().__init__(allocator)
        self._call = call

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Any:
        self._call.announce(num_bytes)
        memory = super()._allocate(num_bytes, alignment, zeros=zeros)
        self._call.made(memory)
        return memory


def bytes_text(count: float) -> str:
    """As TensorFlow writes bytes for people: `512B`, `1.5KiB`, `2.00MiB`."""
    if count < 1024:
        return f"{count:.0f}B"
    for unit, digits in (("KiB", 1), ("MiB", 2)):
        count /= 1024
        if count < 1024:
            return f"{count:.{digits}f}{unit}"
    return f"{count / 1024:.2f}GiB"
