"""The gradient of a while loop: a loop that goes back over its iterations.

The forward loop gets a counter, and a tensor array for each of its values that the backward loop needs, to which every
iteration writes.  The backward loop counts down, reads these arrays, and carries the gradient of each loop variable;
the gradients of loop invariants are summed.  It consists of the same nodes as any loop, so it can be differentiated
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from aexec import ops
from aexec.autodiff.branches import Branch
from aexec.autodiff.loops import Loops, LoopVariable, WhileLoop
from aexec.client.building import constant, control_dependencies
from aexec.framework import dtypes
from aexec.graph.nodes.control_flow import ENTER
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.op_functions import create_node

__all__ = ["BackwardLoop", "OutsideLoops", "Place"]

_BACKWARD = "while_back"


class Place(Protocol):
    """Where gradients are being built: outside all loops, or inside a backward loop."""

    loop: WhileLoop | None

    def seen(self, tensor: Tensor) -> Tensor:
        """The tensor that represents a value of the forward pass there."""

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Context manager: nodes made inside belong to the forward pass."""
        yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Context manager: nodes made inside belong to the backward pass."""
        yield


class OutsideLoops:
    """Outside of loops: values represent themselves; nodes made there do not wait for nodes inside a loop."""

    loop: WhileLoop | None = None

    def seen(self, tensor: Tensor) -> Tensor:
        return tensor

    @contextmanager
    def forward(self) -> Iterator[None]:
        with control_dependencies(None):
            yield

    backward = forward


class _Frame:
    """A frame in which nodes are made: its name, and the number of parallel iterations."""

    def __init__(self, name: str, parallel_iterations: int) -> None:
        self.name = name
        self.parallel_iterations = parallel_iterations

    def enter(self, tensor: Tensor, *, constant: bool = False) -> Tensor:
        """Enter `tensor` of the surrounding frame into this one.  Called where that frame's nodes are made."""
        return ops.enter(
            tensor, frame_name=self.name, is_constant=constant, parallel_iterations=self.parallel_iterations
        )


class _Carried:
    """A loop variable that is being made: `advance` closes its cycle.

    Attributes:
        merged: its value at the beginning of each iteration, and at the end of the last one.
    """

    def __init__(self, entered: Tensor, shape: Any = None) -> None:
        with control_dependencies(None):
            node = create_node("Merge", {"inputs": [entered, entered]}, {})
        if shape is not None:
            node.shapes = (shape, node.shapes[1])
        self._entered = entered
        self.merged = node.output(0)

    def split(self, condition: Tensor) -> None:
        with control_dependencies(None):
            self._last, self._current = ops.switch(self.merged, condition)

    @property
    def value(self) -> Tensor:
        """Its value inside the body."""
        return self._current

    def advance(self, following: Tensor) -> None:
        """Set its value in the next iteration."""
        with control_dependencies(None):
            back = ops.next_iteration(following)
        # Safe: so far only this object knows the node.
        self.merged.node.in_edges = (self._entered.endpoint, back.endpoint)

    def left(self) -> Tensor:
        """Its last value, outside of the loop."""
        with control_dependencies(None):
            made = ops.exit(self._last)
        return made


class _ForwardLoop:
    """The nodes that are added to a loop so that a backward loop can go over its iterations."""

    def __init__(self, loop: WhileLoop, outer: Place) -> None:
        self._outer = outer
        self._condition = loop.condition.output(0)
        # In a branch that is not taken, neither the loop nor the added nodes run.
        first = loop.enters[0]
        self._runs = first.graph.nodes[first.in_edges[0][0]]
        self._frame = _Frame(loop.frame.name, loop.frame.parallel_iterations)
        counter = self.carry(lambda: constant(0))
        with control_dependencies(None):
            self._pivot = ops.identity(counter.value).node
        self.index = counter.value
        with self.inside():
            counter.advance(counter.value + constant(1))
        self.count = counter.left()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Context manager: nodes made inside are in the loop's body."""
        with control_dependencies(None), control_dependencies([self._pivot]):
            yield

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Context manager: nodes made inside are before the loop, and run only if it does."""
        with self._outer.forward(), control_dependencies([self._runs]):
            yield

    def carry(self, initial: Callable[[], Tensor]) -> _Carried:
        with self.outside():
            entered = self._frame.enter(initial())
        made = _Carried(entered)
        made.split(self._condition)
        return made

    def keep(self, tensor: Tensor, branches: list[Branch]) -> tuple[Tensor, Tensor]:
        """Write `tensor`'s value of every iteration to an array; return its handle, and the flow after the last write.

        In iterations in which the tensor's branches are not taken, nothing is written.
        """
        with self.outside():
            handle, flow = ops.tensor_array_v3(0, dtype=tensor.dtype.base, dynamic_size=True, clear_after_read=False)
            inside_handle = self._frame.enter(handle, constant=True)
        carried = self.carry(lambda: flow)
        with self.inside():
            carried.advance(self._written(inside_handle, tensor, carried.value, branches))
        return handle, carried.left()

    def _written(self, handle: Tensor, tensor: Tensor, flow: Tensor, branches: list[Branch]) -> Tensor:
        if not branches:
            return ops.tensor_array_write_v3(handle, self.index, tensor, flow)
        (predicate, branch), *inner = branches
        ways = ops.switch(flow, _tensor(tensor.node, predicate))
        written = self._written(handle, tensor, ways[branch], inner)
        merged: Tensor = ops.merge([written, ways[1 - branch]])[0]
        return merged


def _tensor(node: Node, endpoint: Endpoint) -> Tensor:
    """An endpoint of the node's graph."""
    return Tensor(node.graph.nodes[endpoint[0]], endpoint[1])


