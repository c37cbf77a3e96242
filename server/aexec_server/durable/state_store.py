"""`StateStore`: the store of durable sessions on disk, with one thread that reads and writes.

    store = StateStore(folder, limits)
    await store.open()
    store.write(writes, done)       # one transaction, one flush to the disk; then calls done
    stored = await store.load(handle)

The event loop never waits for the disk.  Next to read: `group_commit.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from aexec import errors
from aexec.hosting import ResourceRecord, dtypes
from aexec_server.durable.folder_lock import FolderLock
from aexec_server.durable.session_rows import SessionRows, unpacked_numbers
from aexec_server.durable.state_database import open_database
from aexec_server.durable.state_errors import NotDurableError, StateLimitError, write_error_of
from aexec_server.durable.state_files import StateFiles
from aexec_server.durable.stored_session import SessionFacts, SessionWrite, StoredSession
from aexec_server.durable.stored_tensors import tensor_of_bytes
from aexec_server.http.keyed_answer import OPERATIONS, KeyedAnswer, operation_name
from aexec_server.http.not_begun import HandedOverError
from aexec_server.http.stored_answer import StoredAnswer

__all__ = ["Outcome", "StateLimits", "StateStore", "read_facts", "read_facts_of_operation"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What became of the write of a session: None if it is on the disk.
Outcome = errors.OpError | None
_KEEP_ANSWERS = 24 * 3600.0
_KEYED = "SELECT client, name, fingerprint, began, secret, status, headers, body FROM answers"


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Limits of a store, in bytes of graphs, tensors and stored answers.

    Attributes:
        store, client, session: of all sessions, of those of one client, and of one.
    """

    store: int
    client: int
    session: int


