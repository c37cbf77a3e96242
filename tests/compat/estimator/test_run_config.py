"""`tf.estimator.RunConfig`: its defaults, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_defaults() -> None:
    config = tf.estimator.RunConfig()
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (600, None)
    assert (config.keep_checkpoint_max, config.log_step_count_steps, config.save_summary_steps) == (5, 100, 100)
    assert config.is_chief and config.master == "" and config.cluster_spec is None and config.num_worker_replicas == 1


def test_intervals_of_checkpoints_replace_each_other() -> None:
    config = tf.estimator.RunConfig(save_checkpoints_steps=5)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (5, None)
    changed = config.replace(save_checkpoints_secs=7, model_dir="a")
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs, changed.model_dir) == (None, 7, "a")
    assert config.model_dir is None
    with pytest.raises(ValueError, match="cannot be both set"):
        tf.estimator.RunConfig(save_checkpoints_steps=5, save_checkpoints_secs=7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_dir": ""}, "model_dir should be non-empty"),
        ({"save_summary_steps": -1}, "save_summary_steps should be >= 0"),
        ({"log_step_count_steps": 0}, "log_step_count_steps should be > 0"),
        ({"tf_random_seed": 1.5}, "tf_random_seed must be integer"),
        ({"device_fn": 7}, "device_fn must be callable"),
    ],
)
def test_values_out_of_range(settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tf.estimator.RunConfig(**settings)


def test_other_properties_are_not_replaced() -> None:
    with pytest.raises(ValueError, match="Replacing master is not supported"):
        tf.estimator.RunConfig().replace(master="a")


def test_clusters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.UnimplementedError, match="train_distribute"):
        tf.estimator.RunConfig(train_distribute=object())
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:1"]}}))
    with pytest.raises(errors.UnimplementedError, match="TF_CONFIG"):
        tf.estimator.RunConfig()
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    tf.estimator.RunConfig()
