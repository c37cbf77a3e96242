"""`tf.contrib.seq2seq`, compared with formulas (attention), NumPy loops (decoders), and enumeration (beam search)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors

seq2seq = tf.contrib.seq2seq
RANDOM = np.random.RandomState(0)
MEMORY = RANDOM.randn(2, 4, 3).astype(np.float32)
QUERY = RANDOM.randn(2, 5).astype(np.float32)
LENGTHS = np.array([4, 2])


def started(sess: Any) -> dict[str, Any]:
    """Assign random values to all variables; return the values by the last part of the variables' names."""
    found: dict[str, Any] = {}
    for variable in tf.global_variables():
        value = np.asarray(RANDOM.randn(*variable.shape.as_list()), np.float32)
        variable.load(value, sess)
        found["/".join(variable.name.split(":")[0].split("/")[-2:])] = value
    return found


def softmax(x: Any) -> Any:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def masked(score: Any) -> Any:
    return np.where(np.arange(4) < LENGTHS[:, None], score, -np.inf)


@pytest.mark.parametrize("scale", [False, True])
def test_luong_attention_is_the_product(scale: bool) -> None:
    mechanism = seq2seq.LuongAttention(5, MEMORY, LENGTHS, scale=scale)
    alignments, state = mechanism(tf.constant(QUERY), mechanism.initial_state(2, tf.float32))
    with tf.Session() as sess:
        w = started(sess)
        found = sess.run(alignments)
    keys = MEMORY * (np.arange(4) < LENGTHS[:, None])[..., None] @ w["memory_layer/kernel"]
    score = np.einsum("bu,btu->bt", QUERY, keys) * w.get("luong_attention/attention_g", 1.0)
    np.testing.assert_allclose(found, softmax(masked(score)), atol=1e-5)
    assert state is alignments and mechanism.alignments_size == 4
    with pytest.raises(ValueError, match="Perhaps you need to set num_units"):
        seq2seq.LuongAttention(4, MEMORY)(tf.constant(QUERY), None)


@pytest.mark.parametrize("normalize", [False, True])
def test_bahdanau_attention_is_the_sum(normalize: bool) -> None:
    mechanism = seq2seq.BahdanauAttention(6, MEMORY, LENGTHS, normalize=normalize)
    alignments, _ = mechanism(tf.constant(QUERY), None)
    with tf.Session() as sess:
        w = started(sess)
        found = sess.run(alignments)
    keys = MEMORY * (np.arange(4) < LENGTHS[:, None])[..., None] @ w["memory_layer/kernel"]
    v, x = w["bahdanau_attention/attention_v"], (QUERY @ w["query_layer/kernel"])[:, None]
    if normalize:
        v = w["bahdanau_attention/attention_g"] * v / np.sqrt((v**2).sum())
        x = x + w["bahdanau_attention/attention_b"]
    np.testing.assert_allclose(found, softmax(masked((v * np.tanh(keys + x)).sum(2))), atol=1e-5)


def test_wrapper_attends_after_its_cell() -> None:
    inner = tf.nn.rnn_cell.BasicRNNCell(5)
    cell = seq2seq.AttentionWrapper(inner, seq2seq.LuongAttention(5, MEMORY), 7, alignment_history=True)
    first = cell.zero_state(2, tf.float32)
    x = RANDOM.randn(2, 3).astype(np.float32)
    y, state = cell(tf.constant(x), first)
    with tf.Session() as sess:
        w = started(sess)
        found, alignments, history, time = sess.run([y, state.alignments, state.alignment_history.stack(), state.time])
    inputs = np.concatenate([x, np.zeros((2, 7)), np.zeros((2, 5))], 1)
    h = np.tanh(inputs @ w["basic_rnn_cell/kernel"] + w["basic_rnn_cell/bias"])
    wanted = softmax(np.einsum("bu,btu->bt", h, MEMORY @ w["memory_layer/kernel"]))
    context = np.einsum("bt,bts->bs", wanted, MEMORY)
    np.testing.assert_allclose(alignments, wanted, atol=1e-5)
    np.testing.assert_array_equal(history[0], alignments)
    np.testing.assert_allclose(found, np.concatenate([h, context], 1) @ w["attention_layer/kernel"], atol=1e-4)
    assert time == 1 and cell.output_size == 7 and first.clone(time=3).time == 3
    names = [variable.name for variable in tf.global_variables()]
    assert names[-1] == "attention_wrapper/attention_layer/kernel:0", names


def test_several_mechanisms_are_side_by_side() -> None:
    mechanisms = [seq2seq.LuongAttention(5, MEMORY), seq2seq.BahdanauAttention(4, MEMORY, LENGTHS)]
    cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), mechanisms, output_attention=False)
    y, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
    assert list(y.shape) == [2, 5] and list(state.attention.shape) == [2, 6] and len(state.alignments) == 2
    with pytest.raises(ValueError, match="exactly one integer per attention_mechanism"):
        seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), mechanisms, [3])


