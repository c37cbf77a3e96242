from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec.io.snappy
from aexec import errors
from aexec.framework.wire.wire_format import put_varint
from aexec.io.crc32c import masked_crc32c
from aexec.io.snappy import uncompress
from aexec.io.table import Table, TableBuilder
from aexec.io.tensor_bundle import BundleReader, BundleWriter

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
def test_invalid_tables_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(errors.DataLossError, match=message):
        Table(data)


def test_block_of_no_known_type() -> None:
    data = bytearray(build({b"k": b"value"}))
    # The first block: 1 + 1 + 1 + 1 + 5 bytes of an entry, two numbers of restarts, then its type.
    end = 9 + 8
    data[end] = 7
    data[end + 1 : end + 5] = struct.pack("<I", masked_crc32c(bytes(data[: end + 1])))
    with pytest.raises(errors.DataLossError, match="bad block type 7"):
        Table(bytes(data)).get(b"k")


class SnappyBuilder(TableBuilder):
    """Compresses each block, as `table::Options().compression = kSnappyCompression` does."""

    def compress(self, contents: bytes) -> bytes:
        return bytes(cramjam.snappy.compress_raw(contents))

    def _write(self, block: Any) -> tuple[int, int]:
        contents = self.compress(block.finish())
        handle = (len(self._out), len(contents))
        self._out += contents + b"\x01" + struct.pack("<I", masked_crc32c(contents + b"\x01"))
        return handle


ENTRIES = {b"key%04d" % i: b"value" * (i % 7) for i in range(500)}


class TestSnappy:
    def build(self, kind: type[TableBuilder] = SnappyBuilder, block_size: int = 1000) -> bytes:
        builder = kind(block_size)
        for key, value in ENTRIES.items():
            builder.add(key, value)
        return builder.finish()

    def test_compressed_table_is_read(self) -> None:
        data = self.build()
        assert len(data) < len(build(ENTRIES, 1000)) / 2
        table = Table(data)
        assert dict(table.items()) == ENTRIES
        assert [table.get(key) for key in ENTRIES] == list(ENTRIES.values())
        assert table.get(b"key") is None

    def test_kept_blocks_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aexec.io.table, "_MAX_KEPT", 3000)
        table = Table(self.build())
        for _ in range(2):
            assert dict(table.items()) == ENTRIES
            assert sum(block.size for block in table._blocks.values()) == table._kept <= 3000

    @pytest.mark.parametrize("length", [23 * 7, 2**28 + 1, 2**32 - 1, 2**35])
    def test_length_that_it_cannot_have_is_refused_before_it_is_unpacked(
        self, length: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Bomb(SnappyBuilder):
            def compress(self, contents: bytes) -> bytes:
                return put_varint(length).ljust(7, b"x")

        monkeypatch.setattr(cramjam.snappy, "decompress_raw", lambda data: pytest.fail("was unpacked"))
        with pytest.raises(errors.DataLossError, match=r"declares that it holds|corrupted compressed"):
            Table(self.build(Bomb))

    def test_more_than_a_block_may_hold_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aexec.io.snappy, "MAX_LENGTH", 900)
        with pytest.raises(errors.DataLossError, match=r"declares that it holds 10\d\d, expected at most .* and 900"):
            dict(Table(self.build()).items())

    @pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:-3], lambda c: c + b"x"])
    def test_contents_that_are_corrupt(self, damage: Callable[[bytes], bytes]) -> None:
        class Corrupt(SnappyBuilder):
            def compress(self, contents: bytes) -> bytes:
                return damage(super().compress(contents))

        with pytest.raises(errors.DataLossError, match="corrupted compressed block contents"):
            Table(self.build(Corrupt))

    @given(st.binary(max_size=200))
    def test_contents_of_anything(self, contents: bytes) -> None:
        """An exact copy of what went in, or DataLossError."""
        try:
            found = uncompress(contents)
        except errors.DataLossError:
            return
        assert uncompress(bytes(cramjam.snappy.compress_raw(found))) == found

    def test_checkpoint_whose_index_is_compressed(self, tmp_path: Path) -> None:
        """As older versions of TensorFlow wrote them, SavedModels' variables among them."""
        weights = np.arange(12, dtype=np.float32).reshape(3, 4)
        with BundleWriter(str(tmp_path / "model")) as writer:
            writer.add("weights", weights)
            writer.add("words", np.array([b"a", b"bc"], object))
        index = tmp_path / "model.index"
        builder = SnappyBuilder()
        for key, value in Table(index.read_bytes()).items():
            builder.add(key, value)
        index.write_bytes(builder.finish())
        with BundleReader(str(tmp_path / "model")) as reader:
            assert reader.read("weights").tolist() == weights.tolist()
            assert reader.read("words").tolist() == [b"a", b"bc"]


WHOLE = build({b"key%03d" % i: b"value" * (i % 4) for i in range(60)}, 200)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_byte_that_changed_is_noticed(position: int, change: int) -> None:
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
