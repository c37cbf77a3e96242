"""Chrome traces: step statistics drawn as a timeline, for chrome://tracing and Perfetto.

The events are those that TensorFlow's timeline module writes: per device one process
for computing and one for tensors, one row ("lane") per node that runs beside others,
arrows where data goes from row to row, and on demand the lives of tensors with the
memory in use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from aexec import proto

__all__ = ["to_chrome_trace"]

Event = dict[str, Any]

_LABEL = re.compile(r"(.*) = (.*)\((.*)\)")
_ALLOCATORS_PID = 0


def to_chrome_trace(
    step_stats: proto.StepStats, *, show_dataflow: bool = True, show_memory: bool = False
) -> dict[str, Any]:
    """Draw step statistics.

    Args:
        step_stats: of one step; times come out in microseconds, as they are in there.
        show_dataflow: draw arrows from producers to consumers.
        show_memory: add tensors as objects, and counters of memory in use per allocator.

    Returns:
        `{"traceEvents": [...]}`, ready for `json.dump`.
    """
    trace = _Trace()
    for number, stats in enumerate(step_stats.dev_stats):
        trace.add_device(stats, 2 * number + 1)
    if show_memory:
        for tensor in trace.tensors.values():
            trace.draw_tensor(tensor)
    for device in trace.devices:
        for run in device.runs:
            trace.draw_run(device, run, show_dataflow=show_dataflow)
    if show_memory:
        trace.draw_memory()
    return {"traceEvents": trace.processes + trace.events}


@dataclass(slots=True)
class _Run:
    """One node run: `lane` is the row that it is drawn in, `inputs` are names of tensors."""

    stats: proto.NodeExecStats
    lane: int
    op: str
    name: str
    inputs: list[str]

    @property
    def start(self) -> int:
        return int(self.stats.all_start_micros)

    @property
    def end(self) -> int:
        return self.start + int(self.stats.all_end_rel_micros)


@dataclass(slots=True)
class _Device:
    pid: int
    runs: list[_Run]


@dataclass(slots=True)
class _Tensor:
    """An output: by whom, and until when it was used."""

    name: str
    number: int
    producer: _Run
    pid: int
    tensors_pid: int
    output: proto.NodeOutput
    last_use: int


class _Trace:
    """Events in the making.

    Attributes:
        processes: announce the rows' headings; they come first.
        events: all others.
        tensors: the outputs of all devices by name, a later run of a node replacing an earlier one.
    """

    def __init__(self) -> None:
        self.processes: list[Event] = [_process("Allocators", _ALLOCATORS_PID)]
        self.events: list[Event] = []
        self.devices: list[_Device] = []
        self.tensors: dict[str, _Tensor] = {}
        self._flows = 0

    def add_device(self, stats: proto.DeviceStepStats, pid: int) -> None:
        """Take in the node runs of a device, whose process numbers are `pid` and the next."""
        self.processes.append(_process(f"{stats.device} Compute", pid))
        self.processes.append(_process(f"{stats.device} Tensors", pid + 1))
        is_gpu_trace = "/stream:" in stats.device or "/memcpy" in stats.device
        lanes = _Lanes()
        device = _Device(pid, [_read_run(s, lanes.assign(s), is_gpu_trace=is_gpu_trace) for s in stats.node_stats])
        self.devices.append(device)
        for run in device.runs:
            for position, output in enumerate(run.stats.output):
                name = f"{run.stats.node_name}:{position}" if position else run.stats.node_name
                self.tensors[name] = _Tensor(name, len(self.tensors), run, pid, pid + 1, output, run.end)

    def draw_run(self, device: _Device, run: _Run, *, show_dataflow: bool) -> None:
        args = {"name": run.name, "op": run.op}
        args.update({f"input{i}": name for i, name in enumerate(run.inputs)})
        region = _event("X", "Op", run.op, device.pid, run.lane, run.start)
        self.events.append(region | {"dur": run.end - run.start, "args": args})
        for name in run.inputs:
            tensor = self._find(name)
            if tensor is None:
                continue
            tensor.last_use = max(tensor.last_use, run.end - 1)
            if show_dataflow and (tensor.pid, tensor.producer.lane) != (device.pid, run.lane):
                self._draw_arrow(tensor, device.pid, run)

    def draw_tensor(self, tensor: _Tensor) -> None:
        """The birth of a tensor, and what it is once its producer is done."""
        run = tensor.producer
        born = _event("N", "Tensor", tensor.name, tensor.tensors_pid, run.lane, run.start)
        known = _event("O", "Tensor", tensor.name, tensor.tensors_pid, run.lane, run.end - 1)
        text = str(tensor.output.tensor_description).replace('"', "")
        self.events.append(born | {"id": tensor.number})
        self.events.append(known | {"id": tensor.number, "args": {"snapshot": {"tensor_description": text}}})

    def draw_memory(self) -> None:
        """The end of each tensor, and per allocator the sum of those alive."""
        changes: dict[str, list[tuple[int, int, str]]] = {}
        for tensor in self.tensors.values():
            gone = _event("D", "Tensor", tensor.name, tensor.tensors_pid, 0, tensor.last_use)
            self.events.append(gone | {"id": tensor.number})
            allocation = tensor.output.tensor_description.allocation_description
            size = int(allocation.requested_bytes)
            of_allocator = changes.setdefault(allocation.allocator_name, [])
            of_allocator.append((tensor.producer.start, size, tensor.name))
            of_allocator.append((tensor.last_use, -size, tensor.name))
        for allocator, of_allocator in changes.items():
            in_use = 0
            for moment, change, _ in sorted(of_allocator):
                in_use += change
                counter = _event("C", "Memory", allocator, _ALLOCATORS_PID, 0, moment)
                self.events.append(counter | {"args": {allocator: in_use}})

    def _find(self, name: str) -> _Tensor | None:
        # A receive put in by partitioning is named after its source: x/_3 carries x.
        cut = name.rfind("/_")
        return self.tensors.get(name) or (self.tensors.get(name[:cut]) if cut > 0 else None)

    def _draw_arrow(self, tensor: _Tensor, pid: int, run: _Run) -> None:
        start = _event("s", "DataFlow", tensor.name, tensor.pid, tensor.producer.lane, tensor.producer.end)
        end = _event("t", "DataFlow", tensor.name, pid, run.lane, run.start)
        self.events.append(start | {"id": self._flows})
        self.events.append(end | {"id": self._flows})
        self._flows += 1


class _Lanes:
    """Rows of a device: a run goes to the first row whose last run has ended."""

    def __init__(self) -> None:
        self._ends = [0]

    def assign(self, stats: proto.NodeExecStats) -> int:
        end = stats.all_start_micros + stats.all_end_rel_micros
        for lane, last_end in enumerate(self._ends):
            if last_end < stats.all_start_micros:
                self._ends[lane] = end
                return lane
        self._ends.append(end)
        return len(self._ends) - 1


def _read_run(stats: proto.NodeExecStats, lane: int, *, is_gpu_trace: bool) -> _Run:
    """Take op and inputs from the label `name = Op(inputs)`; on a GPU from `name:Op` or `@@name:Op#id`."""
    if is_gpu_trace:
        name, op = _read_gpu_label(stats.timeline_label, stats.node_name)
        return _Run(stats, lane, op, name, [])
    if stats.node_name == "RecvTensor":
        return _Run(stats, lane, "RecvTensor", stats.node_name, [])
    match = _LABEL.match(stats.timeline_label)
    if match is None:
        return _Run(stats, lane, "unknown", stats.node_name, [])
    inputs = match[3].split(", ") if match[3] else []
    return _Run(stats, lane, match[2], stats.node_name, inputs)


def _read_gpu_label(label: str, node_name: str) -> tuple[str, str]:
    start, end = label.find("@@"), label.find("#")
    if start >= 0 and start + 2 < end:
        node_name = label[start + 2 : end]
    name, op = [*node_name.split(":"), "unknown"][:2]
    return name, op


def _process(name: str, pid: int) -> Event:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def _event(phase: str, category: str, name: str, pid: int, lane: int, moment: int) -> Event:
    return {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": lane, "ts": moment}
