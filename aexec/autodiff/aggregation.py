"""Sums several gradients of one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.framework import dtypes
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["AGGREGATIONS", "Gradient", "add_up", "as_dense", "not_dead"]

# A gradient during the backward walk: dense, or some rows.
Gradient = Tensor | IndexedSlices[Tensor]

AGGREGATIONS = ("add_n", "tree")


def add_up(gradients: Sequence[Gradient], method: str = "add_n") -> Gradient:
    """The sum of gradients of one tensor.

    Dense gradients are summed by one AddN per device, and these sums by another; or in pairs (`"tree"`), which frees
    the memory of the first ones early.  If all gradients consist of rows, so does the sum: values and indices are
    concatenated.  If only some do, the sum is dense.
    """
    if len(gradients) == 1:
        return gradients[0]
    rows = [grad for grad in gradients if isinstance(grad, IndexedSlices)]
    if len(rows) == len(gradients):
        return _joined(rows)
    dense = [convert_to_tensor(grad) if isinstance(grad, IndexedSlices) else grad for grad in gradients]
    if method == "tree":
        return _in_pairs(dense)
    by_device: dict[str, list[Tensor]] = {}
    for grad in dense:
        by_device.setdefault(grad.node.device, []).append(grad)
    return _sum([_sum(group) for group in by_device.values()])


def _sum(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else ops.add_n(tensors)


def _in_pairs(tensors: list[Tensor]) -> Tensor:
    while len(tensors) > 1:
        tensors = [_sum(tensors[i : i + 2]) for i in range(0, len(tensors), 2)]
    return tensors[0]


def _as_slices(grad: Gradient) -> IndexedSlices[Tensor]:
    """A dense gradient as all of its rows."""
    if isinstance(grad, IndexedSlices):
        return grad
    shape = ops.shape(grad)
    return IndexedSlices(grad, ops.range(0, shape[0], 1), shape)


def _joined(slices: list[IndexedSlices[Tensor]]) -> IndexedSlices[Tensor]:
    indices = _of_one_type([part.indices for part in slices])
    shape = next((part.dense_shape for part in slices if part.dense_shape is not None), None)
    return IndexedSlices(ops.concat_v2([part.values for part in slices], 0), ops.concat_v2(indices, 0), shape)


def _of_one_type(integers: Sequence[Tensor]) -> list[Tensor]:
    """Cast all of these to int64 if any is int64."""
    wide = any(tensor.dtype.base is dtypes.int64 for tensor in integers)
    return [ops.cast(t, DstT="int64") if wide and t.dtype.base is not dtypes.int64 else t for t in integers]


def not_dead(gradients: Sequence[Gradient]) -> Gradient:
    """Merge gradients; only one of them is live.  The result is IndexedSlices if any of them is."""
    if not any(isinstance(grad, IndexedSlices) for grad in gradients):
        merged: Tensor = ops.merge(list(gradients))[0]
        return merged
    values, indices, shapes = zip(*(_dead_together(_as_slices(grad)) for grad in gradients), strict=True)
    known = None if None in shapes else ops.merge(_of_one_type(shapes))[0]
    return IndexedSlices(ops.merge(list(values))[0], ops.merge(_of_one_type(indices))[0], known)


def _dead_together(slices: IndexedSlices[Tensor]) -> IndexedSlices[Tensor]:
    """Return the slices with indices and shape that are dead if the values are.

    The values come through the conditional's Switch.  Indices that are constants of a branch may not: the gradient of a
    loop makes new copies of such constants in each iteration, for both branches.
    """
    with control_dependencies([slices.values]):
        shape = None if slices.dense_shape is None else ops.identity(slices.dense_shape)
        return IndexedSlices(slices.values, ops.identity(slices.indices), shape)


def as_dense(grad: Any) -> Any:
    """A gradient as one tensor; None stays None.

    Raises:
        InvalidArgumentError: rows of a tensor whose shape is unknown.
    """
    return convert_to_tensor(grad, name="UnsortedSegmentSum") if isinstance(grad, IndexedSlices) else grad
