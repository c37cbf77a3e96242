"""Sparse matrices in variants: TensorFlow's answers, sums and softmax by hand, large products in pieces, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.wire import variant
from aexec.kernels.sparse import csr_matrix_ops
from aexec.kernels.sparse.csr_matrix import CSRSparseMatrix
from tests.kernels.answer_tables import INVALID
from tests.kernels.array_support import F32, I32, I64, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

# TensorFlow has kernels of these for GPUs only.
ONLY_HERE = {
    "SparseMatrixAdd",
    "SparseMatrixMul",
    "SparseMatrixSoftmax",
    "SparseMatrixSoftmaxGrad",
    "SparseMatrixZeros",
}


def csr(indices: Any, values: Any, shape: Any) -> Any:
    places = I64(indices).reshape(-1, len(shape))
    return run_op("SparseTensorToCSRSparseMatrix", [places, np.asarray(values), I64(shape)])


def dense(matrix: Any, type_: str = "float32") -> Any:
    return run_op("CSRSparseMatrixToDense", [matrix], type=type_).tolist()


A = csr([[0, 1], [1, 0], [2, 2]], F32([1, 2, 3]), [3, 4])
B = csr([[0, 0, 1], [0, 2, 3], [1, 1, 1]], F32([1, 2, 3]), [2, 3, 4])
C = csr([[0, 0], [1, 1], [3, 0]], F32([1, 2, 3]), [4, 2])
Z = csr([[0, 1]], np.complex64([1 + 2j]), [2, 2])
D = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.mark.parametrize("op", ops_of("sparse.csr_matrix_ops"))
def test_types_are_tensorflows(op):
    assert registered(op)
    assert op in ONLY_HERE or registered(op) == in_tensorflow(op)


def test_matrix_and_batch_in_parts():
    pointers, columns, values = run_op("CSRSparseMatrixComponents", [A, I32(0)], type="float32")
    assert [pointers.tolist(), columns.tolist(), values.tolist()] == [[0, 1, 2, 3], [1, 0, 2], [1, 2, 3]]
    pointers, columns, values = run_op("CSRSparseMatrixComponents", [B, I32(1)], type="float32")
    assert [pointers.tolist(), columns.tolist(), values.tolist()] == [[0, 0, 1, 1], [1], [3]]
    indices, values, shape = run_op("CSRSparseMatrixToSparseTensor", [B], type="float32")
    assert indices.tolist() == [[0, 0, 1], [0, 2, 3], [1, 1, 1]]
    assert [values.tolist(), shape.tolist()] == [[1, 2, 3], [2, 3, 4]]
    assert dense(B)[0] == [[0, 1, 0, 0], [0] * 4, [0, 0, 0, 2]]
    assert run_op("SparseMatrixNNZ", [A]) == 3
    assert run_op("SparseMatrixNNZ", [B]).tolist() == [2, 1]


def test_entries_in_any_order_are_put_in_rows():
    mixed = csr([[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]], F32([1, 2, 3, 4]), [2, 2, 2])
    assert dense(mixed) == [[[4, 3], [2, 0]], [[0, 1], [0, 0]]]
    pointers, columns, _ = run_op("CSRSparseMatrixComponents", [mixed, I32(0)], type="float32")
    assert [pointers.tolist(), columns.tolist()] == [[0, 2, 3], [1, 0, 0]]


def test_matrix_without_rows_or_entries():
    assert dense(csr([], F32([]), [0, 3])) == []
    assert run_op("CSRSparseMatrixToDense", [csr([], F32([]), [2, 0, 3])], type="float32").shape == (2, 0, 3)
    assert run_op("SparseMatrixMatMul", [csr([], F32([]), [3, 0]), D[:0]]).tolist() == [[0, 0]] * 3


def test_batch_of_no_matrices():
    none = csr([], F32([]), [0, 3, 3])
    for made in (
        run_op("SparseMatrixTranspose", [none], type="float32"),
        run_op("SparseMatrixSparseMatMul", [none, none], type="float32"),
        run_op("SparseMatrixAdd", [none, none, np.float32(1), np.float32(1)]),
        run_op("SparseMatrixSparseCholesky", [none, I32(np.zeros((0, 3)))], type="float32"),
    ):
        assert run_op("CSRSparseMatrixToDense", [made], type="float32").shape == (0, 3, 3)


def test_dense_elements_become_entries():
    matrix = run_op("DenseToCSRSparseMatrix", [F32([[1, 0], [2, 3]]), I64([[0, 0], [1, 1]])])
    assert dense(matrix) == [[1, 0], [0, 3]]


@pytest.mark.parametrize(
    ("matrix", "other", "attrs", "want"),
    [
        (A, D, {}, [[2, 3], [0, 2], [12, 15]]),
        (A, D.T.copy(), {"transpose_b": True}, [[2, 3], [0, 2], [12, 15]]),
        (A, D[:3], {"transpose_a": True}, [[4, 6], [0, 1], [12, 15], [0, 0]]),
        (A, D[:3], {"adjoint_a": True}, [[4, 6], [0, 1], [12, 15], [0, 0]]),
        (A, D, {"transpose_output": True}, [[2, 0, 12], [3, 2, 15]]),
        (A, D, {"conjugate_output": True}, [[2, 3], [0, 2], [12, 15]]),
        (B, np.stack([D, D + 1]), {}, [[[2, 3], [0, 0], [12, 14]], [[0, 0], [9, 12], [0, 0]]]),
        (Z, np.complex64([[1j, 0], [1, 1j]]), {"adjoint_a": True}, [[0, 0], [2 + 1j, 0]]),
    ],
)
def test_product_with_a_dense_matrix(matrix, other, attrs, want):
    assert run_op("SparseMatrixMatMul", [matrix, other], **attrs).tolist() == want


def test_product_of_sparse_matrices():
    product = run_op("SparseMatrixSparseMatMul", [A, C], type="float32")
    assert dense(product) == [[0, 2], [2, 0], [0, 0]]
    assert run_op("SparseMatrixNNZ", [product]) == 2
    squared = run_op("SparseMatrixSparseMatMul", [A, A], type="float32", transpose_a=True)
    assert dense(squared) == [[4, 0, 0, 0], [0, 1, 0, 0], [0, 0, 9, 0], [0, 0, 0, 0]]
    batch = run_op("SparseMatrixSparseMatMul", [B, B], type="float32", adjoint_b=True)
    assert dense(batch) == [[[1, 0, 0], [0, 0, 0], [0, 0, 4]], [[0, 0, 0], [0, 9, 0], [0, 0, 0]]]


def test_entries_of_a_product_are_in_the_order_of_their_places():
    random = np.random.default_rng(4)
    x = np.where(random.random((12, 12)) < 0.4, 1.0, 0)
    matrix = run_op("DenseToCSRSparseMatrix", [x, np.argwhere(x)])
    indices = run_op(
        "CSRSparseMatrixToSparseTensor",
        [run_op("SparseMatrixSparseMatMul", [matrix, matrix], type="double")],
        type="double",
    )[0]
    assert indices.tolist() == sorted(indices.tolist()) and len(indices) > 40


def test_large_products_are_made_in_pieces(monkeypatch):
    random = np.random.default_rng(3)
    x = np.where(random.random((30, 20)) < 0.3, random.normal(size=(30, 20)), 0)
    y = random.normal(size=(20, 5))
    monkeypatch.setattr(csr_matrix_ops, "_PIECE", 7)
    matrix, other = (run_op("DenseToCSRSparseMatrix", [a, np.argwhere(a)]) for a in (x, y))
    np.testing.assert_allclose(run_op("SparseMatrixMatMul", [matrix, y]), x @ y, rtol=1e-12)
    product = run_op("SparseMatrixSparseMatMul", [matrix, other], type="double")
    np.testing.assert_allclose(dense(product, "double"), x @ y, rtol=1e-12)


def test_transpose():
    assert dense(run_op("SparseMatrixTranspose", [B], type="float32"))[1] == [[0] * 3, [0, 3, 0], [0] * 3, [0] * 3]
    conjugate = run_op("SparseMatrixTranspose", [Z], type="complex64", conjugate=True)
    assert dense(conjugate, "complex64") == [[0, 0], [1 - 2j, 0]]


def test_sum_and_multiple():
    total = run_op("SparseMatrixAdd", [B, B, np.float32(1), np.float32(-3)])
    assert dense(total)[1][1] == [0, -6, 0, 0]
    assert dense(run_op("SparseMatrixMul", [A, np.float32(2)])) == [[0, 2, 0, 0], [4, 0, 0, 0], [0, 0, 6, 0]]
    assert dense(run_op("SparseMatrixMul", [B, F32([[[1]], [[5]]])]))[1][1] == [0, 15, 0, 0]
    assert dense(run_op("SparseMatrixZeros", [I64([2, 1, 2])], type="float32")) == [[[0, 0]], [[0, 0]]]


def test_softmax_is_of_the_entries_of_a_row():
    logits = csr([[0, 0], [0, 2], [2, 1]], F32([1, 3, 800]), [3, 3])
    y = run_op("SparseMatrixSoftmax", [logits], type="float32")
    small, large = 1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))
    np.testing.assert_allclose(dense(y), [[small, 0, large], [0] * 3, [0, 1, 0]], rtol=1e-6)
    grad = run_op("SparseMatrixSoftmaxGrad", [y, logits], type="float32")
    change = small * large * 2
    np.testing.assert_allclose(dense(grad), [[-change, 0, change], [0] * 3, [0] * 3], rtol=1e-5)


def test_variant_comes_back_from_its_message():
    value = B.item()
    again = variant.decode(variant.encode(value))
    assert dense(np.array(again, object)) == dense(B)


@pytest.mark.parametrize(
    "broken",
    [
        {"shape": (2, 3)},
        {"shape": (-1, 3, 4)},
        {"batch_pointers": I32([0, 3])},
        {"batch_pointers": I32([0, 4, 3])},
        {"row_pointers": I32([0, 1, 1, 2, 0, 0, 1, 9])},
        {"row_pointers": I32([0, 1, 0, 2, 0, 0, 1, 1])},
        {"columns": I32([1, 3, 4])},
        {"columns": I32([1, -3, 1])},
        {"values": I32([1, 2, 3])},
        {"values": F32([[1], [2], [3]])},
        {"columns": I64([1, 3, 1])},
    ],
)
def test_broken_message_is_refused(broken):
    parts = dict(zip(("batch_pointers", "row_pointers", "columns", "values"), B.item().tensors, strict=True))
    data = CSRSparseMatrix(**{"shape": (2, 3, 4), **parts, **broken}).encode()
    with pytest.raises(errors.InvalidArgumentError):
        variant.decode(data.to_proto())


FLOAT = {"type": "float32"}
REFUSED: list[Any] = [
    ("CSRSparseMatrixComponents", [B, I32(2)], FLOAT, "index (2) not in [0, 2)"),
    ("CSRSparseMatrixComponents", [B, I32([0])], FLOAT, "index should be a scalar, but saw: [1]"),
    (
        "CSRSparseMatrixToDense",
        [A],
        {"type": "double"},
        "Asked for a CSRSparseMatrix of type double but saw dtype: float",
    ),
    ("SparseMatrixTranspose", [A], {"type": "double"}, "dtype of input is not equal to 'type': float vs. double"),
    ("SparseMatrixMatMul", [B, D[None]], {}, "Batch sizes of a and b must match, saw: 2 vs. 1."),
    ("SparseMatrixMatMul", [B, D], {}, "Ranks of a and b must match, saw: 3 vs. 2."),
    (
        "SparseMatrixMatMul",
        [A, D[:3]],
        {},
        "Inner product dimensions of A and B do not agree.  Shapes are: [3,4] vs. [3,2]",
    ),
    (
        "SparseMatrixMatMul",
        [A, D],
        {"transpose_a": True, "adjoint_a": True},
        "Only one of adjoint_a and transpose_a may be true.",
    ),
    (
        "SparseMatrixMatMul",
        [A, D.astype(float)],
        {},
        "Input types don't match.  a.dtype == float vs. b.dtype == double",
    ),
    (
        "SparseMatrixSparseMatMul",
        [B, C],
        FLOAT,
        "Inner product dimensions of A and B do not agree.  Shapes are: [2,3,4] vs. [4,2]",
    ),
    (
        "DenseToCSRSparseMatrix",
        [F32([1, 2]), I64([[0]])],
        {},
        "params must have rank == 2 or 3; but saw shape: [2]",
    ),
    (
        "DenseToCSRSparseMatrix",
        [D, I64([[0, 2]])],
        {},
        "indices[0] = [0,2] does not index into param shape [4,2]",
    ),
    (
        "SparseTensorToCSRSparseMatrix",
        [I64([[0, 9]]), F32([1]), I64([2, 2])],
        {},
        "Sparse index tuple indices[0, :] = [0, 9] is out of bounds",
    ),
    (
        "SparseTensorToCSRSparseMatrix",
        [I64([[0]]), F32([1]), I64([2])],
        {},
        "SparseTensor must have rank 2 or 3; but indices has rank: 1",
    ),
    (
        "SparseTensorToCSRSparseMatrix",
        [I64([[0, 0]]), F32([1, 2]), I64([2, 2])],
        {},
        "Number of elements in indices (1) and values (2) do not match",
    ),
    (
        "SparseTensorToCSRSparseMatrix",
        [I64(np.zeros((0, 2))), F32([]), I64([2, 2**40])],
        {},
        "a sparse matrix cannot have shape [2,1099511627776]",
    ),
    (
        "SparseMatrixAdd",
        [A, C, np.float32(1), np.float32(1)],
        {},
        "Shapes of a and b must match, saw: [3,4] vs. [4,2]",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "message"), REFUSED)
def test_refused(op, inputs, attrs, message):
    assert_refuses(op, inputs, message, INVALID, **attrs)


def test_variant_of_another_kind_is_refused():
    box = np.empty((), object)
    box[()] = 3.0
    assert_refuses("SparseMatrixNNZ", [box], "Could not retrieve a CSRSparseMatrix from the variant", INVALID)
