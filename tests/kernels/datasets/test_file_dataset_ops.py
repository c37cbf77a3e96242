"""Datasets of files: errors, cancelled steps, and files that are closed.

`test_pipelines.py` compares their elements with TensorFlow's.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import string
from aexec.io import text_records
from aexec.io.record import Compression, write_records
from tests.kernels.datasets.dataset_graphs import DatasetGraph


class SlowFile:
    """Stands for a file with two lines.  The second is read when the test says so.

    Attributes:
        reading: the second line is being read.
        go_on: set by the test.
        is_closed: the file is.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Event()
        self.go_on = threading.Event()
        self.is_closed = False
        self._loop = asyncio.get_running_loop()

    def lines(self, path: bytes, compression: Compression) -> Iterator[list[bytes]]:
        try:
            yield [b"first"]
            self._loop.call_soon_threadsafe(self.reading.set)
            assert self.go_on.wait(30)
            yield [b"second"]
        finally:
            self.is_closed = True


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> SlowFile:
    file = SlowFile()
    monkeypatch.setattr(text_records, "lists_of_lines", file.lines)
    return file


def _lines(*names: object, piece: int = 0) -> aexec.Graph:
    g = DatasetGraph()
    paths = np.array([os.fsencode(str(name)) for name in names], object)
    lines = g("lines", "TextLineDataset", g.const("names", paths), g.const("how", b""), g.const("piece", piece))
    return _iterated(g, lines)


def _iterated(g: DatasetGraph, dataset: str) -> aexec.Graph:
    attrs = {"output_types": [string], "output_shapes": [[]]}
    g("iterator", "IteratorV2", shared_name=b"lines", container=b"", **attrs)
    g("begin", "MakeIterator", dataset, "iterator")
    g("next", "IteratorGetNext", "iterator", **attrs)
    return g.graph()


async def test_cancelled_step_leaves_what_is_read_to_the_next(slow: SlowFile) -> None:
    async with aexec.Session(_lines("slow", piece=1 << 20)) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        await slow.reading.wait()
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        slow.go_on.set()
        assert [await session.run("next:0") for _ in range(2)] == [b"first", b"second"]
        with pytest.raises(errors.OutOfRangeError):
            await session.run("next:0")
        assert slow.is_closed


async def test_closed_session_closes_a_file_that_is_being_read(slow: SlowFile) -> None:
    async with aexec.Session(_lines("slow", piece=1 << 20)) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        await slow.reading.wait()
        step.cancel()
        asyncio.get_running_loop().call_later(0.01, slow.go_on.set)
    assert slow.is_closed
    with pytest.raises(errors.CancelledError):
        await step


async def test_new_pass_closes_the_file_of_the_old_one(slow: SlowFile) -> None:
    async with aexec.Session(_lines("slow", piece=1)) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == b"first"
        assert not slow.is_closed
        await session.run([], targets=["begin"])
        assert slow.is_closed


def _open_files(folder: Path) -> list[str]:
    gc.collect()
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the list itself
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list open files")
async def test_closed_session_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 1000)
    async with aexec.Session(_lines(path, piece=1)) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == b"line"
        assert _open_files(tmp_path) == [str(path)]
    assert not _open_files(tmp_path)


async def test_file_that_cannot_be_read_is_an_error_and_the_next_one_follows(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"of %s" % name.encode())
    async with aexec.Session(_lines(tmp_path / "a", tmp_path / "missing", tmp_path, tmp_path / "b")) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == b"of a"
        with pytest.raises(errors.NotFoundError, match="missing; No such file or directory"):
            await session.run("next:0")
        with pytest.raises(errors.FailedPreconditionError, match="Is a directory"):
            await session.run("next:0")
        assert await session.run("next:0") == b"of b"


async def _drained(graph: aexec.Graph) -> tuple[list[bytes], errors.OpError]:
    """The elements before the first error, and that; at the end it is an OutOfRangeError."""
    found: list[bytes] = []
    async with aexec.Session(graph) as session:
        try:
            await session.run([], targets=["begin"])
            while True:
                found.append(await session.run("next:0"))
        except errors.OpError as error:
            return found, error


async def _first_error(g: DatasetGraph, dataset: str) -> errors.OpError:
    return (await _drained(_iterated(g, dataset)))[1]


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ((4, 2, 1), "has body length 9 bytes, which is not an exact multiple of the record length (4 bytes)."),
        ((3, 200, 1), "has body length -189 bytes"),
        ((0, 2, 1), "`record_bytes` must be > 0"),
        ((3, -1, 1), "`header_bytes` must be >= 0"),
        ((3, 2, -1), "`footer_bytes` must be >= 0"),
    ],
)
async def test_fixed_length_records_that_do_not_fit_are_refused(
    tmp_path: Path, sizes: tuple[int, int, int], complaint: str
) -> None:
    (tmp_path / "file").write_bytes(b"HHabcdefghiF")
    g = DatasetGraph()
    record, header, footer = sizes
    inputs = [g.const(f"size{position}", size) for position, size in enumerate((header, record, footer, 0))]
    name = g.const("name", os.fsencode(tmp_path / "file"))
    error = await _first_error(g, g("fixed", "FixedLengthRecordDataset", name, *inputs))
    assert isinstance(error, errors.InvalidArgumentError) and complaint in error.message


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file of three records of 4 bytes."""
    write_records(str(tmp_path / "records"), [b"a___", b"b___", b"c___"])
    return tmp_path / "records"


@pytest.mark.parametrize(
    ("offsets", "expected", "complaint"),
    [
        ([20, 40], b"bcc", "End of sequence"),
        ([], b"abcabc", "End of sequence"),
        ([7, 0], b"", "corrupted record at 7"),
        ([20], b"", "`byte_offsets` must be of same size as `filenames`"),
        ([-1, 0], b"", "`byte_offsets` must be >= 0"),
        ([9999, 40], b"c", "End of sequence"),
    ],
)
async def test_records_begin_at_byte_offsets(
    records: Path, offsets: list[int], expected: bytes, complaint: str
) -> None:
    g = DatasetGraph()
    names = g.const("names", np.array([os.fsencode(records)] * 2, object))
    inputs = [g.const("how", b""), g.const("piece", 0), g.const("offsets", np.array(offsets, np.int64))]
    found, error = await _drained(_iterated(g, g("records", "TFRecordDatasetV2", names, *inputs)))
    assert b"".join([record[:1] for record in found]) == expected
    assert complaint in error.message


async def test_files_are_named_by_a_scalar_or_vector() -> None:
    g = DatasetGraph()
    names = g.const("names", np.array([[b"a"]], object))
    error = await _first_error(g, g("lines", "TextLineDataset", names, g.const("how", b""), g.const("piece", 0)))
    assert "`filenames` must be a scalar or a vector." in error.message


async def test_record_that_exceeds_the_memory_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * (1 << 23))
    async with aexec.Session(_lines(path), config=aexec.SessionConfig(session_bytes=1 << 20)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("next:0")
