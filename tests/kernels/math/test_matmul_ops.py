"""Matrix products and Einsum against known answers, TensorFlow's messages, and NumPy on random shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.kernels.linalg_support import build, run_op

bfloat16 = ml_dtypes.bfloat16
A = np.float32([[1, 2, 3], [4, 5, 6]])
B = np.float32([[1, 0], [0, 2], [3, 0]])
PRODUCT = np.float32([[10, 4], [22, 10]])


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def assert_same(got, want, **tolerance):
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), **tolerance)


@pytest.mark.parametrize("op", ops_of("math.matmul_ops", "math.einsum_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.float16, bfloat16, np.int32])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_mat_mul(dtype, transpose_a, transpose_b):
    a, b = A.astype(dtype), B.astype(dtype)
    got = run_op(
        "MatMul",
        a.T if transpose_a else a,
        b.T if transpose_b else b,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )
    assert_same(got, PRODUCT.astype(dtype))


def test_mat_mul_transposes_without_conjugating():
    x = np.complex64([[1 + 2j, 3 - 1j]])
    assert_same(run_op("MatMul", x, x, transpose_a=True), np.complex64([[-3 + 4j, 5 + 5j], [5 + 5j, 8 - 6j]]))


def test_batch_mat_mul_takes_adjoints():
    x = np.complex64([[1 + 2j, 3 - 1j]])
    for op in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        attrs = {"Tout": dtypes.complex64} if op.endswith("V3") else {}
        assert_same(run_op(op, x, x, adj_y=True, **attrs), np.complex64([[15]]))
        assert_same(run_op(op, x, x, adj_x=True, **attrs), np.complex64([[5, 1 - 7j], [1 + 7j, 10]]))
        both = run_op(op, x.T, x, adj_x=True, adj_y=True, **attrs)
        assert_same(both, (x.conj() @ x.conj().T))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.float16, np.int32])
@pytest.mark.parametrize(("left", "right"), [((3, 4, 1), (3, 1, 5)), ((2, 1, 4, 1), (3, 1, 5)), ((4, 1), (2, 1, 3))])
def test_outer_products_are_those_of_einsum(left, right, dtype):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, left).astype(dtype), rng.integers(-9, 9, right).astype(dtype)
    assert_same(run_op("BatchMatMulV2", x, y), np.einsum("...ik,...kj->...ij", x, y))
    assert_same(
        run_op("BatchMatMulV2", x.swapaxes(-1, -2), y, adj_x=True), np.einsum("...ik,...kj->...ij", x.conj(), y)
    )


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "shape"),
    [((2, 0), (0, 3), (2, 3)), ((0, 0), (0, 0), (0, 0)), ((0, 3), (3, 2), (0, 2)), ((1, 1), (1, 0), (1, 0))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64])
def test_products_without_elements(shape_a, shape_b, shape, dtype):
    for op in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
        assert_same(run_op(op, zeros(*shape_a, dtype=dtype), zeros(*shape_b, dtype=dtype)), zeros(*shape, dtype=dtype))


@pytest.mark.parametrize(
    ("op", "shape_a", "shape_b", "message"),
    [
        ("MatMul", (2, 4), (3, 2), "Matrix size-incompatible: In[0]: [2,4], In[1]: [3,2]"),
        ("MatMul", (0, 3), (2, 3), "Matrix size-incompatible: In[0]: [0,3], In[1]: [2,3]"),
        ("MatMul", (2,), (3, 2), "In[0] and In[1] has different ndims: [2] vs. [3,2]"),
        ("MatMul", (), (3, 2), "In[0] and In[1] has different ndims: [] vs. [3,2]"),
        ("MatMul", (2, 3), (3,), "In[0] and In[1] has different ndims: [2,3] vs. [3]"),
        ("MatMul", (3,), (3,), "In[0] and In[1] ndims must be == 2: 1"),
        ("MatMul", (1, 2, 3), (1, 3, 2), "In[0] and In[1] ndims must be == 2: 3"),
        ("BatchMatMul", (2, 3), (2, 3), "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"),
        ("BatchMatMul", (3,), (3, 2), "In[0] and In[1] has different ndims: [3] vs. [3,2]"),
        ("BatchMatMul", (2,), (2,), "In[0] and In[1] ndims must be >= 2: 1"),
        (
            "BatchMatMul",
            (3, 2, 2, 3),
            (3, 1, 3, 2),
            "In[0].dim(1) and In[1].dim(1) must be the same: [3,2,2,3] vs [3,1,3,2]",
        ),
        ("BatchMatMulV2", (2, 1, 3), (2, 2, 1), "Matrix size-incompatible: In[0]: [2,1,3], In[1]: [2,2,1]"),
        (
            "BatchMatMulV2",
            (2, 1, 3),
            (3, 3, 1),
            "In[0] and In[1] must have compatible batch dimensions: [2,1,3] vs. [3,3,1]",
        ),
        ("BatchMatMulV2", (3,), (3, 2), "In[0] ndims must be >= 2: 1"),
        ("BatchMatMulV2", (2, 3), (3,), "In[1] ndims must be >= 2: 1"),
        ("SparseMatMul", (2, 3), (2, 3), "Matrix size incompatible: a: [2,3], b: [2,3]"),
        ("SparseMatMul", (3,), (3, 2), "a is not a matrix"),
        ("SparseMatMul", (2, 3), (3,), "b is not a matrix"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, bfloat16])
def test_sizes_that_do_not_fit(op, shape_a, shape_b, message, dtype):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op(op, zeros(*shape_a, dtype=dtype), zeros(*shape_b, dtype=dtype))
    assert caught.value.message == message


def test_transposed_sizes_are_told_as_they_came():
    with pytest.raises(errors.InvalidArgumentError, match=r"In\[0\]: \[2,3\], In\[1\]: \[3,3\]"):
        run_op("MatMul", zeros(2, 3), zeros(3, 3), transpose_a=True)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_low_precision_rounds_once(dtype):
    # One at a time, tenths stop to count at 256 in half.
    terms, ones = np.full((1, 5000), 0.1, dtype), np.ones((5000, 1), dtype)
    assert_same(run_op("MatMul", terms, ones), np.full((1, 1), 500, dtype))
    assert_same(run_op("Einsum", terms, equation=b"ij->i"), np.full(1, 500, dtype))
    # Sums beyond the largest half on the way to a small one.
    row = np.array([[60000, 60000, -60000]], np.float16)
    assert_same(run_op("MatMul", row, np.ones((3, 1), np.float16)), np.float16([[60000]]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [2, 40])
def test_integers_wrap(dtype, size):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(size)
    a = rng.integers(limits.min, limits.max, (size, size), dtype, endpoint=True)
    small = rng.integers(-9, 9, (size, size), dtype)
    for left, right in ((a, small), (small, a), (a, a), (small, small), (np.full_like(a, limits.min), small)):
        with np.errstate(over="ignore"):
            want = (left.astype(object) @ right.astype(object)) & (2 ** (8 * a.itemsize) - 1)
        got = run_op("MatMul", left, right)
        assert got.dtype == dtype
        assert (got.view(f"u{a.itemsize}") == want.astype(f"u{a.itemsize}")).all()


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        (np.int8, np.int8, dtypes.int32),
        (np.uint8, np.int8, dtypes.int32),
        (np.int8, np.uint8, dtypes.int32),
        (np.uint8, bfloat16, dtypes.bfloat16),
        (bfloat16, np.int8, dtypes.bfloat16),
        (np.int16, np.int16, dtypes.int16),
        (np.float32, np.float32, dtypes.float32),
    ],
)
def test_mixed_types(left, right, out):
    x = np.array([[[100, 2, 3], [4, 5, 60]]]).astype(left)
    y = np.array([[100, 1], [2, 2], [3, 3]]).astype(right)
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(out.np)
    assert_same(run_op("BatchMatMulV3", x, y, Tout=out), want)


def test_sparse_mat_mul_gives_floats():
    assert_same(run_op("SparseMatMul", A.astype(bfloat16), B, a_is_sparse=True), PRODUCT)
    assert_same(run_op("SparseMatMul", A.T, B.T.astype(bfloat16), transpose_a=True, transpose_b=True), PRODUCT)


def test_nan_and_infinity_propagate():
    assert np.isnan(run_op("MatMul", np.full((2, 3), np.inf, np.float32), zeros(3, 1))).all()


def test_other_exceptions_are_not_taken_for_wrong_sizes():
    explain = build("MatMul", A, B).explain
    assert isinstance(explain(MemoryError("no room"), A, B), errors.ResourceExhaustedError)
    assert isinstance(explain(RuntimeError("what"), A, B), errors.UnknownError)


sizes = st.integers(0, 4)


@given(st.data())
def test_batches_broadcast_like_numpy(data):
    m, k, n = (data.draw(sizes) for _ in range(3))
    batch = data.draw(st.lists(st.integers(0, 3), max_size=3))
    left, right = (
        [data.draw(st.sampled_from([d, 1])) for d in batch[data.draw(st.integers(0, len(batch))) :]] for _ in range(2)
    )
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(*left, m, k)), rng.normal(size=(*right, k, n))
    adj_x, adj_y = data.draw(st.booleans()), data.draw(st.booleans())
    got = run_op(
        "BatchMatMulV2",
        x.swapaxes(-1, -2) if adj_x else x,
        y.swapaxes(-1, -2) if adj_y else y,
        adj_x=adj_x,
        adj_y=adj_y,
    )
    assert_same(got, np.matmul(x, y), rtol=1e-12, atol=1e-12)


# Einsum


def einsum(equation, *inputs):
    return run_op("Einsum", *inputs, equation=equation.encode())


def counted(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("equation", "shapes", "want"),
    [
        ("ij,jk->ki", [(2, 3), (3, 2)], [[10, 28], [13, 40]]),
        ("ii->i", [(3, 3)], [0, 4, 8]),
        ("ii->", [(3, 3)], 12),
        ("ij->", [(2, 3)], 15),
        ("ij->ji", [(2, 3)], [[0, 3], [1, 4], [2, 5]]),
        ("iij->ij", [(2, 2, 3)], [[0, 1, 2], [9, 10, 11]]),
        ("aab,bcc->ac", [(2, 2, 3), (3, 2, 2)], [[20, 29], [128, 218]]),
        ("a,a->a", [(3,), (3,)], [0, 1, 4]),
        ("ab,ab->b", [(2, 3), (2, 3)], [9, 17, 29]),
        (",->", [(), ()], 0),
        ("->", [()], 0),
        ("i...->...", [(2, 3)], [3, 5, 7]),
        ("...i,...i->...", [(1, 3), (4, 3)], [5, 14, 23, 32]),
        ("aa...->...a", [(2, 2, 3)], [[0, 9], [1, 10], [2, 11]]),
        ("ab...->...a", [(2, 2, 3)], [[3, 15], [5, 17], [7, 19]]),
        # What NumPy does not have: labels that are no letters, labels twice in the output.
        ("i1->i", [(2, 3)], [3, 12]),
        ("i->ii", [(3,)], [[0, 0, 0], [0, 1, 0], [0, 0, 2]]),
        ("a...->...aa", [(2, 1)], [[[0, 0], [0, 1]]]),
        ("ij,jk->ik", [(2, 0), (0, 3)], [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_einsum(equation, shapes, want):
    assert_same(einsum(equation, *(counted(*s) for s in shapes)), np.float32(want))


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3), (2, 2)], "Expected dimension 3 at axis 0 of the input shaped [2,2] but got dimension 2"),
        ("ii->i", [(2, 3)], "Expected dimension 2 at axis 1 of the input shaped [2,3] but got dimension 3"),
        ("i,i->", [(1,), (3,)], "Expected dimension 1 at axis 0 of the input shaped [3] but got dimension 3"),
        ("ij,jk->ik", [(3,), (2, 2)], "Expected input 0 to have rank 2 but got: 1"),
        ("...ijk->ij", [(2, 2)], "Expected input 0 to have rank at least 3 but got: 2"),
        ("...ij,...jk->...ik", [(2, 2, 3), (3, 3, 2)], "Invalid broadcasting dimensions: [2,2,3] vs. [3,3,2]"),
        (
            "...ij->ij",
            [(2, 2, 3)],
            "Output contains 1 broadcasting dimension(s) but no ellipsis (...) was found in the output subscripts.",
        ),
        ("ij,jk", [(2, 3), (3, 2)], "Expecting exactly one '->' in einsum equation: ij,jk"),
        (
            "ij,jk,kl->il",
            [(2, 3), (3, 2), (2, 2)],
            "Expecting 1 or 2 input subscripts in equation 'ij,jk,kl->il' but got: 3",
        ),
        ("i->i", [(2,), (2,)], "Expected 1 inputs for equation i->i but got: 2"),
        (
            "ij->ik",
            [(2, 3)],
            "Einsum output subscripts for equation 'ij->ik' has label 'k' which is not present in the input subscripts",
        ),
        (
            "...i...->i",
            [(1, 3)],
            "Expected at most one ellipsis (...), but found 6 periods (.) in the input subscript: ...i...",
        ),
        (
            "i->i.",
            [(2,)],
            "Expected at most one ellipsis (...), but found 1 periods (.) in the output subscript: i.",
        ),
    ],
)
def test_einsum_errors(equation, shapes, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        einsum(equation, *(zeros(*s) for s in shapes))
    assert caught.value.message == message


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.int32, np.int64, np.complex64, np.float64])
def test_einsum_keeps_the_type(dtype):
    a, b = counted(2, 3, 4), counted(4, 3, 5)
    assert_same(einsum("abc,cbd->da", a.astype(dtype), b.astype(dtype)), np.einsum("abc,cbd->da", a, b).astype(dtype))
    assert_same(einsum("abc->b", a.astype(dtype)), a.sum((0, 2)).astype(dtype))
    outer = einsum("ab,c->acb", a[0].astype(dtype), b[0, 0].astype(dtype))
    assert_same(outer, np.einsum("ab,c->acb", a[0], b[0, 0]).astype(dtype))


def test_einsum_plans_are_kept_by_rank():
    kernel = build("Einsum", zeros(2, 3), zeros(3, 2), equation=b"...ij,...jk->...ik")
    for shape in ((2, 3), (5, 2, 3), (2, 3), (1, 2, 3)):
        assert kernel.compute(zeros(*shape), zeros(3, 2)).shape == (*shape[:-1], 2)


@given(st.data())
def test_einsum_is_numpys(data):
    labels = "abcd"
    size = {label: data.draw(st.integers(0, 3)) for label in labels}
    terms = data.draw(st.lists(st.text(labels, max_size=4), min_size=1, max_size=2))
    used = sorted(set("".join(terms)))
    output = "".join(data.draw(st.permutations(used)))[: data.draw(st.integers(0, len(used)))]
    widths = [data.draw(st.integers(0, 2)) for _ in terms]
    batch = [data.draw(st.integers(1, 3)) for _ in range(max(widths))]
    rng = np.random.default_rng(2)
    inputs = []
    for term, width in zip(terms, widths, strict=True):
        axes = [data.draw(st.sampled_from([d, 1])) for d in batch[len(batch) - width :]]
        inputs.append(rng.normal(size=[*axes, *(size[label] for label in term)]))
    equation = ",".join("..." + term for term in terms) + "->..." + output
    assert_same(einsum(equation, *inputs), np.einsum(equation, *inputs), rtol=1e-12, atol=1e-12)
