"""Images in TFRecord files: written, then read by turns, parsed, mirrored, shuffled and batched for a network."""

import os
import shutil
import tempfile

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

SIZE = 8


def write_files(folder, rng, files=3, count=40):
    """Images with a bright row or a bright column, and which of them it is."""
    for number in range(files):
        with tf.python_io.TFRecordWriter(os.path.join(folder, f"images-{number}.tfrecord")) as writer:
            for _ in range(count):
                label = rng.randint(2)
                image = rng.randint(0, 100, (SIZE, SIZE))
                place = rng.randint(SIZE)
                if label:
                    image[place, :] += 150
                else:
                    image[:, place] += 150
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.astype(np.uint8).tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def parse(record):
    features = {"image": tf.FixedLenFeature([], tf.string), "label": tf.FixedLenFeature([], tf.int64)}
    parsed = tf.parse_single_example(record, features)
    pixels = tf.reshape(tf.decode_raw(parsed["image"], tf.uint8), [SIZE, SIZE, 1])
    return tf.cast(pixels, tf.float32) / 255.0 - 0.5, parsed["label"]


def mirror(image, label):
    return tf.cond(tf.random_uniform([], seed=5) < 0.5, lambda: image[:, ::-1], lambda: image), label


def input_of(folder, batch_size):
    files = tf.data.Dataset.list_files(os.path.join(folder, "*.tfrecord"), shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=4)
    images = records.map(parse, num_parallel_calls=2).cache().map(mirror)
    return images.shuffle(64, seed=4).repeat().batch(batch_size, drop_remainder=True).prefetch(1)


def train(steps=100):
    tf.reset_default_graph()
    tf.set_random_seed(1)
    folder = tempfile.mkdtemp()
    try:
        write_files(folder, np.random.RandomState(0))
        images, labels = tf.data.make_one_shot_iterator(input_of(folder, 16)).get_next()

        init = tf.glorot_uniform_initializer(seed=3)
        filters = tf.get_variable("filters", [3, 3, 1, 6], initializer=init)
        maps = tf.nn.relu(tf.nn.conv2d(images, filters, [1, 1, 1, 1], "VALID"))
        pooled = tf.nn.max_pool(maps, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        flat = tf.reshape(pooled, [-1, 3 * 3 * 6])
        weights = tf.get_variable("weights", [3 * 3 * 6, 2], initializer=init)
        bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
        loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.matmul(flat, weights) + bias)
        step = tf.train.AdamOptimizer(0.01).minimize(loss)

        losses = []
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for _ in range(steps):
                value, _ = sess.run([loss, step])
                losses.append(float(value))
        print(f"loss {losses[0]:.3f}, after {steps} steps {losses[-1]:.3f}")
        return losses
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    train()
