"""A tagger of sentences: embeddings, an LSTM of both directions, a linear-chain CRF, and Viterbi's decoding."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

WORDS, SIZE, TAGS, LONGEST, BATCH, UNITS = 30, 8, 5, 9, 16, 12


def sentences(rng):
    """Words that show their tag one time in two, tags that mostly follow one another in a circle."""
    lengths = rng.randint(4, LONGEST + 1, size=BATCH)
    tags = np.zeros([BATCH, LONGEST], np.int32)
    tags[:, 0] = rng.randint(TAGS, size=BATCH)
    for at in range(1, LONGEST):
        tags[:, at] = (tags[:, at - 1] + np.where(rng.rand(BATCH) < 0.8, 1, 2)) % TAGS
    words = np.where(
        rng.rand(BATCH, LONGEST) < 0.5, tags * 5 + rng.randint(5, size=tags.shape), 25 + rng.randint(5, size=tags.shape)
    )
    inside = np.arange(LONGEST) < lengths[:, None]
    return words * inside, tags * inside, lengths


class Tagger:
    def __init__(self):
        self.word_ids = tf.placeholder(tf.int32, shape=[None, None], name="word_ids")
        self.labels = tf.placeholder(tf.int32, shape=[None, None], name="labels")
        self.sequence_lengths = tf.placeholder(tf.int32, shape=[None], name="sequence_lengths")
        self.dropout = tf.placeholder(dtype=tf.float32, shape=[], name="dropout")
        with tf.variable_scope("words"):
            table = tf.Variable(
                0.3 * np.random.RandomState(4).randn(WORDS, SIZE), name="_word_embeddings", dtype=tf.float32
            )
            embeddings = tf.nn.dropout(tf.nn.embedding_lookup(table, self.word_ids), self.dropout)
        with tf.variable_scope("bi-lstm"):
            (output_fw, output_bw), _ = tf.nn.bidirectional_dynamic_rnn(
                tf.contrib.rnn.LSTMCell(UNITS),
                tf.contrib.rnn.LSTMCell(UNITS),
                embeddings,
                sequence_length=self.sequence_lengths,
                dtype=tf.float32,
            )
            output = tf.nn.dropout(tf.concat([output_fw, output_bw], axis=-1), self.dropout)
        with tf.variable_scope("proj"):
            w = tf.get_variable("W", dtype=tf.float32, shape=[2 * UNITS, TAGS])
            b = tf.get_variable("b", shape=[TAGS], dtype=tf.float32, initializer=tf.zeros_initializer())
            nsteps = tf.shape(output)[1]
            pred = tf.matmul(tf.reshape(output, [-1, 2 * UNITS]), w) + b
            self.logits = tf.reshape(pred, [-1, nsteps, TAGS])
        log_likelihood, self.trans_params = tf.contrib.crf.crf_log_likelihood(
            self.logits, self.labels, self.sequence_lengths
        )
        self.loss = tf.reduce_mean(-log_likelihood)
        self.train_op = tf.train.AdamOptimizer(0.02).minimize(self.loss)

    def feed(self, words, lengths, labels=None, dropout=1.0):
        feed = {self.word_ids: words, self.sequence_lengths: lengths, self.dropout: dropout}
        return feed if labels is None else {**feed, self.labels: labels}

    def predict(self, sess, words, lengths):
        logits, trans_params = sess.run([self.logits, self.trans_params], feed_dict=self.feed(words, lengths))
        found = []
        for logit, length in zip(logits, lengths):
            viterbi_seq, _ = tf.contrib.crf.viterbi_decode(logit[:length], trans_params)
            found.append(viterbi_seq)
        return found


def train(steps=100):
    rng = np.random.RandomState(0)
    losses = []
    tf.reset_default_graph()
    tf.set_random_seed(6)
    model = Tagger()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            words, tags, lengths = sentences(rng)
            _, loss = sess.run([model.train_op, model.loss], model.feed(words, lengths, tags, 0.8))
            losses.append(float(loss))
        words, tags, lengths = sentences(rng)
        found = model.predict(sess, words, lengths)
        right = sum(int(np.sum(np.array(row) == tag[: len(row)])) for row, tag in zip(found, tags))
        print(f"accuracy {right / lengths.sum():.2f}")
    return losses


if __name__ == "__main__":
    train(300)
