"""`tf.estimator.train_and_evaluate`: trains a model, and evaluates and exports its checkpoints on the way.

Next to read: `exporters.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from aexec.compat.v1.estimator.estimator import Estimator
from aexec.compat.v1.estimator.exporters import Exporter
from aexec.compat.v1.estimator.model_spec import checked_hooks
from aexec.compat.v1.running.more_hooks import SecondOrStepTimer
from aexec.compat.v1.running.training import CheckpointSaverListener
from aexec.framework import errors

__all__ = ["EvalSpec", "TrainSpec", "train_and_evaluate"]

_LOGGER = logging.getLogger("tensorflow")


class _Training(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[CheckpointSaverListener, ...]


class TrainSpec(_Training):
    """`tf.estimator.TrainSpec`.

    Args:
        input_fn, max_steps, hooks, saving_listeners: as in `Estimator.train`.

    Raises:
        TypeError: `input_fn` is not callable.
        ValueError: `max_steps` is not positive.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[CheckpointSaverListener] | None = None,
    ) -> TrainSpec:
        _check_input_fn(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise errors.InvalidValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(cls, input_fn, max_steps, checked_hooks(hooks), tuple(saving_listeners or ()))


class _Evaluation(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_Evaluation):
    """`tf.estimator.EvalSpec`.

    Args:
        input_fn, steps, name, hooks: as in `Estimator.evaluate`, with 100 batches by default.
        exporters: an `Exporter` or several, called after each evaluation.
        start_delay_secs: ignored, since training and evaluation take turns in one process.
        throttle_secs: least number of seconds between two evaluations; the last one is always made.

    Raises:
        TypeError: `input_fn` is not callable, or an exporter is not an `Exporter`.
        ValueError: a number is out of range, two exporters have the same name, or one has no name.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        _check_input_fn(input_fn)
        if steps is not None and steps <= 0:
            raise errors.InvalidValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise errors.InvalidTypeError(f"`name` must be string, given: {name!r}")
        for argument, seconds in (("start_delay_secs", start_delay_secs), ("throttle_secs", throttle_secs)):
            if seconds < 0:
                raise errors.InvalidValueError(f"Must specify {argument} >= 0, given: {seconds}")
        found = _checked_exporters(exporters)
        return super().__new__(cls, input_fn, steps, name, checked_hooks(hooks), found, start_delay_secs, throttle_secs)


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise errors.InvalidTypeError(f"`input_fn` must be callable, given: {input_fn!r}")


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    found = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters or ())
    names = set[str]()
    for exporter in found:
        if not isinstance(exporter, Exporter):
            raise errors.InvalidTypeError(f"`exporters` must be an Exporter or several, given: {exporter!r}")
        if not exporter.name:
            raise errors.InvalidValueError(f"An Exporter cannot have a name that is `None` or empty: {exporter!r}")
        if exporter.name in names:
            raise errors.InvalidValueError(
                f"`exporters` must have unique names. Such a name cannot be used more than once: {exporter.name}"
            )
        names.add(exporter.name)
    return found


class _Evaluator(CheckpointSaverListener):
    """Evaluates each new checkpoint unless the last evaluation is less than `throttle_secs` ago; always the last one.

    Attributes:
        metrics: result of the latest evaluation; None before the first.
        exports: results of the exporters after the latest evaluation.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self.metrics: dict[str, Any] | None = None
        self.exports: list[Any] = []
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._timer = SecondOrStepTimer(every_secs=spec.throttle_secs)
        self._is_first = True

    def begin(self) -> None:
        self._timer.reset()
        self._is_first = True

    def after_save(self, session: Any, global_step_value: Any) -> None:
        if self._is_first:  # written before the first step
            self._is_first = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            _LOGGER.info("Skip the current checkpoint eval due to throttle secs (%s secs).", self._spec.throttle_secs)

    def end(self, session: Any, global_step_value: Any) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        path = self._estimator.latest_checkpoint()
        if path is None:
            return
        spec = self._spec
        metrics = self._estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, path, spec.name)
        is_last = bool(self._max_steps and metrics["global_step"] >= self._max_steps)
        self.metrics = metrics
        self.exports = [self._exported(exporter, path, is_last) for exporter in spec.exporters]

    def _exported(self, exporter: Exporter, path: str, is_last: bool) -> Any:
        return exporter.export(
            estimator=self._estimator,
            export_path=os.path.join(self._estimator.model_dir, "export", exporter.name),
            checkpoint_path=path,
            eval_result=self.metrics,
            is_the_final_export=is_last,
        )


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]]:
    """`tf.estimator.train_and_evaluate`: train in this process, and evaluate after each checkpoint.

    Returns:
        The metrics of the last evaluation, None if there was none, and the results of the exporters after it.

    Raises:
        TypeError: an argument has another type.
        ValueError: the estimator's `RunConfig` asks for no checkpoints.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            name = "an `Estimator`" if kind is Estimator else f"a `tf.estimator.{kind.__name__}`"
            raise errors.InvalidTypeError(f"must be {name}, given: {value!r}")
    config = estimator.config
    _LOGGER.info(
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency is "
        "determined based on RunConfig arguments: save_checkpoints_steps %s or save_checkpoints_secs %s.",
        config.save_checkpoints_steps,
        config.save_checkpoints_secs,
    )
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn,
        train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*train_spec.saving_listeners, evaluator],
    )
    return evaluator.metrics, evaluator.exports
