"""Regions of plans that a delegate runs: when a plan gets them, and what happens if the delegate refuses.

A plan is first made without regions.  With `delegates="auto"` it gets them when its runs, by the nodes' estimates as
corrected by measured calls, have cost a third of what compiling the regions takes; then a few calls decide whether the
delegate is faster (`region_trial.py`).  If the config names delegates, a plan has regions from its first run.  To the
executor a region is one asynchronous node, whose call awaits the delegate.  If the delegate refuses or fails, the call
runs the region's nodes as a plan of their own.
Next to read: `aexec/graph/partitioning/regions.py`, `aexec/delegates/delegate.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

import numpy as np

from aexec import proto
from aexec.delegates.delegate import CompiledRegion, Delegate, Inference, RefusedError
from aexec.delegates.delegate_registry import (
    delegate_names,
    installed_delegate,
    make_delegate,
    uninstalled_delegate,
)
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.loop_budget import COPY_NS, HOP_NS, LoopBudget, current_budget
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.regions import Region, find_regions
from aexec.graph.passes import WorkingGraph
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.function_calls import run_nested
from aexec.runtime.planning.region_trial import RegionTrial
from aexec.runtime.plans.call_estimates import usual_ns
from aexec.runtime.plans.plan import Kind, Plan, PlanKey, PlanNode
from aexec.runtime.plans.plan_builder import build_plan
from aexec.runtime.plans.region_nodes import may_wait, put_regions
from aexec.runtime.threads.worker_pool import WorkerPool, run_in_thread

__all__ = ["Candidate", "Delegation", "RegionReport"]

logger = logging.getLogger("aexec")

# With "auto": the number of the run before which regions are first looked for.  A plan that is light enough to be
# compiled and to run at once by then keeps its nodes.
LOOK_AT = 4
# With "auto": regions are compiled when the runs of their nodes have cost this part of what compiling takes.  A plan
# that has been run so often is probably run much oftener, and the runs go on while a thread compiles.
COMPILE_AT = 1 / 3
# With "auto": a region must take at least this many times as long as a hop to a thread, the least that a call costs.
WORTH_HOPS = 5
# With named delegates: a region is used unless it takes less than this many hops.
NAMED_HOPS = 1
# Fewest nodes of a region.
MIN_NODES = 2
# Most calls of a session's delegates at once: one that runs, and one that is ready to.
IN_FLIGHT = 2
# Most bytes that the regions of a session's plans may hold.
MAX_BYTES = 2**30
# A delegate that is not installed is suggested for regions that take at least this many seconds of a run.
WORTH_INSTALLING = 5e-3
# Stop delegating a region after this many consecutive calls that failed in the delegate but not in its nodes.
GIVE_UP_AT = 3

_OP = "_DelegatedRegion"
# The delegates that were suggested in this process.
_suggested: set[str] = set()


@dataclass(frozen=True, slots=True)
class RegionReport:
    """Describes a region for people.

    Attributes:
        delegate: name of the delegate that runs it, or would run it.
        name: name of the region's node.
        ops: op → number of nodes.
        inputs, outputs: names of tensors.
        seconds: time of a run of its nodes by their estimates, as corrected by measured calls; an unknown dimension
            counts as 1.
        worth_it: True if it is large enough for `delegates="auto"`.
    """

    delegate: str
    name: str
    ops: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: float
    worth_it: bool


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A region that a delegate could run.

    Attributes:
        ordinary: a plan of its nodes, which is fed the region's inputs and fetches its outputs.
        seconds: estimated time of a run of that plan.
    """

    delegate: Delegate
    region: Region
    ordinary: Plan
    seconds: float

    @property
    def worth_it(self) -> bool:
        return self.seconds >= WORTH_HOPS * HOP_NS * 1e-9

    @property
    def too_small(self) -> bool:
        """True if calling the delegate certainly takes longer than the nodes do; False if a size is unknown."""
        sizes_known = all(shape.is_fully_defined for shape in self.region.input_shapes)
        return (sizes_known or self.region.in_loop) and self.seconds < NAMED_HOPS * HOP_NS * 1e-9

    def report(self) -> RegionReport:
        nodes = self.region.graph.nodes
        names = [tuple(nodes[i].output(k).name for i, k in ends) for ends in (self.region.inputs, self.region.outputs)]
        return RegionReport(
            self.delegate.name, _name_like(self), self.region.ops, names[0], names[1], self.seconds, self.worth_it
        )


