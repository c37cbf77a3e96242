"""A network that draws pictures in the style of another one: perceptual losses of a fixed network, Gram matrices."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

SIZE, CHANNELS, BLOCKS, BATCH = 16, 4, 2, 4
STYLE_WEIGHT, SMOOTHNESS_WEIGHT = 5.0, 1e-3


def pictures(count, rng):
    """Pictures of a bright rectangle before a dark ground."""
    found = np.full([count, SIZE, SIZE, 3], -0.5, np.float32)
    for picture in found:
        top, left = rng.randint(SIZE // 2, size=2)
        picture[top : top + SIZE // 2, left : left + SIZE // 2] = rng.uniform(0, 1, 3)
    return found


def stripes():
    """The picture whose style is learnt."""
    rows = np.where(np.arange(SIZE) // 2 % 2, 0.8, -0.8).astype(np.float32)
    return np.broadcast_to(rows[None, :, None, None], [1, SIZE, SIZE, 3])


def instance_norm(x):
    channels = x.get_shape().as_list()[-1]
    mean, variance = tf.nn.moments(x, [1, 2], keep_dims=True)
    shift = tf.get_variable("shift", [channels], initializer=tf.zeros_initializer())
    scale = tf.get_variable("scale", [channels], initializer=tf.ones_initializer())
    return scale * (x - mean) / tf.sqrt(variance + 1e-3) + shift


def conv(x, channels, size, stride, name, relu=True):
    with tf.variable_scope(name):
        shape = [size, size, x.get_shape().as_list()[-1], channels]
        filters = tf.get_variable("filters", shape, initializer=tf.truncated_normal_initializer(stddev=0.1, seed=1))
        x = instance_norm(tf.nn.conv2d(x, filters, [1, stride, stride, 1], "SAME"))
        return tf.nn.relu(x) if relu else x


def residual(x, channels, name):
    with tf.variable_scope(name):
        return x + conv(conv(x, channels, 3, 1, "first"), channels, 3, 1, "second", relu=False)


def deconv(x, channels, size, stride, name):
    with tf.variable_scope(name):
        _, height, width, inputs = x.get_shape().as_list()
        shape = [size, size, channels, inputs]
        filters = tf.get_variable("filters", shape, initializer=tf.truncated_normal_initializer(stddev=0.1, seed=1))
        output = tf.stack([tf.shape(x)[0], height * stride, width * stride, channels])
        x = tf.nn.conv2d_transpose(x, filters, output, [1, stride, stride, 1], "SAME")
        return tf.nn.relu(instance_norm(tf.reshape(x, [-1, height * stride, width * stride, channels])))


def transform(x):
    with tf.variable_scope("transform"):
        x = conv(x, CHANNELS, 9, 1, "conv1")
        x = conv(x, 2 * CHANNELS, 3, 2, "conv2")
        x = conv(x, 4 * CHANNELS, 3, 2, "conv3")
        for number in range(BLOCKS):
            x = residual(x, 4 * CHANNELS, f"block{number}")
        x = deconv(x, 2 * CHANNELS, 3, 2, "deconv1")
        x = deconv(x, CHANNELS, 3, 2, "deconv2")
        return tf.nn.tanh(conv(x, 3, 9, 1, "picture", relu=False))


def features(x):
    """The layers of the fixed network; random filters do for textures."""
    rng, layers = np.random.RandomState(7), []
    for channels in (CHANNELS, 2 * CHANNELS, 4 * CHANNELS):
        inputs = x.get_shape().as_list()[-1]
        filters = rng.randn(3, 3, inputs, channels) * np.sqrt(2 / (9 * inputs))
        x = tf.nn.relu(tf.nn.conv2d(x, tf.constant(filters, tf.float32), [1, 1, 1, 1], "SAME"))
        layers.append(x)
        x = tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    return layers


def gram(layer):
    _, height, width, channels = layer.get_shape().as_list()
    rows = tf.reshape(layer, [-1, height * width, channels])
    return tf.matmul(rows, rows, transpose_a=True) / (height * width * channels)


def build():
    content = tf.placeholder(tf.float32, [None, SIZE, SIZE, 3], name="content")
    made = transform(content)
    of_content, of_made, of_style = features(content), features(made), features(tf.constant(stripes()))
    content_loss = tf.reduce_mean(tf.square(of_made[1] - of_content[1]))
    style_loss = tf.add_n([tf.reduce_mean(tf.square(gram(a) - gram(b))) for a, b in zip(of_made, of_style)])
    down, right = made[:, 1:] - made[:, :-1], made[:, :, 1:] - made[:, :, :-1]
    smoothness = tf.reduce_mean(tf.square(down)) + tf.reduce_mean(tf.square(right))
    loss = content_loss + STYLE_WEIGHT * style_loss + SMOOTHNESS_WEIGHT * smoothness
    step = tf.train.AdamOptimizer(0.001).minimize(loss)
    return content, made, loss, step


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    content, made, loss, step = build()
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            _, value = sess.run([step, loss], {content: pictures(BATCH, rng)})
            losses.append(float(value))
        rows = sess.run(made, {content: pictures(1, rng)})[0].mean(axis=(1, 2))
        print("".join("#" if row > rows.mean() else "." for row in rows))
    return losses


if __name__ == "__main__":
    train(500)
