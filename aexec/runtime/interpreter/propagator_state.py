"""The propagator state: what one execution of a plan changes, as a synchronous state machine.

It takes events (a value entered, a node is done, a node failed, cancel) and keeps
what is ready to run; it never waits and knows nothing of asyncio, so it can be
tested by hand.  `execution.py` is the driver that runs what this class says is ready.

The semantics are those of TensorFlow's tagged-token executor (SEMANTICS: executor):
a unit of work is (node, frame, iteration); an output may be *dead*, and deadness
travels along every edge until a Merge or the end of a frame stops it.

No other code writes to it, except `NodeRunner.run_slice` and `NodeRunner._run_transfer`, which save a call per node.

Invariants:

* a node in `IterationState.ready` has pending count 0 and has not started;
* an iteration that may have become complete is in `PropagatorState.active`, where the
  driver drains it and then calls `settle`;
* `pending` of an ordinary node counts inputs and control inputs still to come, and nodes that it follows; of a
  Merge, bit 0 says "no live value yet" and the bits above count control inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aexec.framework import errors
from aexec.framework.types import frame_id_of
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter.snapshot import NodeOutcome, Snapshot
from aexec.runtime.plans.absent_values import NO_VALUE, UNFED, OnResult
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.node_activity import WaitingNode
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanNode

if TYPE_CHECKING:
    from aexec.framework.kernel_contract.op_kernel import OpKernelContext

__all__ = ["ROOT_FRAME_ID", "FrameState", "IterationState", "PropagatorState"]

ROOT_FRAME_ID = 0
_NONE_UNFED: frozenset[int] = frozenset()


class IterationState:
    """One iteration of one frame: counts, argument slots, and ready nodes.

    Attributes:
        pending: pending count of each node of the frame.
        args: argument slots of all nodes; a node's are emptied when it starts.
        ready: live nodes to run.
        dying: dead nodes whose deadness has still to travel on.
        dead: indices of ordinary nodes that have a dead input.
        dead_data: Merge index → number of dead data inputs.
        in_flight: nodes started and not done (offloaded or awaited).
        children: child frames that were entered from here, by name.
        context: the `OpKernelContext` of kernels that ask for one; the driver makes it for the first of them.
        queued: True while it is in `PropagatorState.active`.
    """

    __slots__ = (
        "_frame_iter",
        "args",
        "children",
        "context",
        "dead",
        "dead_data",
        "dying",
        "frame",
        "in_flight",
        "number",
        "pending",
        "propagator",
        "queued",
        "ready",
    )

    def __init__(self, propagator: PropagatorState, frame: FrameState, number: int, plan: FramePlan) -> None:
        self.propagator = propagator
        self.frame = frame
        self.number = number
        self.pending = plan.pending.copy()
        self.args = plan.args.copy()
        self.ready: list[PlanNode] = propagator.make_ready(plan.roots)
        self.dying: list[PlanNode] = []
        self.dead: set[int] | None = None
        self.dead_data: dict[int, int] | None = None
        self.in_flight = 0
        self.context: OpKernelContext | None = None
        self.children: dict[str, FrameState] = {}
        self.queued = False
        self._frame_iter: tuple[int, int] | None = None

    @property
    def frame_iter(self) -> tuple[int, int]:
        """(frame id, iteration), the same in every process that runs the graph."""
        known = self._frame_iter
        if known is None:
            known = self._frame_iter = (self.frame.id, self.number)
        return known

    # Live values

    def propagate(self, node: PlanNode, out: Any) -> None:
        """Deliver the only output of `node` to this iteration's nodes."""
        args, pending = self.args, self.pending
        for consumer, index, slot in node.edges:
            args[slot] = out
            left = pending[index] - 1
            pending[index] = left
            if not left:
                if self.dead is None:
                    self.ready.append(consumer)
                else:
                    self.became_ready(consumer, index)
        if node.has_tail:
            self.propagate_tail(node, out)

    def propagate_tail(self, node: PlanNode, out: Any) -> None:
        """The second half of `propagate`: edges to Merge nodes, and control edges."""
        for output, consumer, index, position in node.merge_edges:
            if output == 0:
                self._arrive_at_merge(consumer, index, position, out)
        self._signal_controls(node)

    def take(self, node: PlanNode) -> list[Any]:
        """Take the arguments of a node that starts out of its slots."""
        first, last = node.first, node.last
        inputs = self.args[first:last]
        self.args[first:last] = [None] * (last - first)
        return inputs

    def start(self, node: PlanNode) -> list[Any]:
        """Remove a node from `ready`, because it starts; return its arguments."""
        self.ready.remove(node)
        return self.take(node)

    def put_back(self, node: PlanNode, inputs: Sequence[Any]) -> None:
        """Make a node ready again that was started and has not run, with its arguments."""
        self.args[node.first : node.last] = inputs
        self.ready.append(node)

    def propagate_all(self, node: PlanNode, outs: Sequence[Any]) -> None:
        """Deliver several outputs, None for a dead one; then the control edges, which are live."""
        args, pending = self.args, self.pending
        for output, out in enumerate(outs):
            if out is None:
                self._kill_slot(node, output)
                continue
            for consumer, index, slot in node.slot_edges[output]:
                args[slot] = out
                left = pending[index] - 1
                pending[index] = left
                if not left:
                    self.became_ready(consumer, index)
        if node.has_tail:
            for output, consumer, index, position in node.merge_edges:
                if outs[output] is not None:
                    self._arrive_at_merge(consumer, index, position, outs[output])
            self._signal_controls(node)

    def became_ready(self, consumer: PlanNode, index: int) -> None:
        """Handle the arrival of an ordinary node's last input: the node is ready, or dead."""
        if self.dead is not None and index in self.dead and not consumer.never_dead:
            self.dying.append(consumer)
        else:
            self.ready.append(consumer)

    def _signal_controls(self, node: PlanNode) -> None:
        pending = self.pending
        for consumer, index in node.controls:
            left = pending[index] - 1
            pending[index] = left
            if not left:
                self.became_ready(consumer, index)
        for consumer, index in node.merge_controls:
            self._control_reached_merge(consumer, index)
        if node.followers and node.kind != Kind.ENTER:  # whose values go to another iteration
            self.signal_followers(node)

    def signal_followers(self, node: PlanNode) -> None:
        """Count down the nodes that follow a node which has ended, dead or alive."""
        for follower, index in node.followers:
            self.pending[index] -= 1
            if not self.pending[index]:
                self.became_ready(follower, index)

    # Merge

    def _arrive_at_merge(self, merge: PlanNode, index: int, position: int, out: Any) -> None:
        if not self.pending[index] & 1:
            return  # an earlier live value was taken
        self.args[merge.first] = (out, position)
        self.pending[index] -= 1
        if self.pending[index] == 0:
            self.ready.append(merge)

    def _control_reached_merge(self, merge: PlanNode, index: int) -> None:
        self.pending[index] -= 2
        if self.pending[index] == 0:
            self.ready.append(merge)
        elif self.pending[index] == 1 and self._all_dead(merge, index):
            self._kill_merge(merge, index)

    def _death_reached_merge(self, merge: PlanNode, index: int, from_enter: bool) -> None:
        if self.dead_data is None:
            self.dead_data = {}
        # A dead Enter alone kills a loop's Merge: in an untaken branch nothing comes round the back edge.
        self.dead_data[index] = merge.num_data if from_enter else self.dead_data.get(index, 0) + 1
        if self.pending[index] == 1 and self._all_dead(merge, index):
            self._kill_merge(merge, index)

    def _kill_merge(self, merge: PlanNode, index: int) -> None:
        self.pending[index] = 0  # it dies once, even if more inputs come (a second dead Enter, a value after it)
        self.dying.append(merge)

    def _all_dead(self, merge: PlanNode, index: int) -> bool:
        return self.dead_data is not None and self.dead_data.get(index, 0) >= merge.num_data

    # Dead values

    def propagate_dead(self, node: PlanNode) -> None:
        """Deliver deadness along all edges of a dead node."""
        for output in range(node.num_outputs):
            self._kill_slot(node, output)
        for consumer, index in node.controls:
            self._kill_input(consumer, index)
        for consumer, index in node.merge_controls:
            self._control_reached_merge(consumer, index)
        if node.followers and node.kind != Kind.ENTER:
            self.signal_followers(node)

    def _kill_slot(self, node: PlanNode, output: int) -> None:
        for consumer, index, _ in node.slot_edges[output]:
            self._kill_input(consumer, index)
        for edge_output, consumer, index, _ in node.merge_edges:
            if edge_output == output:
                self._death_reached_merge(consumer, index, node.kind == Kind.ENTER)

    def _kill_input(self, consumer: PlanNode, index: int) -> None:
        if self.dead is None:
            self.dead = set()
        self.dead.add(index)
        self.pending[index] -= 1
        if self.pending[index] == 0:
            self.became_ready(consumer, index)

    # Resuming

    def resume(self, outcomes: Sequence[NodeOutcome]) -> None:
        """Deliver the outputs of nodes that have ended.

        Then mark the nodes of this frame as done, so that they do not run again.
        """
        for outcome in outcomes:
            self._replay(outcome)
        over = {node for node, _ in outcomes if node.frame is self.frame.plan and node.kind != Kind.ARG}
        self.ready[:] = [node for node in self.ready if node not in over]
        self.dying[:] = [node for node in self.dying if node not in over]
        for node in over:
            self.pending[node.index] = 0
            self.args[node.first : node.last] = [None] * (node.last - node.first)

    def _replay(self, outcome: NodeOutcome) -> None:
        """Deliver a node's outputs to all its consumers, including those that have ended themselves."""
        node, outs = outcome
        if node.kind == Kind.RETVAL:
            if outs is not None:
                self.propagator.results[node.position] = outs[0]
            self.signal_followers(node)
        elif node.kind == Kind.ENTER and node.frame is self.frame.plan:
            if outs is None or outs:
                self.propagator.child(self, node).enter(node, NO_VALUE if outs is None else outs[0])
            self.signal_followers(node)
        elif outs is None:
            self.propagate_dead(node)
        else:
            self.propagate_all(node, outs)

    def __repr__(self) -> str:
        return (
            f"<IterationState {self.number} of frame '{self.frame.plan.name}', {len(self.ready)} ready, "
            f"{self.in_flight} running>"
        )


