"""Nodes that stand for regions of a plan's graph, both delegated and captured ones.

Next to read: `aexec/graph/partitioning/regions.py`; `planning/delegated.py` and `planning/captured.py`, which use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.graph.nodes.node import Endpoint, GraphView, Node
from aexec.graph.partitioning.regions import Region, collapse
from aexec.graph.passes import WorkingGraph
from aexec.ops.families import FAMILIES
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.plans.plan import PlanKey

__all__ = ["RegionNode", "may_wait", "put_regions"]

_WAITING = frozenset(" ".join(FAMILIES[family] for family in ("control_flow", "data_flow", "io")).split())
# Ops that may wait though their definitions say they have no state: those with a reference to a queue, a barrier or a
# reader, and those that join batches.
_WAITING_BY_REF = frozenset(" ".join(FAMILIES[family] for family in ("data_flow", "io")).split())
_BATCHING = frozenset({"Batch", "BatchFunction", "Unbatch", "UnbatchGrad"})


class RegionNode(Node):
    """The node that stands for a region; traces show the region's members in place of inputs."""

    __slots__ = ("members",)

    members: tuple[str, ...]

    def rewired(self, graph: GraphView, inputs: tuple[Endpoint, ...], control_inputs: tuple[int, ...]) -> RegionNode:
        other = super().rewired(graph, inputs, control_inputs)
        assert isinstance(other, RegionNode)
        other.members = self.members
        return other

    def traced_inputs(self) -> list[str]:
        """The names and ops of the region's members."""
        return list(self.members)


def put_regions(
    working: WorkingGraph, signature: PlanKey, regions: Iterable[tuple[Region, str]], op: str
) -> tuple[PlanKey, list[RegionNode]]:
    """Replace regions by nodes of one op.

    Args:
        regions: each with the suffix of its node's name.

    Returns:
        The changed signature, and the nodes.
    """
    nodes = []
    moved: dict[Endpoint, Endpoint] = {}
    stands_for: dict[int, int] = {}
    for region, suffix in regions:
        node = _region_node(working, region, suffix, op, moved, stands_for)
        moved.update({endpoint: (node.id, k) for k, endpoint in enumerate(region.outputs)})
        stands_for.update(dict.fromkeys((member.id for member in region.nodes), node.id))
        collapse(working, region, node)
        nodes.append(node)
    fetches = tuple(moved.get(endpoint, endpoint) for endpoint in signature.fetches)
    targets = tuple(dict.fromkeys(stands_for.get(i, i) for i in signature.targets))
    working.fetched = frozenset(fetches)
    working.roots = [*(i for i, _ in fetches), *targets]
    working.pinned = {*working.roots, *(i for i, _ in working.fed)}
    return replace(signature, fetches=fetches, targets=targets), nodes


def may_wait(node: Node) -> bool:
    """True if a node's kernel may wait: an op with state of certain families, a call of functions, a user's op."""
    op_def = node.op_def
    if not is_built_in(node.op) or node.op in _BATCHING:
        return True
    if op_def.is_stateful:
        return node.op in _WAITING
    return node.op in _WAITING_BY_REF and any(arg.is_ref for arg in op_def.inputs)


@cache
def _op_def(op: str) -> Any:
    builder = OpDefBuilder(op).attr("Tin: list(type)").attr("Tout: list(type)")
    return builder.input("args: Tin").output("results: Tout").finalize()


def _region_node(
    working: WorkingGraph,
    region: Region,
    suffix: str,
    op: str,
    moved: Mapping[Endpoint, Endpoint],
    stands_for: Mapping[int, int],
) -> RegionNode:
    types = region.input_types, region.output_types
    node_id, name = working.new_node(region.nodes[-1], suffix)
    node = RegionNode(
        working,
        node_id,
        name,
        _op_def(op),
        {"Tin": list(types[0]), "Tout": list(types[1])},
        inputs=tuple([moved.get(endpoint, endpoint) for endpoint in region.inputs]),
        control_inputs=tuple(dict.fromkeys(stands_for.get(i, i) for i in region.control_inputs)),
        types=types,
    )
    node.shapes = region.output_shapes
    node.members = tuple([f"{member.name} ({member.op})" for member in region.nodes])
    return node
