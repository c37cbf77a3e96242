"""Chrome traces: step statistics drawn as a timeline, for chrome://tracing and Perfetto.

The events are those of TensorFlow's timeline module: for each device a process for computing and one for tensors,
arrows where data goes from row to row, and on demand the lives of tensors with the memory in use.  Rows ("lanes") are
the threads and streams that nodes ran on, and further ones for calls that were awaited beside others.  If statistics
name no threads, as TensorFlow's do not, rows are assigned so that no two nodes of a row overlap.
Next to read: `trace_summary.py`, which adds up the events.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from aexec import proto
from aexec.framework.late_dataclass import dataclass
from aexec.graph.partitioning.partition import SENDS, TRANSFERS
from aexec.runtime.profiling.step_stats import COPIES, is_copy, op_of, self_nanos, total_nanos, where_run

__all__ = ["to_chrome_trace"]

Event = dict[str, Any]

_LABEL = re.compile(r"(.*) = ([^(]*)\((.*)\)")
_TRANSFER = re.compile(r".* = \w+\((.*) @([^;]*)(;.*)?")
_ALLOCATORS_PID = 0
# Microseconds: an arrow must begin inside the event that it comes from, and not at its end.
_WITHIN = 0.001


def to_chrome_trace(
    step_stats: proto.StepStats, *, show_dataflow: bool = True, show_memory: bool = False
) -> dict[str, Any]:
    """Draw step statistics.

    Args:
        step_stats: the statistics of one step.
        show_dataflow: True to draw arrows from producers to consumers.
        show_memory: True to add tensors as objects, and counters of memory in use per allocator.

    Returns:
        `{"traceEvents": [...]}`, ready for `json.dump`.  Times are in microseconds: from the step's first event on, in
        steps of a nanosecond, or since the epoch where the statistics have no nanoseconds.
    """
    trace = _Trace(_first_nanos(step_stats))
    for number, stats in enumerate(step_stats.dev_stats):
        trace.add_device(stats, 2 * number + 1)
    if show_memory:
        for tensor in trace.tensors:
            trace.draw_tensor(tensor)
    for device in trace.devices:
        for run in device.runs:
            trace.draw_run(device, run, show_dataflow=show_dataflow)
    if show_dataflow:
        trace.draw_transfers()
    if show_memory:
        trace.draw_memory()
    return {
        "traceEvents": trace.names + trace.events,
        "displayTimeUnit": "ns",
        "otherData": {"start_unix_nanos": str(trace.began)},
    }


def _first_nanos(step_stats: proto.StepStats) -> int:
    """Return when the first node of a step ran, in ns since the epoch; 0 if only microseconds are known."""
    every = [_begin(stats) for device in step_stats.dev_stats for stats in device.node_stats]
    return min(every, default=0)


def _begin(stats: proto.NodeExecStats) -> int:
    return int(stats.all_start_nanos and stats.all_start_nanos + stats.op_start_rel_nanos)


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a node, from `start` to `end` in microseconds, in row `lane`; `inputs` are names of tensors."""

    stats: proto.NodeExecStats
    start: float
    end: float
    op: str
    name: str
    inputs: Sequence[str]
    where: str
    lane: int = 0


@dataclass(slots=True)
class _Device:
    name: str
    pid: int
    runs: list[_Run]


@dataclass(slots=True, eq=False)
class _Tensor:
    """An output of one run of a node, with its uses."""

    name: str
    number: int
    producer: _Run
    pid: int
    tensors_pid: int
    output: proto.NodeOutput
    last_use: float


