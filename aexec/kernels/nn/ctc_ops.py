"""Connectionist temporal classification: the loss with its gradient, greedy decoding, and beam search.

All sequences of a batch and all positions of their labels advance together, one NumPy step per time step, with
logarithms in float64.  The recurrences are those of Graves et al. 2006, the special cases (labels that are not merged,
labels that end early) those of core/util/ctc/ctc_loss_calculator.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged_list
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way, let_others_run
from aexec.kernels.common.row_lists import row_lists
from aexec.kernels.common.strings import elements_of

__all__: list[str] = []

_TYPES = (dtypes.float32, dtypes.float64)
# A label as a Python object: nanoseconds to read it, and its bytes with its index.
_LABEL_NS, _LABEL_BYTES = 500.0, 200
# Bytes of a sequence without labels; nanoseconds per step of all sequences.
_SEQUENCE_BYTES, _STEP_NS = 64, 20_000.0


def _check_inputs(inputs: Any, lengths: Any, error: type[errors.OpError]) -> None:
    if inputs.ndim != 3:
        raise errors.InvalidArgumentError("inputs is not a 3-Tensor")
    if lengths.ndim != 1:
        raise errors.InvalidArgumentError("sequence_length is not a vector")
    time, batch = inputs.shape[:2]
    if len(lengths) != batch:
        raise error(f"len(sequence_length) != batch_size.  len(sequence_length):  {len(lengths)} batch_size: {batch}")
    for b in np.flatnonzero(lengths > time)[:1]:
        raise error(f"sequence_length({b}) <= {time}")


# ------------------------------------------------------------ Greedy decoding


# Bytes per time step of a sequence: its best class, whether that is kept, and its index among those kept.
_TIME_BYTES = 48


def _greedy_scratch(inputs: Any, _: Any) -> int:
    return int(_TIME_BYTES * inputs.shape[0] * inputs.shape[1])


@kernel("CTCGreedyDecoder", T=_TYPES, cost=3.0, scratch=_greedy_scratch)
def ctc_greedy_decoder(c: OpKernelConstruction) -> Compute:
    """Return the likeliest class at each time without blanks, as a sparse tensor; and the sum of the negated
    maxima.
    """
    xp, merge, blank_attr, result = c.xp, c.attr("merge_repeated"), c.attr("blank_index"), c.output_types[3].np

    def compute(inputs: Any, lengths: Any) -> Any:
        _check_inputs(inputs, lengths, errors.FailedPreconditionError)
        time, batch, classes = inputs.shape
        if not inputs.size:
            raise errors.InvalidArgumentError("inputs must not be empty")
        if not -classes <= blank_attr < classes:
            raise errors.InvalidArgumentError(
                f"blank_index expected to be between {-classes} and {classes - 1} but was {blank_attr}"
            )
        best = inputs.argmax(axis=2)
        inside = xp.arange(time)[:, None] < lengths
        keep = inside & (best != blank_attr % classes)
        if merge:
            keep[1:] &= best[1:] != best[:-1]
        # Batch by batch, in a sparse tensor's order.
        rows, times = xp.nonzero(keep.T)
        places = (xp.cumsum(keep.astype(np.int64), axis=0) - 1).T[rows, times]
        shape = xp.asarray([batch, int(keep.sum(axis=0).max())], np.int64)
        total = -xp.where(inside, inputs.max(axis=2), result.type(0)).sum(axis=0, dtype=result)
        return xp.stack((rows, places), axis=1), best[times, rows].astype(np.int64), shape, total[:, None]

    return compute


# ----------------------------------------------------------------------- Loss


class _Labels(NamedTuple):
    """The labels of a batch with blanks between and around them, padded: [batch, positions].

    Attributes:
        stay: True if a position may follow itself.
        jump: True if a position may follow the one two before it.
        count: number of positions of each sequence; 0 for one that is left out.
    """

    extended: Any
    stay: Any
    jump: Any
    count: Any


class _Loss:
    def __init__(self, c: OpKernelConstruction) -> None:
        self.collapse = c.attr("preprocess_collapse_repeated")
        self.merge = c.attr("ctc_merge_repeated")
        self.skip_longer = c.attr("ignore_longer_outputs_than_inputs")

    def labels(self, rows: Sequence[Sequence[int]], lengths: Sequence[int], classes: int) -> _Labels:
        """The labels of a batch.

        Raises InvalidArgumentError for labels that are not classes, or more labels than time steps.
        """
        blank = classes - 1
        kept = [self._row(b, row, lengths[b], classes) for b, row in enumerate(rows)]
        width = 2 * max((len(row) for row in kept if row is not None), default=0) + 1
        extended = np.full((len(rows), width), blank)
        count = np.zeros(len(rows), np.int64)
        for b, row in enumerate(kept):
            if row is not None:
                extended[b, 1 : 2 * len(row) : 2] = row
                count[b] = 2 * len(row) + 1
        stay = (extended == blank) | self.merge
        jump = np.zeros(extended.shape, bool)
        jump[:, 2:] = extended[:, 2:] != blank
        if self.merge:
            jump[:, 2:] &= extended[:, 2:] != extended[:, :-2]
        return _Labels(extended, stay, jump, count)

    def _row(self, b: int, row: Sequence[int], length: int, classes: int) -> Sequence[int] | None:
        """The labels of one sequence; None if there are more than time steps and an attr says to ignore it."""
        if length < 0:
            raise errors.InvalidArgumentError(f"seq_len({b}) < 0")
        labels = giving_way(enumerate(row), _LABEL_NS)
        kept = [v for i, v in labels if not (self.collapse and i and v == row[i - 1])]
        # The first null label ends the list.
        end = next((i for i, v in enumerate(kept) if v >= classes - 1), len(kept))
        seen = abridged_list(kept[:end], ",")
        listed = abridged_list(row, ",")
        if any(v < classes - 1 for v in kept[end:]):
            raise errors.InvalidArgumentError(
                f"Saw a non-null label (index >= num_classes - 1) following a null label, batch: {b} "
                f"num_classes: {classes} labels: {listed} labels seen so far: {seen}"
            )
        kept = kept[:end]
        if any(v < 0 for v in kept):
            raise errors.InvalidArgumentError(f"All labels must be nonnegative integers, batch: {b} labels: {listed}")
        if len(kept) <= length:
            return kept
        if self.skip_longer:
            return None
        raise errors.InvalidArgumentError(
            f"Not enough time for target transition sequence (required: {len(kept)}, available: {length}){b}"
            "You can turn this error into a warning by using the flag ignore_longer_outputs_than_inputs"
        )


def _later(values: Any, by: int) -> Any:
    """values[:, u - by], with minus infinity outside."""
    out = np.full_like(values, -np.inf)
    if by < values.shape[1]:
        out[:, by:] = values[:, :-by]
    return out


def _earlier(values: Any, by: int) -> Any:
    """values[:, u + by], with minus infinity outside."""
    out = np.full_like(values, -np.inf)
    if by < values.shape[1]:
        out[:, :-by] = values[:, by:]
    return out


def _alpha_beta(emitted: Any, labels: _Labels, lengths: Any) -> tuple[Any, Any]:
    """Logarithms of the forward and backward variables: [time, batch, positions]; beta without the factor of its own
    time.

    Args:
        emitted: logarithm of the probability of each position's class.
    """
    time, _, width = emitted.shape
    place = np.arange(width)
    inside = place < labels.count[:, None]
    none = np.where(labels.stay, 0.0, -np.inf)
    skip = np.where(labels.jump, 0.0, -np.inf)
    alpha, beta = np.full_like(emitted, -np.inf), np.full_like(emitted, -np.inf)
    begin, end = inside & (place < 2), inside & (place >= labels.count[:, None] - 2)
    for t in giving_way(range(time), _STEP_NS):
        if t:
            before = alpha[t - 1]
            reached = np.logaddexp(before + none, _later(before, 1))
            reached = np.logaddexp(reached, _later(before, 2) + skip)
        else:
            reached = np.where(begin, 0.0, -np.inf)
        alpha[t] = np.where(inside & (t < lengths)[:, None], reached + emitted[t], -np.inf)
    jumped = _earlier(skip, 2)
    for t in giving_way(range(time - 1, -1, -1), _STEP_NS):
        if t + 1 < time:
            after = beta[t + 1] + emitted[t + 1]
            reached = np.logaddexp(after + none, _earlier(after, 1))
            reached = np.logaddexp(reached, _earlier(after, 2) + jumped)
        else:
            reached = np.full_like(beta[t], -np.inf)
        last = (t == lengths - 1)[:, None]
        beta[t] = np.where(inside, np.where(last, np.where(end, 0.0, -np.inf), reached), -np.inf)
    return alpha, beta


def _loss_and_gradient(inputs: Any, labels: _Labels, lengths: Any) -> tuple[Any, Any]:
    wide = inputs.astype(np.float64)
    wide -= wide.max(axis=2, keepdims=True)
    log_y = wide - np.log(np.exp(wide).sum(axis=2, keepdims=True))
    batch, classes = inputs.shape[1:]
    positions = len(inputs) * labels.extended.size
    announce_scratch(8 * (5 * inputs.size + 6 * positions + labels.extended.size * classes))
    emitted = np.take_along_axis(log_y, labels.extended[None], axis=2)
    alpha, beta = _alpha_beta(emitted, labels, lengths)
    joint = alpha + beta
    log_p = np.logaddexp.reduce(joint[0], axis=1)
    counted = labels.count > 0
    possible = np.isfinite(log_p)
    shares = np.exp(joint - np.where(possible, log_p, 0.0)[:, None])
    one_hot = labels.extended[..., None] == np.arange(classes)
    wanted = np.matmul(shares.transpose(1, 0, 2), one_hot.astype(np.float64)).transpose(1, 0, 2)
    gradient = np.exp(log_y) - wanted
    used = counted & (np.arange(len(inputs))[:, None] < lengths)
    return np.where(counted, -log_p, 0.0), np.where(used[..., None], gradient, 0.0).reshape(-1, batch, classes)


def _entries(indices: Any, values: Any) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield index and label, in order; a few at a time become Python objects."""
    return zip(map(tuple, row_lists(indices, _LABEL_NS)), elements_of(values), strict=True)


