"""Lookup tables against a dict, and the errors that are TensorFlow's."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.resources import lookup_table
from aexec.resources.lookup_table import DenseHashTable, HashTable, MutableHashTable
from tests.support.stand_ins.replacing import replace_in

Operations = list[tuple[str, list[int]]]
KEYS = st.lists(st.integers(-3, 6), max_size=6)
OPERATIONS = st.lists(st.tuples(st.sampled_from(["insert", "remove", "replace"]), KEYS), max_size=15)


def _array(values: Any, dtype: Any = np.int64) -> Any:
    return np.array(values, dtype)


def _texts(*values: bytes) -> Any:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _contents(table: Any) -> dict[Any, Any]:
    keys, values = table.export()
    return dict(zip(keys.ravel().tolist(), values.tolist(), strict=True))


@given(OPERATIONS, st.booleans())
def test_mutable_tables_are_dicts(operations: Operations, of_tensors: bool) -> None:
    """Any sequence of changes leaves what it leaves in a dict; the last of equal keys counts."""
    shape = (2,) if of_tensors else ()
    table = MutableHashTable(dtypes.int64, dtypes.float64, value_shape=shape)
    model: dict[int, Any] = {}
    for number, (operation, keys) in enumerate(operations):
        values = np.arange(len(keys) * 2, dtype=float).reshape(-1, 2) + 100 * number
        values = values if of_tensors else values[:, 0]
        entries = dict(zip(keys, values.tolist(), strict=True))
        if operation == "insert":
            table.insert(_array(keys), values)
            model.update(entries)
        elif operation == "replace":
            table.replace(_array(keys), values)
            model = entries
        else:
            table.remove(_array(keys))
            model = {key: value for key, value in model.items() if key not in keys}
        assert _contents(table) == model
        assert len(table) == len(model)
    wanted = list(range(-3, 7))
    blank = [-1.0, -1.0] if of_tensors else -1.0
    assert table.find(_array(wanted), _array(blank, float)).tolist() == [model.get(key, blank) for key in wanted]


def test_defaults_for_each_key_and_shapes_of_keys() -> None:
    """The default may be one value or one for each key; values come in the keys' shape."""
    table = MutableHashTable(dtypes.string, dtypes.int32)
    table.insert(_texts(b"a", b"b"), _array([1, 2], np.int32))
    keys = _texts(b"a", b"x", b"b", b"y").reshape(2, 2)
    assert table.find(keys, np.int32(9)).tolist() == [[1, 9], [2, 9]]
    assert table.find(keys, _array([[5, 6], [7, 8]], np.int32)).tolist() == [[1, 6], [2, 8]]
    assert table.find(_texts(b"y")[0:0], np.int32(9)).shape == (0,)
    one = np.array(b"a", object)
    assert table.find(one, np.int32(9)).shape == ()
    with pytest.raises(
        errors.InvalidArgumentError, match=r"Expected shape \[\] or \[2,2\] for default value, got \[1\]"
    ):
        table.find(keys, _array([1], np.int32))


def test_values_of_the_wrong_shape() -> None:
    table = MutableHashTable(dtypes.int64, dtypes.float32, value_shape=(2,))
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected shape \[2,2\] for value, got \[2\]"):
        table.insert(_array([1, 2]), _array([1, 2], np.float32))


def test_removed_objects_are_let_go() -> None:
    """A removed value is not kept alive by its row."""
    table = MutableHashTable(dtypes.int64, dtypes.string)
    table.insert(_array([1]), _texts(b"long" * 10))
    table.remove(_array([1]))
    assert b"long" * 10 not in table._values.tolist()


