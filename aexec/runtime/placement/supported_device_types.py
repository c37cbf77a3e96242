"""Finds the device types that have a kernel for a node, in order of the kernels' priorities.

Next to read: `colocation_graph.py`, where nodes that share a device find what all of them support.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import DEFAULT_DEVICE
from aexec.framework.wire.attr_text import value_text
from aexec.graph.calls import is_functional
from aexec.graph.nodes.control_flow import EXECUTOR_OPS
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node

__all__ = ["PrioritizedTypes", "SupportedDeviceTypes"]

# (device type, priority of the kernel there), the preferred one first.
PrioritizedTypes = tuple[tuple[str, int], ...]


class SupportedDeviceTypes:
    """Looks up the device types with a kernel for a node; caches results by op and the attrs that select the kernel.

    Args:
        devices: the session's devices, the preferred one first.

    Attributes:
        library: the functions that nodes may call.
    """

    def __init__(self, library: FunctionLibrary, devices: Sequence[Device]) -> None:
        self.library = library
        self._order = {t: index for index, t in enumerate(dict.fromkeys(device.type for device in devices))}
        self._anywhere = tuple((device_type, 0) for device_type in self._order)
        self._known: dict[tuple[object, ...], PrioritizedTypes] = {}

    def of(self, node: Node) -> PrioritizedTypes:
        """Return the types that `node` can run on.  Raises InvalidArgumentError if there are none."""
        if node.op in EXECUTOR_OPS or node.op == "_Arg" or is_functional(node, self.library):
            return self._anywhere
        # Only type attrs and the label select the kernel.
        key = (node.op, node.attrs.get("_kernel"), *_type_attrs(node))
        types = self._known.get(key)
        if types is None:
            types = self._known[key] = self._look_up(node)
        return types

    def common(self, one: PrioritizedTypes, other: PrioritizedTypes) -> PrioritizedTypes:
        """Return the types that two nodes both support, without regard to priorities that contradict each other."""
        if one == other:
            return one
        mine, theirs = _of(one, other), _of(other, one)
        if not any(priority for _, priority in theirs):
            return mine
        if not any(priority for _, priority in mine):
            return theirs
        if [t for t, _ in mine] == [t for t, _ in theirs]:
            return mine
        return self._sorted((t, 0) for t, _ in mine)

    def among(self, types: PrioritizedTypes, names: Collection[str]) -> PrioritizedTypes:
        """Return the members of `types` with one of these names."""
        return tuple(entry for entry in types if entry[0] in names)

    def _look_up(self, node: Node) -> PrioritizedTypes:
        registry = kernel_registry.global_registry
        found = registry.device_types(node.op, node.attrs)
        default = found.get(DEFAULT_DEVICE)
        if default is not None:
            of_default = (t for t in self._order if registry.takes_default(t, node.op))
            found = {**dict.fromkeys(of_default, default), **found}
        types = self._sorted((t, priority) for t, priority in found.items() if t in self._order)
        if not types:
            raise self._unsupported(node)
        return types

    def _sorted(self, types: Iterable[tuple[str, int]]) -> PrioritizedTypes:
        return tuple(sorted(types, key=lambda entry: (-entry[1], self._order[entry[0]])))

    def _unsupported(self, node: Node) -> errors.OpError:
        attrs = ", ".join(f"{name}={value_text(value)}" for name, value in sorted(node.attrs.items()))
        kernels = kernel_registry.global_registry.kernels_of(node.op)
        return errors.InvalidArgumentError(
            f"No OpKernel was registered to support Op '{node.op}' used by {{{{node {node.name}}}}} with these attrs: "
            f"[{attrs}]\nRegistered devices: [{', '.join(sorted(self._order))}]\nRegistered kernels:\n"
            + kernel_registry.registered_text(kernels),
            node=node.name,
            op=node.op,
        )


def _of(types: PrioritizedTypes, others: Sequence[tuple[str, int]]) -> PrioritizedTypes:
    """Return the members of `types` that are among `others`."""
    names = {t for t, _ in others}
    return tuple(entry for entry in types if entry[0] in names)


def _type_attrs(node: Node) -> Iterator[object]:
    for value in node.attrs.values():
        if type(value) is dtypes.DType:
            yield value
        elif type(value) is list and value and type(value[0]) is dtypes.DType:
            yield tuple(value)
