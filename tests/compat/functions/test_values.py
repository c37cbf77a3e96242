"""Functions of `aexec.compat.v1` return the values that TensorFlow returned for the same calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors
from tests.compat.recorded.cases import CASES
from tests.compat.recorded.record import value

# Of TensorFlow 2.21, in graph mode; `record.py` wrote them.
RECORDED: dict[str, list[Any]] = json.loads((Path(__file__).parents[1] / "data" / "values.json").read_text())


def test_each_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_value(name: str) -> None:
    found, recorded = value(tf, CASES[name]), RECORDED[name]
    assert len(found) == len(recorded)
    for ours, theirs in zip(found, recorded, strict=True):
        wanted = np.array(theirs)
        if wanted.dtype.kind in "OSU":
            assert ours == theirs
        else:
            np.testing.assert_allclose(np.array(ours), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: tf.reduce_sum([1.0], axis=0, reduction_indices=0), errors.InvalidArgumentError, "mean the same"),
        (lambda: tf.expand_dims([1.0]), errors.InvalidArgumentError, "axis must be given"),
        (lambda: tf.where([True], [1.0]), errors.InvalidArgumentError, "both be non-None"),
        (lambda: tf.pad([1.0], [[1, 1]], "AROUND"), errors.InvalidArgumentError, "Unknown padding mode: AROUND"),
        (lambda: tf.nn.dropout([1.0]), errors.InvalidArgumentError, "rate must be given"),
        (lambda: tf.nn.dropout([1.0], 0.5, rate=0.5), errors.InvalidArgumentError, "both rate and keep_prob"),
        (lambda: tf.nn.conv2d(1, 2, filters=3), errors.InvalidArgumentError, "filters and another argument"),
        (lambda: tf.layers.batch_normalization([[1.0]], renorm=True), errors.UnimplementedError, "renorm=True"),
        (lambda: tf.nn.rnn_cell.GRUCell(3, size=3), TypeError, r"GRUCell\(\): got an unexpected"),
        (lambda: tf.norm([[1.0]], 1, axis=[0, 1]), errors.UnimplementedError, "of matrices"),
        (lambda: tf.unstack(tf.placeholder("float32", [None])), errors.InvalidArgumentError, "Cannot infer"),
        (lambda: tf.image.flip_up_down(tf.placeholder("float32")), errors.InvalidArgumentError, "must be known"),
        (lambda: tf.Variable(1, variable_def=b""), errors.UnimplementedError, "variable_def"),
    ],
)
def test_invalid_arguments_are_refused(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_labels_have_a_gradient_in_the_second_version_only() -> None:
    labels, logits = tf.constant([[0.5, 0.5]]), tf.constant([[1.0, 2.0]])
    first = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    assert tf.gradients(first, labels) == [None]
    second = tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)
    assert tf.gradients(second, labels) != [None]


def test_dropout_keeps_as_many_as_it_says() -> None:
    with tf.Session() as sess:
        kept = sess.run(tf.nn.dropout(tf.ones([1000]), keep_prob=0.25, seed=1))
    assert set(np.unique(kept)) == {0.0, 4.0} and 200 < np.count_nonzero(kept) < 300


def test_numpy_cannot_read_a_tensor() -> None:
    x = tf.constant([1.0, 2.0])
    for read in (np.array, np.mean, np.exp, lambda x: np.dot(np.ones(2), x), lambda x: np.stack([x, x])):
        with pytest.raises(ValueError, match="no value while the graph is built"):
            read(x)
    with tf.Session() as sess:
        assert sess.run(np.float32([3, 4]) * x + np.float32(1)).tolist() == [4, 9]


def test_mask_as_an_index() -> None:
    x = tf.constant([[1, 2], [3, 4], [5, 6]])
    rows = tf.placeholder(tf.bool, [None])
    with tf.Session() as sess:
        assert sess.run(x[x > 2]).tolist() == [3, 4, 5, 6]
        assert sess.run(x[np.array([True, False, True])]).tolist() == [[1, 2], [5, 6]]
        assert sess.run(x[rows], {rows: [False, True, False]}).tolist() == [[3, 4]]
        real = tf.to_float(x)
        assert sess.run(tf.gradients(real[x > 4], real)[0]).tolist() == [[0, 0], [0, 0], [1, 1]]
    with pytest.raises(ValueError, match="mask"):
        x[tf.placeholder(tf.bool)]


def test_assertions_and_printing(capfd: pytest.CaptureFixture[str]) -> None:
    x = tf.placeholder(tf.float32, [None])
    with tf.control_dependencies([tf.assert_non_negative(x), tf.assert_less(x, 10.0, message="too much")]):
        y = tf.Print(x * 2, [x], "x is ")
    with tf.Session() as sess:
        assert sess.run(y, {x: [1.0, 2.0]}).tolist() == [2, 4]
        with pytest.raises(errors.InvalidArgumentError, match="too much"):
            sess.run(y, {x: [10.0]})
        with pytest.raises(errors.InvalidArgumentError, match="assert_greater_equal does not hold"):
            sess.run(y, {x: [-1.0]})
    assert "x is [1 2]" in capfd.readouterr().err
    with pytest.raises(errors.InvalidArgumentError, match="must have rank 2"):
        tf.assert_rank(x, 2)


def test_random_flips_turn_some_images() -> None:
    images = np.arange(200, dtype=np.float32).reshape(50, 2, 2, 1)
    with tf.Session() as sess:
        turned = sess.run(tf.image.random_flip_left_right(images, seed=1))
        crop = sess.run(tf.random_crop(images[0], [1, 2, 1], seed=1))
    same = [np.array_equal(a, b) for a, b in zip(turned, images, strict=True)]
    assert 10 < sum(same) < 40
    flipped = [np.array_equal(a, b[:, ::-1]) for a, b in zip(turned, images, strict=True)]
    assert all(a != b for a, b in zip(same, flipped, strict=True))
    assert crop.shape == (1, 2, 1)


@pytest.mark.parametrize(("whole", "part"), [("complex64", "float32"), ("complex128", "float64")])
def test_parts_of_complex_numbers_have_their_precision(whole: str, part: str) -> None:
    numbers = np.array([3.0 + 4.0j, -1.0], whole)
    x = tf.constant(numbers)
    with tf.Session() as session:
        found = session.run([tf.real(x), tf.imag(x), tf.angle(x), tf.abs(x), tf.complex(tf.real(x), tf.imag(x))])
        negative = session.run(tf.angle(tf.constant([-2.0, 2.0], part)))
    expected = [numbers.real, numbers.imag, np.angle(numbers), np.abs(numbers), numbers]
    for one, other in zip([*found, negative], [*expected, np.array([np.pi, 0.0], part)], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)
