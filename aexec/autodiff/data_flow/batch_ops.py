"""Gradients of Batch and Unbatch, which each undo the other.

Next to read: `aexec/kernels/data_flow/batch_ops.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

no_gradient("UnbatchGrad")


@gradient("Batch")
def _batch(op: ForwardOp, *grads: Any) -> tuple[Any, ...]:
    index, key = op.outputs[-2], op.outputs[-1]
    timeout = op.get_attr("grad_timeout_micros")
    return tuple(
        None
        if grad is None
        else ops.unbatch(grad, index, key, timeout_micros=timeout, shared_name=f"batch_gradient_{op.name}_{position}")
        for position, grad in enumerate(grads[:-2])
    )


@gradient("Unbatch")
def _unbatch(op: ForwardOp, grad: Tensor) -> tuple[Any, ...]:
    batched, index, key = op.inputs
    found = ops.unbatch_grad(batched, index, grad, key, shared_name=f"unbatch_gradient_{op.name}")
    return found, None, None
