"""Fused convolutions: TensorFlow's answers, the same op by op, refusals in TensorFlow's words."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.kernels.common import epilogue
from aexec.kernels.common.fusions import BATCH_NORM_THEN, BIAS_THEN
from tests.kernels.array_support import F32, I32, assert_refuses
from tests.kernels.fused_support import apply, arguments
from tests.kernels.harness import in_tensorflow, registered, run_op
from tests.kernels.nn.test_conv_ops import attrs_of, random
from tests.support.programs.graphs import GraphBuilder

ON_THE_PLANE = ("_FusedConv2D", "_FusedDepthwiseConv2dNative")
OPS = (*ON_THE_PLANE, "_FusedConv3D")


@pytest.mark.parametrize("op", [*OPS, "FusedPadConv2D", "FusedResizeAndPadConv2D"])
def test_types_are_tensorflows(op):
    eight_bits = {("T", dtypes.int8), ("T", dtypes.qint8)}  # scaled and rounded: not here yet
    assert registered(op) == {one for one in in_tensorflow(op) if not eight_bits & one[3]}


def pattern(*shape: int, step: int, modulus: int, scale: float) -> Any:
    """Small numbers that differ, in the given shape."""
    numbers = (np.arange(np.prod(shape)) * step) % modulus - modulus // 2
    return (numbers.reshape(shape) * scale).astype(np.float32)


# What TensorFlow 2.21 answers on a CPU, by its plain or its oneDNN kernel.
INPUTS = {
    "_FusedConv2D": (
        pattern(1, 2, 2, 2, step=5, modulus=7, scale=0.5),
        pattern(2, 2, 2, 2, step=3, modulus=11, scale=0.25),
    ),
    "_FusedDepthwiseConv2dNative": (
        pattern(1, 2, 2, 2, step=5, modulus=7, scale=0.5),
        pattern(2, 2, 2, 1, step=3, modulus=11, scale=0.25),
    ),
    "_FusedConv3D": (
        pattern(1, 2, 2, 2, 2, step=5, modulus=7, scale=0.5),
        pattern(2, 1, 2, 2, 2, step=3, modulus=11, scale=0.25),
    ),
}
# By op, `fused_ops: numbers`.
ANSWERS = {
    "_FusedConv2D": """
BiasAdd: 0.125 0.25 -0.5 -0.125 -1.5 -3 0.75 -2.25
FusedBatchNorm: -0.6504 -0.7393 -1.2935 -0.5021 -2.3225 1.3162 -0.0072 0.8419
BiasAdd Add: -1.875 1.25 -1.5 1.875 -1.5 -5 1.75 -3.25
BiasAdd Relu: 0.125 0.25 0 0 0 0 0.75 0
BiasAdd Relu6: 0.125 0.25 0 0 0 0 0.75 0
BiasAdd Elu: 0.125 0.25 -0.3935 -0.1175 -0.7769 -0.9502 0.75 -0.8946
BiasAdd LeakyRelu: 0.125 0.25 -0.125 -0.0312 -0.375 -0.75 0.75 -0.5625
BiasAdd _FusedHardSwish: 0.0651 0.1354 -0.2083 -0.0599 -0.375 -0 0.4688 -0.2812
BiasAdd Add Relu: 0 1.25 0 1.875 0 0 1.75 0
BiasAdd Add Relu6: 0 1.25 0 1.875 0 0 1.75 0
BiasAdd Add Elu: -0.8466 1.25 -0.7769 1.875 -0.7769 -0.9933 1.75 -0.9612
BiasAdd Add LeakyRelu: -0.4688 1.25 -0.375 1.875 -0.375 -1.25 1.75 -0.8125
FusedBatchNorm Relu: 0 0 0 0 0 1.3162 0 0.8419
FusedBatchNorm Relu6: 0 0 0 0 0 1.3162 0 0.8419
FusedBatchNorm Elu: -0.4781 -0.5225 -0.7257 -0.3947 -0.902 1.3162 -0.0072 0.8419
FusedBatchNorm LeakyRelu: -0.1626 -0.1848 -0.3234 -0.1255 -0.5806 1.3162 -0.0018 0.8419
""",
    "_FusedDepthwiseConv2dNative": """
