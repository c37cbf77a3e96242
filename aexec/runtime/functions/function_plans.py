"""Lays out the bodies of functions: places their nodes, as those of a graph, and splits them if necessary.

A body that runs on the host's devices alone needs no transfers: it is one plan, each of whose nodes has the kernel of
its own device.  Next to read: `placement/placer.py`, `plans/partitioned_plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aexec.devices.device_registry import host_device
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.dtypes import DType, resource
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.late_dataclass import dataclass
from aexec.framework.types import MemoryType
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.node_memory_types import memory_by_type
from aexec.graph.partitioning.partition import Ends, Partition
from aexec.graph.partitioning.splitting import split
from aexec.graph.passes import WorkingGraph, optimize, pass_names, passes_before_placing
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.functions import Function
from aexec.runtime.functions.variable_order import put_in_order
from aexec.runtime.placement.placer import Placer
from aexec.runtime.plans.device_constants import DeviceConstant
from aexec.runtime.plans.partitioned_plan import PartitionedPlan, build_partitioned_plan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan

__all__ = ["BodyPlan", "BodyPlanner", "Places", "places_by_type"]


# For each value that enters or leaves a body, the device in whose memory it is, None for host memory; for a handle of a
# resource, which is in host memory, the resource's device.
Places = tuple[Device | None, ...]


def places_by_type(types: Sequence[DType], device: Device) -> Places:
    """Return the memory of each input or output of a node that calls a function on this device."""
    if device.is_host:
        return (None,) * len(types)
    return tuple(device if memory is MemoryType.DEVICE_MEMORY else None for memory in memory_by_type(types))


@dataclass(frozen=True, slots=True, eq=False)
class BodyPlan:
    """The plan of a body.

    Attributes:
        graph: the nodes that it runs.
        results: where it leaves its results; None if that is where they were wanted.
    """

    plan: Plan | PartitionedPlan
    graph: WorkingGraph
    results: Places | None


class BodyPlanner:
    """Lays out the bodies of functions for the devices of a session.

    Args:
        devices: in order of preference.
        edge_numbers: numbers for the names of sends and receives in split bodies.
        on_device: as for `build_partitioned_plan`.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        config: SessionConfig,
        budget: LoopBudget,
        edge_numbers: Iterator[int],
        on_device: Callable[[Device, Node, int, Any, str], DeviceConstant | None],
    ) -> None:
        self.host = host_device(devices)
        self._devices = devices
        self._by_name = {device.name: device for device in devices}
        self._config = config
        self._passes = pass_names(config.graph_passes)
        self._budget = budget
        self._edge_numbers = edge_numbers
        self._on_device = on_device

    @property
    def is_placed(self) -> bool:
        """True if there is more than one device to place nodes on."""
        return len(self._devices) > 1

    def device_named(self, name: str) -> Device:
        """The device with this full name; the host if the session has none."""
        return self._by_name.get(name, self.host)

    def target(self, name: str) -> Device:
        """The first device that matches a full or partial name.

        Raises:
            InvalidArgumentError: the name is malformed.
            InternalError: the session has no such device.
        """
        wanted = DeviceName.parse(name)
        found = next((device for device in self._devices if wanted.matches(DeviceName.parse(device.name))), None)
        if found is None:
            there_are = ", ".join(self._by_name)
            raise errors.InternalError(
                f"Currently don't support instantiating functions on device: {name}; there are {there_are}"
            )
        return found

    def plan(self, function: Function, runs_on: Device, arguments: Places, results: Places | None) -> BodyPlan:
        """Lay out a body.

        Args:
            runs_on: the device of nodes that ask for none.
            arguments: where the arguments are.
            results: where the results are wanted; None to leave them where they are made.

        Raises:
            InvalidArgumentError: it cannot be placed or is malformed, or a kernel's own checks.
            NotFoundError: a node without kernel.
        """
        body = function.body
        signature = PlanKey(tuple((i, 0) for i in body.arguments), body.results, body.side_effects)
        working = WorkingGraph(
            body.graph,
            signature.feeds,
            signature.fetches,
            signature.targets,
            lambda working, node: self._device_of(working, node).name,
        )

        def run(passes: frozenset[str]) -> None:
            # Shapes inside a body depend on the caller, so nothing is known to be small enough for folding.
            optimize(working, passes, lambda node, inputs: None, lambda node: _inlined(function, node))

        passes = self._passes
        if self.is_placed:
            making = passes & passes_before_placing()
            run(making)
            self._place(working, function, runs_on, arguments)
            passes -= making
        run(passes)
        put_in_order(working, signature, function.runtime)

        def kernel_of(node: Node) -> BuiltKernel:
            return _kernel(function, working, node, self._device_of(working, node))

        ends = Ends(
            [
                None if dtype is resource or place is None or place.is_host else place
                for place, dtype in zip(arguments, body.argument_types, strict=True)
            ],
            results,
        )
        if not self._is_split(working, body.arguments, ends):
            plan = build_plan(working, signature, kernel_of, self._budget, order=working.order)
            return BodyPlan(plan, working, (None,) * len(body.results))
        return self._split(function, working, signature, ends, kernel_of)

    def _device_of(self, working: WorkingGraph, node: Node) -> Device:
        return working.places.get(node.id, self.host)

    def _place(self, working: WorkingGraph, function: Function, runs_on: Device, arguments: Places) -> None:
        config = self._config
        placer = Placer(self._devices, soft=True, log_placement=config.log_device_placement)
        at = {node_id: place or runs_on for node_id, place in zip(function.body.arguments, arguments, strict=True)}
        placer.keep(at)
        nodes = [node for node in working.nodes.values() if node.id not in at]
        try:
            chosen = placer.choose(nodes, working.nodes.__getitem__, working.library, beside=runs_on)
        except errors.OpError as error:
            error.message += f" (in function '{function.name}')"
            raise
        working.places.update(at)
        working.places.update(chosen)

    def _is_split(self, working: WorkingGraph, arguments: Sequence[int], ends: Ends) -> bool:
        """True if a value has to travel between memories."""
        if any(place is not None and not place.is_host for place in (*ends.feeds, *(ends.fetches or ()))):
            return True
        used = {self._device_of(working, node) for node in working.nodes.values() if node.id not in arguments}
        if not all(device.is_host for device in used):
            return True
        return len(used) > 1 and self._config.compress_transfers

    def _split(
        self,
        function: Function,
        working: WorkingGraph,
        signature: PlanKey,
        ends: Ends,
        kernel_of: Callable[[Node], BuiltKernel],
    ) -> BodyPlan:
        partitions = split(
            working,
            signature.feeds,
            signature.fetches,
            signature.targets,
            lambda node: self._device_of(working, node),
            self.host,
            self._edge_numbers,
            compress=self._config.compress_transfers,
            ends=ends,
        )

        def kernel_in(partition: Partition, node: Node) -> BuiltKernel:
            if node.id not in partition.added:
                return kernel_of(node)
            runtime = function.runtime
            return runtime.make_kernel(function.body.graph, node, runtime, partition.device)

        plan = build_partitioned_plan(
            working,
            signature,
            partitions,
            kernel_in,
            self._budget,
            self._on_device,
            "bodies are split only where values have to travel",
        )
        places = {position: place for p in partitions for position, place in p.fetched_from.items()}
        return BodyPlan(plan, working, tuple(places[position] for position in range(len(signature.fetches))))


def _inlined(function: Function, node: Node) -> Function | None:
    """The function that a node of a body calls, if it may be inlined there."""
    found = function.runtime.callee(node)
    return None if found is function else found


def _kernel(function: Function, working: WorkingGraph, node: Node, device: Device) -> BuiltKernel:
    """The kernel of a node of a body, which graph passes may have made."""
    if working.is_original(node):
        return function.kernel(node, device)
    if node.id in working.callees:
        inlined, in_body = working.callees[node.id]
        kernel: BuiltKernel = inlined.kernel(in_body, device)
        return kernel
    return function.runtime.make_kernel(function.body.graph, node, function.runtime, device)
