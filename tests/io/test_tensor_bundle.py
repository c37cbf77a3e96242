from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors, proto
from aexec.framework import dtypes
from aexec.io.table import Table, TableBuilder
from aexec.io.tensor_bundle import BundleReader, BundleWriter, index_path, merge_bundles, remove_bundle
from aexec.io.tensor_slice import TensorSlice
from tests.conformance.cases import decode
from tests.support.crashes import crash_at_every_write

DATA = Path(__file__).parent / "data" / "checkpoints"
FOLDERS = sorted(path.parent for path in DATA.glob("*/expected.json"))


def save(prefix: Any, **tensors: Any) -> str:
    with BundleWriter(str(prefix)) as writer:
        for name, value in tensors.items():
            writer.add(name, np.asarray(value))
    return str(prefix)


def load(prefix: Any) -> dict[str, Any]:
    with BundleReader(str(prefix)) as reader:
        return {name: reader.read(name).tolist() for name in reader.keys()}  # noqa: SIM118


def edited(prefix: str, key: bytes, **fields: Any) -> None:
    """Change an entry of the index, checksums of the index being right."""
    path = Path(index_path(prefix))
    builder = TableBuilder()
    for name, value in Table(path.read_bytes()).items():
        if name == key:
            message = (proto.BundleEntryProto if key else proto.BundleHeaderProto).FromString(value)
            message.MergeFrom(type(message)(**fields))
            value = message.SerializeToString()
        builder.add(name, value)
    path.write_bytes(builder.finish())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_checkpoints_that_tensorflow_wrote(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    arrays = dict(np.load(folder / "expected.npz"))
    with BundleReader(str(folder / expected["prefix"])) as reader:
        assert list(reader.keys()) == sorted(expected["tensors"])
        for name, entry in expected["tensors"].items():
            want = decode(arrays, entry["key"], entry["dtype"])
            assert reader.dtype_and_shape(name) == (dtypes.as_dtype(entry["dtype"]), tuple(entry["shape"]))
            got = reader.read(name)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert got.tolist() == want.tolist() or (got.tobytes() == want.tobytes() and got.dtype != object)
            assert got.dtype == object or got.base is None  # it may be taken over without a copy


def test_written_as_tensorflow_writes(tmp_path: Path) -> None:
    """A checkpoint of whole tensors, written again in the order of its data, is the same bytes."""
    source = DATA / "tf2_object" / "object"
    with BundleReader(str(source)) as reader, BundleWriter(str(tmp_path / "object")) as writer:
        entries = sorted(reader.entries(), key=lambda item: item[1].offset)
        for key, _ in entries:
            writer.add(key, reader.read(key))
    for name in ("object.index", "object.data-00000-of-00001"):
        assert (tmp_path / name).read_bytes() == (DATA / "tf2_object" / name).read_bytes()


def test_tensor_lists_that_tensorflow_wrote(tmp_path: Path) -> None:
    """Variants: a list of two vectors, and one of three matrices of which only the second is set."""
    with BundleReader(str(DATA / "variants" / "lists")) as reader:
        whole, partial = reader.read("l").item(), reader.read("l2").item()
        assert [element.tolist() for element in whole.elements] == [[1, 2], [3, 4]]
        assert (whole.dtype, str(whole.element_shape), whole.max_elements) == (dtypes.float32, "[2]", -1)
        assert [e if e is None else e.tolist() for e in partial.elements] == [None, [[1, 2, 3]], None]
        assert (partial.dtype, str(partial.element_shape)) == (dtypes.int32, "[?,3]")
        with BundleWriter(str(tmp_path / "lists")) as writer:
            for name in ("l", "l2"):
                writer.add(name, reader.read(name), dtypes.variant)
    with BundleReader(str(tmp_path / "lists")) as reader:
        assert [e is None for e in reader.read("l2").item().elements] == [True, False, True]
    path = tmp_path / "lists.data-00000-of-00001"
    data = path.read_bytes()
    path.write_bytes(data[:40] + b"?" + data[41:])
    with BundleReader(str(tmp_path / "lists")) as reader, pytest.raises(errors.DataLossError, match="variant"):
        reader.read("l")


def test_partitioned_tensors_are_written_as_tensorflow_writes(tmp_path: Path) -> None:
    source = DATA / "v1_saver_partitioned" / "model.ckpt-12"
    with BundleReader(str(source)) as reader, BundleWriter(str(tmp_path / "c")) as writer:
        for name in reader.keys():  # noqa: SIM118
            entry = reader.entry(name)
            shape = [d.size for d in entry.shape.dim]
            for message in entry.slices:
                box = TensorSlice.from_proto(message)
                writer.add_slice(name, shape, box, reader.read_slice(name, box))
            if not entry.slices:
                writer.add(name, reader.read(name))
    with BundleReader(str(source)) as theirs, BundleReader(str(tmp_path / "c")) as ours:
        for (key, their), (our_key, our) in zip(theirs.entries(), ours.entries(), strict=True):
            assert (key, their.crc32c, their.size, their.shape) == (our_key, our.crc32c, our.size, our.shape)
            assert list(their.slices) == list(our.slices)


arrays = st.one_of(
    st.lists(st.floats(width=32, allow_nan=False), max_size=5).map(lambda v: np.array(v, np.float32)),
    st.lists(st.binary(max_size=300), max_size=4).map(lambda v: np.fromiter(v, object, len(v))),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.sampled_from(
        [
            np.zeros((0, 3), np.complex64),
            np.array(True),
            np.ones((2, 3, 1), ml_dtypes.bfloat16),
            np.arange(6).reshape(2, 3).T,
        ]
    ),
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), arrays, max_size=5))
def test_saved_tensors_are_read_back(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Any]) -> None:
    tensors = {name: value for name, value in tensors.items() if not name.startswith("\0")}
    prefix = str(tmp_path_factory.getbasetemp() / "bundle")
    with BundleWriter(prefix) as writer:
        for name, value in tensors.items():
            writer.add(name, value)
    with BundleReader(prefix) as reader:
        assert list(reader.keys()) == sorted(tensors, key=str.encode)
        for name, value in tensors.items():
            got = reader.read(name)
            assert (got.dtype, got.shape, got.tolist()) == (value.dtype, value.shape, value.tolist())


