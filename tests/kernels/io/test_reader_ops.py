from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops, proto
from aexec.io.record import write_records
from aexec.kernels.io import reader_ops
from tests.kernels.harness import in_tensorflow, ops_of, registered


@pytest.mark.parametrize("op", ops_of("io.reader_ops"))
def test_registrations_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


class Reading:
    """A session with one reader, and a queue of file names that is closed once `files` are in it."""

    def __init__(self, make: Any, files: list[Any], *, count: int = 2, close: bool = True, **attrs: Any) -> None:
        with aexec.Graph() as self.graph:
            names = aexec.placeholder("string", name="names")
            queue = ops.fifo_queue_v2(component_types=["string"], name="queue")
            ops.queue_enqueue_many_v2(queue, [names], name="put")
            ops.queue_close_v2(queue, name="close")
            reader = make(name="reader", **attrs)
            ops.reader_read_v2(reader, queue, name="read")
            ops.reader_read_up_to_v2(reader, queue, np.int64(count), name="up_to")
            ops.reader_num_records_produced_v2(reader, name="produced")
            ops.reader_num_work_units_completed_v2(reader, name="finished")
            ops.reader_serialize_state_v2(reader, name="state")
            ops.reader_restore_state_v2(reader, aexec.placeholder("string", name="saved"), name="restore")
            ops.reader_reset_v2(reader, name="reset")
        self.session = aexec.Session(self.graph)
        self.files = [str(f).encode() for f in files]
        self.close = close

    async def __aenter__(self) -> Reading:
        await self.put(*self.files)
        if self.close:
            await self.session.run([], targets=["close"])
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.session.close()

    async def put(self, *files: bytes) -> None:
        if files:
            await self.session.run([], {"names": np.array(files, object)}, ["put"])

    async def read(self) -> Any:
        return tuple(await self.session.run(["read:0", "read:1"]))

    async def up_to(self) -> Any:
        return (await self.session.run("up_to:1")).tolist()

    async def counts(self) -> Any:
        return tuple(await self.session.run(["produced:0", "finished:0"]))


@pytest.fixture
def lines(tmp_path: Path) -> list[Path]:
    """Files with lines a, b, c; none; d."""
    for name, data in (("1", b"a\nb\nc\n"), ("2", b""), ("3", b"d")):
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in "123"]


async def test_lines_of_several_files(lines: list[Path]) -> None:
    async with Reading(ops.text_line_reader_v2, lines, skip_header_lines=1) as r:
        assert await r.read() == (f"{lines[0]}:2".encode(), b"b")
        assert await r.counts() == (1, 0)
        assert (await r.read())[1] == b"c"
        with pytest.raises(errors.OutOfRangeError, match="is closed and has insufficient elements"):
            await r.read()
        assert await r.counts() == (2, 3)
        await r.session.run([], targets=["reset"])
        assert await r.counts() == (0, 0)
        with pytest.raises(errors.UnimplementedError, match="Reader SerializeState"):
            await r.session.run("state:0")
        with pytest.raises(errors.UnimplementedError, match="Reader RestoreState"):
            await r.session.run([], {"saved": b""}, ["restore"])


async def test_several_records_at_a_time(lines: list[Path]) -> None:
    async with Reading(ops.text_line_reader_v2, lines) as r:
        assert await r.up_to() == [b"a", b"b"]
        assert await r.counts() == (2, 0)
        assert await r.up_to() == [b"c"]  # those of one file
        assert await r.counts() == (3, 1)
        assert await r.up_to() == [b"d"]
        with pytest.raises(errors.OutOfRangeError):
            await r.up_to()
    async with Reading(ops.text_line_reader_v2, lines, count=0) as r:
        assert await r.up_to() == []
    async with Reading(ops.text_line_reader_v2, lines, count=-1) as r:
        with pytest.raises(errors.InvalidArgumentError, match="num_records must be a number >= 0"):
            await r.up_to()


