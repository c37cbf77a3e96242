"""The memory log: one line for each tensor that a step makes, hands on and frees.

It is written to the logger `aexec.memory` at level DEBUG, and costs nothing while that is off:

    logging.basicConfig()
    logging.getLogger("aexec.memory").setLevel(logging.DEBUG)

A line is `__LOG_MEMORY__ <message> { <fields as text> }`, where the message is one of
`protos/aexec/framework/log_memory.proto`; `parse` reads it back.
"""

from __future__ import annotations

import enum
import logging
import re
import weakref
from typing import Any

from google.protobuf import text_format

from aexec import proto
from aexec.framework.tensor_buffer import CPU_ALLOCATOR, allocation_id, buffer_of, tensor_description

__all__ = [
    "SpecialStep",
    "is_enabled",
    "parse",
    "record_raw_allocation",
    "record_raw_deallocation",
    "record_step",
    "record_tensor_allocation",
    "record_tensor_output",
]

_logger = logging.getLogger("aexec.memory")
_LABEL = "__LOG_MEMORY__"
_LINE = re.compile(rf"{_LABEL} (\w+) \{{ (.*) \}}")


class SpecialStep(enum.IntEnum):
    """Step ids of memory that no step asked for."""

    CONSTANT_FOLDING = -1
    KERNEL_CONSTRUCTION = -2
    EXTERNAL_ALLOCATION = -3
    NETWORK_BUFFER = -4
    PROTO_BUFFER = -5
    UNKNOWN = -6


def is_enabled() -> bool:
    """Is anything written?  Whoever describes tensors asks first."""
    return _logger.isEnabledFor(logging.DEBUG)


def record_step(step_id: int, handle: str) -> None:
    """A step begins; `handle` says what it was asked for."""
    _write(proto.MemoryLogStep(step_id=step_id, handle=handle))


# Ids of the allocations that were recorded and are alive.
_live: set[int] = set()


def record_tensor_allocation(step_id: int, kernel_name: str, tensor: Any) -> None:
    """A kernel made `tensor`.  Once for each buffer; that it is freed is recorded by itself."""
    number = allocation_id(tensor)
    if number == 0 or number in _live:
        return
    _live.add(number)
    weakref.finalize(buffer_of(tensor), _freed, number).atexit = False
    description = tensor_description(tensor)
    _write(proto.MemoryLogTensorAllocation(step_id=step_id, kernel_name=kernel_name, tensor=description))


def _freed(number: int) -> None:
    _live.discard(number)
    record_tensor_deallocation(number, CPU_ALLOCATOR)


def record_tensor_deallocation(allocation_id: int, allocator_name: str) -> None:
    """A tensor's memory was freed."""
    _write(proto.MemoryLogTensorDeallocation(allocation_id=allocation_id, allocator_name=allocator_name))


def record_tensor_output(step_id: int, kernel_name: str, index: int, tensor: Any) -> None:
    """A kernel's output number `index` was set."""
    description = tensor_description(tensor)
    _write(proto.MemoryLogTensorOutput(step_id=step_id, kernel_name=kernel_name, index=index, tensor=description))


def record_raw_allocation(
    step_id: int, operation: str, num_bytes: int, ptr: int, allocation_id: int, allocator_name: str
) -> None:
    """Memory was taken that is no tensor's.

    Args:
        step_id: of the step that took it, or a `SpecialStep`.
        operation: what it is for.
        ptr: its address.
    """
    _write(
        proto.MemoryLogRawAllocation(
            step_id=step_id,
            operation=operation,
            num_bytes=num_bytes,
            ptr=ptr,
            allocation_id=allocation_id,
            allocator_name=allocator_name,
        )
    )


def record_raw_deallocation(
    step_id: int, operation: str, allocation_id: int, allocator_name: str, deferred: bool
) -> None:
    """Such memory was given back; `deferred` if the device still uses it, and another record will follow."""
    _write(
        proto.MemoryLogRawDeallocation(
            step_id=step_id,
            operation=operation,
            allocation_id=allocation_id,
            allocator_name=allocator_name,
            deferred=deferred,
        )
    )


def _write(message: Any) -> None:
    text = text_format.MessageToString(message, as_one_line=True)
    _logger.debug("%s %s { %s }", _LABEL, type(message).DESCRIPTOR.name, text)


def parse(line: str) -> Any:
    """The message of a line of the log, wherever in the line it stands; None for other lines."""
    found = _LINE.search(line)
    kind = getattr(proto, found[1], None) if found is not None and found[1].startswith("MemoryLog") else None
    if found is None or kind is None:
        return None
    try:
        return text_format.Parse(found[2], kind())
    except text_format.ParseError:
        return None
