"""Convolutions of two and three dimensions: known answers, direct convolution, gradients, TensorFlow's messages."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.common import windowing
from aexec.kernels.nn import convolution_geometry, winograd
from aexec.kernels.nn.convolution_geometry import Geometry
from tests.kernels.array_support import F32, I32, assert_gives, assert_refuses, assert_same
from tests.kernels.conv_support import Windows, assert_close, convolve, window_attrs
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op

TYPES = [(np.float32, 1e-4), (np.float64, 1e-10), (np.float16, 1e-2), (ml_dtypes.bfloat16, 1e-1)]


@pytest.mark.parametrize("op", ops_of("nn.conv_ops", "nn.conv3d_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(dtype)


def attrs_of(strides, padding, rates=None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"strides": [1, *strides, 1]}
    if rates:
        attrs["dilations"] = [1, *rates, 1]
    if isinstance(padding, str):
        return {**attrs, "padding": padding}
    pairs = [n for pair in [(0, 0), *padding, (0, 0)] for n in pair]
    return {**attrs, "padding": "EXPLICIT", "explicit_paddings": pairs}


# Known answers


def test_three_by_three_sum():
    x, ones = F32(range(16)).reshape(1, 4, 4, 1), np.ones((3, 3, 1, 1), np.float32)
    assert_gives("Conv2D", [x, ones], F32([[45, 54], [81, 90]]).reshape(1, 2, 2, 1), **attrs_of([1, 1], "VALID"))
    same = F32([[10, 24], [51, 90]]).reshape(1, 2, 2, 1)
    assert_gives("Conv2D", [x, ones], same, **attrs_of([2, 2], [(1, 0), (1, 0)]))


def test_one_by_one_kernel_is_a_matrix_product():
    x, weights = random(2, 3, 4, 5), random(1, 1, 5, 6)
    want = (x.reshape(-1, 5) @ weights[0, 0]).reshape(2, 3, 4, 6)
    assert_gives("Conv2D", [x, weights], want, **attrs_of([1, 1], "SAME"))


def test_integers_are_exact():
    rng = np.random.default_rng(0)
    x, weights = rng.integers(-9, 9, (1, 5, 4, 2), np.int32), rng.integers(-9, 9, (2, 3, 2, 3), np.int32)
    want = convolve(x, weights, Windows([5, 4], [2, 3], [1, 1], "SAME"))
    assert_gives("Conv2D", [x, weights], want.astype(np.int32), **attrs_of([1, 1], "SAME"))


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_every_floating_type(dtype, tolerance):
    x, weights = random(2, 5, 4, 3, dtype=dtype), random(3, 2, 3, 4, dtype=dtype)
    windows = Windows([5, 4], [3, 2], [2, 1], "SAME")
    got = run_op("Conv2D", [x, weights], **attrs_of([2, 1], "SAME"))
    assert_close(got, convolve(x, weights, windows), dtype, tolerance)
    x, weights = random(1, 3, 2, 4, 2, dtype=dtype), random(2, 2, 1, 2, 3, dtype=dtype)
    windows = Windows([3, 2, 4], [2, 2, 1], [1, 1, 2], "VALID")
    got = run_op("Conv3D", [x, weights], **attrs_of([1, 1, 2], "VALID"))
    assert_close(got, convolve(x, weights, windows), dtype, tolerance)


def test_empty_tensors():
    one = np.ones((1, 1, 1, 2), np.float32)
    attrs = attrs_of([1, 1], "VALID")
    assert run_op("Conv2D", [np.zeros((0, 3, 3, 1), np.float32), one], **attrs).shape == (0, 3, 3, 2)
    assert run_op("Conv2D", [np.zeros((1, 3, 3, 1), np.float32), one[..., :0]], **attrs).shape == (1, 3, 3, 0)
    grad = np.zeros((0, 3, 3, 2), np.float32)
    assert_gives("Conv2DBackpropFilter", [np.zeros((0, 3, 3, 1), np.float32), I32(one.shape), grad], one * 0, **attrs)
    assert run_op("Conv2DBackpropInput", [I32([0, 3, 3, 1]), one, grad], **attrs).shape == (0, 3, 3, 1)


# Against direct convolution


@settings(max_examples=60)
@given(data=st.data())
def test_convolution_in_two_dimensions(data):
    lengths, sizes, strides, rates, padding = data.draw(window_attrs(2, rates=True, explicit=True))
    groups, depth, wide = (data.draw(st.integers(1, 3)) for _ in range(3))
    x, weights = random(2, *lengths, groups * depth), random(*sizes, depth, groups * wide, seed=1)
    windows = Windows(lengths, sizes, strides, padding, rates)
    attrs = attrs_of(strides, padding, rates)
    want = convolve(x, weights, windows)
    assert_close(run_op("Conv2D", [x, weights], **attrs), want, np.float32, 1e-4)
    check_gradients("Conv2D", x, weights, want, windows, attrs)


@settings(max_examples=40)
@given(data=st.data())
def test_three_dimensions(data):
    lengths, sizes, strides, _, padding = data.draw(window_attrs(3))
    x, weights = random(2, *lengths, 2), random(*sizes, 2, 3, seed=1)
    attrs = attrs_of(strides, padding)
    want = convolve(x, weights, Windows(lengths, sizes, strides, padding, centred=True))
    assert_close(run_op("Conv3D", [x, weights], **attrs), want, np.float32, 1e-4)
    windows = Windows(lengths, sizes, strides, padding)
    check_gradients("Conv3D", x, weights, want, windows, attrs, suffix="V2")


def check_gradients(op, x, weights, out, windows, attrs, suffix=""):
    """A convolution is linear in both: its gradients are convolutions of unit tensors, summed."""
    grad = random(*out.shape, seed=2)
    for_x, for_weights = np.zeros(x.shape), np.zeros(weights.shape)
    depth, groups = weights.shape[-2], x.shape[-1] // weights.shape[-2]
    wide = weights.shape[-1] // groups
    for at, tap, where in windows.visits():
        for g in range(groups):
            source, target = slice(g * depth, (g + 1) * depth), slice(g * wide, (g + 1) * wide)
            part = grad[(slice(None), *at, target)].astype(np.float64)
            for_x[(slice(None), *where, source)] += part @ weights[(*tap, slice(None), target)].T
            for_weights[(*tap, slice(None), target)] += x[(slice(None), *where, source)].T @ part
    got = run_op(f"{op}BackpropInput{suffix}", [I32(x.shape), weights, grad], **attrs)
    assert_close(got, for_x, np.float32, 1e-4)
    got = run_op(f"{op}BackpropFilter{suffix}", [x, I32(weights.shape), grad], **attrs)
    assert_close(got, for_weights, np.float32, 1e-4)


def test_blocks_do_not_change_the_result(monkeypatch):
    x, weights = random(3, 7, 6, 4), random(3, 2, 2, 4, seed=1)
    attrs = attrs_of([2, 1], "SAME")
    grad = random(3, 4, 6, 4, seed=2)
    calls = [
        ("Conv2D", [x, weights]),
        ("Conv2DBackpropInput", [I32(x.shape), weights, grad]),
        ("Conv2DBackpropFilter", [x, I32(weights.shape), grad]),
    ]
    whole = [run_op(op, inputs, **attrs) for op, inputs in calls]
    for limit in (1, 1 << 11, 1 << 13):
        monkeypatch.setattr(convolution_geometry, "_BLOCK_BYTES", limit)
        for (op, inputs), want in zip(calls, whole, strict=True):
            np.testing.assert_allclose(run_op(op, inputs, **attrs), want, rtol=1e-5, atol=1e-5)


def test_older_and_other_forms_of_the_gradients():
    x, weights = random(1, 4, 4, 1), random(2, 2, 1, 3)
    grad, attrs = random(1, 3, 3, 3), attrs_of([1, 1], "VALID")
    want = run_op("Conv2DBackpropInput", [I32(x.shape), weights, grad], **attrs)
    assert_gives("Conv2DBackpropInput", [I32([4, 4]), weights, grad], want, **attrs)
    for label in (b"custom", b"eigen_tensor"):
        assert_gives("Conv2DBackpropInput", [I32(x.shape), weights, grad], want, **attrs, _kernel=label)
    x, weights, grad = random(1, 3, 3, 3, 2), random(2, 2, 2, 2, 3), random(1, 2, 2, 2, 3)
    attrs = attrs_of([1, 1, 1], "VALID")
    want = run_op("Conv3DBackpropInputV2", [I32(x.shape), weights, grad], **attrs)
    assert_same(run_op("Conv3DBackpropInput", [x, weights, grad], **attrs), want)
    want = run_op("Conv3DBackpropFilterV2", [x, I32(weights.shape), grad], **attrs)
    assert_same(run_op("Conv3DBackpropFilter", [x, weights, grad], **attrs), want)


def test_costs_grow_with_the_work():
    x, weights = random(1, 8, 8, 4), random(3, 3, 4, 4)
    cost = build("Conv2D", [x, weights], **attrs_of([1, 1], "SAME"))[0].cost
    assert cost(x, random(5, 5, 4, 4)) > cost(x, weights) > cost(x[:, :4], weights) > 0


# Errors


@pytest.mark.parametrize(
    ("x", "weights", "attrs", "message"),
    [
        ((3, 3), (1, 1, 1, 1), {}, "convolution input must be 4-dimensional: [3,3]"),
        ((1, 3, 3, 1), (1, 1, 1), {}, "convolution filter must be 4-dimensional: [1,1,1]"),
        ((1, 3, 3, 3), (1, 1, 2, 2), {}, "input depth must be evenly divisible by filter depth: 3 vs 2"),
        ((1, 3, 3, 4), (1, 1, 2, 3), {}, "output depth must be evenly divisible by number of groups: 3 vs 2"),
        ((1, 3, 3, 0), (1, 1, 0, 1), {}, "filter depth must be stricly positive, got 0"),
        (
            (1, 3, 3, 1),
            (5, 5, 1, 1),
            {},
            "Computed output size would be negative: -1 [input_size: 3, effective_filter_size: 5, stride: 1]",
        ),
        ((1, 3, 3, 1), (0, 1, 1, 1), {}, "filter must not have zero elements (i.e. all dimensions must be non-zero)"),
        ((1, 3, 3, 1), (1, 1, 1, 1), {"strides": [1, 1, 1]}, "Sliding window strides field must specify 4 dimensions"),
        ((1, 3, 3, 1), (1, 1, 1, 1), {"strides": [1, 0, 1, 1]}, "Row and column strides should be larger than 0."),
        ((1, 3, 3, 1), (1, 1, 1, 1), {"dilations": [1, 0, 1, 1]}, "Dilated rates should be larger than 0."),
        (
            (1, 3, 3, 1),
            (1, 1, 1, 1),
            {"padding": "EXPLICIT"},
            "explicit_paddings attribute must contain 8 values, but got: 0",
        ),
        (
            (1, 3, 3, 1),
            (1, 1, 1, 1),
            {"padding": "EXPLICIT", "explicit_paddings": [1, 0, 1, 1, 1, 1, 0, 0]},
            "Nonzero explicit padding in the batch or depth dimensions is not supported",
        ),
        (
            (1, 3, 3, 1),
            (1, 1, 1, 1),
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, -1, 1, 1, 1, 0, 0]},
            "All elements of explicit_paddings must be nonnegative",
        ),
        (
            (1, 3, 3, 1),
            (1, 1, 1, 1),
            {"explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]},
            "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT",
        ),
    ],
)
def test_errors(x, weights, attrs, message):
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", **attrs}
    assert_refuses("Conv2D", [np.zeros(x, np.float32), np.zeros(weights, np.float32)], message, **attrs)


def test_unsupported_attributes_are_refused():
    x, one = np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    message = (
        "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the format: NCHW"
    )
    first = {"strides": [1, 1, 1, 1], "padding": "VALID", "data_format": "NCHW"}
    assert_refuses("Conv2D", [x[..., :1], one], message, errors.UnimplementedError, **first)
    message = "Current implementation does not yet support strides in the batch and depth dimensions."
    across = {"strides": [2, 1, 1, 1], "padding": "VALID"}
    assert_refuses("Conv2D", [x, one], message, errors.UnimplementedError, **across)


@pytest.mark.parametrize(
    ("sizes", "weights", "grad", "message"),
    [
        (
            [1, 3, 3],
            (2, 2, 2, 3),
            (1, 2, 2, 3),
            "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: 3",
        ),
        ([[1]], (2, 2, 2, 3), (1, 2, 2, 3), "Conv2DBackpropInput: input_sizes input must be 1-dim, not 2"),
        ([1, 3, 3, 2], (2, 2, 3), (1, 2, 2, 3), "Conv2DCustomBackpropInput: filter must be 4-dimensional"),
        (
            [1, 3, 3, 2],
            (2, 2, 2, 3),
            (1, 2, 2, 4),
            "Conv2DCustomBackpropInput: filter and out_backprop must have the same out_depth",
        ),
        (
            [1, 3, 3, 2],
            (2, 2, 2, 3),
            (2, 2, 2, 3),
            "Conv2DCustomBackpropInput: input and out_backprop must have the same batch size. Input batch: 1, "
            "outbackprop batch: 2, batch_dim: 0",
        ),
        (
            [1, 3, 3, 2],
            (2, 2, 2, 3),
            (1, 2, 3, 3),
            "Conv2DCustomBackpropInput: Size of out_backprop doesn't match computed: actual = 3, computed = 2 "
            "spatial_dim: 2 input: 3 filter: 2 output: 3 stride: 1 dilation: 1",
        ),
        ([1, -3, 3, 2], (2, 2, 2, 3), (1, 2, 2, 3), "Dimension -3 must be >= 0"),
    ],
)
def test_gradient_errors(sizes, weights, grad, message):
    inputs = [I32(sizes), np.zeros(weights, np.float32), np.zeros(grad, np.float32)]
    assert_refuses("Conv2DBackpropInput", inputs, message, strides=[1, 1, 1, 1], padding="VALID")


@pytest.mark.parametrize(
    ("x", "weights", "attrs", "message"),
    [
        ((3, 3, 3, 2), (2, 2, 2, 2, 3), {}, "input must be 5-dimensional"),
        ((1, 3, 3, 3, 2), (2, 2, 2, 3), {}, "filter must be 5-dimensional"),
        ((1, 3, 3, 3, 3), (2, 2, 2, 2, 3), {}, "Input depth must be evenly divisible by filter depth: 3 vs 2"),
        (
            (1, 3, 3, 3, 4),
            (2, 2, 2, 2, 2),
            {},
            "Number of channels in filter (2) must match last dimension of input (4)",
        ),
        (
            (1, 3, 3, 3, 2),
            (2, 2, 2, 2, 3),
            {"strides": [2, 1, 1, 1, 1]},
            "Current implementation does not yet support strides in the batch and depth dimensions.",
        ),
        (
            (1, 3, 3, 3, 2),
            (2, 2, 2, 2, 3),
            {"strides": [1, 0, 1, 1, 1]},
            "Spatial strides should be larger than 0.",
        ),
    ],
)
def test_errors_in_three_dimensions(x, weights, attrs, message):
    attrs = {"strides": [1, 1, 1, 1, 1], "padding": "VALID", **attrs}
    assert_refuses("Conv3D", [np.zeros(x, np.float32), np.zeros(weights, np.float32)], message, **attrs)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dilation", [1, 3])
def test_rows_shared_by_windows_over_several_blocks(batch, dilation, monkeypatch):
    """Long runs and many windows: rows are copied once, products added up; in as many blocks as memory asks for."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, 37, 29, 48)).astype(np.float32)
    weights = rng.standard_normal((3, 3, 48, 5)).astype(np.float32)
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", "dilations": [1, dilation, dilation, 1]}
    monkeypatch.setattr(convolution_geometry, "_BLOCK_BYTES", 1 << 18)
    in_blocks = run_op("Conv2D", [x, weights], **attrs)
    assert_close(
        in_blocks, run_op("Conv2D", [x.astype(np.float64), weights.astype(np.float64)], **attrs), np.float32, 1e-3
    )
    monkeypatch.setattr(convolution_geometry, "_LEAST_RUN", 1 << 30)
    assert_close(run_op("Conv2D", [x, weights], **attrs), in_blocks, np.float32, 1e-3)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 0), (1, 3)]])
