"""TensorArrays whose elements are in a device's memory: loops on a GPU write and read them without the host.

The event loop finds the array; operations on it are queued in stream order, and shapes are known when they are queued.
Only the third generation is here, whose handles are resources; arrays of int32, strings and variants are on the host.
Next to read: `tensor_array_ops.py`, `aexec/framework/kernel_contract/variable_use.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.kernel_contract.variable_use import VariableUse
from aexec.kernels.common.gpu.device_forms import device_form
from aexec.kernels.data_flow.tensor_array_ops import CORES, Core, finder, tensor_array, tensor_array_grad

__all__: list[str] = []

# Inputs and outputs in host memory, by operation.
_HOST_MEMORY = {
    "Close": (),
    "Concat": ("lengths",),
    "Gather": ("indices",),
    "Read": ("index",),
    "Scatter": ("indices",),
    "Size": ("size",),
    "Split": ("lengths",),
    "Write": ("index",),
}


def _in_order(core: Core) -> Builder:
    """The kernel that is queued, with the array in place of its handle."""

    def build(c: OpKernelConstruction) -> Compute:
        find_array = finder()

        def find(context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            return (), [find_array(context, inputs[0]), *inputs[1:]]

        c.variables = VariableUse(find)
        return core(c)

    return build


for _operation, _core in CORES.items():
    device_form(f"TensorArray{_operation}V3", of_variables=True, host_memory=("handle", *_HOST_MEMORY[_operation]))(
        _in_order(_core)
    )
# When gradients are made, the forward array has not been written yet: the writes are queued.
_gradients = partial(tensor_array_grad, at_once=False)
device_form("TensorArrayV3", of_variables=True, host_memory=("size", "handle", "flow"))(tensor_array)
device_form("TensorArrayGradV3", of_variables=True, host_memory=("handle", "grad_handle"))(_gradients)
device_form("TensorArrayGradWithShape", of_variables=True, host_memory=("handle", "shape_to_prepend", "grad_handle"))(
    _gradients
)
