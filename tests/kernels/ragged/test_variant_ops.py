"""Ragged tensors in variants: round trips, stacking, gradients, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.wire import variant
from aexec.kernels.ragged.variant_ops import RaggedTensorVariant
from tests.kernels.answer_tables import INVALID
from tests.kernels.array_support import F32, I32, I64, assert_refuses
from tests.kernels.harness import run_op

OUTER, INNER, VALUES = I64([0, 2, 3]), I64([0, 2, 2, 5]), F32([1, 2, 3, 4, 5])


def encode(splits, values, *, batched):
    return run_op("RaggedTensorToVariant", [splits, values], batched_input=batched, Tsplits="int64")


def decode(encoded, rank, in_rank=-1, **attrs):
    out = run_op(
        "RaggedTensorFromVariant",
        [encoded],
        input_ragged_rank=in_rank,
        output_ragged_rank=rank,
        **{"Tvalues": "float32", "Tsplits": "int64", **attrs},
    )
    return [part.tolist() for part in (out if isinstance(out, tuple) else (out,))]


def whole(splits, values):
    return [*(s.tolist() for s in splits), values.tolist()]


@pytest.mark.parametrize("splits", [[], [INNER], [OUTER, INNER]])
def test_tensor_comes_back_as_it_was(splits):
    assert decode(encode(splits, VALUES, batched=False), len(splits), len(splits)) == whole(splits, VALUES)
    rows = encode(splits, VALUES, batched=True)
    assert rows.shape == (len(splits[0]) - 1 if splits else len(VALUES),)
    assert decode(rows, len(splits), max(len(splits) - 1, 0)) == whole(splits, VALUES)


def test_rows_hold_ragged_tensors_of_their_own():
    first, second = encode([OUTER, INNER], VALUES, batched=True)
    assert [first.splits[0].tolist(), first.values.tolist()] == [[0, 2, 2], [1, 2]]
    assert [second.splits[0].tolist(), second.values.tolist()] == [[0, 3], [3, 4, 5]]


def test_array_of_variants_gets_uniform_dimensions():
    rows = encode([INNER], VALUES, batched=True)
    square = np.array([[rows[0], rows[1]], [rows[2], rows[0]]], object)
    assert decode(square, 2) == [[0, 2, 4], [0, 2, 2, 5, 7], [1, 2, 3, 4, 5, 1, 2]]


def test_equal_rows_stack_to_a_dense_tensor():
    rows = encode([], F32([[1, 2], [3, 4]]), batched=True)
    assert decode(rows.reshape(2, 1), 0, 0) == [[[[1, 2]], [[3, 4]]]]


def test_ragged_variant_without_rows():
    assert decode(np.empty(0, object), 1) == [[0], []]


def test_gradients():
    rows = encode([INNER], VALUES, batched=True)
    got = run_op("RaggedTensorToVariantGradient", [rows, INNER, I32([5])], Tvalues="float32")
    assert got.tolist() == VALUES.tolist()
    uniform = encode([], F32([[1, 2], [3, 4]]), batched=True)
    got = run_op("RaggedTensorToVariantGradient", [uniform, I64([]), I32([2, 2])], Tvalues="float32")
    assert got.tolist() == [[1, 2], [3, 4]]
    one = encode([], VALUES, batched=False)
    assert run_op("RaggedTensorToVariantGradient", [one, I64([]), I32([5])], Tvalues="float32").tolist() == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_ragged_variant_is_encodable_and_has_arithmetic():
    value = RaggedTensorVariant((INNER,), VALUES)
    back = variant.decode(variant.encode(value))
    assert [back.splits[0].tolist(), back.values.tolist()] == [INNER.tolist(), VALUES.tolist()]
    assert variant.add(value, value).values.tolist() == [2, 4, 6, 8, 10]
    assert variant.zeros_like(value).values.tolist() == [0] * 5
    with pytest.raises(errors.InvalidArgumentError, match="Can't add RaggedTensorVariants"):
        variant.add(value, RaggedTensorVariant((), VALUES[:2]))
    with pytest.raises(errors.InvalidArgumentError, match="without values"):
        RaggedTensorVariant.decode(variant.VariantTensorData("RaggedTensorVariant"))


def box(value):
    out = np.empty((), object)
    out[()] = value
    return out


def from_variant(encoded, message, **attrs):
    attrs = {"input_ragged_rank": 0, "output_ragged_rank": 0, "Tvalues": "float32", "Tsplits": "int64", **attrs}
    assert_refuses("RaggedTensorFromVariant", [encoded], message, INVALID, **attrs)


def test_variants_that_do_not_fit_are_refused():
    one = box(RaggedTensorVariant((INNER,), VALUES))
    from_variant(box(None), "Input Variant element at index 0 doesn't hold a RaggedTensorVariant: ")
    from_variant(one, "Encoded input RaggedTensorVariant has ragged_rank=1.  Expected ragged_rank=0.")
    ranks = {"input_ragged_rank": 1, "output_ragged_rank": 1}
    from_variant(one, "Expected row_splits Tensor dtype: int32, found: int64", Tsplits="int32", **ranks)
    from_variant(one, "Expected values Tensor dtype: int32, found: float", Tvalues="int32", **ranks)
    from_variant(
        one.reshape(1, 1),
        "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found "
        "output_ragged_rank: 1, encoded_variant.dims(): 2, inferred input_ragged_rank: -1",
        input_ragged_rank=-1,
        output_ragged_rank=1,
    )
    from_variant(
        one,
        "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.ndims; output_ragged_rank: 2, "
        "input_ragged_rank: 1, encoded_variant.ndims: 0.",
        input_ragged_rank=1,
        output_ragged_rank=2,
    )
    pair = np.array([RaggedTensorVariant((), F32([1])), RaggedTensorVariant((), F32([1, 2]))], object)
    with pytest.raises(INVALID, match="All flat_values must have compatible shapes"):
        decode(pair, 0, 0)
    with pytest.raises(INVALID, match="is no ragged tensor"):
        decode(box(RaggedTensorVariant((), F32(1))).reshape(1), 1)


def test_tensors_that_cannot_be_cut_are_refused():
    for splits, values in (([I64([0, 9])], VALUES), ([I64([0, 3, 2])], VALUES), ([I64([])], VALUES), ([], F32(1))):
        with pytest.raises(INVALID):
            encode(splits, values, batched=True)
    rows = encode([INNER], VALUES, batched=True)
    for splits, shape in ((I64([0, 5]), I32([5])), (I64([0, 1, 2, 5]), I32([5]))):
        with pytest.raises(INVALID):
            run_op("RaggedTensorToVariantGradient", [rows, splits, shape], Tvalues="float32")
    one = encode([], VALUES, batched=False)
    with pytest.raises(INVALID, match="Expected dense_values_shape"):
        run_op("RaggedTensorToVariantGradient", [one, I64([]), I32([4])], Tvalues="float32")
