"""`SessionRows`: the rows of one session in the database, as far as they must be known to write changes.

A failed transaction leaves it wrong: it is then made anew from the database.  All methods block, and are called within
a transaction in the store's thread.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aexec.hosting import ResourceRecord, dtypes
from aexec_server.durable.state_files import StateFiles
from aexec_server.durable.stored_session import SessionWrite
from aexec_server.durable.stored_tensors import tensor_bytes
from aexec_server.http.keyed_answer import OPERATIONS, KeyedAnswer

__all__ = ["FILE_BYTES", "SessionRows", "packed_numbers", "unpacked_numbers"]

# Tensors of more bytes are in files of their own.
FILE_BYTES = 64 * 1024
# The most bytes of stored answers of a session; the oldest are dropped, and a mark stays that their requests were
# carried out.
_ANSWER_BYTES = 16 << 20
_INSERT = (
    "INSERT INTO tensors (session, resource, element, name, dtype, shape, size, crc, data, file) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = "UPDATE tensors SET dtype = ?, shape = ?, size = ?, crc = ?, data = ?, file = ? WHERE id = ?"
_UPDATE_DATA = "UPDATE tensors SET crc = ?, data = ? WHERE id = ?"


@dataclass(slots=True)
class _Row:
    """A row of `tensors`.

    Attributes:
        kind: the type and the shape of its tensor; None if they are not known.
    """

    id: int
    size: int
    file: str | None
    kind: tuple[Any, Any] | None = None


@dataclass(slots=True)
class _Resource:
    """A row of `resources`.

    Attributes:
        facts: as they are written.
        record: the facts of the record that was written last; None if none was.
        tensors: its tensors by name.
        numbers: by the identity of an element of the queue, the element and its number; None if they are not known.
        next_number: the number of the next element.
    """

    id: int
    facts: str
    record: Any = None
    tensors: dict[str, _Row] = field(default_factory=dict)
    numbers: dict[int, tuple[Any, int]] | None = None
    next_number: int = 0


class SessionRows:
    """The rows of one session.

    Args:
        id: its row in `sessions`.

    Attributes:
        size: bytes of its graphs, tensors and answers.
        unused: the files that are unused once the transaction is committed.
        files: the files that were written for the transaction.
    """

    def __init__(self, connection: sqlite3.Connection, files: StateFiles, id: int) -> None:
        self.id = id
        self.unused: list[str] = []
        self.files: list[str] = []
        self._connection = connection
        self._store = files
        self._resources: dict[tuple[str, str, str], _Resource] = {}
        self._kept: dict[str, _Row] = {}
        ask = connection.execute
        by_id: dict[int, _Resource] = {}
        for row, kind, container, name, facts in ask(
            "SELECT id, kind, container, name, facts FROM resources WHERE session = ?", (id,)
        ):
            by_id[row] = self._resources[kind, container, name] = _Resource(row, facts)
        self.size = 0
        for row, resource, element, name, size, file in ask(
            "SELECT id, resource, element, name, size, file FROM tensors WHERE session = ?", (id,)
        ):
            self.size += size
            if resource is None:
                self._kept[name] = _Row(row, size, file)
            elif element is None:
                by_id[resource].tensors[name] = _Row(row, size, file)
            else:
                by_id[resource].next_number = max(by_id[resource].next_number, element + 1)
        self.size += ask("SELECT coalesce(sum(size), 0) FROM graphs WHERE session = ?", (id,)).fetchone()[0]
        bodies = "SELECT coalesce(sum(length(body)), 0) FROM answers WHERE session = ?"
        self._answers = ask(bodies, (id,)).fetchone()[0]
        self.size += self._answers
        self._told_size = ask("SELECT size FROM sessions WHERE id = ?", (id,)).fetchone()[0]
        self._next_tensor = ask("SELECT next_tensor FROM sessions WHERE id = ?", (id,)).fetchone()[0]

    def write(self, write: SessionWrite) -> None:
        """Write changes.  Raises sqlite3.Error, OSError."""
        for version, data in write.graphs:
            blob, file = self._placed(data)
            self._connection.execute(
                "INSERT INTO graphs VALUES (?, ?, ?, ?, ?, ?)",
                (self.id, version, zlib.crc32(data), blob, file, len(data)),
            )
            self.size += len(data)
        changes = write.changes
        for key in changes.dropped:
            self._drop(self._resources.pop(key))
        for record in changes.written:
            self._write_resource(record)
        for handle in changes.dropped_tensors:
            self._drop_tensor(self._kept.pop(handle))
        for handle, tensor in changes.kept.items():
            self._kept[handle] = self._insert(None, None, handle, tensor, dtypes.from_numpy(tensor.dtype))
        if changes.next_tensor != self._next_tensor:
            self._next_tensor = changes.next_tensor
            self._connection.execute("UPDATE sessions SET next_tensor = ? WHERE id = ?", (self._next_tensor, self.id))
        for withdrawn in write.withdrawn:
            self._drop_answer(withdrawn)
        self._write_answers(write.answers)
        if self.size != self._told_size:
            self._told_size = self.size
            self._connection.execute("UPDATE sessions SET size = ? WHERE id = ?", (self.size, self.id))

    # Resources

    def _write_resource(self, record: ResourceRecord) -> None:
        key = record.kind, record.container, record.name
        resource = self._resources.get(key)
        known = resource is not None and resource.record == record.facts
        facts = "" if known else json.dumps(record.facts, sort_keys=True)
        if resource is None:
            id = self._connection.execute(
                "INSERT INTO resources (session, kind, container, name, facts) VALUES (?, ?, ?, ?, ?)",
                (self.id, *key, facts),
            ).lastrowid
            assert id is not None
            resource = self._resources[key] = _Resource(id, facts, numbers={})
        elif not known and resource.facts != facts:
            self._connection.execute("UPDATE resources SET facts = ? WHERE id = ?", (facts, resource.id))
            resource.facts = facts
        resource.record = record.facts
        types = _types_of(record)
        for name in resource.tensors.keys() - record.tensors.keys():
            self._drop_tensor(resource.tensors.pop(name))
        for name, tensor in record.tensors.items():
            row = resource.tensors.get(name)
            if row is None:
                resource.tensors[name] = self._insert(resource.id, None, name, tensor, types[name])
            else:
                self._update(row, tensor, types[name])
        if record.elements is not None:
            self._write_elements(resource, record.elements, [dtypes.as_dtype(name) for name in record.facts["types"]])

    def _write_elements(
        self, resource: _Resource, elements: Sequence[Sequence[Any]], types: Sequence[dtypes.DType]
    ) -> None:
        """Insert the rows of new elements, delete those of elements that are gone, and note their order."""
        if resource.numbers is None:  # which row is whose is not known: write all
            self._delete_elements(resource.id, None)
            resource.numbers = {}
        known, numbers, order = resource.numbers, {}, array("q")
        for element in elements:
            entry = known.get(id(element))
            if entry is None:
                number = resource.next_number
                resource.next_number += 1
                for position, (component, dtype) in enumerate(zip(element, types, strict=True)):
                    self._insert(resource.id, number, str(position), component, dtype)
                entry = element, number
            numbers[id(element)] = entry
            order.append(entry[1])
        gone = [number for key, (_, number) in known.items() if key not in numbers]
        self._delete_elements(resource.id, gone)
        resource.numbers = numbers
        self._connection.execute("UPDATE resources SET elements = ? WHERE id = ?", (packed_numbers(order), resource.id))

    def _delete_elements(self, resource: int, numbers: Iterable[int] | None) -> None:
        """Delete the rows of elements; None for all."""
        ask = self._connection.execute
        for number in (None,) if numbers is None else numbers:
            which = "resource = ? AND element " + ("IS NOT NULL" if number is None else "= ?")
            values = (resource,) if number is None else (resource, number)
            for size, file in ask(f"SELECT size, file FROM tensors WHERE {which}", values):
                self.size -= size
                if file is not None:
                    self.unused.append(file)
            ask(f"DELETE FROM tensors WHERE {which}", values)

    def _drop(self, resource: _Resource) -> None:
        self._delete_elements(resource.id, None)
        for row in resource.tensors.values():
            self._drop_tensor(row)
        self._connection.execute("DELETE FROM resources WHERE id = ?", (resource.id,))

    # Tensors

    def _insert(self, resource: int | None, element: int | None, name: str, tensor: Any, dtype: dtypes.DType) -> _Row:
        values = self._values(tensor, dtype)
        row = self._connection.execute(_INSERT, (self.id, resource, element, name, *values)).lastrowid
        assert row is not None
        self.size += values[2]
        return _Row(row, values[2], values[5])

    def _update(self, row: _Row, tensor: Any, dtype: dtypes.DType) -> None:
        kind = dtype, tensor.shape
        if row.kind == kind and row.file is None and row.size == tensor.nbytes <= FILE_BYTES and dtype.size:
            data = tensor_bytes(tensor, dtype)
            self._connection.execute(_UPDATE_DATA, (zlib.crc32(data), data, row.id))
            return
        values = self._values(tensor, dtype)
        row.kind = kind
        self._connection.execute(_UPDATE, (*values, row.id))
        self.size += values[2] - row.size
        if row.file is not None:
            self.unused.append(row.file)
        row.size, row.file = values[2], values[5]

    def _drop_tensor(self, row: _Row) -> None:
        self._connection.execute("DELETE FROM tensors WHERE id = ?", (row.id,))
        self.size -= row.size
        if row.file is not None:
            self.unused.append(row.file)

    def _values(
        self, tensor: Any, dtype: dtypes.DType
    ) -> tuple[str, str, int, int, bytes | memoryview | None, str | None]:
        data = tensor_bytes(tensor, dtype)
        blob, file = self._placed(data)
        return dtype.name, json.dumps(tensor.shape), len(data), zlib.crc32(data), blob, file

    def _placed(self, data: bytes | memoryview) -> tuple[bytes | memoryview | None, str | None]:
        """(bytes for the database, None), or (None, name of their file)."""
        if len(data) <= FILE_BYTES:
            return data, None
        name = self._store.write(data)
        self.files.append(name)
        return None, name

    # Answers

    def _write_answers(self, answers: Sequence[KeyedAnswer]) -> None:
        for keyed in answers:
            answer = keyed.answer
            status, headers, body = (0 if keyed.ended else None), None, None
            if answer is not None:
                status, headers, body = answer.status, json.dumps(dict(answer.headers)), answer.body
                self._count_answers(len(body))
            self._connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    keyed.client,
                    keyed.name,
                    self.id,
                    keyed.fingerprint,
                    keyed.began,
                    keyed.secret,
                    status,
                    headers,
                    body,
                ),
            )
        if self._answers > _ANSWER_BYTES:
            self._drop_old_answers()

    def _drop_answer(self, client_and_name: tuple[str, bytes]) -> None:
        """Delete a request that was in flight, or an operation."""
        where = f"FROM answers WHERE client = ? AND name = ? AND (status IS NULL OR client = '{OPERATIONS}')"
        ask = self._connection.execute
        for (size,) in ask(f"SELECT coalesce(length(body), 0) {where}", client_and_name).fetchall():
            self._count_answers(-size)
        ask(f"DELETE {where}", client_and_name)

    def _drop_old_answers(self) -> None:
        ask = self._connection.execute
        oldest = "SELECT rowid, length(body) FROM answers WHERE session = ? AND body IS NOT NULL ORDER BY began"
        for row, size in ask(oldest, (self.id,)).fetchall():
            if self._answers <= _ANSWER_BYTES:
                break
            ask("UPDATE answers SET status = 0, headers = NULL, body = NULL WHERE rowid = ?", (row,))
            self._count_answers(-size)

    def _count_answers(self, size: int) -> None:
        self._answers += size
        self.size += size


def _types_of(record: ResourceRecord) -> dict[str, dtypes.DType]:
    facts = record.facts
    if record.kind == "table":
        key, value = dtypes.as_dtype(facts["key_dtype"]), dtypes.as_dtype(facts["value_dtype"])
        return {name: value if name == "values" else key for name in record.tensors}
    return {} if record.elements is not None else {"value": dtypes.as_dtype(facts["dtype"])}


def packed_numbers(numbers: Sequence[int]) -> bytes:
    """Numbers as ranges (first, one after the last) of int64, which are few for a queue that is first in, first out."""
    ranges = array("q")
    for number in numbers:
        if ranges and ranges[-1] == number:
            ranges[-1] += 1
        else:
            ranges.extend((number, number + 1))
    return ranges.tobytes()


def unpacked_numbers(packed: bytes) -> list[int]:
    """The numbers of `packed_numbers`."""
    ranges = array("q")
    ranges.frombytes(packed)
    return [number for first, end in zip(ranges[::2], ranges[1::2], strict=True) for number in range(first, end)]
