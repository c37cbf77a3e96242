"""Diagonals: known answers, a slow model of the stored band for random ones, TensorFlow's messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.kernels.linalg_support import build, refused, run_op
from tests.support.programs.graphs import GraphBuilder

ALIGNMENTS = ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"]
TABLE = np.float32([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
PAD = np.float32(7)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def int32(value):
    return np.array(value, np.int32)


def assert_same(got, want):
    want = np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert (got == want).all(), got


@pytest.mark.parametrize("op", ops_of("linalg.matrix_diag_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


# Diag, DiagPart


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (1, 2, 1), (2, 0)])
def test_diag_and_its_part(shape):
    x = np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.int64).reshape(shape)
    whole = run_op("Diag", x)
    assert whole.shape == shape + shape
    assert (whole != 0).sum() == x.size
    assert_same(run_op("DiagPart", whole), x)


def test_diag_errors():
    assert_same(run_op("DiagPart", np.float32(3)), np.float32(3))
    assert refused("Diag", np.float32(3)) == "Input must be at least rank 1, got 0"
    assert "even and positive, got shape [3]" in refused("DiagPart", zeros(3))
    assert refused("DiagPart", zeros(2, 3, 2, 4)) == "Invalid shape [2,3,2,4]: dimensions 1 and 3 do not match."


# The first versions: the main diagonal


@pytest.mark.parametrize("prefix", ["", "Batch"])
def test_main_diagonals(prefix):
    x = np.array([[1, 2], [3, 4]], np.uint8)
    matrix = run_op(prefix + "MatrixDiag", x)
    assert_same(matrix, np.uint8([[[1, 0], [0, 2]], [[3, 0], [0, 4]]]))
    assert_same(run_op(prefix + "MatrixDiagPart", matrix), x)
    assert_same(run_op(prefix + "MatrixDiagPart", TABLE), np.float32([1, 6, 11]))
    changed = run_op(prefix + "MatrixSetDiag", TABLE, np.float32([-1, -2, -3]))
    assert_same(changed, np.float32([[-1, 2, 3, 4], [5, -2, 7, 8], [9, 10, -3, 12]]))
    assert_same(run_op(prefix + "MatrixDiag", zeros(2, 0)), zeros(2, 0, 0))
    assert_same(run_op(prefix + "MatrixDiagPart", zeros(0, 3)), zeros(0))


def test_first_versions_errors():
    for x in (np.float32(1), zeros(3)):
        shape = "[3]" if x.ndim else "[]"
        assert refused("MatrixDiagPart", x) == f"input must be at least 2-dim, received shape: {shape}"
    assert refused("MatrixDiag", np.float32(1)) == "diagonal must be at least 1-dim, received shape: []"
    assert refused("MatrixSetDiag", zeros(3), zeros(3)) == "input must be at least 2-dim, received shape: [3]"
    for diagonal in (zeros(4), zeros(2), zeros(1, 3)):
        assert "diagonal.shape[:-1] is not equal" in refused("MatrixSetDiag", TABLE, diagonal)


# Bands


def place(align, d, length, longest):
    """Column of the stored band where diagonal d (of `length`) begins."""
    above, below = align.split("_")
    return longest - length if (above if d >= 0 else below) == "RIGHT" else 0


def store(matrix, lower, upper, align, padding):
    """Element by element what MatrixDiagPartV3 does for one matrix."""
    diagonals = [np.diagonal(matrix, d) for d in range(upper, lower - 1, -1)]
    longest = max(map(len, diagonals))
    stored = np.full((len(diagonals), longest), padding, matrix.dtype)
    for row, d, values in zip(stored, range(upper, lower - 1, -1), diagonals, strict=True):
        start = place(align, d, len(values), longest)
        row[start : start + len(values)] = values
    return stored[0] if lower == upper else stored


@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.sampled_from(ALIGNMENTS))
def test_bands_of_all_kinds(data, rows, columns, align):
    lower = data.draw(st.integers(1 - rows, columns - 1))
    upper = data.draw(st.integers(lower, columns - 1))
    matrix = np.arange(1, 2 * rows * columns + 1, dtype=np.float32).reshape(2, rows, columns)
    k = int32([lower, upper])
    want = np.stack([store(m, lower, upper, align, PAD) for m in matrix])
    stored = run_op("MatrixDiagPartV3", matrix, k, PAD, align=align.encode())
    assert_same(stored, want)
    offset = np.arange(columns) - np.arange(rows)[:, None]
    inside = (offset >= lower) & (offset <= upper)
    # Written back into zeros the band is what it was taken from; so it is among paddings.
    back = run_op("MatrixSetDiagV3", np.zeros_like(matrix), stored, k, align=align.encode())
    assert_same(back, np.where(inside, matrix, np.float32(0)))
    if rows == stored.shape[-1] - min(upper, 0) or columns == stored.shape[-1] + max(lower, 0):
        built = run_op("MatrixDiagV3", stored, k, int32(rows), int32(columns), PAD, align=align.encode())
        assert_same(built, np.where(inside, matrix, PAD))
    if align == "LEFT_LEFT":
        assert_same(run_op("MatrixDiagPartV2", matrix, k, PAD), want)
        assert_same(run_op("MatrixSetDiagV2", np.zeros_like(matrix), stored, k), back)


@pytest.mark.parametrize(
    ("align", "want"),
    [
        ("LEFT_RIGHT", [[3, 8, 7], [2, 7, 12], [1, 6, 11], [7, 5, 10], [7, 7, 9]]),
        ("RIGHT_LEFT", [[7, 3, 8], [2, 7, 12], [1, 6, 11], [5, 10, 7], [9, 7, 7]]),
        ("LEFT_LEFT", [[3, 8, 7], [2, 7, 12], [1, 6, 11], [5, 10, 7], [9, 7, 7]]),
        ("RIGHT_RIGHT", [[7, 3, 8], [2, 7, 12], [1, 6, 11], [7, 5, 10], [7, 7, 9]]),
    ],
)
def test_alignment_of_the_stored_band(align, want):
    assert_same(run_op("MatrixDiagPartV3", TABLE, int32([-2, 2]), PAD, align=align.encode()), np.float32(want))


@pytest.mark.parametrize("k", [0, [0], [0, 0]])
def test_one_diagonal_has_no_axis_of_its_own(k):
    assert_same(run_op("MatrixDiagPartV2", TABLE, int32(k), PAD), np.float32([1, 6, 11]))
    diagonal = np.float32([1, 2])
    built = run_op("MatrixDiagV2", diagonal, int32(k), int32(-1), int32(-1), PAD)
    assert_same(built, np.float32([[1, 7], [7, 2]]))
    assert_same(run_op("MatrixSetDiagV2", zeros(2, 3), diagonal, int32(k)), np.float32([[1, 0, 0], [0, 2, 0]]))


@pytest.mark.parametrize(
    ("shape", "k", "rows", "columns", "size"),
    [
        ((4,), 1, -1, -1, (5, 5)),
        ((4,), 1, -1, 6, (4, 6)),
        ((4,), -1, -1, -1, (5, 5)),
        ((2, 4), [-1, 0], 5, -1, (5, 4)),
        ((0,), 0, -1, -1, (0, 0)),
        ((2, 0), 1, -1, -1, (2, 1, 1)),
    ],
)
def test_sizes_that_are_derived(shape, k, rows, columns, size):
    assert run_op("MatrixDiagV3", zeros(*shape), int32(k), int32(rows), int32(columns), PAD).shape == size


@pytest.mark.parametrize(
    ("shape", "k", "rows", "columns", "message"),
    [
        ((), 0, -1, -1, "diagonal must be at least 1-dim, received shape: []"),
        ((4,), 0, 3, -1, "The number of rows is too small."),
        ((4,), 0, -1, 3, "The number of columns is too small."),
        ((4,), 0, 6, 5, "The number of rows or columns is not consistent with the specified d_lower, d_upper, and"),
        ((2, 3), [0, 1, 2], -1, -1, "diag_index must have only one or two elements, received 3 elements."),
        ((2, 3), [], -1, -1, "Expected diag_index to have at least 1 element"),
        ((2, 3), [[0]], -1, -1, "diag_index must be a scalar or vector, received shape: [1,1]"),
        ((2, 3), [1, 0], -1, -1, "lower_diag_index must not be larger than upper_diag_index: 1 > 0"),
        ((3, 3), [0, 1], -1, -1, "The number of diagonals provided in the input does not match the lower_diag_index"),
        ((3,), [0, 1], -1, -1, "The number of diagonals provided in the input does not match the lower_diag_index"),
        ((3,), 0, [3], -1, "num_rows must be a scalar"),
        ((3,), 0, 3, [3], "num_cols must be a scalar"),
    ],
)
def test_matrix_diag_errors(shape, k, rows, columns, message):
    assert refused("MatrixDiagV2", zeros(*shape), int32(k), int32(rows), int32(columns), PAD).startswith(message)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (4, "lower_diag_index is out of bound: 4. It must be between -3 and 4"),
        (-3, "lower_diag_index is out of bound: -3. It must be between -3 and 4"),
        ([0, 4], "upper_diag_index is out of bound: 4. It must be between -3 and 4"),
        ([1, 0], "lower_diag_index must not be larger than upper_diag_index: 1 > 0"),
    ],
)
def test_diagonals_outside_of_the_matrix(k, message):
    assert refused("MatrixDiagPartV3", TABLE, int32(k), PAD) == message
    assert refused("MatrixSetDiagV3", TABLE, zeros(3), int32(k)) == message


def test_set_diag_errors():
    for shape, k in (((3,), [-1, 0]), ((3, 3), [-1, 0]), ((1, 2, 3), [-1, 0])):
        message = refused("MatrixSetDiagV3", TABLE, zeros(*shape), int32(k))
        assert message.startswith("The number of diagonals provided in `diag` is not consistent with")
    for shape, k in (((4,), 0), ((3,), -1), ((2, 2), [-1, 0]), ((1, 3), [0, 0])):
        message = refused("MatrixSetDiagV3", TABLE, zeros(*shape), int32(k))
        assert message.startswith("Either first dimensions of diagonal don't match input.shape[:-2]")


def test_one_node_with_changing_bands():
    compute = build("MatrixDiagPartV3", TABLE, int32(0), PAD).compute
    for k in ([0, 1], [0, 1], [-1, 0], [0, 1]):
        for matrix in (TABLE, TABLE.T):
            assert_same(compute(matrix, int32(k), PAD), store(matrix, *k, "RIGHT_LEFT", PAD))


# MatrixBandPart


@pytest.mark.parametrize("lower", [-2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("upper", [-1, 0, 1, 4])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_band_part(lower, upper, index):
    x = np.stack([TABLE, -TABLE])
    below = np.tril(np.ones((3, 4)), 99 if upper < 0 else upper)
    want = x * np.triu(below, -99 if lower < 0 else -lower).astype(np.float32)
    assert_same(run_op("MatrixBandPart", x, index(lower), index(upper)), want)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint64, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_band_part_of_other_types(dtype):
    x = np.ones((2, 2), dtype)
    assert_same(run_op("MatrixBandPart", x, np.int64(0), np.int64(-1)), np.triu(np.ones((2, 2))).astype(dtype))


def test_band_part_leaves_no_nan_outside():
    got = run_op("MatrixBandPart", np.full((2, 2), np.nan, np.float32), np.int64(0), np.int64(0))
    assert np.isnan(got).tolist() == [[True, False], [False, True]]


def test_band_part_errors():
    zero = np.int64(0)
    assert "received shape: [3]" in refused("MatrixBandPart", zeros(3), zero, zero)
    assert refused("MatrixBandPart", TABLE, np.int64(4), zero) == (
        "num_lower must be negative or less or equal to number of rows (3) got: 4"
    )
    assert refused("MatrixBandPart", TABLE, zero, np.int64(5)) == (
        "num_upper must be negative or less or equal to number of columns (4) got: 5"
    )
    assert refused("MatrixBandPart", TABLE, np.int64([1]), zero) == "num_lower must be scalar, got shape [1]"
    assert refused("MatrixBandPart", TABLE, zero, np.int64([1])) == "num_upper must be scalar, got shape [1]"


async def test_matrices_of_long_diagonals_are_refused_before_they_are_made():
    """Their op is so old that its shape function says nothing."""
    g = GraphBuilder(12)
    g.placeholder("x", dtypes.uint8)
    g("y", "BatchMatrixDiag", "x", T=dtypes.uint8)
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(step_bytes=1 << 20)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="step_bytes"):
            await session.run("y:0", {"x:0": np.zeros((2, 3000), np.uint8)})


@pytest.mark.parametrize(
    ("k", "rows", "columns"), [([3000], -1, -1), ([-3000, 0], -1, -1), ([0], 3000, 3000), ([0], 9_000_000, -1)]
)
def test_cost_of_diagonals_is_by_the_matrix(k, rows, columns):
    inputs = [zeros(1, 1) if len(k) == 1 else zeros(3001, 1), int32(k), int32(rows), int32(columns), PAD]
    assert build("MatrixDiagV3", *inputs).cost(*inputs) > 1e6


def test_cost_of_many_diagonals_is_by_all():
    inputs = [zeros(1000, 1000), int32([-999, 999]), PAD]
    assert build("MatrixDiagPartV3", *inputs).cost(*inputs) > 1e6
