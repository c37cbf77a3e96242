"""Bytes of records and examples read in C: the same as Python and protobuf read, and nothing beyond the bytes."""

from __future__ import annotations

import struct
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec import errors, native, proto
from aexec.framework import dtypes
from aexec.io.crc32c import masked_crc32c
from aexec.io.record import RecordReader, write_records
from aexec.kernels.datasets import shuffle_dataset_ops
from aexec.kernels.parsing import feature_columns
from tests.kernels.harness import run_op

needs_records = pytest.mark.skipif(native.records is None, reason="aexec was installed without a C compiler")
KEYS = ["a", "b", "ü", ""]
TYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


@contextmanager
def without_records() -> Iterator[None]:
    records, native.records = native.records, None
    try:
        yield
    finally:
        native.records = records


# ---- Records


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))])


def split(data: bytes) -> tuple[list[bytes], int]:
    assert native.records is not None
    found: tuple[list[bytes], int] = native.records.split_records(data)
    return found


@needs_records
@given(st.lists(st.binary(max_size=40), max_size=5), st.binary(max_size=20))
def test_whole_records_are_split_and_the_rest_is_left(records: list[bytes], rest: bytes) -> None:
    whole = b"".join(map(framed, records))
    assert split(whole + rest) == (records, len(whole))
    for end in range(len(whole)):
        found, used = split(whole[:end])
        assert found == records[: len(found)] and used == len(b"".join(map(framed, found)))


@needs_records
@pytest.mark.parametrize("at", range(len(framed(b"three"))))
def test_record_with_a_wrong_byte_is_left(at: int) -> None:
    damaged = bytearray(framed(b"three"))
    damaged[at] ^= 64
    assert split(framed(b"one") + damaged + framed(b"two")) == ([b"one"], len(framed(b"one")))


@needs_records
def test_length_beyond_all_memory_is_left() -> None:
    length = struct.pack("<Q", 2**64 - 1)
    assert split(length + struct.pack("<I", masked_crc32c(length)) + bytes(30)) == ([], 0)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_file_of_many_pieces_is_read_as_without_the_extension(tmp_path: Path, compression: str) -> None:
    sizes = [*np.random.default_rng(1).integers(0, 3000, 600).tolist(), 100_000, 300_000, 5, 700_000, 0]
    records = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    path = str(tmp_path / "f")
    write_records(path, records, compression)
    with RecordReader(path, compression) as reader:
        assert list(reader) == records
        end = reader.offset
    with without_records(), RecordReader(path, compression) as reader:
        assert list(reader) == records
        assert reader.offset == end


def test_error_comes_after_the_records_before_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    whole = [framed(b"one"), framed(b"two"), framed(b"three")]
    path.write_bytes(b"".join(whole)[:-2])
    with RecordReader(str(path)) as reader:
        records = iter(reader)
        assert [next(records), next(records)] == [b"one", b"two"]
        with pytest.raises(errors.DataLossError, match=f"truncated record at {len(whole[0] + whole[1])}"):
            next(records)


# ---- Elements


@needs_records
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30), st.integers(0, 99))
def test_elements_are_exchanged_as_without_the_extension(size: int, moves: list[tuple[int, int]], empty: int) -> None:
    assert native.records is not None
    places = np.array([place % size for place, _ in moves], np.int64)
    chosen = np.array([other % size for _, other in moves], np.int64)
    found: list[Any] = [(f"kept {place}",) for place in range(size)]
    taken: list[Any] = [(f"new {number}",) for number in range(len(moves))]
    buffer, elements = found.copy(), taken.copy()
    native.records.exchange(found, taken, empty % size, places, chosen)
    shuffle_dataset_ops._exchange(buffer, elements, empty % size, places, chosen)
    assert (found, taken) == (buffer, elements)


@needs_records
@pytest.mark.parametrize(
    ("elements", "empty", "places", "chosen"),
    [
        ([1], 3, [0], [0]),
        ([1], -1, [0], [0]),
        ([1], 0, [3], [0]),
        ([1], 0, [0], [-1]),
        ([1], 0, [0, 1], [0]),
        ([1, 2], 0, [0, 1], [0]),
    ],
)
def test_places_outside_of_the_buffer_are_refused(
    elements: list[int], empty: int, places: list[int], chosen: list[int]
) -> None:
    assert native.records is not None
    buffer, before = ["a", "b", "c"], list(elements)
    with pytest.raises(ValueError, match="two places in the buffer"):
        native.records.exchange(buffer, elements, empty, np.array(places), np.array(chosen))
    assert buffer == ["a", "b", "c"] and elements == before
    with pytest.raises(ValueError, match="two places in the buffer"):
        native.records.exchange(buffer, buffer, 0, np.zeros(3, np.int64), np.zeros(3, np.int64))


