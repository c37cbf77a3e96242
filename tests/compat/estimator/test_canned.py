"""Canned estimators: training, predictions, metrics, exports and checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf

_rng = np.random.RandomState(0)
XS = _rng.randn(64, 2).astype(np.float32)
SIDES = (XS.sum(1) > 0).astype(np.int64)
X = [tf.feature_column.numeric_column("x", shape=[2])]


def input_fn(labels: Any = SIDES, epochs: int | None = None, **more: Any) -> Any:
    return tf.estimator.inputs.numpy_input_fn(
        {"x": XS, **more}, labels, batch_size=64, num_epochs=epochs, shuffle=False
    )


def config(folder: Path) -> Any:
    return tf.estimator.RunConfig(str(folder), tf_random_seed=1)


class TestClassifiers:
    @pytest.mark.parametrize("kind", ["linear", "deep", "both"])
    def test_two_classes(self, tmp_path: Path, kind: str) -> None:
        settings: dict[str, Any] = {"config": config(tmp_path)}
        if kind == "linear":
            est: Any = tf.estimator.LinearClassifier(X, **settings)
        elif kind == "deep":
            est = tf.estimator.DNNClassifier([8, 4], X, dropout=0.1, batch_norm=True, **settings)
        else:
            est = tf.estimator.DNNLinearCombinedClassifier(
                linear_feature_columns=X, dnn_feature_columns=X, dnn_hidden_units=[4], dnn_optimizer="Adam", **settings
            )
        est.train(input_fn(), steps=20)
        assert est.get_variable_value("global_step") == 20
        found = est.evaluate(input_fn(epochs=1))
        assert sorted(found) == sorted(
            """accuracy accuracy_baseline auc auc_precision_recall average_loss global_step label/mean loss precision
            prediction/mean recall""".split()
        )
        assert found["auc"] > 0.5 and found["label/mean"] == pytest.approx(SIDES.mean())
        assert found["loss"] == pytest.approx(64 * found["average_loss"], rel=1e-5)
        row = next(est.predict(input_fn()))
        assert {name: value.shape for name, value in row.items()} == {
            **dict.fromkeys(("logits", "logistic", "class_ids", "classes"), (1,)),
            **dict.fromkeys(("probabilities", "all_class_ids", "all_classes"), (2,)),
        }
        names = set(est.get_variable_names())
        if kind != "linear":
            assert {"dnn/hiddenlayer_0/kernel", "dnn/logits/bias"} <= names
        if kind != "deep":
            assert {"linear/linear_model/x/weights", "linear/linear_model/bias_weights"} <= names

    def test_names_of_classes_and_weights(self, tmp_path: Path) -> None:
        names = ["a", "b", "c"]
        labels = np.array([names[i % 3] for i in range(64)])
        est = tf.estimator.LinearClassifier(
            X, n_classes=3, label_vocabulary=names, weight_column="w", config=config(tmp_path)
        )
        weights = np.where(labels == "b", 3.0, 0.0).astype(np.float32)
        est.train(input_fn(labels, w=weights), steps=20)
        found = est.evaluate(input_fn(labels, 1, w=weights))
        assert found.keys() == {"accuracy", "average_loss", "loss", "global_step"} and found["accuracy"] == 1
        row = next(est.predict(input_fn(labels)))
        assert row["classes"].tolist() == [b"b"] and row["all_classes"].tolist() == [b"a", b"b", b"c"]

    def test_untrained_model_knows_nothing(self, tmp_path: Path) -> None:
        found = tf.estimator.LinearClassifier(X, config=config(tmp_path)).evaluate(input_fn(epochs=1))
        assert found["average_loss"] == pytest.approx(np.log(2)) and found["prediction/mean"] == 0.5

    def test_exports_classify_examples(self, tmp_path: Path) -> None:
        est = tf.estimator.DNNClassifier([4], X, config=config(tmp_path)).train(input_fn(), steps=1)
        spec = tf.feature_column.make_parse_example_spec(X)
        receive = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
        model = aexec.load_saved_model(os.fsdecode(est.export_saved_model(tmp_path / "export", receive)))
        assert sorted(model.signatures) == ["classification", "predict", "regression", "serving_default"]
        assert model.signatures["serving_default"].method_name == "tensorflow/serving/classify"

    @pytest.mark.parametrize(
        ("labels", "words"), [(SIDES + 1, "Labels must be <= n_classes - 1"), (SIDES - 1, "Labels must be >= 0")]
    )
    def test_labels_of_no_class_end_it(self, tmp_path: Path, labels: Any, words: str) -> None:
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            tf.estimator.LinearClassifier(X, config=config(tmp_path)).train(input_fn(labels), steps=1)

    def test_wrong_labels_are_refused(self, tmp_path: Path) -> None:
        est = tf.estimator.LinearClassifier(X, config=config(tmp_path))
        with pytest.raises(ValueError, match="You must provide a labels Tensor"):
            est.train(input_fn(None))
        with pytest.raises(ValueError, match="Mismatched label shape"):
            est.train(input_fn(XS))


class TestRegressors:
    def test_one_step_of_gradient_descent(self, tmp_path: Path) -> None:
        """The loss that a step reduces is the sum over the batch."""
        ys = XS @ np.array([2.0, -1.0], np.float32) + 3
        descent = tf.train.GradientDescentOptimizer
        est = tf.estimator.LinearRegressor(X, optimizer=lambda: descent(0.001), config=config(tmp_path))
        est.train(input_fn(ys), steps=1)
        found = est.get_variable_value("linear/linear_model/x/weights")
        np.testing.assert_allclose(found[:, 0], 0.002 * (ys @ XS), rtol=1e-4)
        result = est.evaluate(input_fn(ys, 1))
        assert result.keys() == {"average_loss", "label/mean", "loss", "prediction/mean", "global_step"}

    def test_several_numbers(self, tmp_path: Path) -> None:
        est = tf.estimator.DNNRegressor([4], X, label_dimension=2, optimizer="Adam", config=config(tmp_path))
        est.train(input_fn(XS), steps=3)
        assert next(est.predict(input_fn()))["predictions"].shape == (2,)

    def test_both_parts(self, tmp_path: Path) -> None:
        est = tf.estimator.DNNLinearCombinedRegressor(
            config=config(tmp_path), linear_feature_columns=X, dnn_feature_columns=X, dnn_hidden_units=[4]
        )
        est.train(input_fn(XS[:, 0]), steps=2)
        assert est.get_variable_value("global_step") == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tf.estimator.LinearClassifier(X, n_classes=1), "n_classes must be > 1"),
        (lambda: tf.estimator.LinearClassifier(X, label_vocabulary=["a"]), "Length of label_vocabulary"),
        (lambda: tf.estimator.LinearRegressor(X, label_dimension=0), "Invalid label_dimension 0"),
        (lambda: tf.estimator.LinearRegressor(X, loss_reduction="none"), "Invalid loss_reduction: none"),
        (lambda: tf.estimator.LinearRegressor(X, weight_column=7), "Weight column must be numeric column"),
        (lambda: tf.estimator.DNNLinearCombinedRegressor(), "Either linear_feature_columns or dnn_feature_columns"),
        (
            lambda: tf.estimator.DNNLinearCombinedRegressor(dnn_feature_columns=X),
            "dnn_hidden_units must be defined when dnn_feature_columns is specified",
        ),
        (lambda: tf.estimator.LinearRegressor(X, optimizer="Best").train(input_fn()), "Unsupported optimizer name"),
        (lambda: tf.estimator.LinearRegressor(X, optimizer=7).train(input_fn()), "not an Optimizer instance"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()
