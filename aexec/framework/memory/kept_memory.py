"""What a session's resources keep of tensors between calls: queues their elements, variables their values.

A resource that has a `kept` says so by it before it keeps an array.  From then on the array counts for the session, and
it does until its memory dies: who takes an element out of a queue need not say that.  It counts in steps of some
kilobytes, so that small tensors cost little.  `ResourceManager.create` gives resources what they need, if memory is
counted at all.  What lives as long as a step (`TensorArray`, stacks) has no `kept`: the step looks for it.
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

# Bytes in which memory is reserved.
_GRAIN = 1 << 14
# What a small array takes besides its elements, with what it is known by here.
_ARRAY_BYTES = 256
# What a row of one takes besides, as an array of its own.
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
        account: of the session.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._lock = threading.RLock()
        # By the identity of the array that owns the memory.
        self._kept: dict[int, _Kept] = {}
        # Memory dies wherever its last reference is dropped: that is noted here, and accounted for by the next call.
        self._dead: deque[_Kept] = deque()
        self._used = self._reserved = 0
        account.reviewed_by(self._review)

    def keep(self, tensors: Iterable[Any], rows: int = 0) -> None:
        """These are about to be kept; what is no array of the host is passed over.

        Args:
            rows: so many arrays are made of each, which are parts of it.

        Raises:
            ResourceExhaustedError: there is no room for them; then none counts.
        """
        with self._lock:
            new, size = self._new(tensors, rows)
            try:
                self._reserve(size)
            except errors.ResourceExhaustedError as error:
                raise errors.ResourceExhaustedError(f"OOM when keeping {size} bytes: {error.message}") from None
            self._add(new)

    def note(self, tensors: Iterable[Any]) -> None:
        """`keep` for what is there already, and is not refused."""
        with self._lock:
            new, size = self._new(tensors)
            used = self._used + size
            if used > self._reserved:
                self._account.take(used - self._reserved)
                self._reserved = used
            self._add(new)

    def hold(self, resource: Any, num_bytes: int) -> None:
        """A resource takes so many bytes in all from now on, until it dies.

        Raises:
            ResourceExhaustedError: there is no room for them; then it takes what it took before.
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
        """The session has closed: nothing counts any more."""
        with self._lock:
            self._account.give_back(self._reserved)
            self._kept.clear()
            self._used = self._reserved = 0

    def forget(self, tensors: Iterable[Any]) -> None:
        """These are somebody else's from now on."""
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
        """What is kept, with what arrays take besides their elements."""
        with self._lock:
            self._account_for_dead()
            return self._used

    def _new(self, tensors: Iterable[Any], rows: int = 0) -> tuple[dict[int, tuple[Any, int]], int]:
        """Those whose memory is not counted: identity → owner, bytes; and their bytes together."""
        if self._dead:
            self._account_for_dead()
        new: dict[int, tuple[Any, int]] = {}
        total = 0
        for tensor in tensors:
            if type(tensor) is not np.ndarray:
                continue
            owner = tensor if tensor.base is None else buffer_of(tensor)
            key = id(owner)
            if key in self._kept or key in new or type(owner) is not np.ndarray or self._account.knows(owner):
                continue
            size = _ARRAY_BYTES + memory_bytes(owner) + rows * _ROW_BYTES
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
        if self._lock.acquire(blocking=False):  # else somebody is about to do it
            try:
                self._account_for_dead()
            finally:
                self._lock.release()

    def _remove(self, kept: _Kept) -> None:
        if self._kept.get(kept.key) is kept:  # else it was forgotten, or another one is at its address by now
            del self._kept[kept.key]
            self._used -= kept.num_bytes

    def _give_back(self) -> None:
        spare = self._reserved - self._used
        if spare > 2 * _GRAIN:
            self._account.give_back(spare)
            self._reserved -= spare

    def __repr__(self) -> str:
        return f"<KeptMemory {self.num_bytes} bytes in {len(self._kept)} arrays>"
