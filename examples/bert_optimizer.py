"""A small transformer that fills gaps in sentences, trained by BERT's optimiser: Adam with decayed weights, warm-up."""

import math
import re

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

WORDS, LENGTH, HIDDEN, HEADS, LAYERS, BATCH, MASK = 24, 10, 16, 2, 2, 16, 0


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """A basic Adam optimizer that includes "correct" L2 weight decay."""

    def __init__(
        self,
        learning_rate,
        weight_decay_rate=0.0,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        exclude_from_weight_decay=None,
        name="AdamWeightDecayOptimizer",
    ):
        super().__init__(False, name)
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None or param is None:
                continue
            param_name = self._get_variable_name(param.name)
            m, v = (
                tf.get_variable(
                    name=param_name + suffix,
                    shape=param.shape.as_list(),
                    dtype=tf.float32,
                    trainable=False,
                    initializer=tf.zeros_initializer(),
                )
                for suffix in ("/adam_m", "/adam_v")
            )
            next_m = tf.multiply(self.beta_1, m) + tf.multiply(1.0 - self.beta_1, grad)
            next_v = tf.multiply(self.beta_2, v) + tf.multiply(1.0 - self.beta_2, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + self.epsilon)
            if self._do_use_weight_decay(param_name):
                update += self.weight_decay_rate * param
            next_param = param - self.learning_rate * update
            assignments.extend([param.assign(next_param), m.assign(next_m), v.assign(next_v)])
        return tf.group(*assignments, name=name)

    def _do_use_weight_decay(self, param_name):
        if not self.weight_decay_rate:
            return False
        return not any(re.search(pattern, param_name) for pattern in self.exclude_from_weight_decay or ())

    def _get_variable_name(self, param_name):
        found = re.match("^(.*):\\d+$", param_name)
        return found.group(1) if found is not None else param_name


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps):
    global_step = tf.train.get_or_create_global_step()
    learning_rate = tf.constant(value=init_lr, shape=[], dtype=tf.float32)
    learning_rate = tf.train.polynomial_decay(
        learning_rate, global_step, num_train_steps, end_learning_rate=0.0, power=1.0, cycle=False
    )
    if num_warmup_steps:
        global_steps_int = tf.cast(global_step, tf.int32)
        warmup_steps_int = tf.constant(num_warmup_steps, dtype=tf.int32)
        global_steps_float = tf.cast(global_steps_int, tf.float32)
        warmup_steps_float = tf.cast(warmup_steps_int, tf.float32)
        warmup_learning_rate = init_lr * (global_steps_float / warmup_steps_float)
        is_warmup = tf.cast(global_steps_int < warmup_steps_int, tf.float32)
        learning_rate = (1.0 - is_warmup) * learning_rate + is_warmup * warmup_learning_rate
    optimizer = AdamWeightDecayOptimizer(
        learning_rate=learning_rate,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )
    tvars = tf.trainable_variables()
    grads = tf.gradients(loss, tvars)
    (grads, _) = tf.clip_by_global_norm(grads, clip_norm=1.0)
    train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
    # The learning rate reads the step; counting only after the update keeps TensorFlow from reading it too late.
    with tf.control_dependencies([train_op]):
        new_global_step = global_step + 1
        return tf.group(train_op, [global_step.assign(new_global_step)])


def gelu(input_tensor):
    return input_tensor * 0.5 * (1.0 + tf.erf(input_tensor / tf.sqrt(2.0)))


def create_initializer(initializer_range=0.1):
    return tf.truncated_normal_initializer(stddev=initializer_range)


def layer_norm(input_tensor, name=None):
    return tf.contrib.layers.layer_norm(inputs=input_tensor, begin_norm_axis=-1, begin_params_axis=-1, scope=name)


def dropout(input_tensor, dropout_prob):
    return tf.nn.dropout(input_tensor, rate=dropout_prob)


def dense(x, units, name, activation=None):
    return tf.layers.dense(x, units, activation=activation, name=name, kernel_initializer=create_initializer())


def attention_layer(tensor, mask):
    size = HIDDEN // HEADS

    def heads(name):
        return tf.transpose(tf.reshape(dense(tensor, HIDDEN, name), [-1, LENGTH, HEADS, size]), [0, 2, 1, 3])

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = tf.multiply(tf.matmul(query, key, transpose_b=True), 1.0 / math.sqrt(float(size)))
    scores += (1.0 - tf.expand_dims(tf.expand_dims(mask, 1), 1)) * -10000.0
    probs = dropout(tf.nn.softmax(scores), 0.1)
    return tf.reshape(tf.transpose(tf.matmul(probs, value), [0, 2, 1, 3]), [-1, LENGTH, HIDDEN])