class _Trace:
    """Builds the events of a trace.

    Attributes:
        began: the time, in ns since the epoch, that is 0 in the trace.
        names: the events with the rows' headings, which come first.
        events: all other events.
        tensors: the outputs of all devices.
    """

    def __init__(self, began: int) -> None:
        self.began = began
        # The resolution of times, in microseconds: a tensor must end inside the event of its last user.
        self._tick = _WITHIN if began else 1
        self.names: list[Event] = [_heading("process_name", _ALLOCATORS_PID, name="Allocators")]
        self.events: list[Event] = []
        self.devices: list[_Device] = []
        self.tensors: list[_Tensor] = []
        # By name, in the order in which they were made.
        self._by_name: dict[str, list[_Tensor]] = {}
        self._flows = 0

    def add_device(self, stats: proto.DeviceStepStats, pid: int) -> None:
        """Add the node runs of a device, whose process numbers are `pid` and `pid + 1`.

        The copies of a known device become further rows of it.
        """
        copied_by = stats.device.removesuffix(COPIES)
        device = next((device for device in self.devices if device.name == copied_by), None)
        above = 0
        if device is not None:
            pid, above = device.pid, 1 + max((run.lane for run in device.runs), default=0)
        else:
            self.names.append(_heading("process_name", pid, name=f"{stats.device} Compute"))
            self.names.append(_heading("process_name", pid + 1, name=f"{stats.device} Tensors"))
        is_gpu_trace = "/stream:" in stats.device or "/memcpy" in stats.device
        runs = [self._read_run(run, stats, is_gpu_trace=is_gpu_trace) for run in stats.node_stats]
        lanes = _assign_threads(runs, stats.thread_names) if stats.thread_names else _assign_free(runs)
        for run in runs:
            run.lane += above
        for lane, name in zip((lane + above for lane in lanes), lanes.values(), strict=True):
            self.names.append(_heading("thread_name", pid, lane, name=name))
            self.names.append(_heading("thread_sort_index", pid, lane, sort_index=lane))
        self.devices.append(_Device(stats.device, pid, runs))
        for run in runs:
            for output in run.stats.output:
                name = f"{run.stats.node_name}:{output.slot}" if output.slot else run.stats.node_name
                tensor = _Tensor(name, len(self.tensors), run, pid, pid + 1, output, run.end)
                self.tensors.append(tensor)
                self._by_name.setdefault(name, []).append(tensor)

    def _read_run(self, stats: proto.NodeExecStats, device: proto.DeviceStepStats, *, is_gpu_trace: bool) -> _Run:
        if self.began:
            start, elapsed = (_begin(stats) - self.began) / 1e3, total_nanos(stats) / 1e3
        else:
            start, elapsed = float(stats.all_start_micros), float(stats.all_end_rel_micros)
        name, op, inputs = _read_label(stats, is_gpu_trace=is_gpu_trace)
        return _Run(stats, start, start + elapsed, op, name, inputs, where_run(stats, device))

    def draw_run(self, device: _Device, run: _Run, *, show_dataflow: bool) -> None:
        args: dict[str, Any] = {"name": run.name, "op": run.op}
        args.update({f"input{i}": name for i, name in enumerate(run.inputs)})
        if self.began:
            stats = run.stats
            args["where"] = run.where
            args["self_us"] = self_nanos(stats) / 1e3
            args["waited_us"] = max(0, _begin(stats) - stats.scheduled_nanos) / 1e3
            args["bytes"] = sum(used.total_bytes for used in stats.memory)
        region = _event("X", "Copy" if is_copy(run.stats) else "Op", run.op, device.pid, run.lane, run.start)
        self.events.append(region | {"dur": run.end - run.start, "args": args})
        for name in run.inputs:
            tensor = self._find(name, run)
            if tensor is None:
                continue
            tensor.last_use = max(tensor.last_use, run.end - self._tick)
            if show_dataflow and (tensor.pid, tensor.producer.lane) != (device.pid, run.lane):
                self._draw_arrow(tensor, device.pid, run)

    def draw_transfers(self) -> None:
        """Draw arrows from sends to their receives: those with the same tensor name, frame and iteration."""
        sent: dict[tuple[str, str, str, str], tuple[_Device, _Run]] = {}
        received: list[tuple[tuple[str, str, str, str], _Device, _Run]] = []
        for device in self.devices:
            for run in device.runs:
                op = op_of(run.stats)
                found = _TRANSFER.fullmatch(run.stats.timeline_label) if op in TRANSFERS else None
                if found is None:
                    continue
                carried, other, frame_iter = found[1], found[2], found[3] or ""
                if op in SENDS:
                    sent[carried, device.name, other, frame_iter] = device, run
                else:
                    received.append(((carried, other, device.name, frame_iter), device, run))
        for key, device, run in received:
            if key in sent:
                from_device, from_run = sent[key]
                start = _event("s", "Transfer", key[0], from_device.pid, from_run.lane, _last_moment(from_run))
                # A waiting receive began before the send, so the arrow ends in the middle of it.
                moment = min(max(run.start, from_run.end), _last_moment(run))
                self._draw_flow(start, _event("f", "Transfer", key[0], device.pid, run.lane, moment) | {"bp": "e"})

    def draw_tensor(self, tensor: _Tensor) -> None:
        """Draw the creation of a tensor, and its description at the end of its producer."""
        run = tensor.producer
        born = _event("N", "Tensor", tensor.name, tensor.tensors_pid, run.lane, run.start)
        known = _event("O", "Tensor", tensor.name, tensor.tensors_pid, run.lane, run.end - self._tick)
        text = str(tensor.output.tensor_description).replace('"', "")
        self.events.append(born | {"id": tensor.number})
        self.events.append(known | {"id": tensor.number, "args": {"snapshot": {"tensor_description": text}}})

    def draw_memory(self) -> None:
        """Draw the end of each tensor, and for each allocator the memory in use."""
        # An allocation is in use as long as any of its views is.
        together: dict[int, list[_Tensor]] = {}
        for tensor in self.tensors:
            gone = _event("D", "Tensor", tensor.name, tensor.tensors_pid, 0, tensor.last_use)
            self.events.append(gone | {"id": tensor.number})
            allocation_id = tensor.output.tensor_description.allocation_description.allocation_id
            together.setdefault(allocation_id or -1 - tensor.number, []).append(tensor)
        changes: dict[str, list[tuple[float, int, str]]] = {}
        for tensors in together.values():
            first = tensors[0]
            allocation = first.output.tensor_description.allocation_description
            size = max(int(t.output.tensor_description.allocation_description.requested_bytes) for t in tensors)
            of_allocator = changes.setdefault(allocation.allocator_name, [])
            of_allocator.append((min(t.producer.start for t in tensors), size, first.name))
            of_allocator.append((max(t.last_use for t in tensors), -size, first.name))
        for allocator, of_allocator in changes.items():
            in_use = 0
            for moment, change, _ in sorted(of_allocator):
                in_use += change
                counter = _event("C", "Memory", allocator, _ALLOCATORS_PID, 0, moment)
                self.events.append(counter | {"args": {allocator: in_use}})

    def _find(self, name: str, consumer: _Run) -> _Tensor | None:
        """The tensor that a run got under this name; in a loop, the latest one made before the run."""
        # Partitioning names a receive after its source: x/_3 carries x.
        cut = name.rfind("/_")
        made = self._by_name.get(name) or (self._by_name.get(name[:cut]) if cut > 0 else None)
        if made is None:
            return None
        before = bisect_right(made, consumer.start, key=lambda tensor: tensor.producer.end)
        return made[max(0, before - 1)]

    def _draw_arrow(self, tensor: _Tensor, pid: int, run: _Run) -> None:
        producer = tensor.producer
        self._draw_flow(
            _event("s", "DataFlow", tensor.name, tensor.pid, producer.lane, _last_moment(producer)),
            _event("t", "DataFlow", tensor.name, pid, run.lane, run.start),
        )

    def _draw_flow(self, start: Event, end: Event) -> None:
        self.events.append(start | {"id": self._flows})
        self.events.append(end | {"id": self._flows})
        self._flows += 1


