"""A line through noisy points, by gradient descent."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    xs = rng.uniform(-1, 1, 64).astype(np.float32)
    ys = 3 * xs - 1 + 0.1 * rng.randn(64).astype(np.float32)

    x = tf.placeholder(tf.float32, name="x")
    y = tf.placeholder(tf.float32, name="y")
    w = tf.Variable(0.5, name="weight")
    b = tf.Variable(0.0, name="bias")
    prediction = tf.add(tf.multiply(x, w), b)
    cost = tf.reduce_sum(tf.pow(prediction - y, 2)) / (2 * 64)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(cost)

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            _, loss = sess.run([step, cost], feed_dict={x: xs, y: ys})
            losses.append(float(loss))
        print(f"y = {w.eval():.2f} x + {b.eval():.2f}")
    return losses


if __name__ == "__main__":
    train()
