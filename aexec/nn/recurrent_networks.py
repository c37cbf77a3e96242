"""Sequences through recurrent cells: in a loop of the graph, or with nodes for each time step; forward, or both
ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.control_flow.structure import leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.control_flow.while_loop import while_loop
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.recurrent_cells import RNNCell
from aexec.variables.variable_scope import VariableScope, variable_scope

__all__ = ["bidirectional_dynamic_rnn", "chosen_examples", "dynamic_rnn", "static_bidirectional_rnn", "static_rnn"]


def dynamic_rnn(
    cell: RNNCell,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int = 32,
    *,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence, in a loop as long as the longest example.

    Args:
        inputs: [batch, time, size]; [time, batch, size] if `time_major`.
        sequence_length: the length of each example, [batch]; after its end, outputs are zero and the state stays.
        initial_state: in the structure of the cell's state; by default zeros of type `dtype`.
        parallel_iterations: how many time steps may run at once.
        scope: variable scope of the cell's weights, `rnn` by default.

    Returns:
        The outputs, with axes in the order of the inputs', and the last state.

    Raises:
        InvalidArgumentError: there is neither a state nor a type, or the rank of the inputs is unknown.
    """
    with variable_scope(scope or "rnn"):
        given = convert_to_tensor(inputs, name="inputs")
        if given.static_shape.rank is None or given.static_shape.rank < 3:
            raise errors.InvalidValueError(f"inputs of an RNN must be [batch, time, ...], got {given.static_shape}")
        by_time = given if time_major else _swapped(given)
        sizes = ops.shape(by_time)
        steps, batch = sizes[0], sizes[1]
        state = _first_state(cell, initial_state, dtype, _known_batch(by_time, batch))
        lengths = _lengths(sequence_length)
        source = TensorArray(given.dtype.base, steps, tensor_array_name="input_0").unstack(by_time)
        made: list[tuple[int | None, ...]] = []
        sink = TensorArray(leaves_of(state)[0].dtype.base, steps, tensor_array_name="output_0")

        def step(time: Tensor, now: Any, outputs: TensorArray) -> list[Any]:
            x = _with_shape(source.read(time), list(by_time.static_shape)[1:])
            output, after = _called(cell, x, now, time, lengths)
            made.append(tuple(output.static_shape))
            return [time + 1, after, outputs.write(time, output)]

        start = [convert_to_tensor(0, dtypes.int32, "time"), state, sink]
        _, last, written = while_loop(
            lambda time, *_: ops.less(time, steps), step, start, parallel_iterations=parallel_iterations
        )
        outputs = _with_shape(written.stack(), [next(iter(by_time.static_shape)), *made[0]])
        return outputs if time_major else _swapped(outputs), last


def static_rnn(
    cell: RNNCell,
    inputs: Sequence[Any],
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Tensor], Any]:
    """Run a cell over a sequence, with nodes for each time step.

    Args:
        inputs: one tensor for each time step, [batch, size].
        sequence_length, initial_state, dtype, scope: as of `dynamic_rnn`.

    Returns:
        The outputs, one for each time step, and the last state.

    Raises:
        InvalidArgumentError: there are no inputs, or neither a state nor a type.
    """
    if not inputs:
        raise errors.InvalidValueError("inputs must not be empty")
    with variable_scope(scope or "rnn"):
        moments = [convert_to_tensor(value) for value in inputs]
        state = _first_state(cell, initial_state, dtype, _known_batch_of(moments[0]))
        lengths = _lengths(sequence_length)
        outputs = []
        for time, x in enumerate(moments):
            output, state = _called(cell, x, state, time, lengths)
            outputs.append(output)
        return outputs, state


