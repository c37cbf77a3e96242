"""The contract between the runtime and an executor, which executes a plan.

A session runs its steps with the executor that its config names; functions called inside a step run with the same one.
This module has all that the runtime needs of an executor, and all that it gives to one: the plan (`plans/plan.py`), the
step's `StepEnvironment`, and the cancellation manager of this execution.
`plans/absent_values.py` has the marks for feeds and fetches without a value.
`execution.py` is the default; `tests/support/stand_ins/plain_executor.py` is another that shares nothing with it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Rendezvous, TransportFactory
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext, Params
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory import log_memory
from aexec.framework.memory.memory import is_out_of_memory
from aexec.framework.printed import Printer, print_text
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState, TensorStore
from aexec.framework.waiting.background_tasks import BackgroundTasks
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter.memory_accountant import StepMemory
from aexec.runtime.plans.absent_values import OnResult
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode
from aexec.runtime.plans.plan import Plan, PlanNode
from aexec.runtime.profiling.tracing import MemoryLogger, NodePrinter, StepTracer
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.worker_pool import WorkerPool

__all__ = [
    "NOTHING",
    "ExecutionStatistics",
    "Executor",
    "ExecutorFactory",
    "ExecutorType",
    "StepEnvironment",
    "as_op_error",
    "executor_of_type",
    "no_value",
    "register_executor",
    "step_ids",
]

step_ids = itertools.count(1)


def no_value(position: int) -> NoReturn:
    """Raise InvalidArgumentError: a fetched value is dead."""
    raise errors.InvalidArgumentError(f"Retval[{position}] does not have value")


@dataclass(frozen=True, slots=True)
class ExecutionStatistics:
    """The numbers of nodes that are ready to run, and that have started and not ended."""

    ready: int
    running: int


NOTHING = ExecutionStatistics(0, 0)


class Executor(Protocol):
    """Executes one plan once.  All methods are called on the thread of the step's event loop."""

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Execute the plan on fed values; return the fetched ones.

        When it returns or raises, nothing of the execution that could touch shared state runs any more.
        At its first error it cancels its cancellation manager.

        Args:
            feeds: values in the order of the plan's args; `UNFED` for those that come by `feed`.

        Raises:
            OpError: the first error of a kernel, with its node; or, if the manager was cancelled first, the error of
                that cancellation.
            InvalidArgumentError: a fetched value is dead, and there is no `on_result`.
            asyncio.CancelledError: the awaiting task was cancelled.
        """
        ...

    def feed(self, position: int, value: Any) -> None:
        """Deliver a feed that was `UNFED`."""
        ...

    def statistics(self) -> ExecutionStatistics:
        """The numbers of ready and running nodes."""
        ...

    def running(self) -> Sequence[RunningNode]:
        """Nodes that have started and not ended, oldest first."""
        ...

    def waiting(self) -> Sequence[WaitingNode]:
        """Nodes that have some of their inputs and wait for others; those without any input are left out."""
        ...

    def unfed(self) -> Sequence[int]:
        """Positions of the feeds that are still to come."""
        ...


class ExecutorFactory(Protocol):
    """Makes the executor of one execution."""

    def __call__(
        self,
        plan: Plan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> Executor:
        """Return an executor, whose `run` is called once.

        Args:
            environment: of the step, whose executions share it.
            cancellation: of this execution: the step's manager, or a child of it for a called function.
            on_result: called with each fetched value as it comes, before `run` returns.
        """
        ...


# The kernel that the registry has for a node.
RegisteredKernel = Callable[[OpKernelConstruction], BuiltKernel]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorType:
    """An executor with its kernels and rendezvous, registered under a name for `SessionConfig.executor_type`.

    Attributes:
        factory: makes executors.
        create_kernel: makes the kernel of a node from the construction, which has the function library, and from a
            function that makes the registered kernel; None to use the registered one.
        create_rendezvous: makes the rendezvous of the step with an id, and of each call of a partitioned function;
            None for the usual one.
    """

    factory: ExecutorFactory
    create_kernel: Callable[[OpKernelConstruction, RegisteredKernel], BuiltKernel] | None = None
    create_rendezvous: Callable[[int], Rendezvous] | None = None


_types: dict[str, ExecutorType] = {}


def register_executor(
    executor_type: str,
    factory: ExecutorFactory,
    *,
    create_kernel: Callable[[OpKernelConstruction, RegisteredKernel], BuiltKernel] | None = None,
    create_rendezvous: Callable[[int], Rendezvous] | None = None,
) -> None:
    """Make an executor available as `SessionConfig(executor_type=...)`.

    Args:
        create_kernel, create_rendezvous: see `ExecutorType`.

    Raises:
        AlreadyExistsError: there is one of this type.
    """
    if executor_type in _types:
        raise errors.AlreadyExistsError(f"An executor of type '{executor_type}' is registered already")
    _types[executor_type] = ExecutorType(factory, create_kernel, create_rendezvous)


def executor_of_type(executor_type: str) -> ExecutorType:
    """The executor type of this name.  Raises NotFoundError, which lists the registered ones."""
    found = _types.get(executor_type)
    if found is None:
        known = ", ".join(repr(name) for name in sorted(_types))
        raise errors.NotFoundError(f"No executor of type '{executor_type}' is registered; there are {known}")
    return found


class StepEnvironment(Params):
    """The data that executions of one step share: the step's own, and those of functions it calls.

    Attributes:
        slices: how long inline work may hold the loop.
        tracer: sees every kernel call, or None.
        make_executor: makes the executors of called functions.
        transport: makes the transport of values from other processes, or None.
        calls: executions of function bodies that have not ended, with the functions' names.
        memory: the step's account of memory; None if it is not counted.
        create_rendezvous: as in `ExecutorType`.
        printer: where its kernels print to.
    """

    __slots__ = (
        "_background",
        "calls",
        "create_rendezvous",
        "make_executor",
        "memory",
        "printer",
        "slices",
        "tracer",
        "transport",
    )

    worker_pool: WorkerPool
    printer: Printer

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker_pool: WorkerPool,
        slices: SliceClock,
        resources: ResourceManager,
        cancellation: CancellationManager,
        session_state: SessionState,
        make_executor: ExecutorFactory,
        tracer: StepTracer | None = None,
        step_id: int = 0,
        memory: StepMemory | None = None,
        transport: TransportFactory | None = None,
        create_rendezvous: Callable[[int], Rendezvous] | None = None,
        printer: Printer = print_text,
        background: Callable[[], BackgroundTasks] | None = None,
    ) -> None:
        # Takes half the time of `super().__init__(...)` with keywords.
        Params.__init__(self, step_id or next(step_ids), loop, worker_pool, cancellation, resources, session_state)
        self.slices = slices
        self.make_executor = make_executor
        self.memory = memory
        self.transport = transport
        self.create_rendezvous = create_rendezvous
        self.printer = printer
        self._background = background
        self.calls: dict[Executor, str] = {}
        self.tracer: StepTracer | None = NodePrinter(self.step_id) if tracer is None and DEBUG >= 3 else tracer
        if log_memory.is_enabled():
            self.tracer = MemoryLogger(self.step_id, self.tracer)

    @property
    def background(self) -> BackgroundTasks:
        """The session's tasks that go on between steps.  Raises InternalError if no session runs the step."""
        return super().background if self._background is None else self._background()

    def new_rendezvous(self) -> Rendezvous:
        """Makes the step's rendezvous, with the transport that brings values from other processes."""
        made = self._created_rendezvous()
        if self.transport is not None:
            made.plug_in(self.transport(self.step_id, made))
        return made

    def _created_rendezvous(self) -> Rendezvous:
        return Rendezvous() if self.create_rendezvous is None else self.create_rendezvous(self.step_id)

    def of_partitions(self, cancellation: CancellationManager) -> PartitionsEnvironment:
        """The environment of a called function's partitions; closed at the end of the call.

        Args:
            cancellation: of the call.
        """
        return PartitionsEnvironment(self, cancellation)

    @property
    def stats_collector(self) -> StepTracer | None:
        """The tracer that sees every kernel call, or None."""
        return self.tracer

    @staticmethod
    def of(context: OpKernelContext) -> StepEnvironment:
        """The environment of the step that a kernel runs in.  Raises InternalError if no session runs it."""
        if not isinstance(context.params, StepEnvironment):
            raise errors.InternalError(f"{context.params!r} belongs to no step of a session")
        return context.params


