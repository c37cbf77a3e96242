"""Who uses what in a `WorkingGraph`, for passes that put one node in the place of several in a row.

Nodes may be joined where nobody else sees what goes between them: it is neither fetched nor fed, nothing waits for
the node that gives it, and it has one consumer, on the same CPU.
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
    """The consumers of each endpoint; what is joined and replaced through it stays known.

    Args:
        working: not to be changed by others meanwhile.
    """

    def __init__(self, working: WorkingGraph) -> None:
        self.working = working
        # Ids of consumers, each as often as it is one: a dict, as a value may have any number of them.
        self._consumers: defaultdict[Endpoint, dict[int, int]] = defaultdict(dict)
        for node in steadily(working.nodes.values()):
            self._note(node)

    def _note(self, consumer: Node) -> None:
        for endpoint in consumer.in_edges:
            consumers = self._consumers[endpoint]
            consumers[consumer.id] = consumers.get(consumer.id, 0) + 1

    def then(self, node: Node) -> Node | None:
        """The node that may be joined with this one, as the only one that uses anything of it."""
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
        """Is output 0 all that is used and fetched of a node?"""
        others = ((node.id, slot) for slot in range(1, node.num_outputs))
        return not any(self._consumers.get(other) or other in self.working.fetched for other in others)

    def join(self, nodes: Sequence[Node], op: str, attrs: Mapping[str, Any], inputs: Sequence[Endpoint]) -> Node:
        """Put one node in the place of several in a row, with the last one's name; it waits for what the first does."""
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
        """A new constant, where `like` is."""
        return (self.working.new_constant(like, suffix, value).id, 0)
