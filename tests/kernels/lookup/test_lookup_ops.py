"""Table ops in sessions: names and handles, files, and checks of types."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import DType, int32, int64, string
from aexec.framework.shape import PartialTensorShape
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.support.programs.graphs import GraphBuilder


def _table(op: str = "HashTableV2", key: DType = string, value: DType = int64, **attrs: Any) -> GraphBuilder:
    """A table `t`, with `find` and `insert` for placeholders `k` and `v`, and `size` and `export`."""
    g = GraphBuilder()
    g.placeholder("k", key)
    g.placeholder("v", value)
    # The key of empty slots; newer generations have one of deleted entries, too.
    reserved = 0 if "Dense" not in op else 1 if op == "MutableDenseHashTable" else 2
    keys = [g.const(f"reserved_{n}", -n, key) for n in range(1, reserved + 1)]
    g("t", op, *keys, key_dtype=key, value_dtype=value, **attrs)
    types = {"Tin": key, "Tout": value}
    version = "V2" if op.endswith("V2") or op.startswith("Anonymous") else ""
    g("find", "LookupTableFind" + version, "t", "k", "v", **types)
    g("insert", "LookupTableInsert" + version, "t", "k", "v", **types)
    g("initialize", "InitializeTable" + version, "t", "k", "v", Tkey=key, Tval=value)
    g("size", "LookupTableSize" + version, "t")
    g("import", "LookupTableImport" + version, "t", "k", "v", **types)
    g("export", "LookupTableExport" + version, "t", Tkeys=key, Tvalues=value)
    return g


def _strings(*values: bytes) -> Any:
    return np.array(values, object)


@pytest.mark.parametrize(
    "op",
    [
        "HashTable",
        "HashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
    ],
)
async def test_entries_outlive_the_step(op: str) -> None:
    """What one step puts into a table, another one finds."""
    key = int64 if "Dense" in op else string
    keys = np.array([5, 6]) if key is int64 else _strings(b"a", b"b")
    async with aexec.Session(_table(op, key).graph()) as session:
        fill = "insert" if "Mutable" in op else "initialize"
        await session.run([], {"k": keys, "v": np.array([1, 2])}, targets=[fill])
        found, size = await session.run(["find:0", "size:0"], {"k": keys[::-1], "v": np.int64(9)})
        assert found.tolist() == [2, 1]
        assert size == 2
        got = await session.run(["export:0", "export:1"])
        assert sorted(np.ravel(got[1]).tolist()) == [1, 2]


async def test_anonymous_tables_go_with_their_last_handle() -> None:
    """Each step gets a table of its own, of which nothing is left."""
    g = _table("AnonymousMutableHashTable", int64)
    g("later", "LookupTableSizeV2", "t", "^insert")
    async with aexec.Session(g.graph()) as session:
        for _ in range(3):
            assert await session.run("later:0", {"k": np.array([1, 2]), "v": np.array([1, 2])}) == 2
        gc.collect()
        assert session.resources.statistics().resources == 0


@pytest.mark.parametrize("op", ["AnonymousHashTable", "AnonymousMutableDenseHashTable"])
async def test_other_anonymous_tables_live_as_long(op: str) -> None:
    g = _table(op, int64)
    g("later", "LookupTableSizeV2", "t", "^initialize" if op == "AnonymousHashTable" else "^insert")
    async with aexec.Session(g.graph()) as session:
        for _ in range(2):
            assert await session.run("later:0", {"k": np.array([1, 2]), "v": np.array([1, 2])}) == 2
        gc.collect()
        assert session.resources.statistics().resources == 0


@pytest.mark.parametrize("op", ["MutableHashTableOfTensors", "AnonymousMutableHashTableOfTensors"])
async def test_values_may_be_vectors(op: str) -> None:
    g = _table(op, int64, value_shape=PartialTensorShape([2]))
    version = "V2" if op.startswith("Anonymous") else ""
    g("found", f"LookupTableFind{version}", "t", "k", "default", "^insert", Tin=int64, Tout=int64)
    g.const("default", [8, 9], int64)
    async with aexec.Session(g.graph()) as session:
        rows = np.array([[1, 2], [3, 4]])
        assert (await session.run("found:0", {"k": np.array([5, 6]), "v": rows})).tolist() == rows.tolist()


@pytest.mark.parametrize("op", ["MutableHashTable", "MutableHashTableV2"])
async def test_import_replaces_the_content(op: str) -> None:
    """LookupTableImport of both generations."""
    async with aexec.Session(_table(op).graph()) as session:
        await session.run([], {"k": _strings(b"a", b"b"), "v": np.array([1, 2])}, targets=["insert"])
        await session.run([], {"k": _strings(b"c"), "v": np.array([3])}, targets=["import"])
        keys, values = await session.run(["export:0", "export:1"])
        assert (keys.tolist(), values.tolist()) == ([b"c"], [3])


async def test_nodes_share_a_table_by_name() -> None:
    """Two nodes with one shared_name see one table, and must agree on its types."""
    g = _table(shared_name=b"words")
    g("same", "HashTableV2", key_dtype=string, value_dtype=int64, shared_name=b"words")
    g("same_size", "LookupTableSizeV2", "same")
    g("other", "MutableHashTableV2", key_dtype=int64, value_dtype=int64, shared_name=b"words")
    g("other_size", "LookupTableSizeV2", "other")
    async with aexec.Session(g.graph()) as session:
        await session.run([], {"k": _strings(b"a"), "v": np.array([1])}, targets=["initialize"])
        assert await session.run("same_size:0") == 1
        words = "Conflicting key/value dtypes int64->int64 with string-int64 for table words"
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run("other_size:0")


async def test_types_are_checked_against_the_table() -> None:
    """The node's types must be those of the table that the handle names."""
    g = GraphBuilder()
    g("t", "HashTableV2", key_dtype=string, value_dtype=int64)
    g.const("keys", [1], int32)
    g.const("default", 0, int32)
    g("find", "LookupTableFindV2", "t", "keys", "default", Tin=int32, Tout=int32)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("find:0")
    assert caught.value.message == (
        "Signature mismatch, have: resource, int32, int32->int32 expected: resource, string, int64->int64"
    )


