"""`tf.estimator.Estimator`: training, evaluation and prediction, their files, and refused arguments."""

from __future__ import annotations

import functools
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from tests.compat.estimator.models import XS, YS, after, estimator, events, input_fn, model_fn


class Counter(tf.train.SessionRunHook):
    def __init__(self) -> None:
        self.steps = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps += 1


class TestTrain:
    def test_steps_are_added_and_max_steps_is_a_goal(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        est = estimator(tmp_path)
        assert est.latest_checkpoint() is None
        assert est.train(input_fn(), steps=3) is est
        est.train(input_fn(), steps=2)
        counter = Counter()
        est.train(input_fn(), hooks=[counter], max_steps=9)
        assert counter.steps == 4 and est.latest_checkpoint() == str(tmp_path / "model.ckpt-9")
        with caplog.at_level(logging.INFO, "tensorflow"):
            est.train(input_fn(), hooks=[counter], max_steps=9)
        assert counter.steps == 4 and "Skipping training since max_steps has already saved." in caplog.text

    def test_variables_are_those_of_gradient_descent(self, tmp_path: Path) -> None:
        est = estimator(tmp_path)
        est.train(input_fn(), steps=5)
        w, b = after(5)
        np.testing.assert_allclose([est.get_variable_value("w"), est.get_variable_value("b")], [w, b], rtol=1e-5)
        assert est.get_variable_names() == ["b", "global_step", "w"]
        assert est.get_variable_value("global_step") == 5

    def test_end_of_input_ends_it(self, tmp_path: Path) -> None:
        est = estimator(tmp_path)
        est.train(input_fn(epochs=3))
        assert est.get_variable_value("global_step") == 6
        est.train(input_fn(epochs=1), steps=100)
        assert est.get_variable_value("global_step") == 8

    def test_checkpoints_are_kept_as_the_configuration_says(self, tmp_path: Path) -> None:
        est = estimator(tmp_path, save_checkpoints_steps=2, keep_checkpoint_max=3)
        est.train(input_fn(), steps=9)
        assert sorted(path.name for path in tmp_path.glob("*.index")) == [
            f"model.ckpt-{step}.index" for step in (6, 8, 9)
        ]
        assert '"model.ckpt-9"' in (tmp_path / "checkpoint").read_text()  # so that the folder may be moved
        assert (tmp_path / "graph.pbtxt").exists()

    def test_no_checkpoints(self, tmp_path: Path) -> None:
        est = estimator(tmp_path, save_checkpoints_steps=None, save_checkpoints_secs=None)
        est.train(input_fn(), steps=1)
        assert est.latest_checkpoint() is None
        with pytest.raises(ValueError, match="There should be a CheckpointSaverHook"):
            est.train(input_fn(), steps=1, saving_listeners=[tf.train.CheckpointSaverListener()])

    def test_summaries_and_speed_are_events(self, tmp_path: Path) -> None:
        est = estimator(tmp_path, save_summary_steps=2, log_step_count_steps=3)
        est.train(input_fn(), steps=7)
        tags = {(value.tag, event.step) for event in events(tmp_path) for value in event.summary.value}
        assert {("loss", 1), ("loss", 3), ("loss", 5), ("loss", 7)} <= tags
        assert any(tag == "global_step/sec" for tag, _ in tags)

    def test_loss_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "tensorflow"):
            estimator(tmp_path, log_step_count_steps=2).train(input_fn(), steps=2)
        for words in ("Calling model_fn.", "Done calling model_fn.", "loss = ", "step = ", "Loss for final step: "):
            assert words in caplog.text

    def test_listeners_are_told_also_by_a_hook_of_the_program(self, tmp_path: Path) -> None:
        saved = []

        class Listener(tf.train.CheckpointSaverListener):
            def after_save(self, session: Any, global_step_value: Any) -> None:
                saved.append(global_step_value)

        own = tf.train.CheckpointSaverHook(str(tmp_path / "own"), save_steps=2)
        estimator(tmp_path).train(input_fn(), hooks=[own], steps=3, saving_listeners=[Listener()])
        assert saved == [0, 2, 3] and not list(tmp_path.glob("*.index")) and list(tmp_path.glob("own/*.index"))

    def test_nan_loss_ends_it(self, tmp_path: Path) -> None:
        bad = tf.estimator.inputs.numpy_input_fn({"x": XS * np.nan}, YS, shuffle=False)
        with pytest.raises(tf.train.NanLossDuringTrainingError):
            estimator(tmp_path).train(bad)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"steps": 1, "max_steps": 1}, "Can not provide both steps and max_steps"),
            ({"steps": 0}, "Must specify steps > 0, given: 0"),
            ({"max_steps": -1}, "Must specify max_steps > 0, given: -1"),
            ({"hooks": [7]}, "SessionRunHook"),
            ({"saving_listeners": [7]}, "CheckpointSaverListener"),
        ],
    )
    def test_wrong_arguments_are_refused(self, tmp_path: Path, arguments: Any, words: str) -> None:
        with pytest.raises((ValueError, TypeError), match=words):
            estimator(tmp_path).train(input_fn(), **arguments)

    def test_seed_makes_runs_equal(self, tmp_path: Path) -> None:
        def random_fn(features: Any, labels: Any, mode: str) -> Any:
            w = tf.get_variable("w", [3])
            loss = tf.reduce_sum(w) + 0 * tf.reduce_sum(features["x"])
            train_op = tf.assign_add(tf.train.get_global_step(), 1)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

        found = []
        for number, seed in enumerate((3, 3, 4)):
            est = estimator(tmp_path / str(number), random_fn, tf_random_seed=seed)
            found.append(est.train(input_fn(), steps=1).get_variable_value("w").tolist())
        assert found[0] == found[1] != found[2]


