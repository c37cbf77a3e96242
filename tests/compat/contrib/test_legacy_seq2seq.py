"""`tf.contrib.legacy_seq2seq` and `tf.contrib.training`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

legacy = tf.contrib.legacy_seq2seq
RANDOM = np.random.RandomState(0)


def test_losses_of_lists_are_weighted() -> None:
    logits = [RANDOM.randn(2, 3).astype(np.float32) for _ in range(4)]
    targets = [RANDOM.randint(0, 3, 2) for _ in range(4)]
    weights = [np.array([1.0, float(time < 2)], np.float32) for time in range(4)]
    each = legacy.sequence_loss_by_example(logits, targets, weights)
    mean = legacy.sequence_loss(logits, targets, weights, average_across_timesteps=False)
    wanted = np.zeros(2)
    for logit, target, weight in zip(logits, targets, weights, strict=True):
        wanted -= (logit - np.log(np.exp(logit).sum(1, keepdims=True)))[range(2), target] * weight
    with tf.Session() as sess:
        np.testing.assert_allclose(sess.run(each), wanted / [4, 2], rtol=1e-5)
        np.testing.assert_allclose(sess.run(mean), wanted.mean(), rtol=1e-5)
    with pytest.raises(ValueError, match="must be the same"):
        legacy.sequence_loss(logits, targets[1:], weights)


def test_decoder_reads_inputs_or_its_outputs() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(3)
    inputs = [tf.constant(RANDOM.randn(2, 3), tf.float32) for _ in range(3)]
    first = cell.zero_state(2, tf.float32)
    outputs, state = legacy.rnn_decoder(inputs, first, cell)
    looped, _ = legacy.rnn_decoder(inputs, first, cell, lambda before, _: before * 2, scope="rnn_decoder")
    plain, last = tf.nn.static_rnn(cell, inputs, dtype=tf.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found, after, wanted, final, own = sess.run([outputs, state, plain, last, looped])
        again, _ = sess.run(cell(tf.constant(own[0] * 2), tf.constant(own[0])))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(after, final)
    np.testing.assert_allclose(own[1], again, rtol=1e-5)
    assert len(tf.global_variables()) == 2


@pytest.mark.parametrize(("kind", "weights"), [("basic_rnn_seq2seq", 4), ("tied_rnn_seq2seq", 2)])
def test_sequences_are_read_and_written(kind: str, weights: int) -> None:
    inputs = [tf.zeros([2, 3])] * 2
    outputs, _ = getattr(legacy, kind)(inputs, inputs, tf.nn.rnn_cell.BasicRNNCell(3))
    assert len(outputs) == 2 and len(tf.global_variables()) == weights


def test_hyperparameters_keep_their_types() -> None:
    hparams = tf.contrib.training.HParams(rate=0.1, steps=3, sizes=[1, 2], name="a", fast=False, words=["x"])
    hparams.parse("rate=1, steps=5,sizes=[3,4],name=b c,fast=True,sizes[1]=9,words=[y,z]")
    wanted: dict[str, Any] = {
        "rate": 1.0,
        "steps": 5,
        "sizes": [3, 9],
        "name": "b c",
        "fast": True,
        "words": ["y", "z"],
    }
    assert hparams.values() == wanted and isinstance(hparams.rate, float) and "rate" in hparams
    hparams.override_from_dict({"rate": 2}).parse_json('{"steps": 6}')
    hparams.add_hparam("more", 1)
    hparams.del_hparam("more")
    assert hparams.rate == 2.0 and hparams.get("steps") == 6 and hparams.get("more", 0) == 0
    assert '"name": "b c"' in hparams.to_json()
    for wrong in ("steps=x", "steps=1.5", "fast=7", "unknown=1", "sizes=[1", "=3"):
        with pytest.raises(ValueError, match=r"hparam|Malformed|Unknown"):
            hparams.parse(wrong)
    with pytest.raises(ValueError, match="Could not cast"):
        hparams.set_hparam("steps", 1.5)
    with pytest.raises(ValueError, match="pass a list"):
        hparams.set_hparam("sizes", 1)
    with pytest.raises(ValueError, match="is reserved"):
        hparams.add_hparam("rate", 1)