@pytest.mark.parametrize("impute", [False, True])
def test_training_decoder_is_a_network_over_the_inputs(impute: bool) -> None:
    inputs = RANDOM.randn(2, 4, 3).astype(np.float32)
    cell = tf.nn.rnn_cell.GRUCell(5)
    output_layer = tf.layers.Dense(6)
    helper = seq2seq.TrainingHelper(tf.constant(inputs), LENGTHS)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), output_layer)
    outputs, state, lengths = seq2seq.dynamic_decode(decoder, impute_finished=impute)
    with tf.variable_scope("decoder", reuse=True):
        plain, last = tf.nn.dynamic_rnn(cell, inputs, LENGTHS, dtype=tf.float32)
        wanted = output_layer(plain)
    assert list(outputs.rnn_output.shape)[2] == 6
    gradient = tf.gradients(tf.reduce_sum(outputs.rnn_output), tf.trainable_variables())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found, ids, size, all_of, after, final = sess.run(
            [outputs.rnn_output, outputs.sample_id, lengths, wanted, state, last]
        )
        assert all(np.isfinite(one).all() for one in sess.run(gradient))
    assert size.tolist() == [4, 2]
    np.testing.assert_allclose(found[0], all_of[0], atol=1e-5)
    np.testing.assert_allclose(found[1, :2], all_of[1, :2], atol=1e-5)
    np.testing.assert_array_equal(ids[0], found[0].argmax(-1))
    if impute:
        assert not found[1, 2:].any()
        np.testing.assert_allclose(after, final, atol=1e-5)


def test_greedy_decoder_reads_what_it_wrote() -> None:
    table = tf.get_variable("table", initializer=RANDOM.randn(6, 3).astype(np.float32) * 3)
    cell = tf.nn.rnn_cell.BasicRNNCell(6)
    helper = seq2seq.GreedyEmbeddingHelper(table, tf.fill([3], 1), 0)
    decoder = seq2seq.BasicDecoder(cell, helper, tf.constant(np.eye(6, dtype=np.float32)[:3]))
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=5, output_time_major=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        started(sess)
        found, size, matrix = sess.run([outputs.sample_id, lengths, table])
        kernel, bias = sess.run(cell.weights)
    h, ids = np.eye(6)[:3], np.ones(3, int)
    over, wanted = np.zeros(3, bool), np.full(3, 5)
    for time in range(len(found)):
        h = np.tanh(np.concatenate([matrix[ids], h], 1) @ kernel + bias)
        ids = h.argmax(1)
        np.testing.assert_array_equal(found[time], ids)
        wanted[(ids == 0) & ~over] = time + 1
        over |= ids == 0
    assert size.tolist() == wanted.tolist() and len(found) == max(wanted)


def test_sampling_and_scheduled_helpers() -> None:
    cell = tf.nn.rnn_cell.GRUCell(4)
    table = tf.eye(4)
    state = cell.zero_state(3, tf.float32)
    sample = seq2seq.SampleEmbeddingHelper(table, [1, 1, 1], 0, softmax_temperature=2.0, seed=1)
    drawn, _, lengths = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, sample, state), maximum_iterations=4)
    scheduled = seq2seq.ScheduledEmbeddingTrainingHelper(tf.zeros([3, 5, 4]), [5, 2, 1], table, 0.5, seed=1)
    mixed, _, until = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, scheduled, state), scope="decoder/again")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        ids, size, other, ends = sess.run([drawn.sample_id, lengths, mixed.sample_id, until])
    assert ids.min() >= 0 and ids.max() < 4 and size.max() <= 4 and ends.tolist() == [5, 2, 1]
    assert (other == -1).any() and (other >= 0).any()


