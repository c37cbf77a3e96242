"""Memory types: whether each input and output of a placed node is in host memory or in its device's memory.

The node's kernel for the device type decides.  Without a kernel, and for control flow and calls, the dtypes decide.
On a device that uses host memory there is no difference.  After TensorFlow's core/framework/memory_types.cc.
Next to read: `aexec/framework/kernel_contract/memory_types.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.memory_types import memory_types
from aexec.framework.types import MemoryType
from aexec.graph.calls import FUNCTIONAL_OPS
from aexec.graph.nodes.control_flow import EXECUTOR_OPS, MERGE, SWITCH
from aexec.graph.nodes.node import Node

__all__ = ["NodeMemoryTypes", "memory_by_type", "memory_types_for_node"]

# The executor reads the predicate on the host, and writes the index there.
_HOST_MEMORY_OF_EXECUTOR = {**dict.fromkeys(SWITCH, ("pred",)), **dict.fromkeys(MERGE, ("value_index",))}
# These pass their inputs on, so the values stay where the nodes around them have them.
_BY_TYPE = EXECUTOR_OPS | FUNCTIONAL_OPS


class NodeMemoryTypes(NamedTuple):
    """The memory type of each input and each output of a node."""

    inputs: tuple[MemoryType, ...]
    outputs: tuple[MemoryType, ...]


def memory_types_for_node(node: Node, device_type: str) -> NodeMemoryTypes:
    """Return the memory type of each input and output of a node on a device of this type.

    Raises:
        InvalidArgumentError: several kernels match the node, its kernel names arguments that its op does not have, or
            its `_input_hostmem` or `_output_hostmem` a position that does not exist.
    """
    host_memory, by_type = _decided_by(node, device_type)
    attrs, op_def = node.attrs, node.op_def
    inputs = op_def.input_ranges(attrs) if host_memory else {}
    outputs = op_def.output_ranges(attrs) if host_memory else {}
    decided = NodeMemoryTypes(
        memory_types(node.input_types, inputs, host_memory, attrs, "_input_hostmem"),
        memory_types(node.output_types, outputs, host_memory, attrs, "_output_hostmem"),
    )
    if not by_type:
        return decided
    return NodeMemoryTypes(_by_type(decided.inputs, node.input_types), _by_type(decided.outputs, node.output_types))


def memory_by_type(types: Sequence[DType]) -> tuple[MemoryType, ...]:
    """Return the memory types of a calling node's inputs or outputs on a device with its own memory."""
    return _by_type(memory_types(types, {}, (), {}, ""), types)


def _decided_by(node: Node, device_type: str) -> tuple[Sequence[str], bool]:
    """Return the names of the arguments in host memory, and whether dtypes decide about the others."""
    if node.op in EXECUTOR_OPS:
        return _HOST_MEMORY_OF_EXECUTOR.get(node.op, ()), True
    try:
        registration = kernel_registry.global_registry.lookup(node.op, device_type, node.attrs, node=node.name)
    except errors.NotFoundError:
        return (), True
    registration.check_host_memory(node.op_def)
    return registration.host_memory, node.op in _BY_TYPE


def _by_type(decided: Sequence[MemoryType], types: Sequence[DType]) -> tuple[MemoryType, ...]:
    """Put int32 values into host memory too: they are mostly shapes, which kernels need on the host."""
    return tuple(
        MemoryType.HOST_MEMORY if dtype.base is dtypes.int32 else memory
        for memory, dtype in zip(decided, types, strict=True)
    )
