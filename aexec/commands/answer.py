"""Prints the results of a run, for people or as JSON, or writes them to a file."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from aexec import errors
from aexec.commands.usage import wrong

__all__ = [
    "check_output",
    "check_values_file",
    "json_values",
    "print_json",
    "print_values",
    "save_values",
    "write_file",
]

STDOUT = "-"
_SUFFIXES = (".npy", ".npz")


def check_output(option: str, path: str | None) -> None:
    """Check that a file could be written, before anything is computed for it.

    Raises:
        UsageError: its folder does not exist.
    """
    if path not in (None, STDOUT) and not Path(path).absolute().parent.is_dir():
        wrong(f"{option} {path}: there is no folder {Path(path).parent}")


def check_values_file(path: str | None, count: int) -> None:
    """Like `check_output`, for the file of `count` values.

    Raises:
        UsageError: the file's suffix is not supported, or it is a terminal.
    """
    check_output("--out", path)
    if path is None:
        return
    if path == STDOUT:
        if sys.stdout.isatty():
            wrong("--out -: arrays are not for terminals; send them to a file or a pipe, or print them with --json")
    elif Path(path).suffix not in _SUFFIXES:
        wrong(f"--out {path}: expected a name that ends in {' or '.join(_SUFFIXES)}, or -")
    elif path.endswith(".npy") and count != 1:
        wrong(f"--out {path}: an .npy file holds one value, and there are {count}; name it .npz")


def print_values(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        array = np.asarray(value)
        print(f"{name}  {_kind(array)}{list(array.shape)}")
        print(np.array2string(array, threshold=100))


def json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the form of the service's JSON: `outputs`, `dtypes` and `shapes`, by name."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return {
        "outputs": {name: _listed(name, array) for name, array in arrays.items()},
        "dtypes": {name: _kind(array) for name, array in arrays.items()},
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
    }


def save_values(values: Mapping[str, Any], path: str) -> None:
    """Write an .npy file if that is the path's suffix, or for one value on standard output; else an .npz file."""
    for name, value in values.items():
        if np.asarray(value).dtype.kind == "O":
            raise errors.InvalidArgumentError(f"--out cannot save {name}: strings have no NumPy file form; see --json")
    if path == STDOUT:
        written = io.BytesIO()  # NumPy asks files for their position, which pipes do not have
        _save(values, written, alone=len(values) == 1)
        sys.stdout.buffer.write(written.getbuffer())
        return
    try:
        with open(path, "wb") as file:
            _save(values, file, alone=path.endswith(".npy"))
    except OSError as error:
        raise errors.InvalidArgumentError(f"cannot write {path}: {error}") from None


def write_file(path: str, data: bytes) -> None:
    if path == STDOUT:
        sys.stdout.buffer.write(data + b"\n")
        return
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise errors.InvalidArgumentError(f"cannot write {path}: {error}") from None


def _save(values: Mapping[str, Any], file: BinaryIO, *, alone: bool) -> None:
    if alone:
        np.save(file, next(iter(values.values())))
    else:
        np.savez(file, **dict(values))


def _kind(array: np.ndarray[Any, Any]) -> str:
    return "string" if array.dtype.kind == "O" else str(array.dtype)


def _listed(name: str, array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind == "c":
        raise errors.InvalidArgumentError(f"--json cannot print {name}: JSON has no complex numbers; see --out")
    if array.dtype.kind == "O":
        return _texts(array.tolist())
    if array.dtype.kind == "V":  # numbers of ml_dtypes
        array = array.astype(np.float32)
    return array.tolist()


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
