"""Convolutions, pools and normalisation of quantised images: TensorFlow's answers in tables, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.quantize.integers import QUANTIZED, some

F32 = np.float32

# Of TensorFlow 2.21, by oneDNN for signed filters: the filter's type, ranges of images and filter, padding, stride,
# sums, highest float.
CONVOLUTIONS: list[tuple[str, Any, Any, str, int, list[int], float]] = [
    (
        "quint8",
        (-1.0, 1.0),
        (-1.0, 2.0),
        "SAME",
        1,
        [
            -1012,
            -13312,
            -3316,
            -528,
            4274,
            12064,
            -17140,
            -26160,
            -3316,
            -7744,
            3042,
            7224,
            -13474,
            -19788,
            1406,
            -2612,
            961,
            2150,
        ],
        198153.0625,
    ),
    (
        "quint8",
        (-1.0, 1.0),
        (-1.0, 2.0),
        "SAME",
        2,
        [-1012, -13312, 4274, 12064, -13474, -19788, 961, 2150],
        198153.0625,
    ),
    ("quint8", (-1.0, 1.0), (-1.0, 2.0), "VALID", 2, [-1012, -13312], 198153.0625),
    (
        "quint8",
        (1.0, 3.0),
        (-2.0, -0.5),
        "SAME",
        1,
        [
            -446752,
            -375084,
            -542896,
            -456140,
            -290960,
            -241186,
            -483280,
            -408332,
            -498016,
            -418476,
            -269752,
            -223586,
            -239420,
            -203750,
            -238820,
            -200854,
            -148258,
            -126077,
        ],
        99076.53125,
    ),
    (
        "quint8",
        (1.0, 3.0),
        (-2.0, -0.5),
        "SAME",
        2,
        [-446752, -375084, -290960, -241186, -239420, -203750, -148258, -126077],
        99076.53125,
    ),
    ("quint8", (1.0, 3.0), (-2.0, -0.5), "VALID", 2, [-446752, -375084], 99076.53125),
    (
        "quint8",
        (0.0, 1.0),
        (0.0, 5.0),
        "SAME",
        1,
        [
            60528,
            90212,
            89504,
            134276,
            71112,
            99894,
            51200,
            84164,
            74544,
            112100,
            62400,
            87574,
            14908,
            29586,
            34548,
            51522,
            19554,
            31239,
        ],
        165127.5625,
    ),
    (
        "quint8",
        (0.0, 1.0),
        (0.0, 5.0),
        "SAME",
        2,
        [60528, 90212, 71112, 99894, 14908, 29586, 19554, 31239],
        165127.5625,
    ),
    ("quint8", (0.0, 1.0), (0.0, 5.0), "VALID", 2, [60528, 90212], 165127.5625),
    (
        "qint8",
        (-1.0, 1.0),
        (-1.0, 2.0),
        "SAME",
        1,
        [
            -32144,
            -2460,
            -50272,
            -5500,
            -18744,
            10038,
            -51712,
            -18748,
            -42704,
            -5148,
            -16192,
            8982,
            -30916,
            -16238,
            -18444,
            -1470,
            -16926,
            -5241,
        ],
        198933.1875,
    ),
    (
        "qint8",
        (-1.0, 1.0),
        (-1.0, 2.0),
        "SAME",
        2,
        [-32144, -2460, -18744, 10038, -30916, -16238, -16926, -5241],
        198933.1875,
    ),
    ("qint8", (-1.0, 1.0), (-1.0, 2.0), "VALID", 2, [-32144, -2460], 198933.1875),
    (
        "qint8",
        (0.0, 1.0),
        (-5.0, 5.0),
        "SAME",
        2,
        [-32144, -2460, -18744, 10038, -30916, -16238, -16926, -5241],
        331555.3125,
    ),
    ("qint8", (0.0, 1.0), (-5.0, 5.0), "VALID", 2, [-32144, -2460], 331555.3125),
]

# Op, type, padding, stride of columns, integers of windows of 2 by 2 over 3 rows and 4 columns.
POOLS: list[tuple[str, str, str, int, list[int]]] = [
    (
        "QuantizedMaxPool",
        "quint8",
        "SAME",
        1,
        [145, 184, 223, 206, 245, 206, 245, 84, 201, 240, 201, 240, 101, 140, 101, 140],
    ),
    ("QuantizedMaxPool", "quint8", "SAME", 2, [145, 184, 245, 206, 201, 240, 101, 140]),
    ("QuantizedMaxPool", "quint8", "VALID", 1, [145, 184, 223, 206, 245, 206]),
    ("QuantizedMaxPool", "quint8", "VALID", 2, [145, 184, 245, 206]),
    ("QuantizedMaxPool", "qint8", "SAME", 1, [17, 56, 95, 78, 117, 78, 117, -44, 73, 112, 73, 112, -27, 12, -27, 12]),
    ("QuantizedMaxPool", "qint8", "SAME", 2, [17, 56, 117, 78, 73, 112, -27, 12]),
    ("QuantizedMaxPool", "qint8", "VALID", 1, [17, 56, 95, 78, 117, 78]),
    ("QuantizedMaxPool", "qint8", "VALID", 2, [17, 56, 117, 78]),
    (
        "QuantizedAvgPool",
        "quint8",
        "SAME",
        1,
        [78, 117, 156, 131, 170, 81, 145, 56, 162, 201, 112, 151, 62, 101, 101, 140],
    ),
    ("QuantizedAvgPool", "quint8", "SAME", 2, [78, 117, 170, 81, 162, 201, 62, 101]),
    ("QuantizedAvgPool", "quint8", "VALID", 1, [78, 117, 156, 131, 170, 81]),
    ("QuantizedAvgPool", "quint8", "VALID", 2, [78, 117, 170, 81]),
    ("QuantizedAvgPool", "qint8", "SAME", 1, [-50, -11, 28, 3, 42, -47, 17, -72, 34, 73, -16, 23, -66, -27, -27, 12]),
    ("QuantizedAvgPool", "qint8", "SAME", 2, [-50, -11, 42, -47, 34, 73, -66, -27]),
    ("QuantizedAvgPool", "qint8", "VALID", 1, [-50, -11, 28, 3, 42, -47]),
    ("QuantizedAvgPool", "qint8", "VALID", 2, [-50, -11, 42, -47]),
]

# Shape of the images, attrs, integers, lowest and highest float.
NORMALISED: list[tuple[Any, dict[str, Any], list[int], float, float]] = [
    ((1, 2, 3, 2), {}, [0, 0, 127, 127, 253, 253, 3, 3, 129, 129, 255, 255], -1.2388588190078735, 1.2388588190078735),
    (
        (1, 2, 3, 2),
        {"output_range_given": True, "given_y_min": -1.0, "given_y_max": 1.5},
        [0, 0, 101, 101, 225, 225, 0, 0, 103, 103, 228, 228],
        -1.0,
        1.5,
    ),
    (
        (1, 2, 3, 2),
        {"variance_epsilon": 0.5},
        [0, 0, 127, 127, 253, 253, 3, 3, 129, 129, 255, 255],
        -1.1630864143371582,
        1.1630864143371582,
    ),
    (
        (1, 2, 3, 2),
        {"min_separation": 50.0},
        [0, 0, 6, 6, 12, 12, 0, 0, 6, 6, 12, 12],
        -1.2388588190078735,
        48.76114273071289,
    ),
    ((2, 2, 2, 1), {}, [0, 85, 171, 255, 197, 243, 13, 59], -1.3416368961334229, 1.3416368961334229),
    (
        (2, 2, 2, 1),
        {"output_range_given": True, "given_y_min": -1.0, "given_y_max": 1.5},
        [0, 56, 148, 239, 176, 226, 0, 28],
        -1.0,
        1.5,
    ),
    (
        (2, 2, 2, 1),
        {"variance_epsilon": 0.5},
        [0, 85, 171, 255, 203, 254, 2, 53],
        -1.182586669921875,
        1.182586669921875,
    ),
    ((2, 2, 2, 1), {"min_separation": 50.0}, [0, 5, 9, 14, 11, 13, 1, 3], -1.3416368961334229, 48.658363342285156),
]


@pytest.mark.parametrize("op", ops_of("quantize.quantized_window_ops"))
def test_types_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


def convolve(filter_type: str, x: Any, filter: Any, *limits: float, **attrs: Any) -> Any:
    types = {"Tinput": dtypes.quint8, "Tfilter": QUANTIZED[filter_type], "out_type": dtypes.qint32}
    return run_op("QuantizedConv2D", [x, filter, *map(F32, limits)], **types, **attrs)


@pytest.mark.parametrize(("kind", "image_range", "filter_range", "padding", "stride", "wanted", "most"), CONVOLUTIONS)
def test_convolution(
    kind: str, image_range: Any, filter_range: Any, padding: str, stride: int, wanted: list[int], most: float
) -> None:
    x, filter = some((1, 3, 3, 2), 1), some((2, 2, 2, 2), 2, kind)
    strides = [1, stride, stride, 1]
    found, low, high = convolve(kind, x, filter, *image_range, *filter_range, strides=strides, padding=padding)
    assert found.dtype == np.int32 and found.ravel().tolist() == wanted
    np.testing.assert_allclose([low, high], [-most, most], rtol=1e-6)


def test_convolution_with_dilations_is_that_of_a_wider_filter() -> None:
    x, filter = some((1, 5, 5, 2), 1), some((2, 2, 2, 1), 2)
    limits, zero = (0, 1, 0, 5), np.zeros((3, 3, 2, 1), np.uint8)
    zero[::2, ::2] = filter
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    dilated = convolve("quint8", x, filter, *limits, dilations=[1, 2, 2, 1], **attrs)[0]
    assert dilated.tolist() == convolve("quint8", x, zero, *limits, **attrs)[0].tolist()


def test_wrong_convolutions_are_refused() -> None:
    x, filter, limits = some((1, 3, 3, 2), 1), some((2, 2, 2, 2), 2), (-1, 1, -1, 1)
    plain = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for args, attrs, words in (
        ((x[0], filter, *limits), plain, "input must be 4-dimensional"),
        ((x[..., :1], filter, *limits), plain, "must have the same depth: 1 vs 2"),
        ((x, filter, *limits), {**plain, "strides": [1, 1, 1]}, "strides must have 4 values"),
        ((x, filter, *limits), {**plain, "dilations": [2, 1, 1, 1]}, "dilations must be 1 in the batch"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            convolve("quint8", *args, **attrs)


@pytest.mark.parametrize(("op", "kind", "padding", "stride", "wanted"), POOLS)
def test_pool(op: str, kind: str, padding: str, stride: int, wanted: list[int]) -> None:
    attrs = {"ksize": [1, 2, 2, 1], "strides": [1, 2, stride, 1], "padding": padding}
    found, *limits = run_op(op, [some((1, 3, 4, 2), 1, kind), F32(-1), F32(2)], T=QUANTIZED[kind], **attrs)
    assert found.ravel().tolist() == wanted and limits == [-1, 2]


def test_pool_over_depth() -> None:
    attrs: dict[str, Any] = {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID", "T": dtypes.quint8}
    inputs = [some((1, 2, 2, 4), 1), F32(-1), F32(2)]
    assert run_op("QuantizedMaxPool", inputs, **attrs)[0].ravel().tolist() == [50, 128, 206, 245, 106, 184, 223, 84]
    with pytest.raises(errors.UnimplementedError, match="averages over height and width only"):
        run_op("QuantizedAvgPool", inputs, **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="min_input must be a scalar"):
        run_op("QuantizedMaxPool", [inputs[0], np.zeros(2, F32), F32(2)], **attrs)


def normalise(x: Any, low: float, high: float, **attrs: Any) -> Any:
    return run_op("QuantizedInstanceNorm", [x, F32(low), F32(high)], T=dtypes.quint8, **attrs)


@pytest.mark.parametrize(("shape", "attrs", "wanted", "least", "most"), NORMALISED)
def test_normalised(shape: Any, attrs: dict[str, Any], wanted: list[int], least: float, most: float) -> None:
    found, *limits = normalise(some(shape, 3), -2, 5, **attrs)
    assert found.ravel().tolist() == wanted
    np.testing.assert_allclose(limits, [least, most], rtol=1e-6)


def test_normalised_without_variance_or_images() -> None:
    for count in (0, 1):
        found, *limits = normalise(np.full((count, 2, 2, 1), 9, np.uint8), -2, 5)
        assert found.shape == (count, 2, 2, 1) and not found.any() and limits == [0, F32(0.001)]


def test_normalised_ranges_are_checked() -> None:
    x = some((1, 2, 2, 1), 3)
    with pytest.raises(errors.InvalidArgumentError, match="input_min must be less than input_max : 2 >= 1"):
        normalise(x, 2, 1)
    with pytest.raises(errors.InvalidArgumentError, match="given_y_min must be less than given_y_max : 1 >= 1"):
        normalise(x, 0, 1, output_range_given=True, given_y_min=1.0, given_y_max=1.0)
    with pytest.raises(errors.InvalidArgumentError, match="x must be 4-dimensional"):
        normalise(x[0], 0, 1)
