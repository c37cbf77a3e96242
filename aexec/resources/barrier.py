"""`Barrier`: assembles tuples whose components arrive one by one, by key; complete tuples are taken in batches.

Tuples are taken in the order in which the first component of each was inserted, by batch.

Inserting many keys takes long and is done in a thread.  Two locks keep the event loop from waiting for it: one
serialises insertions, and postpones those of the event loop; the other, which takers need too, is held only while
complete tuples are moved.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import shape_text
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.loop_budget import DEFAULT, let_others_run
from aexec.framework.waiting.postponing_lock import PostponingLock
from aexec.resources.waiting_lines import NOT_YET, WaitingLines

__all__ = ["KEY_NS", "Barrier"]

# The number of the first insertion.
_FIRST = -(2**63)
# Nanoseconds to set one key, and keys that are set at once.
KEY_NS = 700.0
_AT_ONCE = DEFAULT.pieces(KEY_NS)
# Bytes of a tuple besides those of its values.
_TUPLE_BYTES = 500
# Fewer tuples than this are inserted one by one, more are sorted.
_FEW = 16


@dataclass(slots=True)
class _Tuple:
    insertion: int
    values: list[Any]  # None where missing
    missing: int


Ready = tuple[int, int, bytes, list[Any]]


class Barrier:
    """Tuples by key.

    Args:
        name: for errors.
        dtypes, shapes: of the components.
    """

    def __init__(self, name: str, dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> None:
        self.name = name
        self.dtypes = tuple(dtypes)
        self.shapes = tuple(shapes)
        self.closed = False
        self.kept: KeptMemory | None = None
        self._lines = WaitingLines()
        # Held for every change of the fields below except `_ready`, which is changed with the lock of `_lines`. # A
        # tuple moves from `_incomplete` to `_ready` with both locks held.
        self._inserting = PostponingLock()
        self._incomplete: dict[bytes, _Tuple] = {}
        self._ready: list[Ready] = []  # sorted by insertion and then by completion
        self._insertions = 0
        self._completions = 0
        self._dropped = False  # closed so that incomplete tuples stay incomplete

    @property
    def ready_size(self) -> int:
        return len(self._ready)

    @property
    def incomplete_size(self) -> int:
        return len(self._incomplete)

    def insert(self, keys: Sequence[bytes], values: Any, component: int) -> None:
        """Set one component of several keys' tuples: all of them or, on an error, none.

        Args:
            keys: distinct keys.
            values: array [len(keys), *shape of the component], which must not be written to any more.

        Raises:
            InvalidArgumentError: there is no such component, the values have another shape or no elements, or a key has
                the component already.
            CancelledError: the barrier is closed, and a key is new or incomplete tuples were dropped.
            PostponedError: on an event loop, while another insertion is under way in a thread.
            ResourceExhaustedError: the session's limit does not allow it.
        """
        self._check(keys, values, component)
        if self.kept is not None:
            self.kept.keep((values,))
        with self._inserting, collector_paused() if len(keys) > _AT_ONCE else nullcontext():
            known = set(filter(self._incomplete.__contains__, keys))
            if self.closed:
                self._refuse_new(keys, known)
            self._refuse_repetition(keys, known, component)
            self._hold(len(keys))
            ready = self._set_all(keys, values, component)
            self._insertions += not known.issuperset(keys)
            with self._lines.lock:
                for entry in ready:
                    del self._incomplete[entry[2]]
                self._make_ready(ready)
                self._lines.changed()

    def _check(self, keys: Sequence[bytes], values: Any, component: int) -> None:
        if not 0 <= component < len(self.dtypes):
            raise errors.InvalidArgumentError(
                f"The component ID is out of range {component} > num_components (= {len(self.dtypes)})"
            )
        if len(keys) and not np.size(values):
            raise errors.InvalidArgumentError(
                f"Tensors with no elements are not supported {self.name}: received shape {shape_text(np.shape(values))}"
            )
        expected = (len(keys), *self.shapes[component])
        if np.shape(values) != expected:
            raise errors.InvalidArgumentError(
                f"Shape mismatch in tuple component {component}. Expected {shape_text(expected)}, "
                f"got {shape_text(np.shape(values))}"
            )

    def _refuse_new(self, keys: Sequence[bytes], known: set[bytes]) -> None:
        """Raise CancelledError unless a closed barrier may still take these keys."""
        state = f"Number of incomplete keys: {self.incomplete_size}."
        cancelled = f"Pending enqueues cancelled: {int(self._dropped)}."
        if self._dropped or (len(keys) and not self._incomplete):
            raise errors.CancelledError(
                f"Barrier {self.name} is closed.  {cancelled}  Number of new insertions: {len(keys)}.  {state}"
            )
        for position, key in enumerate(keys):
            if key not in known:
                raise errors.CancelledError(
                    f"Barrier {self.name} is closed, but attempted to insert a brand new key: "
                    f"{abridged(key)}.  {cancelled}  Insertion index: {position}.  {state}"
                )

    def _refuse_repetition(self, keys: Sequence[bytes], known: set[bytes], component: int) -> None:
        """Raise InvalidArgumentError if a key is given twice, or has the component already."""
        seen: set[bytes] = set()
        for position, key in enumerate(keys):
            if position and not position % _AT_ONCE:
                let_others_run()
            if key in seen or (key in known and self._incomplete[key].values[component] is not None):
                raise errors.InvalidArgumentError(
                    f"Key {abridged(key)} already has a value for component {component} in barrier {self.name}"
                )
            seen.add(key)

    def _hold(self, more: int = 0) -> None:
        """Count `more` further tuples.  Raises ResourceExhaustedError if the session's limit does not allow it."""
        if self.kept is not None:
            self.kept.hold(self, (len(self._incomplete) + len(self._ready) + more) * _TUPLE_BYTES)

    def _set_all(self, keys: Sequence[bytes], values: Any, component: int) -> list[Ready]:
        """Set a component of all keys; return the completed tuples.  If the work is called off, none is set."""
        ready: list[Ready] = []
        for start in range(0, len(keys), _AT_ONCE):
            try:
                if start:
                    let_others_run()
            except BaseException:
                self._unset(keys[:start], component)
                raise
            part = slice(start, start + _AT_ONCE)
            for key, value in zip(keys[part], values[part], strict=True):
                self._set(key, component, value, ready)
        return ready

    def _unset(self, keys: Sequence[bytes], component: int) -> None:
        """Undo `_set`."""
        for key in keys:
            entry = self._incomplete[key]
            entry.values[component] = None
            entry.missing += 1
            if entry.missing == len(self.dtypes):
                del self._incomplete[key]

    def _set(self, key: bytes, component: int, value: Any, ready: list[Ready]) -> None:
        """Set a component; a tuple that it completes is added to `ready`."""
        entry, width = self._incomplete.get(key), len(self.dtypes)
        if entry is None:
            entry = self._incomplete[key] = _Tuple(_FIRST + self._insertions, [None] * width, width)
        entry.values[component] = np.asarray(value, self.dtypes[component].np)
        entry.missing -= 1
        if not entry.missing:
            self._completions += 1
            ready.append((entry.insertion, self._completions, key, entry.values))

    def _make_ready(self, entries: list[Ready]) -> None:
        """Let tuples be taken.  Called with the lock of the lines held."""
        if len(entries) < _FEW:
            for entry in entries:
                bisect.insort(self._ready, entry)
        else:
            self._ready += entries
            self._ready.sort()  # quick: they consist of a few sorted runs

    async def take(self, count: int, manager: CancellationManager | None, *, allow_small: bool = False) -> list[Ready]:
        """Take complete tuples, once there are enough.

        Args:
            count: the number of tuples.
            allow_small: when the barrier is closed, take fewer, but at least one.  A call that comes after closing does
                not wait for incomplete tuples; one that came before does.

        Returns:
            (insertion, …, key, components) of each.

        Raises:
            InvalidArgumentError: a negative count.
            OutOfRangeError: the barrier is closed, and there will never be enough.
            CancelledError: cancelled while waiting.
        """
        if count < 0:
            raise errors.InvalidArgumentError(f"num_elements must not be negative, but was {count}")

        waits_for_incomplete = not (self.closed and allow_small)

        def attempt() -> Any:
            ready = self.ready_size
            wanted = min(count, ready) if self.closed and allow_small and (ready or not waits_for_incomplete) else count
            total = ready + (self.incomplete_size if waits_for_incomplete else 0)
            if self.closed and total < max(wanted, 1):
                raise errors.OutOfRangeError(
                    f"Barrier '{self.name}' is closed and has insufficient elements "
                    f"(requested {wanted}, total size {total})"
                )
            if wanted > ready:
                return NOT_YET
            taken, self._ready[:wanted] = self._ready[:wanted], []
            return taken

        taken: list[Ready] = await self._lines.join(
            "take", attempt, manager, "Dequeue operation was cancelled", self.put_back
        )
        self._hold()
        return taken

    def put_back(self, taken: list[Ready]) -> None:
        """Put taken tuples back."""
        with self._lines.lock:
            self._make_ready(taken)
            self._lines.changed()

    def close_for_insertions(self, *, drop_incomplete: bool) -> None:
        """Refuse new keys; incomplete tuples may still be completed, unless they are dropped.

        Raises:
            CancelledError: it is closed already, unless this call is the first that drops incomplete tuples.
            PostponedError: on an event loop, while an insertion is under way in a thread.
        """
        with self._inserting, self._lines.lock:
            if self.closed and (self._dropped or not drop_incomplete):
                raise errors.CancelledError(f"Barrier '{self.name}' is already closed.")
            self.closed = True
            if drop_incomplete:
                self._dropped = True
                self._incomplete.clear()
            self._lines.changed()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Barrier {self.name} {state}, {self.ready_size} ready, {self.incomplete_size} incomplete>"
