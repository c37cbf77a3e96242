"""Sparse tensors kept in the session: adding, taking, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from aexec.framework import errors
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.waiting.inline_call import PostponedError
from aexec.kernels.sparse.map_ops import SparseTensorsMap
from tests.kernels.answer_tables import INDICES, SHAPE, VALUES
from tests.kernels.array_support import F32, I64
from tests.kernels.harness import run_op
from tests.support.stand_ins import contexts

NAMED = {"container": "", "shared_name": "map"}


@pytest.fixture
def context():
    return contexts.context()


def test_rows_are_added_and_taken_in_any_order(context):
    handles = run_op("AddManySparseToTensorsMap", [INDICES, VALUES, SHAPE], context=context, **NAMED)
    assert handles.tolist() == [0, 1, 2]
    taken = [handles[[2, 0]]]
    indices, values, shape = run_op("TakeManySparseFromTensorsMap", taken, context=context, dtype="float32", **NAMED)
    assert indices.tolist() == [[0, 2], [1, 1]]
    assert values.tolist() == [3, 1]
    assert shape.tolist() == [2, 4]
    with pytest.raises(errors.InvalidArgumentError, match=r"Unable to find SparseTensor: 2 in map\."):
        run_op("TakeManySparseFromTensorsMap", taken, context=context, dtype="float32", **NAMED)


def test_whole_tensors(context):
    one = run_op("AddSparseToTensorsMap", [INDICES, VALUES, SHAPE], context=context, **NAMED)
    two = run_op("AddSparseToTensorsMap", [I64([[4, 0]]), F32([7]), I64([5, 1])], context=context, **NAMED)
    indices, values, shape = run_op(
        "TakeManySparseFromTensorsMap", [I64([one, two])], context=context, dtype="float32", **NAMED
    )
    assert indices.tolist() == [[0, 0, 1], [0, 1, 0], [0, 2, 2], [1, 4, 0]]
    assert values.tolist() == [1, 2, 3, 7]
    assert shape.tolist() == [2, 5, 4]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([I64([0]), VALUES, SHAPE], "Input indices should be a matrix but received shape [1]"),
        ([INDICES, F32([[1]]), SHAPE], "Input values should be a vector but received shape [1,1]"),
        ([INDICES, VALUES, I64(1)], "Input shape should be a vector but received shape []"),
        (
            [INDICES, F32([1]), SHAPE],
            "Number of values must match first dimension of indices. Got 1 values, indices shape: [3,2]",
        ),
        (
            [INDICES, VALUES, I64([3])],
            "Number of dimensions must match second dimension of indices. Got 1 dimensions, indices shape: [3,2]",
        ),
    ],
)
def test_invalid_sparse_tensors_are_refused(context, inputs, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op("AddSparseToTensorsMap", inputs, context=context, **NAMED)
    assert caught.value.message == message


def test_handles_that_fit_nothing_are_refused(context):
    run_op("AddSparseToTensorsMap", [INDICES, VALUES, SHAPE], context=context, **NAMED)
    for handles, dtype, message in (
        (I64([[0]]), "float32", "sparse_handles should be a vector but received shape [1,1]"),
        (I64([]), "float32", "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"),
        (I64([0]), "int32", "Requested SparseTensor of type int32 but SparseTensor[0].values.dtype() == float"),
    ):
        with pytest.raises(errors.InvalidArgumentError) as caught:
            run_op("TakeManySparseFromTensorsMap", [handles], context=context, dtype=dtype, **NAMED)
        assert caught.value.message == message


def test_row_may_be_as_variants():
    row = run_op("SerializeSparse", [INDICES, VALUES, SHAPE], out_type="variant")
    for got, want in zip(run_op("DeserializeSparse", [row], dtype="float32"), (INDICES, VALUES, SHAPE), strict=True):
        assert got.tolist() == want.tolist()
    rows = run_op("SerializeManySparse", [INDICES, VALUES, SHAPE], out_type="variant")
    got = run_op("DeserializeSparse", [rows], dtype="float32")
    assert [part.tolist() for part in got] == [INDICES.tolist(), VALUES.tolist(), SHAPE.tolist()]


def test_map_that_a_thread_holds_postpones_calls_of_the_loop():
    tensors = SparseTensorsMap()

    async def on_the_loop():
        with pytest.raises(PostponedError):
            tensors.add([(INDICES, VALUES, SHAPE)])

    with tensors._lock:
        asyncio.run(on_the_loop())
    assert tensors.add([(INDICES, VALUES, SHAPE)] * 2) == range(2)


def test_tensors_of_a_map_count_for_its_session():
    account = MemoryAccount("session", "session_bytes", 1 << 20)
    tensors = SparseTensorsMap()
    tensors.kept = KeptMemory(account)
    with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
        tensors.add([(INDICES, VALUES, SHAPE)] * 3000)
    assert not len(tensors)
    tensors.add([(INDICES, VALUES, SHAPE)] * 1000)
    assert account.in_use > 300_000
    tensors.take(range(1000))
    assert account.in_use < 100_000
