"""The attention and embedding networks of `tf.contrib.legacy_seq2seq`: formulas, names, buckets, greedy decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

legacy = tf.contrib.legacy_seq2seq
BATCH, SYMBOLS, SIZE = 3, 7, 4
UNIFORM = {"initializer": tf.random_uniform_initializer(-0.7, 0.7, seed=2)}


def softmax(x: np.ndarray[Any, Any]) -> Any:
    grown = np.exp(x - x.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def ids(count: int, seed: int = 0) -> list[Any]:
    rows = np.random.RandomState(seed).randint(0, SYMBOLS, (count, BATCH))
    return [tf.constant(row, tf.int32) for row in rows]


@pytest.mark.parametrize("asks_first", [False, True])
def test_attention_decoder_is_its_formula(asks_first: bool) -> None:
    numbers = np.random.RandomState(1)
    inputs, memory = numbers.randn(3, BATCH, 2), numbers.randn(BATCH, 5, 6)
    first = numbers.randn(BATCH, SIZE)
    with tf.variable_scope("s", **UNIFORM):
        outputs, state = legacy.attention_decoder(
            [tf.constant(x, tf.float32) for x in inputs],
            tf.constant(first, tf.float32),
            tf.constant(memory, tf.float32),
            tf.nn.rnn_cell.BasicRNNCell(SIZE),
            output_size=2,
            num_heads=2,
            initial_state_attention=asks_first,
        )
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found, last = sess.run([outputs, state])
        v = {one.op.name.removeprefix("s/attention_decoder/"): sess.run(one) for one in tf.global_variables()}

    def linear(scope: str, *parts: Any) -> Any:
        return np.concatenate(parts, 1) @ v[f"{scope}kernel"] + v[f"{scope}bias"]

    def seen(query: Any) -> list[Any]:
        made = []
        for head in range(2):
            features = memory @ v[f"AttnW_{head}"][0, 0]
            scores = np.tanh(features + linear(f"Attention_{head}/", query)[:, None]) @ v[f"AttnV_{head}"]
            made.append((softmax(scores)[..., None] * memory).sum(1))
        return made

    h = first
    heads = seen(h) if asks_first else [np.zeros((BATCH, 6))] * 2
    for x, output in zip(inputs, found, strict=True):
        h = np.tanh(linear("basic_rnn_cell/", linear("", x, *heads), h))
        heads = seen(h)
        np.testing.assert_allclose(output, linear("AttnOutputProjection/", h, *heads), atol=1e-5)
    np.testing.assert_allclose(last, h, atol=1e-5)


def test_variables_have_tensorflows_names() -> None:
    legacy.embedding_attention_seq2seq(ids(2), ids(2), tf.nn.rnn_cell.GRUCell(SIZE), SYMBOLS, SYMBOLS, SIZE)
    root, decoder = "embedding_attention_seq2seq/", "embedding_attention_seq2seq/embedding_attention_decoder/"
    gru = ["candidate/bias", "candidate/kernel", "gates/bias", "gates/kernel"]
    attention = ["AttnOutputProjection/bias", "AttnOutputProjection/kernel", "AttnV_0", "AttnW_0"]
    attention += ["Attention_0/bias", "Attention_0/kernel", "bias", "kernel"]
    names = {one.op.name for one in tf.global_variables()}
    assert f"{root}rnn/embedding_wrapper/embedding" in names
    assert f"{decoder}embedding" in names
    assert {f"{decoder}attention_decoder/{name}" for name in attention} <= names
    assert {f"{root}rnn/embedding_wrapper/gru_cell/{name}" for name in gru} <= names
    projected = [f"gru_cell/{name}" for name in gru] + ["bias", "kernel"]
    assert {f"{decoder}attention_decoder/output_projection_wrapper/{name}" for name in projected} <= names
    assert len(names) == 20


KINDS = {
    "rnn": lambda reads, writes, **settings: legacy.embedding_rnn_seq2seq(
        reads, writes, tf.nn.rnn_cell.BasicLSTMCell(SIZE), SYMBOLS, SYMBOLS, SIZE, **settings
    ),
    "tied": lambda reads, writes, **settings: legacy.embedding_tied_rnn_seq2seq(
        reads, writes, tf.nn.rnn_cell.GRUCell(SIZE), SYMBOLS, SIZE, **settings
    ),
    "attention": lambda reads, writes, **settings: legacy.embedding_attention_seq2seq(
        reads, writes, tf.nn.rnn_cell.GRUCell(SIZE), SYMBOLS, SYMBOLS, SIZE, **settings
    ),
    "one to many": lambda reads, writes, **settings: _only(
        legacy.one2many_rnn_seq2seq(
            reads,
            {"a": writes},
            tf.nn.rnn_cell.GRUCell(SIZE),
            {"a": tf.nn.rnn_cell.GRUCell(SIZE)},
            SYMBOLS,
            {"a": SYMBOLS},
            SIZE,
            **settings,
        )
    ),
}


def _only(found: Any) -> Any:
    outputs, states = found
    return outputs["a"], states["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_decoding_reads_what_it_wrote(kind: str) -> None:
    """If the ids that a greedy decoder chose are fed as inputs, the outputs are the same."""
    network, reads, begin = KINDS[kind], ids(3), ids(4, seed=5)
    fed = [begin[0], *(tf.placeholder(tf.int32, [BATCH]) for _ in range(3))]
    either = tf.placeholder(tf.bool, [])
    with tf.variable_scope("s", **UNIFORM):
        greedy, _ = network(reads, begin, feed_previous=True)
    with tf.variable_scope("s", reuse=True):
        plain, _ = network(reads, fed)
        both, _ = network(reads, begin, feed_previous=either)
        given, _ = network(reads, begin)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found = sess.run(greedy)
        chosen = dict(zip(fed[1:], [output.argmax(1) for output in found], strict=False))
        np.testing.assert_allclose(sess.run(plain, chosen), found, atol=1e-6)
        np.testing.assert_allclose(sess.run(both, {either: True}), found, atol=1e-6)
        np.testing.assert_allclose(sess.run(both, {either: False}), sess.run(given), atol=1e-6)
    assert all(output.shape.as_list() == [BATCH, SYMBOLS] for output in greedy)


def test_buckets_share_a_model_that_learns() -> None:
    """Like TensorFlow's tutorial on translation: one cell, an output projection and a sampled loss."""
    buckets = [(2, 3), (4, 5)]
    reads = [tf.placeholder(tf.int32, [None]) for _ in range(4)]
    writes = [tf.placeholder(tf.int32, [None]) for _ in range(6)]
    weights = [tf.placeholder(tf.float32, [None]) for _ in range(6)]
    cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(8) for _ in range(2)])
    w = tf.get_variable("proj_w", [SYMBOLS, 8], initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
    b = tf.get_variable("proj_b", [SYMBOLS], initializer=tf.zeros_initializer())

    def sampled(labels: Any, logits: Any) -> Any:
        return tf.nn.sampled_softmax_loss(w, b, tf.reshape(labels, [-1, 1]), logits, 5, SYMBOLS, seed=3)

    def network(inputs: Any, outputs: Any) -> Any:
        return legacy.embedding_attention_seq2seq(
            inputs, outputs, cell, SYMBOLS, SYMBOLS, 8, output_projection=(tf.transpose(w), b), feed_previous=False
        )

    with tf.variable_scope(tf.get_variable_scope(), initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=4)):
        outputs, losses = legacy.model_with_buckets(
            reads, writes[:5], writes[1:], weights, buckets, network, softmax_loss_function=sampled
        )
    assert [len(of_bucket) for of_bucket in outputs] == [3, 5]
    steps = [tf.train.AdamOptimizer(0.05).minimize(loss) for loss in losses]
    numbers = np.random.RandomState(0)
    rows = numbers.randint(1, SYMBOLS, (10, 16))
    feeds: dict[Any, Any] = dict(
        zip([*reads, *writes], [*rows[:4], np.zeros(16), *rows[:4], np.zeros(16)], strict=True)
    )
    feeds |= {weight: np.ones(16) for weight in weights}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step, loss in zip(steps, losses, strict=True):
            before = sess.run(loss, feeds)
            for _ in range(60):
                sess.run(step, feeds)
            assert sess.run(loss, feeds) < before / 2
    with pytest.raises(ValueError, match=r"Length of weights \(4\) must be at least that of last bucket \(5\)"):
        legacy.model_with_buckets(reads, writes, writes[1:], weights[:4], buckets, network)


def test_wrong_arguments_are_refused() -> None:
    cell, values = tf.nn.rnn_cell.GRUCell(SIZE), [tf.zeros([BATCH, 2])]
    memory, state = tf.zeros([BATCH, 5, 6]), tf.zeros([BATCH, SIZE])
    with pytest.raises(ValueError, match="at least 1 input"):
        legacy.attention_decoder([], state, memory, cell)
    with pytest.raises(ValueError, match="less than 1 heads"):
        legacy.attention_decoder(values, state, memory, cell, num_heads=0)
    with pytest.raises(ValueError, match="must be known"):
        legacy.attention_decoder(values, state, tf.placeholder(tf.float32, [None, None, None]), cell)
    projection = tf.zeros([SIZE, SYMBOLS + 1]), tf.zeros([SYMBOLS + 1])
    with pytest.raises(ValueError, match="output_projection"):
        legacy.embedding_rnn_decoder(ids(2), state, cell, SYMBOLS, SIZE, output_projection=projection)