def test_hash_table_is_filled_once() -> None:
    """Before that it finds nothing; to fill it again with the same entries is no error."""
    table = HashTable(dtypes.string, dtypes.int64)
    assert len(table) == 0
    with pytest.raises(errors.FailedPreconditionError, match=r"Table not initialized\."):
        table.find(_texts(b"a"), np.int64(0))
    with pytest.raises(errors.AbortedError, match=r"HashTable is not initialized\."):
        table.export()
    keys, values = _texts(b"a", b"b", b"a"), _array([1, 2, 1])
    for _ in range(2):
        table.initialize(keys, values)
        assert _contents(table) == {b"a": 1, b"b": 2}
    for other in ((_texts(b"a"), _array([1])), (keys, _array([1, 3, 1]))):
        with pytest.raises(errors.FailedPreconditionError, match="already initialized with different data"):
            table.replace(*other)
    for change in (lambda: table.insert(keys, values), lambda: table.remove(keys)):
        with pytest.raises(errors.UnimplementedError, match="not supported by InitializableLookupTable"):
            change()


def test_contradictions_are_named() -> None:
    """Two values for one key: the first that is contradicted is named, and nothing is filled in."""
    table = HashTable(dtypes.string, dtypes.int64)
    words = "HashTable has different value for same key. Key a has 1 and trying to add value 2"
    with pytest.raises(errors.FailedPreconditionError) as caught:
        table.initialize(_texts(b"b", b"a", b"c", b"a"), _array([0, 1, 5, 2]))
    assert caught.value.message == words
    assert not table.is_initialized
    numbers = HashTable(dtypes.int64, dtypes.float32)
    numbers.initialize(_array([1, 2]), _array([np.nan, 1], np.float32))
    assert len(numbers) == 2


