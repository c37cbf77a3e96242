"""`Decoder`, `BasicDecoder`, and `dynamic_decode`, the loop that runs a decoder.

::

    helper = TrainingHelper(inputs, lengths)
    outputs, state, lengths = dynamic_decode(BasicDecoder(cell, helper, cell.zero_state(batch, tf.float32)))

Next to read: `helpers.py`, `attention.py`, `beam_search.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from aexec import ops
from aexec.client.building import name_scope
from aexec.control_flow.structure import leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.control_flow.while_loop import while_loop
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.recurrent_networks import chosen_examples
from aexec.variables.variable_scope import variable_scope

__all__ = ["BasicDecoder", "BasicDecoderOutput", "Decoder", "dynamic_decode"]


class Decoder:
    """`tf.contrib.seq2seq.Decoder`: the base of decoders.

    A subclass overrides `batch_size`, `output_dtype`, `initialize` and `step`, and may override `finalize`.
    """

    @property
    def batch_size(self) -> Any:
        """The number of examples."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """The dtypes of a step's outputs, in their structure."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """True if `step` keeps track of finished examples, as with beams; False if finished examples stay finished."""
        return False

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Return which examples have finished, [batch], bool; the first inputs; and the first state."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Return the outputs of a step, the next state, the next inputs, and which examples have finished.

        Args:
            time: number of the step from 0, an int32 scalar.
        """
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Convert the outputs of all steps, [time, batch, …], and the final state; called after the last step.

        Raises:
            NotImplementedError: nothing is to be converted (the default).
        """
        raise NotImplementedError


class BasicDecoderOutput(NamedTuple):
    """The outputs of a `BasicDecoder`: those of its cell (or output layer), and the helper's sample of them."""

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """`tf.contrib.seq2seq.BasicDecoder`: runs a cell on the inputs that a helper chooses.

    Args:
        cell: the cell.
        helper: a `Helper`.
        initial_state: state of the cell before the first step.
        output_layer: layer object applied to the cell's outputs, or None.
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        self._cell = cell
        self._helper = helper
        self._initial_state = initial_state
        self._output_layer = output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_dtype(self) -> Any:
        dtype = leaves_of(self._initial_state)[0].dtype.base
        structure = self._cell.output_size
        sizes = leaves_of(structure)
        outputs = pack(structure, [dtype] * len(sizes)) if len(sizes) > 1 else dtype
        return BasicDecoderOutput(outputs, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        with name_scope(name or "BasicDecoderStep"):
            outputs, after = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=after)
            finished, following, after = self._helper.next_inputs(
                time=time, outputs=outputs, state=after, sample_ids=ids
            )
        return BasicDecoderOutput(outputs, ids), after, following, finished


def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Tensor]:
    """`tf.contrib.seq2seq.dynamic_decode`: run a decoder until all examples have finished.

    Args:
        decoder: an object with the methods of `Decoder`.
        output_time_major: True for outputs [time, batch, …], False for [batch, time, …].
        impute_finished: keep the state of finished examples, and set their outputs to 0.
        maximum_iterations: greatest number of steps, an int scalar; None for no limit.
        parallel_iterations: as in `tf.while_loop`.
        swap_memory: ignored.
        scope: variable scope; `decoder` by default.

    Returns:
        The outputs in the structure of `output_dtype`, the final state, and the length of each example, [batch],
        int32.

    Raises:
        TypeError: `decoder` has no method `initialize` or `step`.
    """
    if not hasattr(decoder, "initialize") or not hasattr(decoder, "step"):
        raise errors.InvalidTypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with variable_scope(scope, "decoder"):
        finished, inputs, state = decoder.initialize()
        finished = convert_to_tensor(finished)
        if maximum_iterations is not None:
            maximum_iterations = convert_to_tensor(maximum_iterations, dtypes.int32, "maximum_iterations")
            finished = ops.logical_or(finished, ops.greater_equal(0, maximum_iterations))
        structure = decoder.output_dtype
        arrays = [TensorArray(dtype, 0, dynamic_size=True, clear_after_read=False) for dtype in leaves_of(structure)]
        owns_finished = bool(getattr(decoder, "tracks_own_finished", False))
        shapes: list[Any] = []

        def body(time: Any, written: Any, now: Any, given: Any, over: Any, lengths: Any) -> list[Any]:
            outputs, after, following, done = decoder.step(time, given, now)
            is_over = done if owns_finished else ops.logical_or(done, over)
            here = ops.fill(ops.shape(lengths), time + 1)
            counted = ops.select_v2(over, lengths, here)
            made = [convert_to_tensor(leaf) for leaf in leaves_of(outputs)]
            shapes[:] = [leaf.static_shape for leaf in made]
            states = [convert_to_tensor(leaf) for leaf in leaves_of(after)]
            if impute_finished:
                made = [chosen_examples(over, ops.zeros_like(leaf), leaf) for leaf in made]
                states = [_kept(over, old, new) for old, new in zip(leaves_of(now), states, strict=True)]
            more = [array.write(time, leaf) for array, leaf in zip(written, made, strict=True)]
            return [time + 1, more, pack(now, states), following, is_over, counted]

        time = convert_to_tensor(0, dtypes.int32, "time")
        start = [time, arrays, state, inputs, finished, ops.cast(ops.zeros_like(finished), DstT=dtypes.int32)]
        _, written, last, _, _, lengths = while_loop(
            lambda _time, _written, _now, _given, over, _lengths: ops.logical_not(_all(over)),
            body,
            start,
            parallel_iterations=parallel_iterations,
            maximum_iterations=maximum_iterations,
        )
        outputs = pack(structure, _stacked(written, shapes))
        with suppress(NotImplementedError):
            outputs, last = decoder.finalize(outputs, last, lengths)
        if not output_time_major:
            leaves = [_batch_first(leaf) for leaf in leaves_of(outputs)]
            outputs = pack(outputs, leaves)
        return outputs, last, lengths


def _stacked(arrays: list[Any], shapes: list[Any]) -> list[Tensor]:
    """The elements of each array as one tensor, [time, *shape]."""
    return [
        ops.ensure_shape(array.stack(), shape=[None, *shape]) if shape.rank is not None else array.stack()
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _all(values: Tensor) -> Tensor:
    return ops.all(values, ops.range(0, ops.rank(values), 1))


def _kept(over: Tensor, old: Any, new: Tensor) -> Tensor:
    """Select the old state for finished examples, the new one for others.  A scalar has no examples, and is new."""
    return new if new.static_shape.rank == 0 else chosen_examples(over, convert_to_tensor(old), new)


def _batch_first(value: Tensor) -> Tensor:
    rank = value.static_shape.rank
    rest = ops.range(2, ops.rank(value), 1) if rank is None else None
    order = [1, 0, *range(2, rank)] if rank is not None else ops.concat_v2([[1, 0], rest], 0)
    return ops.transpose(value, order)
