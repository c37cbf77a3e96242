"""A classifier as a tf.estimator.Estimator: its model_fn, and training, evaluation, predictions and an export."""

import tempfile

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

SPECIES = ["Setosa", "Versicolor", "Virginica"]
COLUMNS = ["SepalLength", "SepalWidth", "PetalLength", "PetalWidth"]


def load_data(rng, count):
    """Flowers of three species, made up around three means: features by name, and labels."""
    means = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
    labels = rng.randint(len(SPECIES), size=count)
    values = (means[labels] + 0.3 * rng.randn(count, len(COLUMNS))).astype(np.float32)
    return dict(zip(COLUMNS, values.T, strict=True)), labels.astype(np.int32)


def train_input_fn(features, labels, batch_size):
    dataset = tf.data.Dataset.from_tensor_slices((dict(features), labels))
    return dataset.shuffle(1000, seed=1).repeat().batch(batch_size)


def my_model(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["feature_columns"])
    for index, units in enumerate(params["hidden_units"]):
        init = tf.glorot_uniform_initializer(seed=index)
        net = tf.layers.dense(net, units=units, activation=tf.nn.relu, kernel_initializer=init)
    init = tf.glorot_uniform_initializer(seed=9)
    logits = tf.layers.dense(net, params["n_classes"], activation=None, kernel_initializer=init)

    predicted_classes = tf.argmax(logits, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {
            "class_ids": predicted_classes[:, tf.newaxis],
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)

    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=predicted_classes, name="acc_op")
    tf.summary.scalar("accuracy", accuracy[1])
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

    optimizer = tf.train.AdagradOptimizer(learning_rate=0.1)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class LossHistoryHook(tf.train.SessionRunHook):
    """Keeps the loss of each step."""

    def __init__(self):
        self.history = []

    def begin(self):
        self._loss = tf.losses.get_losses()[0]

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        self.history.append(float(run_values.results))


def make_classifier(features):
    columns = [tf.feature_column.numeric_column(key=key) for key in features]
    return tf.estimator.Estimator(
        model_fn=my_model,
        model_dir=tempfile.mkdtemp(),
        params={"feature_columns": columns, "hidden_units": [10, 10], "n_classes": 3},
    )


def train(steps=100):
    features, labels = load_data(np.random.RandomState(0), 120)
    history = LossHistoryHook()
    classifier = make_classifier(features)
    classifier.train(input_fn=lambda: train_input_fn(features, labels, 32), hooks=[history], steps=steps)
    return history.history


def main(argv):
    del argv
    rng = np.random.RandomState(0)
    features, labels = load_data(rng, 120)
    classifier = make_classifier(features)
    classifier.train(input_fn=lambda: train_input_fn(features, labels, 32), steps=300)

    test_x, test_y = load_data(rng, 30)
    eval_input_fn = tf.estimator.inputs.numpy_input_fn(test_x, test_y, batch_size=32, shuffle=False)
    result = classifier.evaluate(input_fn=eval_input_fn)
    print("Test set accuracy: {accuracy:0.3f}".format(**result))

    some = {key: value[:3] for key, value in test_x.items()}
    predict_input_fn = tf.estimator.inputs.numpy_input_fn(some, batch_size=3, shuffle=False)
    for prediction, expected in zip(classifier.predict(input_fn=predict_input_fn), test_y, strict=False):
        class_id = prediction["class_ids"][0]
        share = 100 * prediction["probabilities"][class_id]
        print(f'Prediction is "{SPECIES[class_id]}" ({share:.1f}%), expected "{SPECIES[expected]}"')

    receiver = {key: tf.placeholder(tf.float32, [None], name=key) for key in COLUMNS}
    receiver_fn = tf.estimator.export.build_raw_serving_input_receiver_fn(receiver)
    print("Exported to", classifier.export_saved_model(tempfile.mkdtemp(), receiver_fn).decode())


if __name__ == "__main__":
    tf.app.run(main)
