"""A variational autoencoder: distributions, a reparameterised sample, the evidence lower bound."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

tfd = tf.distributions
PIXELS, HIDDEN, LATENT, BATCH = 36, 32, 2, 32


def blobs(count, rng):
    """Images of one square at a random place."""
    images = np.zeros([count, 6, 6], np.float32)
    for image, top, left in zip(images, rng.randint(4, size=count), rng.randint(4, size=count)):
        image[top : top + 3, left : left + 3] = 1.0
    return images.reshape(count, PIXELS)


def make_encoder(data, code_size):
    x = tf.layers.dense(data, HIDDEN, tf.nn.softplus, kernel_initializer=tf.glorot_normal_initializer())
    loc = tf.layers.dense(x, code_size)
    scale = tf.layers.dense(x, code_size, tf.nn.softplus)
    return tfd.Normal(loc, scale + 1e-3)


def make_prior(code_size):
    return tfd.Normal(tf.zeros(code_size), tf.ones(code_size))


def make_decoder(code):
    x = tf.layers.dense(code, HIDDEN, tf.nn.softplus, kernel_initializer=tf.glorot_normal_initializer())
    return tfd.Bernoulli(logits=tf.layers.dense(x, PIXELS))


def build():
    data = tf.placeholder(tf.float32, [None, PIXELS], name="data")
    decode = tf.make_template("decoder", make_decoder)
    encode = tf.make_template("encoder", make_encoder, code_size=LATENT)
    prior = make_prior(LATENT)
    posterior = encode(data)
    code = posterior.sample()
    likelihood = tf.reduce_sum(decode(code).log_prob(data), axis=-1)
    divergence = tf.reduce_sum(tfd.kl_divergence(posterior, prior), axis=-1)
    elbo = tf.reduce_mean(likelihood - divergence)
    samples = tf.cast(decode(prior.sample(4)).mean() > 0.5, tf.int32)
    global_step = tf.train.create_global_step()
    rate = tf.train.cosine_decay(0.01, global_step, 1000, alpha=0.1)
    optimizer = tf.train.AdamOptimizer(rate)
    grads_and_vars = [(tf.clip_by_norm(g, 10.0), v) for g, v in optimizer.compute_gradients(-elbo) if g is not None]
    optimize = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
    return data, elbo, samples, optimize


def train(steps=100):
    rng = np.random.RandomState(0)
    losses = []
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        data, elbo, samples, optimize = build()
        with tf.train.MonitoredSession() as sess:
            for _ in range(steps):
                _, value = sess.run([optimize, elbo], feed_dict={data: blobs(BATCH, rng)})
                losses.append(float(-value))
            print(sess.run(samples)[0].reshape(6, 6))
    return losses


if __name__ == "__main__":
    train(1000)
