"""The `checkpoint` file: lists the checkpoints of a directory, and the latest.

It is a CheckpointState in text form, as TensorFlow writes it, and is replaced atomically.  Paths in it may be relative
to its directory.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial

from google.protobuf import text_format

from aexec import proto
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.io.checkpoint_files import checkpoint_files_exist, files_of_v1
from aexec.io.files import open_regular, reporting, text_path, write_atomically
from aexec.io.tensor_bundle import remove_bundle
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = [
    "DEFAULT_FILE",
    "CheckpointState",
    "checkpoint_exists",
    "get_checkpoint_state",
    "latest_checkpoint",
    "read_state",
    "remove_checkpoint",
    "update_checkpoint_state",
]

DEFAULT_FILE = "checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The content of a `checkpoint` file.

    Attributes:
        latest: prefix of the latest checkpoint.
        paths: prefixes of all that are kept, oldest first; the latest is the last.
        timestamps: when each was written, in seconds since 1970; empty if unknown.
        last_preserved: when the latest of those that are kept for ever was written; 0 if none.
    """

    latest: str
    paths: tuple[str, ...] = ()
    timestamps: tuple[float, ...] = ()
    last_preserved: float = 0.0


async def get_checkpoint_state(directory: str, latest_filename: str = DEFAULT_FILE) -> CheckpointState | None:
    """The content of a directory's `checkpoint` file, or None if there is none.

    Raises:
        DataLossError: the file is corrupt.
    """
    return await run_in_thread(read_state, directory, latest_filename, on_cancel=OnCancel.ABANDON)


async def latest_checkpoint(directory: str, latest_filename: str = DEFAULT_FILE) -> str | None:
    """Prefix of the latest checkpoint of a directory, or None if there is none.

    Raises:
        DataLossError: the `checkpoint` file is corrupt.
    """

    def find() -> str | None:
        state = read_state(directory, latest_filename)
        return state.latest if state is not None and checkpoint_files_exist(state.latest) else None

    return await run_in_thread(find, on_cancel=OnCancel.ABANDON)


async def checkpoint_exists(prefix: str) -> bool:
    """True if there is a checkpoint, of either format, with this prefix (or matching this pattern)."""
    return await run_in_thread(checkpoint_files_exist, prefix, on_cancel=OnCancel.ABANDON)


async def update_checkpoint_state(
    directory: str, state: CheckpointState, latest_filename: str = DEFAULT_FILE, *, relative: bool = False
) -> None:
    """Replace a directory's `checkpoint` file.

    Args:
        directory: the directory.
        state: the new content.
        latest_filename: name of the file.
        relative: write paths relative to the directory, so that it can be moved.

    Raises:
        InvalidArgumentError: the number of timestamps is not that of the paths.
        OpError: the class for an error of the system.
    """
    write = partial(write_state, directory, state, latest_filename, relative=relative)
    await run_in_thread(write, on_cancel=OnCancel.WAIT)


async def remove_checkpoint(prefix: str) -> None:
    """Delete a checkpoint of either format with its `.meta` file.  Missing files are ignored."""
    await run_in_thread(remove, prefix, on_cancel=OnCancel.WAIT)


# Blocking forms


def read_state(directory: str, latest_filename: str = DEFAULT_FILE) -> CheckpointState | None:
    """The result of `get_checkpoint_state`, read in this thread.  Raises likewise."""
    path = os.path.join(directory, latest_filename)
    try:
        with reporting(path), open_regular(path) as file:
            text = file.read()
    except errors.NotFoundError:
        return None
    message = proto.CheckpointState()
    try:
        text_format.Parse(text, message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.DataLossError(f"{path} is no checkpoint state: {error}") from None

    def located(prefix: str) -> str:
        return prefix if os.path.isabs(prefix) else os.path.join(directory, prefix)

    if not message.model_checkpoint_path:
        raise errors.DataLossError(f"{path} names no latest checkpoint")
    return CheckpointState(
        located(message.model_checkpoint_path),
        tuple(located(p) for p in message.all_model_checkpoint_paths),
        tuple(message.all_model_checkpoint_timestamps),
        message.last_preserved_timestamp,
    )


def write_state(
    directory: str, state: CheckpointState, latest_filename: str = DEFAULT_FILE, *, relative: bool = False
) -> None:
    paths = list(state.paths)
    if state.timestamps and len(state.timestamps) != len(paths):
        raise errors.InvalidValueError(f"{len(state.timestamps)} timestamps for {len(paths)} checkpoints")
    timestamps = list(state.timestamps)
    if state.latest not in paths:
        paths.append(state.latest)
        timestamps += [0.0] if timestamps else []

    def written(prefix: str) -> str:
        # A relative path would mean another place when read from the directory.
        return os.path.relpath(prefix, directory or ".") if relative or not os.path.isabs(prefix) else prefix

    message = proto.CheckpointState(
        model_checkpoint_path=written(state.latest),
        all_model_checkpoint_paths=map(written, paths),
        all_model_checkpoint_timestamps=timestamps,
        last_preserved_timestamp=state.last_preserved,
    )
    with write_atomically(os.path.join(directory, latest_filename)) as file:
        file.write(text_format.MessageToString(message).encode())


def remove(prefix: str) -> None:
    path = text_path(prefix)
    remove_bundle(path)
    for file in (*files_of_v1(path), f"{path}.meta"):
        with contextlib.suppress(errors.NotFoundError), reporting(file):
            os.unlink(file)
