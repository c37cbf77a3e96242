"""The store: what was written is read again, or nothing is changed and the error says what to do."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aexec_server.durable.session_rows import FILE_BYTES, packed_numbers, unpacked_numbers
from aexec_server.durable.state_database import DATABASE
from aexec_server.durable.state_errors import NotDurableError, StateLimitError, StateStoreError
from aexec_server.durable.state_store import Outcome, StateLimits, StateStore
from aexec_server.http.keyed_answer import KeyedAnswer
from aexec_server.http.not_begun import HandedOverError
from aexec_server.http.stored_answer import StoredAnswer
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueBase, QueueSpec
from tests.server.durable.stores import MANY, FullDisk, Kept, opened


def _variables(store: StateStore, handle: str = "s") -> dict[str, Any]:
    return {record.name: record.tensors["value"] for record in store.load_here(handle).records}


def _files(folder: Path) -> list[str]:
    return [path.name for path in (folder / "tensors").iterdir()]


def test_state_is_read_by_the_next_process(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    texts = np.array([b"a", b""], object)
    large = np.arange(FILE_BYTES, dtype=np.float32)
    for name, value in (("small", np.float64(1.5)), ("texts", texts), ("large", large)):
        kept.set(name, value)
    kept.state.add_tensor("t;0;", np.ones((2, 2), dtypes.bfloat16.np))
    assert kept.write() is None
    store.close_here()
    store = opened(tmp_path)
    read = _variables(store)
    assert read["small"] == 1.5 and read["texts"].tolist() == [b"a", b""]
    np.testing.assert_array_equal(read["large"], large)
    assert store.load_here("s").kept["t;0;"].dtype == dtypes.bfloat16.np
    store.close_here()


def test_file_of_a_replaced_tensor_is_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    for number in range(3):
        kept.set("v", np.full(FILE_BYTES, number))
        assert kept.write() is None
        assert len(_files(tmp_path)) == 1
    kept.set("v", np.zeros(2))
    assert kept.write() is None and not _files(tmp_path)
    store.close_here()


def test_dropped_session_leaves_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    kept.set("v", np.zeros(FILE_BYTES))
    assert kept.write() is None
    store.drop_here(["s"])
    assert not _files(tmp_path)
    with pytest.raises(errors.NotFoundError):
        store.load_here("s")
    store.close_here()
    connection = sqlite3.connect(tmp_path / DATABASE)
    for table in ("sessions", "graphs", "resources", "tensors", "answers"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()


def test_files_of_a_broken_off_write_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path).close_here()
    (tmp_path / "tensors" / "abc.tmp").write_bytes(b"half")
    (tmp_path / "tensors" / "def").write_bytes(b"nobody's")
    opened(tmp_path).close_here()
    assert not _files(tmp_path)


@given(st.lists(st.integers(0, 30)))
def test_numbers_are_packed(numbers: list[int]) -> None:
    assert unpacked_numbers(packed_numbers(numbers)) == numbers


def test_elements_are_written_once(tmp_path: Path) -> None:
    """The rows of elements that stay are the same; the order is that of the queue."""
    store = opened(tmp_path)
    kept = Kept(store)
    queue = FIFOQueue("q", QueueSpec((dtypes.int64, dtypes.string)))
    kept.resources.create("localhost", "q", queue, QueueBase)

    def put(number: int) -> None:
        queue.enqueue((np.int64(number), np.array(b"%d" % number, object)))

    def rows() -> set[int]:
        return {row for (row,) in store.ask("SELECT id FROM tensors")}

    for number in range(3):
        put(number)
    assert kept.write() is None
    before = rows()
    queue.dequeue()
    put(3)
    assert kept.write() is None
    assert len(rows() & before) == 4 and len(rows()) == 6
    store.close_here()
    store = opened(tmp_path)
    (record,) = store.load_here("s").records
    assert [[int(n), t.item()] for n, t in record.elements or ()] == [[1, b"1"], [2, b"2"], [3, b"3"]]
    store.close_here()


def test_queue_is_written_by_a_process_that_does_not_know_its_rows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    queue = FIFOQueue("q", QueueSpec((dtypes.int64,)))
    kept.resources.create("localhost", "q", queue, QueueBase)
    queue.enqueue((np.int64(1),))
    assert kept.write() is None
    store._rows.clear()  # as in a process that has just begun
    queue.enqueue((np.int64(2),))
    assert kept.write() is None
    (record,) = store.load_here("s").records
    assert [int(element[0]) for element in record.elements or ()] == [1, 2]
    store.close_here()


# A full disk


def test_full_disk_is_a_clean_error_and_passes(tmp_path: Path) -> None:
    made: list[FullDisk] = []

    def files(folder: Path) -> FullDisk:
        made.append(FullDisk(folder))
        return made[0]

    store = opened(tmp_path, files=files)
    kept = Kept(store)
    kept.set("v", np.zeros(FILE_BYTES))
    assert kept.write() is None
    made[0].full = True
    for _ in range(2):
        kept.set("v", np.ones(FILE_BYTES))
        outcome = kept.write()
        assert isinstance(outcome, NotDurableError) and "No space left" in outcome.message
        assert len(_files(tmp_path)) == 1  # nothing is left of the attempt
    assert not _variables(store)["v"].any()
    made[0].full = False
    assert kept.write() is None and _variables(store)["v"].all()
    store.close_here()


@pytest.mark.parametrize("pragma", ["max_page_count = 1", "query_only = ON"])
def test_database_that_cannot_grow_is_a_clean_error(tmp_path: Path, pragma: str) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    kept.set("v", np.zeros(10))
    assert kept.write() is None
    store.ask(f"PRAGMA {pragma}")
    for number in range(20):
        kept.set(f"w{number}", np.ones(1000))
        outcome = kept.write()
    assert isinstance(outcome, NotDurableError) and outcome.status == 507
    assert set(_variables(store)) >= {"v"}
    store.ask("PRAGMA max_page_count = 100000")
    store.ask("PRAGMA query_only = OFF")
    assert kept.write() is None and len(_variables(store)) == 21
    store.close_here()


def test_size_limits_refuse_one_session_and_write_the_others(tmp_path: Path) -> None:
    store = opened(tmp_path, StateLimits(store=5000, client=3000, session=2000))
    first, second, third = Kept(store, "a", "c"), Kept(store, "b", "c"), Kept(store, "d", "e")
    first.set("v", np.zeros(300))
    assert isinstance(first.write(), StateLimitError)
    first.set("v", np.zeros(200))
    assert first.write() is None
    second.set("v", np.zeros(200))
    third.set("v", np.zeros(200))
    outcomes = store.write_here([second.take(), third.take()])
    assert isinstance(outcomes[0], StateLimitError) and "sessions of this client" in outcomes[0].message
    assert outcomes[1] is None and sorted(store.facts) == ["a", "d"]
    third.written()
    first.resources.delete("localhost", "v", ResourceVariable)
    assert first.write() is None and second.write() is None
    store.close_here()


# Damage


def test_newer_store_is_refused_and_unchanged(tmp_path: Path) -> None:
    opened(tmp_path).close_here()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (tmp_path / DATABASE).read_bytes()
    with pytest.raises(StateStoreError, match="version 99 and was written by a newer aexec"):
        opened(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == before


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("CREATE TABLE sessions (a)")
    connection.close()
    with pytest.raises(StateStoreError, match="another program"):
        opened(tmp_path)


@pytest.mark.parametrize("where", ["head", "middle"])
def test_damaged_database_is_refused_and_unchanged(tmp_path: Path, where: str) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    for number in range(40):
        kept.set(f"v{number}", np.full(1000, number))
    assert kept.write() is None
    store.close_here()
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    start = 0 if where == "head" else middle
    for page in range(1 if where == "head" else 20):
        data[start + page * 4096 : start + page * 4096 + 100] = b"\xa5" * 100
    path.write_bytes(data)
    before = path.read_bytes()
    with pytest.raises(StateStoreError, match="Restore a copy of its folder"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_torn_end_of_the_log_loses_only_what_was_not_committed(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    kept = Kept(store)
    for number in range(3):
        kept.set("v", np.int64(number))
        assert kept.write() is None
    torn = tmp_path / "b"
    shutil.copytree(tmp_path / "a", torn)
    with (torn / f"{DATABASE}-wal").open("r+b") as log:
        log.truncate(log.seek(0, 2) - 100)
    again = opened(torn)
    assert _variables(again)["v"] == 1
    again.close_here()
    store.close_here()


def test_damaged_file_is_reported_when_its_session_is_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept, other = Kept(store), Kept(store, "other")
    for session in (kept, other):
        session.set("v", np.zeros(FILE_BYTES) if session is kept else np.zeros(2))
        assert session.write() is None
    (name,) = _files(tmp_path)
    (tmp_path / "tensors" / name).write_bytes(b"x")
    with pytest.raises(errors.DataLossError, match="is damaged"):
        store.load_here("s")
    assert _variables(store, "other")["v"].tolist() == [0, 0]
    store.close_here()


def test_second_server_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(StateStoreError, match="used by another server"):
        opened(tmp_path)
    store.close_here()
    opened(tmp_path).close_here()


def test_next_server_waits_for_the_hosts_of_the_last(tmp_path: Path) -> None:
    """They end a moment after it, and may still write."""
    opened(tmp_path).close_here()
    host = opened(tmp_path, is_owner=False)
    ending = threading.Timer(0.1, host._lock.release)  # type: ignore[union-attr]
    ending.start()
    opened(tmp_path).close_here()
    ending.join()
    host._lock = None
    host.close_here()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.FailedPreconditionError, match="cannot be used"):
        opened(tmp_path / "file" / "state")


# Answers


def test_answers_are_kept_with_the_state(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept(store)
    kept.write()
    now = 4e9
    answer = StoredAnswer(200, {"Content-Type": "application/json"}, b"{}")
    begun = KeyedAnswer("c", b"k1", b"f", now)
    ended = KeyedAnswer("c", b"k2", b"f", now + 1, answer, True, "secret")
    forgotten = KeyedAnswer("c", b"k3", b"f", now + 2, None, True)
    write = kept.take()
    write.answers = (begun, ended, forgotten)
    assert store.write_here([write]) == [None]
    assert store.answers_here() == [begun, ended, forgotten]
    write = kept.take()
    write.withdrawn = (("c", b"k1"), ("c", b"k2"))
    assert store.write_here([write]) == [None]
    assert store.answers_here() == [ended, forgotten]  # only what was in flight can be withdrawn
    store.close_here()


def test_old_answers_are_dropped_and_their_marks_stay(tmp_path: Path) -> None:
    store = opened(tmp_path, MANY)
    kept = Kept(store)
    kept.write()
    for number in range(5):
        write = kept.take()
        answer = StoredAnswer(200, {}, bytes(5 << 20))
        write.answers = (KeyedAnswer("c", b"%d" % number, b"f", 4e9 + number, answer, True),)
        assert store.write_here([write]) == [None]
    known = store.answers_here()
    assert [keyed.answer is None for keyed in known] == [True, True, False, False, False]
    assert all(keyed.ended for keyed in known)
    store.close_here()


async def test_write_that_comes_while_the_store_closes_is_handed_over(tmp_path: Path) -> None:
    """It would find the database closed, and be taken for one that the disk has refused."""
    store = StateStore(tmp_path, MANY)
    await store.open()
    go_on = threading.Event()
    store._thread.submit(go_on.wait)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    store.write([Kept(store).take()], outcomes.set_result)
    go_on.set()
    (outcome,) = await outcomes
    assert isinstance(outcome, HandedOverError)
    await closing


async def test_store_that_cannot_be_opened_refuses_writes(tmp_path: Path) -> None:
    """That of a session host, which opens it at its first use."""
    (tmp_path / "state.db").write_bytes(b"nothing that SQLite reads" * 100)
    store = StateStore(tmp_path, MANY, is_owner=False)
    outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    store.write([Kept(store).take(), Kept(store, "t").take()], outcomes.set_result)
    first, second = await outcomes
    assert isinstance(first, StateStoreError) and first is second
    await store.close()
