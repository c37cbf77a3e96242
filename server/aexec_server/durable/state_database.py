"""The SQLite file of a store: its schema, and how it is opened.

It is in WAL mode with `synchronous=FULL`: a committed transaction survives the loss of power.  Each row of `tensors`
has its bytes, or the name of the file that has them (`state_files.py`).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from aexec_server.durable.state_errors import StateStoreError

__all__ = ["DATABASE", "open_database", "open_file"]

DATABASE = "state.db"
_VERSION = 1
# "AEXS", in the head of the file.
_APPLICATION = 0x41455853
_BUSY_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    size INTEGER NOT NULL DEFAULT 0,
    facts TEXT NOT NULL,
    config BLOB NOT NULL,
    next_tensor INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE graphs (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    version INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    data BLOB,
    file TEXT,
    size INTEGER NOT NULL,
    PRIMARY KEY (session, version)
);
CREATE TABLE resources (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    kind TEXT NOT NULL,
    container TEXT NOT NULL,
    name TEXT NOT NULL,
    facts TEXT NOT NULL,
    elements BLOB,
    UNIQUE (session, kind, container, name)
);
CREATE TABLE tensors (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    resource INTEGER REFERENCES resources ON DELETE CASCADE,
    element INTEGER,
    name TEXT NOT NULL,
    dtype TEXT NOT NULL,
    shape TEXT NOT NULL,
    size INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    data BLOB,
    file TEXT
);
CREATE INDEX tensors_of_sessions ON tensors (session);
CREATE INDEX tensors_of_resources ON tensors (resource, element);
CREATE TABLE answers (
    client TEXT NOT NULL,
    name BLOB NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    fingerprint BLOB NOT NULL,
    began REAL NOT NULL,
    secret TEXT NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB,
    PRIMARY KEY (client, name)
);
CREATE INDEX answers_of_sessions ON answers (session);
"""


def open_database(folder: Path, *, check: bool = True) -> sqlite3.Connection:
    """A connection to the database of a store, which is made if there is none; for one thread.

    Args:
        check: look for damage, which reads the file once.

    Raises:
        StateStoreError: the file is damaged, from a newer version, or no store; it is unchanged then.
    """
    return open_file(folder / DATABASE, check=check)


def open_file(path: Path, *, check: bool = True) -> sqlite3.Connection:
    """As `open_database`, given the file."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        _prepare(connection, path, check=check)
        return connection
    except (sqlite3.Error, StateStoreError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, StateStoreError):
            raise
        raise StateStoreError(
            f"The store {path} cannot be opened: {error}. Restore a copy of its folder, or give another folder; "
            "`aexec state ls` shows what can still be read"
        ) from None


def _prepare(connection: sqlite3.Connection, path: Path, *, check: bool) -> None:
    ask = connection.execute
    version, application = ask("PRAGMA user_version").fetchone()[0], ask("PRAGMA application_id").fetchone()[0]
    is_new = not ask("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not is_new and application != _APPLICATION:
        raise StateStoreError(f"{path} is a database of another program: give another folder")
    if version > _VERSION:
        raise StateStoreError(
            f"The store {path} has version {version} and was written by a newer aexec; this one reads version "
            f"{_VERSION}: use the newer aexec, or give another folder"
        )
    ask("PRAGMA journal_mode = WAL")
    ask("PRAGMA synchronous = FULL")
    ask("PRAGMA foreign_keys = ON")
    if is_new:
        path.chmod(0o600)  # answers and handles are secrets
        ask("BEGIN IMMEDIATE")
        if not ask("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                if statement.strip():
                    ask(statement)
            ask(f"PRAGMA application_id = {_APPLICATION}")
            ask(f"PRAGMA user_version = {_VERSION}")
        ask("COMMIT")
    elif check:
        damage = ask("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StateStoreError(
                f"The store {path} is damaged ({damage}). Restore a copy of its folder, or give another folder; "
                "`aexec state export` writes the sessions that can still be read"
            )
