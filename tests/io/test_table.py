from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.io.crc32c import masked_crc32c
from aexec.io.table import Table, TableBuilder

DATA = Path(__file__).parent / "data" / "checkpoints"


def build(entries: dict[bytes, bytes], block_size: int = 262144) -> bytes:
    builder = TableBuilder(block_size)
    for key in sorted(entries):
        builder.add(key, entries[key])
    return builder.finish()


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.index")), ids=lambda p: p.name)
def test_tables_that_tensorflow_wrote(path: Path) -> None:
    data = path.read_bytes()
    entries = dict(Table(data).items())
    assert build(entries) == data


@given(
    st.dictionaries(st.binary(max_size=6), st.binary(max_size=40), max_size=80),
    st.sampled_from([1, 60, 200, 262144]),
    st.lists(st.binary(max_size=6), max_size=10),
)
def test_against_a_dict(entries: dict[bytes, bytes], block_size: int, others: list[bytes]) -> None:
    table = Table(build(entries, block_size))
    assert list(table.items()) == sorted(entries.items())
    for key in [*entries, *others]:
        assert table.get(key) == entries.get(key)


def test_keys_have_to_ascend() -> None:
    builder = TableBuilder()
    builder.add(b"b", b"")
    with pytest.raises(errors.InvalidArgumentError, match="ascend"):
        builder.add(b"b", b"")


@pytest.mark.parametrize(
    ("data", "message"), [(b"x", "too short"), (b"x" * 100, r"not an sstable \(bad magic number\)")]
)
def test_what_is_no_table(data: bytes, message: str) -> None:
    with pytest.raises(errors.DataLossError, match=message):
        Table(data)


def test_a_block_that_is_compressed() -> None:
    data = bytearray(build({b"k": b"value"}))
    # The first block: 1 + 1 + 1 + 1 + 5 bytes of an entry, two numbers of restarts, then its type.
    end = 9 + 8
    data[end] = 1
    data[end + 1 : end + 5] = struct.pack("<I", masked_crc32c(bytes(data[: end + 1])))
    with pytest.raises(errors.UnimplementedError, match="snappy"):
        Table(bytes(data)).get(b"k")
    data[end] = 7
    data[end + 1 : end + 5] = struct.pack("<I", masked_crc32c(bytes(data[: end + 1])))
    with pytest.raises(errors.DataLossError, match="bad block type 7"):
        Table(bytes(data)).get(b"k")


WHOLE = build({b"key%03d" % i: b"value" * (i % 4) for i in range(60)}, 200)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_byte_that_changed_is_noticed(position: int, change: int) -> None:
    damaged = WHOLE[:position] + bytes([WHOLE[position] ^ change]) + WHOLE[position + 1 :]
    try:
        entries = list(Table(damaged).items())
    except errors.DataLossError:
        return
    # Only the padding of the footer and the handle of the empty block are not looked at.
    assert entries == list(Table(WHOLE).items())


@given(st.binary(max_size=60), st.lists(st.integers(0, 80), max_size=3))
def test_blocks_of_anything(body: bytes, restarts: list[int]) -> None:
    """Blocks with a right checksum and arbitrary content give entries in order, or DataLossError."""
    contents = body + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    builder = TableBuilder()
    index = builder._write(_Raw(contents))  # type: ignore[arg-type]
    footer = b"\0\0" + bytes([index[0], index[1]])
    data = bytes(builder._out) + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    try:
        table = Table(data)
        keys = [key for key, _ in table.items()]
        table.get(b"k")
    except errors.DataLossError:
        return
    assert keys == sorted(keys)


class _Raw:
    def __init__(self, contents: bytes) -> None:
        self.contents = contents

    def finish(self) -> bytes:
        return self.contents
