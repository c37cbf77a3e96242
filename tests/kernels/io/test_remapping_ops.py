"""Remapped vocabularies and matrices: what TensorFlow gives for the same files, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from tests.kernels import harness
from tests.kernels.harness import in_tensorflow, registered, strings

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)
FILES = {"new": "a\nb\nc\nd\n", "old": "d\nx\nb\n", "empty": "", "dup": "a\na\n", "blank": "a\n\nb\n"}


def run_op(op: str, inputs: list[Any], **attrs: Any) -> Any:
    return harness.run_op(op, [i.encode() if isinstance(i, str) else i for i in inputs], context=(), **attrs)


@pytest.mark.parametrize("op", ["GenerateVocabRemapping", "LoadAndRemapMatrix"])
def test_registrations_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


def remapping(folder: Path, new: Any = "new", old: Any = "old", off: int = 0, num: int = 4, size: int = -1) -> Any:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    names = [str(folder / name) if isinstance(name, str) and name else name for name in (new, old)]
    attrs = {"new_vocab_offset": off, "num_new_vocab": num, "old_vocab_size": size}
    return run_op("GenerateVocabRemapping", names, **attrs)


@pytest.mark.parametrize(
    ("changed", "want", "present"),
    [
        ({}, [-1, 2, -1, 0], 2),
        ({"off": 1, "num": 2}, [2, -1], 1),
        ({"size": 2}, [-1, -1, -1, 0], 1),
        ({"num": 0}, [], 0),
        ({"off": 4, "num": 0}, [], 0),
        ({"new": "dup", "num": 2}, [-1, -1], 0),
    ],
)
def test_vocabulary(tmp_path: Path, changed: dict[str, Any], want: list[int], present: int) -> None:
    places, count = remapping(tmp_path, **changed)
    assert places.dtype == np.int64 and places.tolist() == want
    assert count.dtype == np.int32 and count == present


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"off": 2, "num": 3}, errors.InvalidArgumentError, "lookup table size must be larger than last new vocab"),
        ({"size": 4}, errors.InvalidArgumentError, "expected 4 but got 3"),
        ({"size": 0}, errors.OutOfRangeError, "Finished reading 0 of lines from"),
        ({"new": ""}, errors.InvalidArgumentError, "new_vocab_file cannot be empty."),
        ({"old": ""}, errors.InvalidArgumentError, "old_vocab_file cannot be empty."),
        ({"new": strings("new")}, errors.InvalidArgumentError, "new_vocab_file should be a single string, but got [1]"),
        ({"new": "none"}, errors.NotFoundError, "No such file or directory"),
        ({"old": "empty"}, errors.OutOfRangeError, "Read less bytes than requested"),
        ({"old": "dup"}, errors.FailedPreconditionError, "Key a has 0 and trying to add value 1"),
        ({"old": "blank"}, errors.InvalidArgumentError, "empty line found at position 3."),
    ],
)
def test_vocabulary_refused(tmp_path: Path, changed: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        remapping(tmp_path, **changed)
    assert message in caught.value.message


def load(
    folder: Path, rows: Any, columns: Any, values: Any, num_rows: int, num_cols: int, name: str = "m", most: int = -1
) -> Any:
    prefix = str(folder / "ck")
    tensors = [MATRIX, np.float32([1, 2]), np.float64([[1]])]
    run_op("SaveV2", [prefix, strings("m", "v", "d"), strings("", "", ""), tensors])
    inputs = [prefix, name, np.int64(rows), np.int64(columns), np.float32(values)]
    attrs = {"num_rows": num_rows, "num_cols": num_cols, "max_rows_in_memory": most}
    return run_op("LoadAndRemapMatrix", inputs, **attrs)


@pytest.mark.parametrize("most", [-1, 1, 2])
@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (([2, 0], [], [], 2, 3), [[6, 7, 8], [0, 1, 2]]),
        (([2, 0], [1, 2, 0], [], 2, 3), [[7, 8, 6], [1, 2, 0]]),
        (([2, -1, 0], [1, -1], [10, 11, 12, 13], 3, 2), [[7, 10], [11, 12], [1, 13]]),
        (([3], [2], [], 1, 1), [[11]]),
        (([-1, -1], [0], [1, 2], 2, 1), [[1], [2]]),
        (([-5, 1], [0], [1], 2, 1), [[1], [3]]),
    ],
)
def test_matrix(tmp_path: Path, arguments: Any, want: Any, most: int) -> None:
    got = load(tmp_path, *arguments, most=most)
    assert got.dtype == np.float32 and got.tolist() == want


def test_matrix_without_rows(tmp_path: Path) -> None:
    assert load(tmp_path, [], [], [], 0, 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([2, 2], [], [], 2, 3), errors.UnimplementedError, "Old ID 2 is mapped to both new ID 0 and 1, which is not"),
        (([0], [1, 1, 0], [], 1, 3), errors.UnimplementedError, "Old ID 1 is mapped to both new ID 0 and 1"),
        (([2, 0], [], [1], 2, 3), errors.InvalidArgumentError, "but only 0 elements were used to fill in missing"),
        (([-1, 0], [], [1], 2, 3), errors.InvalidArgumentError, "contained 1 elements, but more missing values remain"),
        (
            ([0], [], [], 2, 3),
            errors.InvalidArgumentError,
            "Size of row_remapping is 1 instead of being equal to num_ro",
        ),
        (([0], [1], [], 1, 3), errors.InvalidArgumentError, "Provided col_remapping, but its size is 1 instead of"),
        (([0], [], [], 1, 2), errors.InvalidArgumentError, "where the size of its 2nd dimension is 3 instead of being"),
        (([9], [], [], 1, 3), errors.InvalidArgumentError, "Tensor m has shape [4,3], but no row 9"),
        (([0], [7], [], 1, 1), errors.InvalidArgumentError, "Tensor m has shape [4,3], but no column 7"),
        (([0], [], [], 1, 3, "v"), errors.InvalidArgumentError, "has shape [2] of invalid rank 1 instead of expected"),
        (([0], [], [], 1, 1, "d"), errors.InvalidArgumentError, "Tensor d has invalid type double instead of expected"),
        (([0], [], [], 1, 3, "none"), errors.NotFoundError, "Key none not found in checkpoint"),
        (([[0]], [], [], 1, 3), errors.InvalidArgumentError, "The `row_remapping` tensor must be 1-D, got a tensor of"),
        (([0], [[0, 1, 2]], [], 1, 3), errors.InvalidArgumentError, "The `col_remapping` tensor must be 1-D, got a"),
    ],
)
def test_matrix_refused(tmp_path: Path, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        load(tmp_path, *arguments)
    assert message in caught.value.message


def test_static_shapes() -> None:
    with aexec.Graph():
        places, count = ops.generate_vocab_remapping("a", "b", new_vocab_offset=0, num_new_vocab=4)
        assert [str(output.shape) for output in (places, count)] == ["[4]", "[]"]
        rows, columns = np.int64([1]), np.int64([0])
        matrix = ops.load_and_remap_matrix("a", "b", rows, columns, np.float32([1]), num_rows=2, num_cols=3)
        assert str(matrix.shape) == "[2,3]"
