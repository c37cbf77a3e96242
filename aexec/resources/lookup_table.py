"""Lookup tables: keys to rows of values, in the resource manager.

All kinds keep their values as rows of one array and find the row of a key in a dict, so looking up many keys costs one
dict access each and one gather.  `HashTable` is filled once and then only read; `MutableHashTable` may change at any
time; `DenseHashTable` is the kind that reserves two keys for its own use.  Semantics and errors are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.output_sizes import rows_of
from aexec.framework.memory.allocator import announce, announce_scratch
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory import available_memory
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import finishing
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS, giving_way, update_in_pieces
from aexec.framework.waiting.postponing_lock import PostponingLock

__all__ = ["DenseHashTable", "HashTable", "LookupTable", "MutableHashTable"]

Shape = tuple[int, ...]

# Nanoseconds per key: finding it, and making an array's element of it.
_KEY_NS = 100.0
# Bytes of an entry's Python objects, without its value and the contents of strings.
_ENTRY_BYTES = 150
# Temporary bytes per entry, for its key and row number, while all are listed.
_LISTED_BYTES = 24
# Temporary bytes of a key as a Python object, with the number of its row.
_NAME_BYTES = 48
# Keys that are made Python objects at a time.
_AT_ONCE = 10_000
# Smaller needs are not checked: asking the system for its free memory takes some time.
_UNCHECKED_BYTES = 256 << 20


class LookupTable:
    """The common part of all kinds.  All methods may be called from any thread.

    On an event loop a call is postponed while another one holds the table; see `PostponingLock`.

    Attributes:
        key_dtype, value_dtype: types.
        key_shape, value_shape: shapes of one key and of one value.
        kept: counts the bytes of the table, or None.
        changes: number of times that entries were changed.
    """

    def __init__(self, key_dtype: DType, value_dtype: DType, key_shape: Shape = (), value_shape: Shape = ()) -> None:
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.key_shape = key_shape
        self.value_shape = value_shape
        self._lock = PostponingLock()
        self.kept: KeptMemory | None = None
        self.changes = 0
        self._clear()

    def __len__(self) -> int:
        return len(self._row_of)

    def find(self, keys: Any, default: Any) -> Any:
        """The values of keys; the default for keys that are not in the table.

        Args:
            keys: array [..., *key_shape].
            default: one value, or one for each key.

        Raises:
            InvalidArgumentError: the shapes do not fit.
        """
        outer = self._outer(keys)
        if default.shape not in (self.value_shape, outer + self.value_shape):
            raise errors.InvalidArgumentError(
                f"Expected shape {shape_text(self.value_shape)} or {shape_text(outer + self.value_shape)} "
                f"for default value, got {shape_text(default.shape)}"
            )
        check_inline(keys.size // max(1, prod(self.key_shape)) * self._row_bytes * COPY_NS)
        names = self._names(keys)
        with self._lock:
            get = self._row_of.get
            rows = np.fromiter((get(name, -1) for name in giving_way(names, _KEY_NS)), np.intp, len(names))
            self._check_memory(len(rows))
            values = self._values[rows]
        missing = rows < 0
        if missing.any():
            is_one = default.shape == self.value_shape and outer != ()
            values[missing] = default if is_one else default.reshape(values.shape)[missing]
        return values.reshape(outer + self.value_shape)

    def insert(self, keys: Any, values: Any) -> None:
        """Set the values of keys; for a key given twice the last value counts."""
        self._check_values(keys, values)
        raise errors.UnimplementedError("Insert not supported by InitializableLookupTable implementations")

    def remove(self, keys: Any) -> None:
        """Remove keys; unknown ones are ignored."""
        raise errors.UnimplementedError("Remove not supported by InitializableLookupTable implementations")

    def replace(self, keys: Any, values: Any) -> None:
        """Replace all entries by these."""
        raise NotImplementedError

    def export(self) -> tuple[Any, Any]:
        """All keys and their values, in no particular order."""
        check_inline(len(self) * (_KEY_NS + COPY_NS * self._row_bytes))
        announce(len(self) * (self._row_bytes + prod(self.key_shape) * self.key_dtype.np.itemsize))
        announce_scratch(len(self) * _LISTED_BYTES)
        with self._lock:
            return self._key_array(), self._values[np.fromiter(self._row_of.values(), np.intp, len(self))]

    def contents(self) -> tuple[int, Any, Any]:
        """(`changes`, keys [n, *key_shape], values [n, *value_shape]) at one moment, for a record.

        Raises NeedsThreadError on an event loop for a large table.
        """
        check_inline(len(self) * (_KEY_NS + COPY_NS * self._row_bytes))
        with self._lock:
            rows = np.fromiter(self._row_of.values(), np.intp, len(self))
            return self.changes, self._key_array(), self._values[rows]

    def fill(self, keys: Any, values: Any) -> None:
        """Take the `contents` of another table; this one is new."""
        with self._lock:
            self._put(self._hashable(keys), values)

    @property
    def _row_bytes(self) -> int:
        return int(self._values.itemsize * prod(self.value_shape))

    def _key_array(self) -> Any:
        keys = np.empty((len(self), *self.key_shape), self.key_dtype.np)
        if len(self):
            keys[...] = np.array(list(self._row_of), self.key_dtype.np).reshape(keys.shape)
        return keys

    # Rows.  All with the lock held.

    def _clear(self) -> None:
        self._row_of: dict[Any, int] = {}
        self._free: list[int] = []
        self._values: Any = self._zeros(1)
        self._text = 0  # bytes of strings, in keys and values

    def _zeros(self, rows: int) -> Any:
        try:
            return np.zeros((rows, *self.value_shape), self.value_dtype.np)
        except (MemoryError, ValueError) as error:
            raise self._out_of_memory(rows) from error

    def _check_memory(self, rows: int) -> None:
        """Raise ResourceExhaustedError if `rows` values, which may be large, need more memory than there is."""
        needed = rows * self._row_bytes
        announce(needed)
        if needed > _UNCHECKED_BYTES and needed > available_memory():
            raise self._out_of_memory(rows)

    def _out_of_memory(self, rows: int) -> errors.ResourceExhaustedError:
        shape = shape_text((rows, *self.value_shape))
        return errors.ResourceExhaustedError(
            f"OOM when allocating values of a table with shape{shape} and type {self.value_dtype}"
        )

    def _put(self, names: Sequence[Any], values: Any) -> Any:
        """Store values, an array [n, *value_shape], under new or old keys; return their rows."""
        row_of, free = self._row_of, self._free
        # Before any change: if there is no memory, or the work is called off, the table stays as it is.
        rows, new = self._rows_for(names)
        entries = len(row_of) + max(len(free), len(new))
        text = self._text + self._text_of(names, values)
        with finishing():
            self._hold(entries, text)
            self._make_room(entries)
            self._text = text
            del free[len(free) - min(len(free), len(new)) :]
            self.changes += 1
            update_in_pieces(row_of, new.items(), _AT_ONCE)
            self._values[rows] = values
        return rows

    def _rows_for(self, names: Sequence[Any]) -> tuple[Any, dict[Any, int]]:
        """The rows of all keys, and those assigned to new keys: free ones, from the last on, and then new ones."""
        row_of, free = self._row_of, self._free
        rows = np.empty(len(names), np.intp)
        new: dict[Any, int] = {}
        for position, name in enumerate(giving_way(names, _KEY_NS)):
            row = row_of.get(name)
            if row is None and (row := new.get(name)) is None:
                # Rows in use and free rows are all rows that were ever assigned.
                used = len(new)
                row = new[name] = free[-1 - used] if used < len(free) else len(row_of) + used
            rows[position] = row
        return rows, new

    def _make_room(self, needed: int) -> None:
        if needed > len(self._values):
            grown = self._zeros(max(needed, 2 * len(self._values)))
            grown[: len(self._values)] = self._values
            self._values = grown

    def _take_out(self, names: Iterable[Any]) -> None:
        self.changes += 1
        if self._has_text:
            gone = [name for name in dict.fromkeys(names) if name in self._row_of]
            self._text -= _text_bytes(gone) + _text_bytes(self._values[[self._row_of[name] for name in gone]].flat)
            names = gone
        freed = [row for name in names if (row := self._row_of.pop(name, None)) is not None]
        self._values[freed] = 0  # so that no object is kept alive
        self._free += freed
        self._hold(len(self), self._text)

    # Memory

    @property
    def _has_text(self) -> bool:
        return object in (self.key_dtype.np, self.value_dtype.np)

    def _text_of(self, names: Sequence[Any], values: Any) -> int:
        """The number of bytes by which the table's strings grow when these are stored."""
        if not self._has_text:
            return 0
        known = [name for name in dict.fromkeys(names) if name in self._row_of]
        new = _text_bytes(set(names).difference(known)) + _text_bytes(values.flat)
        return new - _text_bytes(self._values[[self._row_of[name] for name in known]].flat)

    def _hold(self, entries: int, text: int) -> None:
        """Count the bytes of `entries` entries.  Raises ResourceExhaustedError if the session's limit does not allow
        it.
        """
        if self.kept is not None:
            rows = len(self._values) if entries <= len(self._values) else max(entries, 2 * len(self._values))
            self.kept.hold(self, rows * self._row_bytes + entries * _ENTRY_BYTES + text)

    # Checks

    def _outer(self, keys: Any) -> Shape:
        """The shape of an array of keys without that of a key."""
        inner = len(self.key_shape)
        if keys.shape[keys.ndim - inner :] != self.key_shape or keys.ndim < inner:
            raise errors.InvalidArgumentError(
                f"Input key shape {shape_text(keys.shape)} must end with the table's key shape "
                f"{shape_text(self.key_shape)}"
            )
        shape: Shape = keys.shape[: keys.ndim - inner]
        return shape

    def _check_values(self, keys: Any, values: Any) -> Any:
        """The values as an array [n, *value_shape]."""
        expected = self._outer(keys) + self.value_shape
        if values.shape != expected:
            raise errors.InvalidArgumentError(
                f"Expected shape {shape_text(expected)} for value, got {shape_text(values.shape)}"
            )
        return values.reshape(prod(self._outer(keys)), *self.value_shape)

    def _names(self, keys: Any) -> list[Any]:
        """The keys as dict keys; refuses reserved ones."""
        return self._hashable(keys)

    def _hashable(self, keys: Any) -> list[Any]:
        announce_scratch(keys.size * _NAME_BYTES)
        if not self.key_shape:
            flat = keys.ravel()
            starts = range(0, flat.size, _AT_ONCE)
            return [
                name
                for start in giving_way(starts, _AT_ONCE * OBJECT_NS)
                for name in flat[start : start + _AT_ONCE].tolist()
            ]
        announce_scratch(rows_of(keys.shape) * _NAME_BYTES)
        width = prod(self.key_shape)
        rows = keys.reshape(-1, width) if width else keys.reshape(prod(keys.shape[:-1]), 0)
        return [tuple(key.tolist()) for key in giving_way(rows, _KEY_NS)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key_dtype} to {self.value_dtype}, {len(self)} entries>"


