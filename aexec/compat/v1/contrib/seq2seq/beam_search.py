"""Beam search: keeps the best few sequences of each example, with the length penalty of Wu et al. 2016.

Next to read: `decoding.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aexec import nn, ops
from aexec.compat.v1.contrib.seq2seq.decoding import Decoder
from aexec.compat.v1.contrib.seq2seq.helpers import embedding_of
from aexec.compat.v1.functions.control_flow_ops import scan
from aexec.compat.v1.namespace import refuse
from aexec.control_flow.structure import leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "BeamSearchDecoder",
    "BeamSearchDecoderOutput",
    "BeamSearchDecoderState",
    "FinalBeamSearchDecoderOutput",
    "gather_tree",
    "tile_batch",
]


class BeamSearchDecoderState(NamedTuple):
    """The state of a `BeamSearchDecoder`.

    Attributes:
        cell_state: state of the cell, [batch, beam, …].
        log_probs: log-probability of each sequence, [batch, beam], floating.
        finished: whether a sequence has reached the end token, [batch, beam], bool.
        lengths: tokens of each sequence, with the end token, [batch, beam], int64.
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any


class BeamSearchDecoderOutput(NamedTuple):
    """The outputs of a step: scores (floating), ids and indices of the parent beams (int32), all [batch, beam]."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """The ids of the sequences, [batch, time, beam], best beam first; and the outputs of all steps."""

    predicted_ids: Any
    beam_search_decoder_output: BeamSearchDecoderOutput


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeat each example of a structure of tensors: [batch, …] → [batch * multiplier, …], copies adjacent."""

    def tiled(leaf: Any) -> Tensor:
        value = convert_to_tensor(leaf)
        rest = ops.shape(value)[1:]
        ones = ops.fill(ops.shape(rest), 1)
        many = ops.tile(ops.expand_dims(value, 1), ops.concat_v2([[1, multiplier], ones], 0))
        made = ops.reshape(many, ops.concat_v2([[-1], rest], 0))
        sizes = value.static_shape
        if sizes.rank is None:
            return made
        first, *others = sizes
        return ops.ensure_shape(made, shape=[None if first is None else first * multiplier, *others])

    return pack(t, [tiled(leaf) for leaf in leaves_of(t)])


def gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any) -> Tensor:
    """Reconstruct sequences from the ids of each step, following parent beams back from the last step.

    Args:
        step_ids, parent_ids: ids, and indices of their parent beams, [time, batch, beam], int32.
        max_sequence_lengths: length of the longest sequence of each example, [batch], an integer.
        end_token: fills positions after a sequence's first end token.

    Returns:
        [time, batch, beam], int32.
    """
    ids, parents = convert_to_tensor(step_ids), convert_to_tensor(parent_ids)
    shape = ops.shape(ids)
    end = ops.fill(shape[1:], convert_to_tensor(end_token, dtypes.int32))
    itself = ops.broadcast_to(ops.range(0, shape[2], 1), shape[1:])
    lengths = ops.expand_dims(convert_to_tensor(max_sequence_lengths, dtypes.int32), 1)

    def back(later: Any, now: Any) -> tuple[Tensor, Tensor]:
        _, beam = later
        time, own, parent = now
        is_within = ops.less(time, lengths)
        found = ops.select_v2(is_within, ops.gather_v2(own, beam, 1, batch_dims=1), end)
        return found, ops.select_v2(is_within, ops.gather_v2(parent, beam, 1, batch_dims=1), beam)

    times = ops.range(0, shape[0], 1)
    found, _ = scan(back, tuple(ops.reverse_v2(one, [0]) for one in (times, ids, parents)), (end, itself))
    forward = ops.reverse_v2(found, [0])
    ended = ops.cast(ops.equal(forward, ops.expand_dims(end, 0)), DstT=dtypes.int32)
    is_behind = ops.greater(ops.cumsum(ended, 0, exclusive=True), 0)
    return ops.select_v2(is_behind, ops.broadcast_to(ops.expand_dims(end, 0), shape), forward)


