"""Calling functions of the graph's library from kernels (If, While, PartitionedCall, …).

A call executes the function's body inside the caller's step: it shares the step's resources, threads and statistics,
and is cancelled with it.  A body on devices with memory of their own has one plan for each combination of places of its
arguments: the memory of the calling node, the memory in which the previous call left them, or the device of a resource.
Next to read: `aexec/kernels/control_flow/functional_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from aexec import proto
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
from aexec.graph.function_body import FunctionBody
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.runtime.functions.function_plans import BodyPlan, BodyPlanner, Places, places_by_type
from aexec.runtime.functions.functions import Function, FunctionRuntime
from aexec.runtime.interpreter.executor import Executor, StepEnvironment
from aexec.runtime.interpreter.partitioned_execution import executor_of
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.threads.shared_work import SharedWork

__all__ = ["MAX_CALL_DEPTH", "DeviceFunctions", "call_depth", "call_kernel", "nested_results", "run_nested"]

T = TypeVar("T")

# Deeper nested calls are refused, because each level takes frames of the Python stack and a task.
MAX_CALL_DEPTH = 100

# The call depth of the running kernel.  The task of a body's kernel inherits it.
_depth: ContextVar[int] = ContextVar("aexec_call_depth", default=0)


def call_depth() -> int:
    """The number of nested function calls around the running kernel or execution."""
    return _depth.get()


class DeviceFunctions:
    """The functions of a session as the kernels of one device call them; see `FunctionLibraryRuntime`.

    Args:
        planner: lays out the bodies.
        device: its memory has the arguments and gets the results, and nodes of bodies that ask for no device run on it.
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
        """The function that a name or an attr of kind func stands for; one object for each way to call it.

        Raises:
            as `FunctionLibraryRuntime.function` does.
        """
        function = self._runtime.function(reference, attrs)
        runs_on = self._planner.target(target) if target else self._device
        key = (self._device.name, runs_on.name, results)
        found: CalledFunction | None = function.called.get(key)
        # A thread that builds kernels may make another one at the same time: the first is kept.
        return found or function.called.setdefault(
            key, CalledFunction(function, self._planner, self._device, runs_on, results)
        )

    def gradient(self, reference: NameAttrList) -> CalledFunction:
        """The function that computes the gradient of one.  Raises as `FunctionLibraryRuntime.gradient` does."""
        return self.function(self._runtime.gradient_of(reference))

    def derived(self, key: Hashable, make: Callable[[FunctionLibrary, proto.VersionDef], T]) -> T:
        """A function that is made from another one.  As `FunctionLibraryRuntime.derived`."""
        return self._runtime.derived(key, make)


class CalledFunction:
    """A function in the form that nodes of one device call.

    Args:
        caller: the device whose memory has the arguments and gets the results.
        runs_on: the device of nodes of the body that ask for none.

    Attributes:
        plan: the body's plan once it is built; None if it depends on where resources are.
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
        self._is_slow = False  # building it took too long for the loop, so threads do it

    @property
    def types(self) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """Types of the flattened arguments and results.  Raises as `Function.types`."""
        return self._function.types

    def small_body(self, most_nodes: int) -> FunctionBody | None:
        """The body as a graph, None if it has more nodes.  Raises as `Function.body`."""
        return None if self._function.size > most_nodes else self._function.body

    async def __call__(self, context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the body on `inputs`, which are of the types that `types` says; return its results.

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
                # Many calls may begin in one turn of the loop, and build their bodies one after another.
                environment = StepEnvironment.of(context)
                await environment.slices.take_turn(environment.loop)
                body = self._prepared(places) or await self._built(places)
        plan = body.plan
        if not plan.num_nodes:
            await _give_way(StepEnvironment.of(context))
        results = await self.results(run_nested(context, plan, inputs, self.name), depth + 1)
        return results if body.results is None else PlacedValues.of(results, body.results)

    async def results(self, running: Awaitable[list[Any]], depth: int) -> tuple[Any, ...]:
        """Await the results of a running call, at this depth."""
        token = _depth.set(depth)
        try:
            return tuple(await running)
        finally:
            _depth.reset(token)

    async def deliver(self, context: OpKernelContext, values: Sequence[Any]) -> tuple[Any, ...]:
        """Copy results, or arguments, from where they are to the memory of the calling node's outputs.

        Raises:
            OpError: making or copying a value failed.
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

    # The memory that arguments are in, and the body's plan for it

    def prepare(self) -> Plan | PartitionedPlan | None:
        """The body's plan, built now if it is small.  Raises what building it raises.

        Returns:
            The plan; None if the body is large or takes long to build, or depends on where resources are.
        """
        if self.plan is None and self._depends_on() == ():
            self._prepared(places_by_type(self.types[0], self._caller))
        return self.plan

    def _depends_on(self) -> Sequence[int]:
        """Positions of arguments whose place differs from call to call: resources, whose handles say where they are."""
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
        """The body for arguments in these places, built now if that is quick; else None."""
        body = self._bodies.get(places)
        runtime = self._function.runtime
        if body is None and not self._is_slow and self._function.size < runtime.budget.plan_nodes:
            try:
                body = self._keep(places, runtime.on_the_loop(lambda: self._build(places)))
            except NeedsThreadError:
                self._is_slow = True
        return body

    async def _built(self, places: Places) -> BodyPlan:
        """Build a large body in a thread: once for all waiting calls, and only as long as one waits."""
        building = self._building.get(places)
        if building is None or building.called_off:
            building = self._function.runtime.beside_the_loop(lambda: self._build(places))
            self._building[places] = building
            building.task.add_done_callback(partial(self._was_built, places, building))
        try:
            return await building.wait()
        finally:
            del building  # it may hold an error whose traceback refers to this frame

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
        """Release its plans; it must not be called any more."""
        self.plan = self._always = None
        for body in self._bodies.values():
            body.plan.take_apart()
            body.graph.take_apart()
        self._bodies.clear()

    def __repr__(self) -> str:
        return f"<CalledFunction {self.name} from {self._caller.name}>"


def _device_of(handle: Any) -> str:
    """The name of the device that a resource is on; "" if it is unknown."""
    try:
        return handle_from_tensor(handle).device
    except errors.OpError:
        return ""


async def _copied(context: OpKernelContext, copy: Future[Any]) -> Any:
    """Await a copy to the host; return the value."""
    there: asyncio.Future[Any] = context.loop.create_future()
    complete_from(copy, there)
    return await wait(context.cancellation, there, "Run call was cancelled")


async def run_nested(
    context: OpKernelContext, plan: Plan | PartitionedPlan, inputs: Sequence[Any], name: str
) -> list[Any]:
    """Run a plan inside the step of a kernel; `name` is shown in reports.  Returns the fetched values.

    Raises:
        OpError: the first error of the plan.
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
    """Await a running execution inside a step, then close its cancellation manager; return the fetched values."""
    environment.calls[executor] = name
    try:
        return await running
    finally:
        del environment.calls[executor]
        cancellation.close()


async def _give_way(environment: StepEnvironment) -> None:
    """Give way to the event loop if the slice is over, as an execution without nodes never does that itself."""
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
