"""A convolutional network for images of the size of MNIST's, which are generated here."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


def bars(count, rng):
    """Images with one bright bar, whose direction and place are the class, of four, and the class."""
    labels = rng.randint(4, size=count)
    images = 0.3 * rng.randn(count, 28, 28, 1)
    for image, label in zip(images, labels):
        place = 7 + 14 * (label % 2) + rng.randint(-3, 4)
        if label < 2:
            image[place] += 1
        else:
            image[:, place] += 1
    return images.astype(np.float32), labels.astype(np.int64)


def convolution(name, x, inputs, outputs, seed):
    with tf.variable_scope(name):
        kernel = tf.get_variable(
            "kernel", [5, 5, inputs, outputs], initializer=tf.truncated_normal_initializer(stddev=0.1, seed=seed)
        )
        bias = tf.get_variable("bias", [outputs], initializer=tf.constant_initializer(0.1))
        found = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME"), bias))
        return tf.nn.max_pool(found, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")


def train(steps=100, batch=16):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [None, 28, 28, 1])
    y = tf.placeholder(tf.int64, [None])
    first = convolution("first", x, 1, 8, seed=1)
    second = convolution("second", first, 8, 16, seed=2)
    flat = tf.reshape(second, [-1, 7 * 7 * 16])
    with tf.variable_scope("classes"):
        weights = tf.get_variable("weights", [7 * 7 * 16, 4], initializer=tf.glorot_uniform_initializer(seed=3))
        biases = tf.get_variable("biases", [4], initializer=tf.zeros_initializer())
    logits = tf.nn.xw_plus_b(flat, weights, biases)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=logits)
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.02, global_step, 50, 0.5, staircase=True)
    step = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=global_step)
    accuracy = tf.reduce_mean(tf.cast(tf.nn.in_top_k(logits, y, 1), tf.float32))

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            images, labels = bars(batch, rng)
            _, value = sess.run([step, loss], feed_dict={x: images, y: labels})
            losses.append(float(value))
        images, labels = bars(100, rng)
        right = accuracy.eval({x: images, y: labels})
        print(f"accuracy {right:.2f} after {sess.run(global_step)} steps")
    return losses


if __name__ == "__main__":
    train()
