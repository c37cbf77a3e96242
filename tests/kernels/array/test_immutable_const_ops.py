"""Constants in files: values, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aexec import errors
from tests.kernels.harness import in_tensorflow, registered, run_op

FILES = {"raw": np.arange(6, dtype=np.float32).tobytes(), "odd": b"a\0c", "empty": b""}


def constant(folder: Path, dtype: str, shape: Any, name: str) -> Any:
    for file, data in FILES.items():
        (folder / file).write_bytes(data)
    return run_op("ImmutableConst", [], dtype=dtype, shape=shape, memory_region_name=str(folder / name).encode())


def test_registrations_are_tensorflows() -> None:
    assert registered("ImmutableConst") == in_tensorflow("ImmutableConst")


@pytest.mark.parametrize(
    ("dtype", "shape", "name", "want"),
    [
        ("float", [2, 3], "raw", [[0, 1, 2], [3, 4, 5]]),
        ("float", [2, 2], "raw", [[0, 1], [2, 3]]),
        ("double", [], "raw", 0.0078125),
        ("uint8", [3], "odd", [97, 0, 99]),
        ("bool", [3], "odd", [True, False, True]),
        ("float", [0], "raw", []),
    ],
)
def test_values_are_the_bytes_of_the_file(tmp_path: Path, dtype: str, shape: Any, name: str, want: Any) -> None:
    got = constant(tmp_path, dtype, shape, name)
    assert got.shape == tuple(shape) and got.tolist() == want


def test_mapped_constant_cannot_be_written(tmp_path: Path) -> None:
    assert not constant(tmp_path, "float", [6], "raw").flags.writeable


@pytest.mark.parametrize(
    ("dtype", "shape", "name", "error", "message"),
    [
        ("float", [7], "raw", errors.InternalError, "memory region has wrong length (24) when allocating 28"),
        (
            "float",
            [1 << 40, 1 << 20],
            "raw",
            errors.InternalError,
            "wrong length (24) when allocating 4611686018427387904",
        ),
        ("float", [0], "empty", errors.InvalidArgumentError, "the file is empty"),
        ("float", [1], "none", errors.NotFoundError, "No such file or directory"),
        ("string", [1], "raw", errors.UnimplementedError, "Sorry, DT_STRING is not currently supported"),
        ("resource", [1], "raw", errors.InvalidArgumentError, "Resource and variant dtypes are invalid"),
        ("float", [None], "raw", errors.InvalidArgumentError, "must be fully defined, not"),
    ],
)
def test_refused(tmp_path: Path, dtype: str, shape: Any, name: str, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        constant(tmp_path, dtype, shape, name)
    assert message in caught.value.message
