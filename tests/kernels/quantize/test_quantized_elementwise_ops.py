"""Sums and products of quantised tensors: TensorFlow's answers in tables, broadcasting, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.quantize.integers import QUANTIZED, some

F32 = np.float32

# Of TensorFlow 2.21: op, ranges, shapes, integers, highest float.
PAIRS: list[tuple[str, Any, Any, Any, Any, list[int], float]] = [
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (4,), (4,), [-108199, -56542, -4885, 46772], 32768.0),
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (), (3,), [-108199, -76588, -44977], 32768.0),
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (3,), (1,), [-108199, -88153, -68107], 32768.0),
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (2, 3), (3,), [-108199, -56542, -4885, -48061, 3596, 55253], 32768.0),
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (3,), (2, 3), [-108199, -56542, -4885, -13366, 38291, 89948], 32768.0),
    ("QuantizedAdd", (-1.0, 1.0), (-1.0, 2.0), (2, 2), (2, 2), [-108199, -56542, -4885, 46772], 32768.0),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (4,), (4,), [7371, 1716, -741, 0], 198153.0625),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (), (3,), [7371, 2574, -2223], 198153.0625),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (3,), (1,), [7371, 4914, 2457], 198153.0625),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (2, 3), (3,), [7371, 1716, -741, 0, -858, 1482], 198153.0625),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (3,), (2, 3), [7371, 1716, -741, -7020, -7878, -5538], 198153.0625),
    ("QuantizedMul", (-1.0, 1.0), (-1.0, 2.0), (2, 2), (2, 2), [7371, 1716, -741, 0], 198153.0625),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (4,), (4,), [-34435, -10521, 13393, 37307], 49152.0),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (), (3,), [-34438, -23901, -13364], 49152.0),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (3,), (1,), [-34435, -21058, -7681], 49152.0),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (2, 3), (3,), [-34435, -10521, 13393, 5696, 29610, 53524], 49152.0),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (3,), (2, 3), [-34435, -10521, 13393, -2824, 21090, 45004], 49152.0),
    ("QuantizedAdd", (1.0, 3.0), (-2.0, -0.5), (2, 2), (2, 2), [-34435, -10521, 13393, 37307], 49152.0),
    ("QuantizedMul", (1.0, 3.0), (-2.0, -0.5), (4,), (4,), [-44202, -49306, -51212, -49920], 99076.53125),
    ("QuantizedMul", (1.0, 3.0), (-2.0, -0.5), (), (3,), [-44202, -38503, -32804], 99076.53125),
    ("QuantizedMul", (1.0, 3.0), (-2.0, -0.5), (3,), (1,), [-44202, -56604, -69006], 99076.53125),
    (
        "QuantizedMul",
        (1.0, 3.0),
        (-2.0, -0.5),
        (2, 3),
        (3,),
        [-44202, -49306, -51212, -81408, -81715, -78824],
        99076.53125,
    ),
    (
        "QuantizedMul",
        (1.0, 3.0),
        (-2.0, -0.5),
        (3,),
        (2, 3),
        [-44202, -49306, -51212, -27105, -27412, -24521],
        99076.53125,
    ),
    ("QuantizedMul", (1.0, 3.0), (-2.0, -0.5), (2, 2), (2, 2), [-44202, -49306, -51212, -49920], 99076.53125),
    ("QuantizedAdd", (0.0, 1.0), (0.0, 50.0), (4,), (4,), [11418, 32882, 54346, 75810], 819200.0),
    ("QuantizedAdd", (0.0, 1.0), (0.0, 50.0), (), (3,), [11421, 32495, 53569], 819200.0),
    ("QuantizedMul", (0.0, 1.0), (0.0, 50.0), (4,), (4,), [242, 3150, 9256, 18560], 1651275.5),
    ("QuantizedMul", (0.0, 1.0), (0.0, 50.0), (), (3,), [242, 693, 1144], 1651275.5),
    ("QuantizedAdd", (-3.0, 0.01), (-0.1, 0.2), (4,), (4,), [-128564, -106349, -84134, -61919], 49152.0),
    ("QuantizedAdd", (-3.0, 0.01), (-0.1, 0.2), (), (3,), [-128567, -126476, -124385], 49152.0),
    ("QuantizedMul", (-3.0, 0.01), (-0.1, 0.2), (4,), (4,), [15309, 4488, -3135, -7560], 29822.03515625),
    ("QuantizedMul", (-3.0, 0.01), (-0.1, 0.2), (), (3,), [15309, 5346, -4617], 29822.03515625),
]

# Type, ranges, integers of [2, 4] and a bias, highest float.
BIASED: list[tuple[str, Any, Any, list[int], float]] = [
    ("quint8", (-1.0, 1.0), (-1.0, 2.0), [-13525, -7067, -611, 5847, -3502, 2956, 9413, -578], 262144.0),
    ("qint8", (-1.0, 1.0), (-1.0, 2.0), [-13525, -7067, -611, 5847, -3502, 2956, 9413, -578], 262144.0),
    ("quint8", (1.0, 3.0), (-2.0, -0.5), [-4305, -1317, 1670, 4659, 2377, 5365, 8352, 375], 393216.0),
    ("qint8", (1.0, 3.0), (-2.0, -0.5), [-4305, -1317, 1670, 4659, 2377, 5365, 8352, 375], 393216.0),
    ("quint8", (0.0, 1.0), (0.0, 50.0), [1428, 4112, 6796, 9480, 1629, 4313, 6997, 9352], 6553600.0),
    ("qint8", (0.0, 1.0), (0.0, 50.0), [1428, 4112, 6796, 9480, 1629, 4313, 6997, 9352], 6553600.0),
    ("quint8", (-3.0, 0.01), (-0.1, 0.2), [-16070, -13292, -10515, -7737, -6013, -3235, -458, -14183], 393216.0),
    ("qint8", (-3.0, 0.01), (-0.1, 0.2), [-16070, -13292, -10515, -7737, -6013, -3235, -458, -14183], 393216.0),
]


@pytest.mark.parametrize("op", ops_of("quantize.quantized_elementwise_ops"))
def test_types_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


def pair(op: str, x: Any, y: Any, *limits: Any) -> Any:
    types = {"T1": dtypes.quint8, "T2": dtypes.quint8, "Toutput": dtypes.qint32}
    return run_op(op, [x, y, *[np.array(limit, F32) for limit in limits]], **types)


@pytest.mark.parametrize(("op", "of_x", "of_y", "shape_x", "shape_y", "wanted", "most"), PAIRS)
def test_pair(op: str, of_x: Any, of_y: Any, shape_x: Any, shape_y: Any, wanted: list[int], most: float) -> None:
    found, low, high = pair(op, some(shape_x, 1), some(shape_y, 2), *of_x, *of_y)
    assert found.dtype == np.int32 and found.ravel().tolist() == wanted
    np.testing.assert_allclose([low, high], [-most, most], rtol=1e-6)


@pytest.mark.parametrize("op", ["QuantizedAdd", "QuantizedMul"])
@pytest.mark.parametrize("shapes", [((2, 1), (2, 3)), ((2, 1), (1, 2)), ((2, 1, 2), (1, 3, 2)), ((0,), (2, 0))])
def test_pair_broadcasts_as_any_other_op(op: str, shapes: Any) -> None:
    x, y = (some(shape, seed) for seed, shape in enumerate(shapes))
    whole = np.broadcast_arrays(x, y)
    limits = (-1, 1, -1, 2)
    assert pair(op, x, y, *limits)[0].tolist() == pair(op, *whole, *limits)[0].tolist()


@pytest.mark.parametrize("op", ["QuantizedAdd", "QuantizedMul"])
def test_wrong_pairs_are_refused(op: str) -> None:
    x = some((2,), 1)
    for y, limits, words in (
        (some((3,), 2), (0, 1, 0, 1), r"Incompatible shapes: \[2\] vs. \[3\]"),
        (x, (1, 1, 0, 1), "max_x must be larger than min_x"),
        (x, (0, 1, 2, 1), "max_y must be larger than min_y"),
        (x, (0, 1, [0, 0], 1), "min_y must be a scalar"),
        (x, (0, 1, np.nan, 1), "range of a quantised tensor must be finite"),
        (x, (0, 1, 0, np.inf), "range of a quantised tensor must be finite"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            pair(op, x, y, *limits)


def biased(kind: str, x: Any, bias: Any, *limits: Any) -> Any:
    types = {"T1": QUANTIZED[kind], "T2": QUANTIZED[kind], "out_type": dtypes.qint32}
    return run_op("QuantizedBiasAdd", [x, bias, *map(F32, limits)], **types)


@pytest.mark.parametrize(("kind", "given", "of_bias", "wanted", "most"), BIASED)
def test_biased(kind: str, given: Any, of_bias: Any, wanted: list[int], most: float) -> None:
    found, low, high = biased(kind, some((2, 4), 1, kind), some((4,), 2, kind), *given, *of_bias)
    assert found.dtype == np.int32 and found.ravel().tolist() == wanted and (low, high) == (-most, most)


def test_biases_that_do_not_fit_are_refused() -> None:
    for bias, words in ((some((3,), 1), "as many biases as"), (some((2, 2), 1), "bias must be a vector")):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            biased("quint8", some((2, 4), 1), bias, 0, 1, 0, 1)
