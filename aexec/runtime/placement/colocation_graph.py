"""The constraints of placement: which nodes must share a device, and which devices each may be on.

Nodes that must share a device (colocation groups, edges of refs and resources) form sets, by union-find.  A set keeps
three device names, and the device types for which all its nodes have kernels:

* `assigned`: the device on which some of its nodes are already; it never changes.
* `resource`: the device requested for a node that makes a resource or a ref; it binds all users of that resource.
* `requested`: the device requested for other nodes; it specialises the other two.

The rules and texts are those of core/common_runtime/colocation_graph.cc.  Next to read: `placer.py`, which chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_text import value_text
from aexec.graph.calls import is_functional
from aexec.graph.nodes.node import Node
from aexec.runtime.placement.resource_uses import ResourceUses
from aexec.runtime.placement.supported_device_types import PrioritizedTypes, SupportedDeviceTypes

__all__ = ["ColocationGraph"]

_log = logging.getLogger(__name__)

_ANY = DeviceName()


@dataclass(frozen=True, slots=True, eq=False)
class _Constraints:
    """The constraints of a set of nodes: three device names, and the device types that all have kernels for."""

    types: PrioritizedTypes
    requested: DeviceName = _ANY
    assigned: DeviceName = _ANY
    resource: DeviceName = _ANY

    def merge(self, other: _Constraints, types: PrioritizedTypes, *, soft: bool) -> _Constraints:
        """Return the constraints of both sets together.  Raises InvalidArgumentError if they contradict each other."""
        assigned = self.assigned.merge(other.assigned)
        resource = self.resource.merge(other.resource)
        requested = self.requested.merge(other.requested, soft=soft)
        return _Constraints(types, requested.specialised_to(assigned).specialised_to(resource), assigned, resource)

    def softened(self, *fixed: DeviceName) -> DeviceName:
        """Return the requested name without type and id, unless one of `fixed` has these."""
        return replace(
            self.requested,
            type=self.requested.type if any(name.type is not None for name in fixed) else None,
            id=self.requested.id if any(name.id is not None for name in fixed) else None,
        )

    def __str__(self) -> str:
        types = ", ".join(device_type for device_type, _ in self.types)
        return (
            f"requested_device_name_='{self.requested}' assigned_device_name_='{self.assigned}' "
            f"resource_device_name_='{self.resource}' supported_device_types_=[{types}]"
        )


class ColocationGraph:
    """The sets of nodes that share a device, and the devices that each set may be on.

    Args:
        nodes: the nodes to place.
        node_of: returns a node by id, for `nodes` and their inputs.
        placed: id of a node that is placed already → its device.
        devices: the session's devices, in order of preference.
        soft: True to ignore requests that cannot be met.
        log: True to log ignored requests.

    Raises:
        InvalidArgumentError: an op has no kernel, a device name is malformed, or nodes must share a device and cannot.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        node_of: Callable[[int], Node],
        placed: Mapping[int, Device],
        devices: Sequence[Device],
        supported: SupportedDeviceTypes,
        *,
        soft: bool = False,
        log: bool = False,
    ) -> None:
        self._nodes = nodes
        self._node_of = node_of
        self._placed = placed
        self._devices = [(device, DeviceName.parse(device.name)) for device in devices]
        self._supported = supported
        self._soft = soft
        self._log_placement = log
        # The parents of joined nodes; `_constraints` has an entry for each root, single nodes included.
        self._parent: dict[int, int] = {}
        self._rank: dict[int, int] = {}
        self._constraints: dict[int, _Constraints] = {}
        self._possible: dict[_Constraints, Sequence[Device]] = {}
        self._chosen: dict[int, Sequence[Device]] = {}
        self._warned = False
        # Placed nodes that share a device with nodes to place.
        self._beside: list[Node] = []
        self._uses = ResourceUses(supported.library, supported, node_of)
        # Id of a node that makes a resource → nodes of functions that restrict its devices.
        self._decisive: dict[int, list[str]] = {}
        self._several_types = len({device.type for device in devices}) > 1
        self._constrain(nodes)
        for node in steadily(nodes):
            self._colocate_inputs(node)
        self._colocate_groups(nodes)

    def root(self, node: Node) -> int:
        """Return the id of the node that represents a node's set."""
        return self._find(node.id)

    def devices_of(self, node: Node) -> Sequence[Device]:
        """Return the devices that a node may be on, the preferred one first; only the set's device if one is assigned.

        Raises:
            InvalidArgumentError: no device can run it, or the requested one does not exist.
        """
        root = self._find(node.id)
        chosen = self._chosen.get(root)
        if chosen is not None:
            return chosen
        constraints = self._constraints[root]
        possible = self._possible.get(constraints)
        if possible is None:
            possible = self._possible[constraints] = self._choose_from(node, root, constraints)
        return possible

    def assign(self, node: Node, device: Device) -> None:
        """Assign the set of a node to a device."""
        self._chosen[self._find(node.id)] = (device,)

    # Sets

    def _constrain(self, nodes: Iterable[Node]) -> None:
        """Make each node a set of its own."""
        alike: dict[tuple[PrioritizedTypes, str, bool], _Constraints] = {}
        for node in steadily(nodes):
            types = self._supported.of(node)
            makes_resource = bool(node.device) and _makes_resource(node)
            key = (types, node.device, makes_resource)
            constraints = alike.get(key)
            if constraints is None:
                requested = _parse_device(node)
                constraints = _Constraints(types, requested, resource=requested if makes_resource else _ANY)
                alike[key] = constraints
            self._constraints[node.id] = constraints

    def _find(self, node_id: int) -> int:
        parent = self._parent
        while (up := parent.get(node_id, node_id)) != node_id:
            parent[node_id] = parent.get(up, up)
            node_id = up
        return node_id

    def _root(self, node: Node) -> int:
        if node.id in self._placed and node.id not in self._constraints and node.id not in self._parent:
            name = DeviceName.parse(self._placed[node.id].name)
            self._constraints[node.id] = _Constraints(self._supported.of(node), name, name)
            self._beside.append(node)
        return self._find(node.id)

    def _colocate_inputs(self, node: Node) -> None:
        """Join a node with the makers of its refs and resources; their device takes precedence over the node's request.

        Nodes of functions also run where the resources passed to them are.
        """
        for position, (source, carried) in enumerate(zip(node.in_edges, node.input_types, strict=True)):
            if not (carried.is_ref or carried is dtypes.resource) or node.op == "IdentityN":
                continue
            maker = self._uses.maker(source)
            if not is_functional(node, self._supported.library):
                self._colocate_edge(maker, node)
            elif self._several_types and maker.id not in self._placed:
                self._constrain_by_uses(maker, node, position)

    def _constrain_by_uses(self, maker: Node, call: Node, position: int) -> None:
        """Restrict a resource to devices for which all nodes of functions that use it have kernels."""
        for use in self._uses.of(call, position):
            root = self._root(maker)
            constraints = self._constraints[root]
            left = self._supported.among(constraints.types, use.types)
            text = f"{use.node.name} ({use.node.op}) of function '{use.function}', which {call.name} calls"
            if not left:
                raise errors.InvalidArgumentError(
                    f"Cannot place {{{{node {maker.name}}}}}: it is used by {text}, and no device type supports that "
                    f"as well as the nodes colocated with it.{self._debug_info(root)}",
                    node=maker.name,
                    op=maker.op,
                )
            if left != constraints.types:
                self._constraints[root] = replace(constraints, types=left)
                self._decisive.setdefault(maker.id, []).append(text)

    def _colocate_edge(self, source: Node, node: Node) -> None:
        theirs, mine = self._constraints[self._root(source)], self._constraints[root := self._root(node)]
        for kind in ("assigned", "resource"):
            a, b = getattr(theirs, kind), getattr(mine, kind)
            if not a.is_compatible(b):
                raise errors.InvalidArgumentError(
                    "Cannot place the graph because a reference or resource edge connects colocation groups with "
                    f"incompatible {kind} devices: {a} vs {b}. The edge src node is name='{source.name}' "
                    f"(op='{source.op}'), and the dst node is name='{node.name}' (op='{node.op}').",
                    node=node.name,
                    op=node.op,
                )
        if not theirs.requested.is_compatible(mine.requested):
            self._log(
                "Ignoring device specification %s for node '%s' because the input edge from '%s' is a reference "
                "connection and already has a device field set to %s",
                mine.requested,
                node.name,
                source.name,
                theirs.requested,
            )
            requested = theirs.requested.specialised_to(mine.assigned).specialised_to(mine.resource)
            self._constraints[root] = replace(mine, requested=requested)
        try:
            self._join(source, node)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                "Nodes were connected by a reference connection (requiring them to be on the same device), but the "
                f"two nodes were assigned two different devices: {error.message}",
                node=node.name,
                op=node.op,
            ) from None

    def _colocate_groups(self, nodes: Sequence[Node]) -> None:
        """Join each node with the groups that it names, and with the group of its own name."""
        named = {node.id: groups for node in nodes if (groups := node.colocated_with)}
        mentioned = {group for groups in named.values() for group in groups}
        first: dict[str, Node] = {}
        for node in steadily(nodes if named else ()):
            own = (node.name,) if node.name in mentioned else ()
            for group in (*named.get(node.id, ()), *own):
                if group not in first:
                    existing = node.graph.find(group)
                    first[group] = existing if existing is not None and existing.id in self._placed else node
                self._colocate_group(node, group, first[group])

    def _colocate_group(self, node: Node, group: str, first: Node) -> None:
        try:
            self._join(node, first)
        except errors.InvalidArgumentError as error:
            if not self._soft:
                raise
            self._log(
                "Ignoring request to colocate node '%s' with nodes in colocation group '%s' because soft placement is "
                "on and an attempt at doing so resulted in the following error: %s",
                node.name,
                group,
                error.message,
            )

    def _join(self, node: Node, other: Node) -> None:
        """Join two sets; changes nothing if it raises."""
        a, b = self._root(node), self._root(other)
        if a == b:
            return
        rank_a, rank_b = self._rank.get(a, 0), self._rank.get(b, 0)
        new, old = (b, a) if rank_a < rank_b else (a, b)
        mine, theirs = self._constraints[new], self._constraints[old]
        where = f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and {{{{colocation_node {other.name}}}}}"
        try:
            merged = mine.merge(theirs, self._supported.common(mine.types, theirs.types), soft=self._soft)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(f"{where}: {error.message}", node=node.name, op=node.op) from None
        if not merged.types:
            raise errors.InvalidArgumentError(
                f"{where} because no device type supports both of those nodes and the other nodes colocated with them."
                f"{self._debug_info(a)}{self._debug_info(b)}",
                node=node.name,
                op=node.op,
            )
        self._parent[old] = new
        self._rank[new] = max(self._rank.get(new, 0), self._rank.get(old, 0) + 1)
        self._constraints[new] = merged
        del self._constraints[old]

    # Devices

    def _choose_from(self, node: Node, root: int, constraints: _Constraints) -> Sequence[Device]:
        found = self._matching(constraints.requested, constraints.types)
        if not found and self._soft:
            found = self._soft_candidates(root, constraints)
        if not found:
            raise errors.InvalidArgumentError(
                f"Cannot assign a device for operation {node.name}: {self._refusal(node, root, constraints)}",
                node=node.name,
                op=node.op,
            )
        return found

    def _matching(self, requested: DeviceName, types: PrioritizedTypes) -> Sequence[Device]:
        """Return the devices that match a name and these types, by the kernels' priority, then in session order."""
        priorities = dict(types)
        found = [device for device, name in self._devices if device.type in priorities and requested.matches(name)]
        return sorted(found, key=lambda device: -priorities[device.type])

    def _soft_candidates(self, root: int, constraints: _Constraints) -> Sequence[Device]:
        """Return devices of another type or id than requested; as a last resort also for resources."""
        assigned, resource = constraints.assigned, constraints.resource
        found = self._matching(constraints.softened(assigned, resource), constraints.types)
        if not found:
            found = self._matching(constraints.softened(assigned), constraints.types)
            if found and not self._warned:
                self._warned = True  # only for the first set: a graph may have thousands of variables
                listed = "".join(f"\n  {device.name}" for device in found)
                _log.warning(
                    "Failed to place the graph without changing the devices of some resources. Some of the operations "
                    "(that had to be colocated with resource generating operations) are not supported on the "
                    "resources' devices. Current candidate devices are [%s].\n"
                    "See below for details of this colocation group:%s",
                    listed,
                    self._debug_info(root),
                )
        return found

    def _refusal(self, node: Node, root: int, constraints: _Constraints) -> str:
        specified = DeviceName.parse(node.device)
        names = [name for _, name in self._devices]
        if specified != constraints.requested:
            return (
                f"Could not satisfy explicit device specification '{node.device}' because the node "
                f"{{{{colocation_node {node.name}}}}} was colocated with a group of nodes that required incompatible "
                f"device '{constraints.requested}'. All available devices [{', '.join(map(str, names))}]. "
                f"{self._debug_info(root)}"
            )
        if not any(specified.matches(name) for name in names):
            no_gpu = specified.type == "GPU" and all(name.type != "GPU" for name in names)
            return (
                f"{{{{node {node.name}}}}} was explicitly assigned to {node.device} but available devices are "
                f"[ {', '.join(sorted(map(str, names)))} ]. "
                "Make sure the device specification refers to a valid device."
                + (" The requested device appears to be a GPU, but CUDA is not enabled." if no_gpu else "")
            )
        if specified.type is None:
            return f"Could not satisfy explicit device specification '{node.device}'{self._debug_info(root)}"
        attrs = ", ".join(f"{name}={value_text(value)}" for name, value in sorted(node.attrs.items()))
        kernels = kernel_registry.global_registry.kernels_of(node.op)
        return (
            f"Could not satisfy explicit device specification '{node.device}' because no supported kernel for "
            f"{specified.type} devices is available.{self._debug_info(root)}\nOp: {node.op}\nNode attrs: {attrs}\n"
            f"Registered kernels:\n{kernel_registry.registered_text(kernels)}"
        )

    def _debug_info(self, root: int) -> str:
        """Return text for errors that lists the nodes of a set with their constraints."""
        members = [node for node in (*self._beside, *self._nodes) if self._find(node.id) == root]
        types = {node.op: " ".join(t for t, _ in self._supported.of(node)) for node in members}
        text = (
            "\nColocation Debug Info:\nColocation group had the following types and supported devices: "
            f"\nRoot Member({self._constraints[root]})"
        )
        text += "".join(f"\n{op}: {listed} " for op, listed in types.items())
        text += "\n\nColocation members, user-requested devices, and framework assigned devices, if any:"
        for node in members:
            text += f"\n  {node.name} ({node.op}) {node.device}"
            if node.id in self._placed:
                text += f" framework assigned device={self._placed[node.id].name}"
            text += "".join(f"\n  {use}" for use in self._decisive.get(node.id, ()))
        return f"{text}\n"

    def _log(self, text: str, *args: object) -> None:
        if self._log_placement:
            _log.info(text, *args)


def _makes_resource(node: Node) -> bool:
    if node.in_edges or node.num_outputs != 1:
        return False
    made = node.output_types[0]
    return made.is_ref or made is dtypes.resource


def _parse_device(node: Node) -> DeviceName:
    try:
        return DeviceName.parse(node.device)
    except errors.InvalidArgumentError as error:
        error.attach_node(node.name, node.op)
        raise
