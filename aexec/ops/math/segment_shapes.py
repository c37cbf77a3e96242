"""Shape functions of `segment_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import DimensionOrConstant, InferenceContext, Shape


def _rows(c: InferenceContext, rows: DimensionOrConstant, data: Shape) -> Shape:
    return c.concatenate(c.vector(rows), c.subshape(data, 1))


def segment_reduction(c: InferenceContext) -> None:
    """One row per segment; inputs data, segment_ids."""
    data = c.with_rank_at_least(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    c.set_output(0, _rows(c, None, data))


def _sparse_segments(c: InferenceContext) -> Shape:
    data = c.with_rank_at_least(c.input(0), 1)
    c.merge(c.with_rank(c.input(1), 1), c.with_rank(c.input(2), 1))
    return data


def _sparse_segments_of_grad(c: InferenceContext) -> Shape:
    data = c.with_rank_at_least(c.input(0), 1)
    c.merge(c.input(2), c.with_rank(c.input(1), 1))
    c.with_rank(c.input(3), 0)
    return data


def _count(c: InferenceContext, index: int, name: str) -> int | None:
    value = c.input_tensor(index)
    if value is None:
        return None
    if value < 0:
        raise errors.InvalidArgumentError(f"Cannot specify a negative value for {name}")
    return int(value)


def sparse_segment_reduction(c: InferenceContext) -> None:
    """One row per segment; inputs data, indices, segment_ids."""
    c.set_output(0, _rows(c, None, _sparse_segments(c)))


def sparse_segment_reduction_with_num_segments(c: InferenceContext) -> None:
    """The number of rows that input 3 gives."""
    data = c.with_rank_at_least(c.input(0), 1)
    indices, ids = c.with_rank(c.input(1), 1), c.with_rank(c.input(2), 1)
    c.with_rank(c.input(3), 0)
    c.merge(indices, ids)
    c.set_output(0, _rows(c, _count(c, 3, "num_segments"), data))


def sparse_segment_reduction_grad(c: InferenceContext) -> None:
    """The number of rows that input 3, output_dim0, gives."""
    data = _sparse_segments_of_grad(c)
    c.set_output(0, _rows(c, _count(c, 3, "output_dim0"), data))


def sparse_segment_reduction_grad_v2(c: InferenceContext) -> None:
    """The rows that are not empty, and their indices."""
    data = _sparse_segments_of_grad(c)
    rows = c.unknown_dim()
    c.set_output(0, _rows(c, rows, data))
    c.set_output(1, c.vector(rows))