@pytest.mark.parametrize(
    ("keys", "values", "words"),
    [
        ([[1]], [[1]], r"Keys must be a vector, but received shape\[1,1\]"),
        ([1, 2], [1], "Keys and values must have the same size 2 vs 1"),
    ],
)
def test_vectors_to_fill_with(keys: Any, values: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        HashTable(dtypes.int64, dtypes.int64).initialize(_array(keys), _array(values))


def test_dense_tables_reserve_two_keys() -> None:
    """They may not be used; entries of an export under them are left out."""
    table = DenseHashTable(dtypes.int64, dtypes.int64, (), _array(-1), _array(-2))
    table.insert(_array([1, 2]), _array([3, 4]))
    for use in (lambda k: table.insert(k, k), table.remove, lambda k: table.find(k, np.int64(0))):
        with pytest.raises(errors.InvalidArgumentError, match="Using the empty_key as a table key is not allowed"):
            use(_array([-1]))
        with pytest.raises(errors.InvalidArgumentError, match="Using the deleted_key as a table key is not allowed"):
            use(_array([-2]))
    keys, values = table.export()
    assert keys.shape == values.shape == (2, 1)
    table.replace(_array([[-1], [7], [-2]]), _array([[0], [8], [0]]))
    assert _contents(table) == {7: [8]}
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected key shape \[1\] got \[1,2\]"):
        table.remove(_array([[1, 2]]))
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected shape \[1\] for value, got \[2\]"):
        table.replace(_array([1]), _array([1, 2]))


def test_dense_tables_with_vectors() -> None:
    """Keys and values may be vectors."""
    table = DenseHashTable(dtypes.int64, dtypes.float32, (3,), _array([0, 0]), _array([9, 9]))
    table.insert(_array([[1, 2], [3, 4]]), _array(np.arange(6).reshape(2, 3), np.float32))
    found = table.find(_array([[3, 4], [4, 3]]), _array([7, 7, 7], np.float32))
    assert found.tolist() == [[3, 4, 5], [7, 7, 7]]
    table.remove(_array([[1, 2]]))
    keys, values = table.export()
    assert keys.tolist() == [[3, 4]]
    assert values.tolist() == [[3, 4, 5]]
    with pytest.raises(errors.InvalidArgumentError, match=r"must end with the table's key shape \[2\]"):
        table.find(_array([[[1], [2]]]), _array([7, 7, 7], np.float32))


@pytest.mark.parametrize(
    ("empty", "deleted", "words"),
    [
        ([[1]], [[2]], "Empty key must be a scalar or a vector"),
        ([1], [2, 3], "Empty and deleted keys must have same shape"),
        (1, 1, "Empty and deleted keys cannot be equal"),
    ],
)
def test_reserved_keys_that_cannot_be(empty: Any, deleted: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        DenseHashTable(dtypes.int64, dtypes.int64, (), _array(empty), _array(deleted))


def test_many_keys_take_linear_time() -> None:
    """A hundred thousand keys: one dict access each, no search."""
    keys = np.arange(100_000)
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    for part in np.split(keys, 100):
        table.insert(part, part * 2)
    assert (table.find(keys[::-1], np.int64(-1)) == keys[::-1] * 2).all()
    table.remove(keys[:50_000])
    assert len(table) == 50_000


def test_table_is_unchanged_when_memory_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    table.insert(_array([1]), _array([10]))
    zeros = np.zeros

    def refuse(shape: Any, dtype: Any) -> Any:
        if shape[0] > 1:
            raise MemoryError
        return zeros(shape, dtype)

    replace_in(monkeypatch, lookup_table, "np", zeros=refuse)
    for change in (table.insert, table.replace):
        with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating values of a table"):
            change(_array([2, 3]), _array([20, 30]))
        assert _contents(table) == {1: 10}


def test_few_keys_of_very_large_values(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ResourceExhaustedError):
        MutableHashTable(dtypes.int64, dtypes.float32, value_shape=(2**62,))
    table = MutableHashTable(dtypes.int64, dtypes.int8, value_shape=(1 << 20,))
    monkeypatch.setattr(lookup_table, "available_memory", lambda: 256 << 20)
    with pytest.raises(errors.ResourceExhaustedError):
        table.find(np.zeros(300, np.int64), np.zeros(1 << 20, np.int8))


class _Unwanted(CallInThread):
    """Whom nobody waits for any more."""

    __slots__ = ()

    @property  # type: ignore[override]
    def abandoned(self) -> bool:
        return True

    @abandoned.setter
    def abandoned(self, _: bool) -> None: ...


def test_abandoned_insertion_changes_nothing() -> None:
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    table.insert(_array([1, 2, 3]), _array([10, 20, 30]))
    table.remove(_array([2]))
    many = np.arange(100_000)
    for change in (table.insert, table.replace):
        with _Unwanted().running(), pytest.raises(AbandonedError):
            change(many, many)
        assert _contents(table) == {1: 10, 3: 30}
    with _Unwanted().running(), pytest.raises(AbandonedError):
        table.remove(many)
    assert _contents(table) == {1: 10, 3: 30}
    table.insert(many, many)
    assert _contents(table) == dict(zip(many.tolist(), many.tolist(), strict=True))


def test_table_whose_replacement_is_abandoned_holds_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    account = MemoryAccount("session", "s", 1 << 30)
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    table.kept = KeptMemory(account)
    many = np.arange(100_000)
    table.insert(many, many)
    held = account.in_use

    def abandoned(names: Any) -> Any:
        raise AbandonedError

    monkeypatch.setattr(table, "_rows_for", abandoned)
    with pytest.raises(AbandonedError):
        table.replace(_array([4]), _array([40]))
    assert len(table) == len(many) and account.in_use == held > 0


def test_large_values_are_found_in_a_thread() -> None:
    table = MutableHashTable(dtypes.int64, dtypes.int8, value_shape=(1 << 20,))

    async def on_the_loop() -> None:
        with pytest.raises(NeedsThreadError):
            table.find(np.zeros(10, np.int64), np.zeros(1 << 20, np.int8))

    asyncio.run(on_the_loop())
    assert table.find(np.zeros(10, np.int64), np.zeros(1 << 20, np.int8)).shape == (10, 1 << 20)


def test_long_keys_are_made_in_a_thread() -> None:
    async def on_the_loop() -> None:
        with pytest.raises(NeedsThreadError):
            DenseHashTable(dtypes.int64, dtypes.int64, (), np.zeros(1_000_000, np.int64))

    asyncio.run(on_the_loop())