@pytest.mark.parametrize(("images", "height"), [(1, 30), (2, 21), (9, 6)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_few_filters_take_windows_of_the_output(images, height, padding, dilation):
    """One image is cut into strips, several are shared as they are; dilated windows of strips overlap further."""
    x, weights = random(images, height, 7, 9), random(3, 4, 9, 2, seed=1)
    attrs = attrs_of((1, 1), padding, (dilation, dilation))
    if padding == "VALID" and height < 3 * dilation:
        pytest.skip("no window fits")
    wide = [array.astype(np.float64) for array in (x, weights)]
    want = run_op("Conv2D", wide, **attrs)
    assert_close(run_op("Conv2D", [x, weights], **attrs), want, np.float32, 1e-4)
    grad = random(*want.shape, seed=2)
    got = run_op("Conv2DBackpropFilter", [x, I32(weights.shape), grad], **attrs)
    slopes = np.zeros(weights.shape)
    for at in np.ndindex(3, 4):
        # The gradient is linear, so that of a kernel of one tap is its share.
        for channel in range(9):
            tap = np.zeros((3, 4, 9, 1))
            tap[(*at, channel, 0)] = 1
            slopes[(*at, channel)] = (run_op("Conv2D", [wide[0], tap], **attrs) * grad).sum(axis=(0, 1, 2))
    assert_close(got, slopes, np.float32, 1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 0), (0, 2)]])
