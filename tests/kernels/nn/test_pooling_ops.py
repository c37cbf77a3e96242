"""Pools: known answers, pixel-by-pixel models, gradients, NaN and infinities, TensorFlow's messages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.common import windowing
from aexec.kernels.nn import pooling_in_c
from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses, assert_same, example_of
from tests.kernels.conv_support import Windows, assert_close, window_attrs
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

LOWEST = np.finfo(np.float32).min
# Ops that TensorFlow computes on GPUs only, and those whose types they have.
LIKE = {"MaxPoolGradGradWithArgmax": "MaxPoolGradWithArgmax"}


@pytest.mark.parametrize("op", ops_of("nn.pooling_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(LIKE.get(op, op))


def attrs_of(sizes, strides, padding):
    attrs = {"ksize": [1, *sizes, 1], "strides": [1, *strides, 1]}
    if isinstance(padding, str):
        return {**attrs, "padding": padding}
    pairs = [n for pair in [(0, 0), *padding, (0, 0)] for n in pair]
    return {**attrs, "padding": "EXPLICIT", "explicit_paddings": pairs}


TWO = attrs_of([2, 2], [1, 1], "VALID")


def image(*rows, dtype=np.float32):
    x = np.array(rows, dtype)
    return x.reshape(1, *x.shape, 1)


def members(x, windows):
    """{output pixel: [(input pixel, values [batch, channels])]} in the order of the taps."""
    found = {at: [] for at in itertools.product(*map(range, windows.counts))}
    for at, _, where in windows.visits():
        found[at].append((where, x[(slice(None), *where)]))
    return found


# Known answers


@pytest.mark.parametrize("dtype", [t.np for t in dtypes.REAL_NUMBER if t not in (dtypes.uint32, dtypes.uint64)])
def test_max_of_every_type(dtype):
    x = image([1, 2, 0], [3, 4, 1], [9, 1, 1], dtype=dtype)
    assert_gives("MaxPool", [x], image([4, 4], [9, 4], dtype=dtype), **TWO)
    assert_gives(
        "MaxPoolV2", [x, I32([1, 2, 2, 1]), I32([1, 1, 1, 1])], image([4, 4], [9, 4], dtype=dtype), padding="VALID"
    )
    assert_gives(
        "MaxPoolWithArgmax", [x], (image([4, 4], [9, 4], dtype=dtype), image([4, 4], [6, 4], dtype=np.int64)), **TWO
    )


@pytest.mark.parametrize("dtype", [t.np for t in dtypes.FLOAT])
def test_mean_of_every_type(dtype):
    x = image([1, 2, 0], [3, 4, 1], [9, 1, 1], dtype=dtype)
    assert_gives("AvgPool", [x], image([2.5, 1.75], [4.25, 1.75], dtype=dtype), **TWO)
    same = attrs_of([2, 2], [2, 2], "SAME")
    assert_gives("AvgPool", [x], image([2.5, 0.5], [5, 1], dtype=dtype), **same)


def test_mean_of_half_precision_is_added_in_float():
    x = np.full((1, 100, 100, 1), 1, np.float16)
    assert_gives("AvgPool", [x], np.ones((1, 1, 1, 1), np.float16), **attrs_of([100, 100], [1, 1], "VALID"))


def test_maximum_over_depth():
    x = F32([1, 5, 2, 0, 7, 6]).reshape(1, 1, 1, 6)
    attrs = {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID"}
    assert_gives("MaxPool", [x], F32([5, 7]).reshape(1, 1, 1, 2), **attrs)


def test_maximum_passes_over_nan_and_never_falls_below_the_finite_numbers():
    nan, inf = np.nan, np.inf
    for rows, want in (
        ([[nan, 1], [2, 3]], 3),
        ([[5, nan], [nan, 3]], 5),
        ([[nan, nan], [nan, nan]], LOWEST),
        ([[-inf, -inf], [-inf, -inf]], LOWEST),
        ([[inf, nan], [1, 2]], inf),
    ):
        assert_gives("MaxPool", [image(*rows)], image([want]), **TWO)


def test_first_of_equals_is_the_argmax_and_nan_stays_where_it_comes_first():
    nan = np.nan
    for rows, best, at in (
        ([[1, 1], [1, 1]], 1, 0),
        ([[nan, 1], [2, 3]], nan, 0),
        ([[1, nan], [nan, 2]], 2, 3),
    ):
        assert_gives("MaxPoolWithArgmax", [image(*rows)], (image([best]), image([at], dtype=np.int64)), **TWO)


def test_argmax_can_count_through_the_batch():
    x = np.concatenate([image([1, 2], [3, 4]), image([9, 2], [3, 4])])
    _, where = run_op("MaxPoolWithArgmax", [x], include_batch_in_index=True, Targmax="int32", **TWO)
    assert_same(where.ravel(), I32([3, 4]))


def test_three_dimensional_windows_are_centred():
    x = F32([10, 11, 12]).reshape(1, 3, 1, 1, 1)
    attrs = attrs_of([1, 1, 1], [3, 1, 1], "SAME")
    for op in ("MaxPool3D", "AvgPool3D"):
        assert run_op(op, [x], **attrs).ravel().tolist() == [11]


def test_empty_tensors():
    for shape in ((0, 3, 3, 1), (1, 3, 3, 0)):
        x = np.zeros(shape, np.float32)
        want = np.zeros((shape[0], 2, 2, shape[3]), np.float32)
        assert_gives("MaxPool", [x], want, **TWO)
        assert_gives("AvgPool", [x], want, **TWO)
        assert_gives("MaxPoolGrad", [x, want, want], x, **TWO)
        assert_gives("AvgPoolGrad", [I32(shape), want], x, **TWO)


@pytest.mark.parametrize("shape", [(0, 3_000_000, 5, 3_000_000), (3_000_000, 3_000_000, 5, 0)])
def test_millions_of_rows_of_nothing_are_not_looked_at(shape, monkeypatch):
    monkeypatch.setattr(pooling_in_c, "blocks", None)
    x, attrs = np.zeros(shape, np.float32), {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": b"SAME"}
    assert run_op("MaxPool", [x], **attrs).shape == shape
    assert run_op("MaxPoolGrad", [x, x, x], **attrs).shape == shape


# Against the models


@settings(max_examples=60)
@given(data=st.data())
def test_pooling_in_two_dimensions(data):
    lengths, sizes, strides, _, padding = data.draw(window_attrs(2, explicit=True))
    x = example_of((2, *lengths, 2), np.float32)
    windows, attrs = Windows(lengths, sizes, strides, padding), attrs_of(sizes, strides, padding)
    largest = check_max("MaxPool", x, windows, attrs)
    grad = example_of(largest.shape, np.float32, seed=1)
    for_x = np.zeros_like(x)
    for at, values in members(x, windows).items():
        for n, c in itertools.product(range(2), range(2)):
            if values:
                where = max(values, key=lambda v: v[1][n, c])[0]
                for_x[(n, *where, c)] += grad[(n, *at, c)]
    assert_gives("MaxPoolGrad", [x, largest, grad], for_x, **attrs)
    if isinstance(padding, str):
        inputs = [x, largest, grad, I32(attrs["ksize"]), I32(attrs["strides"])]
        assert_gives("MaxPoolGradV2", inputs, for_x, padding=padding)
        best, where = run_op("MaxPoolWithArgmax", [x], **attrs)
        assert_same(best, largest)
        assert_gives("MaxPoolGradWithArgmax", [x, grad, where], for_x, **attrs)
        image = np.arange(2).reshape(2, 1, 1, 1) * x[0].size
        assert_gives("MaxPoolGradGradWithArgmax", [x, for_x, where], for_x.ravel()[where + image], **attrs)
        check_mean("AvgPool", x, windows, windows, attrs)


@settings(max_examples=40)
@given(data=st.data())
def test_three_dimensions(data):
    lengths, sizes, strides, _, padding = data.draw(window_attrs(3))
    x = example_of((2, *lengths, 1), np.float32)
    windows = Windows(lengths, sizes, strides, padding)
    centred = Windows(lengths, sizes, strides, padding, centred=True)
    attrs = attrs_of(sizes, strides, padding)
    largest = check_max("MaxPool3D", x, centred, attrs)
    check_mean("AvgPool3D", x, centred, windows, attrs)
    grad = example_of(largest.shape, np.float32, seed=1)
    for_x, picked = np.zeros_like(x), np.zeros_like(largest)
    for at, values in members(x, windows).items():
        open_ = np.ones((2, 1), bool)
        for where, value in values:
            hit = value == largest[(slice(None), *at)]
            for_x[(slice(None), *where)] += hit * grad[(slice(None), *at)]
            picked[(slice(None), *at)] += (hit & open_) * (x + 5)[(slice(None), *where)]
            open_ &= ~hit
    assert_gives("MaxPool3DGrad", [x, largest, grad], for_x, **attrs)
    assert_gives("MaxPool3DGradGrad", [x, largest, x + 5], picked, **attrs)


def check_max(op, x, windows, attrs):
    want = np.full((x.shape[0], *windows.counts, x.shape[-1]), LOWEST, np.float32)
    for at, values in members(x, windows).items():
        for _, value in values:
            want[(slice(None), *at)] = np.maximum(want[(slice(None), *at)], value)
    assert_gives(op, [x], want, **attrs)
    return want


def check_mean(op, x, windows, of_gradient, attrs):
    want = np.zeros((x.shape[0], *windows.counts, x.shape[-1]))
    for at, values in members(x, windows).items():
        want[(slice(None), *at)] = np.mean([v for _, v in values], axis=0)
    assert_close(run_op(op, [x], **attrs), want, np.float32, 1e-5)
    grad = example_of(want.shape, np.float32, seed=1)
    for_x = np.zeros(x.shape)
    for at, values in members(x, of_gradient).items():
        for where, _ in values:
            for_x[(slice(None), *where)] += grad[(slice(None), *at)] / len(values)
    assert_close(run_op(f"{op}Grad", [I32(x.shape), grad], **attrs), for_x, np.float32, 1e-5)


def test_second_gradient_takes_the_first_equal_element():
    x, grad = image([1, 2], [2, 0]), image([5, 6], [7, 8])
    assert_gives("MaxPoolGradGrad", [x, image([2]), grad], image([6]), **TWO)
    assert_gives("MaxPoolGradGrad", [x, image([9]), grad], image([0]), **TWO)
    windows = [I32(TWO["ksize"]), I32(TWO["strides"])]
    assert_gives("MaxPoolGradGradV2", [x, image([2]), grad, *windows], image([6]), padding=TWO["padding"])


# Errors


@pytest.mark.parametrize(
    ("op", "x", "attrs", "error", "message"),
    [
        ("MaxPool", (3, 3, 1), {}, None, "tensor_in_shape must have 2 spatial dimensions. 3 0"),
        ("AvgPool", (3, 3, 1), {}, None, "tensor_in_shape must have 2 spatial dimensions. 3 0"),
        (
            "MaxPool",
            (1, 3, 3, 1),
            {"ksize": [1, 0, 1, 1]},
            None,
            "Sliding window ksize must be positive. The specified or inferred ksize is: 1,0,1,1",
        ),
        ("AvgPool", (1, 3, 3, 1), {"ksize": [1, 0, 1, 1]}, None, "ksize must be a positive int32 value, got:0"),
        ("MaxPool", (1, 3, 3, 1), {"strides": [1, 0, 1, 1]}, None, "Stride must be > 0, but got 0"),
        (
            "MaxPool",
            (1, 3, 3, 1),
            {"ksize": [2, 1, 1, 1]},
            errors.UnimplementedError,
            "Pooling is not yet supported on the batch dimension.",
        ),
        (
            "MaxPool",
            (1, 3, 3, 4),
            {"ksize": [1, 2, 2, 2], "strides": [1, 1, 1, 2]},
            errors.UnimplementedError,
            "MaxPooling supports exactly one of pooling across depth or pooling across width/height.",
        ),
        (
            "MaxPool",
            (1, 3, 3, 3),
            {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]},
            errors.UnimplementedError,
            "Depthwise max pooling requires the depth window to evenly divide the input depth",
        ),
        (
            "MaxPool",
            (1, 3, 3, 4),
            {"ksize": [1, 1, 1, 2]},
            errors.UnimplementedError,
            "Depthwise max pooling requires the depth window to equal the depth stride",
        ),
        (
            "AvgPool",
            (1, 3, 3, 4),
            {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]},
            errors.UnimplementedError,
            "Non-spatial pooling is not yet supported. Volunteers? :)",
        ),
        (
            "MaxPool",
            (1, 1, 3, 3),
            {"data_format": "NCHW"},
            None,
            "Default MaxPoolingOp only supports NHWC on device type CPU",
        ),
        (
            "MaxPool",
            (1, 3, 3, 1),
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 0, 0, 1, 2, 0, 0]},
            None,
            "Right padding 2 needs to be smaller than the window size 2",
        ),
        ("MaxPool3D", (3, 3, 3, 1), {"ksize": [1] * 5, "strides": [1] * 5}, None, "tensor_in must be 5-dimensional"),
        (
            "MaxPool3D",
            (1, 3, 3, 3, 2),
            {"ksize": [1, 1, 1, 1, 2], "strides": [1] * 5},
            errors.UnimplementedError,
            "Pooling is not yet supported on the depth dimension.",
        ),
    ],
)
def test_errors(op, x, attrs, error, message):
    attrs = {**TWO, **attrs}
    assert_refuses(op, [np.zeros(x, np.float32)], message, error or errors.InvalidArgumentError, **attrs)


def test_window_of_the_wrong_length_as_an_input():
    message = "Sliding window ksize field must specify 4 dimensions"
    inputs = [image([1]), I32([1, 1, 1]), I32([1, 1, 1, 1])]
    assert_refuses("MaxPoolV2", inputs, message, padding="VALID")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 3, 1), (1, 2, 2, 1), (1, 2, 2, 1)], "tensor_in must be 4-dimensional"),
        ([(1, 3, 3, 1), (2, 2, 1), (1, 2, 2, 1)], "tensor_out must be 4-dimensional"),
        ([(1, 3, 3, 1), (1, 2, 2, 1), (2, 2, 1)], "out_backprop must be 4-dimensional"),
        ([(1, 3, 3, 1), (1, 2, 3, 1), (1, 2, 2, 1)], "Expected orig_output shape to be [1,2,2,1], but got [1,2,3,1]"),
        ([(1, 3, 3, 1), (1, 2, 2, 1), (1, 2, 3, 1)], "Expected grad shape to be [1,2,2,1], but got [1,2,3,1]"),
    ],
)
def test_gradient_errors(shapes, message):
    assert_refuses("MaxPoolGrad", [np.zeros(s, np.float32) for s in shapes], message, **TWO)


def test_other_gradient_errors():
    grad = np.zeros((1, 2, 2, 1), np.float32)
    message = "out_backprop must be 1-dimensional and 4 elements"
    assert_refuses("AvgPoolGrad", [I32([1, 3, 3]), grad], message, **TWO)
    assert_refuses("AvgPoolGrad", [I32([1, -3, 3, 1]), grad], "Expected a non-negative size, got -3", **TWO)
    message = "Expected grad shape to be [1,3,3,1], but got [1,2,2,1]"
    assert_refuses("AvgPoolGrad", [I32([1, 4, 4, 1]), grad], message, **TWO)
    x = np.zeros((1, 3, 3, 1), np.float32)
    where = I64([0, 1, 2, 9]).reshape(1, 2, 2, 1)
    assert_refuses("MaxPoolGradWithArgmax", [x, grad, where], "argmax must be in [0, 9)", **TWO)
    assert_refuses("MaxPoolGradGradWithArgmax", [x, x, where], "argmax must be in [0, 9)", **TWO)
    message = "Expected grad shape to be [1,3,3,1], but got [1,2,2,1]"
    assert_refuses("MaxPoolGradGradWithArgmax", [x, grad, where], message, **TWO)


def test_windows_much_larger_than_the_image_visit_only_what_is_there():
    """Millions of taps, of which SAME padding leaves nine inside: the answer comes at once."""
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    attrs = attrs_of([2**30, 2**30], [1, 1], "SAME")
    assert_gives("MaxPool", [x], np.full_like(x, 8), **attrs)
    assert_gives("AvgPool", [x], np.full_like(x, 4), **attrs)
    best, where = run_op("MaxPoolWithArgmax", [x], **attrs)
    assert_same(best, np.full_like(x, 8))
    assert_same(where, np.full(x.shape, 8, np.int64))
    assert run_op("MaxPoolGrad", [x, x, np.ones_like(x)], **attrs).ravel().tolist() == [0] * 8 + [9]


@pytest.mark.parametrize("values", [5, 10_000])
def test_gradients_of_windows_side_by_side(values):
    """With and without equals in a window; the last column belongs to no window."""
    rng = np.random.default_rng(values)
    x = rng.integers(0, values, (2, 4, 7, 3)).astype(np.float32)
    grad = rng.random((2, 2, 3, 3), np.float32)
    want, share = np.zeros_like(x), np.zeros_like(x)
    for n, i, j, c in np.ndindex(grad.shape):
        block = x[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c]
        at = np.unravel_index(block.argmax(), block.shape)
        want[n, 2 * i + at[0], 2 * j + at[1], c] = grad[n, i, j, c]
        share[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c] = grad[n, i, j, c] / 4
    attrs = attrs_of([2, 2], [2, 2], "VALID")
    assert_gives("MaxPoolGrad", [x, np.zeros_like(grad), grad], want, **attrs)
    assert_gives("AvgPoolGrad", [I32(x.shape), grad], share, **attrs)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 5, 16])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 12, 16])
def test_sizes_and_strides_of_windows(size, stride, padding):
    """Long windows are put together of stretches, short ones of taps, those side by side are reduced as they are."""
    x = np.random.default_rng(size).standard_normal((2, 18, 33, 3), np.float32)
    attrs = attrs_of([size, size + 1], [stride, stride], padding)
    spec = [windowing.extent(n, k, stride, 1, padding) for n, k in ((18, size), (33, size + 1))]
    padded = windowing.pad(np, x, spec, np.nan)
    view = windowing.windows(np, padded, spec)
    assert_gives("MaxPool", [x], np.nanmax(view, axis=(3, 4)), **attrs)
    mean = np.nanmean(view.astype(np.float64), axis=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(run_op("AvgPool", [x], **attrs), mean, rtol=1e-5, atol=1e-6)


def test_mean_of_a_large_window_loses_no_bits_to_its_length():
    """A running sum over the image would lose some ten of them."""
    x = np.random.default_rng(0).random((1, 512, 512, 2), np.float32) + 1000
    mean = run_op("AvgPool", [x], **attrs_of([301, 301], [1, 1], "VALID"))
    view = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (301, 301), (0, 1))
    want = view[::70, ::70].mean(axis=(-1, -2))
    np.testing.assert_allclose(mean[0, ::70, ::70], want, rtol=3e-7)


@pytest.mark.parametrize("op", ["MaxPool", "AvgPool"])
def test_number_of_threads_changes_nothing(op):
    x = np.random.default_rng(0).standard_normal((1, 200, 190, 30), np.float32)
    attrs = attrs_of([9, 9], [1, 1], "SAME")
    want, helpers = run_op(op, [x], **attrs), HelperThreads(3)
    with helpers.for_kernel():
        assert_same(run_op(op, [x], **attrs), want)
    for thread in helpers.close():
        thread.join()


@pytest.mark.parametrize("op", ["MaxPool", "AvgPool", "MaxPoolWithArgmax"])
@pytest.mark.parametrize("name", ["ksize", "strides"])
def test_windows_that_no_int32_holds(op: str, name: str) -> None:
    attrs: dict[str, object] = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": b"SAME"}
    attrs[name] = [1, 2, 2**63 - 1, 1]
    with pytest.raises(errors.InvalidArgumentError, match=f"Attr {name} has value 9223372036854775807 out of range"):
        run_op(op, [np.zeros((2, 5, 6, 3), np.float32)], **attrs)
