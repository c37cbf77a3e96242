"""The consumers of values in a `WorkingGraph`, for passes that replace a chain of nodes by one node.

Two nodes may be joined if the value between them is not visible elsewhere: it is neither fetched nor fed, no node waits
for its producer, and it has one consumer, on the same CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Derivation, Endpoint, Node
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["Uses"]


class Uses:
    """The consumers of each endpoint, kept up to date by `join` and `constant`.

    Args:
        working: the graph, which nothing else may change while this is in use.
    """

    def __init__(self, working: WorkingGraph) -> None:
        self.working = working
        # Endpoint → id of a consumer → number of inputs that use it; a dict, as a value may have very many consumers.
        self._consumers: defaultdict[Endpoint, dict[int, int]] = defaultdict(dict)
        for node in steadily(working.nodes.values()):
            self._note(node)

    def _note(self, consumer: Node) -> None:
        for endpoint in consumer.in_edges:
            consumers = self._consumers[endpoint]
            consumers[consumer.id] = consumers.get(consumer.id, 0) + 1

    def then(self, node: Node) -> Node | None:
        """Return the only consumer of a node, if both may be joined; else None."""
        working, endpoint = self.working, (node.id, 0)
        if node.id in working.pinned or node.id in working.waited_for() or endpoint in working.fed:
            return None
        if not self.gives_one(node):
            return None
        ids = self._consumers.get(endpoint, {})
        if len(ids) != 1 or sum(ids.values()) != 1:
            return None
        consumer = working.nodes[next(iter(ids))]
        if consumer.control_edges or not working.on_one_cpu((node, consumer)):
            return None
        return consumer

    def gives_one(self, node: Node) -> bool:
        """True if no output but output 0 is used or fetched."""
        others = ((node.id, slot) for slot in range(1, node.num_outputs))
        return not any(self._consumers.get(other) or other in self.working.fetched for other in others)

    def join(self, nodes: Sequence[Node], op: str, attrs: Mapping[str, Any], inputs: Sequence[Endpoint]) -> Node:
        """Replace a chain of nodes by one with the last one's name and the first one's control inputs."""
        working, last = self.working, nodes[-1]
        op_def = op_registry.global_registry.lookup(op).op_def
        made = Node(
            working,
            last.id,
            last.name,
            op_def,
            {**op_def.defaults, **attrs},
            inputs=tuple(inputs),
            control_inputs=nodes[0].control_edges,
            device=last.device,
            site=last.site,
        )
        made.shapes = None if last.shapes is None else last.shapes[:1]
        made.derived_from = Derivation.of(nodes) if len(nodes) > 1 else last.derived_from
        for node in nodes:
            for endpoint in node.in_edges:
                self._consumers[endpoint].pop(node.id, None)
            if node is not last:
                working.remove(node.id)
        self._note(made)
        working.substitute(made)
        return made

    def constant(self, like: Node, suffix: str, value: Any) -> Endpoint:
        """Add a constant on the device of `like`; return its endpoint."""
        return (self.working.new_constant(like, suffix, value).id, 0)
