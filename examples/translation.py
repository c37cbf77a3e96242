"""A sequence-to-sequence model with attention: an encoder of both directions, a decoder that reverses what it reads."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

seq2seq = tf.contrib.seq2seq
PAD, START, END, SYMBOLS = 0, 1, 2, 12
UNITS, EMBEDDING, BATCH, LONGEST = 16, 8, 16, 7


def sentences(rng):
    """Sources, their lengths, what the decoder reads, what it has to write, and the lengths of that."""
    lengths = rng.randint(3, LONGEST + 1, size=BATCH)
    sources = np.full([BATCH, lengths.max()], PAD, np.int32)
    inputs = np.full([BATCH, lengths.max() + 1], END, np.int32)
    targets = np.full([BATCH, lengths.max() + 1], PAD, np.int32)
    for row, length in enumerate(lengths):
        words = rng.randint(3, SYMBOLS, size=length)
        sources[row, :length] = words
        inputs[row, : length + 1] = [START, *words[::-1]]
        targets[row, : length + 1] = [*words[::-1], END]
    return sources, lengths, inputs, targets, lengths + 1


class Model:
    def __init__(self):
        self.source = tf.placeholder(tf.int32, [None, None], name="source")
        self.source_length = tf.placeholder(tf.int32, [None], name="source_length")
        self.decoder_inputs = tf.placeholder(tf.int32, [None, None], name="decoder_inputs")
        self.decoder_targets = tf.placeholder(tf.int32, [None, None], name="decoder_targets")
        self.target_length = tf.placeholder(tf.int32, [None], name="target_length")
        self.global_step = tf.Variable(0, trainable=False, name="global_step")
        self.batch_size = tf.shape(self.source)[0]
        with tf.variable_scope("model", initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=3)):
            self.build_encoder()
            self.build_decoder()
        self.build_optimizer()
        self.saver = tf.train.Saver(tf.global_variables(), max_to_keep=2)

    def build_encoder(self):
        with tf.variable_scope("encoder"):
            self.embedding = tf.get_variable("embedding", [SYMBOLS, EMBEDDING])
            embedded = tf.nn.embedding_lookup(self.embedding, self.source)
            outputs, (state_fw, state_bw) = tf.nn.bidirectional_dynamic_rnn(
                tf.nn.rnn_cell.GRUCell(UNITS),
                tf.nn.rnn_cell.GRUCell(UNITS),
                embedded,
                sequence_length=self.source_length,
                dtype=tf.float32,
            )
            self.encoder_outputs = tf.concat(outputs, 2)
            self.encoder_state = tf.concat([state_fw, state_bw], 1)

    def build_decoder(self):
        with tf.variable_scope("decoder"):
            attention = seq2seq.BahdanauAttention(
                UNITS, self.encoder_outputs, memory_sequence_length=self.source_length, name="attention"
            )
            cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(2 * UNITS), attention, attention_layer_size=UNITS)
            initial = cell.zero_state(self.batch_size, tf.float32).clone(cell_state=self.encoder_state)
            output_layer = tf.layers.Dense(SYMBOLS, use_bias=False, name="output_projection")

            embedded = tf.nn.embedding_lookup(self.embedding, self.decoder_inputs)
            helper = seq2seq.TrainingHelper(embedded, self.target_length)
            decoder = seq2seq.BasicDecoder(cell, helper, initial, output_layer)
            outputs, _, _ = seq2seq.dynamic_decode(decoder, impute_finished=True, swap_memory=True)
            weights = tf.sequence_mask(self.target_length, dtype=tf.float32)
            self.loss = seq2seq.sequence_loss(outputs.rnn_output, self.decoder_targets, weights)

            tf.get_variable_scope().reuse_variables()
            starts = tf.fill([self.batch_size], START)
            greedy = seq2seq.BasicDecoder(
                cell, seq2seq.GreedyEmbeddingHelper(self.embedding, starts, END), initial, output_layer
            )
            decoded, _, _ = seq2seq.dynamic_decode(greedy, maximum_iterations=LONGEST + 1)
            self.translation = decoded.sample_id

    def build_optimizer(self):
        params = tf.trainable_variables()
        gradients = tf.gradients(self.loss, params)
        clipped, self.norm = tf.clip_by_global_norm(gradients, 5.0)
        optimizer = tf.train.AdamOptimizer(0.01)
        self.update = optimizer.apply_gradients(zip(clipped, params), global_step=self.global_step)

    def feed(self, batch):
        keys = [self.source, self.source_length, self.decoder_inputs, self.decoder_targets, self.target_length]
        return dict(zip(keys, batch))


def train(steps=100):
    rng = np.random.RandomState(0)
    losses = []
    with tf.Graph().as_default(), tf.Session() as sess:
        model = Model()
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            _, loss = sess.run([model.update, model.loss], model.feed(sentences(rng)))
            losses.append(float(loss))
        source, lengths, _, targets, _ = sentences(rng)
        written = sess.run(model.translation, {model.source: source, model.source_length: lengths})
        width = min(written.shape[1], targets.shape[1])
        right = (written[:, :width] == targets[:, :width]) | (targets[:, :width] == PAD)
        print(f"sentences that are right: {right.all(axis=1).mean():.2f}")
    return losses


if __name__ == "__main__":
    train(1500)
