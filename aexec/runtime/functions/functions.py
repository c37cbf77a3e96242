"""The functions of a session's graph: instantiated on demand, with the kernels of their bodies' nodes.

Next to read: `function_calls.py` for how kernels call them, and `function_plans.py` for how bodies are laid out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.waiting.long_work import empty, holding, steadily
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.calls import called_function
from aexec.graph.function_body import FunctionBody, instantiate
from aexec.graph.gradient_maker import gradient_function
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import GraphView, Node
from aexec.graph.ordering.variable_uses import FunctionEffects
from aexec.runtime.threads.shared_work import SharedWork

__all__ = ["OUTPUTS_AS_A_NODE", "Function", "FunctionRuntime"]

T = TypeVar("T")

# This many outputs of a node count as one node more, because one node may have a million.
OUTPUTS_AS_A_NODE = 16
# Most nodes of all functions that are made for gradients: a fixed number, plus some for each node of the library.
_MADE_NODES = 100_000
_MADE_FOR_EACH = 10
# Most nodes of all bodies, in the same way: a function has a body for each set of attrs that it is called with.
_BODY_NODES = 200_000
_BODIES_FOR_EACH = 10

# Builds the kernel of a node of a body on a device.
KernelMaker = Callable[[GraphView, Node, "FunctionRuntime", Device], BuiltKernel]
# Runs a function on the event loop.  Raises NeedsThreadError if that takes too long.
OnTheLoop = Callable[[Callable[[], Any]], Any]
# Runs a function in a thread, as long as anything waits for it.
BesideTheLoop = Callable[[Callable[[], Any]], SharedWork[Any]]


class Function:
    """One instantiated function.  Its body is built at its first use, so that functions may be recursive.

    Attributes:
        called: the ways in which kernels call it, see `function_calls.py`.
    """

    def __init__(self, runtime: FunctionRuntime, name: str, attrs: Mapping[str, Any]) -> None:
        self.name = name
        self.runtime = runtime
        self._attrs = attrs
        self._body: FunctionBody | None = None
        self._kernels: dict[tuple[int, str], BuiltKernel] = {}
        self.called: dict[Any, Any] = {}

    @property
    def types(self) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """The types of the flattened arguments and results; does not build the body.

        Raises:
            InvalidArgumentError: an attr that they depend on is not given.
        """
        signature = self.runtime.library.op_def(self.name)
        assert signature is not None
        attrs = {**signature.defaults, **self._attrs}
        missing = [attr.name for attr in signature.attrs if attr.name not in attrs]
        if missing:
            raise errors.InvalidArgumentError(f"Attr {missing[0]} of function '{self.name}' is not given")
        return signature.input_types(attrs), signature.output_types(attrs)

    @property
    def body(self) -> FunctionBody:
        """The body as a graph.

        Raises:
            ResourceExhaustedError: the bodies of all functions together have too many nodes.
            Also what `function_body.instantiate` raises.
        """
        if self._body is None:
            runtime = self.runtime
            size = self.size
            runtime.check_room(self.name, size)
            self._body = instantiate(runtime.library, self.name, self._attrs, runtime.versions)
            runtime.body_nodes += size
        return self._body

    @property
    def has_body(self) -> bool:
        """True if the body was built."""
        return self._body is not None

    @property
    def size(self) -> int:
        """The size of the definition in nodes; many outputs of a node count as further nodes."""
        definition = self.runtime.library.get(self.name)
        return len(definition.node_def) + _many_outputs(definition, self._attrs) // OUTPUTS_AS_A_NODE

    def kernel(self, node: Node, device: Device) -> BuiltKernel:
        """The kernel of a node of the body on a device.

        All calls there use the same object, because it may have state.
        """
        key = (node.id, device.name)
        kernel = self._kernels.get(key)
        if kernel is None:
            made = self.runtime.make_kernel(self.body.graph, node, self.runtime, device)
            kernel = self._kernels.setdefault(key, made)
        return kernel

    def take_apart(self) -> None:
        """Release its plans, kernels and body, which refer to one another; it must not be called any more."""
        for called in self.called.values():
            called.take_apart()
        self.called.clear()
        empty(self._kernels)
        self._body = None

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class FunctionRuntime:
    """The functions of one session, remembered by name and attrs.

    Args:
        make_kernel: builds the kernel of a body's node.
        on_the_loop: builds a small body.
        beside_the_loop: starts building a large body in a thread, and ends that thread.
        budget: the session's loop budget.

    Attributes:
        body_nodes: the number of nodes of all bodies built so far.
    """

    def __init__(
        self,
        library: FunctionLibrary,
        versions: proto.VersionDef,
        make_kernel: KernelMaker,
        on_the_loop: OnTheLoop,
        beside_the_loop: BesideTheLoop,
        budget: LoopBudget,
    ) -> None:
        # Gradients of functions are added to this overlay, not to the graph.
        self.library = library.overlay()
        self.versions = versions
        self.make_kernel = make_kernel
        self.on_the_loop = on_the_loop
        self.beside_the_loop = beside_the_loop
        self.budget = budget
        # The reads and updates of variables in functions; see `variable_order.py`.
        self.effects: FunctionEffects | None = None
        self.body_nodes = 0
        self._functions: dict[tuple[str, Any], Function] = {}
        self._derived: dict[Hashable, Any] = {}
        self._made_nodes = 0
        self._sent_nodes: int | None = None
        self._lock = threading.Lock()

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
        # A thread that builds kernels may make the function at the same time: the first is kept.
        return found or self._functions.setdefault(key, Function(self, name, attrs))

    def check_room(self, name: str, size: int) -> None:
        """Raise ResourceExhaustedError if another body of `size` nodes would be too much."""
        total = self.body_nodes + size
        if total > _BODY_NODES and total > (most := _BODY_NODES + _BODIES_FOR_EACH * self._num_nodes()):
            raise errors.ResourceExhaustedError(
                f"Function {name}: the bodies of functions, one for all attrs that each is called with, have more than "
                f"{most} nodes"
            )

    def _num_nodes(self) -> int:
        """The number of nodes of all functions; those that came with the graph are counted once for each library."""
        if self._sent_nodes is None:
            every = sum(len(self.library.get(name).node_def) for name in steadily(self.library))
            self._sent_nodes = every - self._made_nodes
        return self._sent_nodes + self._made_nodes

    def gradient_of(self, function: NameAttrList) -> NameAttrList:
        """Return the gradient function of a function, which is made once.

        Raises:
            NeedsThreadError: called on the event loop, and it is not made yet.
            ResourceExhaustedError: the functions made for gradients have too many nodes.
            Also what `gradient_function` raises.
        """
        self.library.get(function.name)
        key = ("gradient", attr_value.hashable(function))
        found: NameAttrList | None = self._derived.get(key)
        if found is not None:
            return found
        if on_event_loop():
            raise NeedsThreadError("a gradient is made in a thread")
        return self.derived(key, lambda library, versions: gradient_function(library, versions, function))

    def derived(self, key: Hashable, make: Callable[[FunctionLibrary, proto.VersionDef], T]) -> T:
        """A function that is made from another one, once for each key; see `FunctionLibraryRuntime.derived`."""
        found: T
        with holding(self._lock):
            if key not in self._derived:
                self._derived[key] = self._made(make)
            found = self._derived[key]
        return found

    def _made(self, make: Callable[[FunctionLibrary, proto.VersionDef], T]) -> T:
        """What a function makes in an overlay of the library, which is dropped if that fails or is called off."""
        library = self.library
        sent = self._num_nodes() - self._made_nodes
        overlay = library.overlay(_MADE_NODES + _MADE_FOR_EACH * sent - self._made_nodes)
        found = make(overlay, self.versions)
        self._made_nodes += self.library.absorb(overlay)
        return found

    def extended(self, library: FunctionLibrary, versions: proto.VersionDef) -> None:
        """Use the graph's new library, which has all functions of the old one."""
        self.library, self.versions = self.library.moved_to(library), versions
        self.effects = None
        self._sent_nodes = None

    def take_apart(self) -> None:
        """Release all functions; they must not be called any more."""
        for function in self._functions.values():
            function.take_apart()

    def callee(self, node: Node) -> Function | None:
        """The function that a node calls, if its body may replace the node; else None."""
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
            if not function.has_body and function.size >= self.budget.plan_nodes and on_event_loop():
                return None  # the first call builds it in a thread
            assert function.body  # built here, where an error is not one of the plan
        except errors.OpError:
            return None  # building or running the node will raise the error
        return function


def _many_outputs(definition: proto.FunctionDef, given: Mapping[str, Any]) -> int:
    """The number of outputs of a body's nodes for which an attr, theirs or the call's, gives the number."""
    total = 0
    for node in definition.node_def:
        data = op_registry.global_registry.find(node.op)
        for output in () if data is None else data.op_def.outputs:
            if output.number_attr and output.number_attr in node.attr:
                number = node.attr[output.number_attr]
                called = given.get(number.placeholder, 0) if number.placeholder else number.i
                total += called if isinstance(called, int) else 0
    return total
