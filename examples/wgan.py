"""A Wasserstein GAN with a gradient penalty: a critic that takes several steps for each one of the generator."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

NOISE, SIZE, HIDDEN, BATCH, CRITIC_STEPS, PENALTY = 4, 2, 32, 64, 5, 10.0


def ring(count, rng):
    angles = rng.uniform(0, 2 * np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def linear(x, outputs, name, seed):
    with tf.variable_scope(name):
        inputs = x.get_shape().as_list()[-1]
        w = tf.get_variable("w", [inputs, outputs], initializer=tf.initializers.he_normal(seed=seed))
        b = tf.get_variable("b", [outputs], initializer=tf.zeros_initializer())
        return tf.nn.xw_plus_b(x, w, b)


def generator(noise):
    with tf.variable_scope("generator"):
        return linear(tf.nn.relu(linear(noise, HIDDEN, "hidden", 1)), SIZE, "points", 2)


def critic(points):
    with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
        first = tf.nn.leaky_relu(linear(points, HIDDEN, "first", 3))
        second = tf.nn.leaky_relu(linear(first, HIDDEN, "second", 4))
        return linear(second, 1, "score", 5)


def build():
    real = tf.placeholder(tf.float32, [None, SIZE], name="real")
    noise = tf.placeholder(tf.float32, [None, NOISE], name="noise")
    made = generator(noise)
    of_made = critic(made)
    distance = tf.reduce_mean(critic(real)) - tf.reduce_mean(of_made)

    alpha = tf.random_uniform([tf.shape(real)[0], 1], seed=6)
    between = real + alpha * (made - real)
    (slope,) = tf.gradients(critic(between), [between])
    norm = tf.sqrt(tf.reduce_sum(tf.square(slope), axis=1) + 1e-12)
    critic_loss = PENALTY * tf.reduce_mean(tf.square(norm - 1.0)) - distance
    generator_loss = -tf.reduce_mean(of_made)

    critic_step = tf.train.AdamOptimizer(1e-3, beta1=0.5, beta2=0.9).minimize(
        critic_loss, var_list=tf.trainable_variables("critic")
    )
    generator_step = tf.train.AdamOptimizer(1e-3, beta1=0.5, beta2=0.9).minimize(
        generator_loss, var_list=tf.trainable_variables("generator")
    )
    return real, noise, made, (critic_loss, critic_step), (generator_loss, generator_step)


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    real, noise, made, (critic_loss, critic_step), (generator_loss, generator_step) = build()
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            for _ in range(CRITIC_STEPS):
                feed = {real: ring(BATCH, rng), noise: rng.randn(BATCH, NOISE)}
                _, of_critic = sess.run([critic_step, critic_loss], feed)
            sess.run([generator_step, generator_loss], {noise: rng.randn(BATCH, NOISE)})
            losses.append(float(of_critic))
        points = sess.run(made, {noise: rng.randn(500, NOISE)})
        print(f"mean distance from the middle: {np.linalg.norm(points, axis=1).mean():.2f}")
    return losses


if __name__ == "__main__":
    train(1000)