def test_variants_and_quantised_types(tmp_path: Path) -> None:
    values = np.fromiter([1, 2.5, None], object, 3)
    with BundleWriter(str(tmp_path / "c")) as writer:
        writer.add("v", values, dtypes.variant)
        writer.add("q", np.array([1, 2], np.int8), dtypes.qint8)
        with pytest.raises(errors.UnimplementedError, match="resource"):
            writer.add("r", values, dtypes.resource)
    with BundleReader(str(tmp_path / "c")) as reader:
        assert reader.read("v").tolist() == [1, 2.5, None]
        assert reader.dtype_and_shape("q") == (dtypes.qint8, (2,))


@given(st.data())
def test_slices_against_numpy(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = np.arange(42, dtype=np.int32).reshape(7, 6)
    cut, across = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    boxes = [((0, cut), (0, -1)), ((cut, 7 - cut), (0, across)), ((cut, 7 - cut), (across, 6 - across))]
    prefix = str(tmp_path_factory.getbasetemp() / "sliced")
    with BundleWriter(prefix) as writer:
        for extents in data.draw(st.permutations(boxes)):
            box = TensorSlice(extents)
            writer.add_slice("t", whole.shape, box, whole[box.within(whole.shape)])
        writer.add("u", whole)
    start, column = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 5))
    wanted = TensorSlice(
        ((start, data.draw(st.integers(1, 7 - start))), (column, data.draw(st.integers(1, 6 - column))))
    )
    with BundleReader(prefix) as reader:
        assert list(reader.keys()) == ["t", "u"]
        for name in ("t", "u"):
            assert reader.read(name).tolist() == whole.tolist()
            assert reader.read_slice(name, wanted).tolist() == whole[wanted.within(whole.shape)].tolist()