class FrameState:
    """One instance of a loop frame.

    Attributes:
        parent: the iteration it was entered from; None for the root frame.
        iterations: existing iterations, by number.
        newest: number of the newest iteration.
        pending_enters: Enter nodes that have not arrived yet.
        deferred: (NextIteration node, value) held back by `parallel_iterations`.
        invariants: (constant Enter node, value), delivered to every iteration.
        dead_exits: Exit nodes that were dead in the newest iteration.
    """

    __slots__ = (
        "_id",
        "dead_exits",
        "deferred",
        "invariants",
        "iterations",
        "newest",
        "parent",
        "pending_enters",
        "plan",
        "propagator",
    )

    def __init__(self, propagator: PropagatorState, plan: FramePlan, parent: IterationState | None) -> None:
        self.propagator = propagator
        self.plan = plan
        self.parent = parent
        self.pending_enters = plan.num_enters
        self.newest = 0
        self.deferred: deque[tuple[PlanNode, Any]] = deque()
        self.invariants: list[tuple[PlanNode, Any]] = []
        self.dead_exits: list[PlanNode] = []
        self.iterations: dict[int, IterationState] = {0: IterationState(propagator, self, 0, plan)}
        self._id: int | None = None

    @property
    def id(self) -> int:
        if self.parent is None:
            return ROOT_FRAME_ID
        if self._id is None:
            self._id = frame_id_of(self.parent.frame.id, self.parent.number, self.plan.name)
        return self._id

    def resume(self, number: int, outcomes: Sequence[NodeOutcome]) -> IterationState:
        """Put this frame into iteration `number` of its loop: all Enters have arrived, no other iteration is active.

        Returns:
            The iteration.
        """
        self.pending_enters = 0
        self.newest = number
        iteration = IterationState(self.propagator, self, number, self.plan)
        self.iterations = {number: iteration}
        for node, outs in outcomes:
            if node.kind == Kind.ENTER and node.child is self.plan and outs is not None:
                self.invariants.append((node, outs[0]))
        iteration.resume(outcomes)
        return iteration

    def enter(self, node: PlanNode, value: Any) -> None:
        """Deliver a value through an Enter node; `NO_VALUE` if it is dead."""
        if node.is_constant_enter:
            self.invariants.append((node, value))
            for iteration in list(self.iterations.values()):
                self._deliver(iteration, node, value)
        else:
            self._deliver(self.iterations[0], node, value)
        self.pending_enters -= 1
        for iteration in self.iterations.values():
            self.propagator.activate(iteration)

    def next_iteration(self, node: PlanNode, number: int, value: Any) -> None:
        """Deliver a live value from iteration `number` to the next one."""
        if number == self.newest:
            if len(self.iterations) >= self.plan.parallel_iterations:
                self.deferred.append((node, value))
                return
            self._increment()
        target = self.iterations[number + 1]
        target.propagate(node, value)
        self.propagator.activate(target)

    def _increment(self) -> None:
        self.newest += 1
        self.dead_exits.clear()
        iteration = self.iterations[self.newest] = IterationState(self.propagator, self, self.newest, self.plan)
        deferred, self.deferred = self.deferred, deque()
        for node, value in deferred:
            iteration.propagate(node, value)
        for node, value in self.invariants:
            self._deliver(iteration, node, value)
        self.propagator.activate(iteration)

    @staticmethod
    def _deliver(iteration: IterationState, node: PlanNode, value: Any) -> None:
        if value is NO_VALUE:
            iteration.propagate_dead(node)
        else:
            iteration.propagate(node, value)

    def settle(self, iteration: IterationState) -> None:
        """Delete `iteration`, and those after it, if complete; then the frame itself if that was all."""
        number = iteration.number
        if self.iterations.get(number) is not iteration:
            return  # deleted already, after one before it
        while (it := self.iterations.get(number)) is not None and self._is_complete(it):
            del self.iterations[number]
            number += 1
            if self.deferred:
                self._increment()
        if not self.iterations and self.pending_enters == 0:
            self._finish()

    def _is_complete(self, it: IterationState) -> bool:
        if it.ready or it.dying or it.in_flight or it.children:
            return False
        if it.number == 0:
            return self.pending_enters == 0
        return it.number - 1 not in self.iterations

    def _finish(self) -> None:
        parent = self.parent
        if parent is None:
            self.propagator.finished = True
            return
        del parent.children[self.plan.name]
        for node in self.dead_exits:
            parent.propagate_dead(node)
        self.propagator.activate(parent)


