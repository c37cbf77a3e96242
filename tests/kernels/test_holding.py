"""What kernels do in worker threads lets the event loop go on.

Few calls of NumPy and Python keep the interpreter's lock for as long as they take: on large arrays kernels make
them piece by piece, or not at all.  `scripts/bench hold` measures how late a task on the loop comes beside each
heavy kernel.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from aexec.framework import errors
from aexec.kernels.common import array_module, strings
from aexec.runtime.threads.worker_pool import WorkerPool
from tests.kernels.harness import build, run_op
from tests.support.stand_ins.replacing import replace_in

# Elements that one call may handle while it keeps the lock.
MOST = 250_000


class Watched(np.ndarray):
    """An array that notes how many elements each call was for that keeps the lock."""

    held: ClassVar[list[int]] = []

    def tolist(self) -> Any:
        self.held.append(self.size)
        return super().tolist()

    def dot(self, b: Any, out: Any = None) -> Any:
        self.held.append(self.shape[0] * b.shape[1])
        return np.asarray(self).dot(b)

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(value, list):
            self.held.append(len(value))
        super().__setitem__(at, value)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(Watched, "held", [])
    return Watched.held


@pytest.mark.parametrize("attrs", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_large_matrices_are_not_multiplied_by_the_method_that_clears_its_result(held, attrs, dtype):
    """`ndarray.dot` fills its result with zeros under the interpreter's lock, `matmul` does not."""
    x, y = (np.ones((1500, 1500), dtype) for _ in range(2))
    built, _, _ = build("MatMul", [x, y], transpose_a=attrs[0], transpose_b=attrs[1])
    product = built.compute(x.view(Watched), y.view(Watched))
    assert product.shape == (1500, 1500) and float(product[3, 4]) == 1500
    small = np.ones((4, 4), dtype).view(Watched)
    built.compute(small, small)
    assert dtype != np.float32 or held == [16]
    assert max(held, default=0) <= MOST


def words(count: int) -> Any:
    return strings.string_array([b"%d, %d" % (i, i % 7) for i in range(count)])


def test_values_are_taken_out_of_arrays_and_put_into_them_in_pieces(held, monkeypatch):
    replace_in(monkeypatch, strings, "np", empty=lambda *args: np.ndarray(*args).view(Watched))
    replace_in(monkeypatch, strings, "np", asarray=lambda x: x)
    x = words(300_000).view(Watched)
    assert strings.values_of(x)[299_999] == b"299999, 0"
    assert strings.map_strings(len, x, np.int32)[-1] == 9
    assert strings.map_strings(bytes.upper, x.reshape(-1, 2)).shape == (150_000, 2)
    assert len(held) > 20 and max(held) <= MOST


@pytest.mark.parametrize("shape", [(1_000_000,), (50_000, 11)])
def test_ufuncs_are_applied_at_some_places_at_a_time(shape):
    class Ufunc:
        sizes: ClassVar[list[int]] = []

        def at(self, out: Any, index: Any, rows: Any) -> None:
            self.sizes.append(rows.size)
            np.add.at(out, index, rows)

    index, rows = np.arange(shape[0]) % 10, np.ones(shape, np.int64)
    out = np.zeros((10, *shape[1:]), np.int64)
    array_module.apply_at(Ufunc(), out, index, rows)
    np.testing.assert_array_equal(out, shape[0] // 10)
    assert len(Ufunc.sizes) > 1 and max(Ufunc.sizes) <= MOST


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([], []),
        ([7], [1_000_000]),
        ([1, 2, 3], [0, 600_000, 0]),
        (range(1000), [700] * 1000),
        ([1, 2, 3, 4], [200_000, 100_000, 1, 900_000]),
    ],
)
def test_values_are_repeated_some_at_a_time(values, counts):
    values, counts = np.array(values, np.int32), np.array(counts, np.int64)
    out = array_module.repeated(values, counts)
    np.testing.assert_array_equal(out, np.repeat(values, counts))
    assert out.dtype == np.int32


@pytest.mark.parametrize("count", [0, 1, 5000, 5001, 40_000])
def test_pieces_make_a_whole(count):
    x = words(count)
    assert strings.values_of(x) == [b"%d, %d" % (i, i % 7) for i in range(count)]
    np.testing.assert_array_equal(run_op("StringLength", [x]), [len(s) for s in x], strict=False)
    np.testing.assert_array_equal(run_op("StringUpper", [x]), x)
    indices, values, shape = run_op("StringSplitV2", [x, b","])
    assert len(values) == 2 * count and shape.tolist() == [count, 2 if count else 0]
    assert indices[-2:].tolist() == ([[count - 1, 0], [count - 1, 1]] if count else [])


