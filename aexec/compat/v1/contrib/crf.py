"""`tf.contrib.crf`: linear-chain conditional random fields, Lafferty et al. 2001.

Arguments of the functions: `inputs` are the unary scores, [batch, time, tags], floating; `tag_indices` [batch, time],
an integer; `sequence_lengths` [batch], an integer; `transition_params[i, j]` is the score of tag j after tag i, [tags,
tags].  Time steps after the end of a sequence are ignored.  Next to read: `../functions/control_flow_ops.py`, whose
`scan` runs over time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.functions.array_ops import sequence_mask
from aexec.compat.v1.functions.control_flow_ops import scan
from aexec.compat.v1.functions.math_ops import reduce_logsumexp
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.variable_scope import get_variable

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]


def _float_mask(lengths: Any, like: Tensor, dtype: Any) -> Tensor:
    """[batch, time]: 1 before the end of each sequence, 0 after it."""
    return sequence_mask(lengths, ops.shape(like)[1], dtype)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Tensor:
    """The sum of the unary scores of each sequence's tags, [batch]."""
    scores, tags = convert_to_tensor(inputs), convert_to_tensor(tag_indices)
    picked = ops.gather_v2(scores, ops.expand_dims(tags, 2), 2, batch_dims=2)
    return ops.sum(ops.squeeze(picked, squeeze_dims=[2]) * _float_mask(sequence_lengths, tags, scores.dtype.base), [1])


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """The sum of the transition scores of each sequence's tags, [batch]."""
    tags, params = convert_to_tensor(tag_indices), convert_to_tensor(transition_params)
    pairs = ops.pack([tags[:, :-1], tags[:, 1:]], axis=2)
    mask = _float_mask(sequence_lengths, tags, params.dtype.base)[:, 1:]
    return ops.sum(ops.gather_nd(params, pairs) * mask, [1])


def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """The unnormalised score of each sequence of tags, [batch]: unary and transition scores."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_multitag_sequence_score(inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """The log-sum-exp of the scores of all sequences of allowed tags, [batch].

    Args:
        tag_bitmap: which tags are allowed, [batch, time, tags], bool.
    """
    scores = convert_to_tensor(inputs)
    allowed = ops.select_v2(tag_bitmap, scores, ops.fill(ops.shape(scores), convert_to_tensor(float("-inf"))))
    return crf_log_norm(allowed, sequence_lengths, transition_params)


def _by_time(value: Tensor) -> Tensor:
    """Transpose [batch, time, …] to [time, batch, …]."""
    rank = value.static_shape.rank or 3
    return ops.transpose(value, [1, 0, *range(2, rank)])


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """The log-partition function: the log-sum-exp of the scores of all tag sequences, [batch]; 0 for length 0."""
    scores, params = convert_to_tensor(inputs), convert_to_tensor(transition_params)
    mask = sequence_mask(sequence_lengths, ops.shape(scores)[1])
    by_time, in_time = _by_time(scores), ops.transpose(mask, [1, 0])

    def step(alphas: Any, now: Any) -> Tensor:
        score, goes_on = now
        after = score + reduce_logsumexp(ops.expand_dims(alphas, 2) + ops.expand_dims(params, 0), [1])
        return ops.select_v2(ops.expand_dims(goes_on, 1), after, alphas)

    every = scan(step, (by_time[1:], in_time[1:]), by_time[0])
    last = ops.concat_v2([by_time[:1], every], 0)[-1]
    total = reduce_logsumexp(last, [1])
    return ops.select_v2(in_time[0], total, ops.zeros_like(total))


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Tensor, Any]:
    """The log-likelihood of each sequence of tags, [batch], and the transition scores, [tags, tags].

    Args:
        transition_params: by default a new variable `transitions`.

    Raises:
        ValueError: `transition_params` is None, and the number of tags is unknown.
    """
    scores = convert_to_tensor(inputs)
    params = transition_params
    if params is None:
        tags = list(scores.static_shape)[-1] if scores.static_shape.rank else None
        if tags is None:
            raise errors.InvalidValueError(f"the number of tags must be known, got {scores.static_shape}")
        params = get_variable("transitions", [tags, tags])
    score = crf_sequence_score(scores, tag_indices, sequence_lengths, params)
    return score - crf_log_norm(scores, sequence_lengths, params), params


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Decode one sequence with NumPy: return its best tags, a list, and their score.

    Args:
        score: unary scores, an array [time, tags].
        transition_params: an array [tags, tags].
    """
    score = np.asarray(score)
    trellis, back = score[0], []
    for now in score[1:]:
        paths = trellis[:, None] + np.asarray(transition_params)
        back.append(paths.argmax(0))
        trellis = now + paths.max(0)
    tags = [int(trellis.argmax())]
    for pointers in reversed(back):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], trellis.max()


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Tensor, Tensor]:
    """The best tags of each sequence, [batch, time], int32, 0 after its end; and their scores, [batch].

    Args:
        potentials: unary scores, [batch, time, tags].
    """
    scores, params = convert_to_tensor(potentials), convert_to_tensor(transition_params)
    shape = ops.shape(scores)
    mask = sequence_mask(sequence_length, shape[1])
    by_time, in_time = _by_time(scores), ops.transpose(mask, [1, 0])
    # After the end of a sequence the scores stay, and back pointers point each tag to itself.
    itself = ops.broadcast_to(ops.range(0, shape[2], 1), ops.pack([shape[0], shape[2]]))

    def forward(before: Any, now: Any) -> tuple[Tensor, Tensor]:
        trellis, _ = before
        score, goes_on = now
        paths = ops.expand_dims(trellis, 2) + ops.expand_dims(params, 0)
        keeps = ops.expand_dims(goes_on, 1)
        pointers = ops.arg_max(paths, 1, output_type=dtypes.int32)
        after = ops.select_v2(keeps, score + ops.max(paths, [1]), trellis)
        return after, ops.select_v2(keeps, pointers, itself)

    trellises, back = scan(forward, (by_time[1:], in_time[1:]), (by_time[0], itself))
    last = ops.concat_v2([by_time[:1], trellises], 0)[-1]
    best = ops.arg_max(last, 1, output_type=dtypes.int32)

    def backward(tag: Any, pointers: Any) -> Tensor:
        found = ops.gather_v2(pointers, ops.expand_dims(tag, 1), 1, batch_dims=1)
        return ops.squeeze(found, squeeze_dims=[1])

    earlier = scan(backward, ops.reverse_v2(back, [0]), best)
    tags = ops.reverse_v2(ops.concat_v2([ops.expand_dims(best, 0), earlier], 0), [0])
    return ops.transpose(tags, [1, 0]) * ops.cast(mask, DstT=dtypes.int32), ops.max(last, [1])
