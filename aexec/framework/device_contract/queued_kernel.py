"""`QueuedKernel`: a kernel in the form that a device queues; `CallSequence`: several calls of them as one call.

Next to read: `aexec/devices/cuda_recordings.py`, which records a sequence and replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass

__all__ = ["CallSequence", "CapturedCalls", "MemberCall", "QueuedKernel", "SequencePart"]


@dataclass(frozen=True, slots=True, eq=False)
class QueuedKernel:
    """A kernel of one node, in the form that a device queues.

    Attributes:
        name, op: the node's name and op type.
        compute: called with the arguments; device values, also in lists, are replaced by arrays of the device's `xp`.
        output_types: types of the outputs.
        host_outputs: positions of the outputs in host memory.
        takes_list: True if the inputs are one list, the last of the arguments.
        updates: the number of variables that a call changes.  The first `updates` arguments are their values, the first
            `updates` outputs their new values.  A call that fails or is withdrawn leaves each at its argument; if that
            is not a device value, the variable has no value, and what is computed from the output fails with
            FailedPreconditionError.  A device that guarantees this says so to `portable.register_portable_kernels`.
        assigns: True if a variable need not have a value: the argument is None for one that turns out to have none.
    """

    name: str
    op: str
    compute: Callable[..., Any]
    output_types: Sequence[DType]
    host_outputs: frozenset[int] = frozenset()
    takes_list: bool = False
    updates: int = 0
    assigns: bool = False

    def to_compute_with(self, arguments: Sequence[Any], failed: Callable[[Any], object]) -> Sequence[Any]:
        """The arguments, with None for variables that turned out to have no value, if `assigns`.

        Args:
            failed: returns true if the call that was to make this argument failed.
        """
        if not self.assigns:
            return arguments
        return [
            None if position < self.updates and failed(argument) else argument
            for position, argument in enumerate(arguments)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class MemberCall:
    """One call of a sequence, on a table of values.

    Attributes:
        arguments, results: positions in the table.
        drops: positions of values that no later call needs.
    """

    kernel: QueuedKernel
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    drops: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallSequence:
    """Calls of queued kernels, one after another, that a device queues as one call.

    Attributes:
        name: for errors.
        constants: values that are the same in every run: device values, or arrays in the host's memory.
        num_inputs: the number of inputs of a run; the table begins with these, then come the constants.
        outputs: positions of the outputs.
        size: the size of the table.
    """

    name: str
    calls: tuple[MemberCall, ...]
    constants: tuple[Any, ...]
    num_inputs: int
    outputs: tuple[int, ...]
    size: int

    def run(self, inputs: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
        """Make all calls; return the outputs.  The error of a failed call has `failed_node`, and an OpError has
        `node`.
        """
        table = self.table(inputs, constants)
        self.run_on(table)
        return [table[i] for i in self.outputs]

    def table(self, inputs: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
        """The table of values before the first call."""
        table = [*inputs, *constants]
        return table + [None] * (self.size - len(table))

    def run_on(self, table: list[Any]) -> None:
        """Make all calls on a table of values, as `run`."""
        for call in self.calls:
            arguments = [table[i] for i in call.arguments]
            try:
                made = call.kernel.compute(arguments) if call.kernel.takes_list else call.kernel.compute(*arguments)
            except BaseException as error:
                error.failed_node = call.kernel.name  # type: ignore[attr-defined]
                if isinstance(error, errors.OpError):
                    error.attach_node(call.kernel.name, call.kernel.op)
                raise
            if len(call.results) == 1 and not isinstance(made, tuple):
                made = (made,)
            for position, value in zip(call.results, made, strict=True):
                table[position] = value
            del arguments, made
            for position in call.drops:
                table[position] = None

    def part(self, start: int, stop: int) -> SequencePart:
        """The calls from `start` to before `stop`, as a sequence of their own."""
        calls = self.calls[start:stop]
        first_made = self.num_inputs + len(self.constants)
        made = {position for call in calls for position in call.results}
        used = {position for call in calls for position in call.arguments} - made
        needed = {*self.outputs, *(position for call in self.calls[stop:] for position in call.arguments)}
        constants = sorted(position for position in used if self.num_inputs <= position < first_made)
        inputs = sorted(used.difference(constants))
        outputs = sorted(made & needed)
        places = {position: place for place, position in enumerate((*inputs, *constants, *sorted(made)))}
        sequence = CallSequence(
            self.name,
            tuple(
                MemberCall(
                    call.kernel,
                    tuple(places[position] for position in call.arguments),
                    tuple(places[position] for position in call.results),
                    tuple(places[position] for position in call.drops if position in made),
                )
                for call in calls
            ),
            tuple(self.constants[position - self.num_inputs] for position in constants),
            len(inputs),
            tuple(places[position] for position in outputs),
            len(places),
        )
        drops = {position for call in calls for position in call.drops} & {*inputs, *constants}
        return SequencePart(start, sequence, tuple(inputs), tuple(constants), tuple(outputs), tuple(drops))


@dataclass(frozen=True, slots=True, eq=False)
class SequencePart:
    """Some calls of a sequence, one after another.

    Attributes:
        start: position of the first call.
        sequence: the calls as a sequence of their own.
        inputs, constants, outputs: positions in the whole sequence's table of this sequence's inputs, constants and
            outputs.
        drops: positions of its inputs that no later call needs.
    """

    start: int
    sequence: CallSequence
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]
    drops: tuple[int, ...]


class CapturedCalls(Protocol):
    """A kernel that makes the calls of a sequence; made by `Device.captured`."""

    @property
    def recordings(self) -> int:
        """The number of recordings that it keeps, over all parts of the sequence."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Nodes whose calls were not captured → the reason."""
        ...

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Make the calls; return the sequence's outputs."""
        ...
