"""`tf.contrib.seq2seq.sequence_loss`: the weighted cross entropy of sequences of classes.

Next to read: `decoding.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Tensor] | None = None,
    name: str | None = None,
) -> Tensor:
    """The weighted cross entropy, reduced over the axes whose flag is True.

    Args:
        logits: [batch, time, classes], floating.
        targets: class ids, [batch, time], an integer.
        weights: [batch, time], floating; 0 leaves a position out.
        average_across_timesteps, average_across_batch: reduce the axis, and divide by the sum of weights.
        sum_over_timesteps, sum_over_batch: reduce the axis, and divide by the number of nonzero weights.
        softmax_loss_function: called with `labels` and `logits` by name; by default the sparse cross entropy.

    Returns:
        [batch, time] without the reduced axes.

    Raises:
        ValueError: an argument has another rank, or one axis is to be averaged and the other summed.
    """
    values, classes, counted = (convert_to_tensor(given) for given in (logits, targets, weights))
    for value, rank, what in ((values, 3, "Logits"), (classes, 2, "Targets"), (counted, 2, "Weights")):
        if value.static_shape.rank not in (None, rank):
            raise errors.InvalidValueError(f"{what} must have {rank} axes, got {value.static_shape}")
    if (average_across_timesteps or average_across_batch) and (sum_over_timesteps or sum_over_batch):
        raise errors.InvalidValueError("axes are either averaged or summed, not one each")
    with name_scope(name or "sequence_loss"):
        flat = ops.reshape(values, ops.pack([-1, ops.shape(values)[2]]))
        loss_function = softmax_loss_function or nn.sparse_softmax_cross_entropy_with_logits
        losses = loss_function(labels=ops.reshape(classes, [-1]), logits=flat)
        losses = ops.reshape(losses, ops.shape(classes)) * counted
        averaged = [axis for axis, used in enumerate((average_across_batch, average_across_timesteps)) if used]
        summed = [axis for axis, used in enumerate((sum_over_batch, sum_over_timesteps)) if used]
        if averaged:
            return ops.sum(losses, averaged) / (ops.sum(counted, averaged) + 1e-12)
        if summed:
            nonzero = ops.cast(ops.not_equal(counted, ops.zeros_like(counted)), DstT=losses.dtype.base)
            return ops.div_no_nan(ops.sum(losses, summed), ops.sum(nonzero, summed))
        return losses
