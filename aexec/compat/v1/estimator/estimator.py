"""`tf.estimator.Estimator`: trains, evaluates, runs and exports the model that a model_fn builds.

Each call builds its own graph; calls share only the checkpoints in the model's folder.  All methods block.
Next to read: `model.py`.
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from aexec.compat.v1.estimator import exporting
from aexec.compat.v1.estimator.evaluation import StopAfterEvaluations, evaluate
from aexec.compat.v1.estimator.model import Model, WarmStartSettings
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys, checked_hooks
from aexec.compat.v1.estimator.prediction import predict
from aexec.compat.v1.estimator.run_config import RunConfig
from aexec.compat.v1.estimator.training import train
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.checkpoints import list_variables, load_variable
from aexec.compat.v1.running.training import CheckpointSaverListener, latest_checkpoint
from aexec.framework import errors
from aexec.training import StopAtStepHook

__all__ = ["Estimator"]

_LOGGER = logging.getLogger("tensorflow")


class Estimator:
    """`tf.estimator.Estimator`.

    Args:
        model_fn: a function with the parameter `features` and any of `labels`, `mode`, `params` and `config`, which
            builds the graph and returns an `EstimatorSpec`.
        model_dir: folder of checkpoints and events; by default that of `config`, or a temporary one.
        config: by default `RunConfig()`; copied.
        params: passed to the functions that have a parameter `params`; copied.
        warm_start_from: path of a checkpoint or SavedModel, or `WarmStartSettings`: initial values of variables, used
            as long as the folder has no checkpoint.

    Raises:
        ValueError: `model_fn` is None or has other parameters, `model_dir` and `config` name different folders, or
            `warm_start_from` is of another type.
        TypeError: `config` is not a `RunConfig`.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        if model_fn is None:
            raise errors.InvalidValueError("model_fn must be provided to Estimator.")
        settings = _configured(config, model_dir)
        _LOGGER.info("Using config: %s", vars(settings))
        self._model = Model(model_fn, copy.deepcopy(params), settings, _warm_start(warm_start_from))

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and events."""
        return self._model.model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of the configuration."""
        return copy.deepcopy(self._model.config)

    @property
    def params(self) -> Any:
        """A copy of the parameters."""
        return copy.deepcopy(self._model.params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """A function of features, labels, mode and config that returns the `EstimatorSpec`."""

        def call(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            model = Model(self._model.model_fn, self._model.params, config, None)
            return model.call(features, labels, mode)

        return call

    def eval_dir(self, name: str | None = None) -> str:
        """The folder to which evaluations with this name write their events."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """The prefix of the folder's latest checkpoint; None if there is none."""
        return latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Names of the variables in the latest checkpoint.  Raises ValueError if there is none."""
        self._check_trained()
        return [name for name, _ in list_variables(self.model_dir)]

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the latest checkpoint.

        Raises:
            ValueError: there is no checkpoint.
            NotFoundError: it has no such variable.
        """
        self._check_trained()
        return load_variable(self.model_dir, name)

    def _check_trained(self) -> None:
        if self.latest_checkpoint() is None:
            raise errors.InvalidValueError(f"Couldn't find trained model at {self.model_dir}.")

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Iterable[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Iterable[CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train from the folder's latest checkpoint until the input ends, or for a number of steps.

        Args:
            input_fn: a function with any of the parameters `mode`, `params` and `config`, which returns features and
                labels, or a dataset of such pairs.
            hooks: called around each step.
            steps: number of steps to add.
            max_steps: global step at which to stop; if the checkpoint has reached it, nothing is done.
            saving_listeners: called around each checkpoint.

        Returns:
            This estimator.

        Raises:
            ValueError: both `steps` and `max_steps` are given, one is not positive, or there are listeners although
                `config` asks for no checkpoints.
            TypeError: a hook or a listener is of another type.
            NanLossDuringTrainingError: the loss is NaN.
        """
        if steps is not None and max_steps is not None:
            raise errors.InvalidValueError("Can not provide both steps and max_steps.")
        _check_positive(steps=steps, max_steps=max_steps)
        if max_steps is not None and max_steps <= self._step():
            _LOGGER.info("Skipping training since max_steps has already saved.")
            return self
        around = list(checked_hooks(hooks))
        if steps is not None or max_steps is not None:
            around.append(StopAtStepHook(steps, max_steps))
        loss = train(self._model, input_fn, around, _checked_listeners(saving_listeners))
        _LOGGER.info("Loss for final step: %s.", loss)
        return self

    def _step(self) -> int:
        """The global step of the latest checkpoint; 0 if there is none."""
        path = self.latest_checkpoint()
        return 0 if path is None else int(load_variable(path, "global_step"))

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Compute metrics over the input, and append them to the event file in `eval_dir(name)`.

        Args:
            input_fn, hooks: as in `train`.
            steps: number of batches; by default until the input ends.
            checkpoint_path: by default the latest checkpoint; if there is none, variables have their initial values.
            name: tells several evaluations of a model apart.

        Returns:
            The metrics by name, among them `loss`, the mean over batches, and `global_step`.

        Raises:
            ValueError: `steps` is not positive, or a metric is named `loss` or `global_step`.
        """
        _check_positive(steps=steps)
        around = list(checked_hooks(hooks))
        if steps is not None:
            around.append(StopAfterEvaluations(steps))
        return evaluate(self._model, input_fn, around, checkpoint_path, self.eval_dir(name))

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Iterable[str] | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield predictions until the input ends.

        Args:
            input_fn: as in `train`; labels are ignored.
            predict_keys: which entries of a dict of predictions to compute; by default all.
            hooks: called around each step.
            checkpoint_path: by default the latest checkpoint; if there is none, variables have their initial values.
            yield_single_examples: True to yield each row of a batch, False to yield whole batches.

        Raises:
            ValueError: no prediction has one of the `predict_keys`, predictions are not a dict although keys are
                given, or the rows of a batch differ in number.
        """
        around = checked_hooks(hooks)
        yield from predict(self._model, input_fn, predict_keys, around, checkpoint_path, by_rows=yield_single_examples)

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Write a SavedModel with the model's export outputs into a new folder, named by the seconds since 1970.

        Args:
            export_dir_base: parent of the new folder.
            serving_input_receiver_fn: returns a `tf.estimator.export.ServingInputReceiver`.
            assets_extra: path inside `assets.extra` → file to copy there.
            checkpoint_path: by default the latest checkpoint.

        Returns:
            The path of the folder.

        Raises:
            ValueError: there is no checkpoint, `serving_input_receiver_fn` is None, or no export output fits the
                receiver's inputs.
            UnimplementedError: `as_text` is True, or `experimental_mode` is not PREDICT.
        """
        refuse("export_saved_model", as_text=as_text)
        refuse("export_saved_model", experimental_mode=_other_than(ModeKeys.PREDICT, experimental_mode))
        return self._export(export_dir_base, serving_input_receiver_fn, assets_extra, checkpoint_path, True)

    def export_savedmodel(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """The older name of `export_saved_model`, whose arguments and errors are the same but for one.

        Args:
            strip_default_attrs: leave out the attributes of nodes that have their op's default value, which
                `export_saved_model` always does.
        """
        refuse("export_savedmodel", as_text=as_text)
        return self._export(
            export_dir_base, serving_input_receiver_fn, assets_extra, checkpoint_path, strip_default_attrs
        )

    def _export(
        self,
        folder: str | os.PathLike[str],
        receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None,
        checkpoint_path: str | None,
        strip_default_attrs: bool,
    ) -> bytes:
        return exporting.export(
            self._model, os.fspath(folder), receiver_fn, assets_extra, checkpoint_path, strip_default_attrs
        )


def _other_than(usual: Any, value: Any) -> Any:
    return None if value == usual else value


def _configured(config: Any, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    """Copy a configuration and set its `model_dir`: the given one, its own, or a new temporary folder."""
    if config is not None and not isinstance(config, RunConfig):
        raise errors.InvalidTypeError(f"config must be an instance of `RunConfig`, but provided {config!r}.")
    settings = copy.deepcopy(config) if config is not None else RunConfig()
    folder = None if model_dir is None else os.fspath(model_dir)
    if folder is not None and settings.model_dir not in (None, folder):
        raise errors.InvalidValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
            f"'{folder}', in `RunConfig`: '{settings.model_dir}' "
        )
    settings.model_dir = folder or settings.model_dir
    if settings.model_dir is None:
        settings.model_dir = tempfile.mkdtemp()
        _LOGGER.warning("Using temporary folder as model directory: %s", settings.model_dir)
    return settings


def _warm_start(given: Any) -> WarmStartSettings | None:
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, str | bytes | os.PathLike):
        return WarmStartSettings(os.fsdecode(given))
    raise errors.InvalidValueError(f"warm_start_from must be a string or a WarmStartSettings, instead got {given!r}")


def _check_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number <= 0:
            raise errors.InvalidValueError(f"Must specify {name} > 0, given: {number}")


def _checked_listeners(listeners: Iterable[Any] | None) -> list[CheckpointSaverListener]:
    found = list(listeners or ())
    for listener in found:
        if not isinstance(listener, CheckpointSaverListener):
            raise errors.InvalidTypeError(
                f"saving_listeners must be a list of CheckpointSaverListener, given: {listener!r}"
            )
    return found