async def test_mutable_tables_are_not_initialized() -> None:
    async with aexec.Session(_table("MutableHashTableV2", shared_name=b"m").graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="Table localhost m is not initializable"):
            await session.run([], {"k": _strings(b"a"), "v": np.array([1])}, targets=["initialize"])


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        (
            "MutableDenseHashTableV2",
            {"initial_num_buckets": 3},
            "Number of buckets must be at least 4 and a power of 2",
        ),
        ("MutableDenseHashTableV2", {"max_load_factor": 1.5}, "max_load_factor must be between 0 and 1, got: 1.5"),
        ("MutableDenseHashTableV2", {"value_shape": PartialTensorShape([2, 2])}, "Empty value must be a scalar"),
        ("MutableHashTableOfTensorsV2", {"value_shape": PartialTensorShape([2, 2])}, "Default value must be a vector"),
        ("MutableHashTableOfTensorsV2", {}, r"Default value must be a vector, got shape \[\]"),
    ],
)
async def test_tables_that_cannot_be(op: str, attrs: dict[str, Any], words: str) -> None:
    async with aexec.Session(_table(op, int64, **attrs).graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run("size:0")


async def test_handle_that_is_none() -> None:
    """A handle of another resource, and something that is none."""
    g = _table()
    g("variable", "VarHandleOp", dtype=dtypes.float32, shape=PartialTensorShape([]))
    g("other", "LookupTableSizeV2", "variable")
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.NotFoundError):
            await session.run("other:0")
        with pytest.raises(errors.InvalidArgumentError):
            await session.run("size:0", {"t": np.array([None, None], object)})


async def _from_file(
    path: Path | str,
    key_index: int,
    value_index: int,
    *,
    types: tuple[DType, DType] = (string, int64),
    table: str = "HashTableV2",
    op: str = "InitializeTableFromTextFileV2",
    **attrs: Any,
) -> Any:
    g = _table(table, *types)
    g.const("path", str(path))
    attrs = {"key_index": key_index, "value_index": value_index, **attrs}
    g("from_file", op, "t", "path", **attrs)
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["from_file"])
        keys, values = await session.run(["export:0", "export:1"])
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocabulary"
    path.write_bytes(b"a\t1\r\nb\t2\nc\tx")
    return path