def _problem(i: int, at: tuple[int, ...]) -> str:
    return f"label SparseTensor is not valid: indices[{i}] = [{at[0]},{at[1]}] is "


def _rows(indices: Any, values: Any, batch: int) -> list[list[int]]:
    """The sparse labels, sequence by sequence.

    Raises:
        InvalidArgumentError: the sparse tensor is malformed, or a sequence has no label.
    """
    if indices.ndim != 2:
        raise errors.InvalidArgumentError("labels_indices is not a matrix")
    if values.ndim != 1:
        raise errors.InvalidArgumentError("labels_values is not a vector")
    if len(indices) != len(values):
        raise errors.InvalidArgumentError(
            "labels_indices and labels_values must contain the same number of rows, "
            f"but saw shapes: {shape_text(indices.shape)} vs. {shape_text(values.shape)}"
        )
    if indices.shape[1] != 2:
        raise errors.InvalidArgumentError("Order length must be SparseTensor rank.")
    announce_scratch(_SEQUENCE_BYTES * batch)
    rows: list[list[int]] = [[] for _ in giving_way(range(batch), _LABEL_NS)]
    width = int(indices[:, 1].max(initial=-1)) + 1
    before: tuple[int, ...] = (-1, -1)
    announce_scratch(_LABEL_BYTES * len(values))
    for i, (at, value) in enumerate(_entries(indices, values)):
        if not 0 <= at[0] < batch or at[1] < 0:
            raise errors.InvalidArgumentError(f"{_problem(i, at)}out of bounds: need 0 <= index < [{batch},{width}]")
        if at == before:
            raise errors.InvalidArgumentError(f"{_problem(i, at)}repeated")
        if at < before:
            raise errors.InvalidArgumentError(
                f"{_problem(i, at)}out of order. Many sparse ops require sorted indices.\n"
                "    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n"
            )
        before = at
        rows[at[0]].append(value)
    for b, row in enumerate(rows):
        if not row:
            raise errors.InvalidArgumentError(f"Labels length is zero in batch {b}")
    return rows


