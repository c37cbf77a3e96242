"""Taking over: the interpreter's state, made out of where a compiled plan's line is and what its variables hold.

Next to read: `interpreter/propagator_state.py` for that state, `compiled_plan.py` for the line.
"""

from __future__ import annotations

from typing import Any

from aexec.runtime.compiled.line_layout import GONE, LineLayout, gives_index
from aexec.runtime.interpreter.propagator_state import FrameState, IterationState, PropagatorState
from aexec.runtime.plans.blocks import Block, Loop
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["TakeOver"]


class TakeOver:
    """Makes the interpreter's state out of a line's position and variables."""

    def __init__(self, layout: LineLayout, state: PropagatorState, variables: dict[str, Any]) -> None:
        self.layout = layout
        self.state = state
        self.variables = variables

    def at(self, node: PlanNode, done: bool) -> IterationState:
        """The state with the line at a node's call, before or behind it; returns the iteration that it is in."""
        blocks = list(self.layout.around(node))
        block, index = blocks[0]
        blocks[0] = (block, index + done)
        iteration = self.state.root.iterations[0]
        root, count = blocks.pop()
        finished = {*self.layout.plan.args}
        for feed in self.layout.plan.args:
            self._deliver(iteration, feed, live=True)
        self._finish(iteration, root, count, finished)
        for inner, count in reversed(blocks):
            self._settle(iteration, finished)
            iteration, finished = self._enter(iteration, inner, count)
        self._settle(iteration, finished)
        self.state.activate_all()
        return iteration

    def _enter(self, parent: IterationState, block: Block, count: int) -> tuple[IterationState, set[PlanNode]]:
        """The iteration of a loop that the line is in, and its nodes that are done."""
        loop, _ = self.layout.owner[block]
        number = self.variables[self.layout.counters[loop]]
        self._remove(parent, set(loop.enters))
        frame = FrameState(self.state, loop.frame, parent)
        parent.children[loop.frame.name] = frame
        frame.pending_enters = 0
        frame.newest = number
        iteration = IterationState(self.state, frame, number, loop.frame)
        frame.iterations = {number: iteration}
        for enter in loop.enters:
            if enter.is_constant_enter:
                frame.invariants.append((enter, self.layout.value((enter, 0), self.variables)))
                self._deliver(iteration, enter, live=True)
        finished = set()
        for merge, _, _ in loop.merges:
            finished.add(merge)
            self._deliver(iteration, merge, live=True)
        if block is loop.body:
            self._finish(iteration, loop.cond, len(loop.cond.items), finished)
        self._finish(iteration, block, count, finished)
        return iteration, finished

    def _finish(self, iteration: IterationState, block: Block, count: int, finished: set[PlanNode]) -> None:
        """The first items of a block are done: what they gave travels on."""
        done = list(zip(block.items[:count], block.guards, strict=False))
        entered = {enter for item, _ in done if isinstance(item, Loop) for enter in item.enters}
        for item, guard in done:
            live = self.layout.holds(guard, self.variables)
            if isinstance(item, Loop):
                finished.update(item.enters)
                for node in item.enters:
                    iteration.signal_followers(node)
                for node in item.exits:
                    self._deliver(iteration, node, live=live)
            elif item not in entered:
                finished.add(item)
                self._deliver(iteration, item, live=live)

    def _deliver(self, iteration: IterationState, node: PlanNode, *, live: bool | None) -> None:
        """What a node gave goes to all who wait for it, also to those that are done themselves; `_settle` sees to them.

        Args:
            live: None if it does not matter any more.
        """
        value = self._value
        if live is False:
            if node.kind == Kind.ENTER:
                self.state.node_dead(iteration, node)
            elif node.kind == Kind.RETVAL:
                iteration.signal_followers(node)
            else:
                iteration.propagate_dead(node)
        elif node.kind == Kind.RETVAL:
            if live:
                self.state.results[node.position] = value(node, 0)
            iteration.signal_followers(node)
        elif node.kind == Kind.ENTER and node.frame is iteration.frame.plan:
            self.state.child(iteration, node).enter(node, value(node, 0))
            iteration.signal_followers(node)
        elif node.kind == Kind.SWITCH:
            data, predicate = (self.layout.look_up(node.frame, node.first + i, self.variables) for i in (0, 1))
            if predicate is GONE:
                outs = (GONE, GONE)
            else:
                outs = (None, data) if predicate else (data, None)
            iteration.propagate_all(node, outs)
        else:
            iteration.propagate_all(node, [value(node, output) for output in range(node.num_outputs)])

    def _value(self, node: PlanNode, output: int) -> Any:
        if node.kind == Kind.MERGE and output == 1 and not gives_index(node):
            return GONE
        return self.layout.value((node, output), self.variables)

    @staticmethod
    def _settle(iteration: IterationState, finished: set[PlanNode]) -> None:
        """These nodes are done: they do not run again, whatever reached them."""
        TakeOver._remove(iteration, finished)
        for node in finished:
            if node.kind != Kind.ARG:
                iteration.pending[node.index] = 0

    @staticmethod
    def _remove(iteration: IterationState, finished: set[PlanNode]) -> None:
        iteration.ready[:] = [node for node in iteration.ready if node not in finished]
        iteration.dying[:] = [node for node in iteration.dying if node not in finished]
        for node in finished:
            iteration.args[node.first : node.last] = [None] * (node.last - node.first)
