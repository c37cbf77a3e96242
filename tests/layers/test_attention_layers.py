"""Attention: with several heads as Keras has it, additive as NumPy computes it, and by dot products."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import layers, nn, ops
from tests.nn.rnn_cases import weights
from tests.support.marks import mark

# Of MultiHeadAttention of Keras 2 with TensorFlow 2.21, in graph mode.
RECORDED = json.loads((Path(__file__).parent / "data" / "attention.json").read_text())

_rng = np.random.default_rng(13)
QUERY = _rng.standard_normal((2, 3, 4)).astype(np.float32)
VALUE = _rng.standard_normal((2, 5, 4)).astype(np.float32)
MASK = np.arange(30).reshape(2, 3, 5) % 3 != 0

CASES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "plain": lambda q, v: layers.multi_head_attention(q, v, 2, 3),
    "masked": lambda q, v: layers.multi_head_attention(q, v, 2, 3, value_dim=2, output_dim=6, mask=MASK),
    "causal": lambda q, v: layers.multi_head_attention(q, q, 2, 3, use_bias=False, causal=True),
}


def setting() -> list[aexec.Node]:
    variables = aexec.trainable_variables()
    return [variable.assign(weights(i, tuple(variable.shape))).op for i, variable in enumerate(variables)]


@pytest.mark.parametrize("name", CASES)
async def test_several_heads(name: str) -> None:
    recorded = RECORDED[name]
    with aexec.Graph() as graph:
        q, v = aexec.placeholder("float32", QUERY.shape), aexec.placeholder("float32", VALUE.shape)
        outputs, shares = CASES[name](q, v)
        variables = aexec.trainable_variables()
        loss = ops.sum(ops.sin(outputs), [0, 1, 2]) + ops.sum(ops.sin(shares), [0, 1, 2, 3])
        slopes = aexec.gradients(loss, [*variables, q])
        sets = setting()
    assert {variable.name: list(variable.shape) for variable in variables} == recorded["variables"]
    async with aexec.Session(graph) as session:
        await session.run([], targets=sets)
        found = await session.run([outputs, shares, slopes], {q: QUERY, v: VALUE})
    np.testing.assert_allclose(found[0].ravel(), recorded["outputs"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1].ravel(), recorded["shares"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose([mark(slope) for slope in found[2]], recorded["slopes"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("normalize", [False, True])
async def test_additive(normalize: bool) -> None:
    mask = np.array([[True] * 5, [True, False, True, False, False]])
    with aexec.Graph() as graph:
        once, shares = layers.additive_attention(QUERY[:, 0], VALUE, 3, mask=mask, normalize=normalize, name="a")
        several, _ = layers.additive_attention(QUERY, VALUE, 3, mask=mask, normalize=normalize, name="a", reuse=True)
        names = [variable.name for variable in aexec.trainable_variables()]
        sets = setting()
    assert names[:3] == ["a/memory_layer/kernel:0", "a/query_layer/kernel:0", "a/attention_v:0"]
    assert names[3:] == (["a/attention_g:0", "a/attention_b:0"] if normalize else [])
    async with aexec.Session(graph) as session:
        await session.run([], targets=sets)
        found, some, many = await session.run([once, shares, several])
    memory, asked, direction = (weights(i, shape) for i, shape in enumerate([(4, 3), (4, 3), (3,)]))
    shift = np.zeros(3)
    if normalize:
        direction = weights(3, ()) * direction / np.linalg.norm(direction)
        shift = weights(4, (3,))
    scores = np.tanh((QUERY @ asked)[:, :, None] + (VALUE @ memory)[:, None] + shift) @ direction
    scores = np.exp(np.where(mask[:, None], scores, -np.inf))
    expected = scores / scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(some, expected[:, 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(many, expected @ VALUE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, many[:, 0], rtol=1e-5, atol=1e-6)


async def test_shares_are_dropped_in_training_alone() -> None:
    with aexec.Graph() as graph:
        training = aexec.placeholder("bool", [])
        _, shares = nn.dot_product_attention(QUERY, VALUE, VALUE, scale=1.0)
        made, _ = layers.multi_head_attention(QUERY, VALUE, 2, 3, dropout_rate=0.5, training=training, seed=1)
        init = aexec.global_variables_initializer()
    scores = np.exp(QUERY @ VALUE.transpose(0, 2, 1))
    async with aexec.Session(graph) as session:
        await session.run(init)
        np.testing.assert_allclose(await session.run(shares), scores / scores.sum(-1, keepdims=True), rtol=1e-4)
        plain = [await session.run(made, {training: False}) for _ in range(2)]
        dropped = await session.run(made, {training: True})
    np.testing.assert_array_equal(*plain)
    assert np.abs(dropped - plain[0]).max() > 1e-3
