"""What stands for `tf.contrib` when TensorFlow 2 runs the programs of `examples/`, since it has none.

`slim` and `layers` are those of the package tf-slim, TensorFlow's own sources, which need two names that moved.  `rnn`
has the cells of `tf.nn.rnn_cell`.  `crf` and `seq2seq` are formulas here, in plain ops, for what the programs use of
them.  So is the layer of sequences of `feature_column`.
"""

# ruff: noqa: N802  # names of TensorFlow

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["contrib", "sequence_input_layer"]


def contrib(tf: Any) -> Any:
    """The modules that programs use of `tf.contrib`."""
    for part in ("", ".base", ".convolutional", ".core", ".normalization", ".pooling"):
        sys.modules[f"tf_keras.legacy_tf_layers{part}"] = import_module(f"tf_keras.src.legacy_tf_layers{part}")
    tf_slim = import_module("tf_slim")
    import_module("tensorflow.python.framework.ops").IndexedSlices = tf.IndexedSlices  # type: ignore[attr-defined]

    slim = SimpleNamespace(**{name: getattr(tf_slim, name) for name in dir(tf_slim) if not name.startswith("__")})
    return SimpleNamespace(
        slim=slim,
        layers=tf_slim.layers,
        rnn=tf.nn.rnn_cell,
        crf=SimpleNamespace(crf_log_likelihood=_log_likelihood(tf), viterbi_decode=_viterbi_decode),
        seq2seq=_Seq2seq(tf),
        feature_column=SimpleNamespace(sequence_input_layer=sequence_input_layer(tf)),
    )


def sequence_input_layer(tf: Any) -> Any:
    """What the columns give, which still know sequences: side by side, with the lengths of the first."""
    old = import_module("tensorflow.python.feature_column.feature_column")
    new = import_module("tensorflow.python.feature_column.feature_column_v2")

    def found(column: Any, features: Any) -> Any:
        with tf.variable_scope(None, getattr(column, "_var_scope_name", column.name)):
            if hasattr(column, "_get_sequence_dense_tensor"):
                return column._get_sequence_dense_tensor(old._LazyBuilder(features), trainable=True)
            return column.get_sequence_dense_tensor(new.FeatureTransformationCache(features), None)

    def layer(features: Any, feature_columns: Any) -> Any:
        with tf.variable_scope(None, "sequence_input_layer"):
            tensors, lengths = zip(
                *(found(column, features) for column in sorted(feature_columns, key=lambda c: c.name)), strict=True
            )
            flat = [tf.reshape(one, tf.concat([tf.shape(one)[:2], [-1]], 0)) for one in tensors]
            return tf.concat(flat, 2), lengths[0]

    return layer


def _log_likelihood(tf: Any) -> Any:
    """Score of the tags less the logarithm of the sum over all tags, by the forward algorithm in the longest length."""

    def log_likelihood(inputs: Any, tags: Any, lengths: Any, transition_params: Any = None) -> Any:
        count = inputs.shape[2].value
        if transition_params is None:
            transition_params = tf.get_variable("transitions", [count, count])
        longest = tf.shape(inputs)[1]
        weights = tf.sequence_mask(lengths, longest, tf.float32)
        one_hot = tf.one_hot(tags, count)
        unary = tf.reduce_sum(tf.reduce_sum(inputs * one_hot, 2) * weights, 1)
        moves = tf.reduce_sum(tf.tensordot(one_hot[:, :-1], transition_params, 1) * one_hot[:, 1:], 2)
        score = unary + tf.reduce_sum(moves * weights[:, 1:], 1)

        def forward(at: Any, alphas: Any) -> Any:
            reached = tf.reduce_logsumexp(alphas[:, :, None] + transition_params[None], 1) + inputs[:, at]
            inside = tf.tile(tf.less(at, lengths)[:, None], [1, count])
            return at + 1, tf.where(inside, reached, alphas)

        loop = tf.while_loop(lambda at, alphas: at < longest, forward, [tf.constant(1), inputs[:, 0]])
        return score - tf.reduce_logsumexp(loop[1], 1), transition_params

    return log_likelihood


def _viterbi_decode(score: Any, transition_params: Any) -> Any:
    """Best tags of one sequence, and their score."""
    best, back = score[0], []
    for row in score[1:]:
        reached = best[:, None] + transition_params
        back.append(reached.argmax(0))
        best = row + reached.max(0)
    tags = [int(best.argmax())]
    for pointers in reversed(back):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], np.max(best)


