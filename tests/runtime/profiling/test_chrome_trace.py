from __future__ import annotations

import json

import pytest

from aexec import proto
from aexec.runtime.profiling.chrome_trace import to_chrome_trace
from aexec.runtime.profiling.step_stats import transfer_text

CPU0, CPU1 = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"


def run(label, start, end, outputs=(), name=None) -> proto.NodeExecStats:
    stats = proto.NodeExecStats(
        node_name=name or label.split(" = ")[0],
        timeline_label=label,
        all_start_micros=start,
        all_end_rel_micros=end - start,
    )
    for slot, size in enumerate(outputs):
        output = stats.output.add(slot=slot)
        output.tensor_description.dtype = 1
        output.tensor_description.allocation_description.requested_bytes = size
        output.tensor_description.allocation_description.allocator_name = "cpu"
    return stats


def trace(**kwargs):
    """Two devices: b and c run beside each other and feed d on the other device."""
    step = proto.StepStats(
        dev_stats=[
            proto.DeviceStepStats(
                device=CPU0,
                node_stats=[
                    run("a = Const()", 10, 12, [100]),
                    run("b = Neg(a)", 13, 20, [50, 60]),
                    run("c = Sin(a, ^b)", 14, 18, [70]),
                ],
            ),
            proto.DeviceStepStats(device=CPU1, node_stats=[run("d = Add(b/_1, b:1, c/_3, x/_9)", 30, 33, [])]),
        ]
    )
    return to_chrome_trace(step, **kwargs)["traceEvents"]


def of_phase(events, *phases):
    return [e for e in events if e["ph"] in phases]


def test_every_device_has_a_compute_and_a_tensors_process():
    assert of_phase(trace(), "M") == [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
        for pid, name in enumerate(
            ["Allocators", f"{CPU0} Compute", f"{CPU0} Tensors", f"{CPU1} Compute", f"{CPU1} Tensors"]
        )
    ]


def test_node_runs_are_regions_in_free_lanes():
    regions = of_phase(trace(), "X")
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in regions] == [
        ("Const", 1, 0, 10, 2),
        ("Neg", 1, 0, 13, 7),
        ("Sin", 1, 1, 14, 4),
        ("Add", 3, 0, 30, 3),
    ]
    assert regions[2]["cat"] == "Op"
    assert regions[2]["args"] == {"name": "c", "op": "Sin", "input0": "a", "input1": "^b"}


def test_arrows_are_drawn_where_lane_or_device_differ():
    arrows = of_phase(trace(), "s", "t")
    assert [(e["ph"], e["name"], e["pid"], e["tid"], e["ts"], e["id"]) for e in arrows] == [
        ("s", "a", 1, 0, 11.999, 0),
        ("t", "a", 1, 1, 14, 0),
        ("s", "b", 1, 0, 19.999, 1),
        ("t", "b", 3, 0, 30, 1),
        ("s", "b:1", 1, 0, 19.999, 2),
        ("t", "b:1", 3, 0, 30, 2),
        ("s", "c", 1, 1, 17.999, 3),
        ("t", "c", 3, 0, 30, 3),
    ]
    assert {e["cat"] for e in arrows} == {"DataFlow"}
    assert of_phase(trace(show_dataflow=False), "s", "t") == []


def test_tensors_live_until_their_last_use():
    events = trace(show_memory=True)
    lives = of_phase(events, "N", "O", "D")
    assert {e["cat"] for e in lives} == {"Tensor"}
    assert [(e["ph"], e["name"], e["id"], e["ts"]) for e in lives if e["name"] in ("a", "b:1")] == [
        ("N", "a", 0, 10),
        ("O", "a", 0, 11),
        ("N", "b:1", 2, 13),
        ("O", "b:1", 2, 19),
        ("D", "a", 0, 19),
        ("D", "b:1", 2, 32),
    ]
    (snapshot,) = [e for e in lives if e["ph"] == "O" and e["name"] == "a"]
    assert "requested_bytes: 100" in snapshot["args"]["snapshot"]["tensor_description"]
    assert of_phase(trace(), "N", "O", "D", "C") == []


