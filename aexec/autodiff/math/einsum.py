"""The gradient of Einsum: for each operand a sum of products of the gradient with the other operand."""

from __future__ import annotations

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import conjugated, shape_of, summed_to
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor

__all__ = ["einsum_gradients"]

_ELLIPSIS = "..."


def einsum_gradients(op: ForwardOp, grad: Tensor) -> list[Tensor]:
    """The gradients of one or two operands."""
    inputs, output = op.get_attr("equation").replace(" ", "").split("->")
    subscripts = inputs.split(",")
    if len(subscripts) == 1:
        return [_of_operand(op, 0, subscripts[0], [output], [grad])]
    # A complex other operand is conjugated.
    others = [conjugated(x) for x in op.inputs]
    return [
        _of_operand(op, 0, subscripts[0], [output, subscripts[1]], [grad, others[1]]),
        _of_operand(op, 1, subscripts[1], [subscripts[0], output], [others[0], grad]),
    ]


def _of_operand(op: ForwardOp, index: int, wanted: str, subscripts: list[str], factors: list[Tensor]) -> Tensor:
    """The product of `factors`, summed over the labels that `wanted`, the subscripts of operand `index`, lacks."""
    x = op.inputs[index]
    given = set("".join(subscripts))
    # Along an axis that was summed over in this operand alone, the gradient is the same everywhere.
    alone = [label for label in dict.fromkeys(wanted.replace(_ELLIPSIS, "")) if label not in given]
    if alone:
        place = index if len(factors) > 1 else 0  # the gradient's position is that of the operand
        factors[place] = _repeated(factors[place], x, wanted, alone)
        subscripts[place] = "".join(alone) + subscripts[place]
    batched = any(_ELLIPSIS in part for part in subscripts)
    target = wanted if _ELLIPSIS in wanted or not batched else _ELLIPSIS + wanted
    result = ops.einsum(factors, f"{','.join(subscripts)}->{target}")
    return _without_broadcast(op, result, x, wanted, target) if batched else result


def _repeated(grad: Tensor, x: Tensor, wanted: str, labels: list[str]) -> Tensor:
    """`grad` with an axis for each of `labels` before its own, as long as in `x`."""
    shape, rank = shape_of(x), x.static_shape.rank
    sizes = []
    for label in labels:
        position = wanted.replace(_ELLIPSIS, ".").index(label)
        if _ELLIPSIS in wanted and position > wanted.index(_ELLIPSIS):
            if rank is None:
                raise _unknown_rank(x)
            position -= len(wanted.replace(_ELLIPSIS, ".")) - rank
        sizes.append(shape[position])
    return ops.broadcast_to(grad, ops.concat_v2([ops.pack(sizes), shape_of(grad)], 0))


def _without_broadcast(op: ForwardOp, result: Tensor, x: Tensor, wanted: str, target: str) -> Tensor:
    """Sum the axes of an ellipsis, which may have been broadcast, to those of the operand."""
    rank, out_rank = x.static_shape.rank, op.outputs[0].static_shape.rank
    if rank is None or out_rank is None:
        raise _unknown_rank(x)
    output = op.get_attr("equation").replace(" ", "").split("->")[1]
    axes = out_rank - len(output.replace(_ELLIPSIS, ""))
    mine = rank - len(wanted.replace(_ELLIPSIS, ""))
    start = target.index(_ELLIPSIS)
    added = axes - mine
    if added:
        result = ops.sum(result, np.arange(start, start + added, dtype=np.int32))
    return summed_to(result, x)


def _unknown_rank(x: Tensor) -> errors.OpError:
    return errors.UnsupportedError(
        f"the gradient of Einsum with an ellipsis needs ranks that are known; that of '{x.name}' is not"
    )