def _last_moment(run: _Run) -> float:
    return max(run.start, run.end - _WITHIN)


# Rows


def _assign_threads(runs: Sequence[_Run], thread_names: Any) -> dict[int, str]:
    """Put each run into the row of its thread; runs that may overlap others, as coroutines do, get rows beside it.

    Returns:
        The rows' names.
    """
    names = {int(number): str(name) for number, name in thread_names.items()}
    beside: dict[str, list[float]] = {"awaited": [], "delegate": []}
    lanes: dict[tuple[str, int], int] = {}
    for run in sorted(runs, key=lambda run: run.start):
        run.lane = run.stats.thread_id
        if run.where in beside:
            row = _free_row(beside[run.where], run)
            run.lane = lanes.setdefault((run.where, row), max(names, default=-1) + 1)
            names[run.lane] = f"{run.where} {row + 1}" if row else run.where
    return {lane: names[lane] for lane in sorted({run.lane for run in runs})}


def _assign_free(runs: Sequence[_Run]) -> dict[int, str]:
    """Put each run into the first row that is free; these rows have no names."""
    ends = [0.0]
    for run in runs:
        run.lane = _free_row(ends, run)
    return {}


def _free_row(ends: list[float], run: _Run) -> int:
    """The first row that is free when this run begins, given the end of each row's last run."""
    for row, last_end in enumerate(ends):
        if last_end < run.start:
            ends[row] = run.end
            return row
    ends.append(run.end)
    return len(ends) - 1


# Labels


def _read_label(stats: proto.NodeExecStats, *, is_gpu_trace: bool) -> tuple[str, str, Sequence[str]]:
    """(name, op, inputs) from the label `name = Op(inputs)`; on a GPU from `name:Op` or `@@name:Op#id`."""
    if is_copy(stats):
        return stats.node_name, op_of(stats), ()
    if is_gpu_trace:
        return (*_read_gpu_label(stats.timeline_label, stats.node_name), ())
    if stats.node_name == "RecvTensor":
        return stats.node_name, "RecvTensor", ()
    if (op := op_of(stats)) in TRANSFERS:
        return stats.node_name, op, ()
    match = _LABEL.match(stats.timeline_label)
    if match is None:
        return stats.node_name, "unknown", ()
    return stats.node_name, match[2], match[3].split(", ") if match[3] else ()


def _read_gpu_label(label: str, node_name: str) -> tuple[str, str]:
    start, end = label.find("@@"), label.find("#")
    if start >= 0 and start + 2 < end:
        node_name = label[start + 2 : end]
    name, op = [*node_name.split(":"), "unknown"][:2]
    return name, op


# Events


def _heading(kind: str, pid: int, lane: int = 0, **args: Any) -> Event:
    of_thread = {"tid": lane} if kind.startswith("thread") else {}
    return {"name": kind, "ph": "M", "pid": pid, **of_thread, "args": args}


def _event(phase: str, category: str, name: str, pid: int, lane: int, moment: float) -> Event:
    return {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": lane, "ts": moment}