BiasAdd: 0.625 -4.5 1 -0.125 -1.5 -2.75 1.125 -0.25
BiasAdd Relu: 0.625 0 1 0 0 0 1.125 0
BiasAdd Relu6: 0.625 0 1 0 0 0 1.125 0
BiasAdd Elu: 0.625 -0.9889 1 -0.1175 -0.7769 -0.9361 1.125 -0.2212
BiasAdd _FusedHardSwish: 0.3776 -0 0.6667 -0.0599 -0.375 -0.1146 0.7734 -0.1146
""",
    "_FusedConv3D": """
BiasAdd: 3.375 -2.25 2.125 -3.875 -0.5 -3.75 2.625 -3.5 1 0.625 2.125 1 1.75 -0.125 2.625 0.75
BiasAdd Add: 1.375 -1.25 1.125 -1.875 -0.5 -5.75 3.625 -4.5 3 0.625 0.125 2 0.75 1.875 2.625 -1.25
BiasAdd Relu: 3.375 0 2.125 0 0 0 2.625 0 1 0.625 2.125 1 1.75 0 2.625 0.75
BiasAdd Relu6: 3.375 0 2.125 0 0 0 2.625 0 1 0.625 2.125 1 1.75 0 2.625 0.75
BiasAdd Elu: 3.375 -0.8946 2.125 -0.9792 -0.3935 -0.9765 2.625 -0.9698 1 0.625 2.125 1 1.75 -0.1175 2.625 0.75
BiasAdd LeakyRelu: 3.375 -0.5625 2.125 -0.9688 -0.125 -0.9375 2.625 -0.875 1 0.625 2.125 1 1.75 -0.0312 2.625 0.75
BiasAdd Add Relu: 1.375 0 1.125 0 0 0 3.625 0 3 0.625 0.125 2 0.75 1.875 2.625 0
BiasAdd Add Relu6: 1.375 0 1.125 0 0 0 3.625 0 3 0.625 0.125 2 0.75 1.875 2.625 0
BiasAdd Add Elu: 1.375 -0.7135 1.125 -0.8466 -0.3935 -0.9968 3.625 -0.9889 3 0.625 0.125 2 0.75 1.875 2.625 -0.7135
BiasAdd Add LeakyRelu: 1.375 -0.3125 1.125 -0.4688 -0.125 -1.4375 3.625 -1.125 3 0.625 0.125 2 0.75 1.875 2.625 -0.3125
""",
}
CASES = [(op, *line.strip().split(": ")) for op, lines in ANSWERS.items() for line in lines.strip().splitlines()]


@pytest.mark.parametrize(("op", "fused", "want"), CASES, ids=[f"{op} {fused}" for op, fused, _ in CASES])
def test_tensorflows_answers(op, fused, want):
    x, weights = INPUTS[op]
    out = x.shape
    given = {
        "BiasAdd": [F32([0.5, -1])],
        "Add": [pattern(*out, step=3, modulus=5, scale=1)],
        "FusedBatchNorm": [F32([1.5, -0.5]), F32([0.25, 1]), F32([0.5, -1.5]), F32([2, 0.5])],
    }
    args = [arg for name in fused.split() for arg in given.get(name, [])]
    attrs = {"strides": [1] * x.ndim, "padding": "SAME", "leakyrelu_alpha": 0.25, "epsilon": 0.125}
    got = run_fused(op, x, weights, args, fused, **attrs)
    np.testing.assert_allclose(got.reshape(-1), np.float32(want.split()), rtol=1e-4, atol=1e-4)


def conv_2d(x: Any, weights: Any, args: list[Any], fused: str) -> dict[str, Any]:
    """Inputs, with no scales for 8 bits, and attrs of a _FusedConv2D."""
    ops = [name.encode() for name in fused.split()]
    return {"inputs": [x, weights, args, []], "num_args": len(args), "fused_ops": ops}


def run_fused(op: str, x: Any, weights: Any, args: list[Any], fused: str, **attrs: Any) -> Any:
    if op == "_FusedConv2D":
        return run_op(op, **conv_2d(x, weights, args, fused), **attrs)
    return run_op(op, [x, weights, args], fused_ops=[name.encode() for name in fused.split()], **attrs)


# The same as op by op

PLAIN = {"_FusedConv2D": "Conv2D", "_FusedDepthwiseConv2dNative": "DepthwiseConv2dNative", "_FusedConv3D": "Conv3D"}
LISTS = [(op, fused) for op in OPS for fused in sorted(BIAS_THEN | (BATCH_NORM_THEN if op in ON_THE_PLANE else set()))]
SHAPES = {
    "_FusedConv2D": ((2, 9, 7, 3), (3, 3, 3, 5)),
    "_FusedDepthwiseConv2dNative": ((2, 9, 7, 3), (3, 3, 3, 2)),
    "_FusedConv3D": ((2, 5, 4, 3, 3), (2, 3, 2, 3, 5)),
}


@pytest.mark.parametrize("images", [2, 40])
@pytest.mark.parametrize(("op", "fused"), LISTS, ids=[f"{op} {'+'.join(fused)}" for op, fused in LISTS])
def test_fused_convolution_agrees_with_its_ops(op, fused, images, monkeypatch):
    """Small and large, over several blocks, and to the last bit where the ops are there with the same arithmetic."""
    monkeypatch.setattr(epilogue, "BLOCK_BYTES", 500)
    shape, filter_shape = SHAPES[op]
    x, weights = random(images, *shape[1:]), random(*filter_shape, seed=1)
    x[1] = 0  # zeros of both signs come out
    attrs: dict[str, Any] = {"strides": [1] * x.ndim, "padding": "SAME"}
    product = run_op(PLAIN[op], [x, weights], **attrs)
    args = arguments(fused, product.shape)
    if fused[0] == "BiasAdd":
        args[0][1] = -0.0
    want, exact = apply(product, fused, args)
    got = run_fused(op, x, weights, args, " ".join(fused), **attrs)
    if exact:
        assert got.tobytes() == want.tobytes()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_rounded_once(op, dtype):
    shape, filter_shape = SHAPES[op]
    x, weights = random(*shape, dtype=dtype), random(*filter_shape, dtype=dtype, seed=1)
    if op == "_FusedConv2D" and dtype is not np.float16:
        pytest.skip("the op's definition has no bfloat16")
    fused = ("BiasAdd", "Relu")
    wide = run_op(PLAIN[op], [x.astype(np.float32), weights.astype(np.float32)], strides=[1] * x.ndim, padding="SAME")
    args = [arg.astype(dtype) for arg in arguments(fused, wide.shape)]
    want, _ = apply(wide, fused, [arg.astype(np.float32) for arg in args])
    got = run_fused(op, x, weights, args, "BiasAdd Relu", strides=[1] * x.ndim, padding="SAME")
    assert got.dtype == dtype
    assert got.tobytes() == want.astype(dtype).tobytes()


def test_explicit_padding_dilation_and_groups():
    x, weights, bias = random(1, 6, 5, 4), random(3, 2, 2, 6, seed=1), random(6, seed=2)
    attrs = attrs_of([2, 1], [(1, 2), (0, 1)], [1, 2])
    want = run_op("BiasAdd", [run_op("Conv2D", [x, weights], **attrs), bias])
    assert run_fused("_FusedConv2D", x, weights, [bias], "BiasAdd", **attrs).tobytes() == want.tobytes()


def test_fused_convolution_without_output():
    x, weights = np.zeros((0, 3, 3, 2), np.float32), np.zeros((1, 1, 2, 4), np.float32)
    out = run_fused("_FusedConv2D", x, weights, [F32([0] * 4)], "BiasAdd Relu", **attrs_of([1, 1], "VALID"))
    assert out.shape == (0, 3, 3, 4)


# Refusals

BIAS, WRONG, MATRIX = F32([1, 2]), F32([1, 2, 3]), F32([[1, 2], [3, 4]])
REFUSED = [
    ("", [BIAS], "Fused Conv2D must have at least one fused op.", errors.InvalidArgumentError),
    ("BiasAdd Swish", [BIAS], "Fusion is not implemented: [BiasAdd,Swish]", errors.UnimplementedError),
    ("FusedBatchNorm Tanh", [BIAS] * 4, "Fusion is not implemented: [FusedBatchNorm,Tanh]", errors.UnimplementedError),
    (
        "BiasAdd",
        [BIAS, BIAS],
        "Fused Conv2D with BiasAdd must have one extra argument: bias or 4 extra arguments: bias, side_input, "
        "conv_input_scale and side_input_scale",
        errors.InvalidArgumentError,
    ),
    (
        "FusedBatchNorm",
        [BIAS],
        "Fused Conv2D with FusedBatchNorm must have four extra arguments: scale, offset, mean, variance.",
        errors.InvalidArgumentError,
    ),
    (
        "BiasAdd Add",
        [BIAS],
        "Fused Conv2D with BiasAdd and Add must have 2 extra arguments: bias, side_input; got 1",
        errors.InvalidArgumentError,
    ),
    ("BiasAdd", [MATRIX], "bias must be 1-dimensional[2,2]", errors.InvalidArgumentError),
    (
        "BiasAdd",
        [WRONG],
        "bias must have as many elements as the output has channels: [3] vs. [1,3,3,2]",
        errors.InvalidArgumentError,
    ),
    (
        "FusedBatchNorm",
        [BIAS, BIAS, BIAS, MATRIX],
        "estimated_variance must be 1-dimensional[2,2]",
        errors.InvalidArgumentError,
    ),
    (
        "BiasAdd Add",
        [BIAS, MATRIX],
        "Incompatible shapes: [1,3,3,2] vs. [2,2]",
        errors.InvalidArgumentError,
    ),
]


@pytest.mark.parametrize(("fused", "args", "message", "error"), REFUSED)
def test_refused(fused, args, message, error):
    x, weights = np.zeros((1, 3, 3, 2), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    given = {**conv_2d(x, weights, args, fused), **attrs_of([1, 1], "SAME")}
    assert_refuses("_FusedConv2D", given.pop("inputs"), message, error, **given)


@pytest.mark.parametrize(
    ("attrs", "message", "error"),
    [
        (
            {"data_format": "NCHW"},
            "The _FusedConv2D op currently only supports the NHWC tensor format on the CPU. "
            "The op was given the format: NCHW",
            errors.UnimplementedError,
        ),
        (
            {"filter_format": "OIHW"},
            "Only supports HWIO filter format on the CPU, got OIHW",
            errors.InvalidArgumentError,
        ),
    ],
)
def test_unsupported_attributes_are_refused(attrs, message, error):
    x, weights = np.zeros((1, 3, 3, 2), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    given = {**conv_2d(x, weights, [BIAS], "BiasAdd"), **attrs_of([1, 1], "SAME"), **attrs}
    assert_refuses("_FusedConv2D", given.pop("inputs"), message, error, **given)


# Padded, and resized before that

IMAGE = pattern(1, 4, 4, 2, step=5, modulus=7, scale=0.5)
FILTER = pattern(3, 3, 2, 2, step=3, modulus=11, scale=0.25)
PADDINGS = I32([[0, 0], [1, 2], [0, 1], [0, 0]])
PADDED = [
    ("REFLECT", "VALID", 2, [-1.125, 1.5, -2.375, 1.125, -1.875, 5.375, -1.375, 4.125, 3.125, 0.75, 3.625, -0.5]),
    ("SYMMETRIC", "SAME", 3, [0.125, -3.25, -0.75, 1.5, -1.875, 5.375, 5.125, 4.375, 3.875, 1.75, -1.5, -1.5]),
]
RESIZED = [
    ("REFLECT", "VALID", 2, False, [1.458334, 1.158333, 0.683333, 1.05, 2.558334, -1.625]),
    ("REFLECT", "VALID", 2, True, [2.578125, 1.515625, 0.921875, -0.609375, 4.109375, -2.921875]),
    (
        "SYMMETRIC",
        "SAME",
        3,
        False,
        [3.091667, 2.516667, -3.883333, -1.9, -2.275, -2.008333, -0.841666, -0.408333, 2.1, 2.3, -0.175, 0.458333],
    ),
    (
        "SYMMETRIC",
        "SAME",
        3,
        True,
        [3.03125, 1.671875, -4.59375, -3.65625, -2.984375, -0.8125, 1.5625, 2.5625, 2.296875, 2.3125, -1.875, -1.25],
    ),
]


@pytest.mark.parametrize(("mode", "padding", "stride", "want"), PADDED)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-5), (np.float16, 1e-2), (ml_dtypes.bfloat16, 5e-2)]
)
def test_padded(mode, padding, stride, want, dtype, tolerance):
    inputs = [IMAGE.astype(dtype), PADDINGS, FILTER.astype(dtype)]
    got = run_op("FusedPadConv2D", inputs, mode=mode, **attrs_of([stride, stride], padding))
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64).reshape(-1), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("mode", "padding", "stride", "align_corners", "want"), RESIZED)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-5), (np.float16, 1e-2)])
def test_resized_and_padded(mode, padding, stride, align_corners, want, dtype, tolerance):
    inputs = [IMAGE.astype(dtype), I32([5, 3]), PADDINGS, FILTER.astype(dtype)]
    attrs = {"mode": mode, "resize_align_corners": align_corners, **attrs_of([stride, stride], padding)}
    got = run_op("FusedResizeAndPadConv2D", inputs, **attrs)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64).reshape(-1), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": IMAGE[0]}, "input must be 4-dimensional[4,4,2]"),
        (
            {"paddings": I32([[0, 0]] * 3)},
            "The first dimension of paddings must be the rank of inputs: 4 [3,2] [1,4,4,2]",
        ),
        ({"paddings": I32([[0, 0], [-1, 2], [0, 1], [0, 0]])}, "paddings must be non-negative: -1 2"),
        (
            {"paddings": I32([[0, 0], [4, 2], [0, 1], [0, 0]])},
            "paddings must be less than the dimension size: 4, 2 not less than 4",
        ),
        (
            {"paddings": I32([[0, 1], [0, 0], [0, 0], [0, 0]])},
            "Fused mirror padding only support spatial padding, not batches: [[0, 1], [0, 0], [0, 0], [0, 0]]",
        ),
        (
            {"paddings": I32([[0, 0], [0, 0], [0, 0], [1, 1]])},
            "Fused mirror padding only support spatial padding, not channels: [[0, 0], [0, 0], [0, 0], [1, 1]]",
        ),
        ({"weights": FILTER[:, :, :1]}, "input and filter must have the same depth: 2 vs 1"),
    ],
)
def test_padded_refuses(changed, message):
    given = {"x": IMAGE, "paddings": PADDINGS, "weights": FILTER, **changed}
    assert_refuses("FusedPadConv2D", list(given.values()), message, mode="REFLECT", **attrs_of([1, 1], "VALID"))
    if "x" not in changed and not message.startswith("paddings must be less"):
        inputs = [given["x"], I32([4, 4]), given["paddings"], given["weights"]]
        assert_refuses("FusedResizeAndPadConv2D", inputs, message, mode="REFLECT", **attrs_of([1, 1], "VALID"))


@pytest.mark.parametrize(
    ("size", "message"),
    [([1, 2, 3], "shape_t must have two elements[3]"), ([0, 2], "output dimensions must be positive")],
)
def test_resized_refuses(size, message):
    inputs = [IMAGE, I32(size), PADDINGS, FILTER]
    assert_refuses("FusedResizeAndPadConv2D", inputs, message, mode="SYMMETRIC", **attrs_of([1, 1], "VALID"))


# Inferred shapes


def inferred(op: str, image: list[int | None], paddings: Any, size: Any = None, stride: int = 2) -> str:
    """The shape of an op's output as a graph knows it; what is None is a placeholder."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, image)
    given = {"size": size} if op == "FusedResizeAndPadConv2D" else {}
    for name, value in {**given, "paddings": paddings}.items():
        if value is None:
            g.placeholder(name, dtypes.int32, [2] if name == "size" else [4, 2])
        else:
            g.const(name, value, dtypes.int32)
    g.const("w", FILTER)
    attrs = {"mode": b"REFLECT", "strides": [1, stride, stride, 1], "padding": b"VALID"}
    g("y", op, "x", *given, "paddings", "w", T=dtypes.float32, **attrs)
    node = g.graph().find("y")
    assert node is not None
    return str(node.shapes[0])


def test_inferred_shapes():
    assert inferred("FusedPadConv2D", [None, 4, 4, 2], PADDINGS) == "[?,3,2,2]"
    assert inferred("FusedPadConv2D", [1, 4, None, 2], PADDINGS) == "[1,3,?,2]"
    assert inferred("FusedPadConv2D", [1, 4, 4, 2], None) == "[?,?,?,2]"
    assert inferred("FusedResizeAndPadConv2D", [1, 9, 9, 2], PADDINGS, [5, 3], 1) == "[1,6,2,2]"
    assert inferred("FusedResizeAndPadConv2D", [1, 9, 9, 2], PADDINGS, None) == "[1,?,?,2]"


@pytest.mark.parametrize("op", ["FusedPadConv2D", "FusedResizeAndPadConv2D"])
def test_shapes_that_do_not_fit(op):
    with pytest.raises(errors.InvalidArgumentError, match="Paddings must be non-negative"):
        inferred(op, [1, 4, 4, 2], I32([[0, 0], [-1, 2], [0, 1], [0, 0]]), [5, 3])
    with pytest.raises(errors.InvalidArgumentError, match="Dimensions must be equal, but are 3 and 2"):
        inferred(op, [1, 4, 4, 3], PADDINGS, [5, 3])
