"""The memory log: one line for each tensor that a step makes, passes on and frees, as TensorFlow's LogMemory writes.

Lines go to the logger `aexec.memory`; while the log is off it costs nothing.  While a session with `log_memory` in its
config is open, lines have level INFO.  They have level DEBUG if that level is set on this logger itself, not on one
above it:
    logging.basicConfig()
    logging.getLogger("aexec.memory").setLevel(logging.DEBUG)

A line is `__LOG_MEMORY__ <message> { <fields as text> }`, where the message is one of
`protos/aexec/framework/log_memory.proto`; `parse` reads it back.  Memory that is not a step's has a `SpecialStep`.
"""

from __future__ import annotations

import enum
import logging
import re
import weakref
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework.memory.tensor_buffer import (
    CPU_ALLOCATOR,
    allocation_id,
    buffer_of,
    new_allocation_id,
    num_bytes,
    tensor_description,
)

__all__ = [
    "SpecialStep",
    "is_enabled",
    "parse",
    "record_borrowed",
    "record_network_buffer",
    "record_network_buffer_freed",
    "record_raw_allocation",
    "record_raw_deallocation",
    "record_step",
    "record_tensor_allocation",
    "record_tensor_output",
    "turn_off",
    "turn_on",
]

_logger = logging.getLogger("aexec.memory")
_LABEL = "__LOG_MEMORY__"
_LINE = re.compile(rf"{_LABEL} (\w+) \{{ (.*) \}}")
# Number of open sessions that have turned the log on.
_wanted = 0


class SpecialStep(enum.IntEnum):
    """Step ids for memory that is not a step's."""

    CONSTANT_FOLDING = -1
    KERNEL_CONSTRUCTION = -2
    EXTERNAL_ALLOCATION = -3
    NETWORK_BUFFER = -4
    PROTO_BUFFER = -5
    UNKNOWN = -6


def turn_on() -> None:
    """Turn the log on, until `turn_off` has been called as many times."""
    global _wanted
    _wanted += 1


def turn_off() -> None:
    """Undo one call of `turn_on`."""
    global _wanted
    _wanted -= 1


def is_enabled() -> bool:
    """True if the log is on; callers check this before they describe tensors."""
    if _wanted:
        return _logger.isEnabledFor(logging.INFO)
    # Only a level set on this logger counts: a program that debugs something else must not become many times slower.
    return 0 < _logger.level <= logging.DEBUG and _logger.isEnabledFor(logging.DEBUG)


def record_step(step_id: int, handle: str) -> None:
    """Record that a step begins; `handle` says what it runs."""
    _write(proto.MemoryLogStep(step_id=step_id, handle=handle))


# Ids of the recorded allocations that are not freed yet.
_live: set[int] = set()


def record_tensor_allocation(
    step_id: int, kernel_name: str, tensor: Any, allocator_name: str = CPU_ALLOCATOR, *, single: bool = False
) -> None:
    """Record that a kernel made `tensor`, once for each buffer; its end is recorded automatically.

    Args:
        step_id: id of the kernel's step, or a `SpecialStep`.
        single: only the caller has a reference to it.
    """
    number = _first_seen(tensor)
    if number == 0:
        return
    description = tensor_description(tensor, None, allocator_name, single=single)
    _write(proto.MemoryLogTensorAllocation(step_id=step_id, kernel_name=kernel_name, tensor=description))
    _when_freed(tensor, number, lambda: record_tensor_deallocation(number, allocator_name))


def _first_seen(array: Any) -> int:
    """Return the allocation id of a buffer that is not recorded yet; 0 for other buffers, and views without one."""
    number = allocation_id(array)
    if number == 0 or number in _live:
        return 0
    _live.add(number)
    return number


def _when_freed(array: Any, number: int, record: Any) -> None:
    def freed() -> None:
        _live.discard(number)
        record()

    weakref.finalize(buffer_of(array), freed).atexit = False


def record_tensor_deallocation(allocation_id: int, allocator_name: str) -> None:
    """Record that a tensor's memory was freed."""
    _write(proto.MemoryLogTensorDeallocation(allocation_id=allocation_id, allocator_name=allocator_name))


def record_tensor_output(
    step_id: int,
    kernel_name: str,
    index: int,
    tensor: Any,
    allocator_name: str = CPU_ALLOCATOR,
    *,
    single: bool = False,
) -> None:
    """Record that output number `index` of a kernel was set."""
    description = tensor_description(tensor, None, allocator_name, single=single)
    _write(proto.MemoryLogTensorOutput(step_id=step_id, kernel_name=kernel_name, index=index, tensor=description))


def record_raw_allocation(
    step_id: int, operation: str, num_bytes: int, ptr: int, allocation_id: int, allocator_name: str
) -> None:
    """Record that memory was allocated that is not a tensor's.

    Args:
        step_id: id of the step that allocated it, or a `SpecialStep`.
        operation: what the memory is for.
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
    """Record that such memory was freed; `deferred` if the device still uses it, so that another record follows."""
    _write(
        proto.MemoryLogRawDeallocation(
            step_id=step_id,
            operation=operation,
            allocation_id=allocation_id,
            allocator_name=allocator_name,
            deferred=deferred,
        )
    )


def record_borrowed(step_id: int, operation: str, array: Any, allocator_name: str = CPU_ALLOCATOR) -> None:
    """Record an array that was not made by a kernel as raw memory, once for each buffer, until it is freed."""
    number = _first_seen(array)
    if number == 0:
        return
    address = array.ctypes.data if isinstance(array, np.ndarray) else 0
    record_raw_allocation(step_id, operation, num_bytes(array), address, number, allocator_name)
    _when_freed(
        array, number, lambda: record_raw_deallocation(step_id, operation, number, allocator_name, deferred=False)
    )


def record_network_buffer(operation: str, data: bytes | memoryview) -> int:
    """Record bytes from the network; return their number for `record_network_buffer_freed`."""
    if not is_enabled():
        return 0
    number = new_allocation_id()
    address = np.frombuffer(data, np.uint8).ctypes.data
    record_raw_allocation(SpecialStep.NETWORK_BUFFER, operation, len(data), address, number, CPU_ALLOCATOR)
    return number


def record_network_buffer_freed(operation: str, number: int) -> None:
    """Record that such bytes are not needed any more."""
    if number:
        record_raw_deallocation(SpecialStep.NETWORK_BUFFER, operation, number, CPU_ALLOCATOR, deferred=False)


def _write(message: Any) -> None:
    if is_enabled():
        from google.protobuf import text_format

        text = text_format.MessageToString(message, as_one_line=True)
        level = logging.INFO if _wanted else logging.DEBUG
        _logger.log(level, "%s %s { %s }", _LABEL, type(message).DESCRIPTOR.name, text)


def parse(line: str) -> Any:
    """Return the message in a line of the log, after any prefix; None for other lines."""
    found = _LINE.search(line)
    kind = getattr(proto, found[1], None) if found is not None and found[1].startswith("MemoryLog") else None
    if found is None or kind is None:
        return None
    from google.protobuf import text_format

    try:
        return text_format.Parse(found[2], kind())
    except text_format.ParseError:
        return None
