"""Constants, placeholders, identities, shape queries and views: known answers, TensorFlow's messages, sweeps."""

from __future__ import annotations

from time import process_time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.kernels.array.constant_inputs import freeze, is_frozen
from tests.kernels.array_support import (
    ELEMENT_TYPES,
    F32,
    I32,
    I64,
    assert_gives,
    assert_refuses,
    assert_same,
    example_of,
    shapes,
)
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op, strings

MODULES = (
    "array.array_ops",
    "array.concat_ops",
    "array.fill_ops",
    "array.fingerprint_ops",
    "array.inplace_ops",
    "array.pad_ops",
    "array.reverse_ops",
    "array.unique_ops",
)
X = F32([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("op", ops_of(*MODULES))
def test_kernels_are_registered_as_in_tensorflow(op):
    if op == "TileGrad":  # TensorFlow constrains an attr that the op lacks, so it never runs there
        assert in_tensorflow(op) != registered(op)
    else:
        assert registered(op) == in_tensorflow(op)


# ---- constants and placeholders


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_const_gives_its_value_read_only(dtype):
    value = example_of((2, 2), dtype)
    value.flags.writeable = False
    got = run_op("Const", [], value=value, dtype="string" if dtype is object else np.dtype(dtype))
    assert_same(got, value)
    assert not got.flags.writeable


def test_const_refuses_a_value_of_another_type():
    assert_refuses("Const", [], "Type mismatch between value (float) and dtype (int32)", value=F32(1), dtype="int32")


@pytest.mark.parametrize(
    ("shape", "end"),
    [
        (UNKNOWN_RANK, "dtype float"),
        (PartialTensorShape([]), "dtype float"),
        (PartialTensorShape([2]), "dtype float and shape [2]"),
        (PartialTensorShape([None, 3]), "dtype float and shape [?,3]"),
    ],
)
def test_unfed_placeholder_says_which_it_is(shape, end):
    assert_refuses(
        "Placeholder",
        [],
        f"You must feed a value for placeholder tensor 'Placeholder' with {end}",
        dtype="float",
        shape=shape,
    )


@pytest.mark.parametrize("op", ["Identity", "StopGradient", "Snapshot", "GuaranteeConst"])
def test_identities_pass_the_very_array_on(op):
    built, (x,), _ = build(op, [X])
    assert built.compute(x) is x


def test_placeholder_with_default_gives_the_default():
    assert_gives("PlaceholderWithDefault", [X], X, shape=PartialTensorShape([None, 3]))


def test_identity_n_takes_any_types():
    assert_gives("IdentityN", [[X, strings("a", "b")]], (X, strings("a", "b")))
    assert_gives("IdentityN", [[X]], X)


def test_deep_copy_shares_nothing():
    built, (x,), _ = build("DeepCopy", [X])
    got = built.compute(x)
    assert_same(got, X)
    assert not np.shares_memory(got, x)


# ---- shape queries


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4)])
def test_shape_size_and_rank(shape, dtype):
    x = example_of(shape, dtype)
    assert_gives("Shape", [x], I32(shape))
    assert_gives("Shape", [x], I64(shape), out_type="int64")
    assert_gives("Size", [x], I32(x.size))
    assert_gives("Size", [x], I64(x.size), out_type="int64")
    assert_gives("Rank", [x], I32(len(shape)))


def test_shape_n():
    assert_gives("ShapeN", [[X, F32(1), F32([])]], (I64([2, 3]), I64([]), I64([0])), out_type="int64")


def test_shape_follows_its_input_from_step_to_step():
    built, _, _ = build("Shape", [X])
    for shape in ((2, 3), (2, 3), (4,), (2, 3)):
        assert built.compute(np.zeros(shape, np.float32)).tolist() == list(shape)


def test_sizes_beyond_32_bits_need_int64():
    huge = np.broadcast_to(F32(0), (2**20, 2**20))
    built, _, _ = build("Size", [X])
    with pytest.raises(OverflowError) as caught:
        built.compute(huge)
    assert "larger than representable by 32-bit" in built.explain(caught.value, huge).message
    built, _, _ = build("Shape", [X])
    with pytest.raises(errors.InvalidArgumentError, match="Shape output type is 32-bit"):
        built.compute(np.broadcast_to(F32(0), (2**32, 1)))


# ---- Reshape


@pytest.mark.parametrize(
    ("old", "sizes", "new"),
    [
        ((2, 3), [6], (6,)),
        ((2, 3), [-1], (6,)),
        ((2, 3), [3, -1], (3, 2)),
        ((2, 3), 6, (6,)),
        ((1,), [], ()),
        ((), [1, 1], (1, 1)),
        ((), [-1], (1,)),
        ((0, 3), [-1], (0,)),
        ((0, 3), [-1, 5], (0, 5)),
        ((0, 3), [-1, 0], (3, 0)),
        ((2, 0, 3), [3, 0, -1], (3, 0, 2)),
        ((0,), [7, 0, 2], (7, 0, 2)),
    ],
)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_reshape(old, sizes, new, index):
    x = example_of(old, np.float32)
    assert_gives("Reshape", [x, np.array(sizes, index)], x.reshape(new))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (I32([4]), "Input to reshape is a tensor with 6 values, but the requested shape has 4"),
        (I32([]), "Input to reshape is a tensor with 6 values, but the requested shape has 1"),
        (I32([-1, -1]), "Only one input size may be -1, not both 0 and 1"),
        (I32([-2, 3]), "Size 0 must be non-negative, not -2"),
        (I32([-1, 4]), "Input to reshape is a tensor with 6 values, but the requested shape requires a multiple of 4"),
        (I32([[2, 3]]), "sizes input must be 1-D, not [1,2]"),
        (I64([2**40, 2**40]), "Shape [1099511627776, 1099511627776] has too many elements"),
    ],
)
def test_reshape_refuses(sizes, message):
    assert_refuses("Reshape", [X, sizes], message)


