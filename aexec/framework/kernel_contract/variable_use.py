"""`VariableUse`: how a kernel that is queued on a device uses variables whose values are there.

The host keeps the variable's cell, the device its value.  When the node runs, its variables are looked up on the event
loop, and the call is queued with their values in front of its other arguments.  A kernel that changes them returns new
values, which the cells hold at once.  So reads see the values in the order in which the nodes ran, and nothing waits.
If the call fails or is withdrawn, the variable keeps its value (`device.QueuedKernel.updates`); it is never partly
updated.
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
        find: returns the cells of the variables and the other inputs, from the context and the inputs of a call.
            Called on the event loop; raises if a variable is missing or wrong.
        changed: types of the cells if the kernel returns new values for them, as its only outputs.
        num_outputs: the number of cells that a node which changes variables has as outputs.
        initial: returns the value to use for an uninitialised variable; None if the variable must have a value.
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
            the result of `enqueue`; or, if the kernel changes variables, as many of their cells as the node has
                outputs.

        Raises:
            FailedPreconditionError: a variable has no value.
            PostponedError: a thread is about to change one.
            OpError: an error of the lookup or of queueing.  The variables are unchanged.
        """
        cells, others = self.find(context, inputs)
        with Exchanging(cells) as values:
            arguments = [self._argument(cell, value) for cell, value in zip(cells, values, strict=True)]
            for position, value in enumerate(arguments):
                if type(value) is ndarray:  # put there by a kernel of the host
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
