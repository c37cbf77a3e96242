"""The names of a SavedModel's file; apart from the loader, so that asking for them imports nothing else."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FILE_NAMES", "is_saved_model"]

FILE_NAMES = ("saved_model.pb", "saved_model.pbtxt")


def is_saved_model(directory: str | Path) -> bool:
    """True if the path is a directory with a SavedModel."""
    return any((Path(directory) / name).is_file() for name in FILE_NAMES)
