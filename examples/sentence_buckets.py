"""Sentences of different lengths from a generator, in padded batches of similar lengths, for a bag of words."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

GOOD = "good great fine lovely superb".split()
BAD = "bad awful poor dull dreadful".split()
FILLING = "the a film plot actor scene was is and very quite".split()
WORDS = ["<pad>", *GOOD, *BAD, *FILLING]


def sentences():
    """Numbers of words, and whether the sentence praises."""
    rng = np.random.RandomState(0)
    numbers = {word: number for number, word in enumerate(WORDS)}
    for _ in range(500):
        praise = rng.randint(2)
        words = [FILLING[i] for i in rng.randint(len(FILLING), size=rng.randint(1, 15))]
        words.insert(rng.randint(len(words) + 1), (GOOD if praise else BAD)[rng.randint(5)])
        yield [numbers[word] for word in words], praise


def train(steps=100):
    tf.reset_default_graph()
    tf.set_random_seed(1)

    dataset = tf.data.Dataset.from_generator(sentences, (tf.int32, tf.int64), ([None], []))
    dataset = dataset.shuffle(200, seed=2).repeat()
    dataset = dataset.apply(
        tf.data.experimental.bucket_by_sequence_length(
            lambda words, praise: tf.shape(words)[0], bucket_boundaries=[5, 10], bucket_batch_sizes=[32, 24, 16]
        )
    )
    words, praise = tf.data.make_one_shot_iterator(dataset.prefetch(1)).get_next()

    table = tf.get_variable("table", [len(WORDS), 8], initializer=tf.random_normal_initializer(stddev=0.1, seed=3))
    weights = tf.get_variable("weights", [8, 2], initializer=tf.glorot_uniform_initializer(seed=4))
    there = tf.cast(tf.not_equal(words, 0), tf.float32)
    vectors = tf.nn.embedding_lookup(table, words) * there[:, :, None]
    mean = tf.reduce_sum(vectors, 1) / tf.reduce_sum(there, 1)[:, None]
    loss = tf.losses.sparse_softmax_cross_entropy(praise, tf.matmul(mean, weights))
    step = tf.train.AdamOptimizer(0.05).minimize(loss)

    losses = []
    sizes = set()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            value, _, batch = sess.run([loss, step, words])
            losses.append(float(value))
            sizes.add(batch.shape)
    print(f"loss {losses[-1]:.3f} after {steps} steps; {len(sizes)} shapes of batches")
    return losses


if __name__ == "__main__":
    train()
