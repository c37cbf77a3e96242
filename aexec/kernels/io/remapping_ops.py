"""Variables of one vocabulary loaded for another: where its words were, and the rows and columns of a checkpoint.

Next to read: `save_restore_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.io.files import text_path
from aexec.io.tensor_bundle import BundleReader
from aexec.io.tensor_slice import TensorSlice
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.files import blocking, scalar_of
from aexec.kernels.lookup.vocabulary import TextFileFormat

__all__: list[str] = []

_WHOLE_LINE, _LINE_NUMBER = -2, -1


def _words(path: str, count: int) -> list[bytes]:
    """The first `count` lines of a file; all of them for -1."""
    lines = TextFileFormat(_WHOLE_LINE, _LINE_NUMBER, count, b"\t", 0).read(path, dtypes.string, dtypes.int64)[0]
    return list(lines.tolist())


def _path(filename: Any, name: str) -> str:
    path = text_path(scalar_of(filename, f"{name} should be a single string, but got"))
    if not path:
        raise errors.InvalidArgumentError(f"{name} cannot be empty.")
    return path


def _places(words: list[bytes]) -> dict[bytes, int]:
    places = dict[bytes, int]()
    for place, word in enumerate(words):
        if places.setdefault(word, place) != place:
            raise errors.FailedPreconditionError(
                f"HashTable has different value for same key. Key {abridged(word)} has {places[word]} "
                f"and trying to add value {place}"
            )
    return places


@kernel("GenerateVocabRemapping", cost=blocking)
def vocabulary_remapping(c: OpKernelConstruction) -> Compute:
    """Return, for each of `num_new_vocab` words of a file, its line in an old file, or -1; and how many there are."""
    first, count, old_size = c.attr("new_vocab_offset"), c.attr("num_new_vocab"), c.attr("old_vocab_size")

    def compute(new_vocab_file: Any, old_vocab_file: Any) -> Any:
        new = _words(_path(new_vocab_file, "new_vocab_file"), -1)
        if first + count > len(new):
            raise errors.InvalidArgumentError("lookup table size must be larger than last new vocab entry's line")
        old = _places(_words(_path(old_vocab_file, "old_vocab_file"), old_size))
        remapping = np.array([old.get(word, -1) for word in new[first : first + count]], np.int64)
        return remapping, np.int32((remapping >= 0).sum())

    return compute


def _check_once(remapping: Any) -> None:
    """Raise UnimplementedError if an old row or column is taken twice."""
    ids, first, counts = np.unique(remapping, return_index=True, return_counts=True)
    for old, new, count in zip(ids.tolist(), first.tolist(), counts.tolist(), strict=True):
        if old >= 0 and count > 1:
            again = int(np.flatnonzero(remapping == old)[1])
            raise errors.UnimplementedError(
                f"Old ID {old} is mapped to both new ID {new} and {again}, which is not supported."
            )


def _check_remapping(rows: Any, columns: Any, num_rows: int, num_cols: int) -> None:
    for name, remapping in (("row_remapping", rows), ("col_remapping", columns)):
        if remapping.ndim != 1:
            raise errors.InvalidArgumentError(
                f"The `{name}` tensor must be 1-D, got a tensor of shape {shape_text(remapping.shape)}"
            )
    if rows.size != num_rows:
        raise errors.InvalidArgumentError(
            f"Size of row_remapping is {rows.size} instead of being equal to num_rows={num_rows}"
        )
    _check_once(rows)
    if columns.size not in (0, num_cols):
        raise errors.InvalidArgumentError(
            f"Provided col_remapping, but its size is {columns.size} instead of being equal to num_cols={num_cols}"
        )
    _check_once(columns)


def _check_stored(bundle: BundleReader, name: str, rows: Any, columns: Any, num_cols: int) -> None:
    dtype, shape = bundle.dtype_and_shape(name)
    what = f"Tensor {name} has"
    if dtype is not dtypes.float32:
        raise errors.InvalidArgumentError(f"{what} invalid type {dtype} instead of expected type float")
    if len(shape) != 2:
        raise errors.InvalidArgumentError(
            f"{what} shape {shape_text(shape)} of invalid rank {len(shape)} instead of expected shape of rank 2."
        )
    if not columns.size and shape[1] != num_cols:
        raise errors.InvalidArgumentError(
            f"{what} shape {shape_text(shape)}, where the size of its 2nd dimension is {shape[1]} "
            f"instead of being equal to num_cols={num_cols}"
        )
    for remapping, size, axis in ((rows, shape[0], "row"), (columns, shape[1], "column")):
        if remapping.size and remapping.max() >= size:
            raise errors.InvalidArgumentError(f"{what} shape {shape_text(shape)}, but no {axis} {remapping.max()}")


def _copy(bundle: BundleReader, name: str, rows: Any, columns: Any, most_rows: int, out: Any) -> None:
    """Fill the parts of `out` that have a row and a column in the checkpoint."""
    wanted = np.flatnonzero(rows >= 0)
    if not wanted.size:
        return
    first, end = int(rows[wanted].min()), int(rows[wanted].max()) + 1
    step = most_rows if most_rows > 0 else end - first
    for start in range(first, end, step):
        check_wanted()
        length = min(step, end - start)
        part = bundle.read_slice(name, TensorSlice(((start, length), (0, -1))))
        here = wanted[(rows[wanted] >= start) & (rows[wanted] < start + length)]
        if columns.size:
            kept = np.flatnonzero(columns >= 0)
            out[np.ix_(here, kept)] = part[np.ix_(rows[here] - start, columns[kept])]
        else:
            out[here] = part[rows[here] - start]


def _fill_in(out: Any, rows: Any, columns: Any, values: Any) -> None:
    """Fill what is missing in the checkpoint, row by row."""
    absent = (rows < 0)[:, None] | (columns < 0 if columns.size else np.zeros(out.shape[1], bool))
    missing = int(absent.sum())
    if values.size < missing:
        raise errors.InvalidArgumentError(
            f"initializing_values contained {values.size} elements, but more missing values remain."
        )
    if values.size > missing:
        raise errors.InvalidArgumentError(
            f"initializing_values contained {values.size} elements, "
            f"but only {missing} elements were used to fill in missing values."
        )
    out[absent] = values.reshape(-1)


@kernel("LoadAndRemapMatrix", cost=blocking)
def remapped_matrix(c: OpKernelConstruction) -> Compute:
    """Return [num_rows, num_cols] of float32: rows and columns of a matrix of a checkpoint.

    The remappings give the old row and column of each new one, -1 for one that is filled with `initializing_values`; no
    column remapping keeps the columns.
    """
    shape, most_rows = (c.attr("num_rows"), c.attr("num_cols")), c.attr("max_rows_in_memory")
    allocate = allocator(c)

    def compute(ckpt_path: Any, old_tensor_name: Any, rows: Any, columns: Any, initializing_values: Any) -> Any:
        _check_remapping(rows, columns, *shape)
        if ckpt_path.size != 1:
            raise errors.InvalidArgumentError(
                "The `ckpt_path` tensor must have exactly one element, "
                f"got tensor of shape {shape_text(ckpt_path.shape)}"
            )
        name = text_path(scalar_of(old_tensor_name, "old_tensor_name should be a single string, but got"))
        with BundleReader(text_path(ckpt_path.item())) as bundle:
            _check_stored(bundle, name, rows, columns, shape[1])
            out = allocate(shape)
            announce_scratch(out.size)
            _copy(bundle, name, rows, columns, most_rows, out)
        _fill_in(out, rows, columns, initializing_values)
        return out

    return compute
