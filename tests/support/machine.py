"""A driver of `PropagatorState` for tests: no event loop, one event at a time, invariants checked after each.

It lists what could be done next, and does what the test chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.runtime.interpreter.propagator_state import IterationState, PropagatorState
from aexec.runtime.plans.absent_values import NO_VALUE
from aexec.runtime.plans.plan import Kind, PlanKey, PlanNode
from aexec.runtime.plans.plan_builder import build_plan
from tests.support.programs.graphs import GraphBuilder

register_op("TestAffine(x: int32, y: int32) -> z: int32", "a: int", "b: int", "c: int", "m: int = 1009")
register_op("TestOdd(x: int32) -> odd: bool")
register_op("TestPositive(x: int32) -> positive: bool")


@kernel("TestAffine", cost=0)
def _affine(c: Any) -> Any:
    a, b, const, m = (c.attr(name) for name in ("a", "b", "c", "m"))
    return lambda x, y: np.int32((a * int(x) + b * int(y) + const) % m)


@kernel("TestOdd", cost=0)
def _odd(c: Any) -> Any:
    return lambda x: np.bool_(x % 2 == 1)


@kernel("TestPositive", cost=0)
def _positive(c: Any) -> Any:
    return lambda x: np.bool_(x > 0)


_KERNELS: dict[str, Callable[..., Any]] = {
    "Identity": lambda x: x,
    "LoopCond": lambda x: x,
    "AddV2": lambda x, y: x + y,
    "Less": lambda x, y: np.bool_(x < y),
    "NoOp": lambda: None,
    "ControlTrigger": lambda: None,
    "IdentityN": lambda *xs: xs,
}


def kernel_of(node: Node) -> BuiltKernel:
    """Build a kernel without a session."""
    if node.op == "Const":
        value = node.attrs["value"].array
        return BuiltKernel(lambda: value, False, 0.0)
    if node.op == "TestAffine":
        a, b, c, m = (node.attrs[name] for name in ("a", "b", "c", "m"))
        return BuiltKernel(lambda x, y: np.int32((a * int(x) + b * int(y) + c) % m), False, 0.0)
    if node.op == "TestOdd":
        return BuiltKernel(lambda x: np.bool_(x % 2 == 1), False, 0.0)
    if node.op == "TestPositive":
        return BuiltKernel(lambda x: np.bool_(x > 0), False, 0.0)
    return BuiltKernel(_KERNELS[node.op], False, 0.0)


@dataclass(frozen=True)
class Work:
    """Something that can be done next: run a ready node, or declare a dead one dead."""

    iteration: IterationState
    node: PlanNode
    dead: bool

    def __str__(self) -> str:
        """`name`, in a loop `frame/iteration/name`, with a `-` before it if it is dead."""
        frame = self.iteration.frame.plan.name
        where = f"{frame}/{self.iteration.number}/" if frame else ""
        retval = "=" if self.node.kind == Kind.RETVAL else ""
        return f"{'-' if self.dead else ''}{where}{retval}{self.node.name}"


class Machine:
    """Drives a `PropagatorState` event by event.

    Attributes:
        log: what was done, in order.
        outputs: (frame id, iteration, node name) → outputs of the node, None if it was dead.
    """

    def __init__(
        self,
        graph: GraphBuilder | Graph,
        fetches: Sequence[str] = (),
        feeds: dict[str, Any] | None = None,
        targets: Sequence[str] = (),
    ) -> None:
        graph = graph.graph() if isinstance(graph, GraphBuilder) else graph
        feeds = feeds or {}
        signature = PlanKey(
            tuple(graph.tensor(name).endpoint for name in feeds),
            tuple(graph.tensor(name).endpoint for name in fetches),
            tuple(graph.node(name).id for name in targets),
        )
        self.plan = build_plan(graph, signature, kernel_of)
        self.state = PropagatorState(self.plan)
        self.log: list[str] = []
        self.outputs: dict[tuple[int, int, str], Any] = {}
        self.state.validate()
        self.state.feed([np.asarray(value, graph.tensor(name).dtype.np) for name, value in feeds.items()])
        self._settle()

    def work(self) -> list[Work]:
        found = []
        for iteration in self.state.active:
            found += [Work(iteration, node, False) for node in iteration.ready]
            found += [Work(iteration, node, True) for node in iteration.dying]
        return found

    def __call__(self, *names: str) -> Machine:
        """Do these works in this order; they must be possible."""
        for name in names:
            possible = {str(work): work for work in self.work()}
            assert name in possible, f"{name} cannot be done now, only {sorted(possible)}"
            self.do(possible[name])
        return self

    def do(self, work: Work) -> None:
        iteration, node = work.iteration, work.node
        self.log.append(str(work))
        key = (*iteration.frame_iter, node.name)
        if work.dead:
            iteration.dying.remove(node)
            self._note(node, key, None)
            self.state.node_dead(iteration, node)
        else:
            inputs = iteration.start(node)
            assert all(value is not None for value in inputs if node.kind != Kind.MERGE)
            if node.kind > Kind.ASYNC:
                if node.kind != Kind.RETVAL:
                    self._note(node, key, inputs)
                self.state.control_flow(iteration, node, inputs)
            else:
                out = node.compute(*inputs)
                self._note(node, key, out)
                self.state.node_done(iteration, node, out)
        self._settle()

    def _note(self, node: PlanNode, key: tuple[int, int, str], value: Any) -> None:
        if node.kind != Kind.RETVAL:
            assert key not in self.outputs, f"{key} ran twice"
            self.outputs[key] = value

    def _settle(self) -> None:
        """Settle iterations in which no work is left, as the executor does after draining one."""
        progress = True
        while progress:
            self.state.validate()
            progress = False
            for iteration in list(self.state.active):
                if not iteration.ready and not iteration.dying:
                    self.state.active.remove(iteration)
                    iteration.queued = False
                    self.state.settle(iteration)
                    progress = True

    def drain(self, choose: Callable[[list[Work]], Work] = lambda work: work[-1]) -> Machine:
        """Do everything, in the order that `choose` decides."""
        for _ in range(100_000):
            work = self.work()
            if not work:
                return self
            self.do(choose(work))
        raise AssertionError("no end in sight")

    @property
    def possible(self) -> set[str]:
        return {str(work) for work in self.work()}

    @property
    def results(self) -> list[Any]:
        """Return the fetched values, None for those that have not arrived."""
        return [None if value is NO_VALUE else value.item() for value in self.state.results]


def ints(g: GraphBuilder, *names: str) -> None:
    """Add scalar int32 placeholders."""
    for name in names:
        g.placeholder(name, dtypes.int32, [])
