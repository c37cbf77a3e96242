"""`tf.contrib.crf`, compared with sums over all sequences of tags."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

crf = tf.contrib.crf
RANDOM = np.random.RandomState(0)
SCORES = RANDOM.randn(4, 4, 3).astype(np.float32)
LENGTHS = np.array([4, 2, 1, 0])
STEPS = RANDOM.randn(3, 3).astype(np.float32)
TAGS = RANDOM.randint(0, 3, (4, 4))


def score(example: int, tags: Any) -> float:
    """The score of one sequence of tags for an example."""
    own = sum(SCORES[example, time, tag] for time, tag in enumerate(tags))
    return float(own + sum(STEPS[one, other] for one, other in pairwise(tags)))


def every(example: int) -> dict[Any, float]:
    """All sequences of tags of the example's length, with their scores."""
    return {tags: score(example, tags) for tags in product(range(3), repeat=LENGTHS[example])}


def test_log_likelihood_is_normalised_by_all_sequences() -> None:
    found, params = crf.crf_log_likelihood(SCORES, TAGS, LENGTHS, STEPS)
    wanted = []
    for example, length in enumerate(LENGTHS):
        total = np.log(sum(np.exp(one) for one in every(example).values())) if length else 0.0
        wanted.append(score(example, TAGS[example, :length]) - total)
    with tf.Session() as sess:
        np.testing.assert_allclose(sess.run(found), wanted, atol=1e-5)
    assert params is STEPS


def test_best_tags_are_those_of_the_highest_score() -> None:
    tags, best = crf.crf_decode(SCORES, STEPS, LENGTHS)
    with tf.Session() as sess:
        found, scores = sess.run([tags, best])
    assert found.dtype == np.int32
    for example in range(3):
        wanted = max(every(example).items(), key=lambda item: item[1])
        assert tuple(found[example, : LENGTHS[example]]) == wanted[0] and not found[example, LENGTHS[example] :].any()
        np.testing.assert_allclose(scores[example], wanted[1], rtol=1e-5)
    alone, highest = crf.viterbi_decode(SCORES[0], STEPS)
    assert alone == found[0].tolist() and abs(highest - scores[0]) < 1e-5


def test_some_tags_may_be_allowed() -> None:
    allowed = RANDOM.rand(4, 4, 3) < 0.7
    allowed[:, :, 1] = True
    found = crf.crf_multitag_sequence_score(SCORES, allowed, LENGTHS, STEPS)
    total = 0.0
    for tags, one in every(0).items():
        total += np.exp(one) if all(allowed[0, time, tag] for time, tag in enumerate(tags)) else 0.0
    with tf.Session() as sess:
        np.testing.assert_allclose(sess.run(found)[0], np.log(total), rtol=1e-5)


def test_transitions_are_learned_for_any_size_of_batch() -> None:
    inputs, tags = tf.placeholder(tf.float32, [None, None, 3]), tf.placeholder(tf.int32, [None, None])
    lengths = tf.placeholder(tf.int32, [None])
    likelihood, params = crf.crf_log_likelihood(inputs, tags, lengths)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(-tf.reduce_mean(likelihood))
    feeds = {inputs: SCORES[:3], tags: TAGS[:3], lengths: LENGTHS[:3]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        before = sess.run(likelihood, feeds).mean()
        for _ in range(20):
            sess.run(step, feeds)
        assert sess.run(likelihood, feeds).mean() > before and params.name == "transitions:0"
    with pytest.raises(ValueError, match="number of tags must be known"):
        crf.crf_log_likelihood(tf.placeholder(tf.float32), tags, lengths)
