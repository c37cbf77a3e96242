"""A convolutional GAN: images of bars from noise, by transposed convolutions and batch normalisation."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

SIZE, NOISE, BATCH = 8, 8, 16


def bars(count, rng):
    """Images with one bright row or column."""
    images = -np.ones([count, SIZE, SIZE, 1], np.float32)
    for image, place, upright in zip(images, rng.randint(SIZE, size=count), rng.randint(2, size=count)):
        (image.swapaxes(0, 1) if upright else image)[place] = 1.0
    return images


def generator(z, is_training, reuse=False):
    with tf.variable_scope("generator", reuse=reuse):
        init = tf.random_normal_initializer(stddev=0.1)
        x = tf.layers.dense(z, 2 * 2 * 32, kernel_initializer=init)
        x = tf.reshape(x, [-1, 2, 2, 32])
        x = tf.nn.relu(tf.layers.batch_normalization(x, momentum=0.9, training=is_training))
        x = tf.layers.conv2d_transpose(x, 16, 4, strides=2, padding="same", use_bias=False, kernel_initializer=init)
        x = tf.nn.relu(tf.layers.batch_normalization(x, momentum=0.9, training=is_training))
        x = tf.layers.conv2d_transpose(x, 1, 4, strides=2, padding="same", kernel_initializer=init)
        return tf.nn.tanh(x)


def discriminator(images, is_training, reuse=False):
    with tf.variable_scope("discriminator", reuse=reuse):
        init = tf.truncated_normal_initializer(stddev=0.1)
        x = tf.layers.conv2d(
            images, 16, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, kernel_initializer=init
        )
        x = tf.layers.conv2d(x, 32, 4, strides=2, padding="same", kernel_initializer=init)
        x = tf.nn.leaky_relu(tf.layers.batch_normalization(x, momentum=0.9, training=is_training), alpha=0.2)
        logits = tf.layers.dense(tf.layers.flatten(x), 1, kernel_initializer=init)
        return tf.nn.sigmoid(logits), logits


def train(steps=100):
    rng = np.random.RandomState(0)
    tf.reset_default_graph()
    tf.set_random_seed(2)
    real = tf.placeholder(tf.float32, (None, SIZE, SIZE, 1), name="real")
    z = tf.placeholder(tf.float32, (None, NOISE), name="z")
    is_training = tf.placeholder_with_default(False, [], name="is_training")
    fake = generator(z, is_training)
    _, real_logits = discriminator(real, is_training)
    _, fake_logits = discriminator(fake, is_training, reuse=True)

    def cross_entropy(logits, labels):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))

    d_loss = cross_entropy(real_logits, tf.ones_like(real_logits) * 0.9)
    d_loss += cross_entropy(fake_logits, tf.zeros_like(fake_logits))
    g_loss = cross_entropy(fake_logits, tf.ones_like(fake_logits))
    t_vars = tf.trainable_variables()
    d_vars = [var for var in t_vars if var.name.startswith("discriminator")]
    g_vars = [var for var in t_vars if var.name.startswith("generator")]
    update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(update_ops):
        d_train = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(d_loss, var_list=d_vars)
        g_train = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(g_loss, var_list=g_vars)

    losses = []
    with tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))) as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            feed = {real: bars(BATCH, rng), z: rng.uniform(-1, 1, [BATCH, NOISE]), is_training: True}
            _, of_d = sess.run([d_train, d_loss], feed_dict=feed)
            _, of_g = sess.run([g_train, g_loss], feed_dict=feed)
            losses.append(float(of_d + of_g))
        samples = sess.run(fake, {z: rng.uniform(-1, 1, [2, NOISE])})
        print("\n".join("".join("#" if x > 0 else "." for x in row) for row in samples[0, :, :, 0]))
    return losses


if __name__ == "__main__":
    train(1500)