def transformer(input_ids, input_mask):
    with tf.variable_scope("bert"):
        with tf.variable_scope("embeddings"):
            table = tf.get_variable("word_embeddings", [WORDS, HIDDEN], initializer=create_initializer())
            flat = tf.reshape(input_ids, [-1])
            output = tf.reshape(tf.gather(table, flat), [-1, LENGTH, HIDDEN])
            position = tf.get_variable("position_embeddings", [2 * LENGTH, HIDDEN], initializer=create_initializer())
            output += tf.reshape(tf.slice(position, [0, 0], [LENGTH, -1]), [1, LENGTH, HIDDEN])
            output = dropout(layer_norm(output), 0.1)
        with tf.variable_scope("encoder"):
            for layer in range(LAYERS):
                with tf.variable_scope(f"layer_{layer}"):
                    with tf.variable_scope("attention"):
                        with tf.variable_scope("self"):
                            attended = attention_layer(output, input_mask)
                        with tf.variable_scope("output"):
                            attended = layer_norm(dropout(dense(attended, HIDDEN, "dense"), 0.1) + output)
                    with tf.variable_scope("intermediate"):
                        between = dense(attended, 2 * HIDDEN, "dense", gelu)
                    with tf.variable_scope("output"):
                        output = layer_norm(dropout(dense(between, HIDDEN, "dense"), 0.1) + attended)
    return output, table


def masked_lm_loss(output, table, positions, label_ids, label_weights):
    flat_offsets = tf.reshape(tf.range(0, BATCH, dtype=tf.int32) * LENGTH, [-1, 1])
    flat_positions = tf.reshape(positions + flat_offsets, [-1])
    gathered = tf.gather(tf.reshape(output, [BATCH * LENGTH, HIDDEN]), flat_positions)
    with tf.variable_scope("cls/predictions"):
        with tf.variable_scope("transform"):
            gathered = layer_norm(dense(gathered, HIDDEN, "dense", gelu))
        output_bias = tf.get_variable("output_bias", shape=[WORDS], initializer=tf.zeros_initializer())
        logits = tf.nn.bias_add(tf.matmul(gathered, table, transpose_b=True), output_bias)
        log_probs = tf.nn.log_softmax(logits, axis=-1)
        one_hot_labels = tf.one_hot(tf.reshape(label_ids, [-1]), depth=WORDS, dtype=tf.float32)
        per_example_loss = -tf.reduce_sum(log_probs * one_hot_labels, axis=[-1])
        weights = tf.reshape(label_weights, [-1])
        return tf.reduce_sum(weights * per_example_loss) / (tf.reduce_sum(weights) + 1e-5)


def sentences(rng):
    """Words count upwards from a random one; two of each sentence are hidden, and short ones end early."""
    ids = 1 + (rng.randint(WORDS - 1, size=[BATCH, 1]) + np.arange(LENGTH)) % (WORDS - 1)
    lengths = rng.randint(4, LENGTH + 1, size=[BATCH, 1])
    mask = (np.arange(LENGTH) < lengths).astype(np.float32)
    positions = np.stack([rng.permutation(4)[:2] for _ in range(BATCH)])
    rows = np.arange(BATCH)[:, None]
    labels, weights = ids[rows, positions], np.where(rng.rand(BATCH, 2) < 0.9, 1.0, 0.0)
    ids[rows, positions] = MASK
    return ids, mask, positions, labels, weights


def train(steps=100):
    rng = np.random.RandomState(0)
    losses = []
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        input_ids = tf.placeholder(tf.int32, [BATCH, LENGTH], name="input_ids")
        input_mask = tf.placeholder(tf.float32, [BATCH, LENGTH], name="input_mask")
        positions = tf.placeholder(tf.int32, [BATCH, 2], name="masked_lm_positions")
        label_ids = tf.placeholder(tf.int32, [BATCH, 2], name="masked_lm_ids")
        label_weights = tf.placeholder(tf.float32, [BATCH, 2], name="masked_lm_weights")
        output, table = transformer(input_ids, input_mask)
        loss = masked_lm_loss(output, table, positions, label_ids, label_weights)
        train_op = create_optimizer(loss, init_lr=0.02, num_train_steps=400, num_warmup_steps=20)
        keys = [input_ids, input_mask, positions, label_ids, label_weights]
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for _ in range(steps):
                _, value = sess.run([train_op, loss], feed_dict=dict(zip(keys, sentences(rng))))
                losses.append(float(value))
            print(f"step {sess.run(tf.train.get_global_step())}: loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    train(400)
