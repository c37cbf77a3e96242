"""A classifier in a MonitoredTrainingSession: its own hooks, checkpoints, events, a second run that resumes."""

import tempfile

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

tf.flags.DEFINE_string("model_dir", None, "Folder of checkpoints and events; by default a temporary one.")
tf.flags.DEFINE_float("base_rate", 0.1, "Initial learning rate.")
tf.flags.DEFINE_integer("max_steps", 400, "Steps.")
tf.flags.DEFINE_bool("use_averages", True, "Whether to keep moving averages of the variables.")
FLAGS = tf.flags.FLAGS


class LossHistoryHook(tf.train.SessionRunHook):
    """Keeps the loss of each step."""

    def __init__(self, loss):
        self._loss = loss
        self.history = []

    def begin(self):
        self._global_step_tensor = tf.train.get_global_step()
        if self._global_step_tensor is None:
            raise RuntimeError("A global step is needed.")

    def after_create_session(self, session, coord):
        tf.logging.info("starts at step %d", session.run(self._global_step_tensor))

    def before_run(self, run_context):
        return tf.train.SessionRunArgs({"loss": self._loss, "step": self._global_step_tensor})

    def after_run(self, run_context, run_values):
        self.history.append(float(run_values.results["loss"]))

    def end(self, session):
        tf.logging.info("ended at step %d", session.run(self._global_step_tensor))


def input_fn(batch_size=32):
    """Points of two spirals, in queues of the graph."""
    rng = np.random.RandomState(0)
    labels = rng.randint(2, size=1000)
    angle = rng.uniform(0.5, 3 * np.pi, 1000)
    points = np.stack([angle * np.cos(angle + np.pi * labels), angle * np.sin(angle + np.pi * labels)], 1)
    data = (points / 8.0).astype(np.float32), labels.astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(1000, seed=1).repeat().batch(batch_size)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def model_fn(points, labels):
    net = points
    for index, units in enumerate((32, 32)):
        with tf.variable_scope(f"hidden{index}"):
            weights = tf.get_variable(
                "weights", [net.shape[1].value, units], initializer=tf.glorot_uniform_initializer(seed=index)
            )
            biases = tf.get_variable("biases", [units], initializer=tf.constant_initializer(0.1))
            net = tf.nn.relu(tf.nn.xw_plus_b(net, weights, biases))
            tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, 1e-4 * tf.nn.l2_loss(weights))
    logits = tf.layers.dense(net, 2, kernel_initializer=tf.initializers.he_uniform(seed=7), name="logits")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    total = tf.add_n([loss, *tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)], name="total_loss")
    correct = tf.nn.in_top_k(logits, labels, 1)
    return total, tf.reduce_mean(tf.cast(correct, tf.float32), name="accuracy")


def run(model_dir, last_step):
    """Steps up to the last one, from the newest checkpoint of the folder; their losses."""
    with tf.Graph().as_default():
        global_step = tf.train.get_or_create_global_step()
        loss, accuracy = model_fn(*input_fn())
        rate = tf.train.piecewise_constant(global_step, [200, 300], [FLAGS.base_rate, 0.05, 0.01])
        optimizer = tf.train.AdagradOptimizer(rate)
        train_op = optimizer.minimize(loss, global_step=global_step)
        if FLAGS.use_averages:
            averages = tf.train.ExponentialMovingAverage(0.99, global_step)
            with tf.control_dependencies([train_op]):
                train_op = averages.apply(tf.trainable_variables())
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
        history = LossHistoryHook(loss)
        hooks = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.LoggingTensorHook({"step": global_step, "accuracy": accuracy}, every_n_iter=100),
            tf.train.NanTensorHook(loss),
            tf.train.StepCounterHook(every_n_steps=50),
            history,
        ]
        config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
        with tf.train.MonitoredTrainingSession(
            is_chief=True,
            checkpoint_dir=model_dir,
            hooks=hooks,
            config=config,
            save_checkpoint_secs=None,
            save_checkpoint_steps=50,
            save_summaries_steps=25,
        ) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
    return history.history


def train(steps=100):
    model_dir = FLAGS.model_dir or tempfile.mkdtemp()
    return run(model_dir, steps // 2) + run(model_dir, steps)


def main(argv):
    del argv
    tf.logging.set_verbosity(tf.logging.INFO)
    losses = train(FLAGS.max_steps)
    print(f"losses {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    tf.app.run(main=main)
