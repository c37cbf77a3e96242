"""Takes fused ops, made by converters and optimisers, apart, for libraries that know only the parts.

`_FusedConv2D` with `fused_ops=["BiasAdd", "Relu"]` is a Conv2D, a BiasAdd and a Relu, each applied to the result of the
one before.  Libraries fuse them again, in their own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract.op_registry import global_registry
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.node import Node
from aexec.graph.passes.fusion import FUSED_OPS

__all__ = ["Part", "parts"]

# Name in `fused_ops` → op, number of further inputs, and its attrs by those of the fused node.
_LATER: dict[str, tuple[str, int, Mapping[str, str]]] = {
    "BiasAdd": ("BiasAdd", 1, {}),
    "FusedBatchNorm": ("FusedBatchNormV3", 4, {"epsilon": "epsilon"}),
    "Add": ("AddV2", 1, {}),
    "LeakyRelu": ("LeakyRelu", 0, {"alpha": "leakyrelu_alpha"}),
    **{name: (name, 0, {}) for name in ("Relu", "Relu6", "Elu", "Tanh", "Sigmoid")},
}


@dataclass(frozen=True, slots=True)
class Part:
    """One op of a fused node.

    Attributes:
        inputs: positions among the node's inputs; a part that is not the first takes the previous part's result before
            these.
    """

    op_def: OpDef
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]


def parts(node: Node) -> list[Part] | None:
    """The ops of a fused node, in order; None if it is not a fused op, or has an unknown part."""
    if (
        node.op not in FUSED_OPS
        or node.attrs.get("num_host_args")
        or node.attrs.get("filter_format", b"HWIO") != b"HWIO"
    ):
        return None
    first = FUSED_OPS[node.op]
    made = [_part(node, first.product, {name: name for name in first.attrs}, (0, 1))]
    taken = 2
    for text in node.attrs["fused_ops"]:
        if text.decode() not in _LATER:
            return None
        op, more, attrs = _LATER[text.decode()]
        made.append(_part(node, op, attrs, tuple(range(taken, taken + more))))
        taken += more
    return made if taken == len(node.in_edges) else None


def _part(node: Node, op: str, attrs: Mapping[str, str], inputs: tuple[int, ...]) -> Part:
    op_def = global_registry.lookup(op).op_def
    given = {**op_def.defaults, **{name: node.attrs[source] for name, source in attrs.items()}}
    if "is_training" in given:
        given["is_training"] = False
    given.update({attr.name: node.output_types[0] for attr in op_def.attrs if attr.name in ("T", "U")})
    return Part(op_def, given, inputs)
