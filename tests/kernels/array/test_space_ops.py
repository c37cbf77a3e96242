"""Space, batch and depth, and patches: known answers, slow models for random ones, TensorFlow's messages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import ELEMENT_TYPES, F32, I32, assert_gives, assert_refuses, example_of
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

COMPLEX_BOOL_OR_STRING = (np.bool_, np.complex64, np.complex128, object)
REAL_TYPES = [t for t in ELEMENT_TYPES if t not in COMPLEX_BOOL_OR_STRING]


@pytest.mark.parametrize("op", ops_of("array.space_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def counted(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# Batch and space


def space_to_batch(x, blocks, paddings):
    """Element by element."""
    padded = np.pad(x, [(0, 0), *paddings, *[(0, 0)] * (x.ndim - 1 - len(blocks))])
    sizes = [n // b for n, b in zip(padded.shape[1:], blocks, strict=False)]
    rest = padded.shape[1 + len(blocks) :]
    out = np.zeros((x.shape[0] * int(np.prod(blocks)), *sizes, *rest), x.dtype)
    for number, offsets in enumerate(itertools.product(*map(range, blocks))):
        index = tuple(slice(o, None, b) for o, b in zip(offsets, blocks, strict=True))
        out[number * x.shape[0] : (number + 1) * x.shape[0]] = padded[(slice(None), *index)]
    return out


def test_space_to_batch_and_back():
    x = counted(1, 2, 4, 1)
    want = F32([[0, 2], [1, 3], [4, 6], [5, 7]]).reshape(4, 1, 2, 1)
    assert_gives("SpaceToBatch", [x, I32([[0, 0], [0, 0]])], want, block_size=2)
    assert_gives("SpaceToBatchND", [x, I32([2, 2]), I32([[0, 0], [0, 0]])], want)
    assert_gives("BatchToSpace", [want, I32([[0, 0], [0, 0]])], x, block_size=2)
    assert_gives("BatchToSpaceND", [want, I32([2, 2]), I32([[0, 0], [1, 2]])], x[:, :, 1:2])


@given(st.data())
def test_space_to_batch_nd_is_the_slow_model_and_batch_to_space_its_inverse(data):
    count = data.draw(st.integers(0, 3))
    blocks = [data.draw(st.integers(1, 3)) for _ in range(count)]
    paddings = [(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in range(count)]
    shape = [data.draw(st.integers(0, 2))]
    for block, (before, after) in zip(blocks, paddings, strict=True):
        shape.append(
            max(0, -(-(before + after) // block) * block + block * data.draw(st.integers(0, 2)) - before - after)
        )
    shape += [2] * data.draw(st.integers(0, 2))
    x = counted(*shape, dtype=np.int32)
    inputs = [I32(blocks), np.array(paddings, np.int32).reshape(count, 2)]
    want = space_to_batch(x, blocks, paddings)
    assert_gives("SpaceToBatchND", [x, *inputs], want)
    assert_gives("BatchToSpaceND", [want, *inputs], x)


@pytest.mark.parametrize("dtype", REAL_TYPES)
def test_space_to_batch_of_every_type(dtype):
    x = example_of((2, 2, 2, 1), dtype)
    assert_gives("SpaceToBatch", [x, I32([[1, 1], [0, 0]])], space_to_batch(x, [2, 2], [(1, 1), (0, 0)]), block_size=2)


@pytest.mark.parametrize(
    ("op", "shape", "blocks", "margins", "message"),
    [
        ("SpaceToBatchND", (1, 4, 4), [[2]], [[0, 0]], "block_shape rank should be 1 instead of 2"),
        ("SpaceToBatchND", (1, 4), [2, 2], [[0, 0]] * 2, "input rank should be >= 3 instead of 2"),
        ("SpaceToBatchND", (1, 4, 4), [2, 2], [[0, 0]], "paddings should have shape [2, 2] instead of [1,2]"),
        (
            "SpaceToBatchND",
            (1, 4, 4),
            [0, 2],
            [[0, 0]] * 2,
            "All values in block_shape must be positive, got value, 0 at index 0.",
        ),
        ("SpaceToBatchND", (1, 4, 4), [2, 2], [[0, 0], [-1, 1]], "Paddings must be non-negative"),
        ("SpaceToBatchND", (1, 4, 4), [1, 3], [[0, 0]] * 2, "padded_shape[1]=4 is not divisible by block_shape[1]=3"),
        (
            "SpaceToBatchND",
            (1, 2, 2, 2, 2, 2),
            [2] * 5,
            [[0, 0]] * 5,
            "Maximum number of non-combined block dimensions is 5 but must not exceed 4",
        ),
        ("BatchToSpaceND", (4, 4, 4), [2, 2], [[0, 0]], "crops should have shape [2, 2] instead of [1,2]"),
        ("BatchToSpaceND", (4, 4, 4), [0, 2], [[0, 0]] * 2, "Product of block sizes must be positive, got 0"),
        (
            "BatchToSpaceND",
            (4, 4, 4),
            [3, 2],
            [[0, 0]] * 2,
            "Input batch dimension (4) is not divisible by product of block sizes (6)",
        ),
        ("BatchToSpaceND", (4, 4, 4), [2, 2], [[-1, 1], [0, 0]], "Crops must be non-negative"),
        ("BatchToSpaceND", (4, 4, 4), [2, 2], [[5, 5], [0, 0]], "cropped_shape[0]=-2 must be non-negative"),
    ],
)
def test_block_errors(op, shape, blocks, margins, message):
    assert_refuses(op, [counted(*shape), I32(blocks), I32(margins)], message)


def test_older_ops_take_images_only():
    for op in ("SpaceToBatch", "BatchToSpace"):
        assert_refuses(
            op, [counted(4, 4, 4), I32([[0, 0], [0, 0]])], "Input rank should be: 4instead of: 3", block_size=2
        )


# Depth and space


def test_space_to_depth_and_back():
    x = counted(1, 2, 4, 1)
    want = F32([[0, 1, 4, 5], [2, 3, 6, 7]]).reshape(1, 1, 2, 4)
    assert_gives("SpaceToDepth", [x], want, block_size=2)
    assert_gives("DepthToSpace", [want], x, block_size=2)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_depth_of_every_type(dtype):
    x = example_of((2, 4, 6, 3), dtype)
    deep = run_op("SpaceToDepth", [x], block_size=2)
    assert deep.shape == (2, 2, 3, 12)
    assert (deep[:, :, :, 3:6] == x[:, ::2, 1::2]).all()
    assert_gives("DepthToSpace", [deep], x, block_size=2)


def test_depth_errors():
    message = "Image width 4 and height 3 should be divisible by block_size: 2"
    assert_refuses("SpaceToDepth", [counted(1, 3, 4, 1)], message, block_size=2)
    assert_refuses("SpaceToDepth", [counted(4, 4, 1)], "Input rank should be 4 instead of 3", block_size=2)
    message = "Input depth dimension 3 should be divisible by: 4"
    assert_refuses("DepthToSpace", [counted(1, 1, 1, 3)], message, block_size=2)
    assert_refuses("DepthToSpace", [counted(4, 4, 1)], "Input rank should be: 4 instead of: 3", block_size=2)


def test_depth_has_no_cpu_kernel_for_channels_first():
    with pytest.raises(errors.NotFoundError, match="data_format is NCHW"):
        run_op("DepthToSpace", [counted(1, 4, 2, 2)], block_size=2, data_format="NCHW")


# Patches


def patches(x, sizes, strides, rates, padding, centred=False):
    """Pixel by pixel."""
    spans = [(k - 1) * r + 1 for k, r in zip(sizes, rates, strict=True)]
    counts, befores = [], []
    for n, span, stride in zip(x.shape[1:-1], spans, strides, strict=True):
        count = -(-n // stride) if padding == "SAME" else max(0, (n - span) // stride + 1)
        total = (count - 1) * stride + span - n
        counts.append(count)
        befores.append(0 if padding == "VALID" else int(total / 2) if centred else max(0, total) // 2)
    out = np.zeros((x.shape[0], *counts, *sizes, x.shape[-1]), x.dtype)
    for at in itertools.product(*map(range, counts)):
        for tap in itertools.product(*map(range, sizes)):
            where = [a * s + t * r - b for a, s, t, r, b in zip(at, strides, tap, rates, befores, strict=True)]
            if all(0 <= w < n for w, n in zip(where, x.shape[1:-1], strict=True)):
                out[(slice(None), *at, *tap)] = x[(slice(None), *where)]
    return out.reshape(x.shape[0], *counts, int(np.prod(sizes)) * x.shape[-1])


@given(st.data())
def test_image_patches(data):
    shape = [data.draw(st.integers(0, 2)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6)), 2]
    sizes, strides, rates = ([data.draw(st.integers(1, 3)) for _ in range(2)] for _ in range(3))
    padding = data.draw(st.sampled_from(["SAME", "VALID"]))
    if padding == "VALID":
        rates = [1, 1]
        sizes = [min(k, n) for k, n in zip(sizes, shape[1:], strict=False)]
    x = counted(*shape, dtype=np.int32) + 1
    attrs = {"ksizes": [1, *sizes, 1], "strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    assert_gives("ExtractImagePatches", [x], patches(x, sizes, strides, rates, padding), **attrs)


@given(st.data())
def test_volume_patches_are_centred(data):
    shape = [2, *[data.draw(st.integers(1, 5)) for _ in range(3)], 1]
    sizes, strides = ([data.draw(st.integers(1, 3)) for _ in range(3)] for _ in range(2))
    x = counted(*shape) + 1
    attrs = {"ksizes": [1, *sizes, 1], "strides": [1, *strides, 1], "padding": "SAME"}
    want = patches(x, sizes, strides, [1] * 3, "SAME", centred=True)
    assert_gives("ExtractVolumePatches", [x], want, **attrs)


def test_patch_errors():
    attrs = {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}
    assert_refuses("ExtractImagePatches", [counted(4, 4, 1)], "input must be 4-dimensional[4,4,1]", **attrs)
    message = "Only support ksizes across space."
    across = {**attrs, "ksizes": [1, 2, 2, 2]}
    assert_refuses("ExtractImagePatches", [counted(1, 4, 4, 1)], message, errors.UnimplementedError, **across)
    nothing = {**attrs, "strides": [1, 0, 1, 1]}
    assert_refuses(
        "ExtractImagePatches", [counted(1, 4, 4, 1)], "strides is out of range.", errors.OutOfRangeError, **nothing
    )
    far = {**attrs, "ksizes": [1, 3, 1, 1], "rates": [1, 3, 1, 1]}
    message = "Computed output size would be negative: -2 [input_size: 4, effective_filter_size: 7, stride: 1]"
    assert_refuses("ExtractImagePatches", [counted(1, 4, 4, 1)], message, **far)
