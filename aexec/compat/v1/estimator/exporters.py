"""Exporters: decide which evaluated checkpoints `train_and_evaluate` exports.

Next to read: `evaluated_training.py`, which calls them.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from aexec.compat.v1.functions.io import summary_iterator
from aexec.compat.v1.namespace import refuse
from aexec.framework import errors

__all__ = ["BestExporter", "Exporter", "FinalExporter", "LatestExporter"]


class Exporter:
    """`tf.estimator.Exporter`: the base of exporters, which programs may subclass."""

    @property
    def name(self) -> str:
        """The name of the exporter's folder inside the model folder's `export`."""
        raise NotImplementedError

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Export a checkpoint if it qualifies; return the path of the export, or None.

        Args:
            estimator: the `Estimator`.
            export_path: the exporter's folder.
            checkpoint_path: prefix of the checkpoint.
            eval_result: the result of `Estimator.evaluate` for the checkpoint.
            is_the_final_export: True if training has ended.
        """
        raise NotImplementedError


class _SavedModels(Exporter):
    """The base of exporters of SavedModels.

    Args:
        name: name of the exporter's folder.
        serving_input_receiver_fn, assets_extra: as in `Estimator.export_saved_model`.
        exports_to_keep: number of exports to keep, the latest; None for all.

    Raises:
        ValueError: `exports_to_keep` is not positive.
        UnimplementedError: `as_text` is True.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        exports_to_keep: int | None = None,
    ) -> None:
        refuse(type(self).__name__, as_text=as_text)
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise errors.InvalidValueError("`exports_to_keep`, if provided, must be a positive number.")
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets = assets_extra
        self._kept = exports_to_keep

    @property
    def name(self) -> str:
        return self._name

    def _write(self, estimator: Any, export_path: str, checkpoint_path: str) -> Any:
        """Export a checkpoint, then delete the oldest exports beyond `exports_to_keep`."""
        written = estimator.export_saved_model(
            export_path, self._receiver_fn, assets_extra=self._assets, checkpoint_path=checkpoint_path
        )
        if self._kept is not None:
            exports = sorted((entry for entry in os.listdir(export_path) if entry.isdigit()), key=int)
            for name in exports[: -self._kept]:
                shutil.rmtree(os.path.join(export_path, name))
        return written


class FinalExporter(_SavedModels):
    """`tf.estimator.FinalExporter`: exports only the last checkpoint.  Arguments as in `LatestExporter`."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Export the checkpoint if it is the last; return the path, or None."""
        return self._write(estimator, export_path, checkpoint_path) if is_the_final_export else None


class LatestExporter(_SavedModels):
    """`tf.estimator.LatestExporter`: exports each evaluated checkpoint, and keeps the latest exports.

    Args:
        name: name of the exporter's folder.
        serving_input_receiver_fn, assets_extra: as in `Estimator.export_saved_model`.
        exports_to_keep: number of exports to keep; None for all.

    Raises:
        ValueError: `exports_to_keep` is not positive.
        UnimplementedError: `as_text` is True.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Export the checkpoint; return the path."""
        return self._write(estimator, export_path, checkpoint_path)


def _has_smaller_loss(best_eval_result: Any, current_eval_result: Any) -> bool:
    """Whether the current result has a smaller loss.  Raises ValueError if a result has no loss."""
    for name, result in (("best_eval_result", best_eval_result), ("current_eval_result", current_eval_result)):
        if not result or "loss" not in result:
            raise errors.InvalidValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best_eval_result["loss"] > current_eval_result["loss"])


class BestExporter(_SavedModels):
    """`tf.estimator.BestExporter`: exports a checkpoint if its evaluation is better than all earlier ones.

    Args:
        event_file_pattern: glob of evaluations' event files, relative to the model's folder, such as
            `eval/*.tfevents.*`.  A restarted program reads the best earlier result from them.
        compare_fn: called with `best_eval_result` and `current_eval_result` by name; returns True if the current one
            is better.  By default: if its loss is smaller.

    Other arguments, and errors, are those of `LatestExporter`.

    Raises:
        ValueError: `compare_fn` is None.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = None,
        compare_fn: Callable[..., bool] | None = _has_smaller_loss,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        if compare_fn is None:
            raise errors.InvalidValueError("`compare_fn` must not be None.")
        self._is_better = compare_fn
        self._pattern = event_file_pattern
        self._best: Any = None
        self._has_read = event_file_pattern is None

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Export the checkpoint if it is the best; return the path, or None."""
        if not self._has_read:
            self._has_read = True
            self._best = self._best_of(os.path.join(estimator.model_dir, self._pattern or ""), eval_result)
        if self._best is not None and not self._beats(eval_result):
            return None
        self._best = eval_result
        return self._write(estimator, export_path, checkpoint_path)

    def _beats(self, result: Any) -> bool:
        return self._is_better(best_eval_result=self._best, current_eval_result=result)

    def _best_of(self, pattern: str, present: Mapping[str, Any]) -> Any:
        """The best earlier result in the event files that match a pattern; None if there is none.

        The present evaluation has been written to these files already, and is left out by its global step.
        """
        for path in sorted(glob.glob(pattern)):
            for event in summary_iterator(path):
                found = {value.tag: value.simple_value for value in event.summary.value if _is_number(value)}
                if found and event.step != present.get("global_step") and (self._best is None or self._beats(found)):
                    self._best = found
        return self._best


def _is_number(value: Any) -> bool:
    return bool(value.WhichOneof("value") == "simple_value")
