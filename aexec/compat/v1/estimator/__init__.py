"""`tf.estimator`: trains, evaluates, runs and exports a model, given functions that build its input and its graph.

::

    estimator = tf.estimator.Estimator(model_fn, model_dir="run", params={"rate": 0.1})
    estimator.train(tf.estimator.inputs.numpy_input_fn({"x": xs}, ys, shuffle=True, num_epochs=None), steps=1000)
    print(estimator.evaluate(tf.estimator.inputs.numpy_input_fn({"x": xs}, ys, shuffle=False)))

All methods block.  Next to read: `estimator.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_CLUSTERS = "a model is trained in this process: docs/distributed.md says how several work together"
_HEADS = "compute the loss and the predictions in the model_fn, with tf.losses and tf.metrics"
_CANNED = "write it as the model_fn of a tf.estimator.Estimator, with tf.feature_column.input_layer"

__getattr__, __dir__ = namespace(
    __name__,
    {
        "Estimator": "estimator.estimator:Estimator",
        **{name: f"estimator.model_spec:{name}" for name in ("EstimatorSpec", "ModeKeys")},
        **{
            name: f"estimator.canned:{name}"
            for name in """DNNClassifier DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNRegressor
            LinearClassifier LinearRegressor""".split()
        },
        **{
            name: f"feature_column.parsing:{name}"
            for name in ("classifier_parse_example_spec", "regressor_parse_example_spec")
        },
        "RunConfig": "estimator.run_config:RunConfig",
        **{name: f"estimator.model:{name}" for name in ("VocabInfo", "WarmStartSettings")},
        **{name: f"estimator.evaluated_training:{name}" for name in ("EvalSpec", "TrainSpec", "train_and_evaluate")},
        **{
            name: f"estimator.exporters:{name}"
            for name in ("BestExporter", "Exporter", "FinalExporter", "LatestExporter")
        },
        "add_metrics": "estimator.added_metrics:add_metrics",
        "export": "estimator.export",
        "inputs": "estimator.inputs",
    },
    {
        "experimental": "give hooks of your own to train(): a tf.train.SessionRunHook may call request_stop()",
        "tpu": "there are no TPUs",
        **dict.fromkeys(("BinaryClassHead", "Head", "LogisticRegressionHead", "MultiClassHead"), _HEADS),
        **dict.fromkeys(("MultiHead", "MultiLabelHead", "PoissonRegressionHead", "RegressionHead"), _HEADS),
        **dict.fromkeys(("BaselineClassifier", "BaselineEstimator", "BaselineRegressor"), _CANNED),
        **dict.fromkeys(("BoostedTreesClassifier", "BoostedTreesEstimator", "BoostedTreesRegressor"), _CANNED),
        **dict.fromkeys(("DNNEstimator", "DNNLinearCombinedEstimator", "LinearEstimator"), _CANNED),
    },
)