class HashTable(LookupTable):
    """A table that is filled once, by `initialize`, and then only read."""

    def __init__(self, key_dtype: DType, value_dtype: DType) -> None:
        super().__init__(key_dtype, value_dtype)
        self.is_initialized = False

    def initialize(self, keys: Any, values: Any) -> None:
        """Fill it with vectors of keys and values; doing so again with the same entries is allowed.

        Raises:
            InvalidArgumentError: not vectors of one length, or empty ones.
            FailedPreconditionError: two values for one key, or filled before with other entries.
        """
        if keys.ndim != 1:
            raise errors.InvalidArgumentError(f"Keys must be a vector, but received shape{shape_text(keys.shape)}")
        if keys.shape != values.shape:
            raise errors.InvalidArgumentError(f"Keys and values must have the same size {keys.size} vs {values.size}")
        if not keys.size:
            raise errors.InvalidArgumentError("keys and values cannot be empty tensors.")
        filled = HashTable(self.key_dtype, self.value_dtype)
        rows = filled._put(self._hashable(keys), values)
        _refuse_contradictions(keys, values, rows, filled._values[rows])
        with self._lock:
            if not self.is_initialized:
                self._hold(len(filled), filled._text)
                self._row_of, self._values, self._text = filled._row_of, filled._values, filled._text
                self.is_initialized = True
                self.changes += 1
                return
            same = self._row_of.keys() == filled._row_of.keys()
        if not same or (self.find(keys, np.zeros((), self.value_dtype.np)) != values).any():
            raise errors.FailedPreconditionError("Table was already initialized with different data.")

    def replace(self, keys: Any, values: Any) -> None:
        self._check_values(keys, values)
        self.initialize(keys, values)

    def fill(self, keys: Any, values: Any) -> None:
        super().fill(keys, values)
        self.is_initialized = True

    def find(self, keys: Any, default: Any) -> Any:
        if not self.is_initialized:
            raise errors.FailedPreconditionError("Table not initialized.")
        return super().find(keys, default)

    def export(self) -> tuple[Any, Any]:
        if not self.is_initialized:
            raise errors.AbortedError("HashTable is not initialized.")
        return super().export()


