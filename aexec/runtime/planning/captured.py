"""Regions that a device captures: which nodes may be in one, and the kernel of the node that replaces the region.

For the executor a region is one node that is queued on its device; its inputs are copied in and its outputs out as for
any other node.  Next to read: `plans/region_nodes.py`, `aexec/devices/cuda_recordings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.queued_kernel import CallSequence, CapturedCalls, MemberCall
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.late_dataclass import dataclass
from aexec.framework.types import MemoryType
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.node_memory_types import memory_types_for_node
from aexec.graph.partitioning.regions import Region, find_regions
from aexec.graph.passes import WorkingGraph
from aexec.runtime.plans.device_constants import DeviceConstant
from aexec.runtime.plans.plan import PlanKey
from aexec.runtime.plans.plan_builder import OnDevice, queued_kernel
from aexec.runtime.plans.region_nodes import may_wait, put_regions

__all__ = ["CapturedRegion", "CapturedReport", "Capturing"]

_OP = "_CapturedRegion"


def is_worth_it(region: Region) -> bool:
    """True if a replay takes fewer launches (one, and one for each input and output) than the nodes do."""
    return len(region.nodes) > len(region.inputs) + len(region.outputs) + 1


@dataclass(frozen=True, slots=True)
class CapturedReport:
    """A region that a device captures, for people.

    Attributes:
        device: the device's name.
        name: the name of the region's node.
        ops: op → number of nodes.
        inputs, outputs: numbers of tensors.
        recordings: the number of recordings kept, one for each tuple of shapes, over all pieces of the region.
        refused: node whose calls cannot be captured, and so run by themselves → reason; under the region's own name,
            the reason why no node of a piece is captured.
    """

    device: str
    name: str
    ops: Mapping[str, int]
    inputs: int
    outputs: int
    recordings: int
    refused: Mapping[str, str]


class CapturedRegion:
    """A captured region of a plan, with the kernel that makes its calls."""

    def __init__(self, region: Region, node: Node, device: Device, calls: CapturedCalls) -> None:
        # Not the region itself, which would keep the graph that it was found in.
        self._facts = (device.name, node.name, region.ops, len(region.inputs), len(region.outputs))
        self._calls = calls

    def report(self) -> CapturedReport:
        """A report of its present state."""
        return CapturedReport(*self._facts, self._calls.recordings, dict(self._calls.refused))


class Capturing:
    """Puts captured regions into the graph of one plan.

    Args:
        kernel_of: returns the kernel of a node; may raise if it cannot be built.
        device_of: returns the device that a node runs on.
        on_device: returns a constant input of a node in the device's memory.

    Attributes:
        regions: the regions put into the graph so far.
    """

    def __init__(
        self,
        working: WorkingGraph,
        kernel_of: Callable[[Node], BuiltKernel],
        device_of: Callable[[Node], Device],
        on_device: Callable[[Device, Node, int, Any, str], DeviceConstant | None],
    ) -> None:
        self._working = working
        self._kernel_of = kernel_of
        self._device_of = device_of
        self._on_device = on_device
        self.regions: list[CapturedRegion] = []

    def put(self, signature: PlanKey) -> tuple[PlanKey, dict[int, BuiltKernel]]:
        """Replace regions by nodes; return the changed signature, and the kernels of these nodes."""
        working = self._working
        found = find_regions(
            working, signature.fetches, self._supports, lambda node: self._device_of(node).name, may_wait
        )
        regions = [region for region in found if is_worth_it(region)]
        calls = [self._calls(region) for region in regions]
        devices = [self._device_of(region.nodes[0]) for region in regions]
        inner, nodes = put_regions(working, signature, [(region, "/captured") for region in regions], _OP)
        kernels = {}
        for region, node, device, made in zip(regions, nodes, devices, calls, strict=True):
            self.regions.append(CapturedRegion(region, node, device, made.captured))
            kernels[node.id] = _kernel(device, made)
        return inner, kernels

    def _supports(self, node: Node, _used: Collection[int]) -> bool:
        device = self._device_of(node)
        # The work areas of FFT plans may be freed while a recording still uses them.
        if not device.can_capture or "FFT" in node.op:
            return False
        try:
            kernel = self._kernel_of(node)
        except errors.OpError:
            return False  # building it for the plan will raise
        if kernel.queued_on is not device or kernel.wants_context or kernel.host_outputs or kernel.variables:
            return False
        memory = memory_types_for_node(node, device.type)
        return all(map(_is_on_device, memory.outputs, node.output_types)) and all(
            self._is_constant(endpoint) or _is_on_device(where, dtype)
            for endpoint, where, dtype in zip(node.in_edges, memory.inputs, node.input_types, strict=True)
        )

    def _is_constant(self, endpoint: Endpoint) -> bool:
        node = self._working.nodes[endpoint[0]]
        return node.op == "Const" and not node.control_edges and endpoint not in self._working.fed

    def _calls(self, region: Region) -> _Replay:
        device = self._device_of(region.nodes[0])
        layout = _Layout(region, self._kernel_of, lambda *of: self._on_device(device, *of))
        return _Replay(device.captured(layout.sequence), layout.held)


def _kernel(device: Device, calls: _Replay) -> BuiltKernel:
    kernel = BuiltKernel(calls, wants_context=False, cost=0.0, device=device.name)
    kernel.queued_on = device
    return kernel


class _Replay:
    """The kernel of a region's node; it keeps the region's constants on the device."""

    __slots__ = ("_constants", "captured")

    def __init__(self, captured: CapturedCalls, constants: Sequence[DeviceConstant]) -> None:
        self.captured = captured
        self._constants = constants

    def __call__(self, *inputs: Any) -> Any:
        return self.captured(*inputs)


def _is_on_device(memory: MemoryType, dtype: dtypes.DType) -> bool:
    # A node without a kernel of its own takes and returns int32 values in host memory.
    return memory is MemoryType.DEVICE_MEMORY and dtype.base is not dtypes.int32


class _Layout:
    """The members of a region as calls on a table of values.

    Attributes:
        held: references that keep the constants in the device's memory.
    """

    def __init__(self, region: Region, kernel_of: Callable[[Node], BuiltKernel], on_device: OnDevice) -> None:
        self._region = region
        self._on_device = on_device
        self.held: list[DeviceConstant] = []
        self._constants: dict[tuple[int, bool], int] = {}
        values: list[Any] = []
        arguments = [self._constants_of(node, values) for node in region.nodes]
        places = {endpoint: i for i, endpoint in enumerate(region.inputs)}
        size = len(region.inputs) + len(values)
        for node in region.nodes:
            places.update({(node.id, slot): size + slot for slot in range(node.num_outputs)})
            size += node.num_outputs
        outputs = tuple(places[endpoint] for endpoint in region.outputs)
        calls = []
        kept, seen = {*outputs}, set[int]()
        for node, given in zip(reversed(region.nodes), reversed(arguments), strict=True):
            taken = tuple(
                places[endpoint] if number is None else len(region.inputs) + number
                for endpoint, number in zip(node.in_edges, given, strict=True)
            )
            results = tuple(places[node.id, slot] for slot in range(node.num_outputs))
            drops = tuple({*taken, *results} - seen - kept)
            seen.update(drops)
            calls.append(MemberCall(queued_kernel(node, kernel_of(node)), taken, results, drops))
        name = f"{region.nodes[-1].name}/captured"
        self.sequence = CallSequence(name, tuple(reversed(calls)), tuple(values), len(region.inputs), outputs, size)

    def _constants_of(self, node: Node, values: list[Any]) -> list[int | None]:
        """For each input of a node the index of the constant that it is, or None."""
        constants = {constant.id: constant for constant in self._region.constants}
        given: list[int | None] = []
        inputs = set(self._region.inputs)
        for position, endpoint in enumerate(node.in_edges):
            if endpoint in inputs or endpoint[0] not in constants:
                given.append(None)
                continue
            constant = constants[endpoint[0]]
            array = constant.attrs["value"].array
            there = self._on_device(node, position, array, constant.name)
            key = (constant.id, there is None)
            if key not in self._constants:
                self._constants[key] = len(values)
                values.append(array if there is None else there.value)
                if there is not None:
                    self.held.append(there)
            given.append(self._constants[key])
        return given
