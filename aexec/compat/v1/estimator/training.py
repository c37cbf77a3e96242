"""Training of a `Model` in a `MonitoredTrainingSession`, until a hook stops it or the input ends.

Next to read: `evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import summary
from aexec.compat.v1.estimator.model import Inputs, Model
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.running.monitored_session import MonitoredTrainingSession
from aexec.compat.v1.running.training import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    LoggingTensorHook,
    NanTensorHook,
    Saver,
)
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph

__all__ = ["train"]


def train(
    model: Model, input_fn: Callable[..., Any], hooks: Sequence[Any], listeners: Sequence[CheckpointSaverListener]
) -> Any:
    """Train from the folder's latest checkpoint, and write checkpoints there.

    Args:
        hooks: called around each step.
        listeners: called around each checkpoint.

    Returns:
        The loss of the last step; None if there was no step.

    Raises:
        ValueError: there are listeners, but the configuration asks for no checkpoints and no hook writes them.
        NanLossDuringTrainingError: the loss is NaN.
    """
    with model.building() as global_step:
        inputs = model.inputs(input_fn, ModeKeys.TRAIN)
        spec = model.call(inputs.features, inputs.labels, ModeKeys.TRAIN)
        model.begin_warm()
        collections = require_graph().collections
        if not any(item.op.name == "loss" for item in collections.get(GraphKeys.SUMMARIES)):
            summary.scalar("loss", spec.loss)
        collections.add(GraphKeys.LOSSES, spec.loss)
        around = _around(model, spec, inputs, hooks, global_step)
        _give_saver(model, spec)
        return _run(model, spec, around, _savers(model, spec, around, listeners))


def _around(model: Model, spec: EstimatorSpec, inputs: Inputs, hooks: Sequence[Any], global_step: Any) -> list[Any]:
    """All hooks, in the order of their calls, except the one that `_savers` makes."""
    found = [*inputs.hooks, *hooks, NanTensorHook(spec.loss)]
    if model.config.log_step_count_steps is not None:
        said = {"loss": spec.loss, "step": global_step}
        found.append(LoggingTensorHook(said, every_n_iter=model.config.log_step_count_steps))
    return [*found, *spec.training_hooks, *spec.training_chief_hooks]


def _give_saver(model: Model, spec: EstimatorSpec) -> None:
    """Set the scaffold's saver, unless the model has: to the graph's saver, or to a new one as configured."""
    if spec.scaffold.saver is not None:
        return
    if savers := require_graph().collections.get(GraphKeys.SAVERS):
        spec.scaffold.saver = savers[0]
        return
    spec.scaffold.saver = Saver(
        sharded=True,
        max_to_keep=model.config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=model.config.keep_checkpoint_every_n_hours,
        save_relative_paths=True,
    )


def _savers(
    model: Model, spec: EstimatorSpec, around: Sequence[Any], listeners: Sequence[CheckpointSaverListener]
) -> list[CheckpointSaverHook]:
    """Make the hook that writes checkpoints, unless `around` has one, and add the listeners to whichever it is."""
    own = [hook for hook in around if isinstance(hook, CheckpointSaverHook)]
    made: list[CheckpointSaverHook] = []
    steps, secs = model.config.save_checkpoints_steps, model.config.save_checkpoints_secs
    if not own and (steps or secs):
        made = [CheckpointSaverHook(model.model_dir, secs or None, steps or None, scaffold=spec.scaffold)]
    if listeners:
        if not (own or made):
            raise errors.InvalidValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        (own or made)[0].add_listeners(listeners)
    return made


def _run(model: Model, spec: EstimatorSpec, around: Sequence[Any], savers: Sequence[CheckpointSaverHook]) -> Any:
    loss = None
    with MonitoredTrainingSession(
        checkpoint_dir=model.model_dir,
        scaffold=spec.scaffold,
        hooks=around,
        chief_only_hooks=savers,
        save_checkpoint_secs=0,
        save_summaries_steps=model.config.save_summary_steps,
        config=model.config.session_config,
        log_step_count_steps=model.config.log_step_count_steps,
    ) as session:
        while not session.should_stop():
            _, loss = session.run([spec.train_op, spec.loss])
    return loss