def test_memory_in_use_is_a_counter_per_allocator():
    counters = of_phase(trace(show_memory=True), "C")
    assert {(e["cat"], e["name"], e["pid"]) for e in counters} == {("Memory", "cpu", 0)}
    assert [(e["ts"], e["args"]["cpu"]) for e in counters] == [
        (10, 100),
        (13, 150),
        (13, 210),
        (14, 280),
        (19, 180),
        (32, 110),
        (32, 50),
        (32, 0),
    ]


@pytest.mark.parametrize(
    ("label", "node_name", "name", "op"),
    [
        ("kernel 3us @@scope/mm:MatMul#id=5#", "k", "scope/mm", "MatMul"),
        ("kernel", "scope/mm:MatMul", "scope/mm", "MatMul"),
        ("kernel", "memcpy", "memcpy", "unknown"),
    ],
)
def test_gpu_traces_have_labels_of_their_own(label, node_name, name, op):
    step = proto.StepStats(dev_stats=[{"device": "/device:GPU:0/stream:all"}])
    step.dev_stats[0].node_stats.append(run(label, 1, 2, name=node_name))
    (region,) = of_phase(to_chrome_trace(step)["traceEvents"], "X")
    assert region["args"] == {"name": name, "op": op}


@pytest.mark.parametrize(
    ("label", "name", "op"),
    [("", "n", "unknown"), ("n = _Recv(edge_7_c @/device:CPU:1", "n", "_Recv"), ("rpc", "RecvTensor", "RecvTensor")],
)
def test_labels_that_are_no_calls(label, name, op):
    step = proto.StepStats(dev_stats=[{"device": CPU0}])
    step.dev_stats[0].node_stats.append(run(label, 1, 2, name=name))
    (region,) = of_phase(to_chrome_trace(step)["traceEvents"], "X")
    assert (region["name"], region["args"]) == (op, {"name": name, "op": op})


def test_trace_is_json_and_does_not_change_the_statistics():
    step = proto.StepStats(dev_stats=[{"device": CPU0, "node_stats": [run("a = Const()", 1, 2, [3])]}])
    before = step.SerializeToString()
    assert json.loads(json.dumps(to_chrome_trace(step, show_memory=True)))["traceEvents"]
    assert step.SerializeToString() == before


def timed(label: str, start: int, end: int, busy: int | None = None, thread: int = 0) -> proto.NodeExecStats:
    """A run whose times are in nanoseconds after 5 s."""
    return proto.NodeExecStats(
        node_name=label.split(" = ")[0],
        timeline_label=label,
        scheduled_nanos=5 * 10**9 + start - 250,
        all_start_nanos=5 * 10**9 + start,
        op_end_rel_nanos=end - start if busy is None else busy,
        all_end_rel_nanos=end - start,
        thread_id=thread,
        memory=[{"allocator_name": "cpu", "total_bytes": 12}],
    )


SOURCE = "_SOURCE = NoOp()"


def lanes_of(events, pid=1):
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid}
    return {e["args"]["name"]: names[e["tid"]] for e in of_phase(events, "X") if e["pid"] == pid}


