"""Gradients of fused recurrent layers."""

from __future__ import annotations

from typing import Any

from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node


@gradient("BlockLSTM", "BlockLSTMV2")
def _block_lstm(op: ForwardOp, *grads: Tensor) -> tuple[Any, ...]:
    """From the gradients of the states and of the outputs; those of the gates are ignored, as in TensorFlow."""
    names = [arg.name for arg in op.node.op_def.inputs + op.node.op_def.outputs]
    inputs = dict(zip(names, op.inputs + op.outputs, strict=True))
    name = op.type.replace("LSTM", "LSTMGrad")
    node = create_node(name, {**inputs, "cs_grad": grads[1], "h_grad": grads[6]}, op.attrs("use_peephole"))
    return None, *node.outputs
