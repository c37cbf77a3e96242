"""Calling functions of the graph's library from kernels (If, While, PartitionedCall, …).

A call runs the function's body as an execution of its own inside the caller's step:
it shares the step's resources, threads and statistics, and is cancelled with it.
Next to read: `aexec/kernels/functional_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from aexec import proto
from aexec.framework import attr_value, errors
from aexec.framework.attr_value import NameAttrList
from aexec.framework.cancellation import CancellationManager
from aexec.framework.op_kernel import BuiltKernel, OpKernelConstruction, OpKernelContext
from aexec.graph.function_body import FunctionBody, instantiate
from aexec.graph.function_library import FunctionLibrary
from aexec.graph.graph import Graph, Node
from aexec.runtime.plan import Plan, Signature, build_plan

__all__ = ["Function", "FunctionRuntime", "call_kernel"]

# Calls nested deeper than this are refused: each level holds frames of the Python stack and a task.
MAX_CALL_DEPTH = 100

# How many calls the running kernel is inside of.  The task of a body's kernel inherits it.
_depth: ContextVar[int] = ContextVar("aexec_call_depth", default=0)

KernelMaker = Callable[[Graph, Node, "FunctionRuntime"], BuiltKernel]


class Function:
    """One instantiated function; its body is built at the first call, so that it may be recursive."""

    def __init__(self, runtime: FunctionRuntime, name: str, attrs: Mapping[str, Any]) -> None:
        self.name = name
        self._runtime = runtime
        self._attrs = attrs
        self._body: FunctionBody | None = None
        self._plan: Plan | None = None

    @property
    def body(self) -> FunctionBody:
        """The body as a graph.  Raises what `function_body.instantiate` raises."""
        if self._body is None:
            runtime = self._runtime
            self._body = instantiate(runtime.library, self.name, self._attrs, runtime.versions)
        return self._body

    async def __call__(self, context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the body on `inputs`; returns its results.

        Raises:
            InvalidArgumentError: the number of inputs is not that of the signature.
            ResourceExhaustedError: calls are nested too deeply.
            OpError: the first error of the body.
        """
        depth = _depth.get()
        if depth == MAX_CALL_DEPTH:
            raise errors.ResourceExhaustedError(
                f"Function {self.name}: calls are nested more than {MAX_CALL_DEPTH} deep"
            )
        if self._plan is None:
            self._plan = self._build()
        expected = len(self._plan.args)
        if len(inputs) != expected:
            raise errors.InvalidArgumentError(
                f"Function {self.name} expects {expected} arguments, but {len(inputs)} is provided"
            )
        cancellation = CancellationManager(context.cancellation)
        token = _depth.set(depth + 1)
        try:
            executor = context.step.make_executor(self._plan, context.step, cancellation)
            return tuple(await executor.run(inputs))
        finally:
            _depth.reset(token)
            cancellation.close()

    def _build(self) -> Plan:
        body = self.body
        signature = Signature(tuple((i, 0) for i in body.arguments), body.results, body.side_effects)
        return build_plan(body.graph, signature, self._kernel)

    def _kernel(self, node: Node) -> BuiltKernel:
        return self._runtime.make_kernel(self.body.graph, node, self._runtime)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class FunctionRuntime:
    """The functions of one session, instantiated on demand and remembered by name and attrs."""

    def __init__(self, library: FunctionLibrary, versions: proto.VersionDef, make_kernel: KernelMaker) -> None:
        self.library = library
        self.versions = versions
        self.make_kernel = make_kernel
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
        if found is None:
            found = self._functions[key] = Function(self, name, attrs)
        return found


def call_kernel(c: OpKernelConstruction) -> BuiltKernel:
    """The kernel of a node whose op is the name of a function."""
    signature = {attr.name for attr in c.op_def.attrs}
    function = c.functions.function(c.op, {k: v for k, v in c.attrs.items() if k in signature})

    async def compute(context: OpKernelContext, *inputs: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = await function(context, inputs)
        return results

    return BuiltKernel(compute, wants_context=True, cost=0.0)