def test_threads_and_waiting_calls_have_rows():
    device = proto.DeviceStepStats(device=CPU0, thread_names={0: "MainThread", 1: "aexec-worker_0"})
    device.node_stats.extend(
        [
            timed(SOURCE, 0, 0),
            timed("a = Neg()", 100, 300),
            timed("w = MatMul()", 150, 900, thread=1),
            timed("q = QueueDequeueV2()", 310, 800, busy=5),
            timed("r = QueueDequeueV2()", 320, 700, busy=5),
            timed("region = _DelegatedRegion()", 330, 700, busy=5),
            timed("b = Neg()", 400, 500),
            timed("s = QueueDequeueV2()", 801, 900, busy=5),
        ]
    )
    events = to_chrome_trace(proto.StepStats(dev_stats=[device]))["traceEvents"]
    assert lanes_of(events) == {
        "_SOURCE": "MainThread",
        "a": "MainThread",
        "w": "aexec-worker_0",
        "q": "awaited",
        "r": "awaited 2",
        "region": "delegate",
        "b": "MainThread",
        "s": "awaited",
    }
    order = [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"]
    assert order == sorted(order)


def test_times_are_as_exact_as_the_statistics_are_and_begin_with_the_step():
    device = proto.DeviceStepStats(
        device=CPU0, node_stats=[timed(SOURCE, 0, 0), timed("a = Neg(x)", 100, 345, busy=45)]
    )
    trace = to_chrome_trace(proto.StepStats(dev_stats=[device]))
    assert trace["otherData"] == {"start_unix_nanos": str(5 * 10**9)}
    _, region = of_phase(trace["traceEvents"], "X")
    assert (region["ts"], region["dur"]) == (0.1, pytest.approx(0.245))
    assert region["args"] == {
        "name": "a",
        "op": "Neg",
        "input0": "x",
        "where": "awaited",
        "self_us": 0.045,
        "waited_us": 0.25,
        "bytes": 12,
    }


def transfer(name: str, op: str, other: str, start: int, end: int, frame_iter=(0, 0)) -> proto.NodeExecStats:
    attrs = {"tensor_name": b"edge_3_x", "recv_device" if op == "_Send" else "send_device": other.encode()}
    return timed(f"{name} = {op}({transfer_text(op, attrs, frame_iter)}", start, end)


def test_arrows_go_from_sends_to_their_receives_iteration_by_iteration():
    sender = proto.DeviceStepStats(device=CPU0, thread_names={0: "MainThread"})
    receiver = proto.DeviceStepStats(device=CPU1, thread_names={0: "MainThread"})
    # The receive of the second iteration began before the send; the first was received out of order.
    sender.node_stats.extend([transfer("s", "_Send", CPU1, 100 * i, 100 * i + 10, (7, i)) for i in (1, 2)])
    receiver.node_stats.append(transfer("r", "_Recv", CPU0, 150, 300, (7, 2)))
    receiver.node_stats.append(transfer("r", "_Recv", CPU0, 400, 500, (7, 1)))
    receiver.node_stats.append(transfer("r", "_Recv", CPU0, 600, 700, (7, 3)))
    events = to_chrome_trace(proto.StepStats(dev_stats=[sender, receiver]))["traceEvents"]
    arrows = [e for e in events if e.get("cat") == "Transfer"]
    assert [(e["ph"], e["pid"], round(e["ts"] * 1e3)) for e in arrows] == [
        ("s", 1, 109),
        ("f", 3, 110),
        ("s", 1, 9),
        ("f", 3, 300),
    ]
    assert {e["name"] for e in arrows} == {"edge_3_x"}
    assert all(e["bp"] == "e" for e in arrows if e["ph"] == "f")


def test_arrows_in_a_loop_come_from_the_previous_iteration():
    device = proto.DeviceStepStats(device=CPU0, thread_names={0: "MainThread", 1: "w"})
    device.node_stats.extend([timed("a = Neg()", 100 * i, 100 * i + 10) for i in (1, 2)])
    device.node_stats.extend([timed("b = Neg(a)", 100 * i + 20, 100 * i + 30, thread=1) for i in (1, 2)])
    for stats in device.node_stats[:2]:
        stats.output.add(slot=0)
    events = to_chrome_trace(proto.StepStats(dev_stats=[device]))["traceEvents"]
    assert [round(e["ts"] * 1e3) for e in of_phase(events, "s", "t")] == [9, 20, 109, 120]


def test_views_of_an_allocation_are_counted_once_as_long_as_any_is_used():
    device = proto.DeviceStepStats(device=CPU0)
    device.node_stats.append(run("a = Neg()", 10, 12, [100]))
    device.node_stats.append(run("v = Reshape(a)", 13, 20, [100]))
    device.node_stats.append(run("w = Neg(v)", 30, 40, [50]))
    for stats in device.node_stats[:2]:
        stats.output[0].tensor_description.allocation_description.allocation_id = 7
    counters = of_phase(to_chrome_trace(proto.StepStats(dev_stats=[device]), show_memory=True)["traceEvents"], "C")
    assert [(e["ts"], e["args"]["cpu"]) for e in counters] == [(10, 100), (30, 150), (39, 50), (40, 0)]
