"""Connectionist temporal classification: an LSTM transcribes noisy sounds whose symbols are not aligned."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

FEATURES, SYMBOLS, HIDDEN, BATCH = 6, 4, 16, 8
CLASSES = SYMBOLS + 1


def sparse_tuple_from(sequences):
    indices = [(row, at) for row, sequence in enumerate(sequences) for at in range(len(sequence))]
    values = [symbol for sequence in sequences for symbol in sequence]
    shape = [len(sequences), max(len(sequence) for sequence in sequences)]
    return np.array(indices, np.int64), np.array(values, np.int32), np.array(shape, np.int64)


def sounds(rng):
    """Each symbol is a vector of its own, for two to four frames, with silence and noise around it."""
    spectra = np.eye(FEATURES)[:SYMBOLS]
    sequences, frames = [], []
    for _ in range(BATCH):
        sequence = rng.randint(SYMBOLS, size=rng.randint(2, 5))
        parts = [np.zeros([1, FEATURES])]
        for symbol in sequence:
            parts += [np.tile(spectra[symbol], [rng.randint(2, 5), 1]), np.zeros([rng.randint(1, 3), FEATURES])]
        sequences.append(sequence)
        frames.append(np.concatenate(parts))
    lengths = np.array([len(frame) for frame in frames])
    inputs = np.zeros([BATCH, lengths.max(), FEATURES], np.float32)
    for row, frame in enumerate(frames):
        inputs[row, : len(frame)] = frame + 0.2 * rng.randn(*frame.shape)
    return inputs, sparse_tuple_from(sequences), lengths


def train(steps=100):
    rng = np.random.RandomState(0)
    losses = []
    graph = tf.Graph()
    with graph.as_default():
        inputs = tf.placeholder(tf.float32, [None, None, FEATURES])
        targets = tf.sparse_placeholder(tf.int32)
        seq_len = tf.placeholder(tf.int32, [None])
        cells = [
            tf.nn.rnn_cell.LSTMCell(
                HIDDEN, state_is_tuple=True, initializer=tf.random_uniform_initializer(-0.2, 0.2, seed=1)
            )
        ]
        stack = tf.nn.rnn_cell.MultiRNNCell(cells, state_is_tuple=True)
        outputs, _ = tf.nn.dynamic_rnn(stack, inputs, seq_len, dtype=tf.float32)
        shape = tf.shape(inputs)
        batch_s, max_timesteps = shape[0], shape[1]
        outputs = tf.reshape(outputs, [-1, HIDDEN])
        w = tf.Variable(tf.truncated_normal([HIDDEN, CLASSES], stddev=0.1, seed=2))
        b = tf.Variable(tf.constant(0.0, shape=[CLASSES]))
        logits = tf.reshape(tf.matmul(outputs, w) + b, [batch_s, -1, CLASSES])
        logits = tf.transpose(logits, (1, 0, 2))
        loss = tf.nn.ctc_loss(targets, logits, seq_len)
        cost = tf.reduce_mean(loss)
        optimizer = tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True).minimize(cost)
        decoded, _ = tf.nn.ctc_beam_search_decoder(logits, seq_len, beam_width=8)
        greedy, _ = tf.nn.ctc_greedy_decoder(logits, seq_len)
        ler = tf.reduce_mean(tf.edit_distance(tf.cast(decoded[0], tf.int32), targets))
        dense = tf.sparse_tensor_to_dense(greedy[0], default_value=-1)

    with tf.Session(graph=graph) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            batch, sequences, lengths = sounds(rng)
            feed = {inputs: batch, targets: sequences, seq_len: lengths}
            batch_cost, _ = session.run([cost, optimizer], feed)
            losses.append(float(batch_cost))
        errors, first, frames = session.run([ler, dense, max_timesteps], feed)
        print(f"errors {errors:.2f} of symbols, {frames} frames, first: {first[0]}")
    return losses


if __name__ == "__main__":
    train(300)
