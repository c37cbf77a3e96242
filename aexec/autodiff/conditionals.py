"""Gradients of Switch and Merge: they take the way of the value, backwards.

If a branch gathers rows of a large table, the table's gradient stays IndexedSlices and does not become dense.
Next to read: `branches.py`, which finds the conditional that a Merge ends.
"""

from __future__ import annotations

from aexec import ops
from aexec.autodiff.aggregation import Gradient, not_dead
from aexec.autodiff.branches import Branches
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.missing_gradients import zeros_for
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Tensor

__all__ = ["gradient_of_switch", "gradients_of_merge"]


def gradients_of_merge(branches: Branches, op: ForwardOp, grad: Gradient) -> list[Gradient]:
    """The gradients of a Merge's two inputs: each gets the gradient if its branch was taken, and is dead if not.

    Raises:
        UnimplementedError: as `Branches.ended_by`.
    """
    (source, slot), branch = branches.ended_by(op.node)
    predicate = op.seen(Tensor(op.node.graph.nodes[source], slot))
    ways: list[Gradient]
    if isinstance(grad, IndexedSlices):
        values, indices = ops.switch(grad.values, predicate), ops.switch(grad.indices, predicate)
        shapes = (None, None) if grad.dense_shape is None else ops.switch(grad.dense_shape, predicate)
        ways = list(map(IndexedSlices, values, indices, shapes))
    else:
        ways = list(ops.switch(grad, predicate))
    return [ways[branch], ways[1 - branch]]


def gradient_of_switch(op: ForwardOp, *grads: Gradient | None) -> tuple[Gradient, None]:
    """The gradient of a Switch's data: that from the branch that was taken, zeros if none comes from there."""
    dtype = next(_values(grad).dtype.base for grad in grads if grad is not None)
    return not_dead(
        [zeros_for(op.outputs[way], dtype) if grad is None else grad for way, grad in enumerate(grads)]
    ), None


def _values(grad: Gradient) -> Tensor:
    return grad.values if isinstance(grad, IndexedSlices) else grad
