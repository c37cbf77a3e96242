"""Control-flow analysis: finds the loop frame that each node of a graph runs in.

`Enter` starts the child frame that its `frame_name` names, `Exit` returns to the parent, and every other node is in the
frame of its inputs.  The executor (see `aexec/runtime/plans/plan.py`) and rewrites use the result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Node

__all__ = ["ENTER", "EXECUTOR_OPS", "EXIT", "MERGE", "NEXT_ITERATION", "SWITCH", "FrameInfo", "Frames", "analyze"]

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
MERGE = frozenset({"Merge", "RefMerge"})
NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
SWITCH = frozenset({"Switch", "RefSwitch"})
# The executor runs these itself; they have no kernels.
EXECUTOR_OPS = SWITCH | MERGE | ENTER | EXIT | NEXT_ITERATION


@dataclass(slots=True)
class FrameInfo:
    """A loop frame of a graph.

    Attributes:
        name: `frame_name` of its Enter nodes; "" for the root frame.
        parent: the frame that the inputs of its Enter nodes are in; None for the root.
        parallel_iterations: most iterations that run at once.
        loop_cond: name of its LoopCond, or None.
    """

    name: str
    parent: FrameInfo | None
    parallel_iterations: int = 1
    loop_cond: str | None = None


@dataclass(frozen=True, slots=True)
class Frames:
    """Result of the analysis.

    Attributes:
        root: the root frame.
        of: node id → the frame it runs in.
        started_by: id of an Enter node → the frame it starts.
    """

    root: FrameInfo
    of: dict[int, FrameInfo]
    started_by: dict[int, FrameInfo]

    def of_outputs(self, node: Node) -> FrameInfo:
        """Return the frame in which a node's outputs are consumed: the root for nodes not analysed (fed tensors)."""
        frame = self.started_by.get(node.id) or self.of.get(node.id, self.root)
        return frame.parent if node.op in EXIT and frame.parent is not None else frame


def analyze(
    nodes: Iterable[Node], producers: Callable[[Node], Iterable[Node]], fed: Container[int] = frozenset()
) -> Frames:
    """Find the frame of every node.

    Args:
        nodes: the nodes of the (pruned) graph.
        producers: returns those of the nodes from which a node has a data or control edge.
        fed: ids of nodes that have a fed input; feeds come in the root frame.

    Raises:
        InvalidArgumentError: a node has inputs from different frames, a frame has an empty name, two parents or two
            LoopConds, or an Exit or NextIteration is in the root frame.
    """
    kept = {node.id: node for node in nodes}
    consumers: dict[int, list[Node]] = {node_id: [] for node_id in kept}
    roots: list[Node] = []
    for node in steadily(kept.values()):
        sources = list(producers(node))
        for source in sources:
            consumers[source.id].append(node)
        if not sources or node.id in fed:
            roots.append(node)
    walk = _Walk()
    frames = {node.id: walk.root for node in roots}
    ready = roots
    for node in steadily(ready):
        frame = walk.frame_of_outputs(node, frames[node.id])
        for consumer in consumers[node.id]:
            known = frames.get(consumer.id)
            if known is None:
                frames[consumer.id] = frame
                ready.append(consumer)
                _note_loop_cond(consumer, frame)
            elif known is not frame:
                other = next((s for s in producers(consumer) if s is not node and s.id in frames), None)
                other_text = "A fed input" if other is None else f"The input {{{{node {other.name}}}}}"
                raise errors.InvalidArgumentError(
                    f"{{{{node {consumer.name}}}}} has inputs from different frames. "
                    f"The input {{{{node {node.name}}}}} is in frame '{frame.name}'. "
                    f"{other_text} is in frame '{known.name}'.",
                    node=consumer.name,
                    op=consumer.op,
                )
    return Frames(walk.root, frames, walk.children)


class _Walk:
    """The frames found so far, by name: a name means the same frame everywhere in a graph."""

    def __init__(self) -> None:
        self.root = FrameInfo("", None)
        self.by_name: dict[str, FrameInfo] = {}
        self.children: dict[int, FrameInfo] = {}

    def frame_of_outputs(self, node: Node, frame: FrameInfo) -> FrameInfo:
        """Return the frame of a node's consumers, given the node's own frame."""
        if node.op in ENTER:
            child = self.children[node.id] = self._child(node, frame)
            return child
        if frame.parent is None and (node.op in EXIT or node.op in NEXT_ITERATION):
            raise errors.InvalidArgumentError(
                f"The {node.op} {{{{node {node.name}}}}} is not inside a frame.", node=node.name, op=node.op
            )
        if node.op in EXIT and frame.parent is not None:
            return frame.parent
        return frame

    def _child(self, node: Node, frame: FrameInfo) -> FrameInfo:
        name = str(node.attrs["frame_name"], "utf-8", "replace")
        if not name:
            raise errors.InvalidArgumentError(
                f"The Enter {{{{node {node.name}}}}} must have a frame name.", node=node.name, op=node.op
            )
        child = self.by_name.get(name)
        if child is None:
            child = self.by_name[name] = FrameInfo(name, frame, int(node.attrs["parallel_iterations"]))
        elif child.parent is not frame:
            parent = child.parent.name if child.parent else ""
            raise errors.InvalidArgumentError(
                f"{{{{node {node.name}}}}} enters frame '{name}' from frame '{frame.name}', "
                f"but that frame already has the parent '{parent}'.",
                node=node.name,
                op=node.op,
            )
        return child


def _note_loop_cond(node: Node, frame: FrameInfo) -> None:
    if node.op != "LoopCond":
        return
    if frame.loop_cond is not None and "LoopCounter" not in node.name and "LoopCounter" not in frame.loop_cond:
        raise errors.InvalidArgumentError(
            f"A while loop has more than one LoopCond node: '{node.name}' and '{frame.loop_cond}'",
            node=node.name,
            op=node.op,
        )
    frame.loop_cond = node.name
