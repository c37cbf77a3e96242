"""Gradients of diagonals: taking, setting and making them."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Tensor | None, ...]


@gradient("Diag")
def _diag(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.diag_part(grad)


@gradient("DiagPart")
def _diag_part(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.diag(grad)


@gradient("MatrixBandPart")
def _matrix_band_part(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.matrix_band_part(grad, op.inputs[1], op.inputs[2]), None, None


@gradient("MatrixDiag")
def _matrix_diag(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.matrix_diag_part(grad)


@gradient("MatrixDiagPart")
def _matrix_diag_part(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.matrix_set_diag(ops.zeros_like(op.inputs[0]), grad)


@gradient("MatrixSetDiag")
def _matrix_set_diag(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.matrix_set_diag(grad, ops.zeros_like(op.inputs[1])), ops.matrix_diag_part(grad)


# With a band of diagonals `k`.


def _zero(x: Tensor) -> Any:
    """A scalar of the type of `x`."""
    return ops.cast(0, DstT=x.dtype.base)


def _align(op: ForwardOp) -> dict[str, Any]:
    return op.attrs("align") if op.type.endswith("V3") else {}


def _part(op: ForwardOp, x: Tensor, k: Tensor) -> Any:
    take = ops.matrix_diag_part_v3 if op.type.endswith("V3") else ops.matrix_diag_part_v2
    return take(x, k, _zero(x), **_align(op))


def _set(op: ForwardOp, x: Tensor, diagonal: Tensor, k: Tensor) -> Any:
    put = ops.matrix_set_diag_v3 if op.type.endswith("V3") else ops.matrix_set_diag_v2
    return put(x, diagonal, k, **_align(op))


@gradient("MatrixDiagV2", "MatrixDiagV3")
def _matrix_diag_v3(op: ForwardOp, grad: Tensor) -> Grads:
    k = op.inputs[1]
    rest = _set(op, grad, ops.zeros_like(op.inputs[0]), k)
    # The gradient outside of the diagonals belongs to the padding.
    padding = ops.sum(rest, ops.range(0, ops.rank(rest), 1))
    return _part(op, grad, k), None, None, None, padding


@gradient("MatrixDiagPartV2", "MatrixDiagPartV3")
def _matrix_diag_part_v3(op: ForwardOp, grad: Tensor) -> Grads:
    x, k, _ = op.inputs
    return _set(op, ops.zeros_like(x), grad, k), None, None


@gradient("MatrixSetDiagV2", "MatrixSetDiagV3")
def _matrix_set_diag_v3(op: ForwardOp, grad: Tensor) -> Grads:
    _, diagonal, k = op.inputs
    return _set(op, grad, ops.zeros_like(diagonal), k), _part(op, grad, k), None
