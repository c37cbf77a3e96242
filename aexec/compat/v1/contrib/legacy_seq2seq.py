"""`tf.contrib.legacy_seq2seq`: the loss of sequences given as lists, and plain decoders.

Next to read: `seq2seq.py`, which has what came later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import namespace
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.variable_scope import get_variable_scope, variable_scope

__all__ = ["basic_rnn_seq2seq", "rnn_decoder", "sequence_loss", "sequence_loss_by_example", "tied_rnn_seq2seq"]


def rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: Any = None,
) -> tuple[list[Tensor], Any]:
    """Run a cell over inputs, [batch, size] each.

    Args:
        loop_function: (the last output, the number of the step) → the input, in place of all given ones but the first.

    Returns:
        The outputs, and the last state.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, before = initial_state, [], None
        for number, given in enumerate(decoder_inputs):
            x = given
            if loop_function is not None and before is not None:
                with variable_scope("loop_function", reuse=True):
                    x = loop_function(before, number)
            if number > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(x, state)
            outputs.append(output)
            if loop_function is not None:
                before = output
    return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, dtype: Any = "float32", scope: Any = None
) -> tuple[list[Tensor], Any]:
    """A cell reads one sequence, and a copy of it with its own weights begins at its last state and reads another."""
    import copy

    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = nn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = "float32",
    scope: Any = None,
) -> tuple[list[Tensor], Any]:
    """A cell reads one sequence, and then another, with the same weights."""
    with variable_scope("combined_tied_rnn_seq2seq"):
        within = scope or "tied_rnn_seq2seq"
        _, state = nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=within)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, within)


def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Tensor] | None = None,
    name: str | None = None,
) -> Tensor:
    """The weighted cross entropy of each example, [batch].

    Args:
        logits: [batch, classes] for each time.
        targets, weights: [batch] for each time.
        average_across_timesteps: divide by the sum of the weights.
        softmax_loss_function: of `labels` and `logits` by name, in place of the sparse cross entropy.

    Raises:
        ValueError: the lists are not equally long.
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
    """The sum of `sequence_loss_by_example` over the batch, divided by its size if it is averaged."""
    with name_scope(name or "sequence_loss"):
        cost = ops.sum(
            sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function), [0]
        )
        if not average_across_batch:
            return cost
        return cost / ops.cast(ops.shape(convert_to_tensor(targets[0]))[0], DstT=cost.dtype.base)


__getattr__, __dir__ = namespace(
    __name__,
    {},
    dict.fromkeys(
        """attention_decoder embedding_attention_decoder embedding_attention_seq2seq embedding_rnn_decoder
        embedding_rnn_seq2seq embedding_tied_rnn_seq2seq model_with_buckets one2many_rnn_seq2seq""".split(),
        "use tf.contrib.seq2seq.dynamic_decode with an AttentionWrapper",
    ),
)
