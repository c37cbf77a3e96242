"""`VariableUse`: what a kernel that is queued on a device does with variables whose values are there.

The host keeps the variable's cell, the device its value.  When the node runs, its variables are found on the loop, and
the call is queued with their values in front of its other arguments.  A kernel that changes them gives new values,
which the cells have at once: so whoever reads a variable before sees the old one, whoever does so afterwards the new
one, in the order in which the nodes ran, and nobody waits.  If the call fails or is withdrawn, the variable's value
stays what it was (`device.QueuedKernel.updates`); none is ever half of one and half of the other.
Next to read: `state/tensor_cell.py`, `aexec/kernels/state/device_variable_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy import ndarray

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.state.tensor_cell import Exchanging, TensorCell

__all__ = ["VariableUse"]

Enqueue = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class VariableUse:
    """The variables of one node.

    Attributes:
        find: of the context and the inputs of a call, the cells of the variables, and the other inputs.  It is called
            on the loop, and raises what is wrong with the variables.
        changed: types of the cells if the kernel gives them new values, as its only outputs.
        num_outputs: of a node that changes variables: it gives so many of the cells.
        initial: what stands for the value of a variable that has none; without it there has to be one.
    """

    find: Callable[[OpKernelContext, Sequence[Any]], tuple[Sequence[TensorCell], Sequence[Any]]]
    changed: tuple[DType, ...] = ()
    num_outputs: int = 0
    initial: Callable[[TensorCell], Any] | None = None

    def queue(
        self, context: OpKernelContext, inputs: Sequence[Any], kernel: QueuedKernel, device: Device, enqueue: Enqueue
    ) -> Any:
        """Queue a call on the values of the node's variables.

        Args:
            enqueue: queues it with these arguments, as `QueuedWork.enqueue`.

        Returns:
            what `enqueue` does; or, if the kernel changes variables, as many of their cells as the node has outputs.

        Raises:
            FailedPreconditionError: a variable has no value.
            PostponedError: a thread is about to change one.
            OpError: whatever finding them and queueing raise.  The variables are as they were.
        """
        cells, others = self.find(context, inputs)
        with Exchanging(cells) as values:
            arguments = [self._argument(cell, value) for cell, value in zip(cells, values, strict=True)]
            for position, value in enumerate(arguments):
                if type(value) is ndarray:  # which a kernel of the host has put there
                    arguments[position] = device.copy_in(value, node=kernel.name)
            outputs = enqueue([*arguments, *others])
            if not self.changed:
                return outputs
            values[:] = outputs
        return tuple(cells[: self.num_outputs])

    def _argument(self, cell: TensorCell, value: Any) -> Any:
        if value is not None:
            return value
        if self.initial is None:
            raise errors.FailedPreconditionError("Attempting to use uninitialized variables")
        return self.initial(cell)
