"""Word vectors by skip-grams, as a class with options from flags: subsampling, a decaying rate, events, checkpoints."""

import os
import tempfile

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("save_path", None, "Folder for events and checkpoints; by default a temporary one.")
flags.DEFINE_integer("embedding_size", 16, "The size of a vector.")
flags.DEFINE_float("word_rate", 0.2, "Initial learning rate.")
flags.DEFINE_integer("num_neg_samples", 8, "Negative samples per batch.")
flags.DEFINE_integer("word_batch", 32, "Pairs of words in a batch.")
flags.DEFINE_integer("window_size", 2, "Words to the left and right that may be predicted.")
flags.DEFINE_float("subsample", 1e-2, "Words that are more frequent than this are dropped at random. 0 disables it.")
flags.DEFINE_integer("train_steps", 2000, "Steps.")
FLAGS = flags.FLAGS


class Options:
    """Options used by the model."""

    def __init__(self):
        self.emb_dim = FLAGS.embedding_size
        self.num_samples = FLAGS.num_neg_samples
        self.learning_rate = FLAGS.word_rate
        self.batch_size = FLAGS.word_batch
        self.window_size = FLAGS.window_size
        self.subsample = FLAGS.subsample
        self.save_path = FLAGS.save_path or tempfile.mkdtemp()
        self.train_steps = FLAGS.train_steps


class Word2Vec:
    """Skip-gram model with negative sampling."""

    def __init__(self, options, session, corpus):
        self._options = options
        self._session = session
        self._corpus = corpus
        self._vocab_counts = np.bincount(corpus)
        self._rng = np.random.RandomState(1)
        self.build_graph()
        self.build_eval_graph()

    def forward(self, examples, labels):
        opts = self._options
        vocab_size, init_width = len(self._vocab_counts), 0.5 / opts.emb_dim
        emb = tf.Variable(tf.random_uniform([vocab_size, opts.emb_dim], -init_width, init_width, seed=1), name="emb")
        self._emb = emb
        sm_w_t = tf.Variable(tf.zeros([vocab_size, opts.emb_dim]), name="sm_w_t")
        sm_b = tf.Variable(tf.zeros([vocab_size]), name="sm_b")
        self.global_step = tf.Variable(0, name="global_step")

        labels_matrix = tf.reshape(tf.cast(labels, dtype=tf.int64), [opts.batch_size, 1])
        sampled_ids, _, _ = tf.nn.fixed_unigram_candidate_sampler(
            true_classes=labels_matrix,
            num_true=1,
            num_sampled=opts.num_samples,
            unique=True,
            range_max=vocab_size,
            distortion=0.75,
            unigrams=self._vocab_counts.tolist(),
            seed=2,
        )
        example_emb = tf.nn.embedding_lookup(emb, examples)
        true_w, true_b = tf.nn.embedding_lookup(sm_w_t, labels), tf.nn.embedding_lookup(sm_b, labels)
        sampled_w = tf.nn.embedding_lookup(sm_w_t, sampled_ids)
        sampled_b = tf.nn.embedding_lookup(sm_b, sampled_ids)
        true_logits = tf.reduce_sum(tf.multiply(example_emb, true_w), 1) + true_b
        sampled_b_vec = tf.reshape(sampled_b, [opts.num_samples])
        sampled_logits = tf.matmul(example_emb, sampled_w, transpose_b=True) + sampled_b_vec
        return true_logits, sampled_logits

    def nce_loss(self, true_logits, sampled_logits):
        true_xent = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones_like(true_logits), logits=true_logits)
        sampled_xent = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.zeros_like(sampled_logits), logits=sampled_logits
        )
        return (tf.reduce_sum(true_xent) + tf.reduce_sum(sampled_xent)) / self._options.batch_size

    def optimize(self, loss):
        opts = self._options
        steps_to_train = float(opts.train_steps)
        self._lr = opts.learning_rate * tf.maximum(0.0001, 1.0 - tf.cast(self.global_step, tf.float32) / steps_to_train)
        optimizer = tf.train.GradientDescentOptimizer(self._lr)
        self._train = optimizer.minimize(loss, global_step=self.global_step, gate_gradients=optimizer.GATE_NONE)

    def build_graph(self):
        self.examples = tf.placeholder(tf.int32, [self._options.batch_size], name="examples")
        self.labels = tf.placeholder(tf.int32, [self._options.batch_size], name="labels")
        true_logits, sampled_logits = self.forward(self.examples, self.labels)
        self._loss = self.nce_loss(true_logits, sampled_logits)
        tf.summary.scalar("NCE loss", self._loss)
        self.optimize(self._loss)
        tf.summary.scalar("learning rate", self._lr)
        self._summary_op = tf.summary.merge_all()
        tf.global_variables_initializer().run()
        self.saver = tf.train.Saver()

    def build_eval_graph(self):
        self.nearby_word = tf.placeholder(dtype=tf.int32)
        nemb = tf.nn.l2_normalize(self._emb, 1)
        nearby_dist = tf.matmul(tf.gather(nemb, self.nearby_word), nemb, transpose_b=True)
        self.nearby_val, self.nearby_idx = tf.nn.top_k(nearby_dist, 6)

    def batch(self):
        opts, corpus = self._options, self._corpus
        examples, labels = [], []
        while len(examples) < opts.batch_size:
            center = self._rng.randint(opts.window_size, len(corpus) - opts.window_size)
            frequency = self._vocab_counts[corpus[center]] / len(corpus)
            if opts.subsample > 0 and self._rng.rand() > np.sqrt(opts.subsample / frequency):
                continue
            offset = self._rng.randint(1, opts.window_size + 1) * self._rng.choice([-1, 1])
            examples.append(corpus[center])
            labels.append(corpus[center + offset])
        return {self.examples: examples, self.labels: labels}

    def train(self, steps):
        opts, losses = self._options, []
        summary_writer = tf.summary.FileWriter(opts.save_path, self._session.graph)
        for _ in range(steps):
            feed = self.batch()
            loss, step, _ = self._session.run([self._loss, self.global_step, self._train], feed)
            losses.append(float(loss))
            if step % 50 == 0:
                summary_writer.add_summary(self._session.run(self._summary_op, feed), step)
        summary_writer.close()
        self.saver.save(self._session, os.path.join(opts.save_path, "model.ckpt"), global_step=self.global_step)
        return losses

    def nearby(self, word):
        return self._session.run(self.nearby_idx, {self.nearby_word: [word]})[0, 1:]


def text(length):
    """Words of ten topics, in runs, so that words of a topic are neighbours."""
    rng = np.random.RandomState(0)
    topics = np.repeat(rng.randint(10, size=length // 10), 10)
    return topics * 20 + np.minimum(rng.geometric(0.2, size=len(topics)) - 1, 19)


def train(steps=100):
    opts = Options()
    corpus = text(5000)
    with tf.Graph().as_default(), tf.Session() as session, tf.device("/cpu:0"):
        model = Word2Vec(opts, session, corpus)
        losses = model.train(steps)
        tf.logging.info("loss %.3f, nearest to word 0: %s", losses[-1], model.nearby(0))
    return losses


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    train(FLAGS.train_steps)


if __name__ == "__main__":
    tf.app.run()
