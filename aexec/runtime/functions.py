"""Calling functions of the graph's library from kernels (If, While, PartitionedCall, …).

A call runs the function's body as an execution of its own inside the caller's step:
it shares the step's resources, threads and statistics, and is cancelled with it.
Next to read: `aexec/kernels/control_flow/functional_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from aexec import proto
from aexec.framework import attr_value, errors
from aexec.framework.attr_value import NameAttrList
from aexec.framework.cancellation import CancellationManager
from aexec.framework.dtypes import DType
from aexec.framework.functional_call import CallKind, FunctionalCall, Running
from aexec.framework.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.loop_budget import LoopBudget
from aexec.framework.op_kernel import BuiltKernel, OpKernelConstruction, OpKernelContext
from aexec.graph.calls import called_function, signature_attrs
from aexec.graph.function_body import FunctionBody, instantiate
from aexec.graph.function_library import FunctionLibrary
from aexec.graph.node import GraphView, Node
from aexec.graph.passes import WorkingGraph, optimize
from aexec.runtime.executor import Executor, StepEnvironment
from aexec.runtime.plan import Plan, PlanKey, build_plan

__all__ = [
    "MAX_CALL_DEPTH",
    "Function",
    "FunctionRuntime",
    "call_depth",
    "call_kernel",
    "nested_results",
    "run_nested",
]

# Calls nested deeper than this are refused: each level holds frames of the Python stack and a task.
MAX_CALL_DEPTH = 100

# How many calls the running kernel is inside of.  The task of a body's kernel inherits it.
_depth: ContextVar[int] = ContextVar("aexec_call_depth", default=0)


def call_depth() -> int:
    """How many calls of functions the running kernel, or execution, is inside of."""
    return _depth.get()


KernelMaker = Callable[[GraphView, Node, "FunctionRuntime"], BuiltKernel]
# Runs a function in a thread.
BesideTheLoop = Callable[[Callable[[], Plan]], asyncio.Future[Plan]]


class Function:
    """One instantiated function; its body is built at the first call, so that it may be recursive.

    Attributes:
        plan: the body's, once it is built.
    """

    def __init__(self, runtime: FunctionRuntime, name: str, attrs: Mapping[str, Any]) -> None:
        self.name = name
        self._runtime = runtime
        self._attrs = attrs
        self._body: FunctionBody | None = None
        self.plan: Plan | None = None
        self._building: asyncio.Future[Plan] | None = None
        self._kernels: dict[int, BuiltKernel] = {}

    @property
    def types(self) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """Types of the flattened arguments and results.  Needs no body.

        Raises:
            InvalidArgumentError: an attr that they depend on is not given.
        """
        signature = self._runtime.library.op_def(self.name)
        assert signature is not None
        attrs = {**signature.defaults, **self._attrs}
        missing = [attr.name for attr in signature.attrs if attr.name not in attrs]
        if missing:
            raise errors.InvalidArgumentError(f"Attr {missing[0]} of function '{self.name}' is not given")
        return signature.input_types(attrs), signature.output_types(attrs)

    @property
    def body(self) -> FunctionBody:
        """The body as a graph.  Raises what `function_body.instantiate` raises."""
        if self._body is None:
            runtime = self._runtime
            self._body = instantiate(runtime.library, self.name, self._attrs, runtime.versions)
        return self._body

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
        plan = self.plan or await self._built_plan()
        if not plan.num_nodes:
            await _give_way(StepEnvironment.of(context))
        return await self.results(run_nested(context, plan, inputs, self.name), depth + 1)

    async def results(self, running: Awaitable[list[Any]], depth: int) -> tuple[Any, ...]:
        """What a call gives that runs, so deep."""
        token = _depth.set(depth)
        try:
            return tuple(await running)
        finally:
            _depth.reset(token)

    def prepare(self) -> Plan | None:
        """The body's plan, which is built now if it is small; None if it is not.  Raises what building it raises."""
        small = len(self._runtime.library.get(self.name).node_def) < self._runtime.budget.plan_nodes
        if self.plan is None and small:
            with suppress(NeedsThreadError):
                self.plan = self._build()
        return self.plan

    async def _built_plan(self) -> Plan:
        """The body's plan; a large one is built once, in a thread, however many calls wait for it."""
        plan = self.prepare()
        if plan is not None:
            return plan
        if self._building is None:
            self._building = self._runtime.beside_the_loop(self._build)
            self._building.add_done_callback(self._was_built)
        return await asyncio.shield(self._building)

    def _was_built(self, building: asyncio.Future[Plan]) -> None:
        self._building = None
        if not building.cancelled() and building.exception() is None:
            self.plan = building.result()

    def _build(self) -> Plan:
        body = self.body
        signature = PlanKey(tuple((i, 0) for i in body.arguments), body.results, body.side_effects)
        place = self._runtime.place
        working = WorkingGraph(
            body.graph, signature.feeds, signature.fetches, signature.targets, lambda _, node: place(node)
        )
        # Shapes inside a body are those of its callers, so nothing is known to be small enough to be folded.
        optimize(working, self._runtime.graph_passes, lambda node, inputs: None, self._inlined_callee)
        return build_plan(working, signature, lambda node: self._kernel_of_working(working, node), self._runtime.budget)

    def _inlined_callee(self, node: Node) -> Function | None:
        found = self._runtime.callee(node)
        return None if found is self else found

    def _kernel_of_working(self, working: WorkingGraph, node: Node) -> BuiltKernel:
        """The kernel of a node that graph passes may have made."""
        if working.is_original(node):
            return self.kernel(node)
        if node.id in working.callees:
            function, in_body = working.callees[node.id]
            kernel: BuiltKernel = function.kernel(in_body)
            return kernel
        return self._runtime.make_kernel(self.body.graph, node, self._runtime)

    def kernel(self, node: Node) -> BuiltKernel:
        """The kernel of a node of the body: the same object however the function is called, as it may have state."""
        kernel = self._kernels.get(node.id)
        if kernel is None:
            made = self._runtime.make_kernel(self.body.graph, node, self._runtime)
            kernel = self._kernels.setdefault(node.id, made)
        return kernel

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class FunctionRuntime:
    """The functions of one session, instantiated on demand and remembered by name and attrs.

    Args:
        make_kernel: builds the kernel of a body's node.
        place: the full name of the device that it is for.
        beside_the_loop: starts building a large body in a thread, and sees to the thread's end.
        budget: of the session.
        graph_passes: names of those that rewrite the bodies.
    """

    def __init__(
        self,
        library: FunctionLibrary,
        versions: proto.VersionDef,
        make_kernel: KernelMaker,
        place: Callable[[Node], str],
        beside_the_loop: BesideTheLoop,
        budget: LoopBudget,
        graph_passes: Collection[str] = (),
    ) -> None:
        self.library = library
        self.versions = versions
        self.make_kernel = make_kernel
        self.place = place
        self.beside_the_loop = beside_the_loop
        self.budget = budget
        self.graph_passes = graph_passes
        self._functions: dict[tuple[str, Any], Function] = {}

    def function(self, reference: NameAttrList | str, attrs: Mapping[str, Any] | None = None) -> Function:
        """The function that an attr of kind func (or a node's op) names.

        Raises:
            InvalidArgumentError: the library has no such function.
        """
        if isinstance(reference, NameAttrList):
            name, attrs = reference.name, reference.attrs
        else:
            name = reference
        attrs = attrs or {}
        self.library.get(name)
        key = (name, attr_value.hashable(NameAttrList(name, attrs)))
        found = self._functions.get(key)
        # Kernels may be built in a thread, too: of two that make a function, one is kept.
        return found or self._functions.setdefault(key, Function(self, name, attrs))

    def callee(self, node: Node) -> Function | None:
        """The function that a node calls, if its body may stand in the node's place; else None."""
        called = called_function(node, self.library)
        if called is None:
            return None
        definition = self.library.find(called.name)
        if definition is None or ("_noinline" in definition.attr and definition.attr["_noinline"].b):
            return None
        try:
            function = self.function(called.name, called.attrs)
            types = tuple(node.input_types), tuple(node.output_types)
            if function.types != types or any(t.is_ref for t in (*types[0], *types[1])):
                return None
            if function._body is None and len(definition.node_def) >= self.budget.plan_nodes and on_event_loop():
                return None  # the first call builds it in a thread
            assert function.body  # built here, where an error is not one of the plan
        except errors.OpError:
            return None  # it is said when the node is built or run
        return function


async def run_nested(context: OpKernelContext, plan: Plan, inputs: Sequence[Any], name: str) -> list[Any]:
    """Run a plan inside the step that a kernel runs in, as what is called `name`; returns what it fetches.

    Raises:
        OpError: its first error.
    """
    environment = StepEnvironment.of(context)
    cancellation = CancellationManager(context.cancellation)
    executor = environment.make_executor(plan, environment, cancellation)
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
