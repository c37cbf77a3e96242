"""Forwarding in compiled plans: which variable a call writes its output over is known when the plan is written.

    v1 = c1(f0, k1)  # add (AddV2)
    v2 = c2(v1, v1)  # y (Tanh)

A call may write over a value if nothing else can refer to the value's memory:

* A kernel made it that declares so, or asks for forwarding itself.  Such a kernel returns a fresh array or its `out`
  argument, never an input (`OpKernelConstruction.give_new_array`, `forward_inputs`).  So the value is no feed,
  constant, variable or view.
* Only this call reads it, and reads it once.  Fetching it, passing it through an Identity, Switch or Merge, and
  carrying it round a loop count as reads.
* Both are in the same block, so that the value is made anew for each call.  A value that a loop makes once for all
  iterations is excluded.

A loop variable, such as the sum of the gradients of all iterations, is written over from the second iteration on: its
value was made in the iteration before, for this one alone.  The value that enters the loop is not ours.

Shape inference must know that the output has the value's shape and is an array, not a number; if it does not know, the
line looks at large values.  If the interpreter takes over later, it does not need the value: the only consumer is done.
A call that cannot be made inline raises before it writes.  For small values, too, this saves the allocation.  Next to
read: `interpreter/forwarding.py`, for the interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np

from aexec.framework.memory.unshared import fits
from aexec.runtime.compiled.line_costs import LineCosts
from aexec.runtime.compiled.line_layout import LineLayout, calls_nothing
from aexec.runtime.plans.blocks import Block, Item, Loop, Value
from aexec.runtime.plans.inferred_shapes import Dims, fully_known, is_built_in, partial_shape
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["Forwarding", "fitting"]


class Forwarding:
    """Finds the inputs that the calls of a line write their outputs over.

    Args:
        once: the nodes that run in the first iteration of their loop only.
    """

    def __init__(self, layout: LineLayout, costs: LineCosts, once: Container[Item]) -> None:
        self._layout = layout
        self._costs = costs
        self._once = once
        self._carried = {merge: (loop, after) for loop in layout.counters for merge, _, after in loop.merges}
        self._readers: dict[Loop, Counter[str]] = {}

    def out(self, node: PlanNode) -> str:
        """Return the last argument of a call, which says what it writes its output over; "" for a new array."""
        layout = self._layout
        if node in layout.lists:
            return ""
        sources = [layout.of_slot.get((node.frame, node.first + position)) for position in node.forwards]
        shapes = [
            _constant_shape(node, position) if source is None else partial_shape(*source)
            for position, source in zip(node.forwards, sources, strict=True)
        ]
        for source, shape in zip(sources, shapes, strict=True):
            if source is None:
                continue
            later = self._later_iterations(source, node)
            if not later and not self._is_ours(source, node):
                continue
            name = layout.name(source)
            if _has_shape_of_output(shape, shapes):
                return f", out={name} if {later} else None" if later else _written_over(node.compute, name)
            large = [name for name in self._costs.larger(node) if name]
            if large and (shape is None or None in shape):
                test = " or ".join(f"{name}.size > SMALL" for name in large)
                test = f"{later} and ({test})" if later else test
                every = [layout.argument(node.frame, node.first + position) for position in node.forwards]
                return f", out=fitting({', '.join([name, *every])}) if {test} else None"
        return ""

    def _later_iterations(self, value: Value, node: PlanNode) -> str:
        """Return the variable that is not 0 where a call alone has the value of a loop variable; "" if it never has."""
        layout = self._layout
        merge, output = layout.origin(value)
        if output or merge not in self._carried:
            return ""
        loop, after = self._carried[merge]
        made = layout.of_slot.get((after.frame, after.first))
        if made is None or layout.block_of(node) is not loop.body:
            return ""
        source, source_output = layout.origin(made)
        if not _is_fresh(source, source_output) or source in self._once:
            return ""
        if layout.block_of(source) is not loop.body or layout.guard_of(source):
            return ""
        readers = self._readers_in(loop)
        once_each = readers[layout.merges[merge]] == readers[layout.name((source, source_output))] == 1
        return layout.counters[loop] if once_each else ""

    def _readers_in(self, loop: Loop) -> Counter[str]:
        """Return how often each variable is read in a loop: by calls, guards, and the next iteration."""
        if loop not in self._readers:
            counts = Counter(self._layout.name((after, 0)) for _, _, after in loop.merges)
            for block in (loop.cond, loop.body):
                for index in range(len(block.items)):
                    counts.update(self._read_at(block, index))
            self._readers[loop] = counts
        return self._readers[loop]

    def _read_at(self, block: Block, index: int) -> Iterable[str]:
        """Return the variables that an item of a block reads; passing a value on is no read."""
        item, layout = block.items[index], self._layout
        if isinstance(item, Loop) or not (item.kind == Kind.SWITCH or calls_nothing(item)):
            return layout.used_at(block, index)
        predicates = layout.predicates(block.guards[index])
        return [*predicates, layout.inputs(item)[1]] if item.kind == Kind.SWITCH else predicates

    def _is_ours(self, value: Value, node: PlanNode) -> bool:
        """Return whether a call alone has the memory of one of its inputs."""
        source, output = value
        if not _is_fresh(source, output):
            return False
        name = self._layout.name(value)
        made_once = source in self._once and node not in self._once
        if self._layout.uses[name] != 1 or made_once or name in self._layout.listed:
            return False
        return self._layout.block_of(source) is self._layout.block_of(node)


def _constant_shape(node: PlanNode, position: int) -> Dims:
    shape: Dims = node.frame.args[node.first + position].shape
    return shape


def _is_fresh(node: PlanNode, output: int) -> bool:
    """Return whether an output's memory belongs to its consumers alone."""
    return node.gives_new_array and output == 0 and is_built_in(node.op)


def _has_shape_of_output(shape: Dims, shapes: Sequence[Dims]) -> bool:
    """Return whether `shape` is an array's, and all `shapes` broadcast to it."""
    if len(shapes) == 1:
        return bool(shape)
    known = fully_known(shape)
    others = [fully_known(other) for other in shapes]
    if not known or None in others:
        return False
    try:
        return np.broadcast_shapes(*[other for other in others if other is not None]) == known
    except ValueError:
        return False


def fitting(over: Any, *inputs: Any) -> Any:
    """`over`, if it is an array to whose shape all inputs are broadcast; else None."""
    return over if over.ndim and fits(over.shape, inputs, range(len(inputs))) else None


def _written_over(compute: Callable[..., Any], name: str) -> str:
    """The last argument of a call of `compute` that writes over this variable."""
    by_position = isinstance(compute, np.ufunc) and compute not in (np.maximum, np.minimum)
    return f", {name}" if by_position else f", out={name}"  # the former is faster
