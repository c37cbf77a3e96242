"""Decoders, and the loop that runs them.

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
    """The base of decoders.

    A subclass has `batch_size`, `output_dtype` (a structure of types, that of its outputs), `initialize()` → finished,
    first inputs, first state; and `step(time, inputs, state)` → outputs, next state, next inputs, finished.
    """

    @property
    def batch_size(self) -> Any:
        """The number of examples."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """Types in the structure of the outputs."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether an example that has finished may go on."""
        return False

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Whether each example has finished, the first inputs, and the first state."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """The outputs of a step, the next state, the next inputs, and whether each example has finished."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Called after the last step with all outputs, [time, batch, …]; may return others."""
        raise NotImplementedError


class BasicDecoderOutput(NamedTuple):
    """The outputs of a `BasicDecoder`: of its cell, and what the helper says they mean."""

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """Runs a cell; a helper chooses what it reads.

    Args:
        output_layer: a layer object of the cell's outputs.
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
    """Run a decoder until all examples have finished.

    Args:
        output_time_major: outputs are [time, batch, …] instead of [batch, time, …].
        impute_finished: examples that have finished keep their state, and their outputs are zeros.
        maximum_iterations: the most steps, an int scalar; None for no bound.

    Returns:
        The outputs in the decoder's structure, the last state, and the length of each example.

    Raises:
        TypeError: it is no decoder.
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
        stacked = [array.stack() for array in written]
        known = [
            ops.ensure_shape(leaf, shape=[None, *shape]) if shape.rank is not None else leaf
            for leaf, shape in zip(stacked, shapes, strict=True)
        ]
        outputs = pack(structure, known)
        with suppress(NotImplementedError):
            outputs, last = decoder.finalize(outputs, last, lengths)
        if not output_time_major:
            leaves = [_batch_first(leaf) for leaf in leaves_of(outputs)]
            outputs = pack(outputs, leaves)
        return outputs, last, lengths


def _all(values: Tensor) -> Tensor:
    return ops.all(values, ops.range(0, ops.rank(values), 1))


def _kept(over: Tensor, old: Any, new: Tensor) -> Tensor:
    """The old state of examples that have finished; scalars, which no example owns, are new."""
    return new if new.static_shape.rank == 0 else chosen_examples(over, convert_to_tensor(old), new)


def _batch_first(value: Tensor) -> Tensor:
    rank = value.static_shape.rank
    rest = ops.range(2, ops.rank(value), 1) if rank is None else None
    order = [1, 0, *range(2, rank)] if rank is not None else ops.concat_v2([[1, 0], rest], 0)
    return ops.transpose(value, order)
