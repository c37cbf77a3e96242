"""Functions of neural networks, clipping and learning rates: TensorFlow's values, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import nn, ops, training
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.nn.sampled_losses import Samples

# Of TensorFlow 2.21, in graph mode.
RECORDED = json.loads((Path(__file__).parent / "data" / "recorded.json").read_text())

_rng = np.random.default_rng(3)
X = _rng.standard_normal((3, 4)).astype(np.float32)
Z = _rng.random((3, 4)).astype(np.float32)
P = Z / Z.sum(1, keepdims=True)
X3 = _rng.standard_normal((2, 3, 4)).astype(np.float32)
P3 = _rng.random((2, 3, 4)).astype(np.float32)
P3 /= P3.sum(1, keepdims=True)
IMAGES = _rng.standard_normal((2, 5, 6, 3)).astype(np.float32)
FILTER = _rng.standard_normal((3, 3, 3, 2)).astype(np.float32)
TABLE = _rng.standard_normal((6, 3)).astype(np.float32)
IDS = np.array([[0, 5], [3, 1]])
BIASES = _rng.standard_normal(6).astype(np.float32)
HIDDEN = _rng.standard_normal((3, 3)).astype(np.float32)
CLASSES = np.array([[0, 3, 1], [2, 2, 0]])
LABELS = np.array([[1], [4], [0]])

STEPS = [0, 3, 7, 10, 25]


def over_steps(schedule: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: [schedule(aexec.constant(step)) for step in STEPS]


def samples() -> Samples:
    expected = np.array([[0.3], [0.2], [0.6]], np.float32), np.array([0.5, 0.1, 0.7], np.float32)
    return Samples(aexec.constant(np.array([2, 5, 0])), *map(aexec.constant, expected))


def parts(*bounds: slice) -> list[Any]:
    return [aexec.constant(TABLE[bound]) for bound in bounds]


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "leaky": lambda: nn.leaky_relu(X),
    "crelu": lambda: nn.crelu(X),
    "swish": lambda: nn.swish(X),
    "softmax0": lambda: nn.softmax(X, axis=0),
    "softmax1": lambda: nn.softmax(X3, axis=1),
    "logsm": lambda: nn.log_softmax(X, axis=0),
    "sce": lambda: nn.sigmoid_cross_entropy_with_logits(labels=Z, logits=X),
    "wce": lambda: nn.weighted_cross_entropy_with_logits(labels=Z, logits=X, pos_weight=2.0),
    "smce": lambda: nn.softmax_cross_entropy_with_logits(labels=P, logits=X),
    "smce3": lambda: nn.softmax_cross_entropy_with_logits(labels=P3, logits=X3, axis=1),
    "ssce": lambda: nn.sparse_softmax_cross_entropy_with_logits(labels=CLASSES, logits=X3),
    "mom": lambda: nn.moments(X3, [0, 1])[1],
    "bn": lambda: nn.batch_normalization(ops.identity(X), 0.5, 2.0, 0.25, None, 1e-3),
    "bns": lambda: nn.batch_normalization(ops.identity(X), 0.5, 2.0, None, 3.0, 1e-3),
    "l2n": lambda: nn.l2_normalize(X, 1),
    "conv": lambda: nn.conv2d(IMAGES, FILTER, strides=[1, 2, 2, 1], padding="SAME"),
    "maxp": lambda: nn.max_pool(IMAGES, 2, 2, "VALID"),
    "avgp": lambda: nn.avg_pool(IMAGES, [1, 3, 3, 1], [1, 2, 2, 1], "SAME"),
    "emb": lambda: nn.embedding_lookup(TABLE, IDS),
    "embmod": lambda: nn.embedding_lookup(parts(*(slice(k, None, 4) for k in range(4))), IDS),
    "embdiv": lambda: nn.embedding_lookup(
        parts(slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 6)), IDS, partition_strategy="div"
    ),
    "embnorm": lambda: nn.embedding_lookup(TABLE, IDS, max_norm=1.0),
    "nce": lambda: nn.nce_loss(TABLE, BIASES, LABELS, HIDDEN, 3, 6, sampled_values=samples()),
    "ssl": lambda: nn.sampled_softmax_loss(TABLE, BIASES, LABELS, HIDDEN, 3, 6, sampled_values=samples()),
    "drop": lambda: nn.dropout(X, rate=0.4, seed=5),
    "dropn": lambda: nn.dropout(X3, rate=0.4, noise_shape=[2, 1, 4], seed=6),
    "cbv": lambda: aexec.clip_by_value(X, -0.5, 0.5),
    "cbn": lambda: aexec.clip_by_norm(X, 1.0),
    "cbna": lambda: aexec.clip_by_norm(X, 1.0, axes=[1]),
    "cban": lambda: aexec.clip_by_average_norm(X, 0.1),
    "gn": lambda: aexec.global_norm([X, None, Z]),
    "cbg": lambda: aexec.clip_by_global_norm([X, None, Z], 1.0)[0][2],
    "cbg2": lambda: aexec.clip_by_global_norm([X], 100.0)[0][0],
    "exp": over_steps(lambda step: training.exponential_decay(0.1, step, 10, 0.5)),
    "exps": over_steps(lambda step: training.exponential_decay(0.1, step, 10, 0.5, staircase=True)),
    "nat": over_steps(lambda step: training.natural_exp_decay(0.1, step, 10, 0.5)),
    "inv": over_steps(lambda step: training.inverse_time_decay(0.1, step, 10, 0.5, staircase=True)),
    "pol": over_steps(lambda step: training.polynomial_decay(0.1, step, 10, 0.01, 2.0)),
    "polc": over_steps(lambda step: training.polynomial_decay(0.1, step, 10, 0.01, 0.5, cycle=True)),
    "cos": over_steps(lambda step: training.cosine_decay(0.1, step, 10, 0.1)),
    "cosr": over_steps(lambda step: training.cosine_decay_restarts(0.1, step, 10, 2.0, 0.9, 0.1)),
    "cosr1": over_steps(lambda step: training.cosine_decay_restarts(0.1, step, 10, 1.0, 0.9, 0.1)),
    "lin": over_steps(lambda step: training.linear_cosine_decay(0.1, step, 10)),
    "pw": over_steps(lambda step: training.piecewise_constant(step, [3, 8], [1.0, 0.5, 0.1])),
}


def test_every_recorded_case_is_compared() -> None:
    assert FUNCTIONS.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_values_are_those_of_tensorflow(name: str) -> None:
    with aexec.Graph() as graph:
        made = FUNCTIONS[name]()
    async with aexec.Session(graph) as session:
        found = np.asarray(await session.run(made)).ravel()
    np.testing.assert_allclose(found, RECORDED[name], rtol=1e-5, atol=1e-6)


def test_simple_functions_are_single_ops() -> None:
    with aexec.Graph():
        simple = [nn.elu, nn.relu, nn.relu6, nn.selu, nn.sigmoid, nn.softplus, nn.softsign, nn.tanh, nn.l2_loss]
        found = [function(X).op.op for function in simple] + [nn.bias_add(X, [0.0] * 4).op.op]
    assert found == "Elu Relu Relu6 Selu Sigmoid Softplus Softsign Tanh L2Loss BiasAdd".split()


async def test_functions_agree_with_the_definitions_of_other_libraries() -> None:
    """The exact and the approximate GELU, layer normalisation, and batch normalisation in one op."""
    from scipy.special import erf

    with aexec.Graph() as graph:
        made = [nn.gelu(X), nn.gelu(X, approximate=True), nn.layer_norm(X, 2.0, 1.0)]
        trained = nn.fused_batch_norm(IMAGES, [1.0] * 3, [0.0] * 3)
        used = nn.fused_batch_norm(IMAGES, [1.0] * 3, [0.0] * 3, *trained[1:], is_training=False)
    async with aexec.Session(graph) as session:
        exact, near, rows = await session.run(made)
        (batch, mean, _), (again, _, _) = await session.run([trained, used])
    np.testing.assert_allclose(exact, X * 0.5 * (1 + erf(X / np.sqrt(2))), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(near, exact, atol=2e-3)
    normal = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rows, 2 * normal + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, IMAGES.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(batch, again, rtol=2e-2, atol=2e-2)  # one of the sample, one of the population


async def test_sampled_classes_are_drawn_by_themselves() -> None:
    with aexec.Graph() as graph:
        table, biases = aexec.Variable(TABLE), aexec.Variable(BIASES)
        drawn = nn.log_uniform_candidate_sampler(LABELS, 1, 3, unique=True, range_max=6, seed=1)
        loss = ops.sum(nn.nce_loss(table, biases, LABELS, HIDDEN, 3, 6, seed=1), [0])
        same = ops.sum(nn.nce_loss(table, biases, LABELS, HIDDEN, 3, 6, sampled_values=drawn), [0])
        slopes = aexec.gradients(loss, [table, biases])
        init = aexec.global_variables_initializer()
    assert isinstance(slopes[0], IndexedSlices)
    async with aexec.Session(graph) as session:
        await session.run(init)
        value, again, rows = await session.run([loss, same, slopes[0]])
    assert np.isfinite(value) and value == again and rows.values.shape == (6, 3)


async def test_rows_are_clipped_as_rows() -> None:
    values = np.array([[3.0, 4.0]], np.float32)
    rows = IndexedSlices(values, np.array([1]))
    with aexec.Graph() as graph:
        clipped, norm = aexec.clip_by_global_norm([rows, None], 1.0)
        broken, _ = aexec.clip_by_global_norm([values * np.inf], 1.0)
        both = aexec.clip_by_value(IndexedSlices(aexec.constant([5.0]), aexec.constant([0])), -1.0, 1.0)
    assert clipped[1] is None
    async with aexec.Session(graph) as session:
        np.testing.assert_allclose(await session.run(clipped[0].values), [[0.6, 0.8]], rtol=1e-6)
        assert await session.run(norm) == 5.0
        assert np.isnan(await session.run(broken[0])).all()
        assert (await session.run(both.values)).tolist() == [1.0]


async def test_cross_entropy_of_logits_of_unknown_rank_is_that_of_known_rank() -> None:
    with aexec.Graph() as graph:
        unknown = nn.softmax_cross_entropy_with_logits(labels=P, logits=aexec.placeholder("float32", name="x"))
        known = nn.softmax_cross_entropy_with_logits(labels=P, logits=X)
    async with aexec.Session(graph) as session:
        found, wanted = await session.run([unknown, known], {"x:0": X})
    np.testing.assert_array_equal(found, wanted)


async def test_dropout_of_nothing_is_nothing() -> None:
    with aexec.Graph() as graph:
        x = aexec.constant(X)
        assert nn.dropout(x, 0.0) is x
        halved = nn.dropout(x, aexec.constant(0.5), seed=1)
    async with aexec.Session(graph) as session:
        found = await session.run(halved)
    assert set((found / X).ravel().tolist()) == {0.0, 2.0}


def test_invalid_arguments_are_refused() -> None:
    refused: list[tuple[str, Callable[[], Any]]] = [
        (r"rate must be a number of \[0, 1\), got 1", lambda: nn.dropout(X, 1)),
        ("must have the same shape", lambda: nn.sigmoid_cross_entropy_with_logits(Z[:2], X)),
        ("Rank mismatch", lambda: nn.sparse_softmax_cross_entropy_with_logits(CLASSES, X)),
        ("Need at least one param", lambda: nn.embedding_lookup([], IDS)),
        ("partition_strategy must be", lambda: nn.embedding_lookup(TABLE, IDS, partition_strategy="rows")),
        ("known rank", lambda: nn.embedding_lookup(aexec.placeholder("float32"), IDS, max_norm=1.0)),
        ("given when is_training is False", lambda: nn.fused_batch_norm(IMAGES, [1.0], [0.0], is_training=False)),
        ("at least one tensor", lambda: aexec.global_norm([None])),
        ("should be 1 less", lambda: training.piecewise_constant(aexec.constant(1), [1], [1.0])),
    ]
    for message, build in refused:
        with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=message):
            build()