class Held:
    """An object that tells when it is freed."""


@needs_records
def test_exchanged_elements_are_referred_to_by_the_lists_alone() -> None:
    assert native.records is not None
    buffer: list[Any] = [None, *[Held() for _ in range(3)]]
    elements: list[Any] = [Held() for _ in range(3)]
    freed: list[int] = []
    for number, held in enumerate([*buffer[1:], *elements]):
        weakref.finalize(held, freed.append, number)
    del held
    native.records.exchange(buffer, elements, 0, np.array([1, 2, 3]), np.array([2, 3, 1]))
    assert freed == [] and buffer[3] is None
    buffer.clear()
    elements.clear()
    assert sorted(freed) == [*range(6)]


# ---- Examples

FEATURES = st.one_of(
    st.lists(st.binary(max_size=5), max_size=4).map(lambda v: {"bytes_list": {"value": v}}),
    st.lists(st.floats(width=32), max_size=4).map(lambda v: {"float_list": {"value": v}}),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda v: {"int64_list": {"value": v}}),
    st.just({}),
)


def example(features: dict[str, Any]) -> bytes:
    made = {key: proto.Feature(**feature) for key, feature in features.items()}
    return proto.Example(features=proto.Features(feature=made)).SerializeToString()


EXAMPLES = st.dictionaries(st.sampled_from(KEYS), FEATURES).map(example)
WANTED = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(sorted(TYPES.values()))), max_size=4)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An example of which bytes were changed, left out, or doubled."""
    data = bytearray(draw(EXAMPLES))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 6))] = draw(st.one_of(st.binary(max_size=3), st.just(bytes(data[at:]))))
    return bytes(data)


def columns(examples: list[bytes], wanted: list[tuple[str, str]]) -> Any:
    """What the extension reads, or None if it leaves the examples to protobuf."""
    features = [(key, dtypes.as_dtype(name)) for key, name in wanted]
    found = feature_columns.read_columns(examples, features)
    return found and [(column.values.tolist(), column.lengths.tolist()) for column in found]


def columns_of_protobuf(examples: list[bytes], wanted: list[tuple[str, str]]) -> Any:
    """The same by protobuf; None if a message is malformed, or a value has another type."""
    kinds = {name: kind for kind, name in TYPES.items()}
    found: list[tuple[list[Any], list[int]]] = [([], []) for _ in wanted]
    for data in examples:
        try:
            features = proto.Example.FromString(data).features.feature
        except Exception:
            return None
        for (key, name), (values, lengths) in zip(wanted, found, strict=True):
            kind = features[key].WhichOneof("kind") if key in features else None
            if kind not in (None, kinds[name]):
                return None
            row = list(getattr(features[key], kind).value) if kind else []
            values += row
            lengths.append(len(row) if kind else -1)
    return found


@needs_records
@settings(max_examples=300)
@given(st.lists(EXAMPLES, max_size=4), WANTED)
def test_examples_of_writers_are_read_as_protobuf_reads_them(
    examples: list[bytes], wanted: list[tuple[str, str]]
) -> None:
    found = columns(examples, wanted)
    if found is None and wanted:
        known = columns_of_protobuf(examples, wanted) is None or len({key for key, _ in wanted}) < len(wanted)
        other_key = any("ü".encode() in data for data in examples) and "ü" not in [key for key, _ in wanted]
        assert known or other_key
    elif wanted:
        np.testing.assert_equal(found, columns_of_protobuf(examples, wanted))


@needs_records
@settings(max_examples=1000)
@given(st.lists(st.one_of(EXAMPLES, damaged(), st.binary(max_size=30)), min_size=1, max_size=3), WANTED)
def test_hostile_examples_are_read_as_protobuf_reads_them_or_left(
    examples: list[bytes], wanted: list[tuple[str, str]]
) -> None:
    found = columns(examples, wanted)
    if found:
        np.testing.assert_equal(found, columns_of_protobuf(examples, wanted))


# Feature a of floats or integers, not packed; the same key twice; a value before its key.
UNPACKED = [
    b"\n\x0e\n\x0c\n\x01a\x12\x07\x12\x05\x0d\0\0\x80?",
    b"\n\x0f\n\r\n\x01a\x12\x08\x1a\x06\x08\x07\n\x02\x08\x09",
]


@needs_records
def test_values_that_are_not_packed() -> None:
    assert columns([UNPACKED[0]], [("a", "float32")]) == [([1.0], [1])]
    assert columns([UNPACKED[1]], [("a", "int64")]) == [([7, 8, 9], [3])]
    for data, name in zip(UNPACKED, ("float32", "int64"), strict=True):
        assert columns([data], [("a", name)]) == columns_of_protobuf([data], [("a", name)])


@needs_records
def test_messages_of_other_writers_are_left() -> None:
    entry = b"\n\x01a\x12\x05\x1a\x03\n\x01\x03"
    once = bytes([10, len(entry)]) + entry
    empty = b"\n\x05\n\x01a\x12\x00"
    swapped = b"\n\x0a\x12\x05\x1a\x03\n\x01\x03\n\x01a"
    for features in (once + once, once + empty, swapped, once + b"\x10\x01"):
        data = bytes([10, len(features)]) + features
        proto.Example.FromString(data)
        assert columns([data], [("a", "int64")]) is None
    assert columns([bytes([10, len(once)]) + once], [("a", "int64")]) == [([3], [1])]


@needs_records
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([b""], [b"a"], b""), ValueError),
        (([b""], [b"a"], b"\x04"), ValueError),
        (([b""], ["a"], b"\x01"), TypeError),
        ((["text"], [b"a"], b"\x01"), TypeError),
        (((b"",), [b"a"], b"\x01"), TypeError),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        native.records.parse_examples(*arguments)  # type: ignore[union-attr]


def parsed(examples: list[bytes], dense: dict[str, Any], **attrs: Any) -> Any:
    """The outputs of ParseExampleV2, or its error's text."""
    none = np.empty(0, object)
    sparse = attrs.pop("sparse", {})
    keys = [np.array([key.encode() for key in some], object) for some in (sparse, dense)]
    inputs = [np.array(examples, object), none, *keys, none, list(dense.values())]
    attrs = {
        "num_sparse": len(sparse),
        "sparse_types": list(sparse.values()),
        "ragged_value_types": [],
        "ragged_split_types": [],
        **attrs,
    }
    try:
        return [output.tolist() for output in run_op("ParseExampleV2", inputs, **attrs)]
    except errors.InvalidArgumentError as error:
        return error.message


