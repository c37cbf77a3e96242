"""A perceptron of two layers for images of the size of MNIST's, which are generated here, by Adam."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


def digits(count, rng):
    """Noisy images of ten patterns, flat, and which pattern each is, one-hot."""
    patterns = np.random.RandomState(7).rand(10, 784)
    labels = rng.randint(10, size=count)
    images = patterns[labels] + 0.5 * rng.randn(count, 784)
    return images.astype(np.float32), np.eye(10, dtype=np.float32)[labels]


def layer(x, inputs, outputs, seed):
    weights = tf.Variable(tf.truncated_normal([inputs, outputs], stddev=0.05, seed=seed))
    biases = tf.Variable(tf.zeros([outputs]))
    return tf.matmul(x, weights) + biases


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])
    with tf.name_scope("hidden"):
        hidden = tf.nn.relu(layer(x, 784, 256, seed=1))
    with tf.name_scope("logits"):
        logits = layer(hidden, 256, 10, seed=2)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.AdamOptimizer(learning_rate=0.001).minimize(loss)
    correct = tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1))
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            images, labels = digits(128, rng)
            _, value = sess.run([step, loss], {x: images, y: labels})
            losses.append(float(value))
        images, labels = digits(500, rng)
        print(f"accuracy {accuracy.eval({x: images, y: labels}):.3f}")
    return losses


if __name__ == "__main__":
    train()
