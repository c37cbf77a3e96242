"""32-bit sums with a range for each channel: TensorFlow's answers, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, registered, run_op

VALUES = np.array(
    [
        [801015372, 1216826394, 1437206324, -375642800],
        [-2068936083, -2000718989, 1074361641, 532704722],
        [2099642383, 689925184, 1065863364, -865456103],
        [-942985873, -231350558, 1242445271, -1193465977],
        [-1704131302, -1832386919, -223795608, -132119530],
        [1754904329, -1734426941, -886420505, 1732461694],
    ],
    np.int32,
).reshape(1, 2, 3, 4)
LOW, HIGH = np.float32([-1.0, -2.0, -0.5, -3.0]), np.float32([1.5, 2.0, 0.25, 1.0])


@pytest.mark.parametrize("op", ["RequantizationRangePerChannel", "RequantizePerChannel"])
def test_registrations_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


def found_range(values: Any, low: Any = LOW, high: Any = HIGH, clip: float = 6.0) -> list[float]:
    low, high = run_op("RequantizationRangePerChannel", [values, low, high], T=dtypes.qint32, clip_value_max=clip)
    return [float(low), float(high)]


def test_range_is_that_of_the_widest_channel() -> None:
    assert found_range(VALUES) == pytest.approx([-2.4202210903167725, 2.4202210903167725], rel=1e-6)
    assert found_range(VALUES, clip=0.5) == [-0.5, 0.5]
    assert found_range(np.abs(VALUES // 2)) == pytest.approx([0.0, 1.2101105451583862], rel=1e-6)
    assert found_range(VALUES[:0]) == [0.0, 0.0]


def requantized(kind: str, least: float, most: float, values: Any = VALUES, low: Any = LOW, high: Any = HIGH) -> Any:
    types = {"T": dtypes.qint32, "out_type": getattr(dtypes, kind)}
    return run_op("RequantizePerChannel", [values, low, high, np.float32(least), np.float32(most)], **types)


@pytest.mark.parametrize(
    ("kind", "least", "most", "wanted"),
    [
        (
            "qint8", -1.0, 1.5,
            [47, 96, 28, 212, 134, 128, 21, 63, 124, 54, 21, 154, 200, 238, 24, 128, 155, 128, 252, 240, 104, 128, 239,
             127],
        ),
        ("quint8", -1.0, 1.5, [95, 193, 57, 0, 0, 0, 43, 127, 249, 109, 42, 0, *[0] * 2, 49, *[0] * 5, 208, 0, 0, 255]),
        ("quint8", 0.0, 2.0, [71, 144, 43, 0, 0, 0, 32, 95, 187, 82, 32, 0, *[0] * 2, 37, *[0] * 5, 156, 0, 0, 255]),
    ],
)  # fmt: skip
def test_values_in_eight_bits(kind: str, least: float, most: float, wanted: list[int]) -> None:
    found, low, high = requantized(kind, least, most)
    assert found.view(np.uint8).ravel().tolist() == wanted and (low, high) == (least, most)
    assert requantized(kind, least, most, VALUES[:0])[0].shape == (0, 2, 3, 4)


def test_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be 4-dimensional"):
        found_range(VALUES[0])
    with pytest.raises(errors.InvalidArgumentError, match="input_max must have one value for each of 4 channels"):
        requantized("qint8", -1, 1, high=HIGH[:2])
    with pytest.raises(errors.InvalidArgumentError, match="must be >= requested_output_min"):
        requantized("qint8", 2, 1)
    with pytest.raises(errors.InvalidArgumentError, match="other than 0"):
        requantized("qint8", 0, 0)
