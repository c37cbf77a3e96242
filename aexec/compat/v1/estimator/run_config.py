"""`RunConfig`: the folder of an estimator's checkpoints, and how often it saves and logs.

Next to read: `estimator.py`.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

from aexec.compat.v1.namespace import refuse
from aexec.framework import errors

__all__ = ["RunConfig"]

_DEFAULT: Any = object()  # stands for an interval that is not given, which is not the same as None
_SECONDS = 600
_REPLACEABLE = """model_dir tf_random_seed save_summary_steps save_checkpoints_steps save_checkpoints_secs
session_config keep_checkpoint_max keep_checkpoint_every_n_hours log_step_count_steps train_distribute device_fn
protocol eval_distribute experimental_distribute experimental_max_worker_delay_secs
session_creation_timeout_secs""".split()


class RunConfig:
    """`tf.estimator.RunConfig`, for training in one process.

    Args:
        model_dir: folder of checkpoints and events.
        tf_random_seed: seed of each graph.
        save_summary_steps: steps between two summaries; 0 or None for never.
        save_checkpoints_steps, save_checkpoints_secs: steps or seconds between two checkpoints; at most one is given.
            By default 600 seconds; None for both means never.
        session_config: a `tf.ConfigProto`.
        keep_checkpoint_max: number of checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: besides these, keep one checkpoint per this many hours.
        log_step_count_steps: steps between two log lines with the loss and the steps per second; None for never.
        device_fn: a device, or a function from a node to its device.
        session_creation_timeout_secs: ignored, since there is no other process to wait for.

    Raises:
        ValueError: a number is out of range, or both intervals are given.
        UnimplementedError: a distribution strategy, a protocol or a worker delay is given, or the environment variable
            TF_CONFIG describes a cluster.
    """

    master = evaluation_master = ""
    is_chief = True
    task_type, task_id, global_id_in_cluster = "worker", 0, 0
    num_ps_replicas, num_worker_replicas = 0, 1

    def __init__(
        self,
        model_dir: str | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _DEFAULT,
        save_checkpoints_secs: Any = _DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Callable[[Any], str] | None = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: float | None = None,
        session_creation_timeout_secs: float = 7200,
    ) -> None:
        refuse("RunConfig", train_distribute=train_distribute, eval_distribute=eval_distribute, protocol=protocol)
        refuse("RunConfig", experimental_distribute=experimental_distribute)
        refuse("RunConfig", experimental_max_worker_delay_secs=experimental_max_worker_delay_secs)
        _refuse_clusters()
        steps, secs = _intervals(save_checkpoints_steps, save_checkpoints_secs)
        self.model_dir = model_dir if model_dir is None else os.fspath(model_dir)
        self.tf_random_seed = tf_random_seed
        self.save_summary_steps = save_summary_steps
        self.save_checkpoints_steps, self.save_checkpoints_secs = steps, secs
        self.session_config = session_config
        self.keep_checkpoint_max = keep_checkpoint_max
        self.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self.log_step_count_steps = log_step_count_steps
        self.train_distribute = self.eval_distribute = None
        self.device_fn = device_fn
        self.protocol = None
        self.experimental_max_worker_delay_secs = None
        self.session_creation_timeout_secs = session_creation_timeout_secs
        self._check()

    def _check(self) -> None:
        if self.model_dir == "":
            raise errors.InvalidValueError("model_dir should be non-empty")
        for name in ("save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "keep_checkpoint_max"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise errors.InvalidValueError(f"{name} should be >= 0")
        for name in ("keep_checkpoint_every_n_hours", "log_step_count_steps", "session_creation_timeout_secs"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise errors.InvalidValueError(f"{name} should be > 0")
        if self.tf_random_seed is not None and not isinstance(self.tf_random_seed, int):
            raise errors.InvalidValueError("tf_random_seed must be integer.")
        if self.device_fn is not None and not callable(self.device_fn):
            raise errors.InvalidValueError("device_fn must be callable with exactly one argument `op`.")

    @property
    def cluster_spec(self) -> None:
        """Always None: there is no cluster."""

    def replace(self, **kwargs: Any) -> RunConfig:
        """Return a copy with other values.  Setting one of the two checkpoint intervals unsets the other.

        Raises:
            ValueError: a name is not a setting, or a value is out of range.
        """
        settings = {name: getattr(self, name) for name in _REPLACEABLE if hasattr(self, name)}
        for name in kwargs:
            if name not in _REPLACEABLE:
                raise errors.InvalidValueError(
                    f"Replacing {name} is not supported. Allowed properties are {_REPLACEABLE}."
                )
        if kwargs.get("save_checkpoints_steps") is not None:
            settings["save_checkpoints_secs"] = None
        if kwargs.get("save_checkpoints_secs") is not None:
            settings["save_checkpoints_steps"] = None
        return RunConfig(**{**copy.deepcopy(settings), **kwargs})

    def __repr__(self) -> str:
        return f"<RunConfig {vars(self)}>"


def _intervals(steps: Any, secs: Any) -> tuple[int | None, float | None]:
    if steps is _DEFAULT and secs is _DEFAULT:
        return None, _SECONDS
    steps, secs = (None if value is _DEFAULT else value for value in (steps, secs))
    if steps is not None and secs is not None:
        raise errors.InvalidValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
    return steps, secs


def _refuse_clusters() -> None:
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster")
    if cluster and sum(len(addresses) for addresses in cluster.values()) > 1:
        raise errors.UnsupportedError(
            f"RunConfig: the cluster of TF_CONFIG is not supported: {cluster!r:.200}; see docs/distributed.md"
        )