class TestEvaluate:
    def test_metrics_are_of_all_batches(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        est = estimator(tmp_path)
        est.train(input_fn(), steps=4)
        with caplog.at_level(logging.INFO, "tensorflow"):
            found = est.evaluate(input_fn(epochs=1))
        w, b = after(4)
        error = w * XS + b - YS
        assert found["global_step"] == 4
        np.testing.assert_allclose([found["loss"], found["mae"]], [np.mean(error**2), np.mean(abs(error))], rtol=1e-4)
        assert "Saving dict for global step 4: global_step = 4, loss = " in caplog.text
        values = {
            value.tag: (event.step, value) for event in events(tmp_path / "eval") for value in event.summary.value
        }
        assert values.keys() == {"loss", "mae", "checkpoint_path"}
        assert values["loss"][0] == 4 and values["loss"][1].simple_value == found["loss"]
        path = str(tmp_path / "model.ckpt-4").encode()
        assert values["checkpoint_path"][1].tensor.string_val[0] == path

    def test_loss_is_the_mean_of_the_batches(self, tmp_path: Path) -> None:
        """A smaller last batch counts as much as the others."""
        found = estimator(tmp_path).evaluate(input_fn(epochs=1, rows=5))
        squares = (0.5 * XS - YS) ** 2
        np.testing.assert_allclose(found["loss"], (squares[:4].mean() + squares[4]) / 2, rtol=1e-6)

    def test_steps_hooks_names_and_checkpoints(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        est = estimator(tmp_path, save_checkpoints_steps=2)
        est.train(input_fn(), steps=4)
        counter = Counter()
        with caplog.at_level(logging.INFO, "tensorflow"):
            found = est.evaluate(
                input_fn(), steps=3, hooks=[counter], checkpoint_path=str(tmp_path / "model.ckpt-2"), name="old"
            )
        assert counter.steps == 3 and found["global_step"] == 2 and "Evaluation [2/3]" in caplog.text
        assert est.eval_dir("old") == str(tmp_path / "eval_old") and events(tmp_path / "eval_old")
        assert est.eval_dir() == str(tmp_path / "eval")

    def test_untrained_model_has_its_initial_values(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "tensorflow"):
            found = estimator(tmp_path).evaluate(input_fn(epochs=1))
        assert "running initialization to evaluate" in caplog.text and found["global_step"] == 0

    def test_scaffolds_own_local_initializer_leaves_no_metric_out(self, tmp_path: Path) -> None:
        def scaffolded(features: Any, labels: Any, mode: str) -> Any:
            counts = tf.get_local_variable("counts", initializer=1.0)
            return model_fn(features, labels, mode)._replace(
                scaffold=tf.train.Scaffold(local_init_op=counts.initializer)
            )

        assert estimator(tmp_path, scaffolded).evaluate(input_fn(epochs=1)).keys() == {"loss", "mae", "global_step"}

    @pytest.mark.parametrize("name", ["loss", "global_step"])
    def test_names_of_its_own_metrics_are_refused(self, tmp_path: Path, name: str) -> None:
        def named(features: Any, labels: Any, mode: str) -> Any:
            spec = model_fn(features, labels, mode)
            return spec._replace(eval_metric_ops={name: tf.metrics.mean(spec.loss)})

        with pytest.raises(ValueError, match="is not allowed, because Estimator already defines"):
            estimator(tmp_path, named).evaluate(input_fn(epochs=1))

    def test_evaluations_of_a_folder_share_an_event_file(self, tmp_path: Path) -> None:
        """As in TensorFlow: one file per folder and process, until `FileWriterCache.clear()`."""
        est = estimator(tmp_path)
        for _ in range(2):
            est.train(input_fn(), steps=1).evaluate(input_fn(epochs=1))
        assert len(list((tmp_path / "eval").iterdir())) == 1
        losses = [event.step for event in events(tmp_path / "eval") for v in event.summary.value if v.tag == "loss"]
        assert losses == [1, 2]
        shutil.rmtree(tmp_path / "eval")
        est.evaluate(input_fn(epochs=1))
        assert [event.step for event in events(tmp_path / "eval") if event.summary.value] == [2]

    def test_arrays_and_summaries_are_written(self, tmp_path: Path) -> None:
        def more(features: Any, labels: Any, mode: str) -> Any:
            spec = model_fn(features, labels, mode)
            summary = tf.summary.histogram("h", features["x"])
            metrics = {"array": (tf.constant([1.0, 2.0]), tf.no_op()), "histogram": (summary, tf.no_op())}
            return spec._replace(eval_metric_ops=metrics)

        found = estimator(tmp_path, more).evaluate(input_fn(epochs=1), steps=1)
        assert found["array"].tolist() == [1, 2]
        values = {value.tag: value for event in events(tmp_path / "eval") for value in event.summary.value}
        assert values["array"].HasField("tensor") and values["histogram"].HasField("histo")


class TestPredict:
    def test_rows_or_batches(self, tmp_path: Path) -> None:
        est = estimator(tmp_path)
        est.train(input_fn(), steps=2)
        w, b = after(2)
        rows = list(est.predict(input_fn(epochs=1, rows=5)))
        np.testing.assert_allclose([row["y"] for row in rows], w * XS[:5] + b, rtol=1e-5)
        batches = list(est.predict(input_fn(epochs=1, rows=5), ["twice"], yield_single_examples=False))
        assert [list(batch) for batch in batches] == [["twice"], ["twice"]]
        np.testing.assert_allclose(batches[1]["twice"], 2 * (w * XS[4:5] + b), rtol=1e-5)

    def test_caller_keeps_its_graph_while_the_iterator_waits(self, tmp_path: Path) -> None:
        rows = estimator(tmp_path).predict(input_fn())
        graph = tf.get_default_graph()
        assert next(rows)["y"] == 0 and tf.get_default_graph() is graph
        rows.close()

    def test_tensor_alone(self, tmp_path: Path) -> None:
        def alone(features: Any, mode: str) -> Any:
            return tf.estimator.EstimatorSpec(mode, predictions=2 * features)

        data = tf.estimator.inputs.numpy_input_fn(XS[:3], shuffle=False, batch_size=2)
        est = estimator(tmp_path, alone)
        assert list(est.predict(data)) == [0, 2, 4]
        with pytest.raises(ValueError, match="predict_keys argument is not valid in case of non-dict predictions"):
            next(est.predict(data, ["y"]))

    def test_wrong_keys_and_lengths_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="Expected to run at least one output from"):
            next(estimator(tmp_path).predict(input_fn(), ["z"]))

        def uneven(features: Any, mode: str) -> Any:
            return tf.estimator.EstimatorSpec(mode, predictions={"a": features, "b": features[:1]})

        data = tf.estimator.inputs.numpy_input_fn(XS[:3], shuffle=False)
        with pytest.raises(ValueError, match="Batch length of predictions should be same"):
            list(estimator(tmp_path, uneven).predict(data))

    def test_endless_input_is_warned_of(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        rows = estimator(tmp_path).predict(lambda: {"x": tf.constant([1.0])})
        assert next(rows)["y"] == 0.5
        assert "predict yields forever" in caplog.text


class TestFunctions:
    def test_are_called_with_what_they_name(self, tmp_path: Path) -> None:
        seen = {}

        def data(mode: str, params: Any, config: Any) -> Any:
            seen["input"] = mode, params, config.tf_random_seed
            return {"x": tf.constant(XS)}, tf.constant(YS)

        def model(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
            seen["model"] = mode, dict(params), config.model_dir
            params["rate"] = 5  # a copy
            return model_fn(features, labels, mode)

        est = tf.estimator.Estimator(
            model, str(tmp_path), tf.estimator.RunConfig(tf_random_seed=9), params={"rate": 0.1}
        )
        est.evaluate(data, steps=1)
        assert seen == {"input": ("eval", {"rate": 0.1}, 9), "model": ("eval", {"rate": 0.1}, str(tmp_path))}
        assert est.params == {"rate": 0.1}

    def test_may_be_methods_and_partials(self, tmp_path: Path) -> None:
        class Program:
            def model_fn(self, features: Any, labels: Any, mode: str) -> Any:
                return model_fn(features, labels, mode)

            def input_fn(self, count: int, params: Any) -> Any:
                return {"x": tf.constant(XS[:count])}, tf.constant(YS[:count])

        program = Program()
        est = estimator(tmp_path, program.model_fn)
        data = functools.partial(program.input_fn, 2, params=None)
        assert est.evaluate(data, steps=1)["loss"] == np.mean((0.5 * XS[:2] - YS[:2]) ** 2)

    @pytest.mark.parametrize(
        ("model", "params", "words"),
        [
            (lambda x: None, None, "must include features argument"),
            (lambda features: None, {"a": 1}, "does not include params argument"),
            (lambda features, batch: None, None, r"has following not expected args: \['batch'\]"),
        ],
    )
    def test_other_arguments_are_refused(self, tmp_path: Path, model: Any, params: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            tf.estimator.Estimator(model, str(tmp_path), params=params)

    def test_datasets_are_inputs(self, tmp_path: Path) -> None:
        def data() -> Any:
            return tf.data.Dataset.from_tensor_slices(({"x": XS}, YS)).batch(4)

        est = estimator(tmp_path)
        est.train(data)
        assert est.get_variable_value("global_step") == 2
        assert est.evaluate(data)["global_step"] == 2
        assert len(list(est.predict(data))) == 8  # which drops the labels

    def test_tables_are_filled_before_datasets_look_words_up(self, tmp_path: Path) -> None:
        def data() -> Any:
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1.0, 2.0])), 0.0
            )
            return tf.data.Dataset.from_tensor_slices(["a", "b"]).map(table.lookup).batch(2)

        def model(features: Any, mode: str) -> Any:
            return tf.estimator.EstimatorSpec(mode, predictions=features)

        assert list(estimator(tmp_path, model).predict(data)) == [1, 2]

    def test_wrong_results_are_refused(self, tmp_path: Path) -> None:
        est = estimator(tmp_path)
        with pytest.raises(ValueError, match="len 2 tuple"):
            est.train(lambda: (tf.constant(1.0),) * 3)
        with pytest.raises(ValueError, match="model_fn should return an EstimatorSpec"):
            estimator(tmp_path, lambda features: None).train(lambda: tf.constant(1.0))
        with pytest.raises(ValueError, match="does not take labels, but input_fn returns labels"):
            estimator(tmp_path, lambda features: None).train(input_fn())