# What is to be a shape or some axes, and may be far too long.
VECTORS = {
    "AvgPool3DGrad": (
        [None, np.ones((1, 1, 1, 1, 1), np.float32)],
        {"ksize": [1] * 5, "strides": [1] * 5, "padding": b"SAME"},
    ),
    "BroadcastTo": ([np.ones(2, np.float32), None], {}),
    "ConjugateTranspose": ([np.ones((2, 3), np.complex64), None], {}),
    "Conv3DBackpropInputV2": (
        [None, np.ones((1, 1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1, 1), np.float32)],
        {"strides": [1] * 5, "padding": b"SAME"},
    ),
    "FFTND": ([np.ones((2, 3), np.complex64), None, np.zeros(1, np.int32)], {}),
    "Fill": ([None, np.float32(1)], {}),
    "MaxPoolV2": ([np.ones((1, 3, 3, 1), np.float32), None, np.ones(4, np.int32)], {"padding": b"SAME"}),
    "QuantizedReshape": ([np.ones(4, np.uint8), None, np.float32(0), np.float32(1)], {"T": "quint8"}),
    "RaggedTensorToTensor": (
        [None, np.ones(2, np.float32), np.float32(0), np.array([0, 1, 2])],
        {"row_partition_types": [b"ROW_SPLITS"], "num_row_partition_tensors": 1},
    ),
    "ReduceJoin": ([words(4), None], {}),
    "Reshape": ([np.ones(4, np.float32), None], {}),
    "ReverseV2": ([np.ones((2, 3), np.float32), None], {}),
    "SplitV": ([np.ones((2, 3), np.float32), None, np.int32(0)], {"num_split": 2}),
    "StatelessParameterizedTruncatedNormal": (
        [None, np.zeros(2, np.int64), *(np.float32(x) for x in (0, 1, -1, 1))],
        {},
    ),
    "Sum": ([np.ones((2, 3), np.float32), None], {}),
    "Transpose": ([np.ones((2, 3), np.float32), None], {}),
}


@pytest.mark.parametrize("op", VECTORS)
@pytest.mark.parametrize("value", [1, 2**31 - 1])
def test_too_long_vector_does_not_become_a_list(op, value, held):
    """Neither where its cost is asked for nor to refuse it."""
    inputs, attrs = VECTORS[op]
    vector = np.full(300_000, value, np.int32)
    built, arrays, _ = build(op, [vector if x is None else x for x in inputs], **attrs)
    arrays = [x.view(Watched) if x.size == vector.size else x for x in arrays]
    if callable(built.cost):
        built.cost(*arrays)
    with pytest.raises((errors.OpError, ValueError)):
        built.compute(*arrays)
    assert max(held, default=0) < 1000


# Each kept the lock, or nearly, for the whole of its time.
HEAVY = {
    "MatMul": lambda: [np.ones((2048, 2048), np.float32)] * 2,
    "RandomShuffle": lambda: [np.zeros(1_000_000, np.float32)],
    "StringLower": lambda: [words(1_000_000)],
    "StringSplitV2": lambda: [words(300_000), np.array(b" ", object)],
    "SerializeTensor": lambda: [np.ones(10_000_000, np.float32)],
    "CholeskyGrad": lambda: [np.eye(1200, dtype=np.float32)] * 2,
    "Lu": lambda: [_matrix(1500)],
    "MatrixExponential": lambda: [_matrix(600)],
    "MatrixLogarithm": lambda: [(_matrix(150) + 150 * np.eye(150)).astype(np.complex64)],
    "MatrixSolveLs": lambda: [_matrix(600), _matrix(600), np.float64(0)],
    "MatrixSquareRoot": lambda: [_matrix(300) + 300 * np.eye(300, dtype=np.float32)],
    "MatrixTriangularSolve": lambda: [_matrix(1500)] * 2,
}
ATTRS = {"MatrixSolveLs": {"fast": False}}


def _matrix(size):
    return np.random.default_rng(0).random((size, size), np.float32)


@pytest.mark.soak
@pytest.mark.parametrize("op", HEAVY)
async def test_task_is_hardly_late_beside_a_heavy_kernel(op):
    from tests.support.lateness import lateness

    built, arrays, _ = build(op, HEAVY[op](), **ATTRS.get(op, {}))
    pool = WorkerPool(1)
    try:
        measured = [await lateness(pool, lambda: built.compute(*arrays)) for _ in range(7)]
    finally:
        await pool.close()
    assert min(late for late, _ in measured) < 0.02