class PartitionsEnvironment(StepEnvironment):
    """The step's environment with a rendezvous for one call's partitions, as several calls may run at the same time.

    A context manager: leaving it closes the rendezvous.
    """

    __slots__ = ("_step", "_token", "_transfers")

    def __init__(self, step: StepEnvironment, cancellation: CancellationManager) -> None:
        for name in _SHARED:
            setattr(self, name, getattr(step, name))
        self._step = step
        self.cancellation = cancellation
        self._transfers = self._created_rendezvous()
        self._token = cancellation.get_cancellation_token()
        self._transfers.abort_when_cancelled(cancellation, self._token)

    @property
    def rendezvous(self) -> Rendezvous:
        """The step's."""
        return self._step.rendezvous

    @property
    def transfers(self) -> Rendezvous:
        """The rendezvous of this call alone."""
        return self._transfers

    @property
    def tensor_store(self) -> TensorStore:
        """The step's."""
        return self._step.tensor_store

    def __enter__(self) -> PartitionsEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancellation.try_deregister_callback(self._token)
        self._transfers.close()


_SHARED = (
    *("step_id", "loop", "worker_pool", "resources", "session_state"),
    *StepEnvironment.__slots__,
)


def as_op_error(node: PlanNode, inputs: Any, error: BaseException) -> errors.OpError:
    """Return what a kernel raised as an OpError that names the node.

    Args:
        inputs: the call's inputs, or None; from these the kernel may find the cause.
    """
    if not isinstance(error, errors.OpError):
        error = _explained(node, inputs, error)
    error.attach_node(node.name, node.op, node.node.site, node.node.origin)
    return errors.as_plain(error)


def _explained(node: PlanNode, inputs: Any, error: BaseException) -> errors.OpError:
    if inputs is not None and any(value is None for value in inputs):
        missing = errors.InvalidArgumentError(
            f"An input of node {node.name} has no value: another one came twice in an iteration of its frame"
        )
        missing.__cause__ = error
        return missing
    if node.explain is not None and inputs is not None:
        explained = node.explain(error, *inputs)
        explained.__cause__ = error
        return explained
    wrapped: errors.OpError
    if is_out_of_memory(error):
        wrapped = errors.ResourceExhaustedError(
            f"OOM when running {{{{node {node.name}}}}} ({node.op}): {error}", derived=False
        )
    else:
        wrapped = errors.UnknownError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
