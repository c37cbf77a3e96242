"""`Model`: a model_fn with its parameters and configuration; builds the graphs of an estimator.

The program's functions get only those arguments that they have parameters for.  Next to read: `training.py`,
`evaluation.py` and `prediction.py`, which run the graphs.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from aexec.client.random_seed import set_random_seed
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.estimator.run_config import RunConfig
from aexec.compat.v1.running.training import SessionRunHook, latest_checkpoint
from aexec.compat.v1.running.warm_start import VocabInfo, warm_start
from aexec.compat.v1.values.framework_ops import create_global_step, device
from aexec.compat.v1.values.tensors import Graph
from aexec.data.dataset import Dataset
from aexec.framework import errors
from aexec.saved_model import is_saved_model
from aexec.variables.variable import Variable

__all__ = ["Inputs", "Model", "VocabInfo", "WarmStartSettings", "called"]

_LOGGER = logging.getLogger("tensorflow")
_MODEL_FN_ARGUMENTS = {"features", "labels", "mode", "params", "config", "self"}


class WarmStartSettings(NamedTuple):
    """`tf.estimator.WarmStartSettings`: initial values of a new model, as arguments of `tf.train.warm_start`."""

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None


class Inputs(NamedTuple):
    """The result of an input_fn: features, labels or None, and the hooks that initialise its iterator."""

    features: Any
    labels: Any
    hooks: tuple[SessionRunHook, ...]


def _named_arguments(function: Callable[..., Any]) -> set[str]:
    """The names of a function's parameters, without `*args`, `**kwargs` and those that a `partial` has bound."""
    given = set(function.keywords) if isinstance(function, functools.partial) else set[str]()
    many = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    taken = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in taken if parameter.kind not in many} - given


def called(function: Callable[..., Any], /, **values: Any) -> Any:
    """Call a function with those of `values` that it has parameters for, and return its result."""
    names = _named_arguments(function)
    return function(**{name: value for name, value in values.items() if name in names})


class _InitialisedIterator(SessionRunHook):
    """Initialises a dataset's iterator after the tables, which the dataset's functions may look up."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


@dataclass(frozen=True)
class Model:
    """A model_fn with the values that it is called with.

    Attributes:
        model_fn: a function with the parameter `features` and any of `labels`, `mode`, `params` and `config`, which
            returns an `EstimatorSpec`.
        params: passed to the functions that have a parameter `params`.
        config: the configuration; its `model_dir` is set.
        warm_start: initial values of variables if the folder has no checkpoint, or None.

    Raises:
        ValueError: model_fn has no parameter `features`, or no `params` although there are some, or has other
            parameters.
    """

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig
    warm_start: WarmStartSettings | None

    def __post_init__(self) -> None:
        names = _named_arguments(self.model_fn)
        if "features" not in names:
            raise errors.InvalidValueError(f"model_fn ({self.model_fn}) must include features argument.")
        if self.params is not None and "params" not in names:
            raise errors.InvalidValueError(
                f"model_fn ({self.model_fn}) does not include params argument, but params ({self.params}) is passed "
                "to Estimator."
            )
        if self.params is None and "params" in names:
            _LOGGER.warning(
                "Estimator's model_fn (%s) includes params argument, but params are not passed to Estimator.",
                self.model_fn,
            )
        if others := names - _MODEL_FN_ARGUMENTS:
            raise errors.InvalidValueError(
                f"model_fn ({self.model_fn}) has following not expected args: {sorted(others)}"
            )

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""
        assert self.config.model_dir is not None
        return self.config.model_dir

    @contextmanager
    def building(self) -> Iterator[Variable]:
        """Context manager: build into a new graph with the configuration's seed and devices; yields its global step."""
        with Graph(), device(self.config.device_fn):
            set_random_seed(self.config.tf_random_seed)
            yield create_global_step()

    def inputs(self, input_fn: Callable[..., Any], mode: str) -> Inputs:
        """Call an input_fn, which returns features, or (features, labels), or a dataset of either.

        In mode PREDICT the labels are dropped.

        Raises:
            ValueError: it returns a list or tuple that does not have two elements.
        """
        params = copy.deepcopy(self.params)
        with device("/cpu:0"):
            made = called(input_fn, mode=mode, params=params, config=self.config)
            hooks: tuple[SessionRunHook, ...] = ()
            if isinstance(made, Dataset):
                iterator = made.make_initializable_iterator()
                hooks = (_InitialisedIterator(iterator.initializer),)
                made = iterator.get_next()
        if not isinstance(made, list | tuple):
            return Inputs(made, None, hooks)
        if mode == ModeKeys.PREDICT:
            return Inputs(made[0], None, hooks)
        if len(made) != 2:
            raise errors.InvalidValueError("input_fn should return (features, labels) as a len 2 tuple.")
        return Inputs(made[0], made[1], hooks)

    def call(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        """Call the model_fn.

        Raises:
            ValueError: there are labels and it has no parameter `labels`, or it does not return an `EstimatorSpec`.
        """
        given = {"mode": mode, "params": copy.deepcopy(self.params), "config": self.config}
        if "labels" in _named_arguments(self.model_fn):
            given["labels"] = labels
        elif labels is not None:
            raise errors.InvalidValueError("model_fn does not take labels, but input_fn returns labels.")
        _LOGGER.info("Calling model_fn.")
        made = called(self.model_fn, features=features, **given)
        _LOGGER.info("Done calling model_fn.")
        if not isinstance(made, EstimatorSpec):
            raise errors.InvalidValueError("model_fn should return an EstimatorSpec.")
        return made

    def checkpoint(self, given: str | None, purpose: str) -> str | None:
        """The given checkpoint, or the folder's latest.  If there is none, logs that, and returns None."""
        if not (found := given or latest_checkpoint(self.model_dir)):
            _LOGGER.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.",
                self.model_dir,
                purpose,
            )
        return found

    def begin_warm(self) -> None:
        """Make the variables of the current graph start with the values that `warm_start` names, if it is set."""
        if self.warm_start is not None:
            _LOGGER.info("Warm-starting with WarmStartSettings: %s", self.warm_start)
            settings = self.warm_start._asdict()
            source = settings["ckpt_to_initialize_from"]
            if is_saved_model(source):
                settings["ckpt_to_initialize_from"] = os.path.join(source, "variables", "variables")
            warm_start(**settings)
