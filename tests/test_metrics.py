"""Metrics: TensorFlow's values after each of three runs, their variables, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import metrics
from aexec.framework import errors

# Of TensorFlow 2.21, in graph mode: the value at first, then of each run the update and the value after it.
RECORDED = json.loads((Path(__file__).parent / "data" / "metrics.json").read_text())

_rng = np.random.default_rng(5)
RUNS = 3
# Fed to `y`, `p`, `q`, `w`.
LABELS = _rng.integers(0, 2, (RUNS, 6)).astype(np.float32)
GUESSES = _rng.integers(0, 2, (RUNS, 6)).astype(np.float32)
SHARES = _rng.random((RUNS, 6)).astype(np.float32)
WEIGHTS = _rng.integers(0, 3, (RUNS, 6)).astype(np.float32)

CASES: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "mean": lambda metrics, y, p, q, w: metrics.mean(q),
    "mean, weighted": lambda metrics, y, p, q, w: metrics.mean(q, w),
    "accuracy": lambda metrics, y, p, q, w: metrics.accuracy(y, p),
    "accuracy, weighted": lambda metrics, y, p, q, w: metrics.accuracy(y, p, w),
    "absolute": lambda metrics, y, p, q, w: metrics.mean_absolute_error(y, q, w),
    "relative": lambda metrics, y, p, q, w: metrics.mean_relative_error(y, q, y),
    "squared": lambda metrics, y, p, q, w: metrics.mean_squared_error(y, q),
    "root": lambda metrics, y, p, q, w: metrics.root_mean_squared_error(y, q, w),
    "true positives": lambda metrics, y, p, q, w: metrics.true_positives(y, p),
    "true negatives": lambda metrics, y, p, q, w: metrics.true_negatives(y, p, w),
    "false positives": lambda metrics, y, p, q, w: metrics.false_positives(y, p, w),
    "false negatives": lambda metrics, y, p, q, w: metrics.false_negatives(y, p),
    "precision": lambda metrics, y, p, q, w: metrics.precision(y, p),
    "precision, weighted": lambda metrics, y, p, q, w: metrics.precision(y, p, w),
    "recall": lambda metrics, y, p, q, w: metrics.recall(y, p, w),
    "auc": lambda metrics, y, p, q, w: metrics.auc(y, q, num_thresholds=20),
    "auc, weighted": lambda metrics, y, p, q, w: metrics.auc(y, q, w),
    "auc of precision over recall": lambda metrics, y, p, q, w: metrics.auc(y, q, num_thresholds=20, curve="PR"),
    "auc by hyperbolas": lambda metrics, y, p, q, w: metrics.auc(
        y, q, w, num_thresholds=20, curve="PR", summation_method="careful_interpolation"
    ),
    "mean iou": lambda metrics, y, p, q, w: metrics.mean_iou(y, p, 3),
    "mean iou, weighted": lambda metrics, y, p, q, w: metrics.mean_iou(y, p, 3, w),
}


@pytest.mark.parametrize("case", CASES)
async def test_tensorflows_values(case: str) -> None:
    with aexec.Graph() as graph:
        fed = [aexec.placeholder("float32", [6], name=name) for name in "ypqw"]
        value, update = CASES[case](metrics, *fed)
        init = aexec.local_variables_initializer()
    found = []
    async with aexec.Session(graph) as session:
        await session.run(init)
        found.append(await session.run(value))
        for i in range(RUNS):
            batch = [LABELS[i], GUESSES[i], SHARES[i], WEIGHTS[i]]
            found += [await session.run(update, dict(zip(fed, batch, strict=True))), await session.run(value)]
        await session.run(init)
        np.testing.assert_array_equal(await session.run(value), found[0])
    np.testing.assert_allclose(np.concatenate([np.ravel(f) for f in found]), RECORDED[case], rtol=2e-6, atol=1e-6)


def test_variables_of_metrics_are_local() -> None:
    with aexec.Graph() as graph:
        value, update = metrics.accuracy([1], [1], metrics_collections=["values"], updates_collections=["updates"])
        metrics.precision([True], [False])
        names = [variable.op.name for variable in aexec.local_variables()]
        assert aexec.get_collection("metric_variables") == aexec.local_variables()
        assert aexec.global_variables() == []
        assert aexec.get_collection("values") == [value]
        assert aexec.get_collection("updates") == [update]
    assert graph
    assert names == [
        "accuracy/total",
        "accuracy/count",
        "precision/true_positives/count",
        "precision/false_positives/count",
    ]


def test_invalid_metrics_are_refused() -> None:
    with aexec.Graph():
        with pytest.raises(errors.InvalidArgumentError, match="are incompatible"):
            metrics.accuracy([1, 2], [1])
        with pytest.raises(errors.InvalidArgumentError, match="are incompatible"):
            metrics.auc([1, 0], [0.5])
        with pytest.raises(errors.InvalidArgumentError, match="curve must be either ROC or PR, roc unknown"):
            metrics.auc([1], [0.5], curve="roc")
        with pytest.raises(errors.InvalidArgumentError, match="Invalid summation_method: minoring"):
            metrics.auc([1], [0.5], summation_method="minoring")
        with pytest.raises(errors.InvalidArgumentError, match="two thresholds at least, got 1"):
            metrics.auc([1], [0.5], num_thresholds=1)
