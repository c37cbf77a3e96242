"""Calling functions of the graph's library from kernels (If, While, PartitionedCall, …).

A call runs the function's body as an execution of its own inside the caller's step: it shares the step's resources,
threads and statistics, and is cancelled with it.  A body that runs on devices with memory of their own is laid out
once for each set of places that its arguments come from: the calling node's memory, that in which the call before
left them, and for a resource the device that has it.
Next to read: `aexec/kernels/control_flow/functional_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from time import perf_counter
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.call_results import PlacedValues, Results
from aexec.framework.device_contract.device import Device, copy_between
from aexec.framework.dtypes import DType, resource
from aexec.framework.kernel_contract.functional_call import CallKind, FunctionalCall, Running
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.framework.waiting.cancellation import CancellationManager, wait
from aexec.framework.waiting.futures import complete_from
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.calls import signature_attrs
from aexec.runtime.functions.function_plans import BodyPlan, BodyPlanner, Places, places_by_type
from aexec.runtime.functions.functions import Function, FunctionRuntime
from aexec.runtime.interpreter.executor import Executor, StepEnvironment
from aexec.runtime.interpreter.partitioned_execution import executor_of
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.threads.shared_work import SharedWork

__all__ = ["MAX_CALL_DEPTH", "DeviceFunctions", "call_depth", "call_kernel", "nested_results", "run_nested"]

# Calls nested deeper than this are refused: each level holds frames of the Python stack and a task.
MAX_CALL_DEPTH = 100

# How many calls the running kernel is inside of.  The task of a body's kernel inherits it.
_depth: ContextVar[int] = ContextVar("aexec_call_depth", default=0)


def call_depth() -> int:
    """How many calls of functions the running kernel, or execution, is inside of."""
    return _depth.get()


class DeviceFunctions:
    """The functions of a session as the kernels of one device call them; see `FunctionLibraryRuntime`.

    Args:
        planner: lays out their bodies.
        device: in whose memory arguments are and results go, and where nodes of bodies run that ask for none.
    """

    def __init__(self, runtime: FunctionRuntime, planner: BodyPlanner, device: Device) -> None:
        self._runtime = runtime
        self._planner = planner
        self._device = device

    def function(
        self,
        reference: NameAttrList | str,
        attrs: Mapping[str, Any] | None = None,
        results: Results = Results.AS_OUTPUTS,
        target: str = "",
    ) -> CalledFunction:
        """The function that an attr of kind func, or a name, stands for: one object for all who call it in one way.

        Raises:
            as `FunctionLibraryRuntime.function` does.
        """
        function = self._runtime.function(reference, attrs)
        runs_on = self._planner.target(target) if target else self._device
        key = (self._device.name, runs_on.name, results)
        found: CalledFunction | None = function.called.get(key)
        # Kernels may be built in a thread, too: of two that make one, one is kept.
        return found or function.called.setdefault(
            key, CalledFunction(function, self._planner, self._device, runs_on, results)
        )

    def gradient(self, reference: NameAttrList) -> CalledFunction:
        """The function that computes the gradient of one.  Raises as `FunctionLibraryRuntime.gradient` does."""
        return self.function(self._runtime.gradient_of(reference))


class CalledFunction:
    """A function as nodes of one device call it.

    Args:
        caller: in whose memory arguments are and results go.
        runs_on: where nodes of the body run that ask for no device.

    Attributes:
        plan: the body's, once it is built; None if it depends on where resources are.
    """

    def __init__(
        self, function: Function, planner: BodyPlanner, caller: Device, runs_on: Device, results: Results
    ) -> None:
        self.name = function.name
        self.plan: Plan | PartitionedPlan | None = None
        self._function = function
        self._planner = planner
        self._caller = caller
        self._runs_on = runs_on
        self._wants = results
        self._always: BodyPlan | None = None
        self._bodies: dict[Places, BodyPlan] = {}
        self._building: dict[Places, SharedWork[BodyPlan]] = {}
        self._is_slow = False  # building it took longer than the loop can spare, so threads do it

    @property
    def types(self) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """Types of the flattened arguments and results.  Raises as `Function.types`."""
        return self._function.types

    async def __call__(self, context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the body on `inputs`, which are of the types that `types` says; returns its results.

        Raises:
            ResourceExhaustedError: calls are nested too deeply.
            OpError: the first error of the body.
        """
        depth = _depth.get()
        if depth == MAX_CALL_DEPTH:
            raise errors.ResourceExhaustedError(
                f"Function {self.name}: calls are nested more than {MAX_CALL_DEPTH} deep"
            )
        body = self._always
        if body is None or type(inputs) is PlacedValues:
            places = self._places_of(inputs)
            body = self._bodies.get(places)
            if body is None:
                # Many calls may begin in one turn of the loop: they build their bodies one after another.
                environment = StepEnvironment.of(context)
                await environment.slices.take_turn(environment.loop)
                body = self._prepared(places) or await self._built(places)
        plan = body.plan
        if not plan.num_nodes:
            await _give_way(StepEnvironment.of(context))
        results = await self.results(run_nested(context, plan, inputs, self.name), depth + 1)
        return results if body.results is None else PlacedValues.of(results, body.results)

    async def results(self, running: Awaitable[list[Any]], depth: int) -> tuple[Any, ...]:
        """What a call gives that runs, so deep."""
        token = _depth.set(depth)
        try:
            return tuple(await running)
        finally:
            _depth.reset(token)

    async def deliver(self, context: OpKernelContext, values: Sequence[Any]) -> tuple[Any, ...]:
        """Results that were left where they were made, or arguments, where the outputs of the calling node are.

        Raises:
            OpError: whatever failed to make one, or to copy it.
        """
        if not isinstance(values, PlacedValues):
            return tuple(values)
        wanted = places_by_type(self.types[1], self._caller)
        host = self._planner.host
        delivered = []
        for value, place, other in zip(values, values.places, wanted, strict=True):
            copied = copy_between(place or host, value, other or host, node=self.name)
            if isinstance(copied, Future):
                copied = await _copied(context, copied)
            delivered.append(copied)
        return tuple(delivered)

    # Where arguments are, and the body's plan for that

    def prepare(self) -> Plan | PartitionedPlan | None:
        """The body's plan, which is built now if it is small.  Raises what building it raises.

        Returns:
            None if it is large or takes long, or depends on where resources are.
        """
        if self.plan is None and self._depends_on() == ():
            self._prepared(places_by_type(self.types[0], self._caller))
        return self.plan

    def _depends_on(self) -> Sequence[int]:
        """Positions of arguments whose place is not the same in every call: resources are where their handles say."""
        if not self._planner.is_placed:
            return ()
        return tuple(i for i, dtype in enumerate(self.types[0]) if dtype is resource)

    def _places_of(self, inputs: Sequence[Any]) -> Places:
        if isinstance(inputs, PlacedValues):
            places = list(inputs.places)
        else:
            places = list(places_by_type(self.types[0], self._caller))
        for position in self._depends_on():
            places[position] = self._planner.device_named(_device_of(inputs[position]))
        return tuple(places)

    def _prepared(self, places: Places) -> BodyPlan | None:
        """The body for arguments in these places, which is built now if that is quick; None if it is not."""
        body = self._bodies.get(places)
        runtime = self._function.runtime
        if body is None and not self._is_slow and self._function.size < runtime.budget.plan_nodes:
            try:
                body = self._keep(places, runtime.on_the_loop(lambda: self._build(places)))
            except NeedsThreadError:
                self._is_slow = True
        return body

    async def _built(self, places: Places) -> BodyPlan:
        """A large body.  It is built once, in a thread, however many calls wait, and not if none does any more."""
        building = self._building.get(places)
        if building is None or building.called_off:
            building = self._function.runtime.beside_the_loop(lambda: self._build(places))
            self._building[places] = building
            building.task.add_done_callback(partial(self._was_built, places, building))
        try:
            return await building.wait()
        finally:
            del building  # it may hold an error, whose traceback holds this frame

    def _was_built(self, places: Places, building: SharedWork[BodyPlan], task: asyncio.Task[BodyPlan]) -> None:
        if self._building.get(places) is building:  # and not another one, because this was called off
            del self._building[places]
        if not task.cancelled() and task.exception() is None:
            self._keep(places, task.result())

    def _keep(self, places: Places, body: BodyPlan) -> BodyPlan:
        self._bodies[places] = body
        if places == places_by_type(self.types[0], self._caller) and not self._depends_on():
            self._always, self.plan = body, body.plan
        return body

    def _build(self, places: Places) -> BodyPlan:
        function = self._function
        by_type = places_by_type(function.types[1], self._caller)
        wanted = {
            Results.AS_OUTPUTS: by_type,
            Results.ON_HOST: tuple(None for _ in by_type),
            Results.WHERE_MADE: None,
        }[self._wants]
        body = self._planner.plan(function, self._runs_on, places, wanted)
        return body if body.results != by_type and wanted is None else BodyPlan(body.plan, body.graph, None)

    def take_apart(self) -> None:
        """Nobody calls it any more: let go of its plans."""
        self.plan = self._always = None
        for body in self._bodies.values():
            body.plan.take_apart()
            body.graph.take_apart()
        self._bodies.clear()

    def __repr__(self) -> str:
        return f"<CalledFunction {self.name} from {self._caller.name}>"


