"""A session of a store as one file: an SQLite file like that of a store, with this session alone and no other files."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from aexec import errors
from aexec_server.durable.session_rows import FILE_BYTES
from aexec_server.durable.state_database import open_file
from aexec_server.durable.state_errors import StateStoreError
from aexec_server.durable.state_files import StateFiles
from aexec_server.durable.stored_session import SessionFacts

__all__ = ["export_session", "import_session"]

# Tables of a session's rows; those of the second list have contents, in the database or in files.
_TABLES = ("graphs", "resources", "tensors", "answers")
_WITH_CONTENTS = ("graphs", "tensors")

Ask = Callable[..., sqlite3.Cursor]


def export_session(ask: Ask, files: StateFiles, handle: str, path: Path) -> None:
    """Write a session to a new file.

    Args:
        ask: executes a statement in the store's database.
        files: the store's.

    Raises:
        NotFoundError: there is no such session.
        AlreadyExistsError: there is such a file.
        DataLossError: the session is damaged.
    """
    if path.exists():
        raise errors.AlreadyExistsError(f"There is a file {path} already")
    ask("BEGIN")  # one state of the session, while its server goes on
    try:
        with contextlib.closing(open_file(path)) as archive:
            archive.execute("PRAGMA journal_mode = DELETE")  # one file
            archive.execute("BEGIN")
            row = _id_of(ask, handle)
            _copy(ask, archive.execute, "sessions", "id = ?", row)
            for table in _TABLES:
                _copy(ask, archive.execute, table, "session = ?", row, files if table in _WITH_CONTENTS else None)
            archive.execute("COMMIT")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        ask("ROLLBACK")


def import_session(ask: Ask, files: StateFiles, path: Path, handle: str | None) -> str:
    """Put the session of a file into a store; return its handle.

    Args:
        ask, files: as of `export_session`; no server may use the store.
        handle: its handle from now on; None for the one that it had.

    Raises:
        StateStoreError: the file is none that `export_session` has written, or is damaged.
        AlreadyExistsError: the store has a session with this handle.
    """
    if not path.is_file():
        raise errors.NotFoundError(f"There is no file {path}")
    with contextlib.closing(open_file(path)) as archive:
        found = archive.execute("SELECT id, facts FROM sessions").fetchall()
        if len(found) != 1:
            raise StateStoreError(f"{path} has {len(found)} sessions, and an exported file has one")
        ((old, described),) = found
        facts = SessionFacts(**json.loads(described))
        facts = replace(facts, handle=handle or facts.handle)
        if ask("SELECT count(*) FROM sessions WHERE handle = ?", (facts.handle,)).fetchone()[0]:
            raise errors.AlreadyExistsError(f"There is a session '{facts.handle}' in the store already")
        ask("BEGIN IMMEDIATE")
        try:
            _insert(ask, archive, files, old, facts)
            files.sync_folder()
            ask("COMMIT")
        except BaseException:
            ask("ROLLBACK")
            raise
    return facts.handle


def _insert(ask: Ask, archive: sqlite3.Connection, files: StateFiles, old: int, facts: SessionFacts) -> None:
    read = archive.execute
    size, config, next_tensor = read("SELECT size, config, next_tensor FROM sessions").fetchone()
    new = ask(
        "INSERT INTO sessions (handle, client, size, facts, config, next_tensor) VALUES (?, ?, ?, ?, ?, ?)",
        (facts.handle, facts.client, size, json.dumps(asdict(facts)), config, next_tensor),
    ).lastrowid
    resources = {}
    for row, *values in read("SELECT id, kind, container, name, facts, elements FROM resources"):
        resources[row] = ask(
            "INSERT INTO resources (session, kind, container, name, facts, elements) VALUES (?, ?, ?, ?, ?, ?)",
            (new, *values),
        ).lastrowid
    for version, crc, data, length in read("SELECT version, crc, data, size FROM graphs WHERE session = ?", (old,)):
        ask("INSERT INTO graphs VALUES (?, ?, ?, ?, ?, ?)", (new, version, crc, *_placed(files, data, crc), length))
    for resource, *values, crc, data in read(
        "SELECT resource, element, name, dtype, shape, size, crc, data FROM tensors ORDER BY id"
    ):
        ask(
            "INSERT INTO tensors (session, resource, element, name, dtype, shape, size, crc, data, file) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (new, resources.get(resource), *values, crc, *_placed(files, data, crc)),
        )
    for values in read("SELECT client, name, fingerprint, began, secret, status, headers, body FROM answers"):
        ask(
            "INSERT OR REPLACE INTO answers (client, name, fingerprint, began, secret, status, headers, body, session) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, new),
        )


def _placed(files: StateFiles, data: bytes, crc: int) -> tuple[bytes | None, str | None]:
    if zlib.crc32(data) != crc:
        raise errors.DataLossError("The file is damaged: a tensor is not what was written")
    return (data, None) if len(data) <= FILE_BYTES else (None, files.write(data))


def _copy(read: Ask, write: Ask, table: str, where: str, row: int, files: StateFiles | None = None) -> None:
    """Copy the rows of a table; the contents of files into the rows."""
    rows = read(f"SELECT * FROM {table} WHERE {where}", (row,))
    names = [column[0] for column in rows.description]
    places = ", ".join("?" * len(names))
    for values in rows:
        named: dict[str, Any] = dict(zip(names, values, strict=True))
        if files is not None and named["file"] is not None:
            named |= {"data": files.read(named["file"], named["crc"]), "file": None}
        write(f"INSERT INTO {table} VALUES ({places})", tuple(named.values()))


def _id_of(ask: Ask, handle: str) -> int:
    found = ask("SELECT id FROM sessions WHERE handle = ?", (handle,)).fetchone()
    if found is None:
        raise errors.NotFoundError(f"Session '{handle[:80]}' is not in the store")
    return int(found[0])