async def test_whole_files_and_their_state(lines: list[Path], tmp_path: Path) -> None:
    async with Reading(ops.whole_file_reader_v2, [lines[0], lines[2], tmp_path / "no"]) as r:
        assert await r.read() == (str(lines[0]).encode(), b"a\nb\nc\n")
        assert await r.counts() == (1, 1)
        state = await r.session.run("state:0")
        message = proto.ReaderBaseState(
            work_started=1, work_finished=1, num_records_produced=1, current_work=str(lines[0]).encode()
        )
        assert state == message.SerializeToString()
        assert await r.up_to() == [b"d"]  # a file is one record
        for _ in range(2):
            with pytest.raises(errors.NotFoundError, match="No such file or directory"):
                await r.read()
        unfinished = await r.session.run("state:0")
        with pytest.raises(
            errors.InvalidArgumentError, match=r"Inconsistent work started vs\. finished .* WholeFileReader"
        ):
            await r.session.run([], {"saved": unfinished}, ["restore"])
        await r.session.run([], {"saved": state}, ["restore"])
        assert await r.counts() == (1, 1)
        assert await r.session.run("state:0") == state
        with pytest.raises(errors.InvalidArgumentError, match="Could not parse state for WholeFileReader 'reader'"):
            await r.session.run([], {"saved": b"\xff"}, ["restore"])
        negative = proto.ReaderBaseState(work_started=-1, work_finished=-1).SerializeToString()
        with pytest.raises(errors.InvalidArgumentError, match="negative value"):
            await r.session.run([], {"saved": negative}, ["restore"])


async def test_names(tmp_path: Path) -> None:
    async with Reading(ops.identity_reader_v2, ["a", "b"]) as r:
        assert await r.read() == (b"a", b"a")
        assert await r.up_to() == [b"b"]
        assert await r.counts() == (2, 2)


async def test_records(tmp_path: Path) -> None:
    path = tmp_path / "r"
    many = [b"%d" % i for i in range(1000)]
    await asyncio.to_thread(write_records, str(path), many, "ZLIB")
    async with Reading(ops.tf_record_reader_v2, [path], count=400, compression_type="ZLIB") as r:
        got = [record for _ in range(3) for record in await r.up_to()]
    assert got == many
    path.write_bytes(path.read_bytes()[:-100])
    async with Reading(ops.tf_record_reader_v2, [path], compression_type="unknown means none") as r:
        for _ in range(2):
            with pytest.raises(errors.DataLossError, match="corrupted record at 0"):
                await r.read()


async def test_fixed_lengths(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"HHaabbF")
    attrs = {"header_bytes": 2, "record_bytes": 2, "footer_bytes": 1}
    async with Reading(ops.fixed_length_record_reader_v2, [tmp_path / "f"], **attrs) as r:
        assert await r.read() == (f"{tmp_path}/f:0".encode(), b"aa")
        assert await r.up_to() == [b"bb"]


@pytest.mark.parametrize("attr", ["header_bytes", "record_bytes", "footer_bytes", "hop_bytes"])
async def test_negative_lengths(attr: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"{attr} must be >= 0 not -1"):
        async with Reading(ops.fixed_length_record_reader_v2, [], **{"record_bytes": 1, attr: -1}) as r:
            await r.read()
    with pytest.raises(errors.InvalidArgumentError, match="skip_header_lines must be >= 0 not -1"):
        async with Reading(ops.text_line_reader_v2, [], skip_header_lines=-1) as r:
            await r.read()


async def test_file_that_cannot_be_opened_is_passed_over(lines: list[Path], tmp_path: Path) -> None:
    async with Reading(ops.text_line_reader_v2, [tmp_path / "no", lines[0]]) as r:
        with pytest.raises(errors.NotFoundError):
            await r.read()
        assert (await r.read())[1] == b"a"


async def test_readers_wait_for_names_and_take_turns(lines: list[Path]) -> None:
    async with Reading(ops.text_line_reader_v2, [], close=False) as r:
        steps = [r.session.start("read:1") for _ in range(4)]
        await asyncio.sleep(0)
        steps[1].cancel()
        with pytest.raises(errors.CancelledError):
            await steps[1]
        await r.put(str(lines[0]).encode())
        # The cancelled one has taken nothing.
        assert [await steps[i] for i in (0, 2, 3)] == [b"a", b"b", b"c"]


async def test_cancelled_step_loses_no_record(lines: list[Path]) -> None:
    async with Reading(ops.text_line_reader_v2, [], close=False) as r:
        step = r.session.start("read:1")
        await r.put(str(lines[0]).encode())
        while not r.session.statistics().pool.submitted:
            await asyncio.sleep(0)
        step.cancel()
        got = []
        with contextlib.suppress(errors.CancelledError):
            got.append(await step)
        while len(got) < 3:
            got.append((await r.read())[1])
        assert got == [b"a", b"b", b"c"]


