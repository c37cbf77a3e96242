"""Gradients of tensor arrays, kept in an array of their own, one for each call of `gradients`.

The gradient of a read is a write, and vice versa.  The flow orders them: that of the gradient array is made from the
array's.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.client.building import control_dependencies
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Grads = tuple[Any, ...]

for _version in ("", "V2", "V3"):
    no_gradient(*(f"TensorArray{part}{_version}" for part in ("", "Size", "Close")))
no_gradient("TensorArrayGrad", "TensorArrayGradV2", "TensorArrayGradWithShape", "TensorArrayPack", "TensorArrayUnpack")
no_gradient(*"Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2".split())
no_gradient("GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor", "DeleteSessionTensor")
no_gradient(
    *(
        f"Queue{part}{version}"
        for part in ("Enqueue", "EnqueueMany", "Dequeue", "DequeueMany", "DequeueUpTo", "Close", "Size")
        for version in ("", "V2")
    )
)


@gradient("TensorArrayGradV3")
def _gradient_array(op: ForwardOp, _: Tensor, flow: Tensor) -> Grads:
    """A value read from an array of gradients depends, by its flow, on what was written to it before.

    In TensorFlow no gradient flows through here, so it loses second derivatives through arrays.
    """
    return None, flow


class _Versions:
    """The gradient functions of one version of the ops."""

    def __init__(self, version: str) -> None:
        self._version = version
        for part in ("Read", "Write", "Gather", "Scatter", "Concat", "Split"):
            gradient(f"TensorArray{part}{version}")(getattr(self, f"_{part.lower()}"))

    def _add(self, part: str, inputs: dict[str, Any], **attrs: Any) -> Any:
        node = create_node(f"TensorArray{part}{self._version}", inputs, attrs)
        return node.output(0)

    def _gradient_array(self, op: ForwardOp, flow: Tensor) -> tuple[Tensor, Tensor]:
        """The handle of the array of gradients, and a flow that comes after it was made."""
        node = create_node(
            f"TensorArrayGrad{self._version}", {"handle": op.inputs[0], "flow_in": flow}, {"source": op.call}
        )
        if node.num_outputs > 1:
            return node.output(0), node.output(1)
        with control_dependencies([node]):
            return node.output(0), ops.identity(flow)

    def _read(self, op: ForwardOp, grad: Tensor) -> Grads:
        _, index, flow = op.inputs
        array, after = self._gradient_array(op, flow)
        return None, None, self._add("Write", {"handle": array, "index": index, "value": grad, "flow_in": after})

    def _write(self, op: ForwardOp, flow: Tensor) -> Grads:
        _, index, value, _ = op.inputs
        array, after = self._gradient_array(op, flow)
        inputs = {"handle": array, "index": index, "flow_in": after}
        return None, None, self._add("Read", inputs, dtype=value.dtype.base), flow

    def _gather(self, op: ForwardOp, grad: Tensor) -> Grads:
        _, indices, flow = op.inputs
        array, after = self._gradient_array(op, flow)
        return None, None, self._add("Scatter", {"handle": array, "indices": indices, "value": grad, "flow_in": after})

    def _scatter(self, op: ForwardOp, flow: Tensor) -> Grads:
        _, indices, value, _ = op.inputs
        array, after = self._gradient_array(op, flow)
        inputs = {"handle": array, "indices": indices, "flow_in": after}
        return None, None, self._add("Gather", inputs, dtype=value.dtype.base), flow

    def _concat(self, op: ForwardOp, grad: Tensor, _: Tensor) -> Grads:
        _, flow = op.inputs
        array, after = self._gradient_array(op, flow)
        inputs = {"handle": array, "value": grad, "lengths": op.outputs[1], "flow_in": after}
        return None, self._add("Split", inputs)

    def _split(self, op: ForwardOp, flow: Tensor) -> Grads:
        _, value, _, _ = op.inputs
        array, after = self._gradient_array(op, flow)
        return None, self._add("Concat", {"handle": array, "flow_in": after}, dtype=value.dtype.base), None, flow


for _version in ("", "V2", "V3"):
    _Versions(_version)