def bidirectional_dynamic_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int = 32,
    *,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Any, Any]]:
    """Run one cell over a sequence, and another one from its end to its start; arguments as of `dynamic_rnn`.

    Returns:
        Outputs of both, in the order of the inputs, and last states of both.
    """
    time_axis, batch_axis = (0, 1) if time_major else (1, 0)

    def reversed_(value: Tensor) -> Tensor:
        if sequence_length is None:
            return ops.reverse_v2(value, [time_axis])
        return ops.reverse_sequence(value, sequence_length, seq_dim=time_axis, batch_dim=batch_axis)

    with variable_scope(scope or "bidirectional_rnn"):
        common: dict[str, Any] = {"parallel_iterations": parallel_iterations, "time_major": time_major}
        with variable_scope("fw") as forwards:
            there = dynamic_rnn(cell_fw, inputs, sequence_length, initial_state_fw, dtype, scope=forwards, **common)
        with variable_scope("bw") as backwards:
            turned = reversed_(convert_to_tensor(inputs))
            back = dynamic_rnn(cell_bw, turned, sequence_length, initial_state_bw, dtype, scope=backwards, **common)
        return (there[0], reversed_(back[0])), (there[1], back[1])


def static_bidirectional_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: Sequence[Any],
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Tensor], Any, Any]:
    """Run one cell over a sequence, and another one from its end to its start, with nodes for each time step.

    Arguments as of `static_rnn`.

    Returns:
        For each time step the outputs of both, concatenated along the last axis; and last states of both.
    """
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forwards:
            there = static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length, forwards)
        with variable_scope("bw") as backwards:
            turned = _reversed_moments(inputs, sequence_length)
            back = static_rnn(cell_bw, turned, initial_state_bw, dtype, sequence_length, backwards)
        returned = _reversed_moments(back[0], sequence_length)
        both = [ops.concat_v2([one, other], 1) for one, other in zip(there[0], returned, strict=True)]
        return both, there[1], back[1]


def _reversed_moments(moments: Sequence[Any], lengths: Any) -> list[Tensor]:
    if lengths is None:
        return [convert_to_tensor(value) for value in reversed(moments)]
    turned = ops.reverse_sequence(ops.pack(list(moments)), lengths, seq_dim=0, batch_dim=1)
    return ops.unpack(turned, num=len(moments))


def _called(cell: RNNCell, x: Tensor, state: Any, time: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    """One time step; examples that have ended get zeros and keep their state."""
    output, after = cell(x, state)
    if lengths is None:
        return output, after
    goes_on = ops.less(convert_to_tensor(time, dtypes.int32), lengths)
    kept = [chosen_examples(goes_on, new, old) for new, old in zip(leaves_of(after), leaves_of(state), strict=True)]
    return chosen_examples(goes_on, output, ops.zeros_like(output)), pack(after, kept)


def chosen_examples(examples: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows of `new` where `examples`, bools, are true, else of `old`."""
    more = (new.static_shape.rank or 1) - 1
    shape = ops.concat_v2([ops.shape(examples), convert_to_tensor([1] * more, dtypes.int32)], 0)
    return ops.select_v2(ops.reshape(examples, shape) if more else examples, new, old)


def _lengths(given: Any) -> Tensor | None:
    if given is None:
        return None
    lengths = convert_to_tensor(given, name="sequence_length")
    if lengths.static_shape.rank not in (None, 1):
        raise errors.InvalidValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.static_shape}"
        )
    return lengths if lengths.dtype.base is dtypes.int32 else ops.cast(lengths, DstT=dtypes.int32)


def _first_state(cell: RNNCell, given: Any, dtype: Any, batch: Any) -> Any:
    if given is not None:
        return pack(given, [convert_to_tensor(leaf) for leaf in leaves_of(given)])
    if dtype is None:
        raise errors.InvalidValueError("If there is no initial_state, you must give a dtype.")
    return cell.zero_state(batch, dtype)


def _known_batch(by_time: Tensor, batch: Tensor) -> Any:
    known = list(by_time.static_shape)[1]
    return batch if known is None else known


def _known_batch_of(moment: Tensor) -> Any:
    known = next(iter(moment.static_shape)) if moment.static_shape.rank else None
    return ops.shape(moment)[0] if known is None else known


def _swapped(value: Tensor) -> Tensor:
    """The value with the axes of batch and time swapped."""
    return ops.transpose(value, [1, 0, *range(2, value.static_shape.rank or 2)])


def _with_shape(value: Tensor, sizes: Sequence[int | None]) -> Tensor:
    """Set the shape of a value that was read from a tensor array, whose op does not know it."""
    value.node.shapes = [PartialTensorShape(sizes), *value.node.shapes[1:]]
    return value
