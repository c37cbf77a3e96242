"""Runs the nodes that constant folding evaluates: with the session's kernels, within bounds of time and memory.

Folded values are remembered, and all plans of a session share them.
Next to read: `aexec/graph/passes/constant_folding.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import thread_time
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.node_estimate import UNMEASURED
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, scratch_bytes
from aexec.framework.kernel_contract.output_sizes import expected_ns
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocator import Allocator, announce, note_kept, watching
from aexec.framework.memory.tensor_buffer import num_bytes
from aexec.framework.types import DEVICE_CPU
from aexec.framework.waiting.long_work import empty, expect
from aexec.framework.waiting.loop_budget import MEASURE_NS
from aexec.graph.nodes.node import Node
from aexec.graph.passes.constant_folding import MAX_BYTES

__all__ = ["FoldedValues"]

# Nanoseconds that all folded nodes of one request may take; a single node may take a tenth.  Planning goes on in a
# thread if that is too long for the event loop, so that the folded constants do not depend on the machine's speed or
# load.
_MOST_NS = 200_000_000.0
# The most bytes of all folded values of a session; beyond that nothing more is folded.
_MAX_TOTAL_BYTES = 64 * 2**20
# The most bytes of scratch memory of one call.
_MAX_SCRATCH_BYTES = 2**20
# The least bytes of a folded value that is counted for the session.
_COUNTED_BYTES = 2**14


class FoldedValues:
    """The folded values of a session's plans.

    Args:
        kernel_of: returns a node's kernel that computes in host memory.
    """

    def __init__(self, kernel_of: Callable[[Node], BuiltKernel]) -> None:
        self._kernel_of = kernel_of
        self._values: dict[int, list[Any] | None] = {}
        self._bytes = 0

    def take_apart(self) -> None:
        """Release the values: no plan will be made any more."""
        empty(self._values)

    def evaluator(self) -> Callable[[Node, Sequence[Any]], Sequence[Any] | None]:
        """Return the function that evaluates the nodes of one request, until they have taken too long in sum.

        The function raises CalledOffError on the event loop if what it evaluates may take too long for that.
        """
        budget = _MOST_NS

        def evaluate(node: Node, inputs: Sequence[Any]) -> Sequence[Any] | None:
            nonlocal budget
            if node.id in self._values:
                return self._values[node.id]
            if self._bytes > _MAX_TOTAL_BYTES:
                return None
            try:
                if not _is_built_in(node):
                    return None
                kernel = self._kernel_of(node)
                expected = expected_ns(kernel.cost, inputs) + _measuring_ns(node)
                if expected > min(budget, _MOST_NS / 10) or kernel.wants_context or kernel.is_async:
                    return None
                expect(UNMEASURED * expected)
                if (room := _bytes_to_make(node)) >= _COUNTED_BYTES:
                    announce(room)
                with watching(_LittleRoom(_scratch(node, kernel, inputs)), every=False):
                    began = thread_time()
                    outputs = _outputs(node, kernel, inputs)
                    budget -= max(expected, (thread_time() - began) * 1e9)
            except Exception:
                outputs = None  # the node will raise its error when it runs
            self._values[node.id] = outputs
            self._count([value for value in outputs or () if not _is_part_of(value, inputs)])
            return outputs

        return evaluate

    def _count(self, made: Sequence[Any]) -> None:
        """Count values with memory of their own, large ones also for the session: plans hold them."""
        for value in made:
            size = num_bytes(value)
            self._bytes += size
            if size >= _COUNTED_BYTES:
                note_kept(value)


def _bytes_to_make(node: Node) -> int:
    """The bytes of a node's outputs by their shapes, without what strings contain."""
    sizes = zip(node.shapes or (), node.output_types, strict=False)
    return sum((shape.num_elements or 0) * dtype.np.itemsize for shape, dtype in sizes)


def _measuring_ns(node: Node) -> float:
    """Nanoseconds in which the bytes of a node's output strings are added up: for the limits, and for the session."""
    outputs = zip(node.shapes or (), node.output_types, strict=False)
    return 2 * MEASURE_NS * sum(shape.num_elements or 0 for shape, dtype in outputs if dtype is dtypes.string)


def _scratch(node: Node, kernel: BuiltKernel, inputs: Sequence[Any]) -> int:
    made = sum(shape.num_elements or 0 for shape in node.shapes or ())
    return scratch_bytes(kernel.scratch, inputs, made)


class _LittleRoom:
    """Refuses a call with more than `_MAX_SCRATCH_BYTES` of scratch memory, which no account counts during folding.

    Args:
        scratch: the bytes that it is known to need.
    """

    def __init__(self, scratch: int) -> None:
        self._scratch = 0
        self.announce_scratch(scratch)

    def wrap(self, allocator: Allocator) -> Allocator:
        return allocator

    def announce(self, num_bytes: int) -> None:
        if num_bytes > MAX_BYTES:
            raise errors.ResourceExhaustedError(f"{num_bytes} bytes are too many for a folded value")

    def announce_scratch(self, num_bytes: int) -> None:
        self._scratch += num_bytes
        if self._scratch > _MAX_SCRATCH_BYTES:
            raise errors.ResourceExhaustedError(f"{self._scratch} bytes are too many to fold a value")

    def kept(self, array: Any) -> None:
        """Ignore a value that is kept: it counts for the session."""

    def is_scratch(self, array: Any) -> None:
        self.announce_scratch(array.nbytes)

    def of_part(self) -> AbstractContextManager[_LittleRoom]:
        return nullcontext(self)


def _is_built_in(node: Node) -> bool:
    """True if the kernel belongs to aexec.  Nothing is known of the time and the effects of other kernels."""
    registration = kernel_registry.global_registry.lookup(node.op, DEVICE_CPU, node.attrs, node=node.name)
    return getattr(registration.builder, "__module__", "").startswith("aexec.kernels.")


def _outputs(node: Node, kernel: BuiltKernel, inputs: Sequence[Any]) -> list[Any] | None:
    with np.errstate(all="ignore"):
        result = kernel.compute(list(inputs)) if kernel.takes_list else kernel.compute(*inputs)
    outputs = [np.asarray(value) for value in (result if isinstance(result, tuple) else (result,))]
    if len(outputs) != node.num_outputs or any(num_bytes(value) > MAX_BYTES for value in outputs):
        return None
    if any(value.dtype != dtype.np for value, dtype in zip(outputs, node.output_types, strict=True)):
        return None
    for value in outputs:
        value.flags.writeable = False
        if log_memory.is_enabled():
            log_memory.record_tensor_allocation(log_memory.SpecialStep.CONSTANT_FOLDING, node.name, value)
    return outputs


def _is_part_of(value: Any, inputs: Sequence[Any]) -> bool:
    """True if a value is a view of an input, and so takes no memory of its own."""
    return any(np.may_share_memory(value, array) for array in inputs)
