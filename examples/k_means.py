"""Clusters of points by k-means, all of whose steps are nodes of the graph."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

CLUSTERS, POINTS = 6, 300


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    middles = rng.uniform(-5, 5, (CLUSTERS, 2))
    data = (middles[rng.randint(CLUSTERS, size=POINTS)] + rng.randn(POINTS, 2)).astype(np.float32)

    points = tf.constant(data)
    centers = tf.Variable(tf.slice(points, [0, 0], [CLUSTERS, -1]), name="centers")
    assigned = tf.Variable(tf.zeros([POINTS], dtype=tf.int64), trainable=False, name="assigned")
    distances = tf.reduce_sum(tf.squared_difference(tf.expand_dims(points, 1), tf.expand_dims(centers, 0)), 2)
    nearest = tf.argmin(distances, 1)
    moved = tf.reduce_any(tf.not_equal(nearest, assigned))
    inertia = tf.reduce_mean(tf.reduce_min(distances, 1))

    totals = tf.unsorted_segment_sum(points, nearest, CLUSTERS)
    counts = tf.unsorted_segment_sum(tf.ones([POINTS]), nearest, CLUSTERS)
    means = tf.where(tf.tile(tf.expand_dims(counts > 0, 1), [1, 2]), totals / tf.maximum(counts, 1)[:, None], centers)
    with tf.control_dependencies([moved, inertia]):
        # A little of the way at a time.
        update = tf.group(tf.assign(centers, 0.8 * centers + 0.2 * means), tf.assign(assigned, nearest))

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            changed, value, _ = sess.run([moved, inertia, update])
            losses.append(float(value))
        print(f"inertia {losses[-1]:.3f},", "still moving" if changed else "settled")
    return losses


if __name__ == "__main__":
    train()
