"""Kernels that summarise tensors: Fingerprint (a stable hash of each row) and EditDistance of sparse sequences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.row_lists import row_lists
from aexec.numerics.farmhash_rows import fingerprint64_rows, fingerprint64_strings

Point = tuple[int, ...]
# Nanoseconds per row of indices; per row of a table of distances, besides one per column; bytes per column, for the few
# rows that exist at a time.
_PLACE_NS, _ROW_NS, _COLUMN_BYTES = 300.0, 10_000.0, 64


@kernel("Fingerprint", cost=4.0)
def fingerprint(c: OpKernelConstruction) -> Compute:
    """Return eight bytes for each row along dimension 0: FarmHash's Fingerprint64, little-endian.

    A row of one string is hashed directly; in longer rows each string is hashed first, then the hashes.
    """
    dtype = c.attr("T")
    if not dtype.is_simple and dtype is not dtypes.string:
        raise errors.InvalidArgumentError(f"Data type not supported: {dtype}")

    def compute(data: Any, method: Any) -> Any:
        if data.ndim < 1:
            raise errors.InvalidArgumentError(f"`data` should have at least one dimension: {shape_text(data.shape)}")
        if method.ndim:
            raise errors.InvalidArgumentError(f"`method` should be a scalar string: {shape_text(method.shape)}")
        if method.item() != b"farmhash64":
            raise errors.InvalidArgumentError(f"Unsupported fingerprint method: {abridged(method.item())}")
        count = data.shape[0]
        if dtype is dtypes.string:
            hashes = fingerprint64_strings(data.ravel().tolist())
            if data.size == count:
                return hashes.view(np.uint8).reshape(count, 8)
            data = hashes.reshape(data.shape)
        width = data.size // count if count else 0
        rows = np.ascontiguousarray(data).view(np.uint8).reshape(count, width * data.itemsize)
        return fingerprint64_rows(rows).view(np.uint8).reshape(count, 8)

    return compute


# ---- EditDistance


def _edit_distance_cost(hi: Any, hypothesis: Any, hs: Any, ti: Any, truth: Any, ts: Any) -> Any:
    return 2e4 * (hypothesis.size + truth.size)


@kernel(
    "EditDistance",
    cost=_edit_distance_cost,
    T=[t for t in dtypes.ALL if t not in (dtypes.resource, dtypes.variant)],
)
def edit_distance(c: OpKernelConstruction) -> Compute:
    """Levenshtein distance between the sequences of two sparse tensors, whose last dimension is time.

    If only one of them has a sequence, the distance is its length.  Normalised by the length of the truth, it is 1
    without a hypothesis, and infinite without a truth.
    """
    normalize = c.attr("normalize")
    allocate, zeros = allocator(c), np.zeros

    def compute(hi: Any, hv: Any, hs: Any, ti: Any, tv: Any, ts: Any) -> Any:
        for name, indices, values, shape in (("hypothesis", hi, hv, hs), ("truth", ti, tv, ts)):
            _check_sparse(name, indices, values, shape)
        if ts.size < 2:
            raise errors.InvalidArgumentError(
                f"Input SparseTensors must have rank at least 2, but truth_shape rank is: {ts.size}"
            )
        if hs.size != ts.size:
            raise errors.InvalidArgumentError(
                f"Expected hypothesis_shape and truth_shape to have the same rank, but got {hs.size} and {ts.size}"
            )
        for size in (*hs.tolist(), *ts.tolist()):
            if size < 0:
                raise errors.InvalidArgumentError(f"Dimension {size} must be >= 0")
        shape = [max(a, b) for a, b in zip(hs.tolist()[:-1], ts.tolist()[:-1], strict=True)]
        out = allocate(shape, zeros)
        for place, hypothesis, truth in _merged(_sequences(hi, hv), _sequences(ti, tv)):
            if not all(0 <= i < size for i, size in zip(place, shape, strict=True)):
                flat = sum(i * math.prod(shape[d + 1 :]) for d, i in enumerate(place))
                raise errors.InvalidArgumentError(
                    f"Got an inner product {flat} which would require writing to outside of the buffer "
                    f"for the output tensor (max elements {out.size})"
                )
            out[place] = _distance(hypothesis, truth, normalize)
        return out

    return compute


def _check_sparse(name: str, indices: Any, values: Any, shape: Any) -> None:
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(
            f"{name}_indices should be a matrix, but got shape: {shape_text(indices.shape)}"
        )
    for part, array in (("values", values), ("shape", shape)):
        if array.ndim != 1:
            raise errors.InvalidArgumentError(
                f"{name}_{part} should be a vector, but got shape: {shape_text(array.shape)}"
            )
    if values.size != indices.shape[0]:
        raise errors.InvalidArgumentError(
            f"Expected {name}_values.NumElements == #rows({name}_indices), "
            f"their shapes are: {shape_text(values.shape)} and {shape_text(indices.shape)}"
        )
    if shape.size != indices.shape[1]:
        raise errors.InvalidArgumentError(
            f"Expected {name}_shape.NumElements == #cols({name}_indices), "
            f"their shapes are: {shape_text(shape.shape)} and {shape_text(indices.shape)}"
        )


def _sequences(indices: Any, values: Any) -> Iterator[tuple[Point, Any]]:
    """Yield (position, values) for each run of entries that differ in the last dimension only."""
    start = 0
    for place, run in groupby(map(tuple, row_lists(indices[:, :-1], _PLACE_NS))):
        stop = start + sum(1 for _ in run)
        yield place, values[start:stop]
        start = stop


def _merged(
    hypotheses: Iterator[tuple[Point, Any]], truths: Iterator[tuple[Point, Any]]
) -> Iterator[tuple[Point, Any, Any]]:
    """Yield (position, hypothesis or None, truth or None), for inputs in row-major order."""
    hypothesis, truth = next(hypotheses, None), next(truths, None)
    while hypothesis or truth:
        if truth is None or (hypothesis is not None and hypothesis[0] < truth[0]):
            assert hypothesis is not None
            yield hypothesis[0], hypothesis[1], None
            hypothesis = next(hypotheses, None)
        elif hypothesis is None or truth[0] < hypothesis[0]:
            yield truth[0], None, truth[1]
            truth = next(truths, None)
        else:
            yield truth[0], hypothesis[1], truth[1]
            hypothesis, truth = next(hypotheses, None), next(truths, None)


def _distance(hypothesis: Any, truth: Any, normalize: bool) -> float:
    if truth is None:
        return float("inf") if normalize else float(hypothesis.size)
    if hypothesis is None:
        return 1.0 if normalize else float(truth.size)
    distance = _levenshtein(hypothesis, truth)
    # Both sequences have at least one element.  The quotient is in float32, as TensorFlow's.
    return float(np.float32(distance) / np.float32(truth.size)) if normalize else float(distance)


def _levenshtein(a: Any, b: Any) -> int:
    """The fewest insertions, deletions and replacements that turn `a` into `b`.

    Computes the usual table row by row.  An insertion carries a cost along the row; a running minimum of `cost -
    column` does this for the whole row at once.
    """
    announce_scratch(_COLUMN_BYTES * b.size)
    columns = np.arange(b.size + 1)
    row = columns
    for i in giving_way(range(a.size), _ROW_NS + b.size):
        fresh = np.empty(b.size + 1, np.int64)
        fresh[0] = i + 1
        np.minimum(row[1:] + 1, row[:-1] + (b != a[i]), out=fresh[1:])
        row = np.minimum.accumulate(fresh - columns) + columns
    return int(row[-1])
