"""`tf.contrib.rnn`: cells against their formulas, and networks of several layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

rnn = tf.contrib.rnn
RANDOM = np.random.RandomState(0)
X, C, H = (RANDOM.randn(2, size).astype(np.float32) for size in (3, 4, 4))


def weights() -> dict[str, Any]:
    """Assign random values to all variables in the session; return the values by name."""
    session = tf.get_default_session()
    session.run(tf.global_variables_initializer())
    found = {}
    for variable in tf.global_variables():
        found[variable.name.split("/", 1)[1].split(":")[0]] = RANDOM.randn(*variable.shape.as_list()) * 0.5
        variable.load(list(found.values())[-1].astype(np.float32), session)
    return found


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("peephole", "clip"), [(False, None), (True, 0.4)])
def test_block_lstm_is_the_formula(peephole: bool, clip: float | None) -> None:
    cell = rnn.LSTMBlockCell(4, use_peephole=peephole, cell_clip=clip)
    y, state = cell(tf.constant(X), rnn.LSTMStateTuple(tf.constant(C), tf.constant(H)))
    with tf.Session() as sess:
        w = weights()
        found = sess.run([y, state.c, state.h])
    i, j, f, o = np.split(np.concatenate([X, H], 1) @ w["kernel"] + w["bias"], 4, 1)
    if peephole:
        i, f = i + C * w["w_i_diag"], f + C * w["w_f_diag"]
    c = sigmoid(f + 1) * C + sigmoid(i) * np.tanh(j)
    c = c if clip is None else np.clip(c, -clip, clip)
    h = sigmoid(o + c * w["w_o_diag"] if peephole else o) * np.tanh(c)
    for value, wanted in zip(found, (h, c, h), strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-5)
    assert tf.global_variables()[0].name == "lstm_cell/kernel:0"


@pytest.mark.parametrize("kind", ["GRUBlockCell", "GRUBlockCellV2"])
def test_block_gru_is_the_formula(kind: str) -> None:
    y, state = getattr(rnn, kind)(4)(tf.constant(X), tf.constant(H))
    with tf.Session() as sess:
        w = list(weights().values())
        found = sess.run(state)
    r, u = np.split(sigmoid(np.concatenate([X, H], 1) @ w[0] + w[1]), 2, 1)
    c = np.tanh(np.concatenate([X, r * H], 1) @ w[2] + w[3])
    np.testing.assert_allclose(found, u * H + (1 - u) * c, atol=1e-5)
    names = {"GRUBlockCell": "gates/w_ru", "GRUBlockCellV2": "gates/kernel"}
    assert tf.global_variables()[0].name == f"gru_cell/{names[kind]}:0" and y is state


def test_layer_norm_lstm_is_the_formula() -> None:
    cell = rnn.LayerNormBasicLSTMCell(4)
    y, state = cell(tf.constant(X), (tf.constant(C), tf.constant(H)))
    with tf.Session() as sess:
        w = weights()
        found = sess.run([y, state.c])

    def norm(x: Any, scope: str) -> Any:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return x * w[f"{scope}/gamma"] + w[f"{scope}/beta"]

    parts = np.split(np.concatenate([X, H], 1) @ w["kernel"], 4, 1)
    i, j, f, o = (norm(x, scope) for x, scope in zip(parts, ("input", "transform", "forget", "output"), strict=True))
    c = norm(C * sigmoid(f + 1) + sigmoid(i) * np.tanh(j), "state")
    np.testing.assert_allclose(found[1], c, atol=1e-4)
    np.testing.assert_allclose(found[0], np.tanh(c) * sigmoid(o), atol=1e-4)
    assert "bias" not in w


def test_wrappers_project_and_embed() -> None:
    inner = rnn.BasicRNNCell(4)
    cell = rnn.EmbeddingWrapper(rnn.InputProjectionWrapper(rnn.OutputProjectionWrapper(inner, 7), 5), 10, 3)
    y, state = cell(tf.constant([1, 2]), cell.zero_state(2, tf.float32))
    assert list(y.shape) == [2, 7] and list(state.shape) == [2, 4] and cell.output_size == 7
    shapes = {variable.name.split(":")[0]: variable.shape.as_list() for variable in tf.global_variables()}
    assert sorted(shapes.values()) == [[3, 5], [4], [4, 7], [5], [7], [9, 4], [10, 3]], shapes


def test_cells_run_in_a_loop() -> None:
    cell = rnn.MultiRNNCell([rnn.LSTMBlockCell(4), rnn.LayerNormBasicLSTMCell(4, dropout_keep_prob=0.5)])
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(RANDOM.randn(2, 5, 3), tf.float32), dtype=tf.float32)
    loss = tf.reduce_sum(outputs)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        assert np.isfinite(sess.run(loss)) and list(outputs.shape) == [2, 5, 4]


def test_layers_of_bidirectional_networks() -> None:
    x = tf.constant(RANDOM.randn(2, 5, 3), tf.float32)
    cells = [[rnn.GRUCell(4) for _ in range(2)] for _ in range(2)]
    outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(
        *cells, x, dtype=tf.float32, sequence_length=[5, 3]
    )
    cells = [[rnn.GRUCell(4)], [rnn.GRUCell(4)]]
    moments, *_ = rnn.stack_bidirectional_rnn(*cells, tf.unstack(x, axis=1), dtype=tf.float32, scope="static")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found, last = sess.run([outputs, forward[1]])
    np.testing.assert_allclose(found[0, 4, :4], last[0])
    assert not found[1, 3:].any() and len(backward) == 2 and len(moments) == 5
    scopes = sorted({variable.name.rsplit("/", 3)[0] for variable in tf.global_variables()})
    assert scopes[-2:] == [f"static/cell_0/bidirectional_rnn/{way}" for way in ("bw", "fw")], scopes
    with pytest.raises(ValueError, match="same depth"):
        rnn.stack_bidirectional_dynamic_rnn(cells[0], cells[1] * 2, x)
