from __future__ import annotations

import threading

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.memory.allocator import CpuAllocator, TrackingAllocator
from aexec.framework.shape import UNKNOWN_RANK
from aexec.framework.state.ref_cell import RefCell
from aexec.runtime.profiling import step_stats
from aexec.runtime.profiling.step_stats import NodeMemory, StepStatsCollector, timeline_label, transfer_text

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
US = 1000


def record(collector=None, outputs=(), name="mm", op="MatMul", inputs=("a", "b:1"), **kwargs) -> proto.NodeExecStats:
    collector = collector or StepStatsCollector(DEVICE)
    thread = threading.get_ident()
    collector.node_done(name, op, inputs, 5000 * US, 5010 * US, 5040 * US + 7, outputs, thread, **kwargs)
    return collector.to_proto().dev_stats[0].node_stats[-1]


def test_statistics_begin_with_the_source_node():
    (device,) = StepStatsCollector(DEVICE).to_proto().dev_stats
    assert device.device == DEVICE
    (source,) = device.node_stats
    assert (source.node_name, source.timeline_label) == ("_SOURCE", "_SOURCE = NoOp()")


def test_times_are_kept_in_micros_and_nanos():
    stats = record()
    assert (stats.scheduled_micros, stats.scheduled_nanos) == (5000, 5_000_000)
    assert (stats.all_start_micros, stats.all_start_nanos) == (5010, 5_010_000)
    assert (stats.op_start_rel_micros, stats.op_start_rel_nanos) == (0, 0)
    assert (stats.op_end_rel_micros, stats.op_end_rel_nanos) == (30, 30_007)
    assert (stats.all_end_rel_micros, stats.all_end_rel_nanos) == (30, 30_007)


def test_outputs_are_described_by_slot():
    stats = record(outputs=(np.zeros((2, 3), np.float32), np.array(b"abc", object), np.int64(1)))
    assert [o.slot for o in stats.output] == [0, 1, 2]
    descriptions = [o.tensor_description for o in stats.output]
    assert [d.dtype for d in descriptions] == [1, 7, 9]
    assert [d.size for d in descriptions[0].shape.dim] == [2, 3]
    assert descriptions[0].allocation_description.requested_bytes == 24
    assert descriptions[0].allocation_description.allocation_id > 0


def test_memory_used_is_that_of_outputs_without_tracking():
    stats = record(outputs=(np.zeros(1 << 18, np.float32), np.zeros(1 << 17, np.float32)))
    (used,) = stats.memory
    assert (used.allocator_name, used.total_bytes, used.live_bytes) == ("cpu", 3 << 19, 3 << 19)
    assert stats.timeline_label == "[cpu 1.5MB 1.5MB] mm = MatMul(a, b:1)"
    assert not record(outputs=()).memory


def test_tracked_memory_is_reported_as_it_was():
    tracking = TrackingAllocator(CpuAllocator())
    scratch = tracking.allocate(1000)
    del scratch
    variable = np.zeros(4)
    stats = record(memory=NodeMemory((tracking.used(),), 1000, 32, (7,), (variable,)))
    assert (stats.memory[0].total_bytes, stats.memory[0].live_bytes) == (1000, 0)
    assert len(stats.memory[0].allocation_records) == 2
    assert stats.memory_stats.temp_memory_size == 1000
    assert stats.memory_stats.persistent_memory_size == 32
    assert list(stats.memory_stats.persistent_tensor_alloc_ids) == [7]
    assert stats.referenced_tensor[0].requested_bytes == 32


def test_variables_cell_is_a_referenced_tensor():
    cell = RefCell(dtypes.float32, UNKNOWN_RANK, np.zeros(4, np.float32))
    stats = record(outputs=(cell, RefCell(dtypes.float32, UNKNOWN_RANK)))
    assert not stats.output
    assert [t.requested_bytes for t in stats.referenced_tensor] == [16]


def test_threads_are_numbered_and_named():
    collector = StepStatsCollector(DEVICE)
    worker = threading.Thread(target=record, args=(collector,), name="worker-7")
    worker.start()
    worker.join()
    record(collector)
    device = collector.to_proto().dev_stats[0]
    assert [s.thread_id for s in device.node_stats] == [0, 1, 0]
    assert device.thread_names == {0: threading.current_thread().name, 1: "worker-7"}


def used(name, total, peak) -> proto.AllocatorMemoryUsed:
    return proto.AllocatorMemoryUsed(allocator_name=name, total_bytes=total, peak_bytes=peak)


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (("n", "Add", ["x", "y:1", "^z"]), "n = Add(x, y:1, ^z)"),
        (("c", "Const", []), "c = Const()"),
        (("n/_3", "_Recv", "edge_7_c @/device:CPU:1"), "n/_3 = _Recv(edge_7_c @/device:CPU:1"),
        (("n/_2", "_HostSend", "edge_7_c @/device:CPU:0"), "n/_2 = _HostSend(edge_7_c @/device:CPU:0"),
        (("n", "Add", ["x"], [used("cpu", 100_000, 5)]), "n = Add(x)"),
        (("n", "Add", ["x"], [used("gpu", 1 << 20, 0)]), "[gpu 1.0MB] n = Add(x)"),
        (
            ("n", "Add", ["x"], [used("gpu", 12_900_000, 4_700_000), used("cpu", 1 << 20, 1 << 20)]),
            "[gpu 12.3MB 4.5MB] [cpu 1.0MB 1.0MB] n = Add(x)",
        ),
    ],
)
def test_labels(arguments, label):
    assert timeline_label(*arguments) == label


def test_records_of_a_long_step_are_bounded(monkeypatch):
    monkeypatch.setattr(step_stats, "MAX_RECORDS", 3)
    collector = StepStatsCollector(DEVICE)
    for _ in range(5):
        record(collector)
    assert repr(collector) == f"<StepStatsCollector {DEVICE}, 3 node runs>"


def test_merging_keeps_all_devices():
    merged = step_stats.merge(StepStatsCollector(f"/device:CPU:{i}").to_proto() for i in range(2))
    assert [d.device for d in merged.dev_stats] == ["/device:CPU:0", "/device:CPU:1"]


def test_transfers_say_what_they_carry_where_and_of_which_iteration():
    attrs = {"tensor_name": b"edge_3_x", "send_device": b"/device:CPU:0", "recv_device": b"/device:CPU:1"}
    assert transfer_text("_Send", attrs) == "edge_3_x @/device:CPU:1"
    assert transfer_text("_HostRecv", attrs) == "edge_3_x @/device:CPU:0"
    assert transfer_text("_Recv", attrs, (255, 2)) == "edge_3_x @/device:CPU:0;ff:2"


def test_queueing_for_a_thread_is_between_the_executors_begin_and_the_kernels():
    collector = StepStatsCollector(DEVICE)
    collector.node_done(
        "mm", "MatMul", (), 1000, 5000, 8000, (np.zeros(3),), 7, None, 2000, taken_ns=4000, single=(True,)
    )
    stats = collector.to_proto().dev_stats[0].node_stats[-1]
    assert (stats.scheduled_nanos, stats.all_start_nanos) == (1000, 4000)
    assert (stats.op_start_rel_nanos, stats.op_end_rel_nanos, stats.all_end_rel_nanos) == (1000, 3000, 4000)
    assert step_stats.total_nanos(stats) == 3000
    assert step_stats.self_nanos(stats) == 2000
    assert stats.output[0].tensor_description.allocation_description.has_single_reference
