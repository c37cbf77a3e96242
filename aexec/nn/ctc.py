"""Connectionist temporal classification: sequences of labels without times, Graves et al. 2006.

At each time a network predicts the probability of each class, the last of which is the blank.  A path of classes stands
for the labels that remain after merging repeated classes and removing blanks.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.control_flow.map_fn import map_fn
from aexec.framework import dtypes
from aexec.framework.sparse_tensor import SparseTensor
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "collapse_repeated",
    "ctc_beam_search_decoder",
    "ctc_greedy_decoder",
    "ctc_loss",
    "ctc_unique_labels",
]


def ctc_loss(
    labels: SparseTensor[Any],
    inputs: Any,
    sequence_length: Any,
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """The negative logarithm of the probability of all paths that stand for the labels.

    Args:
        labels: int32, a row for each example.
        inputs: logits, [time, batch, classes]; [batch, time, classes] if not `time_major`.
        sequence_length: the length of each example, [batch], int32.
        preprocess_collapse_repeated: merge repeated labels.
        ctc_merge_repeated: merge repeated classes in a path.
        ignore_longer_outputs_than_inputs: examples with more labels than time steps have no loss; else they make the
            run fail.
        blank_index: the blank class, counted from the end if negative; by default the last one.

    Returns:
        [batch].
    """
    logits = convert_to_tensor(inputs)
    if blank_index is not None:
        count = list(logits.static_shape)[-1] if logits.static_shape.rank else None
        if count is None or blank_index % count != count - 1:
            logits = _with_blank_last(logits, blank_index if count is None else blank_index % count)
    if not time_major:
        logits = ops.transpose(logits, [1, 0, 2])
    loss, _ = ops.ctc_loss(
        logits,
        labels.indices,
        _without_blank(labels.values, blank_index, logits),
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
        name=name,
    )
    return loss


def _with_blank_last(logits: Tensor, blank: int) -> Tensor:
    return ops.concat_v2([logits[..., :blank], logits[..., blank + 1 :], logits[..., blank : blank + 1]], 2)


def _without_blank(values: Any, blank: int | None, logits: Tensor) -> Any:
    """The class numbers of labels after the blank class was moved to the end."""
    if blank is None:
        return values
    labels = convert_to_tensor(values)
    at = convert_to_tensor(blank) if blank >= 0 else ops.shape(logits)[2] + blank
    return ops.select_v2(ops.less(labels, at), labels, labels - 1)


def ctc_greedy_decoder(
    inputs: Any,
    sequence_length: Any,
    *,
    merge_repeated: bool = True,
    blank_index: int | None = None,
    name: str | None = None,
) -> tuple[list[SparseTensor[Tensor]], Tensor]:
    """The labels of the most likely class at each time.

    Args:
        inputs: logits, [time, batch, classes].
        sequence_length: [batch], int32.
        merge_repeated: merge repeated classes.
        blank_index: the blank class; by default the last one.

    Returns:
        A list of one sparse tensor of labels, and the negated sum of the path's logits, [batch, 1].
    """
    indices, values, shape, score = ops.ctc_greedy_decoder(
        inputs,
        sequence_length,
        merge_repeated=merge_repeated,
        blank_index=-1 if blank_index is None else blank_index,
        name=name,
    )
    return [SparseTensor(indices, values, shape)], score


def ctc_beam_search_decoder(
    inputs: Any,
    sequence_length: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    *,
    merge_repeated: bool = False,
    name: str | None = None,
) -> tuple[list[SparseTensor[Tensor]], Tensor]:
    """The most likely labels, found by a search that keeps the `beam_width` best prefixes.

    Args:
        inputs: logits, [time, batch, classes].
        sequence_length: [batch], int32.
        merge_repeated: merge repeated labels in the results, which is rarely useful.

    Returns:
        `top_paths` sparse tensors of labels, and the logarithms of their probabilities, [batch, top_paths].
    """
    indices, values, shapes, scores = ops.ctc_beam_search_decoder(
        inputs,
        sequence_length,
        beam_width=beam_width,
        top_paths=top_paths,
        merge_repeated=merge_repeated,
        name=name,
    )
    return [SparseTensor(*parts) for parts in zip(indices, values, shapes, strict=True)], scores


def collapse_repeated(labels: Any, seq_length: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Labels [batch, time] with repeated ones merged and padded with zeros, and their new lengths."""
    with name_scope(name or "collapse_repeated_labels"):
        rows = convert_to_tensor(labels, name="labels")
        lengths = convert_to_tensor(seq_length, name="seq_length")
        first = ops.ones_like(rows[:, :1])
        changes = ops.not_equal(rows[:, 1:], rows[:, :-1])
        kept = ops.concat_v2([ops.cast(first, DstT=dtypes.bool_), changes], 1)
        kept = ops.logical_and(kept, _mask(lengths, ops.shape(rows)[1]))
        counts = ops.sum(ops.cast(kept, DstT=lengths.dtype.base), [1])
        longest = ops.max(counts, [0])
        places = ops.where(_mask(counts, longest))
        flat = ops.gather_v2(ops.reshape(rows, [-1]), ops.reshape(ops.where(ops.reshape(kept, [-1])), [-1]), 0)
        shape = ops.pack([ops.shape(rows, out_type=dtypes.int64)[0], ops.cast(longest, DstT=dtypes.int64)])
        return ops.scatter_nd(places, flat, shape), counts


def _mask(lengths: Tensor, longest: Tensor) -> Tensor:
    """[batch, longest]: True at positions within the lengths."""
    places = ops.range(0, ops.cast(longest, DstT=dtypes.int32), 1)
    if lengths.dtype.base is not dtypes.int32:
        places = ops.cast(places, DstT=lengths.dtype.base)
    return ops.less(ops.expand_dims(places, 0), ops.expand_dims(lengths, 1))


def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """For each row of labels [batch, time] its distinct labels, and the index of each label among these.

    Returns:
        The distinct labels of each row, int64, padded with zeros, and the indices, [batch, time].
    """
    with name_scope(name or "ctc_unique_labels"):
        rows = convert_to_tensor(labels, name="labels")

        def of_row(row: Tensor) -> list[Tensor]:
            found, places = ops.unique(row)
            more = ops.size(row) - ops.size(found)
            padded = ops.pad(found, ops.pack([ops.pack([0, more])]))
            return [ops.cast(padded, DstT=dtypes.int64), places]

        unique, places = map_fn(of_row, rows, dtype=[dtypes.int64, dtypes.int32])
        return unique, places