class TestConstruction:
    def test_folders(self, tmp_path: Path) -> None:
        config = tf.estimator.RunConfig(model_dir=str(tmp_path))
        assert tf.estimator.Estimator(model_fn, config=config).model_dir == str(tmp_path)
        with pytest.raises(ValueError, match="with different values"):
            tf.estimator.Estimator(model_fn, "elsewhere", config)
        assert Path(tf.estimator.Estimator(model_fn).model_dir).is_dir()

    def test_what_is_no_configuration_is_refused(self) -> None:
        with pytest.raises(TypeError, match="config must be an instance of `RunConfig`"):
            tf.estimator.Estimator(model_fn, config={"model_dir": "a"})

    def test_values_of_an_untrained_model_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="Couldn't find trained model at"):
            estimator(tmp_path).get_variable_names()

    @pytest.mark.parametrize("settings", [None, [".*w"]])
    def test_warm_start(self, tmp_path: Path, settings: Any) -> None:
        source = estimator(tmp_path / "old").train(input_fn(), steps=3)
        start: Any = source.latest_checkpoint()
        if settings is not None:
            start = tf.estimator.WarmStartSettings(str(tmp_path / "old"), settings)
        est = tf.estimator.Estimator(model_fn, str(tmp_path / "new"), warm_start_from=start)
        w, b = after(3)
        row = next(est.predict(input_fn()))  # of x = 0
        np.testing.assert_allclose(row["y"], b if settings is None else 0, rtol=1e-5)
        est.train(input_fn(), steps=1)
        assert est.get_variable_value("global_step") == 1
        if settings is None:
            error = w * XS[:4] + b - YS[:4]
            np.testing.assert_allclose(est.get_variable_value("w"), w - 0.02 * np.mean(error * XS[:4]), rtol=1e-5)

    def test_added_metrics(self, tmp_path: Path) -> None:
        def metric_fn(labels: Any) -> Any:
            return {"mean_label": tf.metrics.mean(labels)}

        found = tf.estimator.add_metrics(estimator(tmp_path), metric_fn).evaluate(input_fn(epochs=1))
        assert found["mean_label"] == YS.mean() and "mae" in found


