"""`StepView`: the readable side of a step: its state, its present work, and its story.

Next to read: `step.py`, which runs one, and `step_report.py`, for the lines of nodes.
"""

from __future__ import annotations

import enum
import time
from typing import Protocol

from aexec.framework import errors
from aexec.framework.html_repr import MAX_ROWS, block, facts_table, lines_table
from aexec.framework.late_dataclass import dataclass
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.interpreter.executor import NOTHING, Executor, StepEnvironment
from aexec.runtime.interpreter.step_report import report
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.profiling.tracing import NodeEvent
from aexec.runtime.session.step_places import StepPlaces

__all__ = ["StepState", "StepStatistics", "StepView"]

# Most nodes and feeds that a repr lists.
_LINES_OF_A_REPR = 3


class StepState(enum.Enum):
    """The states of a step."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """A snapshot of a step.

    Attributes:
        state: the step's state.
        nodes: nodes of its graph after pruning.
        ready, running: nodes ready to run; nodes offloaded or awaited now.
        seconds: time since it began, or that it took.
        live_bytes, peak_bytes: bytes of its tensors, now and at most; counted in traced steps, and in sessions with a
            memory limit, else None.
    """

    state: StepState
    nodes: int
    ready: int
    running: int
    seconds: float
    live_bytes: int | None = None
    peak_bytes: int | None = None


class _Owner(Protocol):
    """What a step needs of its session's runs.

    Attributes:
        places: limits how many steps run at once; None for no limit.
    """

    places: StepPlaces | None


class _Call(Protocol):
    """What a step needs of the `SessionCallable` that it is a run of."""

    @property
    def specs(self) -> tuple[FeedSpec, ...]:
        """What may be fed, in the order of the values."""
        raise NotImplementedError


class StepView:
    """Shows a step: the part of `Step` that changes nothing.

    Attributes:
        environment: shared by the executions of the step.
        owner: the runs of its session.
    """

    __slots__ = (
        "_began",
        "_call",
        "_ended",
        "_execution",
        "_placed",
        "_plan",
        "_state",
        "environment",
        "owner",
    )

    # `Step`'s constructor sets them.
    environment: StepEnvironment
    owner: _Owner
    _call: _Call
    _placed: bool | None  # True: has a place to run; False: waits for one; None: needs none yet
    _plan: Plan | PartitionedPlan | None
    _execution: Executor | None
    _state: StepState
    _began: float  # by `perf_counter`, as is `_ended`, which is 0 until the step ends
    _ended: float

    @property
    def id(self) -> int:
        return self.environment.step_id

    @property
    def state(self) -> StepState:
        return self._state

    @property
    def done(self) -> bool:
        """True if it has ended, by success, error or cancellation."""
        return self._ended != 0.0

    @property
    def execution(self) -> Executor | None:
        """The executor of the step's plan; None until the step has a plan."""
        return self._execution

    def statistics(self) -> StepStatistics:
        """Return a snapshot of the step."""
        memory = self.environment.memory
        work = NOTHING if self._execution is None or self.done else self._execution.statistics()
        return StepStatistics(
            self._state,
            0 if self._plan is None else self._plan.num_nodes,
            work.ready,
            work.running,
            (self._ended or time.perf_counter()) - self._began,
            *((None, None) if memory is None else (memory.step.in_use, memory.step.peak)),
        )

    @property
    def only_waits(self) -> bool:
        """True if the step only awaits: no node is ready, in a thread, or on a device."""
        execution = self._execution
        if execution is None or self.done or execution.statistics().ready:
            return False
        running = execution.running()
        return bool(running) and all(node.where == "awaited" for node in running)

    def dump(self) -> str:
        """Return text for people: the step, then a line per node that runs or waits, and per feed that is missing."""
        return "\n  ".join([self._summary(), *self.report()])

    def report(self, limit: int | None = None) -> list[str]:
        """Return the lines of `dump` after the first: at most `limit`, and one that counts the rest."""
        if self.done:
            return []
        if self._placed is False and self.owner.places is not None:
            return [f"waiting for its turn: of the session's steps {self.owner.places.most} may run at a time"]
        if self._execution is None:
            return []
        return report(self._execution, self.environment, [spec.name for spec in self._call.specs], limit)

    def story(self, node: str) -> tuple[NodeEvent, ...]:
        """Return in order what happened to a node of this name, in the step or in functions that it called.

        Raises:
            FailedPreconditionError: the step is not traced.
        """
        tracer = self.environment.tracer
        if tracer is None:
            raise errors.FailedPreconditionError(f"{self!r} is not traced: start it with RunOptions(trace=True)")
        return tracer.story(node)

    def _repr_html_(self) -> str:
        statistics, status = self.statistics(), self.environment.cancellation.status
        facts = {"state": self._state.value, "seconds": f"{statistics.seconds:.3f}", "nodes": statistics.nodes or None}
        if not self.done:
            facts |= {"ready": statistics.ready, "running": statistics.running}
        facts |= {"live bytes": statistics.live_bytes, "peak bytes": statistics.peak_bytes}
        why = [] if status is None else [str(status).partition("\n")[0]]
        tables = [facts_table(facts), lines_table("why it ends", why), lines_table("at work", self.report(MAX_ROWS))]
        return block("Step", str(self.id), *tables)

    def __repr__(self) -> str:
        return self._summary("; ".join(self.report(_LINES_OF_A_REPR)))

    def _summary(self, work: str = "") -> str:
        """One line: the state, how much is ready and running, this on what that is, and why the step ends or ended."""
        text = self._state.value
        if self._execution is not None and not self.done:
            counts = self._execution.statistics()
            text += f", {counts.ready} ready, {counts.running} running"
        if work:
            text += f" ({work})"
        status = self.environment.cancellation.status
        if status is not None:
            text += f"{'' if self.done else ', to be cancelled'}: {str(status).partition(chr(10))[0]}"
        return f"<Step {self.id} {text}>"