@kernel("CTCLoss", T=_TYPES, cost=200.0)
def ctc_loss(c: OpKernelConstruction) -> Compute:
    """Return per sequence the negative log probability of its labels, and the gradient for the softmax's inputs."""
    loss, result = _Loss(c), c.output_types[0].np

    def compute(inputs: Any, indices: Any, values: Any, lengths: Any) -> Any:
        _check_inputs(inputs, lengths, errors.InvalidArgumentError)
        time, batch, classes = inputs.shape
        if not time:
            raise errors.InvalidArgumentError("Max time or first dimension of input cannot be 0.")
        if not batch:
            raise errors.InvalidArgumentError("batch_size must not be 0")
        rows = _rows(indices, values, batch)
        if not classes:
            raise errors.InvalidArgumentError("num_classes must be at least 1, for the blank")
        labels = loss.labels(rows, lengths.tolist(), classes)
        values, gradient = _loss_and_gradient(inputs, labels, lengths)
        return values.astype(result), gradient.astype(result)

    return compute


# ---------------------------------------------------------------- Beam search


# Nanoseconds that a sequence of the beam takes in a step.
_PREFIX_NS = 3000.0
# After this many steps the beam certainly has its full width, if there is more than one class.
_SURE_TO_BE_WIDE = 32


class _Beam:
    """The likeliest label sequences so far, with their probabilities: ending in a blank, and ending in their last
    label.

    All are extended before any is dropped; TensorFlow drops while it extends, so that with a narrow beam it may find
    another sequence.
    """

    def __init__(self, width: int, blank: int) -> None:
        self.width, self.blank_class = width, blank
        self.prefixes: list[tuple[int, ...]] = [()]
        self.blank, self.label = np.zeros(1), np.full(1, -np.inf)
        self.last = np.full(1, blank)

    def step(self, y: Any) -> None:
        """Process one time step, with the log probabilities of the classes."""
        count, classes = len(self.prefixes), len(y)
        total = np.logaddexp(self.blank, self.label)
        every = np.arange(count)
        longer = total[:, None] + y
        # Without a blank between them, repeated labels are one label.
        longer[every, self.last] = self.blank + y[self.last]
        longer[:, self.blank_class] = -np.inf
        blank, label = total + y[self.blank_class], self.label + y[self.last]
        known = {prefix: i for i, prefix in enumerate(self.prefixes)}
        for i, prefix in giving_way(enumerate(self.prefixes), _PREFIX_NS):
            parent = known.get(prefix[:-1]) if prefix else None
            if parent is not None:
                label[i] = np.logaddexp(label[i], longer[parent, prefix[-1]])
                longer[parent, prefix[-1]] = -np.inf
        scores = np.concatenate((np.logaddexp(blank, label), longer.ravel()))
        order = np.argsort(-scores, kind="stable")[: self.width]
        order = order[scores[order] > -np.inf]
        grown = order >= count
        origin = np.where(grown, (order - count) // classes, order)
        added = np.where(grown, (order - count) % classes, self.last[origin])
        self.prefixes = [
            (*self.prefixes[o], int(a)) if g else self.prefixes[o]
            for o, a, g in zip(origin.tolist(), added.tolist(), grown.tolist(), strict=True)
        ]
        self.blank = np.where(grown, -np.inf, blank[origin])
        self.label = np.where(grown, scores[order], label[origin])
        self.last = added

    def best(self, count: int, *, merge: bool) -> list[tuple[list[int], float]]:
        """Return the `count` likeliest sequences, with repeated labels merged if `merge`, and their log probabilities.

        Raises:
            InvalidArgumentError: the beam holds fewer.
        """
        if count > len(self.prefixes):
            raise errors.InvalidArgumentError("Less leaves in the beam search than requested.")
        total = np.logaddexp(self.blank, self.label)
        order = np.argsort(-total, kind="stable")[:count]
        out = []
        for i in order.tolist():
            prefix = self.prefixes[i]
            row = [v for k, v in enumerate(prefix) if not (merge and k and v == prefix[k - 1])]
            out.append((row, float(total[i])))
        return out


@kernel("CTCBeamSearchDecoder", T=_TYPES, cost=2000.0)
def ctc_beam_search_decoder(c: OpKernelConstruction) -> Compute:
    """Return the likeliest label sequences of each batch entry as sparse tensors, and their log probabilities."""
    width, paths, merge, result = (
        c.attr("beam_width"),
        c.attr("top_paths"),
        c.attr("merge_repeated"),
        c.output_types[-1],
    )
    if paths > width:
        raise errors.InvalidArgumentError("requested more paths than the beam width.")

    def compute(inputs: Any, lengths: Any) -> Any:
        _check_inputs(inputs, lengths, errors.FailedPreconditionError)
        batch, classes = inputs.shape[1:]
        if not inputs.size:
            raise errors.InvalidArgumentError("inputs must not be empty")
        # After t steps there are at most classes ** t sequences.
        longest = max(0, min(int(lengths.max(initial=0)), _SURE_TO_BE_WIDE) - 1)
        announce_scratch(8 * (3 * inputs.size + 5 * min(width, classes**longest) * classes))
        wide = inputs.astype(np.float64)
        wide -= wide.max(axis=2, keepdims=True)
        log_y = wide - np.log(np.exp(wide).sum(axis=2, keepdims=True))
        found = []
        for b in range(batch):
            beam = _Beam(width, classes - 1)
            for y in log_y[: max(0, int(lengths[b])), b]:
                let_others_run()
                beam.step(y)
            found.append(beam.best(paths, merge=merge))
        sparse = [_sparse([entry[path][0] for entry in found]) for path in range(paths)]
        scores = np.asarray([[score for _, score in entry] for entry in found], result.np)
        return (*[s[0] for s in sparse], *[s[1] for s in sparse], *[s[2] for s in sparse], scores)

    return compute


def _sparse(rows: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
    """Indices, values and shape of the sparse tensor with these rows."""
    places = [(b, i) for b, row in enumerate(rows) for i in range(len(row))]
    values = [v for row in rows for v in row]
    shape = np.asarray([len(rows), max(map(len, rows))], np.int64)
    return np.asarray(places, np.int64).reshape(-1, 2), np.asarray(values, np.int64), shape
