"""Normalisation: slow models in double precision, both layouts, TensorFlow's messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.array_support import F32, assert_refuses, assert_same
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op

TYPES = [(np.float32, 1e-4), (np.float16, 5e-3), (ml_dtypes.bfloat16, 5e-2)]
NOTHING = F32([])


@pytest.mark.parametrize("op", ops_of("nn.batch_norm_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def close(got, want, tolerance):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["NHWC", "NCHW"])
def layout(request):
    return request.param


def arrange(x, layout):
    """From channels last to the layout."""
    return x if layout == "NHWC" else np.moveaxis(x, -1, 1)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    vectors = [rng.normal(0, 1, 3).astype(np.float32) for _ in range(3)]
    return rng.normal(2, 3, (4, 5, 2, 3)), *vectors, (rng.random(3) + 0.1).astype(np.float32)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_inference(data, layout, dtype, tolerance):
    x, scale, offset, mean, variance = data
    x = x.astype(dtype).astype(np.float64)
    inputs = [np.ascontiguousarray(arrange(x, layout)).astype(dtype), scale, offset, mean, variance]
    out = run_op("FusedBatchNormV3", inputs, is_training=False, data_format=layout, epsilon=0.01)
    want = (x - mean) / np.sqrt(variance + 0.01) * scale + offset
    close(out[0], arrange(want, layout), tolerance)
    for got, given in zip(out[1:5], (mean, variance, mean, variance), strict=True):
        assert_same(got, given)
    assert out[5].shape == ()


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_training(data, layout, dtype, tolerance, factor):
    x, scale, offset, mean, variance = data
    x = x.astype(dtype).astype(np.float64)
    inputs = [np.ascontiguousarray(arrange(x, layout)).astype(dtype), scale, offset, mean, variance]
    attrs = {"exponential_avg_factor": factor, "data_format": layout, "epsilon": 0.01}
    for op in ("FusedBatchNormV2", "FusedBatchNormV3"):
        out = run_op(op, inputs, **attrs)
        own_mean, own_variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        close(out[0], arrange((x - own_mean) / np.sqrt(own_variance + 0.01) * scale + offset, layout), tolerance)
        close(out[1], (1 - factor) * mean + factor * own_mean, 1e-5)
        close(out[2], (1 - factor) * variance + factor * x.var((0, 1, 2), ddof=1), 1e-5)
        close(out[3], own_mean, 1e-5)
        close(out[4], own_variance, 1e-5)


def test_one_element_has_no_variance():
    out = run_op("FusedBatchNorm", [F32([[[[3]]]]), F32([2]), F32([5]), NOTHING, NOTHING])
    assert [o.item() for o in out] == [5, 3, 0, 3, 0]


def test_five_dimensions():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 2, 2, 3)
    flat = x.reshape(1, 8, 1, 3)
    inputs = [F32([1, 2, 3]), F32([0, 1, 2]), NOTHING, NOTHING]
    got, want = (run_op("FusedBatchNormV3", [v, *inputs]) for v in (x, flat))
    assert_same(got[0].reshape(flat.shape), want[0])


def test_empty_batch_has_no_mean():
    x = np.zeros((0, 2, 2, 3), np.float32)
    for training in (True, False):
        three = F32([1, 2, 3])
        out = run_op("FusedBatchNormV3", [x, three, three, three, three], is_training=training)
        assert_same(out[0], x)
        assert np.isnan(out[1]).all()
        assert np.isnan(out[2]).all()
    out = run_op("FusedBatchNormGradV3", [x, x, three, three, three, NOTHING])
    assert_same(out[1], F32([0, 0, 0]))


@pytest.mark.parametrize("training", [True, False])
def test_gradient_is_that_of_differences(data, layout, training):
    x, scale, offset, mean, variance = data
    rng = np.random.default_rng(1)
    weights = rng.normal(0, 1, x.shape)

    def loss(x, scale, offset):
        m, v = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if training else (mean, variance)
        return (((x - m) / np.sqrt(v + 0.1) * scale + offset) * weights).sum()

    if training:
        mean, variance = x.mean((0, 1, 2)).astype(np.float32), x.var((0, 1, 2)).astype(np.float32)
    arrays = [np.ascontiguousarray(arrange(a, layout)).astype(np.float32) for a in (weights, x)]
    attrs = {"is_training": training, "data_format": layout, "epsilon": 0.1}
    for_x, for_scale, for_offset, *rest = run_op(
        "FusedBatchNormGradV3", [*arrays, scale, mean, variance, F32(0)], **attrs
    )
    assert [r.shape for r in rest] == [(0,), (0,)]
    scale, offset = scale.astype(np.float64), offset.astype(np.float64)
    step = 1e-5
    for at in ((0, 0, 0, 0), (3, 4, 1, 2), (1, 2, 0, 1)):
        moved = np.zeros_like(x)
        moved[at] = step
        slope = (loss(x + moved, scale, offset) - loss(x - moved, scale, offset)) / (2 * step)
        close(arrange(for_x, layout)[at] if layout == "NHWC" else np.moveaxis(for_x, 1, -1)[at], slope, 1e-3)
    for i in range(3):
        moved = np.eye(3)[i] * step
        close(for_scale[i], (loss(x, scale + moved, offset) - loss(x, scale - moved, offset)) / (2 * step), 1e-3)
        close(for_offset[i], (loss(x, scale, offset + moved) - loss(x, scale, offset - moved)) / (2 * step), 1e-3)


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        ([(2, 3), (3,), (3,), (0,), (0,)], {}, "input must be 4 or 5-dimensional[2,3]"),
        ([(1, 2, 2, 3), (1, 3), (3,), (0,), (0,)], {}, "scale must be 1-dimensional[1,3]"),
        (
            [(1, 2, 2, 3), (3,), (2,), (0,), (0,)],
            {},
            "offset must have the same number of elements as the channels of x, got 2 and 3",
        ),
        (
            [(1, 2, 2, 3), (3,), (3,), (0,), (3,)],
            {"is_training": False},
            "When is_training=false, mean must have the same number of elements as the channels of x, got 0 and 3",
        ),
        (
            [(1, 2, 2, 3), (3,), (3,), (3,), (2,)],
            {"exponential_avg_factor": 0.5},
            "When exponential_avg_factor != 1, variance must have the same number of elements as the channels of x, "
            "got 2 and 3",
        ),
    ],
)
def test_errors(shapes, attrs, message):
    assert_refuses("FusedBatchNormV3", [np.zeros(s, np.float32) for s in shapes], message, **attrs)


def test_gradient_errors():
    arrays = [np.zeros(s, np.float32) for s in ((1, 2, 2, 3), (1, 2, 2, 4), (4,), (4,), (4,), (0,))]
    message = "x and y_backprop must have same shape, but x has shape [1,2,2,4] and y_backprop has shape [1,2,2,3]"
    assert_refuses("FusedBatchNormGradV3", arrays, message)


# Local response normalisation


def lrn(x, radius, bias, alpha, beta):
    out = np.zeros_like(x)
    for i in range(x.shape[-1]):
        near = x[..., max(0, i - radius) : i + radius + 1]
        out[..., i] = x[..., i] / (bias + alpha * (near**2).sum(-1)) ** beta
    return out


@pytest.mark.parametrize("radius", [0, 1, 3, 9])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float16, 5e-3)])
def test_local_response_normalisation(radius, dtype, tolerance):
    x = np.random.default_rng(0).normal(0, 1, (2, 1, 3, 5)).astype(dtype)
    attrs = {"depth_radius": radius, "bias": 1.5, "alpha": 0.7, "beta": 0.6}
    want = lrn(x.astype(np.float64), radius, 1.5, 0.7, 0.6)
    close(run_op("LRN", [x], **attrs), want, tolerance)
    grad = np.random.default_rng(1).normal(0, 1, x.shape).astype(dtype)
    got = run_op("LRNGrad", [grad, x, want.astype(dtype)], **attrs)
    exact, step = x.astype(np.float64), 1e-6
    for i in range(5):
        moved = np.zeros_like(exact)
        moved[..., i] = step
        slope = (lrn(exact + moved, radius, 1.5, 0.7, 0.6) - lrn(exact - moved, radius, 1.5, 0.7, 0.6)) / (2 * step)
        close(got[..., i], (slope * grad.astype(np.float64)).sum(-1), 50 * tolerance)


def test_local_response_errors():
    assert_refuses("LRN", [F32([[1]])], "in must be 4-dimensional")
    x = np.zeros((1, 1, 1, 5), np.float32)
    assert_refuses("LRNGrad", [x[0], x, x], "inputs must be 4-dimensional")
    message = "input_grads, input_image, and out_image should have the same shape"
    assert_refuses("LRNGrad", [x[..., :4], x, x], message)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scaled", [True, False])
def test_global_normalisation(dtype, scaled):
    rng = np.random.default_rng(0)
    x, (mean, variance, beta, gamma) = rng.random((2, 3, 1, 4)).astype(dtype), rng.random((4, 4)).astype(dtype)
    attrs = {"variance_epsilon": 0.1, "scale_after_normalization": scaled}
    got = run_op("BatchNormWithGlobalNormalization", [x, mean, variance, beta, gamma], **attrs)
    exact = [v.astype(np.float64) for v in (x, mean, variance, beta, gamma)]
    want = (exact[0] - exact[1]) / np.sqrt(exact[2] + 0.1) * (exact[4] if scaled else 1) + exact[3]
    assert got.dtype == dtype
    close(got, want, 5e-3 if dtype is np.float16 else 1e-5)
    message = "var must have as many elements as t has channels, got 3 and 4"
    assert_refuses("BatchNormWithGlobalNormalization", [x, mean, variance[:3], beta, gamma], message, **attrs)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scaled", [True, False])
def test_gradients_of_global_normalisation(dtype, scaled):
    rng = np.random.default_rng(0)
    x, grad = rng.random((2, 2, 3, 1, 4)).astype(dtype)
    mean, variance, gamma = rng.random((3, 4)).astype(dtype)
    attrs = {"variance_epsilon": 0.1, "scale_after_normalization": scaled}
    op = "BatchNormWithGlobalNormalizationGrad"
    got = run_op(op, [x, mean, variance, gamma, grad], **attrs)
    exact = [v.astype(np.float64) for v in (x, mean, variance, np.zeros(4), gamma)]

    def loss(place, by):
        x, mean, variance, beta, gamma = (v + by * (i == place) for i, v in enumerate(exact))
        y = (x - mean) / np.sqrt(variance + 0.1) * (gamma if scaled else 1) + beta
        return y * grad.astype(np.float64)

    for place, found in enumerate(got):
        want = (loss(place, 1e-6) - loss(place, -1e-6)) / 2e-6
        assert found.dtype == dtype
        close(found, want if place == 0 else want.sum((0, 1, 2)), 2e-2 if dtype is np.float16 else 1e-4)
    message = "backprop must have the input's shape, got [1,3,1,4] and [2,3,1,4]"
    assert_refuses(op, [x, mean, variance, gamma, grad[:1]], message, **attrs)


@pytest.mark.parametrize(("dtype", "tolerance"), [TYPES[0], TYPES[2]])
@pytest.mark.parametrize("activation", ["Identity", "Relu"])
@pytest.mark.parametrize("sides", [0, 1])
def test_side_input_and_activation_are_applied(data, layout, dtype, tolerance, activation, sides):
    x, scale, offset, mean, variance = data
    x = arrange(x, layout).astype(dtype)
    inputs, attrs = [x, scale, offset, mean, variance], {"is_training": False, "data_format": layout}
    side = np.random.default_rng(1).normal(0, 1, x.shape).astype(dtype)
    want = run_op("FusedBatchNormV3", [x.astype(np.float32), *inputs[1:]], **attrs)[0]
    want = want + side.astype(np.float32) if sides else want
    want = np.maximum(want, 0) if activation == "Relu" else want
    got = run_op("_FusedBatchNormEx", [*inputs, [side] * sides], activation_mode=activation, **attrs)
    assert len(got) == 6
    assert got[0].dtype == dtype
    close(got[0], want, tolerance)


@pytest.mark.parametrize(
    ("sides", "attrs", "message"),
    [
        ([], {"activation_mode": "Elu"}, "Unsupported activation mode: Elu"),
        ([(2, 2, 1, 4), (2, 2, 1, 4)], {}, "FusedBatchNorm accepts at most one side input."),
        ([(1, 2, 1, 4)], {}, "side_input shape must be equal to input shape: [1,2,1,4] != [2,2,1,4]"),
    ],
)
def test_side_inputs_and_activations_that_there_are_not(sides, attrs, message):
    vector, x = np.ones(4, np.float32), np.zeros((2, 2, 1, 4), np.float32)
    inputs = [x, vector, vector, vector, vector, [np.zeros(shape, np.float32) for shape in sides]]
    assert_refuses("_FusedBatchNormEx", inputs, message, is_training=False, **attrs)


@pytest.mark.parametrize("op", ["LRN", "LRNGrad"])
def test_cost_of_response_normalisation_is_by_neighbours(op):
    x = np.ones((1, 1, 1, 3000), np.float32)
    near, far = (build(op, [x] * (3 if op == "LRNGrad" else 1), depth_radius=radius)[0] for radius in (1, 10**6))
    assert far.cost(x, x, x) > 50 * near.cost(x, x, x)


def test_response_normalisation_of_nothing():
    assert run_op("LRN", [np.zeros((2, 1, 3, 0), np.float32)], depth_radius=3).shape == (2, 1, 3, 0)
    assert run_op("LRN", [np.zeros((0, 1, 1, 5), np.float32)], depth_radius=3).shape == (0, 1, 1, 5)
