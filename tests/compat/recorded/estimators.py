"""What stands for `tf.estimator` when TensorFlow 2.21 runs the programs of `examples/`, since it has none.

It trains as an estimator does: in a graph of its own, with a session that calls hooks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["estimator"]


def estimator(tf: Any) -> Any:
    """The names that training uses."""

    class Estimator:
        def __init__(self, model_fn: Any, model_dir: Any, params: Any) -> None:
            self._model_fn, self._params = model_fn, params

        def train(self, input_fn: Any, hooks: Any, steps: int) -> None:
            with tf.Graph().as_default():
                tf.train.create_global_step()
                features, labels = tf.data.make_one_shot_iterator(input_fn()).get_next()
                spec = self._model_fn(features, labels, "train", self._params)
                stop = tf.train.StopAtStepHook(num_steps=steps)
                with tf.train.MonitoredSession(hooks=[*hooks, stop]) as session:
                    while not session.should_stop():
                        session.run(spec.train_op)

    def spec(mode: str, **parts: Any) -> Any:
        return SimpleNamespace(mode=mode, **parts)

    keys = SimpleNamespace(TRAIN="train", EVAL="eval", PREDICT="infer")
    return SimpleNamespace(Estimator=Estimator, EstimatorSpec=spec, ModeKeys=keys)
