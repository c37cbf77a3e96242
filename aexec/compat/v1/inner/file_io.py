"""`tensorflow.python.lib.io.file_io`: `tf.gfile` under the names of functions.

Next to read: `aexec/compat/v1/platform/gfile.py`.
"""

from __future__ import annotations

import os
from typing import Any

from aexec.compat.v1.platform import gfile

__all__ = [
    "FileIO",
    "atomic_write_string_to_file",
    "copy",
    "create_dir",
    "delete_file",
    "delete_recursively",
    "file_exists",
    "get_matching_files",
    "is_directory",
    "list_directory",
    "read_file_to_string",
    "recursive_create_dir",
    "rename",
    "stat",
    "walk",
    "write_string_to_file",
]

FileIO = gfile.GFile
copy = gfile.Copy
create_dir = gfile.MkDir
delete_file = gfile.Remove
delete_recursively = gfile.DeleteRecursively
file_exists = gfile.Exists
get_matching_files = gfile.Glob
is_directory = gfile.IsDirectory
list_directory = gfile.ListDirectory
recursive_create_dir = gfile.MakeDirs
rename = gfile.Rename
stat = gfile.Stat
walk = gfile.Walk


def read_file_to_string(filename: Any, binary_mode: bool = False) -> Any:
    """The text of a file, or its bytes.  Raises NotFoundError."""
    with gfile.GFile(filename, "rb" if binary_mode else "r") as file:
        return file.read()


def write_string_to_file(filename: Any, file_content: str | bytes) -> None:
    """Write a file anew."""
    with gfile.GFile(filename, "wb" if isinstance(file_content, bytes) else "w") as file:
        file.write(file_content)


def atomic_write_string_to_file(filename: Any, contents: str | bytes, overwrite: bool = True) -> None:
    """Write a file; others see it when it is whole.  Raises AlreadyExistsError unless `overwrite`."""
    beside = f"{os.fspath(filename)}.tmp{os.getpid()}"
    write_string_to_file(beside, contents)
    try:
        gfile.Rename(beside, filename, overwrite=overwrite)
    except Exception:
        gfile.Remove(beside)
        raise
