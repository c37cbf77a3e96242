"""Float operations of single nodes, with the numbers of TensorFlow's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aexec.compat.v1 as tf

CHANNELS_LAST = {"strides": [1, 2, 2, 1], "padding": "SAME"}
CHANNELS_FIRST = {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}


def of(*sizes: int | None, dtype: Any = tf.float32) -> Any:
    return tf.placeholder(dtype, list(sizes))


def counted() -> int:
    options = tf.profiler.ProfileOptionBuilder(tf.profiler.ProfileOptionBuilder.float_operation())
    found: int = tf.profiler.profile(options=options.with_empty_output().build()).total_float_ops
    return found


UNARY = {"Reciprocal": 12, "Square": 12, "Rsqrt": 24, "Log": 12, "Neg": 12, "Exp": 0, "Sqrt": 0, "Tanh": 0, "Abs": 0}


@pytest.mark.parametrize(("op", "number"), UNARY.items())
def test_functions_of_one_tensor(op: str, number: int) -> None:
    getattr(tf.raw_ops, op)(x=of(3, 4))
    assert counted() == number


BINARY = """Add AddV2 Sub Mul RealDiv Maximum Minimum Pow GreaterEqual Greater LessEqual Less Equal NotEqual""".split()


@pytest.mark.parametrize(
    ("op", "number"), [*((op, 12) for op in BINARY), ("SquaredDifference", 24), ("Div", 0), ("FloorDiv", 0)]
)
def test_functions_of_two_tensors_count_the_result(op: str, number: int) -> None:
    getattr(tf.raw_ops, op)(x=of(3, 1), y=of(1, 4))
    assert counted() == number


OPS: dict[str, tuple[Callable[[], Any], int]] = {
    "Softmax": (lambda: tf.raw_ops.Softmax(logits=of(3, 4)), 60),
    "LogSoftmax": (lambda: tf.raw_ops.LogSoftmax(logits=of(3, 4)), 0),
    "L2Loss": (lambda: tf.raw_ops.L2Loss(t=of(3, 4)), 35),
    "Relu": (lambda: tf.raw_ops.Relu(features=of(3, 4)), 0),
    "RsqrtGrad": (lambda: tf.raw_ops.RsqrtGrad(y=of(3, 4), dy=of(3, 4)), 48),
    "AddN": (lambda: tf.raw_ops.AddN(inputs=[of(3, 4) for _ in range(5)]), 48),
    "Mean": (lambda: tf.raw_ops.Mean(input=of(3, 4, 5), axis=[1]), 60),
    "Sum": (lambda: tf.raw_ops.Sum(input=of(3, 4, 5), axis=[1]), 45),
    "Max": (lambda: tf.raw_ops.Max(input=of(3, 4, 5), axis=[1]), 0),
    "ArgMax": (lambda: tf.raw_ops.ArgMax(input=of(3, 4, 5), dimension=1), 45),
    "BiasAdd": (lambda: tf.raw_ops.BiasAdd(value=of(3, 4, 5), bias=of(5)), 60),
    "BiasAddGrad": (lambda: tf.raw_ops.BiasAddGrad(out_backprop=of(3, 4, 5)), 55),
    "MatMul": (lambda: tf.raw_ops.MatMul(a=of(3, 4), b=of(4, 5)), 120),
    "transposed": (lambda: tf.raw_ops.MatMul(a=of(4, 3), b=of(5, 4), transpose_a=True, transpose_b=True), 120),
    "integers": (lambda: tf.raw_ops.MatMul(a=of(3, 4, dtype=tf.int32), b=of(4, 5, dtype=tf.int32)), 120),
    "batches": (lambda: tf.raw_ops.BatchMatMulV2(x=of(2, 3, 4), y=of(4, 5)), 240),
    "batches transposed": (lambda: tf.raw_ops.BatchMatMulV2(x=of(2, 4, 3), y=of(4, 5), adj_x=True), 180),
    "SparseMatMul": (lambda: tf.raw_ops.SparseMatMul(a=of(3, 4), b=of(4, 5)), 0),
    "Conv2D": (lambda: tf.raw_ops.Conv2D(input=of(2, 9, 8, 3), filter=of(3, 2, 3, 7), **CHANNELS_LAST), 10080),
    "Conv2D first": (lambda: tf.raw_ops.Conv2D(input=of(2, 3, 9, 8), filter=of(3, 2, 3, 7), **CHANNELS_FIRST), 10080),
    "Conv3D": (
        lambda: tf.raw_ops.Conv3D(
            input=of(2, 5, 9, 8, 3), filter=of(2, 3, 2, 3, 7), strides=[1, 1, 2, 2, 1], padding="SAME"
        ),
        100800,
    ),
    "depthwise": (
        lambda: tf.raw_ops.DepthwiseConv2dNative(input=of(2, 9, 8, 3), filter=of(3, 2, 3, 4), **CHANNELS_LAST),
        5760,
    ),
    "Dilation2D": (
        lambda: tf.raw_ops.Dilation2D(input=of(2, 9, 8, 3), filter=of(3, 2, 3), rates=[1, 1, 1, 1], **CHANNELS_LAST),
        1440,
    ),
    "gradient of images": (
        lambda: tf.nn.conv2d_transpose(of(2, 5, 4, 7), of(3, 2, 3, 7), [2, 9, 8, 3], [1, 2, 2, 1]),
        9072,
    ),
    "gradient of filters": (
        lambda: tf.raw_ops.Conv2DBackpropFilter(
            input=of(2, 7, 8, 3),
            filter_sizes=[3, 2, 3, 5],
            out_backprop=of(2, 2, 3, 5),
            strides=[1, 3, 3, 1],
            padding="VALID",
        ),
        2240,
    ),
    "gradient, channels first": (
        lambda: tf.raw_ops.Conv2DBackpropInput(
            input_sizes=[2, 3, 9, 8], filter=of(3, 2, 3, 7), out_backprop=of(2, 7, 5, 4), **CHANNELS_FIRST
        ),
        0,
    ),
    "AvgPool": (lambda: tf.raw_ops.AvgPool(value=of(2, 9, 8, 3), ksize=[1, 3, 2, 1], **CHANNELS_LAST), 720),
    "MaxPool": (lambda: tf.raw_ops.MaxPool(input=of(2, 9, 8, 3), ksize=[1, 3, 2, 1], **CHANNELS_LAST), 720),
    "MaxPool first": (lambda: tf.raw_ops.MaxPool(input=of(2, 3, 9, 8), ksize=[1, 1, 3, 2], **CHANNELS_FIRST), 0),
    "AvgPoolGrad": (
        lambda: tf.raw_ops.AvgPoolGrad(
            orig_input_shape=[2, 9, 8, 3], grad=of(2, 5, 4, 3), ksize=[1, 3, 2, 1], **CHANNELS_LAST
        ),
        1440,
    ),
    "MaxPoolGrad": (
        lambda: tf.raw_ops.MaxPoolGrad(
            orig_input=of(2, 9, 8, 3),
            orig_output=of(2, 5, 4, 3),
            grad=of(2, 5, 4, 3),
            ksize=[1, 3, 2, 1],
            **CHANNELS_LAST,
        ),
        840,
    ),
    "unknown": (lambda: tf.raw_ops.MatMul(a=of(None, 4), b=of(4, 5)), 0),
    "unknown sum": (lambda: tf.raw_ops.MatMul(a=of(3, None), b=of(4, 5)), 0),
    "sum of the first": (lambda: tf.raw_ops.MatMul(a=of(3, 4), b=of(None, 5)), 120),
    "unknown rank": (lambda: tf.raw_ops.Square(x=tf.placeholder(tf.float32)), 0),
    "unknown images": (lambda: tf.raw_ops.Conv2D(input=of(None, 9, 8, 3), filter=of(3, 2, 3, 7), **CHANNELS_LAST), 0),
    "unknown axis": (lambda: tf.raw_ops.Sum(input=of(3, 4, 5), axis=of(1, dtype=tf.int32)), 0),
}


@pytest.mark.parametrize("case", OPS)
def test_float_operations(case: str) -> None:
    build, number = OPS[case]
    build()
    assert counted() == number
