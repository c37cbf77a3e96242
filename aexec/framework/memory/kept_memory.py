"""Counts the arrays that a session's resources keep between calls, such as the elements of queues and variables'
values.

A resource with a `kept` attribute calls it before it keeps an array.  From then on the array counts for the session,
until its memory is freed: taking an element out of a queue needs no call.  Memory is reserved some kilobytes at a time,
so that small tensors cost little.  `ResourceManager.create` gives resources their `kept`, if memory is counted at all.
Resources that live as long as a step (`TensorArray`, stacks) have none: the step itself looks for their values.
Next to read: `memory_account.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.memory.tensor_buffer import buffer_of, memory_bytes

__all__ = ["KeptMemory"]

# Memory is reserved in multiples of this many bytes.
_GRAIN = 1 << 14
# Bytes of a small array besides its elements, including its entry here.
_ARRAY_BYTES = 256
# Bytes of a row besides its elements, as an array of its own.
_ROW_BYTES = 150


class _Kept(weakref.ref[Any]):
    """A buffer that is kept."""

    __slots__ = ("key", "num_bytes")

    key: int
    num_bytes: int


class KeptMemory:
    """Counts the arrays that resources keep between runs in the session's account, each until its memory is freed.

    Any thread may use it.

    Args:
        account: the session's account.
        arrays: False if the account counts arrays by itself, because every call is counted.  This object then counts
            only what resources take besides arrays: entries of tables, and the rows of a batch that is cut.
    """

    def __init__(self, account: MemoryAccount, *, arrays: bool = True) -> None:
        self._account = account
        self._arrays = arrays
        self._lock = threading.RLock()
        # By the id of the array that owns the memory.
        self._kept: dict[int, _Kept] = {}
        # The last reference to memory may be dropped anywhere: freed memory is noted here, and the next call accounts
        # for it.
        self._dead: deque[_Kept] = deque()
        self._used = self._reserved = 0
        account.reviewed_by(self._review)

    def keep(self, tensors: Iterable[Any], rows: int = 0) -> None:
        """Count tensors that are about to be kept; ignores those that are no arrays of the host.

        Args:
            rows: the number of arrays that are made of each, as views.

        Raises:
            ResourceExhaustedError: they exceed the limit; then none is counted.
        """
        if not self._arrays and not rows:
            return
        with self._lock:
            new, size = self._new(tensors, rows)
            try:
                self._reserve(size)
            except errors.ResourceExhaustedError as error:
                raise errors.ResourceExhaustedError(f"OOM when keeping {size} bytes: {error.message}") from None
            self._add(new)

    def note(self, tensors: Iterable[Any]) -> None:
        """Like `keep`, for tensors that exist already and are not refused."""
        if not self._arrays:
            return
        with self._lock:
            new, size = self._new(tensors)
            used = self._used + size
            if used > self._reserved:
                self._account.take(used - self._reserved)
                self._reserved = used
            self._add(new)

    def hold(self, resource: Any, num_bytes: int) -> None:
        """Set the bytes that count for a resource, until it dies.

        Raises:
            ResourceExhaustedError: they exceed the limit; then the previous number stays.
        """
        with self._lock:
            self._account_for_dead()
            kept = self._kept.get(id(resource))
            if kept is None:
                kept = self._kept[id(resource)] = _Kept(resource, self._dead.append)
                kept.key, kept.num_bytes = id(resource), 0
            more = num_bytes - kept.num_bytes
            try:
                self._reserve(more)
            except errors.ResourceExhaustedError as error:
                raise errors.ResourceExhaustedError(f"OOM when keeping {more} more bytes: {error.message}") from None
            kept.num_bytes = num_bytes
            self._used += more
            self._give_back()

    def close(self) -> None:
        """Stop counting: the session has closed."""
        with self._lock:
            self._account.give_back(self._reserved)
            self._kept.clear()
            self._used = self._reserved = 0

    def forget(self, tensors: Iterable[Any]) -> None:
        """Stop counting tensors that now belong elsewhere."""
        if not self._kept:
            return
        with self._lock:
            for tensor in tensors:
                kept = self._kept.get(id(buffer_of(tensor)))
                if kept is not None:
                    self._remove(kept)
            self._give_back()

    @property
    def num_bytes(self) -> int:
        """The bytes of all kept arrays, with their overhead."""
        with self._lock:
            self._account_for_dead()
            return self._used

    def _new(self, tensors: Iterable[Any], rows: int = 0) -> tuple[dict[int, tuple[Any, int]], int]:
        """The tensors whose memory is not counted yet, as id → (owner, bytes); and the sum of the bytes."""
        if self._dead:
            self._account_for_dead()
        new: dict[int, tuple[Any, int]] = {}
        total = 0
        for tensor in tensors:
            if type(tensor) is not np.ndarray:
                continue
            owner = tensor if tensor.base is None else buffer_of(tensor)
            key = id(owner)
            if key in self._kept or key in new or type(owner) is not np.ndarray:
                continue
            size = rows * _ROW_BYTES
            if self._arrays:
                if self._account.knows(owner):
                    continue
                size += _ARRAY_BYTES + memory_bytes(owner)
            new[key] = owner, size
            total += size
        return new, total

    def _add(self, new: dict[int, tuple[Any, int]]) -> None:
        died = self._dead.append
        for key, (owner, size) in new.items():
            kept = self._kept[key] = _Kept(owner, died)
            kept.key, kept.num_bytes = key, size
            self._used += size

    def _reserve(self, num_bytes: int) -> None:
        more = self._used + num_bytes - self._reserved
        if more > 0:
            more = -(-more // _GRAIN) * _GRAIN
            self._account.reserve(more)
            self._reserved += more

    def _account_for_dead(self) -> None:
        while self._dead:
            self._remove(self._dead.popleft())
        self._give_back()

    def _review(self) -> None:
        if self._lock.acquire(blocking=False):  # otherwise another thread is about to do it
            try:
                self._account_for_dead()
            finally:
                self._lock.release()

    def _remove(self, kept: _Kept) -> None:
        if self._kept.get(kept.key) is kept:  # otherwise it was forgotten, or another array has its address by now
            del self._kept[kept.key]
            self._used -= kept.num_bytes

    def _give_back(self) -> None:
        spare = self._reserved - self._used
        if spare > 2 * _GRAIN:
            self._account.give_back(spare)
            self._reserved -= spare

    def __repr__(self) -> str:
        return f"<KeptMemory {self.num_bytes} bytes in {len(self._kept)} arrays>"
