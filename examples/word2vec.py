"""Vectors of words by skip-grams and noise-contrastive estimation, of a generated text."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

WORDS, SIZE, SAMPLED, BATCH = 200, 16, 8, 64


def text(length, rng):
    """Words of ten topics, in runs, so that words of a topic are neighbours."""
    topics = np.repeat(rng.randint(10, size=length // 10), 10)
    return topics * 20 + rng.randint(20, size=len(topics))


def skip_grams(words, batch, rng):
    places = rng.randint(1, len(words) - 1, size=batch)
    return words[places], words[places + rng.choice([-1, 1], size=batch)][:, None]


def build():
    centers = tf.placeholder(tf.int32, [None])
    contexts = tf.placeholder(tf.int32, [None, 1])
    with tf.device("/cpu:0"):
        embeddings = tf.Variable(tf.random_uniform([WORDS, SIZE], -1.0, 1.0, seed=1), name="embeddings")
        looked_up = tf.nn.embedding_lookup(embeddings, centers)
    weights = tf.Variable(tf.truncated_normal([WORDS, SIZE], stddev=1.0 / np.sqrt(SIZE), seed=2), name="nce_weights")
    biases = tf.Variable(tf.zeros([WORDS]), name="nce_biases")
    sampled = tf.nn.log_uniform_candidate_sampler(
        tf.cast(contexts, tf.int64), num_true=1, num_sampled=SAMPLED, unique=True, range_max=WORDS, seed=3
    )
    loss = tf.reduce_mean(
        tf.nn.nce_loss(
            weights=weights,
            biases=biases,
            labels=contexts,
            inputs=looked_up,
            num_sampled=SAMPLED,
            num_classes=WORDS,
            sampled_values=sampled,
        )
    )
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    return centers, contexts, embeddings, loss, step


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    words = text(5000, rng)
    centers, contexts, embeddings, loss, step = build()
    norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keepdims=True))
    normalized = embeddings / norm
    chosen = tf.placeholder(tf.int32, [None])
    similarity = tf.matmul(tf.nn.embedding_lookup(normalized, chosen), normalized, transpose_b=True)

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            inputs, labels = skip_grams(words, BATCH, rng)
            _, value = sess.run([step, loss], {centers: inputs, contexts: labels})
            losses.append(float(value))
        nearest = np.argsort(-similarity.eval({chosen: [0]})[0])[1:6]
        print("nearest to word 0:", nearest)
    return losses


if __name__ == "__main__":
    train(3000)
