"""Taking over: the interpreter's state, made out of where a compiled plan's line is and what its variables hold.

Next to read: `propagator_state.py` for that state, `compiled_plan.py` for the line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec.runtime.blocks import Block, Item, Loop
from aexec.runtime.line_writer import LineWriter
from aexec.runtime.plan import Kind, PlanNode
from aexec.runtime.propagator_state import FrameState, IterationState, PropagatorState

__all__ = ["TakeOver"]

# A count that nothing brings down to 0: of a node that is done, to which a Switch may still lead that is not.
_NEVER = 1 << 30


class TakeOver:
    """Makes the interpreter's state out of a line's position and variables."""

    def __init__(self, writer: LineWriter, state: PropagatorState, variables: dict[str, Any]) -> None:
        self.writer = writer
        self.state = state
        self.variables = variables

    def at(self, node: PlanNode, done: bool) -> IterationState:
        """The state with the line at a node's call, before or behind it; returns the iteration that it is in."""
        blocks = list(self.writer.around(node))
        block, index = blocks[0]
        blocks[0] = (block, index + done)
        iteration = self.state.root.iterations[0]
        root, count = blocks.pop()
        finished = root.items[:count]
        self._fill(iteration, [*self.writer.plan.args, *_nodes(finished)])
        while blocks:
            inner, count = blocks.pop()
            iteration = self._enter(iteration, inner, count)
        self.state.active[:] = []
        frame: FrameState | None = iteration.frame
        while frame is not None:
            for live in frame.iterations.values():
                live.queued = False
                self.state.activate(live)
            frame = None if frame.parent is None else frame.parent.frame
        return iteration

    def _enter(self, parent: IterationState, block: Block, count: int) -> IterationState:
        """The iteration of a loop that the line is in."""
        loop, _ = self.writer.owner[block]
        in_body = block is loop.body
        number = self.variables[self.writer.counters[loop]]
        for enter in loop.enters:
            _withdraw(parent, enter)
        frame = FrameState(self.state, loop.frame, parent)
        parent.children[loop.frame.name] = frame
        frame.pending_enters = 0
        frame.newest = number
        iteration = IterationState(self.state, frame, number, loop.frame)
        frame.iterations = {number: iteration}
        constants = [enter for enter in loop.enters if enter.is_constant_enter]
        frame.invariants = [(enter, self.writer.value((enter, 0), self.variables)) for enter in constants]
        done = [merge for merge, _, _ in loop.merges]
        done += _nodes([*loop.cond.items, *loop.body.items[:count]] if in_body else loop.cond.items[:count])
        if in_body:
            frame.dead_exits = list(loop.exits)
            done += [*loop.switches, *loop.exits]
        self._fill(iteration, [*constants, *done])
        return iteration

    def _fill(self, iteration: IterationState, done: list[PlanNode]) -> None:
        """Deliver what these nodes gave to those that are still to run."""
        finished = set(done)
        args, pending = iteration.args, iteration.pending
        for node in done:
            if node.kind == Kind.EXIT and node.frame is iteration.frame.plan:
                continue  # dead
            if node.kind == Kind.ENTER and node.child is not iteration.frame.plan:
                continue  # of a loop that is over
            for output, edges in enumerate(node.slot_edges):
                if node.kind == Kind.SWITCH and output == 0:
                    continue
                for consumer, index, slot in edges:
                    if consumer not in finished:
                        args[slot] = self.writer.value((node, output), self.variables)
                        pending[index] -= 1
            for consumer, index in node.controls:
                if consumer not in finished:
                    pending[index] -= 1
        frame = iteration.frame.plan
        iteration.ready[:] = [
            node for node in reversed(frame.nodes) if not pending[node.index] and node not in finished
        ]
        for node in done:
            if node.frame is frame and node.kind != Kind.ARG:
                pending[node.index] = 0
        for node in frame.nodes:
            if node.kind == Kind.SWITCH and node not in finished:
                for consumer, index in node.controls:
                    if consumer in finished:
                        pending[index] = _NEVER
        if self.state.root.iterations.get(0) is iteration:
            self._take_results(iteration, finished)

    def _take_results(self, iteration: IterationState, finished: set[PlanNode]) -> None:
        for node in finished:
            if node.kind == Kind.RETVAL:
                self.state.results[node.position] = self.writer.value((node, 0), self.variables)


def _withdraw(iteration: IterationState, node: PlanNode) -> None:
    """The node has run."""
    if node in iteration.ready:
        iteration.ready.remove(node)
    iteration.args[node.first : node.last] = [None] * (node.last - node.first)


def _nodes(items: Iterable[Item]) -> list[PlanNode]:
    """Nodes that are done with these items, as their own frame sees them."""
    found: list[PlanNode] = []
    for item in items:
        if isinstance(item, Loop):
            found += [*item.enters, *item.exits]
        else:
            found.append(item)
    return found
