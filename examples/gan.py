"""A generator and a discriminator, which learn from each other what points of a ring are."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

NOISE, SIZE, HIDDEN, BATCH = 4, 2, 32, 64


def ring(count, rng):
    angles = rng.uniform(0, 2 * np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32) + 0.05 * rng.randn(count, 2)


def dense(x, outputs, name, seed, activation=None):
    with tf.variable_scope(name):
        inputs = x.get_shape().as_list()[-1]
        w = tf.get_variable("w", [inputs, outputs], initializer=tf.initializers.he_normal(seed=seed))
        b = tf.get_variable("b", [outputs], initializer=tf.zeros_initializer())
        found = tf.nn.bias_add(tf.matmul(x, w), b)
        return found if activation is None else activation(found)


def generator(noise):
    with tf.variable_scope("generator"):
        return dense(dense(noise, HIDDEN, "hidden", 1, tf.nn.relu), SIZE, "points", 2)


def discriminator(points):
    with tf.variable_scope("discriminator", reuse=tf.AUTO_REUSE):
        return dense(dense(points, HIDDEN, "hidden", 3, tf.nn.leaky_relu), 1, "logits", 4)


def build():
    real = tf.placeholder(tf.float32, [None, SIZE])
    noise = tf.placeholder(tf.float32, [None, NOISE])
    made = generator(noise)
    of_real, of_made = discriminator(real), discriminator(made)

    def cross_entropy(logits, label):
        return tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=label * tf.ones_like(logits))
        )

    d_loss = cross_entropy(of_real, 0.9) + cross_entropy(of_made, 0.0)
    g_loss = cross_entropy(of_made, 1.0)
    d_variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="discriminator")
    g_variables = tf.trainable_variables("generator")
    d_step = tf.train.AdamOptimizer(1e-3, beta1=0.5).minimize(d_loss, var_list=d_variables)
    g_step = tf.train.AdamOptimizer(1e-3, beta1=0.5).minimize(g_loss, var_list=g_variables)
    return real, noise, made, (d_loss, d_step), (g_loss, g_step)


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    real, noise, made, (d_loss, d_step), (g_loss, g_step) = build()

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            _, of_d = sess.run([d_step, d_loss], {real: ring(BATCH, rng), noise: rng.randn(BATCH, NOISE)})
            _, of_g = sess.run([g_step, g_loss], {noise: rng.randn(BATCH, NOISE)})
            losses.append(float(of_d + of_g))
        points = sess.run(made, {noise: rng.randn(500, NOISE)})
        print(f"mean distance from the middle: {np.linalg.norm(points, axis=1).mean():.2f}")
    return losses


if __name__ == "__main__":
    train(3000)