@pytest.mark.parametrize("shape", [[2], [-1], [-1, 2]])
@given(st.lists(EXAMPLES, min_size=1, max_size=4))
def test_kernel_gives_the_same_without_the_extension(shape: list[int], examples: list[bytes]) -> None:
    default = np.zeros([abs(size) for size in shape] if shape == [2] else 1, np.int64)
    with_sparse: dict[str, Any] = {"dense_shapes": [shape], "sparse": {"b": "float32"}}
    found = parsed(examples, {"a": default}, **with_sparse)
    with without_records():
        np.testing.assert_equal(found, parsed(examples, {"a": default}, **with_sparse))


def test_many_examples_are_read_in_pieces() -> None:
    examples = [example({"a": {"int64_list": {"value": [number]}}}) for number in range(2500)]
    examples += [example({"a": {"int64_list": {"value": [number] * 100_000}}}) for number in range(3)]
    found = columns(examples, [("a", "int64")])
    if native.records is not None:
        assert found[0][1] == [1] * 2500 + [100_000] * 3
        assert found[0][0][:2500] == list(range(2500)) and found[0][0][-1] == 2


def test_extension_of_another_revision_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("aexec.native._records")
    monkeypatch.setitem(sys.modules, "aexec.native._records", old)
    with pytest.warns(RuntimeWarning, match="install aexec again"):
        assert native._found("_records") is None
    old.REVISION = native._REVISIONS["_records"]  # type: ignore[attr-defined]
    assert native._found("_records") is old
    monkeypatch.setenv("AEXEC_NATIVE", "0")
    assert native._found("_records") is None


@needs_records
def test_sources_have_the_revision_that_is_needed() -> None:
    assert native.records is not None and native._REVISIONS["_records"] == native.records.REVISION