class TestSpec:
    @pytest.mark.parametrize(
        ("mode", "words"), [("train", "Missing loss."), ("eval", "Missing loss."), ("infer", "Missing predictions.")]
    )
    def test_what_a_mode_needs(self, mode: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            tf.estimator.EstimatorSpec(mode)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"train_op": None}, "Missing train_op"),
            ({"train_op": 7}, "train_op must be Operation or Tensor"),
            ({"predictions": {"a": 7}}, r"predictions\[a\] must be Tensor"),
            ({"eval_metric_ops": {"a": 7}}, "tuples, given: 7 for key: a"),
            ({"training_hooks": [7]}, "SessionRunHook"),
            ({"scaffold": 7}, "Scaffold"),
            ({"export_outputs": 7}, "`export_outputs` must be dict"),
        ],
    )
    def test_kinds(self, arguments: Any, words: str) -> None:
        with pytest.raises((ValueError, TypeError), match=words):
            tf.estimator.EstimatorSpec("train", **{"loss": tf.constant(1.0), "train_op": tf.no_op(), **arguments})

    def test_loss_is_a_scalar(self) -> None:
        made = tf.estimator.EstimatorSpec("eval", loss=tf.constant([1.0]))
        assert made.loss.shape.as_list() == [] and made.predictions == {}
        with pytest.raises(ValueError, match="Loss must be scalar"):
            tf.estimator.EstimatorSpec("eval", loss=tf.constant([1.0, 2.0]))