class _Attention:
    """Bahdanau's: keys and query go through layers of their own, their sum through tanh and a vector."""

    def __init__(self, tf: Any, units: int, memory: Any, lengths: Any, name: str) -> None:
        self._tf, self._units, self._lengths = tf, units, lengths
        self._mask = tf.sequence_mask(lengths, tf.shape(memory)[1], tf.float32)
        self.values = memory * self._mask[:, :, None]
        self.keys = tf.layers.dense(self.values, units, use_bias=False, name="memory_layer")

    def __call__(self, query: Any) -> Any:
        """Alignments to the memory."""
        tf = self._tf
        processed = tf.layers.dense(query, self._units, use_bias=False, name="query_layer")
        v = tf.get_variable("attention_v", [self._units])
        score = tf.reduce_sum(v * tf.tanh(self.keys + processed[:, None]), 2)
        return tf.nn.softmax(tf.where(self._mask > 0, score, tf.fill(tf.shape(score), -np.inf)))


class _State:
    """What `AttentionWrapper.zero_state` gives: programs replace the state of the cell in it."""

    def __init__(self, cell_state: Any) -> None:
        self.cell_state = cell_state

    def clone(self, cell_state: Any) -> _State:
        return _State(cell_state)


class _Wrapper:
    """A cell that reads its input and the last attention, and answers the next attention."""

    def __init__(self, tf: Any, cell: Any, mechanism: _Attention, size: int) -> None:
        self._tf, self._cell, self._mechanism, self.size = tf, cell, mechanism, size

    def zero_state(self, batch_size: Any, dtype: Any) -> _State:
        return _State(None)

    def step(self, inputs: Any, state: Any, attention: Any) -> Any:
        tf = self._tf
        output, state = self._cell(tf.concat([inputs, attention], 1), state)
        alignments = self._mechanism(output)
        context = tf.squeeze(tf.matmul(alignments[:, None], self._mechanism.values), [1])
        return tf.layers.dense(
            tf.concat([output, context], 1), self.size, use_bias=False, name="attention_layer"
        ), state


class _Seq2seq:
    """Training by a loop over time; a greedy decoder is built and never run, since losses do not depend on it."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf

    def BahdanauAttention(self, units: int, memory: Any, memory_sequence_length: Any, name: str) -> _Attention:
        return _Attention(self._tf, units, memory, memory_sequence_length, name)

    def AttentionWrapper(self, cell: Any, mechanism: Any, attention_layer_size: int) -> _Wrapper:
        return _Wrapper(self._tf, cell, mechanism, attention_layer_size)

    def TrainingHelper(self, inputs: Any, lengths: Any) -> Any:
        return SimpleNamespace(inputs=inputs, lengths=lengths)

    def GreedyEmbeddingHelper(self, embedding: Any, starts: Any, end: int) -> Any:
        return None

    def BasicDecoder(self, cell: Any, helper: Any, initial: Any, output_layer: Any) -> Any:
        return SimpleNamespace(cell=cell, helper=helper, initial=initial, output_layer=output_layer)

    def dynamic_decode(self, decoder: Any, **options: Any) -> Any:
        tf = self._tf
        if decoder.helper is None:
            return (
                SimpleNamespace(sample_id=tf.zeros([tf.shape(decoder.initial.cell_state)[0], 1], tf.int32)),
                None,
                None,
            )
        inputs, lengths = decoder.helper.inputs, decoder.helper.lengths
        batch = tf.shape(inputs)[0]
        outputs = tf.TensorArray(tf.float32, 0, dynamic_size=True)

        def step(at: Any, state: Any, attention: Any, outputs: Any) -> Any:
            with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE):
                next_attention, next_state = decoder.cell.step(inputs[:, at], state, attention)
            written = decoder.output_layer(next_attention) * tf.cast(at < lengths, tf.float32)[:, None]
            return at + 1, next_state, next_attention, outputs.write(at, written)

        zeros = tf.zeros([batch, decoder.cell.size])
        start = [tf.constant(0), decoder.initial.cell_state, zeros, outputs]
        shapes = [tf.TensorShape([]), start[1].shape, tf.TensorShape([None, decoder.cell.size]), tf.TensorShape(None)]
        loop = tf.while_loop(lambda at, *rest: at < tf.reduce_max(lengths), step, start, shape_invariants=shapes)
        written = tf.transpose(loop[-1].stack(), [1, 0, 2])
        written.set_shape([None, None, decoder.output_layer.units])
        return SimpleNamespace(rnn_output=written), None, None

    def sequence_loss(self, logits: Any, targets: Any, weights: Any) -> Any:
        tf = self._tf
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits) * weights
        return tf.reduce_sum(losses) / (tf.reduce_sum(weights) + 1e-12)