def _refuse_contradictions(keys: Any, values: Any, rows: Any, stored: Any) -> None:
    """Raise FailedPreconditionError if a key was given two values; `rows` has equal entries for equal keys."""
    position = np.arange(len(rows))
    last = np.empty(len(rows) + 1, np.intp)
    last[rows] = position
    differing = np.flatnonzero((stored != values) & (last[rows] != position))
    if differing.size:
        first = int(differing[0])
        other = next(i for i in np.flatnonzero(rows == rows[first]) if values[i] != values[first])
        raise errors.FailedPreconditionError(
            f"HashTable has different value for same key. Key {_shown(keys[first])} has {_shown(values[first])} "
            f"and trying to add value {_shown(values[other])}"
        )


def _text_bytes(values: Iterable[Any]) -> int:
    return sum(len(value) for value in values if type(value) is bytes)


def _shown(value: Any) -> str:
    """A key or value as TensorFlow writes it: a whole float without a point."""
    if isinstance(value, bytes):
        return abridged(value)
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


class MutableHashTable(LookupTable):
    """A table that may be changed at any time."""

    def insert(self, keys: Any, values: Any) -> None:
        rows, names = self._check_values(keys, values), self._names(keys)
        with self._lock:
            self._put(names, rows)

    def remove(self, keys: Any) -> None:
        self._outer(keys)
        names = self._names(keys)
        with self._lock:
            known = dict.fromkeys(name for name in giving_way(names, _KEY_NS) if name in self._row_of)
            with finishing():
                self._take_out(known)

    def replace(self, keys: Any, values: Any) -> None:
        rows, names = self._check_values(keys, values), self._hashable(keys)
        with self._lock:
            before = self._row_of, self._free, self._values, self._text
            self._clear()
            try:
                self._put(names, rows)
            except BaseException:
                self._row_of, self._free, self._values, self._text = before
                raise


