"""Sparse, set and ragged kernels against dense arrays, sets and lists of lists; and which kernels there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.array_support import F32, I32, I64, shapes
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

MODULES = (
    "random.candidate_sampling_ops",
    "parsing.csv_ops",
    "parsing.decode_raw_ops",
    "parsing.example_ops",
    "parsing.json_example_ops",
    "ragged.cross_ops",
    "ragged.ragged_ops",
    "ragged.variant_ops",
    "random.counts_ops",
    "random.truncated_ops",
    "parsing.sequence_example_ops",
    "sparse.set_ops",
    "sparse.array_ops",
    "sparse.count_ops",
    "sparse.cross_ops",
    "sparse.dense_ops",
    "sparse.fill_ops",
    "sparse.map_ops",
    "sparse.math_ops",
    "sparse.serialize_ops",
    "parsing.tensor_ops",
)


@pytest.mark.parametrize("op", ops_of(*MODULES))
def test_kernels_are_those_of_tensorflow(op):
    assert registered(op) == in_tensorflow(op)


@st.composite
def sparse_tensors(draw, shape=None, min_rank=1):
    """A dense array of small integers with many zeros, and the sparse tensor of what is not zero."""
    dims = shape if shape is not None else draw(shapes(min_rank=min_rank, max_rank=3))
    size = int(np.prod(dims))
    values = draw(st.lists(st.sampled_from([0, 0, 1, 2, -3, 5]), min_size=size, max_size=size))
    dense = I32(values).reshape(dims)
    return dense, (np.argwhere(dense).astype(np.int64).reshape(-1, len(dims)), dense[dense != 0], I64(list(dims)))


def to_dense(indices, values, shape):
    result = np.zeros(shape.tolist(), values.dtype)
    for row, value in zip(indices.tolist(), values, strict=True):
        result[tuple(row)] += value
    return result


@given(st.data())
def test_addition_and_extrema(data):
    dense_a, a = data.draw(sparse_tensors())
    dense_b, b = data.draw(sparse_tensors(dense_a.shape))
    assert (to_dense(*run_op("SparseAdd", [*a, *b, I32(0)])) == dense_a + dense_b).all()
    indices, values, _ = run_op("SparseAdd", [*a, *b, I32(1)])
    assert (values != 0).all()
    assert indices.tolist() == np.argwhere(dense_a + dense_b).tolist()
    for op, ufunc in (("SparseSparseMaximum", np.maximum), ("SparseSparseMinimum", np.minimum)):
        indices, values = run_op(op, [*a, *b])
        assert (to_dense(indices, values, a[2]) == ufunc(dense_a, dense_b)).all()


@given(sparse_tensors(), st.data())
def test_reductions(pair, data):
    dense, tensor = pair
    axes = data.draw(st.lists(st.integers(-dense.ndim, dense.ndim - 1)))
    keep = data.draw(st.booleans())
    want = dense.sum(axis=tuple({axis % dense.ndim for axis in axes}), keepdims=keep)
    got = run_op("SparseReduceSum", [*tensor, I32(axes)], keep_dims=keep)
    assert np.shape(got) == want.shape
    assert (got == want).all()
    indices, values, shape = run_op("SparseReduceSumSparse", [*tensor, I32(axes)], keep_dims=keep)
    assert shape.tolist() == list(want.shape)
    assert (to_dense(indices, values, shape) == want).all()


@given(sparse_tensors(), st.data())
def test_slices_splits_and_concatenation(pair, data):
    dense, tensor = pair
    axis = data.draw(st.integers(-dense.ndim, dense.ndim - 1))
    joined = run_op("SparseConcat", [[tensor[0]] * 2, [tensor[1]] * 2, [tensor[2]] * 2], concat_dim=axis)
    assert (to_dense(*joined) == np.concatenate([dense, dense], axis)).all()
    if dense.shape[axis]:
        count = data.draw(st.integers(1, dense.shape[axis]))
        outputs = run_op("SparseSplit", [I64(axis), *tensor], num_split=count)
        pieces = [to_dense(*outputs[i::count]) for i in range(count)]
        for piece, want in zip(pieces, np.array_split(dense, count, axis), strict=True):
            assert piece.shape == want.shape
            assert (piece == want).all()
    start = [data.draw(st.integers(0, size + 1)) for size in dense.shape]
    size = [data.draw(st.integers(0, 4)) for _ in dense.shape]
    indices, values, shape = run_op("SparseSlice", [*tensor, I64(start), I64(size)])
    want = dense[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))]
    assert shape.tolist() == list(want.shape)
    assert (to_dense(indices, values, shape) == want).all()
    gradient = run_op("SparseSliceGrad", [values, tensor[0], I64(start), indices])
    assert gradient.sum() == want.sum()


@given(sparse_tensors(), st.randoms())
def test_reordering(pair, random):
    dense, (indices, values, shape) = pair
    order = list(range(len(values)))
    random.shuffle(order)
    got = run_op("SparseReorder", [indices[order], values[order], shape])
    assert got[0].tolist() == indices.tolist()
    assert got[1].tolist() == values.tolist()
    assert (run_op("SparseReshape", [indices, shape, I64([-1, 1])])[0] == np.argwhere(dense.reshape(-1, 1))).all()


@pytest.mark.parametrize("far", [2**62, 2**40])
def test_indices_too_far_apart_for_one_integer(far):
    indices = I64([[far, 0, far], [0, far, 1], [0, 1, far]])
    shape = I64([far + 1] * 3)
    got, values = run_op("SparseReorder", [indices, F32([1, 2, 3]), shape])
    assert got.tolist() == sorted(indices.tolist())
    assert values.tolist() == [3, 2, 1]


@given(sparse_tensors(min_rank=2), st.data())
def test_empty_rows(pair, data):
    dense, tensor = pair
    indices, values, is_empty, places = run_op("SparseFillEmptyRows", [*tensor, I32(9)])
    assert is_empty.tolist() == [not row.any() for row in dense]
    assert indices[:, 0].tolist() == sorted(indices[:, 0].tolist())
    assert (indices[places] == tensor[0]).all()
    assert (values[places] == tensor[1]).all()
    assert (values == 9).sum() == is_empty.sum()
    assert run_op("SparseFillEmptyRowsGrad", [places, values])[1] == 9 * is_empty.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64, np.int32])
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_products(dtype, adjoint_a, adjoint_b):
    rng = np.random.default_rng(3)
    a = rng.integers(-2, 3, (4, 5)).astype(dtype)
    b = rng.integers(-2, 3, (4 if adjoint_a else 5, 3)).astype(dtype)
    if dtype == np.complex64:
        a, b = a * (1 + 2j), b * (3 - 1j)
    indices = np.argwhere(a).astype(np.int64)
    inputs = [indices, a[tuple(indices.T)], I64(a.shape), b.conj().T.copy() if adjoint_b else b]
    got = run_op("SparseTensorDenseMatMul", inputs, adjoint_a=adjoint_a, adjoint_b=adjoint_b)
    np.testing.assert_allclose(got, (a.conj().T if adjoint_a else a) @ b)
    assert got.dtype == dtype


@given(st.data())
def test_softmax_of_rows(data):
    dense, tensor = data.draw(sparse_tensors(min_rank=2))
    x = tensor[1].astype(np.float64)
    got = run_op("SparseSoftmax", [tensor[0], x, tensor[2]])
    powers = np.where(dense != 0, np.exp(dense.astype(np.float64)), 0)
    with np.errstate(invalid="ignore"):
        want = powers / powers.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(got, want[dense != 0])


ROWS = st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=4)


def as_sparse(rows):
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    width = max(map(len, rows))
    return I64(indices).reshape(-1, 2), I32([v for row in rows for v in row]), I64([len(rows), max(width, 1)])


def as_ragged(rows):
    return I64(np.cumsum([0, *map(len, rows)])), I32([v for row in rows for v in row])


@given(ROWS, st.data())
def test_set_operations(first, data):
    second = data.draw(st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=len(first), max_size=len(first)))
    python = {
        "a-b": lambda a, b: a - b,
        "b-a": lambda a, b: b - a,
        "intersection": lambda a, b: a & b,
        "union": lambda a, b: a | b,
    }
    name = data.draw(st.sampled_from(sorted(python)))
    got = run_op("SparseToSparseSetOperation", [*as_sparse(first), *as_sparse(second)], set_operation=name)
    want = [sorted(python[name](set(a), set(b))) for a, b in zip(first, second, strict=True)]
    assert got[1].tolist() == [v for row in want for v in row]
    assert got[0].tolist() == [[i, j] for i, row in enumerate(want) for j in range(len(row))]
    assert got[2].tolist() == [len(first), max(map(len, want))]
    assert run_op("SetSize", list(as_sparse(first))).tolist() == [len(set(row)) for row in first]


@given(ROWS, st.integers(1, 8))
def test_counts_of_rows(rows, size):
    splits, values = as_ragged(rows)
    want = [[row.count(value) for value in range(size)] for row in rows]
    assert run_op("RaggedBincount", [splits, values, I32(size), F32([])]).tolist() == want
    assert run_op("SparseBincount", [*as_sparse(rows), I32(size), F32([])]).tolist() == want
    indices, counts, shape = run_op(
        "RaggedCountSparseOutput", [splits, values, F32([])], binary_output=False, maxlength=size
    )
    assert to_dense(indices, counts, shape).tolist() == want


@given(ROWS, st.data())
def test_ragged_rows(rows, data):
    splits, values = as_ragged(rows)
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5))
    got = run_op("RaggedGather", [[splits], values, I32(picked)], OUTPUT_RAGGED_RANK=1)
    assert [part.tolist() for part in np.split(got[1], got[0][1:-1])] == [rows[i] for i in picked] or not picked
    width = max(map(len, rows))
    dense = run_op(
        "RaggedTensorToTensor", [I64([-1, -1]), values, I32(-1), [splits]], row_partition_types=["ROW_SPLITS"]
    )
    assert dense.tolist() == [row + [-1] * (width - len(row)) for row in rows]
    indices, flat, shape = run_op("RaggedTensorToSparse", [[splits], values])
    assert indices.tolist() == as_sparse(rows)[0].tolist()
    assert flat.tolist() == values.tolist()
    assert shape.tolist() == [len(rows), width]
