"""An LSTM that tells waves from their noise: sequences of several lengths, of three classes."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

TIME, FEATURES, UNITS, CLASSES = 20, 4, 24, 3


def waves(count, rng):
    """Waves of three frequencies, how long each is, and which frequency it has, one-hot."""
    labels = rng.randint(CLASSES, size=count)
    lengths = rng.randint(TIME // 2, TIME + 1, size=count)
    times = np.arange(TIME)[None, :, None] + 10 * rng.rand(count, 1, FEATURES)
    sequences = np.sin(times * (0.3 + 0.4 * labels[:, None, None])) + 0.2 * rng.randn(count, TIME, FEATURES)
    sequences *= np.arange(TIME)[None, :, None] < lengths[:, None, None]
    return sequences.astype(np.float32), lengths.astype(np.int32), np.eye(CLASSES, dtype=np.float32)[labels]


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [None, TIME, FEATURES])
    lengths = tf.placeholder(tf.int32, [None])
    y = tf.placeholder(tf.float32, [None, CLASSES])
    with tf.variable_scope("lstm"):
        cell = tf.nn.rnn_cell.LSTMCell(UNITS, initializer=tf.orthogonal_initializer(seed=1), forget_bias=1.0)
        _, state = tf.nn.dynamic_rnn(cell, x, sequence_length=lengths, dtype=tf.float32)
    weights = tf.get_variable("weights", [UNITS, CLASSES], initializer=tf.random_normal_initializer(0, 0.1, seed=2))
    biases = tf.get_variable("biases", [CLASSES], initializer=tf.zeros_initializer)
    logits = tf.matmul(state.h, weights) + biases
    loss = tf.losses.softmax_cross_entropy(y, logits)
    step = tf.train.RMSPropOptimizer(0.01).minimize(loss)
    accuracy, update = tf.metrics.accuracy(tf.argmax(y, 1), tf.argmax(logits, 1))

    losses = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for _ in range(steps):
            sequences, sizes, labels = waves(32, rng)
            _, value = sess.run([step, loss], {x: sequences, lengths: sizes, y: labels})
            losses.append(float(value))
        for _ in range(5):
            sequences, sizes, labels = waves(32, rng)
            sess.run(update, {x: sequences, lengths: sizes, y: labels})
        print(f"accuracy {sess.run(accuracy):.2f}")
    return losses


if __name__ == "__main__":
    train()
