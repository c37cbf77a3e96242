"""Taking over: makes a snapshot for the interpreter from the position and the variables of a compiled plan's line.

Next to read: `interpreter/snapshot.py` for the snapshot, `compiled_plan.py` for the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.runtime.compiled.line_layout import GONE, LineLayout, gives_index
from aexec.runtime.interpreter.snapshot import IterationSnapshot, NodeOutcome, Snapshot
from aexec.runtime.plans.blocks import Block, Loop
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["TakeOver"]


class TakeOver:
    """Makes a snapshot out of a line's position and variables."""

    def __init__(self, layout: LineLayout, variables: dict[str, Any]) -> None:
        self.layout = layout
        self.variables = variables

    def at(self, node: PlanNode, done: bool) -> Snapshot:
        """The snapshot with the line before a node's call, or behind it if `done`."""
        blocks = list(self.layout.around(node))
        block, index = blocks[0]
        blocks[0] = (block, index + done)
        blocks.reverse()
        loops = [self.layout.owner[inner][0] for inner, _ in blocks[1:]]
        (root, count), *inner = blocks
        feeds = [self._outcome(feed, live=True) for feed in self.layout.plan.args]
        outcomes = [*feeds, *self._outcomes(root, count, loops[:1])]
        snapshot = [IterationSnapshot(self.layout.plan.root, 0, outcomes)]
        for depth, (block, count) in enumerate(inner):
            snapshot.append(self._iteration(loops[depth], block, count, loops[depth + 1 : depth + 2]))
        return snapshot

    def _iteration(self, loop: Loop, block: Block, count: int, entered: Sequence[Loop]) -> IterationSnapshot:
        """The iteration of a loop that the line is in."""
        outcomes = [self._outcome(enter, live=True) for enter in loop.enters if enter.is_constant_enter]
        outcomes += [self._outcome(merge, live=True) for merge, _, _ in loop.merges]
        if block is loop.body:
            outcomes += self._outcomes(loop.cond, len(loop.cond.items))
        outcomes += self._outcomes(block, count, entered)
        return IterationSnapshot(loop.frame, self.variables[self.layout.counters[loop]], outcomes)

    def _outcomes(self, block: Block, count: int, entered: Sequence[Loop] = ()) -> list[NodeOutcome]:
        """The outcomes of a block's first `count` items, which have ended, and of the Enters of the loop in it."""
        done = list(zip(block.items[:count], block.guards, strict=False))
        loops = [*(item for item, _ in done if isinstance(item, Loop)), *entered]
        enters = dict.fromkeys(enter for loop in loops for enter in loop.enters)
        found = [NodeOutcome(enter, ()) for enter in enters]
        for item, guard in done:
            live = self.layout.holds(guard, self.variables)
            if isinstance(item, Loop):
                found += [self._outcome(node, live=live) for node in item.exits]
            elif item not in enters:
                found.append(self._outcome(item, live=live))
        return found

    def _outcome(self, node: PlanNode, *, live: bool | None) -> NodeOutcome:
        """Return the outcome of a node.

        Args:
            live: whether it was alive; None if that does not matter any more.
        """
        if live is False or (live is None and node.kind == Kind.RETVAL):
            return NodeOutcome(node, None)
        if node.kind == Kind.SWITCH:
            return NodeOutcome(node, self._sides(node))
        count = 1 if node.kind == Kind.RETVAL else node.num_outputs
        return NodeOutcome(node, [self._value(node, output) for output in range(count)])

    def _sides(self, switch: PlanNode) -> tuple[Any, Any]:
        data, predicate = (self.layout.look_up(switch.frame, switch.first + i, self.variables) for i in (0, 1))
        if predicate is GONE:
            return GONE, GONE
        return (None, data) if predicate else (data, None)

    def _value(self, node: PlanNode, output: int) -> Any:
        if node.kind == Kind.MERGE and output == 1 and not gives_index(node):
            return GONE
        return self.layout.value((node, output), self.variables)