def _device_of(handle: Any) -> str:
    """Name of the device that a resource is on, "" if that is not known."""
    try:
        return handle_from_tensor(handle).device
    except errors.OpError:
        return ""


async def _copied(context: OpKernelContext, copy: Future[Any]) -> Any:
    """What is copied to the host."""
    there: asyncio.Future[Any] = context.loop.create_future()
    complete_from(copy, there)
    return await wait(context.cancellation, there, "Run call was cancelled")


async def run_nested(
    context: OpKernelContext, plan: Plan | PartitionedPlan, inputs: Sequence[Any], name: str
) -> list[Any]:
    """Run a plan inside the step that a kernel runs in, as what is called `name`; returns what it fetches.

    Raises:
        OpError: its first error.
    """
    environment = StepEnvironment.of(context)
    cancellation = CancellationManager(context.cancellation)
    if not isinstance(plan, PartitionedPlan):
        executor = executor_of(plan, environment, cancellation, caller=context.execution)
        return await nested_results(environment, executor, cancellation, executor.run(inputs), name)
    with environment.of_partitions(cancellation) as inner:
        executor = executor_of(plan, inner, cancellation, caller=context.execution)
        return await nested_results(environment, executor, cancellation, executor.run(inputs), name)


async def nested_results(
    environment: StepEnvironment,
    executor: Executor,
    cancellation: CancellationManager,
    running: Awaitable[list[Any]],
    name: str,
) -> list[Any]:
    """What an execution inside a step fetches, which runs, called `name`; closes its cancellation manager then."""
    environment.calls[executor] = name
    try:
        return await running
    finally:
        del environment.calls[executor]
        cancellation.close()


async def _give_way(environment: StepEnvironment) -> None:
    """Let others have the loop if the slice is over: an execution without nodes never does so itself."""
    if perf_counter() >= environment.slices.open(environment.loop):
        await asyncio.sleep(0)


def call_kernel(c: OpKernelConstruction) -> BuiltKernel:
    """The kernel of a node whose op is the name of a function."""
    function = c.functions.function(c.op, signature_attrs(c.op_def, c.attrs))

    async def compute(context: OpKernelContext, *inputs: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = await function(context, inputs)
        return results

    async def go_on(context: OpKernelContext, values: Sequence[Any], number: int, running: Running) -> Any:
        return await running

    calls = FunctionalCall(CallKind.CALL, (function,), go_on)
    return BuiltKernel(compute, wants_context=True, cost=0.0, calls=calls)
