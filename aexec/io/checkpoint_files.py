"""Checks that the files of a checkpoint, of either format, exist and are complete.

Next to read: `tensor_bundle.py`, `checkpoint_v1.py`.
"""

from __future__ import annotations

import os

from aexec.framework import errors
from aexec.io.checkpoint_v1 import CheckpointV1Reader
from aexec.io.files import reporting, text_path
from aexec.io.matching import matching_files
from aexec.io.tensor_bundle import BundleReader, index_path

__all__ = ["check_checkpoint", "checkpoint_files_exist", "files_of_v1"]


def checkpoint_files_exist(prefix: str | bytes) -> bool:
    """True if a checkpoint of this prefix exists, even if it is incomplete."""
    path = text_path(prefix)
    return os.path.exists(index_path(path)) or bool(files_of_v1(path))


def check_checkpoint(prefix: str | bytes) -> None:
    """Check the headers and sizes of a checkpoint's files; the tensors themselves are not read.

    Raises:
        NotFoundError: there is no checkpoint, or a data file of it is missing.
        DataLossError: a file is cut off or corrupt.
        OpError: a file cannot be read.
    """
    path = text_path(prefix)
    if os.path.exists(index_path(path)):
        with BundleReader(path) as reader:
            reader.check_files()
    elif files_of_v1(path):
        CheckpointV1Reader(path)
    else:
        raise errors.NotFoundError(
            f"The passed save_path is not a valid checkpoint: {path}: there is no {index_path(path)}"
        )


def files_of_v1(prefix: str) -> list[str]:
    """The files of a checkpoint of format V1 with this prefix, which may be a pattern."""
    with reporting(prefix):
        return [path for path in matching_files(prefix) if os.path.isfile(path)]
