"""Executes plans whose nodes are all on one device other than the host, without a session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState
from aexec.framework.types import MemoryType
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.loop_budget import DEFAULT, LoopBudget
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.node_memory_types import memory_types_for_node
from aexec.runtime.interpreter.executor import StepEnvironment, executor_of_type
from aexec.runtime.plans.device_constants import DeviceConstant, DeviceConstants
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.worker_pool import WorkerPool


def plan_on(device: Device, graph: Graph, feeds: Sequence[str], fetches: Sequence[str]) -> Plan:
    """Return a plan with all nodes on a device, fed and fetched by tensor name with values of that device."""
    constants = DeviceConstants()

    def kernel_of(node: Node) -> BuiltKernel:
        memory = memory_types_for_node(node, device.type)
        queued = MemoryType.DEVICE_MEMORY in (*memory.inputs, *memory.outputs)
        registration = kernel_registry.global_registry.lookup(node.op, device.type, node.attrs, node=node.name)
        kernel = registration.build(
            OpKernelConstruction(
                name=node.name,
                op_def=node.op_def,
                attrs=node.attrs,
                input_types=node.input_types,
                output_types=node.output_types,
                device=device.name,
                xp=device.xp if queued else np,
            )
        )
        kernel.device = device.name
        kernel.queued_on = device if queued else None
        kernel.host_outputs = frozenset(i for i, m in enumerate(memory.outputs) if m is MemoryType.HOST_MEMORY)
        return kernel

    def on_device(node: Node, position: int, array: Any, name: str) -> DeviceConstant | None:
        if memory_types_for_node(node, device.type).inputs[position] is MemoryType.HOST_MEMORY:
            return None
        return constants.of(device, array, node=name)

    def endpoints(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
        return tuple(graph.tensor(name).endpoint for name in names)

    return build_plan(graph, PlanKey(endpoints(feeds), endpoints(fetches)), kernel_of, DEFAULT, on_device)


async def run_plan(
    plan: Plan, values: Sequence[Any], cancellation: CancellationManager | None = None, executor: str = "DEFAULT"
) -> list[Any]:
    """Return the fetches of a plan."""
    cancellation = cancellation or CancellationManager()
    loop, pool = asyncio.get_running_loop(), WorkerPool(1, 1)
    make = executor_of_type(executor).factory
    slices = SliceClock(LoopBudget(), pool.helpers)
    environment = StepEnvironment(loop, pool, slices, ResourceManager(), cancellation, SessionState(None), make)
    try:
        return await make(plan, environment, cancellation).run(values)
    finally:
        await pool.close()


async def on_host(device: Device, value: Any) -> Any:
    """Return a fetched value as a NumPy array."""
    if isinstance(value, np.ndarray):
        return value
    copied: Future[Any] = device.copy_out(value, node="fetch")
    return await asyncio.wrap_future(copied)


async def run_on(device: Device, graph: Graph, fetches: Sequence[str], feeds: Mapping[str, Any], **how: Any) -> Any:
    """Copy the feeds in, run, and copy the fetches out."""
    plan = plan_on(device, graph, tuple(feeds), fetches)
    values = [device.copy_in(np.asarray(value), node=name) for name, value in feeds.items()]
    copy = partial(on_host, device)
    return [await copy(value) for value in await run_plan(plan, values, **how)]
