"""SavedModels of estimators, and the exporters of `tf.estimator.train_and_evaluate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from tests.compat.estimator.models import after, estimator, input_fn, model_fn

EXPORT = tf.estimator.export


def receive() -> Any:
    x = tf.placeholder(tf.float32, [None], name="x")
    return EXPORT.ServingInputReceiver({"x": x}, {"x": x})


def loaded(folder: Any, inputs: Any, signature: str = "serving_default") -> Any:
    with tf.Graph().as_default(), tf.Session() as sess:
        model = tf.saved_model.load(sess, ["serve"], os.fsdecode(folder))
        found = model.signature_def[signature]
        outputs = {name: info.name for name, info in found.outputs.items()}
        return sess.run(outputs, {found.inputs[name].name: value for name, value in inputs.items()})


class TestExport:
    def test_predictions_are_served_by_default(self, tmp_path: Path) -> None:
        est = estimator(tmp_path).train(input_fn(), steps=2)
        (tmp_path / "words.txt").write_text("a")
        folder = est.export_saved_model(
            str(tmp_path / "export"), receive, assets_extra={"more/words.txt": str(tmp_path / "words.txt")}
        )
        assert isinstance(folder, bytes) and os.path.basename(folder).isdigit()
        assert [path.name for path in (tmp_path / "export").iterdir()] == [os.path.basename(folder).decode()]
        assert Path(os.fsdecode(folder), "assets.extra", "more", "words.txt").read_text() == "a"
        w, b = after(2)
        np.testing.assert_allclose(loaded(folder, {"x": [3.0]})["twice"], [2 * (w * 3 + b)], rtol=1e-5)

    def test_two_exports_of_a_second_have_two_folders(self, tmp_path: Path) -> None:
        est = estimator(tmp_path).train(input_fn(), steps=1)
        first, second = (est.export_savedmodel(tmp_path / "export", receive) for _ in range(2))
        assert first != second

    @pytest.mark.parametrize("arguments", [{}, {"strip_default_attrs": True}])
    def test_attributes_with_default_values_are_stripped_if_asked(self, tmp_path: Path, arguments: Any) -> None:
        est = estimator(tmp_path).train(input_fn(), steps=1)
        folder = os.fsdecode(est.export_savedmodel(tmp_path / "export", receive, **arguments))
        model = aexec.proto.SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes())
        assert model.meta_graphs[0].meta_info_def.stripped_default_attrs is bool(arguments)

    def test_signatures_that_fit(self, tmp_path: Path) -> None:
        def model(features: Any, labels: Any, mode: str) -> Any:
            spec = model_fn(features, labels, mode)
            y = spec.predictions["y"]
            return spec._replace(
                export_outputs={
                    "serving_default": EXPORT.RegressionOutput(y),
                    "names": EXPORT.ClassificationOutput(scores=y, classes=tf.as_string(y)),
                    "predict": EXPORT.PredictOutput(y),
                }
            )

        est = estimator(tmp_path).train(input_fn(), steps=1)
        est = estimator(tmp_path, model)
        spec = {"x": tf.FixedLenFeature([], tf.float32)}
        parsing = EXPORT.build_parsing_serving_input_receiver_fn(spec)
        folder = est.export_saved_model(tmp_path / "export", parsing)
        example = tf.train.Example(
            features=tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[2.0]))})
        )
        given = {"inputs": [example.SerializeToString()]}
        (y,) = loaded(folder, given)["outputs"]
        assert loaded(folder, given, "names")["scores"] == y
        assert loaded(folder, {"examples": given["inputs"]}, "predict")["output"] == y
        raw = EXPORT.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None], name="x")})
        model_of_raw = aexec.load_saved_model(os.fsdecode(est.export_saved_model(tmp_path / "export", raw)))
        assert list(model_of_raw.signatures) == ["predict"]  # others take examples

    def test_alternatives_are_signatures_too(self, tmp_path: Path) -> None:
        def receive_two() -> Any:
            x = tf.placeholder(tf.float32, [None], name="x")
            half = tf.placeholder_with_default(x / 2, [None], name="half")
            return EXPORT.ServingInputReceiver({"x": 2 * half}, x, {"half": {"half": half}})

        est = estimator(tmp_path).train(input_fn(), steps=1)
        folder = est.export_saved_model(tmp_path / "export", receive_two)
        y = loaded(folder, {"input": [4.0]})["y"]
        assert loaded(folder, {"half": [2.0]}, "half:serving_default")["y"] == y

    def test_vocabulary_is_an_asset(self, tmp_path: Path) -> None:
        (tmp_path / "words.txt").write_text("a\nb\n")

        def model(features: Any, mode: str) -> Any:
            table = tf.contrib.lookup.index_table_from_file(str(tmp_path / "words.txt"))
            return tf.estimator.EstimatorSpec(
                mode,
                predictions={"id": table.lookup(features["word"])},
                loss=tf.constant(0.0),
                train_op=tf.assign_add(tf.train.get_global_step(), 1),
            )

        est = estimator(tmp_path / "run", model).train(lambda: {"word": tf.constant(["a"])}, steps=1)
        word = EXPORT.build_raw_serving_input_receiver_fn({"word": tf.placeholder(tf.string, [None], name="word")})
        folder = est.export_saved_model(tmp_path / "export", word)
        (tmp_path / "words.txt").unlink()
        assert loaded(folder, {"word": ["b", "a"]})["id"].tolist() == [1, 0]

    def test_wrong_exports_are_refused(self, tmp_path: Path) -> None:
        est = estimator(tmp_path)
        with pytest.raises(ValueError, match="Couldn't find trained model at"):
            est.export_saved_model(tmp_path, receive)
        with pytest.raises(ValueError, match="An input_receiver_fn must be defined"):
            est.export_saved_model(tmp_path, None)
        with pytest.raises(aexec.errors.UnimplementedError, match="as_text"):
            est.export_saved_model(tmp_path, receive, as_text=True)

    def test_several_outputs_need_a_default(self, tmp_path: Path) -> None:
        def model(features: Any, labels: Any, mode: str) -> Any:
            spec = model_fn(features, labels, mode)
            output = EXPORT.PredictOutput(features["x"])
            return spec._replace(export_outputs={"a": output, "b": output})

        est = estimator(tmp_path, model).train(input_fn(), steps=1)
        with pytest.raises(ValueError, match="none of them is specified as the default"):
            est.export_saved_model(tmp_path / "export", receive)


class TestOutputs:
    def test_kinds(self) -> None:
        with pytest.raises(ValueError, match="Regression output value must be a float32 Tensor"):
            EXPORT.RegressionOutput(tf.constant(1))
        with pytest.raises(ValueError, match="Classification scores must be"):
            EXPORT.ClassificationOutput(scores=tf.constant(1))
        with pytest.raises(ValueError, match="Classification classes must be"):
            EXPORT.ClassificationOutput(classes=tf.constant(1))
        with pytest.raises(ValueError, match="At least one of scores and classes"):
            EXPORT.ClassificationOutput()

    def test_receivers(self) -> None:
        x = tf.placeholder(tf.float32, [None])
        made = EXPORT.ServingInputReceiver(x, x)
        assert made.features == {"feature": x} and made.receiver_tensors == {"input": x}
        assert EXPORT.TensorServingInputReceiver(x, x).features is x
        with pytest.raises(ValueError, match="features must be defined"):
            EXPORT.ServingInputReceiver(None, x)
        with pytest.raises(ValueError, match="receiver_tensors a must be a Tensor"):
            EXPORT.ServingInputReceiver(x, {"a": 7})


class TestTrainAndEvaluate:
    def test_each_checkpoint_is_evaluated_and_exported(self, tmp_path: Path) -> None:
        seen: list[tuple[int, bool]] = []

        class Watching(tf.estimator.Exporter):
            name = "watching"

            def export(
                self,
                estimator: Any,
                export_path: str,
                checkpoint_path: str,
                eval_result: Any,
                is_the_final_export: bool,
            ) -> None:
                assert export_path == str(tmp_path / "export" / "watching")
                seen.append((int(eval_result["global_step"]), is_the_final_export))

        est = estimator(tmp_path, save_checkpoints_steps=2)
        final = tf.estimator.FinalExporter("final", receive)
        found = tf.estimator.train_and_evaluate(
            est,
            tf.estimator.TrainSpec(input_fn(), max_steps=5),
            tf.estimator.EvalSpec(input_fn(epochs=1), exporters=[Watching(), final], throttle_secs=0),
        )
        assert found is not None and found[0] is not None
        assert found[0]["global_step"] == 5 and found[1][0] is None and isinstance(found[1][1], bytes)
        assert seen == [(2, False), (4, False), (5, True)]
        assert len(list((tmp_path / "export" / "final").iterdir())) == 1

    def test_throttled_evaluations_are_skipped_but_for_the_last(self, tmp_path: Path) -> None:
        est = estimator(tmp_path, save_checkpoints_steps=1)
        steps = []
        hook = type("Hook", (tf.train.SessionRunHook,), {"begin": lambda self: steps.append(est.latest_checkpoint())})
        tf.estimator.train_and_evaluate(
            est,
            tf.estimator.TrainSpec(input_fn(), max_steps=4),
            tf.estimator.EvalSpec(input_fn(epochs=1), hooks=[hook()], name="dev"),
        )
        assert steps == [str(tmp_path / f"model.ckpt-{step}") for step in (1, 4)]
        assert (tmp_path / "eval_dev").is_dir()

    def test_latest_and_best(self, tmp_path: Path) -> None:
        est = estimator(tmp_path).train(input_fn(), steps=1)
        path = est.latest_checkpoint()
        latest = tf.estimator.LatestExporter("latest", receive, exports_to_keep=1)
        for _ in range(2):
            latest.export(est, str(tmp_path / "latest"), path, {"loss": 1.0}, False)
        assert len(list((tmp_path / "latest").iterdir())) == 1
        best = tf.estimator.BestExporter(serving_input_receiver_fn=receive)
        losses = (3.0, 4.0, 2.0)
        exports = [best.export(est, str(tmp_path / "best"), path, {"loss": loss}, False) for loss in losses]
        assert [bool(export) for export in exports] == [True, False, True]

    def test_best_of_an_earlier_run_is_to_be_surpassed(self, tmp_path: Path) -> None:
        est = estimator(tmp_path).train(input_fn(), steps=1)
        est.evaluate(input_fn(epochs=1))
        best = tf.estimator.BestExporter("best", receive, event_file_pattern="eval/*.tfevents.*")
        result = {"loss": 1e9, "global_step": 7}
        assert best.export(est, str(tmp_path / "best"), est.latest_checkpoint(), result, False) is None

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: tf.estimator.TrainSpec(7), "`input_fn` must be callable"),
            (lambda: tf.estimator.TrainSpec(input_fn(), max_steps=0), "Must specify max_steps > 0"),
            (lambda: tf.estimator.EvalSpec(input_fn(), steps=0), "Must specify steps > 0"),
            (lambda: tf.estimator.EvalSpec(input_fn(), throttle_secs=-1), "Must specify throttle_secs >= 0"),
            (
                lambda: tf.estimator.EvalSpec(
                    input_fn(), exporters=[tf.estimator.FinalExporter("a", receive) for _ in range(2)]
                ),
                "must have unique names",
            ),
            (lambda: tf.estimator.LatestExporter("a", receive, exports_to_keep=0), "must be a positive number"),
            (lambda: tf.estimator.BestExporter("a", receive, compare_fn=None), "`compare_fn` must not be None"),
            (lambda: tf.estimator.train_and_evaluate(7, 7, 7), "must be an `Estimator`"),
        ],
    )
    def test_wrong_arguments_are_refused(self, make: Any, words: str) -> None:
        with pytest.raises((ValueError, TypeError), match=words):
            make()