@pytest.mark.parametrize("op", ["Reshape", "Transpose", "BroadcastTo", "Fill"])
def test_matrices_without_columns_are_refused_however_many_rows_they_have(op):
    sizes = np.zeros((1_000_000, 0), np.int32)
    built, inputs, _ = build(op, [sizes, np.float32(1)] if op == "Fill" else [X, sizes])
    began = process_time()
    with pytest.raises((errors.InvalidArgumentError, ValueError)):
        built.compute(*inputs)
    assert process_time() - began < 0.1  # a list for each row takes a second


def test_reshape_is_a_view_and_knows_it():
    built, (x, shape), _ = build("Reshape", [X, I32([3, 2])])
    assert np.shares_memory(built.compute(x, shape), x)
    assert built.cost(x, shape) == 0
    assert built.cost(x.T, shape) > 0


@given(shapes(), st.data())
def test_reshape_to_a_permutation_of_the_dimensions(shape, data):
    x = example_of(shape, np.int32)
    new = data.draw(st.permutations(shape))
    assert_gives("Reshape", [x, I64(new)], x.reshape(new))
    if new and 0 not in new:
        new[data.draw(st.integers(0, len(new) - 1))] = -1
        assert_gives("Reshape", [x, I64(new)], x.reshape(new))


# ---- what a kernel remembers of its constant inputs


def test_only_bytes_that_nobody_can_change_are_constant():
    mutable = I32([3, 2])
    view = mutable.view()
    view.flags.writeable = False
    assert not is_frozen(mutable)
    assert not is_frozen(view)
    mutable.flags.writeable = False
    assert not is_frozen(view)  # whoever owns the memory can make it writable again
    assert is_frozen(freeze(mutable))
    assert is_frozen(freeze(mutable)[:1])


def test_freezing_keeps_large_arrays_and_objects_as_they_are():
    for array in (np.zeros(10_000), strings("a"), np.zeros(0, np.int32)):
        assert freeze(array) is array


def test_fed_shape_may_be_changed_between_steps():
    built, _, _ = build("Reshape", [X, I32([6])])
    shape = I32([3, 2])
    assert built.compute(X, shape).shape == (3, 2)
    shape[:] = [2, 3]
    assert built.compute(X, shape).shape == (2, 3)


@pytest.mark.parametrize(
    ("op", "constants", "results"),
    [
        ("Reshape", [I32([3, 2]), I32([6])], [(3, 2), (6,)]),
        ("ExpandDims", [I32(0), I32(-1)], [(1, 2, 3), (2, 3, 1)]),
        ("Transpose", [I32([1, 0]), I32([0, 1])], [(3, 2), (2, 3)]),
    ],
)
def test_kernels_tell_constants_apart(op, constants, results):
    built, _, _ = build(op, [X, constants[0]])
    constants = [freeze(constant) for constant in constants]
    for i in (0, 0, 1, 1, 0, 1):
        assert built.compute(X, constants[i]).shape == results[i]


# ---- ExpandDims, Squeeze, Transpose


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize(
    ("shape", "dim", "new"),
    [
        ((), 0, (1,)),
        ((), -1, (1,)),
        ((2, 3), 0, (1, 2, 3)),
        ((2, 3), 2, (2, 3, 1)),
        ((2, 3), -1, (2, 3, 1)),
        ((2, 3), -3, (1, 2, 3)),
        ((2, 3), [[1]], (2, 1, 3)),
    ],
)
def test_expand_dims(shape, dim, new, dtype):
    x = example_of(shape, dtype)
    assert_gives("ExpandDims", [x, I64(dim)], x.reshape(new))


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        (I32(5), "Tried to expand dim index 5 for tensor with 2 dimensions."),
        (I32(-4), "Tried to expand dim index -4 for tensor with 2 dimensions."),
        (I32(10**6), "Tried to expand dim index 1000000 for tensor with 2 dimensions."),
        (I32([0, 1]), "'dim' must be a tensor with a single value"),
        (I32([]), "'dim' must be a tensor with a single value"),
    ],
)
def test_expand_dims_refuses(dim, message):
    assert_refuses("ExpandDims", [X, dim], message)