class DenseHashTable(MutableHashTable):
    """A mutable table with two reserved keys, which in TensorFlow's mark buckets as empty or deleted.

    Args:
        empty_key, deleted_key: arrays of the key's type and shape, a scalar or a vector; None for no deleted key.

    Attributes:
        reserved_keys: the keys as given.

    Raises:
        InvalidArgumentError: keys of higher rank, of different shapes, or equal ones.
    """

    def __init__(
        self, key_dtype: DType, value_dtype: DType, value_shape: Shape, empty_key: Any, deleted_key: Any = None
    ) -> None:
        if empty_key.ndim > 1:
            raise errors.InvalidArgumentError(
                f"Empty key must be a scalar or a vector, got shape {shape_text(empty_key.shape)}"
            )
        if deleted_key is not None and deleted_key.shape != empty_key.shape:
            raise errors.InvalidArgumentError(
                f"Empty and deleted keys must have same shape, got shapes: {shape_text(empty_key.shape)} "
                f"and {shape_text(deleted_key.shape)}"
            )
        check_inline(empty_key.size * OBJECT_NS)
        self.reserved_keys = (empty_key,) if deleted_key is None else (empty_key, deleted_key)
        super().__init__(key_dtype, value_dtype, empty_key.shape, value_shape)
        self._reserved = {self._hashable(empty_key)[0]: "empty_key"}
        if deleted_key is not None:
            self._reserved[self._hashable(deleted_key)[0]] = "deleted_key"
            if len(self._reserved) < 2:
                raise errors.InvalidArgumentError("Empty and deleted keys cannot be equal")

    def replace(self, keys: Any, values: Any) -> None:
        """Replace all entries by these; entries under reserved keys, which are empty buckets of an export, are left
        out.
        """
        count = self._count(keys)
        if values.size != count * prod(self.value_shape):
            raise errors.InvalidArgumentError(
                f"Expected shape {shape_text((count, *self.value_shape))} for value, got {shape_text(values.shape)}"
            )
        keys, values = keys.reshape(count, *self.key_shape), values.reshape(count, *self.value_shape)
        kept = [i for i, name in enumerate(self._hashable(keys)) if name not in self._reserved]
        super().replace(keys[kept], values[kept])

    def export(self) -> tuple[Any, Any]:
        """All keys and values as matrices, as TensorFlow exports buckets, but without empty ones."""
        keys, values = super().export()
        return keys.reshape(len(keys), prod(self.key_shape)), values.reshape(len(keys), prod(self.value_shape))

    def _outer(self, keys: Any) -> Shape:
        self._count(keys)
        return super()._outer(keys)

    def _count(self, keys: Any) -> int:
        """The number of keys in an array [n, ...]."""
        count: int = keys.shape[0] if keys.ndim else 1
        if keys.size != count * prod(self.key_shape):
            raise errors.InvalidArgumentError(
                f"Expected key shape {shape_text((count, *self.key_shape))} got {shape_text(keys.shape)}"
            )
        return count

    def _names(self, keys: Any) -> list[Any]:
        names = self._hashable(keys)
        for name in self._reserved.keys() & set(names):
            raise errors.InvalidArgumentError(f"Using the {self._reserved[name]} as a table key is not allowed")
        return names
