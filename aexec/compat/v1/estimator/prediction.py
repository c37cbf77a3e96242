"""Predictions of a `Model`, by batch or by row.

Next to read: `exporting.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aexec.compat.v1.estimator.model import Inputs, Model
from aexec.compat.v1.estimator.model_spec import ModeKeys
from aexec.compat.v1.running.monitored_session import ChiefSessionCreator, MonitoredSession
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph

__all__ = ["predict"]

_LOGGER = logging.getLogger("tensorflow")


def predict(
    model: Model,
    input_fn: Callable[..., Any],
    predict_keys: Iterable[str] | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    *,
    by_rows: bool,
) -> Iterator[Any]:
    """Yield predictions until the input ends.

    The session stays open until the iterator ends, or is closed or freed.

    Args:
        predict_keys: which entries of a dict of predictions to compute; by default all.
        checkpoint_path: by default the latest checkpoint; if there is none, variables have their initial values.
        by_rows: True to yield each row of a batch, False to yield whole batches.

    Raises:
        ValueError: no prediction has one of the `predict_keys`, predictions are not a dict although keys are given, or
            the entries of a batch differ in their number of rows.
    """
    path = model.checkpoint(checkpoint_path, "predict")
    with model.building():
        inputs = model.inputs(input_fn, ModeKeys.PREDICT)
        _warn_of_endless(inputs)
        spec = model.call(inputs.features, None, ModeKeys.PREDICT)
        if not path:
            model.begin_warm()
        fetches = _chosen(spec.predictions, predict_keys)
        creator = ChiefSessionCreator(
            spec.scaffold, config=model.config.session_config, checkpoint_filename_with_path=path
        )
        opened = MonitoredSession(creator, [*inputs.hooks, *hooks, *spec.prediction_hooks])
    # Inside the block, a suspended iterator would leave its graph as the caller's default graph.
    with opened as session:
        while not session.should_stop():
            found = session.run(fetches)
            yield from _rows(found) if by_rows else [found]


def _warn_of_endless(inputs: Inputs) -> None:
    graph = require_graph()
    if inputs.hooks or graph.collections.get(GraphKeys.QUEUE_RUNNERS):
        return
    if not any(node.op == "IteratorGetNext" for node in graph):
        _LOGGER.warning(
            "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means predict yields forever. "
            "This is probably a mistake."
        )


def _chosen(predictions: Any, keys: Iterable[str] | None) -> Any:
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise errors.InvalidValueError("predict_keys argument is not valid in case of non-dict predictions.")
    wanted = list(keys)
    found = {key: value for key, value in predictions.items() if key in wanted}
    if not found:
        raise errors.InvalidValueError(
            f"Expected to run at least one output from {list(predictions)}, provided {wanted}."
        )
    return found


def _rows(found: Any) -> Iterator[Any]:
    """Yield each row of a batch.  Raises ValueError if entries of a dict differ in their number of rows."""
    if not isinstance(found, Mapping):
        yield from found
        return
    length: int | None = None
    for key, value in found.items():
        length = len(value) if length is None else length
        if len(value) != length:
            raise errors.InvalidValueError(
                f"Batch length of predictions should be same. {key} has different batch length than others."
            )
    for row in range(length or 0):
        yield {key: value[row] for key, value in found.items()}