async def test_cancelled_step_loses_none_of_several_records(lines: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_ops, "_AHEAD_RECORDS", 1)
    for reads in range(1, 4):
        async with Reading(ops.text_line_reader_v2, lines[:1], count=3) as r:
            step = r.session.start("up_to:1")
            while r.session.statistics().pool.submitted < reads:
                await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
            assert await r.counts() == (0, 0)
            assert await r.up_to() == [b"a", b"b", b"c"]


async def test_queues_that_hold_something_else() -> None:
    with aexec.Graph() as graph:
        reader = ops.whole_file_reader_v2(name="reader")
        for name, values in (
            ("number", [np.int32(1)]),
            ("two", [aexec.constant("a"), aexec.constant("b")]),
            ("vector", [aexec.constant(["a", "b"])]),
        ):
            types = [aexec.constant(v).dtype if isinstance(v, np.generic) else v.dtype for v in values]
            queue = ops.fifo_queue_v2(component_types=types, name=name)
            ops.queue_enqueue_v2(queue, values, name=f"put_{name}")
            ops.reader_read_v2(reader, queue, name=f"read_{name}")
        ops.reader_read_v2(queue, queue, name="no_reader")
    async with aexec.Session(graph) as session:
        for name, message in (
            ("number", "Expected queue with single string component"),
            ("two", "Expected single component queue"),
            ("vector", "Expected to dequeue a one-element string tensor"),
        ):
            await session.run([], targets=[f"put_{name}"])
            with pytest.raises(errors.InvalidArgumentError, match=message):
                await session.run(f"read_{name}:0")
        with pytest.raises(errors.InvalidArgumentError, match="using the wrong type"):
            await session.run("no_reader:0")


async def test_readers_and_queues_of_the_first_kind(lines: list[Path]) -> None:
    with aexec.Graph() as graph:
        queue = ops.fifo_queue(component_types=["string"], name="queue")
        ops.queue_enqueue(queue, [aexec.constant(str(lines[2]))], name="put")
        reader = ops.text_line_reader(name="reader", shared_name="shared")
        ops.reader_read(reader, queue, name="read")
        ops.reader_num_records_produced(reader, name="produced")
        ops.reader_reset(reader, name="reset")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["put"])
        assert await session.run("read:1") == b"d"
        assert await session.run("produced:0") == 1
        await session.run([], targets=["reset"])
        assert await session.run("produced:0") == 0


@pytest.mark.parametrize(
    ("make", "attrs", "data", "records"),
    [
        (ops.identity_reader, {}, b"", None),
        (ops.whole_file_reader, {}, b"a\nb", [b"a\nb"]),
        (ops.text_line_reader, {}, b"a\nb", [b"a", b"b"]),
        (ops.fixed_length_record_reader, {"record_bytes": 2}, b"aabb", [b"aa", b"bb"]),
        (ops.tf_record_reader, {"compression_type": "GZIP"}, None, [b"first", b"second"]),
    ],
    ids=["identity", "whole file", "lines", "fixed lengths", "records"],
)
async def test_readers_of_the_first_kind_keep_what_the_second_do(
    tmp_path: Path, make: Any, attrs: dict[str, Any], data: bytes | None, records: list[bytes] | None
) -> None:
    path = tmp_path / "file"
    if data is None:
        await asyncio.to_thread(write_records, str(path), records or [], "GZIP")
    else:
        path.write_bytes(data)
    wanted = records or [str(path).encode()]
    with aexec.Graph() as graph:
        queue = ops.fifo_queue(component_types=["string"], name="queue")
        ops.queue_enqueue(queue, [aexec.constant(str(path))], name="put")
        ops.queue_close(queue, name="close")
        reader = make(name="reader", **attrs)
        ops.reader_read_up_to(reader, queue, np.int64(1), name="first")
        ops.reader_read_up_to(reader, queue, np.int64(9), name="others")
        ops.reader_num_work_units_completed(reader, name="finished")
        ops.reader_serialize_state(reader, name="state")
        ops.reader_restore_state(reader, aexec.placeholder("string", name="saved"), name="restore")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["put"])
        await session.run([], targets=["close"])
        assert (await session.run("first:1")).tolist() == wanted[:1]
        if len(wanted) > 1:
            assert (await session.run("others:1")).tolist() == wanted[1:]
        with pytest.raises(errors.OutOfRangeError):
            await session.run("others:1")
        assert await session.run("finished:0") == 1
        if records is None:  # of the others, only whole files keep a state that can be restored
            state = await session.run("state:0")
            assert proto.ReaderBaseState.FromString(state).num_records_produced == 1
            await session.run([], {"saved": state}, ["restore"])
            assert await session.run("state:0") == state
