"""Two datasets for one model: an iterator that each run points at the training set or at the validation set."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


def make_data(rng, count):
    """Points in two rings, and the number of the ring."""
    labels = rng.randint(0, 2, count)
    angles = rng.uniform(0, 2 * np.pi, count)
    radius = 1 + labels + 0.1 * rng.randn(count)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    return {"point": points.astype(np.float32), "label": labels.astype(np.int64)}


def train(steps=100):
    tf.reset_default_graph()
    tf.set_random_seed(1)
    rng = np.random.RandomState(0)

    training = tf.data.Dataset.from_tensor_slices(make_data(rng, 400)).shuffle(400, seed=2).repeat().batch(32)
    validation = tf.data.Dataset.from_tensor_slices(make_data(rng, 100)).batch(50)
    training = training.prefetch(2)

    handle = tf.placeholder(tf.string, [])
    iterator = tf.data.Iterator.from_string_handle(
        handle, tf.data.get_output_types(training), tf.data.get_output_shapes(training)
    )
    batch = iterator.get_next()
    of_training = tf.data.make_one_shot_iterator(training)
    of_validation = tf.data.make_initializable_iterator(validation)

    init = tf.glorot_uniform_initializer(seed=3)
    w1 = tf.get_variable("w1", [2, 16], initializer=init)
    b1 = tf.get_variable("b1", [16], initializer=tf.zeros_initializer())
    w2 = tf.get_variable("w2", [16, 2], initializer=init)
    b2 = tf.get_variable("b2", [2], initializer=tf.zeros_initializer())
    logits = tf.matmul(tf.nn.relu(tf.matmul(batch["point"], w1) + b1), w2) + b2
    loss = tf.losses.sparse_softmax_cross_entropy(batch["label"], logits)
    right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1), batch["label"]), tf.int32))
    step = tf.train.AdamOptimizer(0.05).minimize(loss)

    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        train_handle, validation_handle = sess.run([of_training.string_handle(), of_validation.string_handle()])
        for number in range(steps):
            value, _ = sess.run([loss, step], feed_dict={handle: train_handle})
            losses.append(float(value))
            if number % 50 == 49:
                sess.run(of_validation.initializer)
                correct = 0
                try:
                    while True:
                        correct += sess.run(right, feed_dict={handle: validation_handle})
                except tf.errors.OutOfRangeError:
                    print(f"step {number + 1}: {correct} of 100 right")
    return losses


if __name__ == "__main__":
    train()
