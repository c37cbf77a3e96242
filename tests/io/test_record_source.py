from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.io import record_source
from aexec.io.record import Compression, write_records
from aexec.io.record_source import Record


def values(records: Iterator[Record], work: bytes) -> list[tuple[int, bytes]]:
    """(number in the key, value) of each record."""
    assert isinstance(records, Iterator)
    return [(int(key.removeprefix(work + b":")), value) for key, value in records]


@pytest.fixture
def work(tmp_path: Path) -> bytes:
    return str(tmp_path / "f").encode()


def write(work: bytes, data: bytes) -> None:
    Path(work.decode()).write_bytes(data)


def test_text_lines(work: bytes) -> None:
    write(work, b"h1\nh2\r\na\r\nb\rc\n\nlast")
    lines = [(1, b"h1"), (2, b"h2"), (3, b"a"), (4, b"b\rc"), (5, b""), (6, b"last")]
    assert values(record_source.text_lines(work), work) == lines
    assert values(record_source.text_lines(work, 2), work) == lines[2:]
    assert values(record_source.text_lines(work, 20), work) == []
    write(work, b"")
    assert values(record_source.text_lines(work), work) == []


def test_fixed_length_records(work: bytes) -> None:
    write(work, b"HHaabbccddF")
    read = record_source.fixed_length_records
    assert [v for _, v in values(read(work, 2, header_bytes=2, footer_bytes=1), work)] == [b"aa", b"bb", b"cc", b"dd"]
    overlapping = values(read(work, 3, header_bytes=2, hop_bytes=2), work)
    assert overlapping == [(0, b"aab"), (1, b"bbc"), (2, b"ccd"), (3, b"ddF")]
    write(work, gzip.compress(b"HHaabbccddF"))
    sparse = read(work, 3, header_bytes=2, hop_bytes=4, compression=Compression.GZIP)
    assert [v for _, v in values(sparse, work)] == [b"aab", b"ccd"]
    endless = read(work, 0)
    assert [v for _, v in itertools.islice(endless, 5)] == [b""] * 5


@given(st.binary(max_size=40), st.integers(1, 5), st.integers(0, 3), st.integers(0, 3), st.integers(0, 7))
def test_fixed_length_records_against_slices(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, length: int, header: int, footer: int, hop: int
) -> None:
    work = str(tmp_path_factory.getbasetemp() / "fixed").encode()
    write(work, data)
    starts = range(header, len(data) - length - footer + 1, hop or length)
    wanted = [data[s : s + length] for s in starts]
    if len(data) < header:
        with pytest.raises(errors.OutOfRangeError, match="reached end of file"):
            record_source.fixed_length_records(work, length, header_bytes=header)
        return
    got = record_source.fixed_length_records(work, length, header_bytes=header, footer_bytes=footer, hop_bytes=hop)
    assert [v for _, v in got] == wanted


def test_length_that_is_no_length_of_a_file(work: bytes) -> None:
    write(work, b"abc")
    assert list(record_source.fixed_length_records(work, 2**60)) == []


def test_tf_records(work: bytes) -> None:
    write_records(work, [b"a", b"", b"ccc"])
    assert values(record_source.tf_records(work), work) == [(0, b"a"), (17, b""), (33, b"ccc")]
    write_records(work, [b"a", b"bb"], "GZIP")
    assert values(record_source.tf_records(work, Compression.GZIP), work) == [(0, b"a"), (17, b"bb")]


def test_whole_files_and_names(work: bytes) -> None:
    write(work, b"data")
    assert list(record_source.whole_file(work)) == [(work, b"data")]
    assert list(record_source.identity(b"no file")) == [(b"no file", b"no file")]


def test_missing_files_are_refused(work: bytes) -> None:
    for source in (record_source.text_lines, record_source.tf_records):
        with pytest.raises(errors.NotFoundError, match="No such file or directory"):
            source(work)
    with pytest.raises(errors.NotFoundError):
        record_source.fixed_length_records(work, 1)
    with pytest.raises(errors.NotFoundError):
        next(record_source.whole_file(work))
    with pytest.raises(errors.FailedPreconditionError, match="Not a regular file"):
        next(record_source.whole_file(b"/dev/null"))
