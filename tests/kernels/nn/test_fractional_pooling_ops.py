"""Fractional pools: TensorFlow's windows and answers for its seeds, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.answer_tables import INVALID, refused
from tests.kernels.array_support import F32, I64
from tests.kernels.harness import in_tensorflow, registered, run_op

# fmt: off
IMAGE = F32([
    44, 47, 64, 67, 67, 9, 83, 21, 36,
    87, 70, 88, 88, 12, 58, 65, 39, 87, 46, 88, 81, 37, 25, 77, 72, 9, 20, 80, 69, 79,
    47, 64, 82, 88, 49, 29, 19, 19, 14, 39, 32, 65, 9, 57, 32, 31, 74, 23, 35, 75, 55, 28, 34, 0, 0, 36, 53, 5, 38, 17,
    79, 4, 42,
]).reshape(1, 7, 9, 1)
# (pseudo_random, overlapping) → maxima, means
POOLED: dict[tuple[bool, bool], Any] = {
    (False, False): (
        [87, 88, 88, 83, 87, 80, 88, 64, 88, 49, 19, 19, 39, 65, 57, 31, 74, 75, 79, 42],
        [65.5, 67.25, 58.5, 53.75, 45.75, 63, 79.25, 43.25, 79.75, 26.75, 19, 16.5, 35.5, 37, 44.5, 15.5, 46.5, 38.25,
         44.75, 20],
    ),
    (False, True): (
        [88, 88, 88, 83, 87, 88, 88, 82, 88, 57, 74, 74, 75, 65, 57, 74, 74, 75, 79, 42],
        [63.66666793823242, 70, 48.88888931274414, 48.11111068725586, 35.33333206176758, 53.5, 52.55555725097656, 52,
         56.44444274902344, 32.66666793823242, 35.75, 34, 50.16666793823242, 41.33333206176758, 30.75, 35.25,
         37.66666793823242, 37.5, 36.16666793823242, 20],
    ),
    (True, False): (
        [87, 88, 67, 83, 87, 88, 81, 82, 88, 29, 74, 39, 75, 57, 32, 36, 53, 38, 79, 42],
        [62, 76.75, 36.5, 52, 61.5, 70.75, 61, 62, 54.5, 24.5, 35.75, 27.75, 56.75, 32, 16, 18, 29, 27.5, 41.5, 42],
    ),
    (True, True): (
        [88, 88, 83, 87, 87, 88, 81, 88, 88, 32, 74, 75, 79, 79, 42, 53, 53, 79, 79, 42],
        [68.33333587646484, 58.77777862548828, 52, 48, 47.66666793823242, 55, 46.44444274902344, 57.11111068725586,
         40.55555725097656, 27, 29.88888931274414, 34.88888931274414, 44.22222137451172, 31.66666603088379,
         24.66666603088379, 29.66666603088379, 32, 44.66666793823242, 41.66666793823242, 42],
    ),
}
# Length, windows, pseudo_random, rows, columns.
SEQUENCES: list[Any] = [
    (10, 4, False, [0, 3, 5, 8, 10], [0, 2, 5, 8, 10]),
    (10, 4, True, [0, 3, 5, 8, 10], [0, 3, 5, 8, 10]),
    (16, 7, False, [0, 2, 5, 8, 11, 13, 16], [0, 3, 6, 8, 11, 14, 16]),
    (16, 7, True, [0, 3, 5, 8, 11, 13, 16], [0, 3, 5, 8, 11, 13, 16]),
    (23, 9, False, [0, 3, 5, 7, 9, 12, 15, 18, 20, 23], [0, 3, 5, 8, 10, 13, 16, 18, 20, 23]),
    (23, 9, True, [0, 3, 5, 8, 10, 13, 15, 18, 21, 23], [0, 3, 5, 8, 10, 13, 15, 18, 20, 23]),
    (5, 5, True, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
    (8, 4, False, [0, 2, 4, 6, 8], [0, 2, 4, 6, 8]),
]
MAX_GRAD = [
    0, 0, 0, 0, 0, 0, 166, 0,
    0, 0, 0, 176, 176, 0, 0, 0, 0, 174, 0, 528, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 164, 176, 0,
    0, 0, 0, 0, 0, 0, 130, 0, 228, 0, 0, 592, 0, 0, 300, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 158, 0, 84,
]
# fmt: on
RATIO = [1.0, 1.44, 1.73, 1.0]
SEEDS = {"deterministic": True, "seed": 3, "seed2": 7}
OPS = ["FractionalMaxPool", "FractionalAvgPool", "FractionalMaxPoolGrad", "FractionalAvgPoolGrad"]


@pytest.mark.parametrize("op", OPS)
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(("pseudo_random", "overlapping"), POOLED)
def test_pools_are_tensorflows(pseudo_random, overlapping):
    attrs = {"pooling_ratio": RATIO, "pseudo_random": pseudo_random, "overlapping": overlapping, **SEEDS}
    for op, want in zip(OPS, POOLED[pseudo_random, overlapping], strict=False):
        got, rows, columns = run_op(op, [IMAGE], **attrs)
        np.testing.assert_allclose(got, F32(want).reshape(1, 4, 5, 1), rtol=1e-6)
        assert rows.tolist() == ([0, 2, 4, 6, 7] if pseudo_random else [0, 2, 4, 5, 7])
        assert columns.tolist() == ([0, 2, 4, 6, 8, 9] if pseudo_random else [0, 1, 3, 5, 7, 9])


@pytest.mark.parametrize(("length", "windows", "pseudo_random", "rows", "columns"), SEQUENCES)
def test_windows_are_tensorflows(length, windows, pseudo_random, rows, columns):
    image, ratio = np.zeros((1, length, length, 1), np.float32), length / windows
    attrs = {"pooling_ratio": [1.0, ratio, ratio, 1.0], "pseudo_random": pseudo_random, "deterministic": True}
    got = run_op("FractionalMaxPool", [image], seed=5, seed2=-2, **attrs)
    assert [got[1].tolist(), got[2].tolist()] == [rows, columns]


def test_integers_are_rounded_towards_zero():
    image = np.arange(-20, 15, dtype=np.int32).reshape(1, 5, 7, 1)
    got, rows, columns = run_op("FractionalAvgPool", [image], pooling_ratio=RATIO, **SEEDS)
    assert got.ravel().tolist() == [-16, -14, -12, -11, -2, 0, 1, 3, 8, 10, 12, 13]
    assert [rows.tolist(), columns.tolist()] == [[0, 2, 4, 5], [0, 2, 4, 5, 7]]


def test_nan_is_no_maximum():
    image = IMAGE.copy()
    image[0, 0, 0], image[0, 3, 4] = np.nan, np.nan
    got = run_op("FractionalMaxPool", [image], pooling_ratio=RATIO, **SEEDS)[0].ravel()
    assert got[:5].tolist() == [87, 88, 88, 83, 87] and got[7] == 47
    nothing = np.full((1, 2, 2, 1), -np.inf, np.float32)
    assert run_op("FractionalMaxPool", [nothing], pooling_ratio=RATIO)[0].item() == np.finfo(np.float32).min


def test_runs_without_seeds_differ():
    image = np.zeros((1, 99, 99, 1), np.float32)
    found = {run_op("FractionalMaxPool", [image], pooling_ratio=RATIO)[1].tobytes() for _ in range(4)}
    assert len(found) > 1


def test_gradient_goes_to_the_first_maximum():
    pooled, *sequences = run_op("FractionalMaxPool", [IMAGE], pooling_ratio=RATIO, overlapping=True, **SEEDS)
    got = run_op("FractionalMaxPoolGrad", [IMAGE, pooled, 2 * pooled, *sequences], overlapping=True)
    assert got.ravel().tolist() == MAX_GRAD


def test_gradient_of_a_mean_is_shared():
    grad = F32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
    inputs = [I64([1, 7, 9, 1]), grad, I64([0, 3, 7]), I64([0, 4, 9])]
    rows = {False: [1 / 12] * 4 + [2 / 15] * 5, True: [0.05] * 4 + [0.15] + [0.1] * 4}
    last = {False: [0.1875] * 4 + [0.2] * 5, True: [0.15] * 4 + [0.35] + [0.2] * 4}
    for overlapping in (False, True):
        got = run_op("FractionalAvgPoolGrad", inputs, overlapping=overlapping)[0, :, :, 0]
        np.testing.assert_allclose(got[0], rows[overlapping], rtol=1e-6)
        np.testing.assert_allclose(got[-1], last[overlapping], rtol=1e-6)
        np.testing.assert_allclose(got.sum(), 10, rtol=1e-6)


GRADS = F32([[1, 1], [1, 1]]).reshape(1, 2, 2, 1)
BEST = F32([88, 88, 80, 79]).reshape(1, 2, 2, 1)
ROWS, COLUMNS = I64([0, 3, 7]), I64([0, 4, 9])


def _pool(message: str, image: Any = IMAGE, error: Any = INVALID, **attrs: Any) -> Any:
    return "FractionalMaxPool", [image], {"pooling_ratio": RATIO, **attrs}, message, error


def _max_grad(message: str, **changed: Any) -> Any:
    inputs = {"x": IMAGE, "y": BEST, "grad": GRADS, "rows": ROWS, "columns": COLUMNS, **changed}
    return "FractionalMaxPoolGrad", list(inputs.values()), {}, message, INVALID


def _avg_grad(message: str, **changed: Any) -> Any:
    inputs = {"shape": I64([1, 7, 9, 1]), "grad": GRADS, "rows": ROWS, "columns": COLUMNS, **changed}
    return "FractionalAvgPoolGrad", list(inputs.values()), {}, message, INVALID


_INSIDE = "row_pooling_sequence must increase and begin windows in [0, 7)"
_HIGHER = "Pooling ratio is higher than input dimension size for dimension {}. Input dim size: {} pooling ratio: {}"
test_refused = refused(
    [
        _pool("tensor_in must be 4-dimensional", IMAGE[0]),
        _pool(_HIGHER.format(1, 7, 8), pooling_ratio=[1.0, 8.0, 1.73, 1.0]),
        _pool(_HIGHER.format(0, 0, 1), IMAGE[:0]),
        _pool("pooling_ratio cannot be smaller than 1, got: 0.5", pooling_ratio=[1.0, 0.5, 1.73, 1.0]),
        _pool("pooling_ratio cannot be smaller than 1, got: nan", pooling_ratio=[1.0, np.nan, 1.73, 1.0]),
        _pool("pooling_ratio field must specify 4 dimensions", pooling_ratio=[1.0] * 5),
        _pool("Both seed and seed2 should be 0 if deterministic is false.", seed=3),
        _pool(
            "Fractional max pooling is not yet supported on the batch nor channel dimension.",
            pooling_ratio=[1.0, 1.0, 1.0, 2.0],
            error=errors.UnimplementedError,
        ),
        _max_grad("tensor_out_dup is not the same as tensor_out", y=0 * BEST),
        _max_grad("orig_input should be a tensor of rank 4, got [7,9,1]", x=IMAGE[0]),
        _max_grad("out_backprop must have orig_output's shape [1,2,2,1], not [1,2,1,1]", grad=GRADS[:, :, :1]),
        _max_grad("out_backprop of shape [1,2,2,1] is not that of an input of shape [0,7,9,1]", x=IMAGE[:0]),
        _max_grad("row_pooling_sequence must be a vector, received shape [1,3]", rows=ROWS[None]),
        _max_grad("col_pooling_sequence must have 3 elements, but got 2", columns=I64([0, 9])),
        *(_max_grad(_INSIDE, rows=I64(bad)) for bad in ([3, 0, 7], [-1, 3, 7], [0, 9, 19], [0, 0, 7])),
        _avg_grad("original input tensor shape must be 1-dimensional and 4 elements", shape=I64([1, 7, 9])),
        _avg_grad("Expected a non-negative size, got -1", shape=I64([1, 7, 9, -1])),
        _avg_grad("out_backprop must be 4-dimensional", grad=GRADS[0]),
        _avg_grad("row_pooling_sequence must have 3 elements, but got 0", rows=I64([])),
    ]
)
