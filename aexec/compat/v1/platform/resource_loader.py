"""`tf.resource_loader`: files that are beside the module that asks for them."""

from __future__ import annotations

import os
import sys

__all__ = [
    "get_data_files_path",
    "get_path_to_datafile",
    "get_root_dir_with_all_resources",
    "load_resource",
    "readahead_file_path",
]


def _folder_of_caller() -> str:
    return os.path.dirname(os.path.abspath(str(sys._getframe(2).f_globals.get("__file__", ""))))


def get_data_files_path() -> str:
    """The folder of the module that calls."""
    return _folder_of_caller()


def get_path_to_datafile(path: str) -> str:
    """The path of a file, given relative to the module that calls."""
    return os.path.join(_folder_of_caller(), path)


def get_root_dir_with_all_resources() -> str:
    """The folder of the module that calls."""
    return _folder_of_caller()


def load_resource(path: str) -> bytes:
    """The content of a file, given relative to the module that calls."""
    with open(os.path.join(_folder_of_caller(), path), "rb") as file:
        return file.read()


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """The path itself."""
    return path