def test_invalid_tensors_are_not_written(tmp_path: Path) -> None:
    writer = BundleWriter(str(tmp_path / "c"))
    writer.add("a", np.float32(1))
    half = TensorSlice.parse("0,2")
    writer.add_slice("s", [4], half, np.zeros(2))
    for add, message in (
        (lambda: writer.add("a", np.float32(1)), "Adding duplicate key: a"),
        (lambda: writer.add("", np.float32(1)), "needs a name"),
        (lambda: writer.add_slice("a", [4], half, np.zeros(2)), "disagree"),
        (lambda: writer.add_slice("s", [5], half, np.zeros(2)), "disagree"),
        (lambda: writer.add_slice("s", [4], half, np.zeros(2)), "duplicate"),
        (lambda: writer.add_slice("s", [4], half, np.zeros(3)), "another shape"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            add()
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError), BundleWriter(str(tmp_path / "c")) as writer:
        writer.add("", np.float32(1))
    assert not list(tmp_path.iterdir())


def test_missing_files_and_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="No such file or directory"):
        BundleReader(str(tmp_path / "c"))
    prefix = save(tmp_path / "c", a=1)
    with BundleReader(prefix) as reader:
        assert "a" in reader
        assert "b" not in reader
        with pytest.raises(errors.NotFoundError, match="Key b not found in checkpoint"):
            reader.read("b")
    (tmp_path / "c.data-00000-of-00001").unlink()
    with BundleReader(prefix) as reader, pytest.raises(errors.NotFoundError, match="data-00000-of-00001"):
        reader.read("a")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(errors.FailedPreconditionError, match="is not a directory"):
        BundleWriter(str(tmp_path / "f" / "c"))


def test_damaged_data(tmp_path: Path) -> None:
    prefix = save(tmp_path / "c", a=np.arange(3), s=np.array([b"abc", b"d"], object))
    path = tmp_path / "c.data-00000-of-00001"
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(errors.DataLossError):
            load(prefix)
    path.write_bytes(whole[:-1])
    with BundleReader(prefix) as reader, pytest.raises(errors.DataLossError, match="cut off"):
        reader.read("s")


@pytest.mark.parametrize(
    ("key", "fields", "error", "message"),
    [
        (b"a", {"shard_id": 1}, errors.DataLossError, "shard 1"),
        (b"a", {"offset": 2**40}, errors.DataLossError, "bytes, not 24"),
        (b"a", {"offset": -1}, errors.DataLossError, "bytes, not 24"),
        (
            b"a",
            {"size": 8},
            errors.DataLossError,
            "Invalid size in bundle entry: key a; stored size 8; expected size 24",
        ),
        (b"a", {"dtype": "DT_RESOURCE"}, errors.DataLossError, "impossible type"),
        (b"a", {"dtype": "DT_FLOAT_REF"}, errors.DataLossError, "impossible type"),
        (b"a", {"dtype": "DT_STRING"}, errors.DataLossError, "length checksum|do not"),
        (b"a", {"crc32c": 1}, errors.DataLossError, "Checksum does not match: stored"),
        (b"a", {"shape": {"dim": [{"size": 2**40}] * 3}}, errors.DataLossError, "impossible shape"),
        (b"a", {"shape": {"dim": [{"size": 2**40}]}}, errors.DataLossError, "Invalid size"),
        (b"", {"endianness": 1}, errors.UnimplementedError, "endianness"),
        (b"", {"version": {"min_consumer": 2}}, errors.InvalidArgumentError, "min consumer version 2"),
    ],
)
def test_indexes_that_lie(tmp_path: Path, key: bytes, fields: Any, error: type[Exception], message: str) -> None:
    prefix = save(tmp_path / "c", a=np.arange(3))
    edited(prefix, key, **fields)
    with pytest.raises(error, match=message), BundleReader(prefix) as reader:
        reader.read("a")


def test_slices_that_lie(tmp_path: Path) -> None:
    prefix = str(tmp_path / "c")
    with BundleWriter(prefix) as writer:
        writer.add_slice("t", [4], TensorSlice.parse("0,2"), np.zeros(2))
        writer.add_slice("t", [4], TensorSlice.parse("2,1"), np.zeros(1))
    with BundleReader(prefix) as reader:
        with pytest.raises(
            errors.InvalidArgumentError, match="Does not have sufficient slices for partitioned tensor t"
        ):
            reader.read("t")
        assert reader.read_slice("t", TensorSlice.parse("1,2")).tolist() == [0, 0]
    edited(prefix, b"t", slices=[{"extent": [{"start": 1, "length": 2}]}])
    with BundleReader(prefix) as reader, pytest.raises(errors.DataLossError, match="overlap"):
        reader.read("t")


def test_index_without_header_or_with_rubbish(tmp_path: Path) -> None:
    for entries, message in (({b"a": b""}, "no header"), ({b"": b"\xff"}, "no BundleHeaderProto")):
        builder = TableBuilder()
        for key, value in entries.items():
            builder.add(key, value)
        (tmp_path / "c.index").write_bytes(builder.finish())
        with pytest.raises(errors.DataLossError, match=message):
            BundleReader(str(tmp_path / "c"))


