"""Recurrent networks whose inputs are computed in the loop, or whose states are stored between runs.

Next to read: `recurrent_networks.py`, the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aexec import ops
from aexec.client.building import control_dependencies, identity
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.control_flow.while_loop import while_loop
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.recurrent_cells import RNNCell
from aexec.nn.recurrent_networks import chosen_examples, static_rnn
from aexec.variables.variable_scope import VariableScope, variable_scope

__all__ = ["StateSaver", "raw_rnn", "static_state_saving_rnn"]

# (time, output, state, loop state) → (finished, next input, next state, emitted output, next loop state).
LoopFn = Callable[[Tensor, Any, Any, Any], tuple[Any, Any, Any, Any, Any]]


class StateSaver(Protocol):
    """Stores the state of a network between runs."""

    def state(self, state_name: str) -> Any:
        """The state of that name, [batch, size]."""

    def save_state(self, state_name: str, value: Any) -> Any:
        """Store a new state; return an operation or tensor that has done so."""


def raw_rnn(
    cell: RNNCell,
    loop_fn: LoopFn,
    parallel_iterations: int = 32,
    *,
    scope: str | VariableScope | None = None,
) -> tuple[Any, Any, Any]:
    """Runs a cell in a loop; `loop_fn` gives its inputs, chooses its outputs, and decides when it ends.

    Args:
        loop_fn: called once with time 0 and None for the other arguments, for the first input and state; it then emits
            None, or examples of later outputs, without the batch.  Later it is called after each time step. `finished`
            is a bool for each example; one that has finished keeps its state, and emits zeros.  A loop state is any
            structure, or None.

    Returns:
        TensorArrays of the emitted outputs, in their structure, [time, batch, ...]; the last state; the last loop
            state.

    Raises:
        InvalidArgumentError: the batch size of the first input is unknown, or structures change.
    """
    with variable_scope(scope or "rnn"):
        time = convert_to_tensor(0, dtypes.int32, "time")
        finished, first, state, emitted, loop_state = loop_fn(time, None, None, None)
        state = pack(state, [convert_to_tensor(leaf) for leaf in leaves_of(state)])
        inputs = pack(first, [convert_to_tensor(leaf) for leaf in leaves_of(first)])
        batch = ops.shape(leaves_of(inputs)[0])[0]
        structure: Any = cell.output_size if emitted is None else emitted
        if emitted is None:
            dtype = leaves_of(state)[0].dtype.base
            zeros = [_zeros([batch, size], dtype) for size in leaves_of(structure)]
        else:
            zeros = _zeros_like(structure, batch)
        arrays = [
            TensorArray(zero.dtype.base, 0, dynamic_size=True, clear_after_read=False, infer_shape=False)
            for zero in zeros
        ]
        # A loop variable is required even if nothing is kept in it.
        keeps = loop_state is not None
        kept = loop_state if keeps else convert_to_tensor(0, dtypes.int32, "loop_state")

        def step(at: Tensor, over: Tensor, x: Any, now: Any, written: Any, of_loop: Any) -> list[Any]:
            output, after = cell(x, now)
            later = at + 1
            is_over, next_x, next_state, emit, next_of_loop = loop_fn(later, output, after, of_loop if keeps else None)
            check_same_structure(now, next_state, "states")
            emit = output if emit is None else emit
            made = [
                chosen_examples(over, zero, convert_to_tensor(leaf))
                for zero, leaf in zip(zeros, leaves_of(emit), strict=True)
            ]
            states = [
                chosen_examples(over, old, convert_to_tensor(new))
                for old, new in zip(leaves_of(now), leaves_of(next_state), strict=True)
            ]
            more = [array.write(at, value) for array, value in zip(written, made, strict=True)]
            over = ops.logical_or(over, is_over)
            return [later, over, next_x, pack(now, states), more, next_of_loop if keeps else of_loop]

        start = [time, convert_to_tensor(finished), inputs, state, arrays, kept]
        _, _, _, last, written, of_loop = while_loop(
            lambda _, over, *__: ops.logical_not(ops.all(over, [0])),
            step,
            start,
            parallel_iterations=parallel_iterations,
        )
        return pack(structure, written), last, of_loop if keeps else None


def _zeros_like(structure: Any, batch: Tensor) -> list[Tensor]:
    """Zeros for a batch, in the structure and shapes of examples."""
    examples = [convert_to_tensor(leaf) for leaf in leaves_of(structure)]
    return [_zeros(ops.concat_v2([ops.expand_dims(batch, 0), ops.shape(one)], 0), one.dtype.base) for one in examples]


def _zeros(shape: Any, dtype: Any) -> Tensor:
    sizes = ops.pack([convert_to_tensor(size) for size in shape]) if isinstance(shape, list) else shape
    return ops.fill(sizes, convert_to_tensor(0, dtype) if dtype is not dtypes.string else convert_to_tensor(b""))


def static_state_saving_rnn(
    cell: RNNCell,
    inputs: Sequence[Any],
    state_saver: StateSaver,
    state_name: Any,
    sequence_length: Any = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Tensor], Any]:
    """`static_rnn` that starts with a stored state, and stores the last one.

    Args:
        state_saver: has `state(name)` and `save_state(name, value)`.
        state_name: a name for each leaf of the cell's state, in its structure.

    Returns:
        The outputs, the last of which waits until the state is stored, and the last state.

    Raises:
        InvalidArgumentError: the names have another structure than the state; and what `static_rnn` raises.
    """
    sizes, names = leaves_of(cell.state_size), leaves_of(state_name)
    if len(sizes) != len(names):
        raise errors.InvalidValueError(
            f"state_name has {len(names)} names, and the state of the cell {len(sizes)} parts"
        )
    state = pack(cell.state_size, [state_saver.state(name) for name in names])
    outputs, last = static_rnn(cell, inputs, state, sequence_length=sequence_length, scope=scope)
    saved = [state_saver.save_state(name, value) for name, value in zip(names, leaves_of(last), strict=True)]
    with control_dependencies(saved):
        outputs[-1] = identity(outputs[-1])
    return outputs, last
