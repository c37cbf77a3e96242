"""Losses: TensorFlow's values, gradients through them, collections, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import losses
from aexec.framework import errors
from aexec.losses import Reduction

# Of TensorFlow 2.21, in graph mode: the losses, all of a case in one list.
RECORDED = json.loads((Path(__file__).parent / "data" / "losses.json").read_text())

_rng = np.random.default_rng(4)
Y = _rng.integers(0, 2, (4, 3)).astype(np.float32)
P = (0.1 + 0.8 * _rng.random((4, 3))).astype(np.float32)
X = (3 * _rng.standard_normal((4, 3))).astype(np.float32)
ONE_HOT = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
UNITS = X / np.linalg.norm(X, axis=1, keepdims=True)
WEIGHTS = np.array([[1.0], [0.0], [0.5], [2.0]], np.float32)
EACH = np.array([[1, 0, 1], [0, 0, 0], [2, 1, 0.5], [0, 3, 1]], np.float32)
CLASSES = np.array([[0], [2], [1], [1]])

# What is called with the module of losses, aexec's or TensorFlow's.
CASES: dict[str, Callable[[Any], Any]] = {
    "absolute": lambda losses: losses.absolute_difference(Y, X),
    "absolute, weighted": lambda losses: losses.absolute_difference(Y, X, WEIGHTS),
    "cosine": lambda losses: losses.cosine_distance(Y, UNITS, axis=1),
    "cosine, weighted": lambda losses: losses.cosine_distance(Y, UNITS, axis=1, weights=WEIGHTS),
    "hinge": lambda losses: losses.hinge_loss(Y, X, EACH),
    "huber": lambda losses: losses.huber_loss(Y, X, delta=0.7),
    "log": lambda losses: losses.log_loss(Y, P, EACH),
    "pairwise": lambda losses: losses.mean_pairwise_squared_error(Y, X),
    "pairwise, weighted by example": lambda losses: losses.mean_pairwise_squared_error(Y, X, WEIGHTS),
    "pairwise, weighted": lambda losses: losses.mean_pairwise_squared_error(Y, X, EACH),
    "squared": lambda losses: losses.mean_squared_error(Y, X),
    "squared, weighted": lambda losses: losses.mean_squared_error(Y, X, 0.5),
    "squared, no weight": lambda losses: losses.mean_squared_error(Y, X, 0.0),
    "sigmoid": lambda losses: losses.sigmoid_cross_entropy(Y, X, WEIGHTS),
    "sigmoid, smooth": lambda losses: losses.sigmoid_cross_entropy(Y, X, label_smoothing=0.2),
    "softmax": lambda losses: losses.softmax_cross_entropy(ONE_HOT, X),
    "softmax, smooth": lambda losses: losses.softmax_cross_entropy(ONE_HOT, X, WEIGHTS[:, 0], label_smoothing=0.1),
    "sparse softmax": lambda losses: losses.sparse_softmax_cross_entropy(CLASSES[:, 0], X, WEIGHTS[:, 0]),
    "sparse softmax, one more axis": lambda losses: losses.sparse_softmax_cross_entropy(CLASSES, X, WEIGHTS),
    **{
        f"reduced: {how}": lambda losses, how=how: losses.mean_squared_error(Y, X, EACH, reduction=how)
        for how in Reduction.all()
    },
}


@pytest.mark.parametrize("case", CASES)
async def test_tensorflows_values(case: str) -> None:
    with aexec.Graph() as graph:
        loss = CASES[case](losses)
    async with aexec.Session(graph) as session:
        np.testing.assert_allclose(np.ravel(await session.run(loss)), RECORDED[case], rtol=2e-6, atol=1e-6)
    assert losses_of(graph) == [loss]


def losses_of(graph: aexec.Graph) -> list[aexec.Tensor]:
    with graph:
        return losses.get_losses()


async def test_half_precision_comes_back_as_it_was() -> None:
    with aexec.Graph() as graph:
        loss = losses.compute_weighted_loss(aexec.constant(np.ones(3, np.float16)), 2.0)
    assert loss.dtype is aexec.float16
    async with aexec.Session(graph) as session:
        assert await session.run(loss) == 2


async def test_labels_get_no_gradient_from_softmax() -> None:
    with aexec.Graph():
        labels, logits = aexec.constant(ONE_HOT), aexec.constant(X)
        loss = losses.softmax_cross_entropy(labels, logits)
        assert aexec.gradients(loss, [labels])[0] is None
        assert aexec.gradients(loss, [logits])[0] is not None


async def test_total_is_of_losses_and_of_what_regularizers_gave() -> None:
    with aexec.Graph() as graph:
        aexec.get_variable("w", initializer=[3.0], regularizer=aexec.regularizers.l2_regularizer(1.0))
        with aexec.name_scope("one"):
            first = losses.mean_squared_error([1.0], [3.0])
        losses.absolute_difference([1.0], [2.0])
        losses.absolute_difference([1.0], [2.0], loss_collection=None)
        assert losses.get_losses("one") == [first]
        assert len(losses.get_regularization_losses()) == 1
        losses.add_loss(aexec.constant(1.0))
        totals = [losses.get_total_loss(), losses.get_total_loss(False), losses.get_regularization_loss()]
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        total, own, of_regularizers = await session.run(totals)
        assert own == 6
        assert of_regularizers == 4.5
        assert total == 10.5


async def test_shapes_that_are_not_known_are_checked_when_the_graph_runs() -> None:
    with aexec.Graph() as graph:
        weights = aexec.placeholder("float32")
        loss = losses.mean_squared_error(Y, X, weights)
    async with aexec.Session(graph) as session:
        assert np.isfinite(await session.run(loss, {weights: EACH}))
        with pytest.raises(errors.InvalidArgumentError):
            await session.run(loss, {weights: np.ones((3, 3), np.float32)})


def test_invalid_losses_are_refused() -> None:
    with aexec.Graph():
        with pytest.raises(errors.InvalidArgumentError, match="no loss in the collections"):
            losses.get_total_loss()
        with pytest.raises(errors.InvalidArgumentError, match=r"\(4, 2\) and \(4, 3\) are incompatible|4,2.*4,3"):
            losses.mean_squared_error(Y, X[:, :2])
        with pytest.raises(errors.InvalidArgumentError, match="weights can not be broadcast to values"):
            losses.mean_squared_error(Y, X, np.ones((2, 3), np.float32))
        with pytest.raises(errors.InvalidArgumentError, match="weights can not be broadcast to values"):
            losses.mean_squared_error(Y, X, np.ones(3, np.float32))
        with pytest.raises(errors.InvalidArgumentError, match="Invalid Reduction Key: mean; expected one of none"):
            losses.mean_squared_error(Y, X, reduction="mean")
        with pytest.raises(errors.InvalidArgumentError, match="incompatible"):
            losses.sigmoid_cross_entropy(Y[:2], X)
        unknown = aexec.placeholder("float32")
        with pytest.raises(errors.InvalidArgumentError, match="rank of labels or of predictions"):
            losses.mean_pairwise_squared_error(unknown, unknown)