# Replacing, merging and crashing


def test_checkpoint_is_replaced_and_removed(tmp_path: Path) -> None:
    prefix = save(tmp_path / "c", a=1)
    save(tmp_path / "c-other", a=5)
    save(prefix, a=2, b=3)
    save(prefix, a=3)
    assert load(prefix) == {"a": 3}
    assert len(list(tmp_path.iterdir())) == 4
    remove_bundle(prefix)
    remove_bundle(prefix)
    assert load(tmp_path / "c-other") == {"a": 5}
    assert len(list(tmp_path.iterdir())) == 2


def test_merging(tmp_path: Path) -> None:
    first, second = save(tmp_path / "t" / "1", a=1, b=[2]), save(tmp_path / "t" / "2", c=3)
    merge_bundles([first, second, str(tmp_path / "no")], str(tmp_path / "out" / "c"), allow_missing=True)
    assert load(tmp_path / "out" / "c") == {"a": 1, "b": [2], "c": 3}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "c.data-00000-of-00002",
        "c.data-00001-of-00002",
        "c.index",
    ]
    assert not list((tmp_path / "t").iterdir())


def test_merging_what_was_replaced(tmp_path: Path) -> None:
    """A replaced checkpoint counts data files that do not exist."""
    first = save(tmp_path / "1", a=0)
    save(first, a=1)
    merge_bundles([first, save(tmp_path / "2", empty=np.zeros((0,)), b=2)], str(tmp_path / "c"))
    assert load(tmp_path / "c") == {"a": 1, "b": 2, "empty": []}


def test_merging_slices_of_one_tensor(tmp_path: Path) -> None:
    for number, box in enumerate(("0,2", "2,3")):
        with BundleWriter(str(tmp_path / str(number))) as writer:
            part = TensorSlice.parse(box)
            writer.add_slice("t", [5], part, np.arange(5)[part.within([5])])
    merge_bundles([str(tmp_path / "0"), str(tmp_path / "1")], str(tmp_path / "c"))
    assert load(tmp_path / "c") == {"t": [0, 1, 2, 3, 4]}


def test_conflicting_bundles_are_not_merged(tmp_path: Path) -> None:
    first, second = save(tmp_path / "1", a=1), save(tmp_path / "2", a=1)
    with pytest.raises(
        errors.InvalidArgumentError, match="Duplicate tensor keyed by a encountered, when merging prefix"
    ):
        merge_bundles([first, second], str(tmp_path / "c"))
    with pytest.raises(errors.InvalidArgumentError, match="allow_missing_files was set to false"):
        merge_bundles([first, str(tmp_path / "no")], str(tmp_path / "c"))
    with pytest.raises(errors.InvalidArgumentError, match="At least one prefix checkpoint file must exist"):
        merge_bundles([str(tmp_path / "no")], str(tmp_path / "c"), allow_missing=True)
    assert load(first) == load(second) == {"a": 1}


def test_crash_while_replacing_leaves_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    prefix = tmp_path / "c"
    old, new = {"a": 1, "s": [b"x"]}, {"a": 2, "s": [b"y" * 100]}

    def write(values: dict[str, Any]) -> None:
        save(prefix, a=values["a"], s=np.array(values["s"], object))

    write(old)
    seen = []
    for _ in crash_at_every_write(lambda: write(new)):
        seen.append(load(prefix))
        write(old)
    assert load(prefix) == new
    assert {json.dumps(s, default=repr) for s in seen} == {json.dumps(s, default=repr) for s in (old, new)}
    assert len(seen) > 10


def test_crash_while_merging_leaves_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    prefix = tmp_path / "c"

    def prepare() -> None:
        save(prefix, a=1)
        save(tmp_path / "t1", a=2)
        save(tmp_path / "t2", b=3)

    prepare()
    seen = []
    for _ in crash_at_every_write(lambda: merge_bundles([str(tmp_path / "t1"), str(tmp_path / "t2")], str(prefix))):
        seen.append(load(prefix))
        prepare()
    assert load(prefix) == {"a": 2, "b": 3}
    assert all(s in ({"a": 1}, {"a": 2, "b": 3}) for s in seen)
