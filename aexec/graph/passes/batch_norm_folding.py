"""Batch norm folding: moves the scaling and shifting of a product's channels into its weights and one bias.

A product here is a Conv2D, Conv3D, DepthwiseConv2dNative or MatMul with constant weights.  Folded are FusedBatchNorm
for inference, and Mul, Add, Sub, RealDiv and BiasAdd with a constant per channel, in a chain after the product.  The
weights are multiplied once, in double precision, when a request is planned; one BiasAdd remains.  This changes the last
bits of results, as another order of the same sums does: by a few roundings of the sum of the products' magnitudes.
Next to read: `fusion.py`, which joins the product and the BiasAdd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.long_work import go_on, steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.passes.constant_folding import MAX_BYTES
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["fold_batch_norms"]

_TYPES = (dtypes.float32, dtypes.float64)
# Estimated nanoseconds per weight: multiply in double precision, round, and check that the result is finite.
_FOLD_NS = 4.0
# Most channels of a product: no real layer has more.
_MAX_CHANNELS = 2**20


def fold_batch_norms(working: WorkingGraph) -> None:
    """Fold scaling and shifting of channels into the constant weights of products.

    Raises:
        NeedsThreadError: on the event loop, if it would take too long there.
    """
    products = [node for node in working.producers_first() if node.op in _CHANNELS]
    if not products:
        return
    uses, elements = Uses(working), 0
    folded: Counter[int] = Counter()  # address of shared weights → bytes of new ones made from them
    for node in steadily(products):
        weights = working.constant(node.in_edges[1])
        if weights is not None and node.output_types[0] in _TYPES and _is_channels_last(node):
            affine = _Affine(np.ones(()), np.zeros(()))
            row = _row(node, weights, uses, affine)
            elements += affine.elements
            address = weights.__array_interface__["data"][0]
            few = not folded[address] or folded[address] + weights.nbytes <= MAX_BYTES
            if affine.scales and few and working.may_copy(weights):
                folded[address] += weights.nbytes
                elements += weights.size
                check_inline(elements * _FOLD_NS)
                _fold(row, weights, affine, uses)


def _is_channels_last(node: Node) -> bool:
    return str(node.attrs.get("data_format", b"NHWC"), "ascii", "replace").endswith("C")


def _of_conv(node: Node, weights: Any) -> int:
    return int(weights.shape[-1]) if weights.ndim == (5 if node.op == "Conv3D" else 4) else 0


def _of_depthwise(node: Node, weights: Any) -> int:
    return int(weights.shape[2] * weights.shape[3]) if weights.ndim == 4 else 0


def _of_mat_mul(node: Node, weights: Any) -> int:
    return int(weights.shape[0 if node.attrs["transpose_b"] else 1]) if weights.ndim == 2 else 0


# Returns the number of output channels of a product with these weights; 0 if their shape does not fit.
_CHANNELS: dict[str, Callable[[Node, Any], int]] = {
    "Conv2D": _of_conv,
    "Conv3D": _of_conv,
    "DepthwiseConv2dNative": _of_depthwise,
    "MatMul": _of_mat_mul,
}


def _along_channels(node: Node, weights: Any, factor: Any) -> Any:
    """Return numbers per channel, reshaped so that they can be multiplied with the weights."""
    if node.op == "DepthwiseConv2dNative":
        return factor.reshape(weights.shape[2:])
    return factor[:, None] if node.op == "MatMul" and node.attrs["transpose_b"] else factor


@dataclass(slots=True)
class _Affine:
    """The scaling and shifting found after a product: `x * factor + shift`, with one number per channel each.

    Attributes:
        elements: number of elements computed to find it.
    """

    factor: Any
    shift: Any
    scales: bool = False
    elements: int = 0

    def add(self, value: Any) -> None:
        self.shift = self.shift + value

    def multiply(self, value: Any) -> None:
        self.factor, self.shift, self.scales = self.factor * value, self.shift * value, True


def _row(product: Node, weights: Any, uses: Uses, affine: _Affine) -> list[Node]:
    """Return a product with the nodes after it that scale and shift its channels, and collect these in `affine`."""
    row, channels = [product], _CHANNELS[product.op](product, weights)
    if 0 < channels <= _MAX_CHANNELS:
        with np.errstate(all="ignore"):
            while (node := uses.then(row[-1])) is not None and _take(
                node, row[-1], channels, weights.ndim, affine, uses
            ):
                row.append(node)
                affine.elements += channels
                check_inline(affine.elements * _FOLD_NS)
                go_on()
    return row


def _fold(row: list[Node], weights: Any, affine: _Affine, uses: Uses) -> None:
    product = row[0]
    dtype = product.output_types[0].np

    def folded() -> tuple[Any, Any] | None:
        channels = _CHANNELS[product.op](product, weights)
        factor, shift = (np.broadcast_to(part, channels) for part in (affine.factor, affine.shift))
        with np.errstate(all="ignore"):
            scaled = (weights * _along_channels(product, weights, factor)).astype(dtype)
            shift = shift.astype(dtype)
        # An infinity or NaN in the weights would appear in other elements of the result, or not at all.
        return (scaled, shift) if np.isfinite(scaled).all() and np.isfinite(shift).all() else None

    values = uses.working.remembered(("batch_norm_folding", *(node.id for node in row)), folded)
    if values is not None:
        _replace(row, *values, uses)


def _replace(row: list[Node], weights: Any, shift: Any, uses: Uses) -> None:
    """Give the first node of the chain new weights, and replace the others by a BiasAdd."""
    product, last = row[0], row[-1]
    scaled = uses.join(
        [product], product.op, product.attrs, (product.in_edges[0], uses.constant(product, "/weights", weights))
    )
    bias = uses.constant(last, "/bias", shift)
    attrs = {"T": product.output_types[0], "data_format": b"NHWC"}
    uses.join(row[1:], "BiasAdd", attrs, ((scaled.id, 0), bias))


# Rules for what may follow a product.  Each returns True if the node fits, after adding it to `affine`.


def _take(node: Node, before: Node, channels: int, rank: int, affine: _Affine, uses: Uses) -> bool:
    if node.op in _BATCH_NORMS:
        fits = node.in_edges[0] == (before.id, 0) and uses.gives_one(node)
        return fits and _batch_norm(node, channels, affine, uses.working)
    rule = _RULES.get(node.op)
    if rule is None or node.output_types[0] is not before.output_types[0]:
        return False
    if node.op == "BiasAdd" and not _is_channels_last(node):
        return False
    first = node.in_edges[0] == (before.id, 0)
    value = _per_channel(uses.working, node.in_edges[1 if first else 0], channels, rank)
    return value is not None and rule(affine, value, first)


def _per_channel(working: WorkingGraph, endpoint: Endpoint, channels: int, rank: int) -> Any:
    """Return a constant as one double per channel; None if it is not a constant of that shape."""
    value = working.constant(endpoint)
    if value is None or value.ndim > rank or value.size not in (1, channels):
        return None
    if value.size != 1 and value.shape[-1] != channels:
        return None
    return value.astype(np.float64).reshape(-1)


def _add(affine: _Affine, value: Any, first: bool) -> bool:
    affine.add(value)
    return True


def _subtract(affine: _Affine, value: Any, first: bool) -> bool:
    if first:
        affine.add(-value)
    else:
        affine.multiply(-1.0)
        affine.add(value)
    return True


def _multiply(affine: _Affine, value: Any, first: bool) -> bool:
    affine.multiply(value)
    return True


def _divide(affine: _Affine, value: Any, first: bool) -> bool:
    if first:
        affine.multiply(1 / value)
    return first


_RULES: dict[str, Callable[[_Affine, Any, bool], bool]] = {
    "BiasAdd": _add,
    "Add": _add,
    "AddV2": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "RealDiv": _divide,
}
_BATCH_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})


def _batch_norm(node: Node, channels: int, affine: _Affine, working: WorkingGraph) -> bool:
    if node.attrs["is_training"] or not _is_channels_last(node):
        return False
    vectors = [working.constant(endpoint) for endpoint in node.in_edges[1:5]]
    if any(v is None or v.shape != (channels,) for v in vectors):
        return False
    scale, offset, mean, variance = (v.astype(np.float64) for v in vectors)
    affine.add(-mean)
    affine.multiply(scale / np.sqrt(variance + np.float32(node.attrs["epsilon"])))
    affine.add(offset)
    return True
