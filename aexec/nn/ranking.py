"""The largest elements, and isotonic regression."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["in_top_k", "isotonic_regression", "top_k"]


def top_k(
    input: Any, k: Any = 1, *, sorted: bool = True, index_type: Any = "int32", name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The `k` largest elements along the last axis, and their indices: [..., k] each; of equal ones the first."""
    return ops.top_kv2(input, k, sorted=sorted, index_type=index_type, name=name)


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """For each example, whether the prediction [batch, classes] of its class [batch] is among the `k` largest."""
    with name_scope(name or "in_top_k"):
        return ops.in_top_kv2(predictions, targets, k)


def isotonic_regression(
    inputs: Any, *, decreasing: bool = True, axis: int = -1, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The non-increasing sequence along an axis that is nearest in squares: Barlow et al. 1972.

    Args:
        decreasing: if False, the non-decreasing sequence.

    Returns:
        The sequence, and for each element the number, from 0, of its segment of equal elements.
    """
    with name_scope(name or "isotonic_regression"):
        values = convert_to_tensor(inputs)
        rank = values.static_shape.rank or 1
        # The op works along the last axis.
        order = [at for at in range(rank) if at != axis % rank] + [axis % rank]
        back = [order.index(at) for at in range(rank)]
        turned = values if order == list(range(rank)) else ops.transpose(values, order)
        output, segments = ops.isotonic_regression(turned if decreasing else -turned)
        found = output if decreasing else -output
        if turned is values:
            return found, segments
        return ops.transpose(found, back), ops.transpose(segments, back)