class Delegation:
    """Manages the delegates of one session, and the regions that they run.

    Args:
        kernel_of: returns the kernel of a node of a plan's graph.
        device_of: returns the device that a node runs on.

    Attributes:
        missing: names of delegates that are not installed and may be suggested.
    """

    def __init__(
        self,
        config: SessionConfig,
        budget: LoopBudget,
        kernel_of: Callable[[WorkingGraph, Node], BuiltKernel],
        device_of: Callable[[WorkingGraph, Node], Device],
    ) -> None:
        self._budget = budget
        self._kernel_of = kernel_of
        self._device_of = device_of
        chosen = config.delegates
        self.by_itself = chosen == "auto"
        self.missing: tuple[str, ...] = ()
        self._names: tuple[str, ...] = tuple(delegate_names()) if self.by_itself else tuple(chosen)
        # Threads in which calls wait for delegates; they start with the first call.
        self._pool = WorkerPool(IN_FLIGHT, config.intra_op_threads)
        self._threads = self._pool.statistics().intra_op_threads
        self._slots: asyncio.Semaphore | None = None
        self._held: weakref.WeakSet[CompiledRegion] = weakref.WeakSet()  # the regions of all plans that exist

    def stop(self) -> None:
        """Keep regions out of all plans from now on."""
        self._names = ()

    @property
    def named(self) -> bool:
        """True if the config names delegates, so that plans have regions from the first run."""
        return bool(self._names) and not self.by_itself

    def look_at(self) -> int:
        """Return the number of the run at which to look for a plan's regions; 0 for never."""
        return LOOK_AT if self.by_itself and self._names else 0

    def may_be_worth(self, graph: WorkingGraph, plan: Plan) -> bool:
        """True if regions could be worth it if delegates knew all ops; always True for large plans."""
        if plan.num_nodes >= self._budget.plan_nodes:
            return True
        pure = [node for node in plan.nodes if not node.touches_state and node.kind <= Kind.KERNEL]
        return sum(_expected_ns(graph, node.node, node) for node in pure) >= WORTH_HOPS * HOP_NS

    def prepare(self) -> bool:
        """Return True if a delegate is installed.  Call it in a thread, as it looks at installed packages."""
        names = self._names
        if self.by_itself and names and not any(map(installed_delegate, names)):
            self.missing = tuple([name for name in names if name not in _suggested])
            self._names = names = ()
        return bool(names)

    def candidates(self, working: WorkingGraph, signature: PlanKey) -> list[Candidate]:
        """Return the regions of a graph after `passes_before_regions`.  Call it in a thread.

        Raises:
            FailedPreconditionError: a delegate that the config names is not installed.
        """
        names = [name for name in self._names if not self.by_itself or installed_delegate(name)]
        return self._regions_for(map(make_delegate, names), working, signature)

    def suggest(self, working: WorkingGraph, signature: PlanKey) -> None:
        """Log, once in a process, which extra to install because its delegate could run much of a graph.

        Args:
            working: the graph after `passes_before_regions`.
        """
        for name in self.missing:
            delegate = uninstalled_delegate(name)
            regions = [] if delegate is None else self._regions_for([delegate], working, signature)
            seconds = sum(region.seconds for region in regions if region.worth_it)
            if seconds >= WORTH_INSTALLING and name not in _suggested:
                _suggested.add(name)
                logger.warning(
                    "The delegate '%s' could run nodes that take about %.0f ms of each run, often in half that time "
                    "or less: pip install 'aexec[%s]'. SessionConfig(delegates=()) keeps to NumPy without this line",
                    name,
                    seconds * 1e3,
                    name,
                )

    def _regions_for(self, delegates: Iterable[Delegate], working: WorkingGraph, signature: PlanKey) -> list[Candidate]:
        found: list[Candidate] = []
        taken: set[int] = set()
        for delegate in delegates:

            def supports(node: Node, used: Any, delegate: Delegate = delegate) -> bool:
                return (
                    node.id not in taken
                    and self._device_of(working, node).type == delegate.device_type
                    and not delegate.refusal(working, node, used)
                )

            def place_of(node: Node) -> str:
                return self._device_of(working, node).name

            for region in find_regions(working, signature.fetches, supports, place_of, may_wait):
                if len(region.nodes) >= MIN_NODES:
                    taken.update(node.id for node in region.nodes)
                    found.append(self._candidate(working, delegate, region))
        return found

    def _candidate(self, working: WorkingGraph, delegate: Delegate, region: Region) -> Candidate:
        view = _RegionView(region)
        kernels: dict[int, BuiltKernel] = {}

        def kernel_of(node: Node) -> BuiltKernel:
            kernel = kernels[node.id] = self._kernel_of(working, working.nodes[node.id])
            return kernel

        ordinary = build_plan(view, PlanKey(region.inputs, region.outputs), kernel_of, self._budget)
        seconds = sum(_expected_ns(working, node, kernels[node.id]) for node in region.nodes) * 1e-9
        return Candidate(delegate, region, ordinary, seconds)

    def wanted(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates to compile, within `MAX_BYTES`; with "auto" only those that are worth it."""
        wanted, held = [], sum(region.memory for region in self._held)
        for candidate in candidates:
            held += candidate.region.constant_bytes
            if held > MAX_BYTES:
                logger.info("regions of more than %d bytes are left to their nodes", MAX_BYTES)
                break
            if candidate.worth_it or not (self.by_itself or candidate.too_small):
                wanted.append(candidate)
        return wanted

    def due(self, wanted: Sequence[Candidate]) -> int:
        """Return the number of the run by which a plan's runs have cost enough to compile these."""
        compiling = sum(c.delegate.compile_seconds(c.region) for c in wanted)
        return math.ceil(COMPILE_AT * compiling / sum(c.seconds for c in wanted))

    async def compile(self, candidate: Candidate) -> CompiledRegion | None:
        """Compile a region in a thread; return None, and log why, if its delegate refuses it."""
        region, delegate = candidate.region, candidate.delegate
        try:
            compiled = await run_in_thread(delegate.compile, region, self._threads, on_cancel=OnCancel.WAIT)
            self._held.add(compiled)
            return compiled
        except RefusedError as refusal:
            reason = str(refusal)
        except Exception as error:
            # A failure of the library is not fatal, as the nodes can run without it.
            reason = f"{type(error).__name__}: {error}"
        logger.warning(
            "%s refuses a region of %s, whose nodes run instead: %s", delegate.name, region.summary(), reason
        )
        return None

    def put(
        self,
        working: WorkingGraph,
        signature: PlanKey,
        compiled: Sequence[tuple[Candidate, CompiledRegion]],
        on_lost: Callable[[], object],
    ) -> tuple[PlanKey, dict[int, BuiltKernel]]:
        """Replace regions by nodes; return the changed signature, and the kernels of these nodes.

        Args:
            on_lost: called when the nodes of one of these regions run it from now on, because its delegate fails or is
                slower.
        """
        regions = [(candidate.region, f"/{candidate.delegate.name}") for candidate, _ in compiled]
        inner, nodes = put_regions(working, signature, regions, _OP)
        kernels: dict[int, BuiltKernel] = {}
        for (candidate, region), node in zip(compiled, nodes, strict=True):
            call = _RegionCall(self, candidate, region, node.name, on_lost)
            device = self._device_of(working, node).name
            kernels[node.id] = BuiltKernel(call.compute, wants_context=True, cost=0.0, device=device)
        return inner, kernels

    # Calls

    async def infer(self, region: CompiledRegion, inputs: Sequence[Any]) -> Sequence[Any]:
        """Call a region and return its outputs.  Cancelling this cancels the call; only `close` awaits its end.

        Raises:
            RefusedError: the delegate cannot take such inputs.
            Exception: the delegate failed.
        """
        if self._slots is None:
            self._slots = asyncio.Semaphore(IN_FLIGHT)
        slots = self._slots
        await slots.acquire()
        try:
            inference = region.start(inputs)
        except BaseException:
            slots.release()
            raise
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Sequence[Any]] = loop.create_future()

        def ended(job: Future[Any]) -> None:
            slots.release()
            _hand_over(job, waiter)

        self._pool.submit(loop, inference.wait, (), ended)
        return await _outcome(waiter, inference)

    async def close(self) -> None:
        """Wait until no delegate works for the session."""
        if self._slots is not None:
            for _ in range(IN_FLIGHT):
                await self._slots.acquire()
            await self._pool.close()