def test_custom_helper_and_wrong_arguments() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    helper = seq2seq.CustomHelper(
        initialize_fn=lambda: (tf.fill([3], False), tf.zeros([3, 2])),
        sample_fn=lambda time, outputs, state: tf.fill([3], time),
        next_inputs_fn=lambda time, outputs, state, sample_ids: (tf.fill([3], time >= 2), outputs, state),
    )
    outputs, _, lengths = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, tf.zeros([3, 2])))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(outputs.sample_id).tolist() == [[0, 1, 2]] * 3 and sess.run(lengths).tolist() == [3] * 3
    with pytest.raises(TypeError, match="Expected decoder"):
        seq2seq.dynamic_decode(cell)
    with pytest.raises(ValueError, match="vector"):
        seq2seq.TrainingHelper(tf.zeros([2, 3, 4]), 3)
    with pytest.raises(errors.UnimplementedError, match="coverage_penalty_weight"):
        seq2seq.BeamSearchDecoder(cell, tf.eye(2), [0], 1, tf.zeros([3, 2]), 3, coverage_penalty_weight=0.1)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_wide_beam_finds_the_best_sequences(weight: float) -> None:
    """The beam holds all sequences of three ids out of four, so nothing is pruned.  Id 0 ends a sequence."""
    width, ends = 40, 0
    table = RANDOM.randn(4, 3).astype(np.float32)
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    first = RANDOM.randn(2, 4).astype(np.float32)
    decoder = seq2seq.BeamSearchDecoder(
        cell, table, [1, 2], ends, seq2seq.tile_batch(first, width), width, length_penalty_weight=weight
    )
    outputs, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        started(sess)
        kernel, bias = sess.run(cell.weights)
        ids, scores, log_probs = sess.run(
            [outputs.predicted_ids, outputs.beam_search_decoder_output.scores, state.log_probs]
        )

    def total(example: int, tags: Any) -> float:
        h, before, found = first[example], (1, 2)[example], 0.0
        for tag in tags:
            h = np.tanh(np.concatenate([table[before], h]) @ kernel + bias)
            found, before = found + np.log(softmax(h))[tag], tag
            if tag == ends:
                break
        return found

    for example in range(2):
        every = {}
        for tags in product(range(4), repeat=3):
            cut = tags[: tags.index(ends) + 1] if ends in tags else tags
            # As in TensorFlow, the end counts in the length from the step after it on.
            length = 2 if cut[2:] == (ends,) else len(cut)
            every[(*cut, *[ends] * (3 - len(cut)))] = total(example, cut) / ((5 + length) / 6) ** weight
        best = sorted(every.items(), key=lambda item: -item[1])[:20]
        np.testing.assert_allclose(scores[example, -1, :20], [score for _, score in best], atol=1e-4)
        assert [tuple(one) for one in ids[example].T[:5]] == [tags for tags, _ in best[:5]]
        assert abs(log_probs[example, 0] - total(example, [*best[0][0]])) < 1e-4


def test_beam_search_keeps_the_state_of_attention() -> None:
    width, batch = 3, 2
    memory = seq2seq.tile_batch(tf.constant(MEMORY), width)
    inner = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(5), tf.nn.rnn_cell.GRUCell(5)])
    mechanism = seq2seq.BahdanauAttention(5, memory, seq2seq.tile_batch(LENGTHS, width))
    cell = seq2seq.AttentionWrapper(inner, mechanism, 5)
    first = cell.zero_state(batch * width, tf.float32)
    encoded = seq2seq.tile_batch(inner.zero_state(batch, tf.float32), width)
    decoder = seq2seq.BeamSearchDecoder(
        cell, tf.eye(6), tf.fill([batch], 1), 0, first.clone(cell_state=encoded), width, tf.layers.Dense(6)
    )
    outputs, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=4)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        ids, alignments = sess.run([outputs.predicted_ids, state.cell_state.alignments])
    assert ids.shape[::2] == (2, 3) and 1 <= ids.shape[1] <= 4 and alignments.shape == (2, 3, 4)
    np.testing.assert_allclose(alignments.sum(-1), 1, rtol=1e-5)
    assert not alignments[1, :, 2:].any()


def test_tree_of_beams_is_gathered_backwards() -> None:
    end = 10
    ids = [[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]], [[-1, -1, -1]]]
    parents = [[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]], [[-1, -1, -1]]]
    with tf.Session() as sess:
        found = sess.run(seq2seq.gather_tree(ids, parents, [3], end))
        ended = sess.run(seq2seq.gather_tree([[[1, end]], [[2, 3]]], [[[0, 0]], [[0, 1]]], [2], end))
    assert found[:, 0].tolist() == [[2, 2, 2], [6, 5, 6], [7, 8, 9], [10, 10, 10]]
    assert ended[:, 0].tolist() == [[1, 10], [2, 10]]


@pytest.mark.parametrize(
    ("settings", "axes"),
    [
        ({}, (0, 1)),
        ({"average_across_timesteps": False}, (0,)),
        ({"average_across_batch": False}, (1,)),
        ({"average_across_timesteps": False, "average_across_batch": False}, ()),
        (dict.fromkeys(["average_across_timesteps", "average_across_batch"], False) | {"sum_over_batch": True}, (0,)),
    ],
)
def test_sequence_loss_is_weighted(settings: dict[str, bool], axes: Any) -> None:
    logits, targets = RANDOM.randn(2, 4, 3).astype(np.float32), RANDOM.randint(0, 3, (2, 4))
    weights = (np.arange(4) < LENGTHS[:, None]).astype(np.float32)
    loss = seq2seq.sequence_loss(logits, targets, weights, **settings)
    each = -np.log(np.take_along_axis(softmax(logits), targets[..., None], 2)[..., 0]) * weights
    wanted = each.sum(axes) / np.maximum(weights.sum(axes), 1e-12) if axes else each
    with tf.Session() as sess:
        np.testing.assert_allclose(sess.run(loss), wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="3 axes"):
        seq2seq.sequence_loss(logits[0], targets, weights)
    with pytest.raises(ValueError, match="either averaged or summed"):
        seq2seq.sequence_loss(logits, targets, weights, average_across_batch=False, sum_over_batch=True)


def test_hardmax_is_one_for_the_largest() -> None:
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(seq2seq.hardmax([[1.0, 3.0, 2.0]])), [[0, 1, 0]])
