"""Losses of sequences that are lists of tensors, and models that are unrolled for several lengths.

Next to read: `plain.py`, whose outputs the losses take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.variable_scope import get_variable_scope, variable_scope

__all__ = ["model_with_buckets", "sequence_loss", "sequence_loss_by_example"]


def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Tensor] | None = None,
    name: str | None = None,
) -> Tensor:
    """`tf.contrib.legacy_seq2seq.sequence_loss_by_example`: the weighted cross entropy of each example, [batch].

    Args:
        logits: [batch, classes] per step, floating.
        targets: class ids, [batch] per step, an integer.
        weights: [batch] per step, floating.
        average_across_timesteps: divide by the sum of an example's weights.
        softmax_loss_function: called with `labels` and `logits` by name; by default the sparse cross entropy.

    Raises:
        ValueError: the lists differ in length.
    """
    if len(targets) != len(logits) or len(weights) != len(logits):
        raise errors.InvalidValueError(
            f"Lengths of logits, weights, and targets must be the same {len(logits)}, {len(weights)}, {len(targets)}."
        )
    with name_scope(name or "sequence_loss_by_example"):
        losses, counted = [], [convert_to_tensor(weight) for weight in weights]
        for logit, target, weight in zip(logits, targets, counted, strict=True):
            labels = ops.reshape(target, [-1])
            if softmax_loss_function is None:
                cross = nn.sparse_softmax_cross_entropy_with_logits(labels, logit)
            else:
                cross = softmax_loss_function(labels=target, logits=logit)
            losses.append(cross * weight)
        total = ops.add_n(losses)
        return total / (ops.add_n(counted) + 1e-12) if average_across_timesteps else total


def sequence_loss(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Tensor] | None = None,
    name: str | None = None,
) -> Tensor:
    """`tf.contrib.legacy_seq2seq.sequence_loss`: `sequence_loss_by_example` summed over the batch, a scalar.

    Args:
        average_across_batch: divide by the batch size.

    Other arguments, and errors, are those of `sequence_loss_by_example`.
    """
    with name_scope(name or "sequence_loss"):
        each = sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        cost = ops.sum(each, list(range(each.static_shape.rank or 1)))
        if not average_across_batch:
            return cost
        return cost / ops.cast(ops.shape(convert_to_tensor(targets[0]))[0], DstT=cost.dtype.base)


def model_with_buckets(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    buckets: Sequence[tuple[int, int]],
    seq2seq: Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Any]],
    softmax_loss_function: Callable[..., Tensor] | None = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[Sequence[Any]], list[Tensor]]:
    """`tf.contrib.legacy_seq2seq.model_with_buckets`: unroll a model for each bucket; all share their variables.

    Args:
        encoder_inputs, decoder_inputs, targets, weights: lists with a tensor per step.
        buckets: (encoder steps, decoder steps), in increasing order.
        seq2seq: (encoder inputs, decoder inputs) → (outputs, state).
        softmax_loss_function: as in `sequence_loss_by_example`.
        per_example_loss: True for losses [batch], False for their mean.

    Returns:
        Two lists with an entry per bucket: the outputs of `seq2seq`, and the loss.

    Raises:
        ValueError: a list is shorter than the last bucket.
    """
    inputs, outputs = buckets[-1]
    lists = (
        ("encoder_inputs", encoder_inputs, inputs),
        ("targets", targets, outputs),
        ("weights", weights, outputs),
    )
    for what, given, least in lists:
        if len(given) < least:
            raise errors.InvalidValueError(
                f"Length of {what} ({len(given)}) must be at least that of last bucket ({least})."
            )
    loss = sequence_loss_by_example if per_example_loss else sequence_loss
    made, losses = [], []
    with name_scope(name or "model_with_buckets"):
        for number, (reads, writes) in enumerate(buckets):
            with variable_scope(get_variable_scope(), reuse=True if number > 0 else None):
                logits, _ = seq2seq(encoder_inputs[:reads], decoder_inputs[:writes])
                made.append(logits)
                losses.append(
                    loss(logits, targets[:writes], weights[:writes], softmax_loss_function=softmax_loss_function)
                )
    return made, losses
