"""Input by queues: a thread of the program fills one, runners batch it, and a coordinator stops them all."""

import threading

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    features = rng.randn(256, 8).astype(np.float32)
    targets = features.dot(np.arange(8, dtype=np.float32)[:, None])

    # What the thread puts is batched by a runner of the graph.
    examples = tf.FIFOQueue(64, [tf.float32, tf.float32], shapes=[[8], [1]], name="examples")
    x_in = tf.placeholder(tf.float32, [8])
    y_in = tf.placeholder(tf.float32, [1])
    put = examples.enqueue([x_in, y_in])
    end = examples.close()
    x, y = tf.train.batch(examples.dequeue(), batch_size=16, capacity=64)

    weights = tf.get_variable("weights", [8, 1], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(y, tf.matmul(x, weights))
    step = tf.train.GradientDescentOptimizer(0.05).minimize(loss)

    losses = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()

        def feed():
            with coord.stop_on_exception():
                for index in range(16 * steps):
                    if coord.should_stop():
                        return
                    row = index % len(features)
                    sess.run(put, {x_in: features[row], y_in: targets[row]})
                sess.run(end)

        feeder = threading.Thread(target=feed)
        feeder.start()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        try:
            while not coord.should_stop():
                _, value = sess.run([step, loss])
                losses.append(float(value))
        except tf.errors.OutOfRangeError:
            print(f"input ended after {len(losses)} steps")
        finally:
            coord.request_stop()
        coord.join([feeder, *threads])
    return losses


if __name__ == "__main__":
    train()