class BackwardLoop:
    """The loop that goes back over `loop`: the place where gradients of its body are built."""

    def __init__(self, loop: WhileLoop, loops: Loops, outer: Place) -> None:
        self.loop: WhileLoop | None = loop
        self._of = loop
        self._loops = loops
        self._outer = outer
        self._ahead = _ForwardLoop(loop, outer)
        self._seen: dict[Endpoint, Tensor] = {}
        name = loops.graph.build_state.unique_name(f"{_BACKWARD}_{loop.frame.name.replace('/', '_')}")
        self._frame = _Frame(name, loop.frame.parallel_iterations)
        with outer.backward():
            entered = self._frame.enter(outer.seen(self._ahead.count))
        counter = _Carried(entered)
        with control_dependencies(None), control_dependencies([counter.merged]):
            self._condition: Tensor = ops.loop_cond(ops.greater_equal(counter.merged, constant(1)))
        counter.split(self._condition)
        with control_dependencies(None):
            self._pivot = ops.identity(counter.value).node
        with self.backward():
            self.index = counter.value - constant(1)
            counter.advance(self.index)

    # The interface of a place

    @contextmanager
    def forward(self) -> Iterator[None]:
        with self._ahead.inside():
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        with control_dependencies(None), control_dependencies([self._pivot]):
            yield

    def seen(self, tensor: Tensor) -> Tensor:
        """The value that `tensor` had in the iteration to which the backward loop has come."""
        found = self._seen.get(tensor.endpoint)
        if found is None:
            found = self._seen[tensor.endpoint] = self._look_at(tensor)
        return found

    def _look_at(self, tensor: Tensor) -> Tensor:
        node = tensor.node
        if node.op == "Const":
            with self.backward():
                attrs = {name: node.attrs[name] for name in ("value", "dtype")}
                return create_node("Const", {}, attrs).output(0)
        if node.op in ENTER and any(node is invariant for invariant in self._of.invariants):
            return self.entered(self._outer.seen(_tensor(node, node.in_edges[0])), constant=True)
        return self._read_back(tensor)

    def _read_back(self, tensor: Tensor) -> Tensor:
        branches = self._loops.branches.of(tensor.endpoint)
        handle, flow = self._ahead.keep(tensor, branches)
        handle, flow = (self.entered(self._outer.seen(part), constant=True) for part in (handle, flow))
        # The flow, through which second derivatives flow, must be dead where nothing was written.
        for predicate, branch in branches:
            with self.backward():
                flow = ops.switch(flow, self.seen(_tensor(tensor.node, predicate)))[branch]
        with self.backward():
            read: Tensor = ops.tensor_array_read_v3(handle, self.index, flow, dtype=tensor.dtype.base)
        read.node.shapes = (tensor.static_shape,)
        return read

    # Loop variables and sums

    def entered(self, tensor: Tensor, *, constant: bool = False) -> Tensor:
        """Enter `tensor` of the surrounding place into this loop."""
        with self._outer.backward():
            return self._frame.enter(tensor, constant=constant)

    def carry(self, initial: Tensor, shape: Any = None) -> _Carried:
        made = _Carried(self.entered(initial), shape)
        made.split(self._condition)
        return made

    def zeros_of(self, variable: LoopVariable) -> Tensor:
        """Zeros for the last value of a variable without a gradient."""
        if variable.exit is None:
            with control_dependencies(None):
                variable.exit = ops.exit(variable.switch.output(0)).node
        value = variable.exit.output(0)
        with self._outer.backward():
            made = ops.zeros_like(self._outer.seen(value))
        return made

    def added_up(self, enter: Node, grad: Tensor) -> Tensor:
        """The sum of an invariant's gradient over all iterations."""
        with self._outer.backward():
            value = self._outer.seen(_tensor(enter, enter.in_edges[0]))
            if value.dtype.base is dtypes.resource:
                zeros = ops.fill(ops.variable_shape(value), ops.cast(0, DstT=grad.dtype.base))
            else:
                zeros = ops.zeros_like(value)
        total = self.carry(zeros, grad.static_shape if value.dtype.base is dtypes.resource else None)
        with self.backward():
            total.advance(total.value + grad)
        return total.left()