class PropagatorState:
    """One execution of a plan.

    Attributes:
        results: fetched values in order, `NO_VALUE` where none has come.
        active: iterations that have ready nodes or may be complete.
        error: the first failure, or None.
        finished: True when every node that can run has run.
        stopping: True after the first error or a cancellation; no further node starts.
        outstanding: the number of nodes started and not done, in all frames, plus that of unfed feeds.
        unfed: positions of the feeds that come later.
        on_result: callback(position, value) for each fetch as it comes, or None.
        small: the largest size, in elements, of a small value.
        careful: True once a value was larger than that, or had no elements (and so perhaps many rows): kernels are
            then asked for their cost before they run inline.
    """

    __slots__ = (
        "active",
        "careful",
        "error",
        "finished",
        "make_ready",
        "on_result",
        "outstanding",
        "plan",
        "results",
        "root",
        "small",
        "stopping",
        "unfed",
    )

    def __init__(
        self,
        plan: Plan,
        make_ready: Callable[[Sequence[PlanNode]], list[PlanNode]] = list,
        on_result: OnResult | None = None,
    ) -> None:
        self.plan = plan
        self.make_ready = make_ready
        self.results: list[Any] = [NO_VALUE] * plan.num_results
        self.error: BaseException | None = None
        self.finished = False
        self.stopping = False
        self.outstanding = 0
        self.unfed = _NONE_UNFED
        self.on_result = on_result
        self.small = plan.small_elements
        self.careful = plan.has_large_constants
        self.active: list[IterationState] = []
        self.root = FrameState(self, plan.root, None)
        self.activate(self.root.iterations[0])

    # Events

    def feed(self, values: Sequence[Any]) -> None:
        """Deliver the fed values, in the order of the plan's args; `UNFED` ones come by `feed_later`."""
        iteration = self.root.iterations[0]
        for node, value in zip(self.plan.args, values, strict=True):
            if value is UNFED:
                self.unfed |= {node.position}
                self.node_started(iteration)
                continue
            if not 0 < value.size <= self.small:
                self.careful = True
            iteration.propagate(node, value)

    def feed_later(self, position: int, value: Any) -> None:
        """Deliver a feed that was `UNFED`."""
        if self.stopping:
            return
        iteration = self.root.iterations[0]
        self.unfed -= {position}
        self.careful |= not 0 < value.size <= self.small
        iteration.propagate(self.plan.args[position], value)
        self.node_ended(iteration)

    def resume(self, snapshot: Snapshot) -> IterationState:
        """Put this new, unfed state where a run that began elsewhere has got to.

        Returns:
            The innermost iteration of the snapshot.
        """
        (_, _, outcomes), *inner = snapshot
        iteration = self.root.iterations[0]
        iteration.resume(outcomes)
        for plan, number, outcomes in inner:
            frame = iteration.children[plan.name] = FrameState(self, plan, iteration)
            iteration = frame.resume(number, outcomes)
        self.careful = True  # nothing has looked at the sizes of these values
        self.activate_all()
        return iteration

    def node_started(self, iteration: IterationState) -> None:
        """Count a node that was offloaded or is awaited; it keeps its iteration alive."""
        iteration.in_flight += 1
        self.outstanding += 1

    def node_ended(self, iteration: IterationState) -> None:
        """The counterpart of `node_started`, for any outcome."""
        iteration.in_flight -= 1
        self.outstanding -= 1
        self.activate(iteration)

    def node_done(self, iteration: IterationState, node: PlanNode, out: Any) -> None:
        """Deliver the outputs of a kernel that returned.  Raises InternalError if they are not what the op declares."""
        if out is None and node.never_dead and node.num_outputs:
            iteration.propagate_all(node, (None,))  # a Recv got something dead
            return
        if not node.trusted:
            check_outputs(node, out)
            if not DEBUG:
                node.trust()
        outs: tuple[Any, ...] = () if not node.num_outputs else out if type(out) is tuple else (out,)
        try:
            for value in outs:
                if not 0 < value.size <= self.small:
                    self.careful = True
        except AttributeError:
            check_outputs(node, out)
            raise
        if len(outs) != node.num_outputs:
            check_outputs(node, out)
        if len(outs) == 1:
            node.gives_tuple |= type(out) is tuple
            iteration.propagate(node, outs[0])
        else:
            iteration.propagate_all(node, outs)

    def control_flow(self, iteration: IterationState, node: PlanNode, inputs: Any) -> None:
        """Run a control-flow node: it moves values between outputs, iterations and frames."""
        kind = node.kind
        if node.dereference is not None:
            inputs = node.dereference(inputs)
        if kind == Kind.SWITCH:
            data, predicate = inputs
            if predicate.ndim:
                raise errors.InvalidArgumentError(
                    f"The second input must be a scalar, but it has shape {predicate.shape}"
                )
            iteration.propagate_all(node, (None, data) if predicate else (data, None))
        elif kind == Kind.MERGE:
            value, position = inputs[0]
            if node.slot_edges[1] or node.merge_edges:
                iteration.propagate_all(node, (value, np.int32(position)))
            else:
                iteration.propagate(node, value)
        elif kind == Kind.NEXT_ITERATION:
            iteration.frame.next_iteration(node, iteration.number, inputs[0])
        elif kind == Kind.EXIT:
            parent = iteration.frame.parent
            assert parent is not None  # control_flow.analyze refuses an Exit in the root frame
            parent.propagate(node, inputs[0])
            self.activate(parent)
        elif kind == Kind.ENTER:
            self.child(iteration, node).enter(node, inputs[0])
            iteration.signal_followers(node)
        elif kind == Kind.RETVAL:
            self._set_result(node, node.compute(inputs[0]))
            iteration.signal_followers(node)
        else:
            raise errors.InternalError(f"{node!r} is no control-flow node")

    def node_dead(self, iteration: IterationState, node: PlanNode) -> None:
        """Propagate the deadness of a node, which does not run, as its kind says."""
        kind = node.kind
        if kind == Kind.ENTER:
            self.child(iteration, node).enter(node, NO_VALUE)
            iteration.signal_followers(node)
        elif kind == Kind.EXIT:
            if iteration.number == iteration.frame.newest:
                iteration.frame.dead_exits.append(node)
        elif kind == Kind.RETVAL:
            if self.on_result is not None and iteration.frame.parent is None:
                self.on_result(node.position, NO_VALUE)
            iteration.signal_followers(node)
        elif kind != Kind.NEXT_ITERATION:  # deadness never crosses iterations
            iteration.propagate_dead(node)

    def settle(self, iteration: IterationState) -> None:
        """Delete `iteration` if it is complete, now that the driver has drained it."""
        if not (iteration.in_flight or iteration.children):
            iteration.frame.settle(iteration)

    def fail(self, error: BaseException) -> bool:
        """Stop with an error, of a node or a cancellation.  Returns True if it is the first; others are ignored."""
        if self.error is not None:
            return False
        self.error = error
        self.stopping = True
        self.active.clear()
        self.outstanding -= len(self.unfed)
        self.unfed = frozenset()
        return True

    def finish(self) -> None:
        """End the execution, although nodes wait for values: none will come."""
        self.active.clear()
        self.finished = True

    def release(self) -> list[Any]:
        """Return the results of an ended execution, and drop all other values.

        Leaving that to the garbage collector would keep them longer: frames and iterations refer to one another, and
        the error's traceback refers to this state.
        """
        results, self.results = self.results, []
        self.error = None
        self.active.clear()
        frames = [self.root]
        del self.root
        while frames:
            frame = frames.pop()
            for iteration in frame.iterations.values():
                frames.extend(iteration.children.values())
            frame.iterations.clear()
        return results

    def values(self) -> Iterator[Any]:
        """All that it holds, in slots, between iterations and as results; includes marks that are no values."""
        for iteration in self._iterations():
            yield from iteration.args
            if iteration.number == iteration.frame.newest:
                yield from iteration.frame.deferred
                yield from iteration.frame.invariants
        yield from self.results

    def held_open(self) -> Iterator[int]:
        """Ids of frames that stay open though nothing runs in them.

        A value will still enter them, or leave a frame inside them.
        """
        for iteration in self._iterations():
            frame = iteration.frame
            if iteration.children:
                yield frame.id
            for node in frame.plan.nodes:
                if node.child is not None and iteration.pending[node.index] > 0:
                    yield frame_id_of(frame.id, iteration.number, node.child.name)

    def activate_all(self) -> None:
        """Put all iterations into `active`, innermost first, including those of loops not entered completely."""
        self.active.clear()
        for iteration in reversed(list(self._iterations())):
            iteration.queued = False
            self.activate(iteration)

    def activate(self, iteration: IterationState) -> None:
        if not iteration.queued and not self.stopping:
            iteration.queued = True
            self.active.append(iteration)

    @property
    def num_ready(self) -> int:
        return sum(len(iteration.ready) for iteration in self.active)

    def child(self, iteration: IterationState, node: PlanNode) -> FrameState:
        """The frame that an Enter node enters; made by the first one."""
        assert node.child is not None
        frame = iteration.children.get(node.child.name)
        if frame is None:
            frame = iteration.children[node.child.name] = FrameState(self, node.child, iteration)
        return frame

    def _set_result(self, node: PlanNode, value: Any) -> None:
        if self.results[node.position] is not NO_VALUE:
            raise errors.InvalidArgumentError(f"Retval[{node.position}] has already been set.")
        self.results[node.position] = value
        if self.on_result is not None:
            self.on_result(node.position, value)

    def waiting(self, started: Sequence[tuple[IterationState, PlanNode]] = ()) -> list[WaitingNode]:
        """Nodes that have some of their inputs, or wait for a `started` node or an unfed feed."""
        awaited = {(iteration, node.node.id) for iteration, node in started}
        found = []
        for iteration in self._iterations():
            for node in iteration.frame.plan.nodes:
                if iteration.pending[node.index] > 0 and node.kind != Kind.RETVAL:
                    present, missing = self._inputs_of(iteration, node)
                    sources = (*(endpoint[0] for endpoint in node.node.in_edges), *node.node.control_edges)
                    sources = (*sources, *(other.node.id for other in node.after))
                    if present or any((iteration, source) in awaited for source in sources):
                        found.append(WaitingNode(node, iteration.frame_iter, tuple(present), tuple(missing)))
        return found

    @staticmethod
    def _inputs_of(iteration: IterationState, node: PlanNode) -> tuple[list[str], list[str]]:
        """Names of the inputs of a waiting node that have come, and of those that have not."""
        names = node.node.input_names()
        count = len(node.node.in_edges)
        data, controls = names[:count], names[count:]
        left = iteration.pending[node.index]
        if node.kind == Kind.MERGE:
            present = [] if left & 1 else ["one of its inputs"]
            missing = list(data) if left & 1 else []
            missing_controls = left >> 1
        else:
            slots = iteration.args[node.first : node.last]
            present = [name for name, value in zip(data, slots, strict=True) if value is not None]
            missing = [name for name, value in zip(data, slots, strict=True) if value is None]
            missing_controls = max(0, left - len(missing))
        controls += [f"the end of {other.name}" for other in node.after]
        if missing_controls >= len(controls):
            missing += controls
        elif missing_controls:
            missing.append(f"{missing_controls} of {len(controls)} control inputs")
        else:
            present += controls
        return present, missing

    def _iterations(self) -> Iterator[IterationState]:
        frames = [self.root] if hasattr(self, "root") else []  # none are left once the results were taken
        while frames:
            for iteration in frames.pop().iterations.values():
                yield iteration
                frames.extend(iteration.children.values())

    def validate(self) -> None:
        """Check the invariants that the fields state; for tests and AEXEC_DEBUG.  Raises AssertionError."""
        if self.stopping or self.finished:
            return  # abandoned calls are no longer accounted for
        running = 0
        for iteration in self._iterations():
            running += iteration.in_flight
            for node in iteration.ready:
                assert iteration.pending[node.index] == 0, (node, iteration)
            assert all(count >= 0 for count in iteration.pending), iteration
            if iteration.ready or iteration.dying:
                assert iteration.queued, iteration
            assert iteration.queued == (iteration in self.active), iteration
        assert running == self.outstanding, (running, self.outstanding)
