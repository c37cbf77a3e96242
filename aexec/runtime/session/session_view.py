"""`SessionView`: the readable side of a session: its graph, signatures, devices, steps in flight and plans."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.html_repr import block, table
from aexec.framework.late_dataclass import dataclass
from aexec.graph.graph import Graph
from aexec.graph.signature import Signature, TensorInfo, choose_signature, graph_signature, signature_tables
from aexec.runtime.compiled.compiled_plan import compile_plan, prepare_functions
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.captured import CapturedReport
from aexec.runtime.planning.delegated import RegionReport
from aexec.runtime.planning.pass_report import PassReport, report_passes
from aexec.runtime.planning.planner import Planner
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.call_estimates import heavy_ns
from aexec.runtime.plans.compilation_policy import Explanation
from aexec.runtime.plans.estimate_report import EstimateReport, report_estimates
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.session.callable import SessionCallable
from aexec.runtime.session.kept_graph import KeptGraph
from aexec.runtime.session.run_explanation import explain_run
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.session.session_queues import SessionQueues
from aexec.runtime.session.session_steps import SessionSteps
from aexec.runtime.session.step import Step
from aexec.runtime.threads.thread_pools import ThreadPools
from aexec.runtime.threads.worker_pool import WorkerPoolStatistics

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel

__all__ = ["SessionStatistics", "SessionView"]


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """A snapshot of a session.

    Attributes:
        runs: steps begun so far.
        in_flight: steps that have not ended.
        waiting: steps in flight that wait for a place, see `SessionConfig.max_steps`.
        plans: number of plans.
        nodes: number of nodes of the graph.
        longest_hold: seconds of the longest slice of the event loop in which the session had a part.
        pool: the worker threads.
        bytes_in_use: bytes of its steps' tensors and of those that they keep; None if memory is not limited.
    """

    runs: int
    in_flight: int
    plans: int
    nodes: int
    longest_hold: float
    pool: WorkerPoolStatistics
    bytes_in_use: int | None = None
    waiting: int = 0


class SessionView:
    """The part of `Session` that reads: it changes nothing except that it may add plans.

    Attributes:
        id: the number of the session in this process.
        config: its settings.
    """

    id: int
    config: SessionConfig
    _life: SessionLife
    _graph: KeptGraph
    _planner: Planner
    _steps: SessionSteps
    _devices: tuple[Device, ...]
    _pools: ThreadPools
    _limits: SessionMemory
    _queues: SessionQueues
    _signatures: Mapping[str, Signature]
    # For a graph without signatures: (number of nodes, its signature); valid while the number is the same.
    _whole: tuple[int, Signature] | None

    @property
    def graph(self) -> Graph:
        """The graph with its extensions.

        Raises:
            FailedPreconditionError: the session read the graph itself and is closed, so the graph was freed.
        """
        return self._graph.graph

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        return self.graph.to_graph_def()

    @property
    def cost_model(self) -> CostModel:
        """The costs of nodes that measured runs have reported.

        A run is measured with `RunOptions(cost_graph=True)`, or if `SessionConfig.build_cost_model` chooses it.
        """
        return self._steps.cost_model

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the model: name → `Signature`.  Empty for a plain graph."""
        return self._signatures

    def signature(self, name: str | None = None) -> Signature:
        """Return a signature, or the graph's own.

        Args:
            name: one of `signatures`; by default the only one, or else `serving_default`.  A graph without signatures
                has a single one without a name: its inputs are the placeholders, its outputs the tensors that no node
                uses.

        Raises:
            NotFoundError: there is no signature of that name, or no default.
        """
        if name is not None or self._signatures:
            return choose_signature(self._signatures, name)
        if self._whole is None or self._whole[0] != len(self.graph):
            self._whole = (len(self.graph), graph_signature(self.graph))
        return self._whole[1]

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The inputs of the default signature, which `call` takes: name → tensor, type and shape."""
        return self.signature().inputs

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The outputs of the default signature, which `call` returns: name → tensor, type and shape."""
        return self.signature().outputs

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in flight, oldest first."""
        return self._steps.all

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the session's first use; None before."""
        return self._life.loop

    @property
    def closed(self) -> bool:
        return self._life.closed

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def statistics(self) -> SessionStatistics:
        """Return a snapshot of the session."""
        return SessionStatistics(
            self._steps.runs,
            len(self._steps.in_flight),
            len(self._planner),
            self._graph.num_nodes,
            self._steps.slices.longest,
            self._pools.statistics(),
            None if self._limits.account is None else self._limits.account.in_use,
            0 if self._steps.places is None else self._steps.places.waiting,
        )

    async def plan_source(self, call: SessionCallable) -> str:
        """Return the source of the Python function to which a callable's plan is compiled.

        Raises:
            UnimplementedError: the plan is not compiled; the message says why.
            InvalidArgumentError, NotFoundError: as a call would.
        """
        cached = await self._plan_of(call)
        try:
            plan = cached.plan.joint if isinstance(cached.plan, PartitionedPlan) else cached.plan
            while not prepare_functions(plan, self._steps.slices.budget):
                await asyncio.sleep(0)
            goes_on = plan.compilation.goes_on
            compiled = await self._pools.first.run(partial(compile_plan, plan, heavy_ns, goes_on=goes_on))
        except NotCompiledError as reason:
            raise errors.UnimplementedError(f"The plan is interpreted: {reason}") from None
        return compiled.listing

    def explain(self, call: SessionCallable) -> Explanation:
        """Explain how the next run of a callable will be executed, and why: `print(session.explain(call))`.

        It makes no plan.  It does not consider options of the run: a run that is traced is always interpreted.
        """
        return explain_run(call.plan, self._steps.make_executor, self.config, needs_step=self._steps.places is not None)

    async def rewrites(self, call: SessionCallable) -> PassReport:
        """Report what the graph passes have done to a callable's nodes.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        return report_passes((await self._plan_of(call)).graph)

    async def regions(self, call: SessionCallable) -> list[RegionReport]:
        """Return the regions of a callable that a delegate runs, or would run if their nodes took long enough.

        `SessionConfig.delegates` chooses the delegates.

        Raises:
            FailedPreconditionError: a delegate that the config names is not installed.
            InvalidArgumentError, NotFoundError: as a call would.
        """
        self._check_usable()
        return await self._planner.regions(call.signature)

    async def estimates(self, call: SessionCallable) -> list[EstimateReport]:
        """Report the learned costs of a callable's nodes whose calls may be too long for the event loop.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        return report_estimates((await self._plan_of(call)).plan)

    async def captured_regions(self, call: SessionCallable) -> list[CapturedReport]:
        """Return the regions of a callable that GPUs capture; see `SessionConfig.capture_graphs`.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        prepared = self._steps.prepared(call)
        cached = prepared if isinstance(prepared, CachedPlan) else await prepared
        return [region.report() for region in cached.captured]

    async def _plan_of(self, call: SessionCallable) -> CachedPlan:
        self._check_usable()
        prepared = self._steps.prepared(call)
        return prepared if isinstance(prepared, CachedPlan) else await prepared

    def __repr__(self) -> str:
        return f"<Session {self.id}, {self._graph.num_nodes} nodes, {self._facts()}>"

    def _facts(self) -> str:
        state = "closed" if self.closed else f"{len(self._steps.in_flight)} steps in flight"
        return f"{len(self._planner)} plans, {state}"

    def _repr_html_(self) -> str:
        steps = [(step.id, step.state.value, f"{step.statistics().seconds:.1f}") for step in self.steps]
        queues = (
            [] if self.closed else [(name, *queue.statistics().facts()) for name, queue in self._queues.all().items()]
        )
        tables = [
            *signature_tables(self._signatures),
            *(() if self._signatures else self.signature().html_tables()),
            table("steps", ["state", "seconds"], steps, len(steps)),
            table("queues", ["elements", "waiting"], queues, len(queues)),
            table("devices", ["memory"], [(d.name, d.memory_facts()) for d in self._devices], len(self._devices)),
        ]
        return block(f"Session {self.id}", f"{self._graph.num_nodes} nodes, {self._facts()}", *tables)

    def _check_usable(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; the first call ties the session to it."""
        return self._life.check_usable()