def _hand_over(job: Future[Any], waiter: asyncio.Future[Any]) -> None:
    error = job.exception()
    result = [None] if error is not None else job.result()
    outputs = result[0]
    result.clear()
    if waiter.done():
        return
    if error is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(outputs)


async def _outcome(waiter: asyncio.Future[Sequence[Any]], inference: Inference) -> Sequence[Any]:
    try:
        return await waiter
    except asyncio.CancelledError:
        inference.cancel()
        raise
    finally:
        del waiter  # it may hold an error whose traceback refers to this frame


class _RegionCall:
    """The kernel of a region's node.

    If the session chooses by itself, some of the first calls are measured, and the nodes run the region from then on if
    they are faster.
    """

    def __init__(
        self,
        delegation: Delegation,
        candidate: Candidate,
        region: CompiledRegion,
        name: str,
        on_lost: Callable[[], object],
    ) -> None:
        self._delegation = delegation
        self._on_lost = on_lost
        self._trial = RegionTrial() if delegation.by_itself else None
        self._begun = self._in_flight = 0
        self._ordinary = candidate.ordinary
        self._delegate = candidate.delegate.name
        self._region: CompiledRegion | None = region
        self._name = name
        self._failed = 0

    async def compute(self, context: OpKernelContext, *inputs: Any) -> Any:
        """Return the region's outputs, from its delegate or else from its nodes."""
        outputs = await self._outputs(context, inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    async def _outputs(self, context: OpKernelContext, inputs: Sequence[Any]) -> Sequence[Any]:
        region, trial = self._region, self._trial
        if region is None:
            return await self._by_nodes(context, inputs)
        if trial is None or not trial.is_about(inputs):
            return (await self._by_delegate(region, context, inputs))[0]
        self._begun += 1
        self._in_flight += 1
        call, alone = self._begun, self._in_flight == 1
        start = monotonic()
        try:
            if trial.delegate_is_next:
                outputs, as_asked = await self._by_delegate(region, context, inputs)
            else:
                outputs, as_asked = await self._by_nodes(context, inputs), True
        finally:
            self._in_flight -= 1
        if as_asked and alone and call == self._begun:  # no other call has slowed it down
            trial.took(monotonic() - start)
            if trial.ended:
                self._choose(trial)
        return outputs

    def _choose(self, trial: RegionTrial) -> None:
        self._trial = None
        if trial.nodes_are_faster:
            delegate, nodes = (1e3 * seconds for seconds in trial.times)
            words = "%s takes %.2f ms for %s, and its nodes %.2f ms: they run it from now on"
            logger.info(words, self._delegate, delegate, self._name, nodes)
            self._give_up()
        else:
            self._on_lost = _ignore  # it keeps the plan without regions

    def _give_up(self) -> None:
        if self._region is not None:
            self._region = None
            self._on_lost()

    async def _by_delegate(
        self, region: CompiledRegion, context: OpKernelContext, inputs: Sequence[Any]
    ) -> tuple[Sequence[Any], bool]:
        """Return the region's outputs, and True if they are the delegate's, False if the nodes had to help."""
        try:
            outputs = await self._delegation.infer(region, await _contiguous(context, inputs))
        except RefusedError:
            return await self._by_nodes(context, inputs), False
        except Exception as error:
            # Mostly the inputs are wrong: the nodes raise an error that says what is wrong, and where.
            outputs = await self._by_nodes(context, inputs)
            self._count_failure(error)
            return outputs, False
        self._failed = 0
        return outputs, True

    async def _by_nodes(self, context: OpKernelContext, inputs: Sequence[Any]) -> Sequence[Any]:
        return await run_nested(context, self._ordinary, inputs, self._name)

    def _count_failure(self, error: Exception) -> None:
        self._failed += 1
        if self._failed == GIVE_UP_AT:
            logger.warning("%s failed %d times in a row on %s: %s", self._delegate, self._failed, self._name, error)
            self._give_up()


def _ignore() -> None:
    pass


async def _contiguous(context: OpKernelContext, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs as C-contiguous arrays; large ones are copied in a thread."""
    copied = sum(x.nbytes for x in inputs if isinstance(x, np.ndarray) and not x.flags.c_contiguous)
    if not copied or current_budget().allows(copied * COPY_NS):
        return _as_contiguous(inputs)
    arrays: list[Any] = await context.params.worker_pool.run(_as_contiguous, inputs)
    return arrays


def _as_contiguous(inputs: Sequence[Any]) -> list[Any]:
    return [np.asarray(x, order="C") for x in inputs]


def _name_like(candidate: Candidate) -> str:
    return f"{candidate.region.nodes[-1].name}/{candidate.delegate.name}"


class _RegionView:
    """The graph of a region's nodes alone; its only other nodes are the inputs, which are fed."""

    def __init__(self, region: Region) -> None:
        graph = region.graph
        own = {node.id for node in region.nodes}
        self.nodes: dict[int, Node] = {i: graph.nodes[i] for i, _ in region.inputs}
        self.nodes.update((node.id, node) for node in region.constants)
        for node in region.nodes:
            inside = tuple([i for i in node.control_edges if i in own])
            self.nodes[node.id] = node.rewired(self, node.in_edges, inside)
        self.versions: proto.VersionDef = graph.versions
        self.library: FunctionLibrary = graph.library

    def __contains__(self, name: object) -> bool:
        return any(node.name == name for node in self.nodes.values())

    def find(self, name: str) -> Node | None:
        return next((node for node in self.nodes.values() if node.name == name), None)


def _expected_ns(graph: WorkingGraph, node: Node, called: BuiltKernel | PlanNode) -> float:
    """Return the estimated ns of a call with arrays of the known shapes, as corrected by measured calls."""
    inputs = [
        _array_like(graph, endpoint, dtype) for endpoint, dtype in zip(node.in_edges, node.input_types, strict=True)
    ]
    expected = usual_ns(called.cost, called.estimate, inputs)
    return expected if expected < math.inf else 0.0  # the cost depends on values, which are unknown here


def _array_like(graph: WorkingGraph, endpoint: Endpoint, dtype: DType) -> Any:
    """Return an array of an endpoint's shape that takes no memory."""
    constant = graph.constant(endpoint)
    if constant is not None:
        return constant
    dims = graph.shape(endpoint).dims or ()
    return np.broadcast_to(np.zeros((), dtype.np), [1 if d is None else d for d in dims])
