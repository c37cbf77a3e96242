"""A network of two LSTM layers that learns to go on with a text, letter by letter."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. " * 8
LETTERS = sorted(set(TEXT))
BATCH, LENGTH, UNITS = 4, 8, 32


def batches():
    """Pieces of the text, side by side, again and again, and the letters that follow."""
    codes = np.array([LETTERS.index(letter) for letter in TEXT], np.int32)
    columns = codes[: len(codes) // BATCH * BATCH].reshape(BATCH, -1)
    while True:
        for start in range(0, columns.shape[1] - LENGTH - 1, LENGTH):
            yield columns[:, start : start + LENGTH], columns[:, start + 1 : start + LENGTH + 1]


def train(steps=100):
    tf.reset_default_graph()
    letters = tf.placeholder(tf.int32, [None, None])
    following = tf.placeholder(tf.int32, [None, None])
    initializer = tf.random_uniform_initializer(-0.1, 0.1, seed=1)
    with tf.variable_scope("char_rnn", initializer=initializer):
        table = tf.get_variable("embedding", [len(LETTERS), UNITS])
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(UNITS) for _ in range(2)])
        start = cell.zero_state(tf.shape(letters)[0], tf.float32)
        outputs, end = tf.nn.dynamic_rnn(cell, tf.nn.embedding_lookup(table, letters), initial_state=start)
        with tf.variable_scope("softmax"):
            w = tf.get_variable("w", [UNITS, len(LETTERS)])
            b = tf.get_variable("b", [len(LETTERS)])
    logits = tf.matmul(tf.reshape(outputs, [-1, UNITS]), w) + b
    costs = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(following, [-1]), logits=logits)
    cost = tf.reduce_mean(costs)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(cost, variables), 5.0)
    step = tf.train.AdamOptimizer(0.005).apply_gradients(zip(gradients, variables))
    probabilities = tf.nn.softmax(logits)

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        state = sess.run(start, {letters: np.zeros((BATCH, 1))})
        for _, (inputs, targets) in zip(range(steps), batches()):
            feeds = {letters: inputs, following: targets}
            for (c, h), (c_value, h_value) in zip(start, state):
                feeds[c], feeds[h] = c_value, h_value
            value, state, _ = sess.run([cost, end, step], feeds)
            losses.append(float(value))

        written, state = "t", sess.run(start, {letters: [[0]]})
        for _ in range(20):
            feeds = {letters: [[LETTERS.index(written[-1])]]}
            for (c, h), (c_value, h_value) in zip(start, state):
                feeds[c], feeds[h] = c_value, h_value
            chances, state = sess.run([probabilities, end], feeds)
            written += LETTERS[int(np.argmax(chances[-1]))]
        print(repr(written))
    return losses


if __name__ == "__main__":
    train(600)
