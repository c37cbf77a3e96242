"""`EstimatorSpec`: the result of a model_fn for one of three modes.

Next to read: `model.py`, which calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aexec import ops, training
from aexec.compat.v1.running.training import Scaffold, SessionRunHook
from aexec.framework import errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["EstimatorSpec", "ModeKeys", "checked_hooks"]


class ModeKeys:
    """`tf.estimator.ModeKeys`: the modes in which a model_fn is called."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: Any
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Scaffold
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """`tf.estimator.EstimatorSpec`.

    Args:
        mode: one of `ModeKeys`.
        predictions: a tensor, or a dict of tensors; the first axis is the batch.  Required in mode PREDICT.
        loss: [] or [1].  Required in modes TRAIN and EVAL.
        train_op: an operation or tensor, run in each training step.  Required in mode TRAIN.
        eval_metric_ops: name → (value, update op), as `tf.metrics` returns them.
        export_outputs: name → `tf.estimator.export.ExportOutput`; by default the predictions.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: called around steps of their mode.
        scaffold: initialisers and saver of the session.

    Raises:
        ValueError: an argument that the mode requires is None, or the loss has another shape.
        TypeError: an argument has another type.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, Any] | None = None,
        training_chief_hooks: Iterable[Any] | None = None,
        training_hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        evaluation_hooks: Iterable[Any] | None = None,
        prediction_hooks: Iterable[Any] | None = None,
    ) -> EstimatorSpec:
        if export_outputs is not None and not isinstance(export_outputs, Mapping):
            raise errors.InvalidTypeError(f"`export_outputs` must be dict, given: {export_outputs!r}")
        if scaffold is not None and not isinstance(scaffold, Scaffold):
            raise errors.InvalidTypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold!r}")
        return super().__new__(
            cls,
            mode,
            _checked_predictions(predictions, mode),
            _checked_loss(loss, mode),
            _checked_train_op(train_op, mode),
            _checked_metrics(eval_metric_ops),
            export_outputs,
            checked_hooks(training_chief_hooks),
            checked_hooks(training_hooks),
            scaffold or Scaffold(),
            checked_hooks(evaluation_hooks),
            checked_hooks(prediction_hooks),
        )


def checked_hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    """Return hooks as a tuple.  Raises TypeError unless each is a `SessionRunHook`, of this package or of aexec."""
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, SessionRunHook | training.SessionRunHook):
            raise errors.InvalidTypeError(f"All hooks must be SessionRunHook instances, given: {hook!r}")
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | TensorProxy)


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise errors.InvalidValueError("Missing loss.")
        return None
    if not _is_tensor(loss):
        raise errors.InvalidTypeError(f"loss must be Tensor, given: {loss!r}")
    shape = loss.static_shape
    if not shape.is_compatible_with([]) and not shape.is_compatible_with([1]):
        raise errors.InvalidValueError(f"Loss must be scalar, given: {loss!r}")
    return loss if shape.rank == 0 else ops.reshape(loss, [])


def _checked_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise errors.InvalidValueError("Missing train_op.")
        return None
    if not _is_tensor(train_op) and not isinstance(train_op, Node):
        raise errors.InvalidTypeError(f"train_op must be Operation or Tensor, given: {train_op!r}")
    return train_op


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise errors.InvalidValueError("Missing predictions.")
        return {}
    for name, value in (predictions if isinstance(predictions, Mapping) else {"": predictions}).items():
        if not _is_tensor(value):
            raise errors.InvalidTypeError(f"predictions[{name}] must be Tensor, given: {value!r}")
    return predictions


def _checked_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    if metrics is not None and not isinstance(metrics, Mapping):
        raise errors.InvalidTypeError(f"eval_metric_ops must be a dict, given: {metrics!r}")
    for name, pair in (metrics or {}).items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise errors.InvalidTypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {pair!r} for key: {name}"
            )
    return dict(metrics or {})