class BeamSearchDecoder(Decoder):
    """`tf.contrib.seq2seq.BeamSearchDecoder`: decodes the `beam_width` best sequences of each example.

    Tile the initial state with `tile_batch` first, and the memory of an attention mechanism as well.

    Args:
        cell: the cell that computes logits [batch * beam, classes], or their input if there is an output layer.
        embedding: a matrix, or a function from ids to inputs of the cell.
        start_tokens: the first ids, [batch], int32.
        end_token: the id that ends a sequence, an int32 scalar.
        initial_state: state of the cell, [batch * beam_width, …].
        beam_width: number of sequences per example.
        output_layer: layer object applied to the cell's outputs, or None.
        length_penalty_weight: scores are divided by ((5 + length) / 6) ** this; 0 for no penalty.

    Raises:
        ValueError: `start_tokens` is not a vector.
        UnimplementedError: there is a coverage penalty, or the state keeps an alignment history.
    """

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        refuse("BeamSearchDecoder", coverage_penalty_weight=coverage_penalty_weight)
        history = getattr(initial_state, "alignment_history", ())
        parts = history if isinstance(history, tuple) else (history,)
        if any(isinstance(one, TensorArray) for one in parts):
            raise errors.UnsupportedError("BeamSearchDecoder: alignment_history is not supported")
        self._cell = cell
        self._embed: Callable[[Any], Tensor] = embedding_of(embedding)
        self._output_layer = output_layer
        self._width = beam_width
        self._penalty = length_penalty_weight
        self._end = convert_to_tensor(end_token, dtypes.int32, "end_token")
        start = convert_to_tensor(start_tokens, dtypes.int32, "start_tokens")
        if start.static_shape.rank not in (None, 1):
            raise errors.InvalidValueError("start_tokens must be a vector")
        self._batch = ops.size(start)
        self._start = ops.tile(ops.expand_dims(start, 1), [1, beam_width])
        self._initial = pack(initial_state, [self._split(leaf) for leaf in leaves_of(initial_state)])

    @property
    def batch_size(self) -> Any:
        return self._batch

    @property
    def tracks_own_finished(self) -> bool:
        return True

    @property
    def output_dtype(self) -> Any:
        dtype = leaves_of(self._initial)[0].dtype.base
        return BeamSearchDecoderOutput(dtype, dtypes.int32, dtypes.int32)

    def _split(self, leaf: Any) -> Tensor:
        """Reshape [batch * beam, …] to [batch, beam, …]; return a scalar unchanged."""
        value = convert_to_tensor(leaf)
        if value.static_shape.rank == 0:
            return value
        made = ops.reshape(value, ops.concat_v2([ops.pack([self._batch, self._width]), ops.shape(value)[1:]], 0))
        if value.static_shape.rank is None:
            return made
        return ops.ensure_shape(made, shape=[None, self._width, *list(value.static_shape)[1:]])

    def _merged(self, leaf: Any, rank: int = 1) -> Tensor:
        """Reshape [batch, beam, …] to [batch * beam, …]; return a scalar unchanged."""
        value = convert_to_tensor(leaf)
        if value.static_shape.rank == 0:
            return value
        made = ops.reshape(value, ops.concat_v2([[-1], ops.shape(value)[2:]], 0))
        if value.static_shape.rank is None:
            return made
        return ops.ensure_shape(made, shape=[None, *list(value.static_shape)[2:]])

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        dtype = leaves_of(self._initial)[0].dtype.base
        first = ops.fill(ops.pack([self._batch]), 0)
        # All beams start alike.  With log-probability -inf for all but one, the first step picks different tokens.
        finished = ops.one_hot(first, self._width, convert_to_tensor(False), convert_to_tensor(True))
        log_probs = ops.one_hot(
            first, self._width, convert_to_tensor(0.0, dtype), convert_to_tensor(float("-inf"), dtype)
        )
        lengths = ops.fill(ops.pack([self._batch, self._width]), convert_to_tensor(0, dtypes.int64))
        return finished, self._embed(self._start), BeamSearchDecoderState(self._initial, log_probs, finished, lengths)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        inner = pack(state.cell_state, [self._merged(leaf) for leaf in leaves_of(state.cell_state)])
        logits, after = self._cell(self._merged(inputs), inner)
        if self._output_layer is not None:
            logits = self._output_layer(logits)
        split = [self._split(leaf) for leaf in leaves_of(after)]
        outputs, beams = self._chosen(self._split(logits), state)
        kept = [
            leaf if leaf.static_shape.rank == 0 else ops.gather_v2(leaf, outputs.parent_ids, 1, batch_dims=1)
            for leaf in split
        ]
        following = beams._replace(cell_state=pack(after, kept))
        return outputs, following, self._embed(outputs.predicted_ids), following.finished

    def _chosen(self, logits: Tensor, state: BeamSearchDecoderState) -> tuple[BeamSearchDecoderOutput, Any]:
        """Choose the best continuations among all beams of each example.

        Args:
            logits: [batch, beam, classes].

        Returns:
            The outputs of the step, and the next state with an empty `cell_state`.
        """
        dtype = logits.dtype.base
        classes = ops.shape(logits)[2]
        steps = nn.log_softmax(logits)
        # A finished sequence may only repeat the end token, which leaves its log-probability unchanged.
        ends = ops.one_hot(self._end, classes, convert_to_tensor(0.0, dtype), convert_to_tensor(dtype.min, dtype))
        steps = ops.select_v2(ops.expand_dims(state.finished, 2), ops.expand_dims(ops.expand_dims(ends, 0), 0), steps)
        totals = ops.expand_dims(state.log_probs, 2) + steps
        goes_on = ops.cast(ops.logical_not(state.finished), DstT=dtypes.int64)
        one, nothing = (convert_to_tensor(value, dtypes.int64) for value in (1, 0))
        more = ops.one_hot(self._end, classes, nothing, one)
        lengths = ops.expand_dims(state.lengths, 2) + ops.expand_dims(goes_on, 2) * more
        scores = totals if self._penalty == 0 else totals / self._penalty_of(lengths, dtype)
        flat = ops.pack([self._batch, -1])
        best, places = ops.top_kv2(ops.reshape(scores, flat), self._width)
        parents, ids = places // classes, places % classes
        was_over = ops.gather_v2(state.finished, parents, 1, batch_dims=1)
        so_far = ops.gather_v2(state.lengths, parents, 1, batch_dims=1)
        beams = BeamSearchDecoderState(
            cell_state=(),
            log_probs=ops.gather_v2(ops.reshape(totals, flat), places, 1, batch_dims=1),
            finished=ops.logical_or(was_over, ops.equal(ids, self._end)),
            lengths=so_far + ops.cast(ops.logical_not(was_over), DstT=dtypes.int64),
        )
        return BeamSearchDecoderOutput(best, ids, parents), beams

    def _penalty_of(self, lengths: Tensor, dtype: Any) -> Tensor:
        return ops.pow((ops.cast(lengths, DstT=dtype) + 5.0) / 6.0, convert_to_tensor(self._penalty, dtype))

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        longest = ops.cast(ops.max(final_state.lengths, [1]), DstT=dtypes.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state