async def test_tables_from_text_files(vocabulary: Path) -> None:
    """Columns, whole lines and line numbers, as keys and as values."""
    assert await _from_file(vocabulary, 0, -1) == {b"a": 0, b"b": 1, b"c": 2}
    first = {"table": "HashTable", "op": "InitializeTableFromTextFile"}
    assert await _from_file(vocabulary, 0, -1, **first) == {b"a": 0, b"b": 1, b"c": 2}
    assert await _from_file(vocabulary, 0, -1, vocab_size=2, offset=10) == {b"a": 10, b"b": 11}
    assert await _from_file(vocabulary, 0, 1, vocab_size=2) == {b"a": 1, b"b": 2}
    assert await _from_file(vocabulary, 0, 1, vocab_size=2, types=(string, dtypes.float32)) == {b"a": 1.0, b"b": 2.0}
    whole = await _from_file(vocabulary, -1, -2, types=(int64, string))
    assert whole == {0: b"a\t1", 1: b"b\t2", 2: b"c\tx"}
    assert await _from_file(vocabulary, -2, -1, vocab_size=1) == {b"a\t1": 0}


@pytest.mark.parametrize(
    ("columns", "attrs", "error", "words"),
    [
        ((0, 1), {}, errors.InvalidArgumentError, r"Field x in line 2 is not a valid int64\."),
        ((0, 1), {"types": (string, dtypes.float64)}, errors.InvalidArgumentError, "Field x in line 2 is not a valid"),
        ((0, 2), {}, errors.InvalidArgumentError, r"line 0 \(a\t1\) : expected at least 3 got 2"),
        ((0, -1), {"vocab_size": 5}, errors.InvalidArgumentError, "Invalid vocab_size in .*: expected 5 but got 3"),
        ((0, -1), {"vocab_size": 0}, errors.OutOfRangeError, "Finished reading 0 of lines from"),
        ((-1, -1), {}, errors.InvalidArgumentError, "Key index for line number requires table key dtype of int64"),
        ((0, -1), {"types": (string, int32)}, errors.InvalidArgumentError, "Value index for line number requires"),
        ((0, 1), {"types": (string, dtypes.bool_)}, errors.InvalidArgumentError, "Data type bool not supported"),
        ((0, 1), {"delimiter": b",,"}, errors.InvalidArgumentError, "delimiter should be only 1 char"),
    ],
)
async def test_text_files_that_do_not_fit(
    vocabulary: Path, columns: tuple[int, int], attrs: dict[str, Any], error: type[errors.OpError], words: str
) -> None:
    with pytest.raises(error, match=words):
        await _from_file(vocabulary, *columns, **attrs)


@pytest.mark.parametrize("number", [b"99999999999", b"1_0", b"9" * 5000, b""])
async def test_numbers_out_of_range(tmp_path: Path, number: bytes) -> None:
    """Numbers that are none, or too long, or too large for the type, are no valid ones."""
    path = tmp_path / "numbers"
    path.write_bytes(b"a\t" + number)
    with pytest.raises(errors.InvalidArgumentError, match="is not a valid int32"):
        await _from_file(path, 0, 1, types=(string, int32))


async def test_files_that_are_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nowhere; No such file or directory"):
        await _from_file(tmp_path / "nowhere", -2, -1)
    empty, gap = tmp_path / "empty", tmp_path / "gap"
    empty.write_bytes(b"")
    with pytest.raises(errors.OutOfRangeError):
        await _from_file(empty, -2, -1)
    gap.write_bytes(b"a\r\nb\r\n\nc")
    with pytest.raises(errors.InvalidArgumentError, match="empty line found at position 7"):
        await _from_file(gap, -2, -1)


def test_registered_for_tensorflows_types() -> None:
    """Every op of the family, for the types that TensorFlow has."""
    ops = ops_of("lookup.lookup_ops")
    assert len(ops) == 27
    for op in ops:
        assert registered(op) == in_tensorflow(op), op
