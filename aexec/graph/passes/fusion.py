"""Fusion: joins a convolution or product with the bias, residual and activation after it into one node.

The fused kernel applies the operations to each block of the output while it is in the cache, with the same arithmetic.
The node has one of TensorFlow's fused ops (`_FusedConv2D`), the place and name of the last node, and the names of the
original nodes in its debug info.
Next to read: `aexec/kernels/common/fusions.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from aexec.framework import dtypes
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.passes.reading import Reading
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["FUSED_OPS", "fuse"]


@dataclass(frozen=True, slots=True)
class FusedOp:
    """A fused op: its first op, the attrs that both have, and whether a batch norm may follow the first op."""

    product: str
    attrs: tuple[str, ...]
    batch_norm: bool


_WINDOW = ("strides", "padding", "data_format", "dilations")
FUSED_OPS = {
    "_FusedConv2D": FusedOp("Conv2D", (*_WINDOW, "explicit_paddings", "use_cudnn_on_gpu"), True),
    "_FusedDepthwiseConv2dNative": FusedOp("DepthwiseConv2dNative", _WINDOW, True),
    "_FusedConv3D": FusedOp("Conv3D", _WINDOW, False),
    "_FusedMatMul": FusedOp("MatMul", ("transpose_a", "transpose_b"), False),
}
_FUSED_OF = {made.product: op for op, made in FUSED_OPS.items()}
_ACTIVATIONS = frozenset({"Relu", "Relu6", "Elu", "LeakyRelu", "Tanh"})
_AFTER_BATCH_NORM = _ACTIVATIONS - {"Tanh"}
_BATCH_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_ADDS = frozenset({"Add", "AddV2"})


def fuse(working: WorkingGraph) -> None:
    """Join products with the nodes after them."""
    products = [node for node in working.producers_first() if node.op in _FUSED_OF]
    if not products:
        return
    uses, reading = Uses(working), Reading(working)
    for node in steadily(products):
        if _may_fuse(node):
            _Row(node, uses, reading).fuse()


def _may_fuse(node: Node) -> bool:
    if node.output_types[0] is not dtypes.float32 or node.attrs.get("data_format", b"NHWC") not in (b"NHWC", b"NDHWC"):
        return False
    # Some fused ops have no attr for explicit paddings.
    return node.attrs.get("padding") != b"EXPLICIT" or "explicit_paddings" in FUSED_OPS[_FUSED_OF[node.op]].attrs


@dataclass(slots=True)
class _Row:
    """A product, and the nodes after it that can be fused with it."""

    product: Node
    uses: Uses
    reading: Reading
    nodes: list[Node] = field(default_factory=list)
    ops: list[bytes] = field(default_factory=list)
    args: list[Endpoint] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)

    def fuse(self) -> None:
        self.nodes.append(self.product)
        if self._bias():
            self._residual()
            self._activation(_ACTIVATIONS)
        elif FUSED_OPS[_FUSED_OF[self.product.op]].batch_norm and self._batch_norm():
            self._activation(_AFTER_BATCH_NORM)
        else:
            return
        self._join()

    def _next(self) -> tuple[Node, int] | None:
        """Return the node after the last one, and the position of the input that it takes from the last one."""
        last = self.nodes[-1]
        node = self.uses.then(last)
        if node is None or node.output_types[:1] != (dtypes.float32,):
            return None
        if not self.reading.may_wait_for(self.nodes, (e for e in node.in_edges if e[0] != last.id)):
            return None
        return node, node.in_edges.index((last.id, 0))

    def _take(self, node: Node, op: str, *args: Endpoint) -> bool:
        self.nodes.append(node)
        self.ops.append(op.encode())
        self.args += args
        return True

    def _bias(self) -> bool:
        found = self._next()
        if found is None:
            return False
        node, place = found
        if node.op == "BiasAdd" and place == 0 and node.attrs["data_format"] == b"NHWC":
            return self._take(node, "BiasAdd", node.in_edges[1])
        if node.op not in _ADDS:
            return False
        # An Add of one number per channel is a bias too.
        value = self.uses.working.constant(node.in_edges[1 - place])
        channels, rank = self._channels()
        if channels is None:
            return False
        if value is None:
            known = self.uses.working.shape(node.in_edges[1 - place]).dims
            return rank > 1 and known == (channels,) and self._take(node, "BiasAdd", node.in_edges[1 - place])
        if value.ndim > rank or value.shape[-1:] != (channels,):
            return False
        if value.size != channels or value.dtype != dtypes.float32.np:
            return False
        if value.ndim == 1:
            return self._take(node, "BiasAdd", node.in_edges[1 - place])
        return self._take(node, "BiasAdd", self.uses.constant(node, "/bias", value.reshape(-1)))

    def _channels(self) -> tuple[int | None, int]:
        """Return the product's number of channels, or None if unknown, and its rank."""
        shape = self.uses.working.shape((self.product.id, 0))
        return (shape.dims[-1], len(shape.dims)) if shape.dims else (None, 0)

    def _residual(self) -> None:
        """Add a sum with another tensor that seems to have the same shape; if it does not, the kernel broadcasts."""
        found = self._next()
        if found is None or found[0].op not in _ADDS:
            return
        node, place = found
        ours, theirs = (self.uses.working.shape(node.in_edges[k]) for k in (place, 1 - place))
        if ours.dims is not None and ours.dims == theirs.dims:
            self._take(node, "Add", node.in_edges[1 - place])

    def _batch_norm(self) -> bool:
        found = self._next()
        if found is None:
            return False
        node, place = found
        if node.op not in _BATCH_NORMS or place or not self.uses.gives_one(node):
            return False
        if node.attrs["is_training"] or node.attrs["data_format"] != b"NHWC":
            return False
        self.attrs["epsilon"] = node.attrs["epsilon"]
        return self._take(node, "FusedBatchNorm", *node.in_edges[1:5])

    def _activation(self, which: frozenset[str]) -> None:
        found = self._next()
        if found is None or found[0].op not in which:
            return
        node, _ = found
        if node.op == "LeakyRelu":
            self.attrs["leakyrelu_alpha"] = node.attrs["alpha"]
        self._take(node, node.op)

    def _join(self) -> None:
        op, own = _FUSED_OF[self.product.op], self.product.attrs
        attrs = {"T": dtypes.float32, **{name: own[name] for name in FUSED_OPS[op].attrs if name in own}, **self.attrs}
        attrs |= {"fused_ops": self.ops, "num_args": len(self.args)}
        if op == "_FusedConv2D":
            attrs["TArgs"] = [dtypes.float32] * len(self.args)
        self.uses.join(self.nodes, op, attrs, (*self.product.in_edges, *self.args))
