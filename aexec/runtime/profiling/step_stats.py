"""Step statistics: what a traced step did, node by node, as StepStats.

The collector of a device keeps a record for each node run, and builds messages only when asked, so that tracing hardly
changes the timing.  It records `_SOURCE`, with which each execution starts, and no dead nodes.
Next to read: `tracing.py`, which watches the calls; `chrome_trace.py`, which draws them; `profile.py`, which adds
them up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.tensor_buffer import CPU_ALLOCATOR, allocation_description, num_bytes, tensor_description
from aexec.graph.partitioning.partition import SENDS, TRANSFERS

__all__ = [
    "COPIES",
    "SOURCE",
    "NodeMemory",
    "StepStatsCollector",
    "is_copy",
    "merge",
    "op_of",
    "self_nanos",
    "timeline_label",
    "total_nanos",
    "transfer_text",
    "where_run",
]

# The node with which each execution starts, on the thread of the event loop.
SOURCE = "_SOURCE"

# The suffix of a device's name for the statistics of its copies, as in TensorFlow's.
COPIES = "/memcpy"
# In the names and labels of copies: `node:MEMCPYHtoD`.
_COPY = ":MEMCPY"

_DELEGATED = "_DelegatedRegion"
# The suffix of names of streams, which names of threads do not have.
_STREAM = " stream"

# The most node runs that are recorded of a step.
MAX_RECORDS = 1 << 20
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """The tracked memory of a node's run.

    Attributes:
        allocators: the use of each allocator.
        temp_bytes: the bytes of scratch memory.
        persistent_bytes, persistent_ids: the bytes that it keeps after its run, and their allocation ids.
        referenced: the arrays of variables that it used.
    """

    allocators: tuple[proto.AllocatorMemoryUsed, ...] = ()
    temp_bytes: int = 0
    persistent_bytes: int = 0
    persistent_ids: tuple[int, ...] = ()
    referenced: tuple[Any, ...] = ()


class StepStatsCollector:
    """Collects the node runs of one step on one device.  Any thread may record.

    Args:
        device: the full name of the device.
        allocator_name: the name of the allocator of outputs.
        source: True to begin with `_SOURCE`.
    """

    def __init__(self, device: str, allocator_name: str = CPU_ALLOCATOR, *, source: bool = True) -> None:
        self._device = device
        self._allocator_name = allocator_name
        self._records: list[proto.NodeExecStats] = []
        # Thread identifiers do not fit the message's 32 bits, so threads are numbered.
        self._threads: dict[int | str, int] = {}
        self._thread_names: dict[int, str] = {}
        if source:
            now = time.time_ns()
            self.node_done(SOURCE, "NoOp", (), now, now, now, (), threading.get_ident())

    def node_done(
        self,
        node_name: str,
        op: str,
        inputs: Sequence[str] | str,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        outputs: Iterable[Any],
        thread_id: int | str,
        memory: NodeMemory | None = None,
        busy_ns: int | None = None,
        *,
        taken_ns: int | None = None,
        single: Sequence[bool] = (),
    ) -> None:
        """Record one run of a node.

        Args:
            node_name, op: the node.
            inputs: names of its inputs; for a send or receive its `transfer_text`.
            scheduled_ns: when it became ready, in nanoseconds since the epoch.
            start_ns, end_ns: when its kernel was called, and returned.
            outputs: its outputs, which are described and not kept.
            thread_id: the identifier of its thread, or the name of its stream.
            memory: its memory, if tracked; otherwise only that of the outputs is known.
            busy_ns: the time in which the kernel itself computed, if it waited or called a function; None for all the
                time from `start_ns` to `end_ns`.
            taken_ns: when the executor began with it, if that was earlier, for example to send it to a thread.
            single: for each output, True if there is no other reference to it.
        """
        if len(self._records) >= MAX_RECORDS:
            return
        stats = _times(scheduled_ns, start_ns if taken_ns is None else taken_ns, start_ns, end_ns, busy_ns)
        stats.node_name = node_name
        stats.thread_id = self._thread_number(thread_id)
        made = 0
        for slot, output in enumerate(outputs):
            if hasattr(output, "dtype") and hasattr(output, "shape") and not hasattr(output, "value"):
                alone = slot < len(single) and single[slot]
                described = tensor_description(output, None, self._allocator_name, single=alone)
                stats.output.add(slot=slot, tensor_description=described)
                made += num_bytes(output)
            elif isinstance(getattr(output, "value", None), np.ndarray):  # a variable's cell, perhaps a device's
                stats.referenced_tensor.append(allocation_description(output.value, self._allocator_name))
        self._describe_memory(stats, made, memory)
        stats.timeline_label = timeline_label(node_name, op, inputs, stats.memory)
        self._records.append(stats)

    def copy_done(
        self, node_name: str, kind: str, stream: str, start_ns: int, end_ns: int, allocator: str, copied_bytes: int
    ) -> None:
        """Record a copy that a node needed.

        Args:
            kind: see `device_copies`.
            stream: the name of its stream.
            start_ns, end_ns: when the stream began it and finished it, in nanoseconds since the epoch.
            allocator: the allocator of the destination.
        """
        if len(self._records) >= MAX_RECORDS:
            return
        stats = _times(start_ns, start_ns, start_ns, end_ns, None)
        stats.node_name = stats.timeline_label = f"{node_name}:{kind}"
        stats.thread_id = self._thread_number(stream)
        stats.memory.add(
            allocator_name=allocator, total_bytes=copied_bytes, peak_bytes=copied_bytes, live_bytes=copied_bytes
        )
        self._records.append(stats)

    def to_proto(self) -> proto.StepStats:
        """The statistics recorded so far."""
        return proto.StepStats(
            dev_stats=[
                proto.DeviceStepStats(
                    device=self._device, node_stats=list(self._records), thread_names=dict(self._thread_names)
                )
            ]
        )

    def _thread_number(self, identifier: int | str) -> int:
        number = self._threads.get(identifier)
        if number is None:
            number = self._threads.setdefault(identifier, len(self._threads))
            names = [t.name for t in threading.enumerate() if t.ident == identifier]
            unknown = identifier if isinstance(identifier, str) else f"thread {identifier}"
            self._thread_names[number] = names[0] if names else unknown
        return number

    def _describe_memory(self, stats: proto.NodeExecStats, made: int, memory: NodeMemory | None) -> None:
        if memory is None:
            if made:
                stats.memory.add(
                    allocator_name=self._allocator_name, total_bytes=made, peak_bytes=made, live_bytes=made
                )
            return
        stats.memory.extend(memory.allocators)
        stats.referenced_tensor.extend(allocation_description(a, self._allocator_name) for a in memory.referenced)
        stats.memory_stats.temp_memory_size = memory.temp_bytes
        stats.memory_stats.persistent_memory_size = memory.persistent_bytes
        stats.memory_stats.persistent_tensor_alloc_ids.extend(memory.persistent_ids)

    def __repr__(self) -> str:
        return f"<StepStatsCollector {self._device}, {len(self._records)} node runs>"


def _times(scheduled_ns: int, taken_ns: int, start_ns: int, end_ns: int, busy_ns: int | None) -> proto.NodeExecStats:
    elapsed = end_ns - start_ns
    busy = elapsed if busy_ns is None else min(busy_ns, elapsed)
    op_start, all_end = start_ns - taken_ns, end_ns - taken_ns
    return proto.NodeExecStats(
        scheduled_micros=scheduled_ns // 1000,
        scheduled_nanos=scheduled_ns,
        all_start_micros=taken_ns // 1000,
        all_start_nanos=taken_ns,
        op_start_rel_micros=op_start // 1000,
        op_start_rel_nanos=op_start,
        op_end_rel_micros=(op_start + busy) // 1000,
        op_end_rel_nanos=op_start + busy,
        all_end_rel_micros=all_end // 1000,
        all_end_rel_nanos=all_end,
    )


def timeline_label(
    node_name: str, op: str, inputs: Sequence[str] | str, memory: Iterable[proto.AllocatorMemoryUsed] = ()
) -> str:
    """`[cpu 12.3MB 4.5MB] name = Op(in1, in2)`: allocators with more than 0.1 MB used, then the call.

    For a send or receive `inputs` is its `transfer_text`, and the parenthesis is not closed.
    """
    text = ""
    for used in memory:
        if used.total_bytes >= 0.1 * _MEGABYTE:
            peak = f" {used.peak_bytes / _MEGABYTE:.1f}MB" if used.peak_bytes > 0 else ""
            text += f"[{used.allocator_name} {used.total_bytes / _MEGABYTE:.1f}MB{peak}] "
    arguments = inputs if isinstance(inputs, str) else ", ".join(inputs)
    # As in TensorFlow, the labels of sends and receives name what they carry, and are not closed.
    closing = "" if op in TRANSFERS else ")"
    return f"{text}{node_name} = {op}({arguments}{closing}"


def transfer_text(op: str, attrs: Mapping[str, Any], frame_iter: tuple[int, int] = (0, 0)) -> str:
    """Return what a send or receive carries, with the other device: `tensor_name @device`, as in TensorFlow's labels.

    In a loop `;frame:iteration` follows, as in the keys of a rendezvous; it matches receives with sends.
    """
    other = attrs.get("recv_device" if op in SENDS else "send_device", b"")
    frame, iteration = frame_iter
    where = f";{frame:x}:{iteration}" if frame or iteration else ""
    return f"{_text(attrs.get('tensor_name', b''))} @{_text(other)}{where}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value, "utf-8", "replace")


def total_nanos(stats: proto.NodeExecStats) -> int:
    """Return the ns of a recorded call, from its start until its outputs were there."""
    return int(stats.all_end_rel_nanos - stats.op_start_rel_nanos)


def self_nanos(stats: proto.NodeExecStats) -> int:
    """Return the ns in which a recorded node itself computed; for a delegate, all the time that it took."""
    if op_of(stats) == _DELEGATED:
        return total_nanos(stats)
    return int(stats.op_end_rel_nanos - stats.op_start_rel_nanos)


def where_run(stats: proto.NodeExecStats, device: proto.DeviceStepStats) -> str:
    """Return where a recorded node ran: `inline`, in a `thread`, on a `stream`, `awaited`, or by a `delegate`.

    Inline means on the event loop's thread.  Coroutines are awaited, and so are nodes that call functions.

    Args:
        device: the device's statistics, which contain the node's.
    """
    if op_of(stats) == _DELEGATED:
        return "delegate"
    if self_nanos(stats) < total_nanos(stats):
        return "awaited"
    if device.thread_names.get(stats.thread_id, "").endswith(_STREAM):
        return "stream"
    # The first record is that of `_SOURCE`, which runs on the event loop.
    return "inline" if stats.thread_id == device.node_stats[0].thread_id else "thread"


def op_of(stats: proto.NodeExecStats) -> str:
    """The op of a recorded node, from its label; "" for another kind of label."""
    label = stats.timeline_label
    return label.rpartition(":")[2] if is_copy(stats) else label.partition(" = ")[2].partition("(")[0]


def is_copy(stats: proto.NodeExecStats) -> bool:
    """True for a copy between memories."""
    return _COPY in stats.node_name


def merge(parts: Iterable[proto.StepStats]) -> proto.StepStats:
    """The statistics of one step from those of its devices."""
    merged = proto.StepStats()
    for part in parts:
        merged.MergeFrom(part)
    return merged
