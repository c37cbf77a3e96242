"""`SessionKernels`: the kernels of the nodes of a session's graph, and of the nodes that passes and partitions add.

A node of the graph has one kernel for all plans, as its state belongs to the session; an added node has one in each
plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from aexec.devices.device_registry import host_device
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.types import MemoryType
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.long_work import empty
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.calls import is_functional
from aexec.graph.nodes.control_flow import EXECUTOR_OPS
from aexec.graph.nodes.node import GraphView, Node
from aexec.graph.partitioning.node_memory_types import memory_types_for_node
from aexec.graph.partitioning.partition import TRANSFERS
from aexec.graph.passes import WorkingGraph
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.function_calls import DeviceFunctions, call_kernel
from aexec.runtime.functions.function_plans import BodyPlanner
from aexec.runtime.functions.functions import FunctionRuntime
from aexec.runtime.interpreter.executor import executor_of_type
from aexec.runtime.planning.graph_work import GraphWork
from aexec.runtime.planning.session_graph import SessionGraph
from aexec.runtime.plans.device_constants import DeviceConstant, DeviceConstants

__all__ = ["SessionKernels"]

# Types of handles, which lead to values that are kept between steps.
_HANDLES = frozenset(dtypes.ALWAYS_ON_HOST)
# These pass values in a device's memory to the session or from it, without reading them.
_SESSION_TENSORS = frozenset({"GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor"})


class SessionKernels:
    """Makes the kernels of a session, and keeps those of its graph.

    Attributes:
        edge_numbers: numbers for the names of sends and receives, where a graph or a function body is split.
    """

    def __init__(
        self,
        graph: SessionGraph,
        devices: tuple[Device, ...],
        config: SessionConfig,
        budget: LoopBudget,
        work: GraphWork,
    ) -> None:
        self._graph = graph
        self._work = work
        self._config = config
        self._budget = budget
        self._host = host_device(devices)
        self._create_kernel = executor_of_type(config.executor_type).create_kernel if config.executor_type else None
        self._kernels: dict[int, BuiltKernel] = {}
        self._calling: dict[int, Mapping[str, Any]] = {}  # attributes with which kernels that call functions were made
        self._functions: FunctionRuntime | None = None
        self._constants = DeviceConstants()
        self.edge_numbers = itertools.count(1)
        self._bodies = BodyPlanner(devices, config, budget, self.edge_numbers, self.on_device)

    def __len__(self) -> int:
        """The number of kernels of the graph's nodes."""
        return len(self._kernels)

    def extended(self) -> None:
        """Called when the graph was extended."""
        if self._functions is not None:
            # Function instances stay, with their state: a library only grows.
            graph = self._graph.graph
            self._functions.extended(graph.library, graph.versions)

    def take_apart(self) -> None:
        """Release kernels and functions, in pieces."""
        empty(self._kernels)
        if self._functions is not None:
            self._functions.take_apart()

    def of(self, node: Node, device: Device | None = None) -> BuiltKernel:
        """The kernel of a node: the same object for every plan, as its state belongs to the session."""
        kernel = self._kernels.get(node.id)
        if kernel is not None and self._calling.get(node.id, node.attrs) is not node.attrs:
            # Taking gradients changed the attributes: it now calls functions with more outputs.  Older plans keep
            # theirs.
            self._kernels.pop(node.id, None)
            kernel = None
        if kernel is None:
            if is_functional(node, self._graph.graph.library):
                self._calling[node.id] = node.attrs
            # The loop and a thread may both make one; the first is kept.
            made = self.make(self._graph.graph, node, self.functions, device)
            kernel = self._kernels.setdefault(node.id, made)
        return kernel

    def on_host(self, node: Node) -> BuiltKernel:
        """A kernel of a node that computes in the host's memory, wherever the node is placed."""
        if self._graph.placer.device_of(node).is_host:
            return self.of(node)
        return self.make(self._graph.graph, node, self.functions, self._host)

    @property
    def functions(self) -> FunctionRuntime:
        """Makes the instances of functions."""
        if self._functions is None:
            self._functions = FunctionRuntime(
                self._graph.graph.library,
                self._graph.graph.versions,
                self.make,
                self._work.on_the_loop,
                self._work.beside_the_loop,
                self._budget,
            )
        return self._functions

    def of_working(self, working: WorkingGraph, node: Node) -> BuiltKernel:
        """The kernel of a node that graph passes may have made."""
        if working.is_original(node):
            return self.of(node)
        if node.id in working.callees:
            function, in_body = working.callees[node.id]
            kernel: BuiltKernel = function.kernel(in_body, self.device_of(working, node))
            return kernel
        if node.op != "Const":
            return self.make(self._graph.graph, node, self.functions, self.device_of(working, node))
        value = node.attrs["value"].array
        device = self.device_of(working, node)
        made = BuiltKernel(lambda: value, wants_context=False, cost=0.0, device=device.name, on_host=device.is_host)
        made.queued_on = device if self._is_queued(node, device) else None
        return made

    def device_of(self, working: WorkingGraph, node: Node) -> Device:
        """The device on which a node of a plan runs."""
        if node.id in working.places:
            return working.places[node.id]
        return self._graph.placer.device_of(self._graph.graph.nodes[working.made_of.get(node.id, node.id)])

    def make(
        self, graph: GraphView, node: Node, functions: FunctionRuntime, device: Device | None = None
    ) -> BuiltKernel:
        if device is None:
            device = self._graph.placer.device_of(node)
        queued = self._is_queued(node, device)
        on_device = queued or (_refers(node) and not device.is_host)
        construction = OpKernelConstruction(
            name=node.name,
            op_def=node.op_def,
            attrs=node.attrs,
            input_types=node.input_types,
            output_types=node.output_types,
            device=device.name,
            xp=(device if on_device else self._host).xp,
            graph_version=graph.versions.producer,
            functions=DeviceFunctions(functions, self._bodies, device),
            allocator=None if device.is_host else device.allocator,
            placed_on=device,
            max_image_pixels=self._config.max_image_pixels,
            cache_files=self._config.cache_files,
        )
        try:
            if node.op in EXECUTOR_OPS:
                raise errors.InternalError(f"{node.op} is run by the executor and has no kernel")
            if node.op in graph.library:
                kernel = call_kernel(construction)
            else:
                create = self._create_kernel
                kernel = _registered(construction) if create is None else create(construction, _registered)
            kernel.device, kernel.on_host = device.name, device.is_host
            if queued or kernel.variables is not None:
                kernel.queued_on = device
                kernel.host_outputs = frozenset(
                    i for i, memory in enumerate(construction.output_memory_types) if memory is MemoryType.HOST_MEMORY
                )
            return kernel
        except NeedsThreadError:
            raise
        except errors.OpError as error:
            error.attach_node(node.name, node.op, node.site, node.origin)
            raise
        except Exception as error:
            kind = errors.ResourceExhaustedError if isinstance(error, MemoryError) else errors.UnknownError
            raise kind(
                f"building the kernel of {node.op}: {type(error).__name__}: {error}",
                node=node.name,
                op=node.op,
                site=node.site,
            ) from error

    def _is_queued(self, node: Node, device: Device) -> bool:
        """True if the node's kernel computes in the device's memory.  One that only passes a value on reads nothing."""
        if device.is_host or node.op in TRANSFERS or is_functional(node, self._graph.graph.library):
            return False
        if _refers(node) or node.op in _SESSION_TENSORS:
            return False
        memory = memory_types_for_node(node, device.type)
        return MemoryType.DEVICE_MEMORY in (*memory.inputs, *memory.outputs)

    def on_device(self, device: Device, node: Node, position: int, array: Any, name: str) -> DeviceConstant | None:
        """A constant input of a node, in the memory of a device other than the host; None if the kernel takes it in
        host memory.
        """
        if memory_types_for_node(node, device.type).inputs[position] is MemoryType.HOST_MEMORY:
            return None
        return self._constants.of(device, array, node=name)


def _registered(c: OpKernelConstruction) -> BuiltKernel:
    """The registered kernel for a node."""
    return kernel_registry.global_registry.lookup(c.op, c.device_type, c.attrs, node=c.name).build(c)


def _refers(node: Node) -> bool:
    """True if a node refers to state, by a handle or a ref; its kernel then says which calls are queued."""
    types = (*node.input_types, *node.output_types)
    return any(t.is_ref for t in types) or (node.op_def.is_stateful and not _HANDLES.isdisjoint(types))
