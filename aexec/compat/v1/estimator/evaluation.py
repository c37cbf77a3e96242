"""Evaluation of a `Model`: restores a checkpoint, and computes metrics over batches.

Next to read: `prediction.py`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec import metrics, proto, training
from aexec.client.building import group
from aexec.compat.v1.estimator.model import Model
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.functions.control_flow_ops import tables_initializer
from aexec.compat.v1.functions.conversions import make_tensor_proto
from aexec.compat.v1.running.monitored_session import ChiefSessionCreator, MonitoredSession
from aexec.compat.v1.running.more_hooks import FinalOpsHook
from aexec.compat.v1.running.summary import FileWriterCache
from aexec.compat.v1.running.training import Scaffold
from aexec.framework import errors
from aexec.variables.initialization import local_variables_initializer

__all__ = ["StopAfterEvaluations", "evaluate"]

_LOGGER = logging.getLogger("tensorflow")
LOSS, GLOBAL_STEP = "loss", "global_step"


class StopAfterEvaluations(training.SessionRunHook):
    """Stops an evaluation after `number` batches, and logs its progress."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._done = 0
        self._every = 1 if number < 20 else math.floor(number / 10)

    async def after_run(self, context: training.SessionRunContext, values: training.SessionRunValues) -> None:
        self._done += 1
        if self._done % self._every == 0 or self._done == self._number:
            _LOGGER.info("Evaluation [%d/%d]", self._done, self._number)
        if self._done >= self._number:
            context.request_stop()


def evaluate(
    model: Model, input_fn: Callable[..., Any], hooks: Sequence[Any], checkpoint_path: str | None, folder: str
) -> dict[str, Any]:
    """Compute metrics until the input ends or a hook requests the stop, and write them as events.

    Args:
        checkpoint_path: by default the latest checkpoint; if there is none, variables have their initial values.
        folder: where to write the event file.

    Returns:
        The metrics by name, among them `loss`, the mean over batches, and `global_step`.

    Raises:
        ValueError: a metric of the model is named `loss` or `global_step`.
    """
    path = model.checkpoint(checkpoint_path, "evaluate")
    with model.building() as global_step:
        inputs = model.inputs(input_fn, ModeKeys.EVAL)
        spec = model.call(inputs.features, inputs.labels, ModeKeys.EVAL)
        if not path:
            model.begin_warm()
        pairs = _metrics(spec)
        updates = group(*[update for _, (_, update) in sorted(pairs.items())])
        values = {name: value for name, (value, _) in pairs.items()}
        around = [*inputs.hooks, *hooks, *spec.evaluation_hooks]
        found = _run(model, _scaffold(spec), path, around, updates, {**values, GLOBAL_STEP: global_step})
        _write(folder, found, path)
    return found


def _metrics(spec: EstimatorSpec) -> dict[str, Any]:
    """The model's metrics and the mean loss: name → (value, update op)."""
    if LOSS in spec.eval_metric_ops:
        raise errors.InvalidValueError(
            f'Metric with name "{LOSS}" is not allowed, because Estimator already defines a default metric with the '
            "same name."
        )
    if GLOBAL_STEP in spec.eval_metric_ops:
        raise errors.InvalidValueError(
            f"Metric with name `{GLOBAL_STEP}` is not allowed, because Estimator already defines a default metric "
            "with the same name."
        )
    return {**spec.eval_metric_ops, LOSS: metrics.mean(spec.loss)}


def _scaffold(spec: EstimatorSpec) -> Scaffold:
    """The model's scaffold, with a local initialiser that also covers the variables of the metrics."""
    if spec.scaffold.local_init_op is None:
        return spec.scaffold
    every = group(spec.scaffold.local_init_op, local_variables_initializer(), tables_initializer())
    return Scaffold(local_init_op=every, copy_from_scaffold=spec.scaffold)


def _run(
    model: Model, scaffold: Scaffold, path: str | None, hooks: Sequence[Any], updates: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    final = FinalOpsHook(values)
    _LOGGER.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    creator = ChiefSessionCreator(scaffold, config=model.config.session_config, checkpoint_filename_with_path=path)
    with MonitoredSession(creator, [*hooks, final]) as session:
        while not session.should_stop():
            session.run(updates)
    _LOGGER.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S", time.gmtime()))
    return dict(final.final_ops_values)


def _write(folder: str, found: Mapping[str, Any], path: str | None) -> None:
    """Write the metrics, and the path of the checkpoint, into the folder's event file.

    Evaluations of a folder share the process's writer, which adds the current graph when it opens the file.
    """
    step = int(found[GLOBAL_STEP])
    said = ", ".join(f"{name} = {value}" for name, value in sorted(found.items()) if not isinstance(value, bytes))
    _LOGGER.info("Saving dict for global step %d: %s", step, said)
    message = proto.Summary()
    for name, value in found.items():
        if name != GLOBAL_STEP:
            _add(message, name, value)
    if path:
        _LOGGER.info("Saving 'checkpoint_path' summary for global step %d: %s", step, path)
        plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
        message.value.add(
            tag="checkpoint_path",
            metadata=proto.SummaryMetadata(plugin_data=plugin),
            tensor=make_tensor_proto(path.encode()),
        )
    writer = FileWriterCache.get(folder)
    writer.reopen()
    writer.add_summary(message, step)
    writer.flush()


def _add(message: proto.Summary, name: str, value: Any) -> None:
    """Add a number as a scalar, bytes as a serialised summary, an array as a tensor; warn of other types."""
    if isinstance(value, np.number | int | float) and not np.iscomplexobj(value):
        message.value.add(tag=name, simple_value=float(value))
    elif isinstance(value, bytes):
        parts = proto.Summary.FromString(value).value
        for number, part in enumerate(parts):
            part.tag = name if len(parts) == 1 else f"{name}/{number}"
        message.value.extend(parts)
    elif isinstance(value, np.ndarray):
        message.value.add(tag=name, node_name=name, tensor=make_tensor_proto(value))
    else:
        _LOGGER.warning("Skipping summary for %s, which is a %s", name, type(value).__name__)
