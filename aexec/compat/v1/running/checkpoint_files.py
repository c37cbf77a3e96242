"""`tf.train`'s functions on checkpoint files: their state, age, removal, and waiting for new ones.

Next to read: `checkpoints.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from aexec import proto, training
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.session import waited
from aexec.compat.v1.running.training import latest_checkpoint
from aexec.framework import errors
from aexec.training import checkpoint_state

__all__ = [
    "checkpoints_iterator",
    "generate_checkpoint_state_proto",
    "get_checkpoint_mtimes",
    "remove_checkpoint",
    "update_checkpoint_state",
]


def get_checkpoint_mtimes(checkpoint_prefixes: Any) -> list[float]:
    """`tf.train.get_checkpoint_mtimes`: modification times in seconds since 1970; missing checkpoints are skipped."""
    indices = [f"{prefix}.index" for prefix in checkpoint_prefixes]
    return [os.stat(index).st_mtime for index in indices if os.path.exists(index)]


def remove_checkpoint(
    checkpoint_prefix: str, checkpoint_format_version: Any = 2, meta_graph_suffix: str = "meta"
) -> None:
    """`tf.train.remove_checkpoint`: deletes the files of a checkpoint."""
    refuse("remove_checkpoint", meta_graph_suffix=None if meta_graph_suffix == "meta" else meta_graph_suffix)
    waited(checkpoint_state.remove_checkpoint(checkpoint_prefix))


def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Any = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Any = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """`tf.train.update_checkpoint_state`: write the file that lists a folder's checkpoints."""
    paths = list(all_model_checkpoint_paths or ())
    if not paths or paths[-1] != model_checkpoint_path:
        paths.append(model_checkpoint_path)
    state = training.CheckpointState(
        model_checkpoint_path,
        tuple(paths),
        tuple(all_model_checkpoint_timestamps or ()),
        last_preserved_timestamp or 0.0,
    )
    waited(training.update_checkpoint_state(save_dir, state, latest_filename or "checkpoint"))


def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Any = None,
    all_model_checkpoint_timestamps: Any = None,
    last_preserved_timestamp: float | None = None,
) -> proto.CheckpointState:
    """`tf.train.generate_checkpoint_state_proto`: the message that a folder's `checkpoint` file holds.

    If `save_dir` is relative, relative paths are made relative to it.

    Raises:
        ValueError: timestamps are given, and their number is not that of the paths.
    """
    paths = list(all_model_checkpoint_paths or ())
    if not paths or paths[-1] != model_checkpoint_path:
        paths.append(model_checkpoint_path)
    if all_model_checkpoint_timestamps and len(all_model_checkpoint_timestamps) != len(paths):
        raise errors.InvalidValueError(
            f"Checkpoint timestamps, if provided, must match checkpoint paths (got paths {paths} and timestamps "
            f"{all_model_checkpoint_timestamps})"
        )

    def inside(path: str) -> str:
        return path if os.path.isabs(save_dir) or os.path.isabs(path) else os.path.relpath(path, save_dir)

    return proto.CheckpointState(
        model_checkpoint_path=inside(model_checkpoint_path),
        all_model_checkpoint_paths=[inside(path) for path in paths],
        all_model_checkpoint_timestamps=all_model_checkpoint_timestamps or (),
        last_preserved_timestamp=last_preserved_timestamp or 0.0,
    )


def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """`tf.train.checkpoints_iterator`: yield each new checkpoint of a folder, and block until the next.

    Args:
        min_interval_secs: least number of seconds between two results.
        timeout: seconds to wait for a checkpoint; None for no limit.
        timeout_fn: called after a timeout.  The iterator ends if it is None or returns True, else waits again.
    """
    last: str | None = None
    while True:
        begun = time.monotonic()
        while (found := latest_checkpoint(checkpoint_dir)) is None or found == last:
            if timeout is not None and time.monotonic() > begun + timeout:
                if timeout_fn is None or timeout_fn():
                    return
                begun = time.monotonic()
            time.sleep(min(1.0, timeout if timeout else 1.0))
        last, since = found, time.monotonic()
        yield found
        time.sleep(max(0.0, min_interval_secs - (time.monotonic() - since)))