class StateStore:
    """The store in a folder.  The methods of `open` to `close` are coroutines, which run one after the other.

    Args:
        folder: its folder, which is made if there is none.
        limits: the limits that writing keeps.
        is_owner: True to lock the folder for this process, and to delete what an earlier one left.  Other processes
            may have it open besides, each with sessions of its own; they open it at its first use.
        run: the start of the server, which those other processes are to have, too; "" to let any have it.
        files: makes the files of the folder; tests give one whose disk is full.

    Attributes:
        files: the files of the folder, once it is open.
        facts: what is known of each session, by handle; the owner knows all, another process those that it made.
    """

    def __init__(
        self,
        folder: Path,
        limits: StateLimits,
        *,
        is_owner: bool = True,
        run: str = "",
        files: Callable[[Path], StateFiles] = StateFiles,
    ) -> None:
        self.folder = folder
        self.facts: dict[str, SessionFacts] = {}
        self._limits = limits
        self._is_owner = is_owner
        self._run = run
        self._closed = False
        self._make_files = files
        self._thread = ThreadPoolExecutor(1, "aexec-state")
        self._rows: dict[str, SessionRows] = {}
        self._lock: FolderLock | None = None
        self._connection: sqlite3.Connection | None = None

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise HandedOverError
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._with_open, function, arguments)

    def _with_open(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        if self._connection is None and not self._is_owner and function not in (self.open_here, self.close_here):
            self.open_here()
        return function(*arguments)

    async def open(self) -> None:
        """Open the store.  Raises StateStoreError; the folder is unchanged then."""
        await self._call(self.open_here)

    def write(self, writes: Sequence[SessionWrite], done: Callable[[list[Outcome]], object]) -> None:
        """Write the changes of sessions in one transaction; later call `done` with what became of each.

        No coroutine, because each change of a durable session waits for it: a task and its turns of the loop take as
        long as the transaction.
        """
        loop = asyncio.get_running_loop()
        if self._closed:
            refused: list[Outcome] = [HandedOverError()] * len(writes)
            loop.call_soon(done, refused)
        else:
            self._thread.submit(self._write_and_tell, writes, loop, done)

    def _write_and_tell(
        self,
        writes: Sequence[SessionWrite],
        loop: asyncio.AbstractEventLoop,
        done: Callable[[list[Outcome]], object],
    ) -> None:
        try:
            outcomes = self._with_open(self.write_here, (writes,))
        except Exception as error:  # the store cannot be opened, perhaps
            outcomes = [write_error_of(error)] * len(writes)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(done, outcomes)

    async def load(self, handle: str) -> StoredSession:
        """A session.  Raises NotFoundError, or DataLossError if it is damaged."""
        return await self._call(self.load_here, handle)

    async def drop(self, handles: Collection[str]) -> None:
        """Delete sessions.  Raises NotDurableError."""
        await self._call(self.drop_here, handles)

    async def answers(self) -> list[KeyedAnswer]:
        """All requests with keys of the last day, oldest first."""
        return await self._call(self.answers_here)

    async def find(self, handle: str) -> SessionFacts | None:
        """The facts of a session, or None; for a process that does not know all."""
        return await self._call(self.find_here, handle)

    async def answer(self, client: str, name: bytes) -> KeyedAnswer | None:
        """The request with this key, or None."""
        return await self._call(self.answer_here, client, name)

    async def find_of_operation(self, operation_id: str) -> SessionFacts | None:
        """The facts of the session of an operation that is kept, or None."""
        return await self._call(self.find_of_operation_here, operation_id)

    async def close(self) -> None:
        """Close it for good.  What comes from now on is refused as handed over.  Idempotent."""
        if not self._closed:
            closing = asyncio.get_running_loop().run_in_executor(self._thread, self.close_here)
            self._closed = True
            await closing
            await asyncio.to_thread(self._thread.shutdown)

    # In the thread of the store, or in the only one

    def open_here(self) -> None:
        """As `open`, in this thread, which the store belongs to from then on."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = FolderLock(self.folder, is_owner=self._is_owner, run=self._run)
            self.files = self._make_files(self.folder)
        except OSError as error:
            raise errors.FailedPreconditionError(
                f"The folder {self.folder} of the store cannot be used: {error.strerror}"
            ) from None
        try:
            self._connection = open_database(self.folder, check=self._is_owner)
            if self._is_owner:
                self._learn()
        except BaseException:
            self.close_here()
            raise

    def _learn(self) -> None:
        ask = self.ask
        for (facts,) in ask("SELECT facts FROM sessions"):
            known = SessionFacts(**json.loads(facts))
            self.facts[known.handle] = known
        used = {name for table in ("tensors", "graphs") for (name,) in ask(f"SELECT file FROM {table}")}
        self.files.sweep(used)

    def find_here(self, handle: str) -> SessionFacts | None:
        return read_facts(self.ask, handle)

    def find_of_operation_here(self, operation_id: str) -> SessionFacts | None:
        return read_facts_of_operation(self.ask, operation_id)

    @property
    def ask(self) -> Callable[..., sqlite3.Cursor]:
        """Executes a statement, in the thread of the store."""
        assert self._connection is not None
        return self._connection.execute

    def close_here(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Writing

    def write_here(self, writes: Sequence[SessionWrite]) -> list[Outcome]:
        try:
            self.ask("BEGIN IMMEDIATE")
            if len(writes) == 1:
                outcomes = [self._written(writes[0])]
                if outcomes[0] is not None:
                    self._roll_back("ROLLBACK")
                    return outcomes
            else:
                outcomes = [self._write_one(write) for write in writes]
            written = [self._rows[w.handle] for w, o in zip(writes, outcomes, strict=True) if o is None]
            if any(rows.files for rows in written):
                self.files.sync_folder()
            self.ask("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._roll_back("ROLLBACK")
            for write in writes:
                self._forget_rows(write.handle)
            return [_not_written(error)] * len(writes)
        for write, rows in zip(writes, (self._rows.get(w.handle) for w in writes), strict=True):
            if rows is not None:
                self.files.remove(rows.unused)
                rows.unused, rows.files = [], []
                if write.facts is not None:
                    self.facts[write.handle] = write.facts
        return outcomes

    def _write_one(self, write: SessionWrite) -> Outcome:
        """Write one session's changes within the transaction; if its limits do not allow them, nothing of it."""
        self.ask("SAVEPOINT one")
        try:
            outcome = self._written(write)
            if outcome is not None:
                self.ask("ROLLBACK TO one")
            return outcome
        finally:
            self._roll_back("RELEASE one")

    def _written(self, write: SessionWrite) -> Outcome:
        """Write one session's changes; what was written has to be rolled back if they cannot be."""
        try:
            rows = self._rows_of(write)
            before = rows.size
            rows.write(write)
            if rows.size > before:
                self._check_limits(write, rows.size)
        except (errors.OpError, sqlite3.IntegrityError) as error:
            self._forget_rows(write.handle)
            if isinstance(error, errors.OpError):
                return error
            return errors.AlreadyExistsError(f"There is a session '{write.handle}' already")
        return None

    def _forget_rows(self, handle: str) -> None:
        """Forget what is known of rows, which was not committed, and delete the files that were written for it."""
        rows = self._rows.pop(handle, None)
        if rows is not None:
            self.files.remove(rows.files)

    def _rows_of(self, write: SessionWrite) -> SessionRows:
        rows = self._rows.get(write.handle)
        if rows is not None:
            return rows
        if write.facts is not None:
            facts = json.dumps(asdict(write.facts))
            id = self.ask(
                "INSERT INTO sessions (handle, client, facts, config) VALUES (?, ?, ?, ?)",
                (write.handle, write.facts.client, facts, write.config),
            ).lastrowid
        else:
            id = self._id_of(write.handle)
        assert id is not None
        assert self._connection is not None
        rows = self._rows[write.handle] = SessionRows(self._connection, self.files, id)
        return rows

    def _id_of(self, handle: str) -> int:
        found = self.ask("SELECT id FROM sessions WHERE handle = ?", (handle,)).fetchone()
        if found is None:
            raise errors.NotFoundError(f"Session {handle[:80]} is not in the store")
        return int(found[0])

    def _check_limits(self, write: SessionWrite, size: int) -> None:
        """Raise StateLimitError if the session, its client's or all sessions have grown beyond a limit."""
        of_client = "(SELECT client FROM sessions WHERE handle = ?)"
        kept = self.ask(
            f"SELECT sum(size), sum(CASE WHEN client = {of_client} THEN size ELSE 0 END) FROM sessions", (write.handle,)
        ).fetchone()
        for what, taken, most in (
            ("this session", size, self._limits.session),
            ("the sessions of this client", kept[1], self._limits.client),
            ("all sessions", kept[0], self._limits.store),
        ):
            if taken > most:
                raise StateLimitError(
                    f"What the store keeps of {what} would take {taken} bytes and may take {most}: the changes are in "
                    "memory and are not durable. Delete what is not needed"
                )

    def _roll_back(self, statement: str) -> None:
        try:
            self.ask(statement)
        except sqlite3.Error as error:  # a failed COMMIT may have rolled back by itself
            logger.debug("%s: %s", statement, error)

    def drop_here(self, handles: Collection[str]) -> None:
        unused: list[str] = []
        try:
            self.ask("BEGIN IMMEDIATE")
            for handle in handles:
                for table in ("tensors", "graphs"):
                    of_session = f"SELECT file FROM {table} JOIN sessions ON session = sessions.id WHERE handle = ?"
                    unused += [name for (name,) in self.ask(of_session, (handle,)) if name is not None]
                self.ask("DELETE FROM sessions WHERE handle = ?", (handle,))
            self.ask("COMMIT")
        except sqlite3.Error as error:
            self._roll_back("ROLLBACK")
            raise _not_written(error) from None
        for handle in handles:
            self._rows.pop(handle, None)
            self.facts.pop(handle, None)
        self.files.remove(unused)

    # Reading

    def load_here(self, handle: str) -> StoredSession:
        try:
            return self._load(handle)
        except sqlite3.Error as error:
            raise errors.DataLossError(f"Session {handle[:80]} cannot be read: {error}") from None

    def _load(self, handle: str) -> StoredSession:
        id = self._id_of(handle)
        facts, config, next_tensor = self.ask(
            "SELECT facts, config, next_tensor FROM sessions WHERE id = ?", (id,)
        ).fetchone()
        graphs = [
            bytes(self._content(data, file, crc))
            for data, file, crc in self.ask(
                "SELECT data, file, crc FROM graphs WHERE session = ? ORDER BY version", (id,)
            ).fetchall()
        ]
        tensors, elements, kept = self._tensors_of(id)
        records = []
        for row, kind, container, name, described, order in self.ask(
            "SELECT id, kind, container, name, facts, elements FROM resources WHERE session = ?", (id,)
        ):
            of_queue = elements.get(row, {})
            ordered = [of_queue[number] for number in unpacked_numbers(order)] if order is not None else None
            records.append(ResourceRecord(kind, container, name, json.loads(described), tensors.get(row, {}), ordered))
        return StoredSession(SessionFacts(**json.loads(facts)), config, graphs, records, kept, next_tensor)

    def _tensors_of(
        self, id: int
    ) -> tuple[dict[int, dict[str, Any]], dict[int, dict[int, tuple[Any, ...]]], Mapping[str, Any]]:
        """(tensors by resource and name, elements by resource and number, kept tensors by handle)."""
        tensors: dict[int, dict[str, Any]] = {}
        elements: dict[int, dict[int, tuple[Any, ...]]] = {}
        kept: dict[str, Any] = {}
        for resource, element, name, dtype, shape, crc, data, file in self.ask(
            "SELECT resource, element, name, dtype, shape, crc, data, file FROM tensors WHERE session = ? ORDER BY id",
            (id,),
        ):
            content = self._content(data, file, crc)
            tensor = tensor_of_bytes(content, dtypes.as_dtype(dtype), tuple(json.loads(shape)))
            if resource is None:
                kept[name] = tensor
            elif element is None:
                tensors.setdefault(resource, {})[name] = tensor
            else:
                of_queue = elements.setdefault(resource, {})
                of_queue[element] = (*of_queue.get(element, ()), tensor)
        return tensors, elements, kept

    def _content(self, data: bytes | None, file: str | None, crc: int) -> bytes | bytearray:
        if data is None:
            return self.files.read(file or "", crc)
        if zlib.crc32(data) != crc:
            raise errors.DataLossError(f"The store {self.folder} is damaged: a tensor is not what was written")
        return data

    def answers_here(self) -> list[KeyedAnswer]:
        self.ask("DELETE FROM answers WHERE began < ?", (time.time() - _KEEP_ANSWERS,))
        return [_keyed(row) for row in self.ask(f"{_KEYED} ORDER BY began")]

    def answer_here(self, client: str, name: bytes) -> KeyedAnswer | None:
        row = self.ask(f"{_KEYED} WHERE client = ? AND name = ?", (client, name)).fetchone()
        return None if row is None else _keyed(row)


def _keyed(row: tuple[Any, ...]) -> KeyedAnswer:
    client, name, fingerprint, began, secret, status, headers, body = row
    answer = StoredAnswer(status, json.loads(headers), body) if body is not None else None
    return KeyedAnswer(client, name, fingerprint, began, answer, status is not None, secret)


def _not_written(error: Exception) -> NotDurableError:
    what = error.strerror if isinstance(error, OSError) else str(error)
    return NotDurableError(
        f"The changes of this request are in memory, but could not be written to the disk of the server ({what}), and "
        "are lost if it ends before the next changes are written"
    )


def read_facts(ask: Callable[..., sqlite3.Cursor], handle: str) -> SessionFacts | None:
    """The facts of a session in a database; None if there is none with this handle."""
    return _facts(ask("SELECT facts FROM sessions WHERE handle = ?", (handle,)))


def read_facts_of_operation(ask: Callable[..., sqlite3.Cursor], operation_id: str) -> SessionFacts | None:
    """The facts of the session of an operation that a database has; None if it has none with this id."""
    joined = "sessions JOIN answers ON answers.session = sessions.id"
    where = "answers.client = ? AND answers.name = ?"
    return _facts(ask(f"SELECT facts FROM {joined} WHERE {where}", (OPERATIONS, operation_name(operation_id))))


def _facts(rows: sqlite3.Cursor) -> SessionFacts | None:
    found = rows.fetchone()
    return None if found is None else SessionFacts(**json.loads(found[0]))
