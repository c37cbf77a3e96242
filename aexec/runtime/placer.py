"""Placement: which device each node of a graph runs on.

Nodes that must share a device (colocation groups, ref and resource edges) form sets;
a set goes to the first device that its requested name, and the kernels of all its
nodes, allow; kernels with priorities say themselves which device type comes first.
The rules are those of core/common_runtime/placer.cc.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from aexec.framework import dtypes, errors, kernel_registry
from aexec.framework.device import Device
from aexec.framework.device_name import DeviceName
from aexec.graph.control_flow import EXECUTOR_OPS
from aexec.graph.function_library import FunctionLibrary
from aexec.graph.node import Node

__all__ = ["Placer"]

_log = logging.getLogger(__name__)


class Placer:
    """Places nodes, and remembers where, so that later nodes can be placed beside earlier ones.

    Args:
        devices: in order of preference.
        soft: a node may go elsewhere if its requested device is not there.
    """

    def __init__(self, devices: Sequence[Device], *, soft: bool = False, log_placement: bool = False) -> None:
        self._devices = devices
        self._names = [DeviceName.parse(d.name) for d in devices]
        self._soft = soft
        self._log_placement = log_placement
        self._types = dict.fromkeys((d.type for d in devices), 0)
        self._placed: dict[int, Device] = {}

    def device_of(self, node: Node) -> Device:
        """Where a node was placed."""
        return self._placed[node.id]

    def is_placed(self, node: Node) -> bool:
        return node.id in self._placed

    def place(self, nodes: Iterable[Node], node_of: Callable[[int], Node], library: FunctionLibrary) -> None:
        """Place nodes that are not placed yet.

        Raises:
            InvalidArgumentError: an op without kernel, colocation that contradicts itself, or a
                requested device that is not there.
        """
        new = [node for node in nodes if node.id not in self._placed]
        sets = _ColocationSets(new, node_of, self._placed, self._soft)
        types = self._types_of_sets(new, sets, _SupportedTypes(library, self._types))
        chosen: dict[int, Device] = {}
        placed: dict[int, Device] = {}
        for node in new:
            root = sets.find(node.id)
            device = chosen.get(root)
            if device is None:
                device = chosen[root] = self._choose(node, sets, root, types[root])
            placed[node.id] = device
        # Only now: what could not be placed as a whole leaves no trace.
        self._placed.update(placed)
        if self._log_placement:
            for node in new:
                _log.info("%s: (%s): %s", node.name, node.op, placed[node.id].name)

    def preferred(self, node: Node, library: FunctionLibrary) -> Device:
        """Where a node would run that has no neighbours: the body of a function is not placed as a whole."""
        types = _SupportedTypes(library, self._types).of(node)
        usable = [d for d in self._devices if d.type in types]
        return _first(usable, types) if usable else self._devices[0]

    def _types_of_sets(
        self, nodes: Iterable[Node], sets: _ColocationSets, supported: _SupportedTypes
    ) -> dict[int, _Types]:
        """Per set the device types that all its nodes have kernels for."""
        found: dict[int, _Types] = {}
        for node in nodes:
            types = supported.of(node)
            if not any(t in self._types for t in types):
                raise errors.InvalidArgumentError(
                    f"Could not satisfy device specification for {{{{node {node.name}}}}}: {node.op} has kernels for "
                    f"{', '.join(sorted(types))} but available devices are {self._available()}",
                    node=node.name,
                    op=node.op,
                )
            root = sets.find(node.id)
            known = found.get(root)
            if known is None:
                found[root] = types
            elif known is not types:
                common = _common(known, types)
                if not common:
                    raise errors.InvalidArgumentError(
                        f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and the nodes that it shares a "
                        f"device with because no device type supports both of those nodes: {node.op} has kernels for "
                        f"{', '.join(sorted(types))}, the others for {', '.join(sorted(known))}",
                        node=node.name,
                        op=node.op,
                    )
                found[root] = common
        return found

    def _available(self) -> str:
        return f"[ {', '.join(d.name for d in self._devices)} ]"

    def _choose(self, node: Node, sets: _ColocationSets, root: int, types: _Types) -> Device:
        requested = sets.requested.get(root)
        assigned = sets.assigned.get(root)
        if assigned is not None:
            self._check_assigned(node, assigned, requested, types)
            return assigned
        usable = [(d, n) for d, n in zip(self._devices, self._names, strict=True) if d.type in types]
        if requested is None:
            return _first([d for d, _ in usable], types)
        matching = [d for d, name in usable if requested.matches(name)]
        if not matching and self._soft:
            partial = requested.without_device()
            matching = [d for d, name in usable if partial.matches(name)]
        if not matching:
            raise errors.InvalidArgumentError(
                f"Cannot assign a device for operation {node.name}: {{{{node {node.name}}}}} was explicitly "
                f"assigned to {requested} but available devices are {self._available()}. "
                "Make sure the device specification refers to a valid device.",
                node=node.name,
                op=node.op,
            )
        return _first(matching, types)

    def _check_assigned(self, node: Node, assigned: Device, requested: DeviceName | None, types: _Types) -> None:
        """What would be refused in a whole graph is refused beside nodes that are placed already, too."""
        if assigned.type not in types:
            raise errors.InvalidArgumentError(
                f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and those that it shares a device with, "
                f"which are on {assigned.name} already, because no device type supports both of those nodes: "
                f"the new ones have kernels for {', '.join(sorted(types))}",
                node=node.name,
                op=node.op,
            )
        if requested is not None and not self._soft and not requested.matches(DeviceName.parse(assigned.name)):
            raise errors.InvalidArgumentError(
                f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and those that it shares a device with: "
                f"they are on {assigned.name} already, requested is {requested}",
                node=node.name,
                op=node.op,
            )


# Device types that have a kernel → the kernel's priority.
_Types = Mapping[str, int]


def _first(devices: Sequence[Device], types: _Types) -> Device:
    """The device whose kernel has the highest priority, the first one among equals."""
    return max(devices, key=lambda d: types[d.type])


def _common(one: _Types, other: _Types) -> _Types:
    """What two nodes that share a device allow.  Priorities that contradict each other do not count."""
    both = [t for t in one if t in other]
    if not any(one[t] for t in both):
        return {t: other[t] for t in both}
    agreed = all(one[t] == other[t] for t in both) or not any(other[t] for t in both)
    return {t: one[t] if agreed else 0 for t in both}


class _SupportedTypes:
    """Device types that have a kernel for a node; remembered by op and the attrs that decide.

    Args:
        anywhere: all device types that there are, for what runs on any.
    """

    def __init__(self, library: FunctionLibrary, anywhere: _Types) -> None:
        self._library = library
        self._anywhere = anywhere
        self._known: dict[tuple[object, ...], _Types] = {}

    def of(self, node: Node) -> _Types:
        if node.op in EXECUTOR_OPS or node.op in self._library:
            return self._anywhere
        # A kernel is chosen by its type attrs and the label alone.
        key = (node.op, node.attrs.get("_kernel"), *_type_attrs(node))
        types = self._known.get(key)
        if types is None:
            types = self._known[key] = self._look_up(node)
        return types

    def _look_up(self, node: Node) -> _Types:
        types = kernel_registry.global_registry.device_types(node.op, node.attrs)
        if types:
            priority = types.pop(kernel_registry.DEFAULT_DEVICE, None)
            return types if priority is None else {**dict.fromkeys(self._anywhere, priority), **types}
        type_attrs = ", ".join(
            f"{k}={v.enum_name}" for k, v in sorted(node.attrs.items()) if isinstance(v, dtypes.DType)
        )
        listed = kernel_registry.registered_text(kernel_registry.global_registry.kernels_of(node.op))
        raise errors.InvalidArgumentError(
            f"No OpKernel was registered to support Op '{node.op}' used by {{{{node {node.name}}}}} "
            f"with these attrs: [{type_attrs}]{listed}",
            node=node.name,
            op=node.op,
        )


def _type_attrs(node: Node) -> Iterator[object]:
    for value in node.attrs.values():
        if type(value) is dtypes.DType:
            yield value
        elif type(value) is list and value and type(value[0]) is dtypes.DType:
            yield tuple(value)


def _parse_device(node: Node) -> DeviceName:
    try:
        return DeviceName.parse(node.device)
    except errors.InvalidArgumentError as error:
        error.attach_node(node.name, node.op)
        raise


class _ColocationSets:
    """Union-find over nodes that must share a device, with what each set requests and where it is already.

    Attributes:
        requested: root of a set → the device that its nodes ask for.
        assigned: root of a set → the device of nodes placed earlier that it must be beside.
    """

    def __init__(
        self, nodes: Sequence[Node], node_of: Callable[[int], Node], placed: dict[int, Device], soft: bool
    ) -> None:
        self._parent: dict[int, int] = {}
        self._soft = soft
        self.requested: dict[int, DeviceName] = {}
        self.assigned: dict[int, Device] = {}
        for node in nodes:
            if node.device:
                self.requested[node.id] = _parse_device(node)
        by_name = {node.name: node.id for node in nodes}
        for node in nodes:
            for source, slot in node.inputs:
                producer = node_of(source)
                carried = producer.output_types[slot]
                if carried.is_ref or carried is dtypes.resource:
                    self._join(node, producer, placed)
            for group in node.colocation_groups:
                other = by_name.get(group)
                if other is None:
                    existing = node.graph.find(group)
                    if existing is None:
                        continue
                    other = existing.id
                self._join(node, node_of(other), placed)

    def find(self, node_id: int) -> int:
        parent = self._parent
        while (up := parent.get(node_id, node_id)) != node_id:
            parent[node_id] = parent.get(up, up)
            node_id = up
        return node_id

    def _join(self, node: Node, other: Node, placed: dict[int, Device]) -> None:
        if other.id in placed:
            self._assign(self.find(node.id), placed[other.id], node, other)
            return
        a, b = self.find(node.id), self.find(other.id)
        if a == b:
            return
        device_a, device_b = self.requested.pop(a, None), self.requested.get(b)
        if device_a is not None and device_b is not None:
            try:
                self.requested[b] = device_b.merge(device_a, soft=self._soft)
            except errors.InvalidArgumentError as error:
                raise errors.InvalidArgumentError(
                    f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and "
                    f"{{{{colocation_node {other.name}}}}}: {error.message}",
                    node=node.name,
                    op=node.op,
                ) from None
        elif device_a is not None:
            self.requested[b] = device_a
        if a in self.assigned:
            self._assign(b, self.assigned.pop(a), node, other)
        self._parent[a] = b

    def _assign(self, root: int, device: Device, node: Node, other: Node) -> None:
        """A set has a node that is placed already; `node` and `other` are what brings it in."""
        known = self.assigned.setdefault(root, device)
        if known is not device:
            raise errors.InvalidArgumentError(
                f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and {{{{colocation_node {other.name}}}}}: "
                f"nodes that they share a device with are on {known.name} and on {device.name} already",
                node=node.name,
                op=node.op,
            )
