from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors, proto
from aexec.io import record
from aexec.io.record import RecordReader, RecordWriter, read_records, write_records
from aexec.io.record_source import text_lines

DATA = Path(__file__).parent / "data" / "records"
FILES = [("examples.tfrecord", ""), ("examples.tfrecord.gz", "GZIP"), ("examples.tfrecord.zlib", "ZLIB")]


@pytest.mark.parametrize(("name", "compression"), FILES)
def test_files_that_tensorflow_wrote(name: str, compression: str) -> None:
    stored = json.loads((DATA / "examples.json").read_text())
    entries = stored if isinstance(stored, list) else stored["records"]
    wanted = [base64.b64decode(e if isinstance(e, str) else e["base64"]) for e in entries]
    assert list(read_records(str(DATA / name), compression)) == wanted


def test_written_as_tensorflow_writes(tmp_path: Path) -> None:
    records = list(read_records(str(DATA / "examples.tfrecord")))
    write_records(str(tmp_path / "f"), records)
    assert (tmp_path / "f").read_bytes() == (DATA / "examples.tfrecord").read_bytes()


@pytest.mark.parametrize("compression", ["", "GZIP", b"ZLIB"])
@given(records=st.lists(st.binary(max_size=300), max_size=5))
def test_written_records_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, compression: str, records: list[bytes]
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "records")
    with RecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
            writer.flush()
    assert list(read_records(path, compression)) == records


def test_large_record_and_joined_gzip_files(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_records(str(path), [bytes(3_000_000)])
    assert list(read_records(str(path))) == [bytes(3_000_000)]
    path.write_bytes(gzip.compress(path.read_bytes()) + gzip.compress(path.read_bytes()))
    assert [len(r) for r in read_records(str(path), "GZIP")] == [3_000_000] * 2


def test_seeking(tmp_path: Path) -> None:
    for compression in ("", "GZIP"):
        path = str(tmp_path / "f")
        write_records(path, [b"one", b"two", b"three"], compression)
        with RecordReader(path, compression) as reader:
            reader.read()
            place = reader.offset
            assert reader.read() == b"two"
            if compression:
                with pytest.raises(errors.InvalidArgumentError, match="backwards"):
                    reader.seek(place)
            else:
                reader.seek(place)
                assert reader.read() == b"two"
        with RecordReader(path, compression) as reader:
            reader.seek(place)
            assert list(reader) == [b"two", b"three"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"garbage that is long enough", r"corrupted record at 0 \(Is this even a TFRecord file\?\)"),
        (b"short", "truncated record at 0"),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(errors.DataLossError, match=message):
        list(read_records(str(tmp_path / "f")))


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_records(str(path), [b"one", b"two"])
    whole = path.read_bytes()
    for end in range(20, len(whole)):
        path.write_bytes(whole[:end])
        if end == 19:
            continue
        with pytest.raises(errors.DataLossError, match="truncated record at 19"):
            list(read_records(str(path)))
    path.write_bytes(whole[:-6] + b"?" + whole[-5:])
    with pytest.raises(errors.DataLossError, match="corrupted record at 19"):
        list(read_records(str(path)))
    path.write_bytes(whole)
    with pytest.raises(errors.DataLossError, match="inflate"):
        list(read_records(str(path), "ZLIB"))


def test_length_that_is_a_lie_allocates_nothing(tmp_path: Path) -> None:
    import struct

    from aexec.io.crc32c import masked_crc32c

    length = struct.pack("<Q", 2**62)
    (tmp_path / "f").write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"few")
    with pytest.raises(errors.DataLossError, match="truncated"):
        list(read_records(str(tmp_path / "f")))


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="No such file or directory"):
        RecordReader(str(tmp_path / "no"))
    with pytest.raises(errors.NotFoundError, match="No such file or directory"):
        RecordWriter(str(tmp_path / "no" / "no"))
    with pytest.raises(errors.InvalidArgumentError, match="Unsupported compression_type:LZ4"):
        RecordReader(str(tmp_path / "no"), "LZ4")
    with pytest.raises(errors.InvalidArgumentError, match="NUL"):
        RecordReader("a\0b")


def test_event_file_that_tensorflow_wrote() -> None:
    """Its records are Events, the first of which tells the version of the file."""
    stored = json.loads((DATA / "events.json").read_text())["events"]
    wanted = [json_format.ParseDict(event, proto.Event()) for event in stored]
    records = read_records(str(DATA / "events.out.tfevents.1700000000.host"))
    assert [proto.Event.FromString(record) for record in records] == wanted
    assert wanted[0].file_version == "brain.Event:2"


def test_small_file_that_holds_more_than_there_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "bomb")
    write_records(path, [bytes(8 << 20)], "GZIP")
    monkeypatch.setattr(record, "_UNCHECKED_BYTES", 1 << 20)
    assert list(read_records(path, "GZIP")) == [bytes(8 << 20)]
    monkeypatch.setattr(record, "available_memory", lambda: 2 << 20)
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when decompressing 8388608 bytes"):
        list(read_records(path, "GZIP"))


def test_pipe_is_no_file_of_records(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    for source in (lambda: list(read_records(path)), lambda: list(text_lines(path.encode()))):
        with pytest.raises(errors.FailedPreconditionError, match="Not a regular file"):
            source()
    with pytest.raises(errors.FailedPreconditionError, match="directory"):
        list(read_records(str(tmp_path)))
