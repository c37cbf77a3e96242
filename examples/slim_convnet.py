"""A convolutional network by slim: arg_scope, batch norm, dropout, weight decay, a decaying rate, then its accuracy."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

slim = tf.contrib.slim
SIZE, CHANNELS, CLASSES, BATCH = 12, 8, 4, 32


def images(count, rng):
    """Noisy squares in one of four quarters."""
    labels = rng.randint(CLASSES, size=count)
    found = 0.5 * rng.randn(count, SIZE, SIZE, 1)
    for image, label in zip(found, labels):
        top, left = 6 * (label // 2) + rng.randint(3), 6 * (label % 2) + rng.randint(3)
        image[top : top + 4, left : left + 4] += 1.0
    return found.astype(np.float32), labels


def arg_scope(weight_decay=0.0005, is_training=True):
    batch_norm_params = {"decay": 0.9, "epsilon": 0.001, "scale": True, "is_training": is_training}
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            weights_initializer=slim.variance_scaling_initializer(),
            weights_regularizer=slim.l2_regularizer(weight_decay),
            activation_fn=tf.nn.relu,
        ),
        slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params=batch_norm_params),
        slim.arg_scope([slim.dropout], is_training=is_training, keep_prob=0.8),
        slim.arg_scope([slim.max_pool2d], padding="SAME") as scope,
    ):
        return scope


def network(inputs, reuse=None, scope="convnet"):
    with tf.variable_scope(scope, "convnet", [inputs], reuse=reuse) as sc:
        end_points_collection = sc.original_name_scope + "_end_points"
        with slim.arg_scope(
            [slim.conv2d, slim.fully_connected, slim.max_pool2d], outputs_collections=end_points_collection
        ):
            net = slim.repeat(inputs, 2, slim.conv2d, CHANNELS, [3, 3], scope="conv1")
            net = slim.max_pool2d(net, [2, 2], scope="pool1")
            net = slim.conv2d(net, 2 * CHANNELS, [3, 3], stride=2, scope="conv2")
            net = slim.flatten(net, scope="flatten")
            net = slim.stack(net, slim.fully_connected, [32, 16], scope="fc")
            net = slim.dropout(net, scope="dropout")
            logits = slim.fully_connected(
                net,
                CLASSES,
                activation_fn=None,
                weights_initializer=tf.truncated_normal_initializer(0.0, 0.04),
                scope="logits",
            )
        end_points = slim.utils.convert_collection_to_dict(end_points_collection)
        end_points["predictions"] = slim.softmax(logits, scope="predictions")
        return logits, end_points


def build():
    inputs = tf.placeholder(tf.float32, [None, SIZE, SIZE, 1], name="inputs")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    global_step = slim.create_global_step()
    with slim.arg_scope(arg_scope()):
        logits, _ = network(inputs)
    with slim.arg_scope(arg_scope(is_training=False)):
        _, end_points = network(inputs, reuse=True)

    one_hot_labels = slim.one_hot_encoding(labels, CLASSES)
    tf.losses.softmax_cross_entropy(one_hot_labels, logits, label_smoothing=0.1)
    total_loss = tf.losses.get_total_loss()
    learning_rate = tf.train.exponential_decay(0.05, global_step, 20, 0.9, staircase=True)
    optimizer = tf.train.MomentumOptimizer(learning_rate, momentum=0.9)
    train_op = slim.learning.create_train_op(total_loss, optimizer, clip_gradient_norm=5.0)
    return inputs, labels, global_step, end_points, train_op


def train(steps=100):
    losses = []
    rng = np.random.RandomState(0)
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        inputs, labels, global_step, end_points, train_op = build()
        accuracy, update = slim.metrics.streaming_accuracy(tf.argmax(end_points["predictions"], 1), labels)
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            for _ in range(steps):
                batch, of = images(BATCH, rng)
                losses.append(float(sess.run(train_op, {inputs: batch, labels: of})))
            batch, of = images(200, rng)
            sess.run(update, {inputs: batch, labels: of})
            print(f"step {sess.run(global_step)}: accuracy {sess.run(accuracy):.2f}")
    return losses


if __name__ == "__main__":
    train(200)