@pytest.mark.parametrize("strides", [(2, 2), (3, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_of_single_pixels_are_sampled(strides, padding, dtype):
    """Also by a 1×1 kernel with padding, of which some windows are no pixel."""
    x, weights = random(2, 9, 8, 5, dtype=dtype), random(1, 1, 5, 7, dtype=dtype, seed=1)
    attrs = attrs_of(strides, padding)
    if not isinstance(padding, str):
        padded = np.pad(x, [(0, 0), *padding, (0, 0)])
    else:
        padded = x
    pixels = padded[:, :: strides[0], :: strides[1]]
    assert_close(run_op("Conv2D", [x, weights], **attrs), pixels @ weights[0, 0], dtype, 1e-5)
    grad = random(*pixels.shape[:3], 7, dtype=dtype, seed=2)
    slopes = np.einsum("nhwc,nhwf->cf", pixels, grad).reshape(weights.shape)
    assert_close(run_op("Conv2DBackpropFilter", [x, I32(weights.shape), grad], **attrs), slopes, dtype, 1e-4)
    wanted = np.zeros_like(padded)
    wanted[:, :: strides[0], :: strides[1]] = grad @ weights[0, 0].T
    top, left = (0, 0) if isinstance(padding, str) else (padding[0][0], padding[1][0])
    got = run_op("Conv2DBackpropInput", [I32(x.shape), weights, grad], **attrs)
    assert_close(got, wanted[:, top : top + 9, left : left + 8], dtype, 1e-5)


def test_few_filters_give_a_fused_bias_to_each_strip():
    x, weights, bias = random(1, 40, 11, 16), random(5, 5, 16, 3, seed=1), random(3, seed=2)
    attrs = attrs_of((1, 1), "SAME")
    got = run_op("_FusedConv2D", [x, weights, [bias], []], **attrs, num_args=1, fused_ops=[b"BiasAdd", b"Relu"])
    plain = run_op("Conv2D", [x.astype(np.float64), weights.astype(np.float64)], **attrs)
    assert_close(got, np.maximum(plain + bias, 0), np.float32, 1e-4)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (5, 1)])
def test_gradient_of_one_long_image_is_made_in_strips(strides):
    x, weights = random(1, 57, 8, 3), random(4, 3, 3, 5, seed=1)
    attrs = attrs_of(strides, [(2, 1), (0, 2)])
    grad = random(*run_op("Conv2D", [x, weights], **attrs).shape, seed=2)
    sizes = I32(x.shape)
    want = run_op("Conv2DBackpropInput", [sizes, weights.astype(np.float64), grad.astype(np.float64)], **attrs)
    assert_close(run_op("Conv2DBackpropInput", [sizes, weights, grad], **attrs), want, np.float32, 1e-4)


def test_kernels_that_change_are_not_transformed_as_constants(monkeypatch):
    """The value of a variable is read-only as well, but a step later it is another one."""
    transformed = []
    turned = winograd.turned
    monkeypatch.setattr(winograd, "turned", lambda kernel, panels: transformed.append(1) or turned(kernel, panels))
    x, attrs = random(4, 16, 16, 32), {**attrs_of((1, 1), "SAME"), "_winograd": True}
    kernels = [random(3, 3, 32, 32, seed=seed) for seed in range(3)]
    for kernel in kernels:
        kernel.flags.writeable = False
    built, _, _ = build("Conv2D", [x, kernels[0]], **attrs)
    for number, calls in ((0, 1), (0, 1), (1, 1), (2, 1), (2, 1)):
        got = built.compute(x, kernels[number])
        assert_close(got, run_op("Conv2D", [x, kernels[number]], **attrs_of((1, 1), "SAME")), np.float32, 1e-3)
        assert len(transformed) == calls


def test_results_do_not_share_memory():
    """Scratch memory that a thread keeps for windows is no part of what is handed out."""
    x, weights = np.ones((1, 40, 40, 64), np.float32), np.ones((3, 3, 64, 8), np.float32)
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    first = run_op("Conv2D", [x, weights], **attrs)
    kept = first.copy()
    second = run_op("Conv2D", [2 * x, weights], **attrs)
    assert not np.shares_memory(first, second)
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_large_filters_are_worked_on_with_few_images_and_windows_at_a_time(strides, monkeypatch):
    x, weights, attrs = random(7, 6, 5, 2), random(9, 8, 2, 3, seed=1), attrs_of(strides, "SAME")
    gradient = np.ones_like(run_op("Conv2D", [x, weights], **attrs))
    calls = {
        "Conv2D": [x, weights],
        "Conv2DBackpropInput": [I32(x.shape), weights, gradient],
        "Conv2DBackpropFilter": [x, I32(weights.shape), gradient],
    }
    wanted = {op: run_op(op, inputs, **attrs) for op, inputs in calls.items()}
    monkeypatch.setattr(windowing, "MOST_BYTES", 4000)
    for op, inputs in calls.items():
        assert_close(run_op(op, inputs, **attrs), wanted[op], x.dtype, 1e-4)


def test_memory_of_windows_is_bounded_for_any_size():
    def windows(length: int, size: int) -> windowing.Window:
        return windowing.extent(length, size, 1, 1, "SAME")

    for images, length, size in ((5000, 1, 5000), (7, 900, 900), (1, 3, 100_000)):
        spec = (windows(1, 1), windows(length, size))
        geometry = Geometry((images, 1, length, 2), (1, size, 2, 3), spec)
        row = length * size * 2 * 4 + 2 * (length + size) * 2 * 4  # of windows, and what they meet
        assert 4 * geometry.part_elements <= 2 * windowing.MOST_BYTES + row