@pytest.mark.parametrize(
    ("shape", "dims", "new"),
    [
        ((1, 2, 1), [], (2,)),
        ((1, 1), [], ()),
        ((2, 3), [], (2, 3)),
        ((1, 2, 1), [0], (2, 1)),
        ((1, 2, 1), [-1], (1, 2)),
        ((1, 2, 1), [0, 0, -1], (2,)),
        ((1, 2, 1), [0, -3], (2, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, object])
def test_squeeze(shape, dims, new, dtype):
    x = example_of(shape, dtype)
    assert_gives("Squeeze", [x], x.reshape(new), squeeze_dims=dims)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([1], "Can not squeeze dim[1], expected a dimension of 1, got 3"),
        ([-1], "Can not squeeze dim[1], expected a dimension of 1, got 3"),
        ([5], "Tried to squeeze dim index 5 for tensor with 2 dimensions."),
        ([-3], "Tried to squeeze dim index -3 for tensor with 2 dimensions."),
        ([0, -3], "Tried to squeeze dim index -3 for tensor with 2 dimensions."),
    ],
)
def test_squeeze_refuses(dims, message):
    assert_refuses("Squeeze", [X], message, squeeze_dims=dims)


@given(shapes(), st.data())
def test_transpose(shape, data):
    x = example_of(shape, data.draw(st.sampled_from([np.float32, np.int64, object, ml_dtypes.bfloat16])))
    perm = data.draw(st.permutations(range(len(shape))))
    assert_gives("Transpose", [x, I32(perm)], x.transpose(perm))
    assert_gives("Transpose", [x, I64([axis - len(shape) for axis in perm])], x.transpose(perm))


def test_conjugate_transpose():
    x = np.complex64([[1 + 2j, 3 - 1j]])
    assert_gives("ConjugateTranspose", [x, I32([1, 0])], np.complex64([[1 - 2j], [3 + 1j]]))
    assert_gives("ConjugateTranspose", [X, I32([1, 0])], X.T)


@pytest.mark.parametrize(
    ("perm", "message"),
    [
        (I32([0]), "transpose expects a vector of size 2. But input(1) is a vector of size 1"),
        (I32([0, 0]), "1 is missing from {0,0}."),
        (I32([0, 2]), "2 is out of range [0 .. 2)"),
        (I32([0, -3]), "-1 is out of range [0 .. 2)"),
        (I32([[0, 1]]), "perm must be rank 1, got shape [1,2]"),
        (I32(0), "perm must be rank 1, got shape []"),
    ],
)
@pytest.mark.parametrize("op", ["Transpose", "ConjugateTranspose"])
def test_transpose_refuses(op, perm, message):
    assert_refuses(op, [X, perm], message)


# ---- checks


def test_ensure_shape():
    for dims in (None, [2, 3], [None, 3], [None, None]):
        assert_gives("EnsureShape", [X], X, shape=PartialTensorShape(dims))
    text = "Shape of tensor EnsureShape [2,3] is not compatible with expected shape"
    assert_refuses("EnsureShape", [X], f"{text} [?,2].", shape=PartialTensorShape([None, 2]))
    assert_refuses("EnsureShape", [X], f"{text} [?].", shape=PartialTensorShape([None]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("values", "found", "found_v2"),
    [
        ([1, np.nan], "NaN", "NaN"),
        ([1, np.inf], "Inf", "+Inf"),
        ([-np.inf], "Inf", "-Inf"),
        ([np.inf, -np.inf], "Inf", "-Inf and +Inf"),
        ([np.nan, -np.inf], "Inf and NaN", "-Inf and NaN"),
        ([np.nan, np.inf, -np.inf], "Inf and NaN", "-Inf, +Inf, and NaN"),
    ],
)
def test_check_numerics_names_what_it_found(values, found, found_v2, dtype):
    x = np.array(values, dtype)
    assert_refuses("CheckNumerics", [x], f"m : Tensor had {found} values", message=b"m")
    assert_refuses("CheckNumericsV2", [x], f"m : Tensor had {found_v2} values", message=b"m")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("values", [[], 0, [1, -2], [[65504.0]]])
def test_check_numerics_passes_finite_values_on(values, dtype):
    x = np.array(values, dtype)
    assert_gives("CheckNumerics", [x], x, message=b"m")
    assert_gives("CheckNumericsV2", [x], x, message=b"m")


# ---- Empty


@pytest.mark.parametrize("init", [False, True])
def test_empty_shows_nobody_elses_memory(init):
    assert_gives("Empty", [I32([2, 2])], F32([[0, 0], [0, 0]]), dtype="float", init=init)
    assert_gives("Empty", [I32([2])], strings("", ""), dtype="string", init=init)


def test_empty_refuses():
    assert_refuses("Empty", [I32(2)], "shape must be a vector of int32, got shape []", dtype="float")
    assert_refuses("Empty", [I32([2, -1])], "Dimension -1 must be >= 0", dtype="float")
    text = "Shape [1073741824,1073741824,1073741824] would have more than 2**63 - 1 elements"
    assert_refuses("Empty", [I32([2**30] * 3)], text, dtype="float")
    with pytest.raises(errors.ResourceExhaustedError, match=r"OOM when allocating tensor with shape\[1048576,"):
        run_op("Empty", [I32([2**20, 2**30])], dtype="float")
