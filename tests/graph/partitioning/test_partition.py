"""How a graph is split over devices: what is added where, under which names, and what is shared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aexec.devices.cpu_device import CpuDevice
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.partition import Ends, Partition
from aexec.graph.partitioning.schedule import Costs
from aexec.graph.partitioning.splitting import split
from aexec.graph.passes import WorkingGraph
from tests.support.programs.graphs import GraphBuilder, counting_loop

F = dtypes.float32
TASK = "/job:localhost/replica:0/task:0/device:CPU:"


DEVICES = tuple(CpuDevice(f"{TASK}{number}") for number in range(4))
for number, device in enumerate(DEVICES):
    device.incarnation = number + 1


class Accelerator(CpuDevice):
    """Its memory is not the host's.  It has no kernels of its own, so that types say where values are."""

    type = "TestAccelerator"

    def __init__(self, name: str) -> None:
        super().__init__(name, self.type)
        self.is_host = False


ACCELERATORS = tuple(Accelerator(f"{TASK}{number}".replace("CPU", Accelerator.type)) for number in range(2))


def requested(node: Node) -> Device:
    name = DeviceName.parse(node.device)
    return (ACCELERATORS if name.type == Accelerator.type else DEVICES)[name.id or 0]


def parts(
    g: GraphBuilder, fetches: Sequence[str], feeds: Sequence[str] = (), targets: Sequence[str] = (), **options: Any
) -> list[Partition]:
    """The partitions of a request; nodes are where they ask to be, others on the first device."""
    graph = g.graph()
    ends = [[graph.tensor(name).endpoint for name in names] for names in (feeds, fetches)]
    ids = [graph.node(name).id for name in targets]
    working = WorkingGraph(graph, ends[0], ends[1], ids)
    return split(working, ends[0], ends[1], ids, requested, DEVICES[0], itertools.count(1), **options)


def listing(partition: Partition) -> dict[str, str]:
    """`Op(inputs)` by name."""
    return {n.name: f"{n.op}({', '.join(n.input_names())})" for n in partition.nodes.values()}


def by_name(partition: Partition) -> dict[str, Node]:
    return {node.name: node for node in partition.nodes.values()}


def two(*more: tuple[Any, ...]) -> GraphBuilder:
    """`a` on the first device, `b` that consumes it on the second, and more nodes."""
    g = GraphBuilder()
    g.const("a", np.float32(1))
    g("b", "Neg", "a", device="/cpu:1", T=F)
    for name, op, inputs, device in more:
        g(name, op, *inputs, device=device, **({} if op == "NoOp" else {"T": F}))
    return g


def test_send_and_a_receive() -> None:
    first, second = parts(two(), ["b:0"])
    assert listing(first) == {"a": "Const()", "a/_1": "_Send(a)", "b/_4": "_Recv()"}
    assert listing(second) == {"a/_2": "_Recv()", "b": "Neg(a/_2)", "b/_3": "_Send(b)"}
    sent, received = by_name(first)["a/_1"], by_name(second)["a/_2"]
    attrs = {
        "tensor_name": b"edge_2_a",
        "send_device": f"{TASK}0".encode(),
        "send_device_incarnation": 1,
        "recv_device": f"{TASK}1".encode(),
        "client_terminated": False,
    }
    assert sent.attrs == {"T": F, **attrs}
    assert received.attrs == {"tensor_type": F, **attrs}
    assert by_name(second)["b/_3"].attrs["send_device_incarnation"] == 2
    assert [node.device for node in (sent, received)] == [f"{TASK}0", f"{TASK}1"]


def test_one_transfer_for_each_tensor_and_destination() -> None:
    g = two(
        ("c", "AddV2", ("a", "a"), "/cpu:1"),
        ("d", "AddV2", ("b", "c"), "/cpu:1"),
        ("e", "Neg", ("a",), "/cpu:2"),
    )
    first, second, third = parts(g, [], targets=["d", "e"])
    assert sorted(listing(first).values()) == ["Const()", "_Send(a)", "_Send(a)"]
    assert listing(second)["c"] == "AddV2(a/_2, a/_2)"
    assert listing(second)["b"] == "Neg(a/_2)"
    assert list(listing(third).values()) == ["_Recv()", "Neg(a/_4)"]


def test_control_edge_across_devices_sends_an_empty_value() -> None:
    g = two(("n", "NoOp", (), ""), ("c", "Neg", ("b", "^n"), "/cpu:1"), ("d", "Neg", ("b", "^n"), "/cpu:1"))
    first, second = parts(g, [], targets=["c", "d"])
    assert listing(first)["n/ctrl/_3"] == "Const(^n)"
    assert listing(first)["n/_4"] == "_Send(n/ctrl/_3)"
    assert by_name(first)["n/ctrl/_3"].attrs["value"].array.shape == (0,)
    assert listing(second)["n/_6"] == "Identity(n/_5)"
    assert listing(second)["c"] == "Neg(b, ^n/_6)"
    assert listing(second)["d"] == "Neg(b, ^n/_6)"


def test_names_of_the_graph_are_passed_over() -> None:
    g = two(("a/_1", "Neg", ("a",), ""))
    first, _ = parts(g, [], targets=["b", "a/_1"])
    assert set(listing(first)) == {"a", "a/_1", "a/_2"}


def test_feeds_enter_and_fetches_leave_on_the_host() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device="/cpu:1", T=F)
    g("z", "Neg", "y", device="/cpu:2", T=F)
    by_device = {p.device.name.removeprefix(TASK): p for p in parts(g, ["z:0", "y:0"], ["x:0"])}
    host = by_device["0"]
    assert [host.nodes[i].name for i, _ in host.feeds.values()] == ["_arg_x_0_0"]
    assert [host.nodes[i].op for i, _ in host.fetches.values()] == ["_Recv", "_Recv"]
    assert not by_device["1"].feeds and not by_device["2"].fetches


def test_producer_of_a_fed_output_may_still_run() -> None:
    g = GraphBuilder()
    g.const("pair", np.ones(2, np.float32))
    g.const("axis", 0, dtypes.int32)
    g("parts", "Split", "axis", "pair", device="/cpu:1", num_split=2, T=F)
    g("sum", "AddV2", "parts", "parts:1", device="/cpu:1", T=F)
    by_device = {p.device.name.removeprefix(TASK): listing(p) for p in parts(g, ["sum:0"], ["parts:1"])}
    assert by_device["1"]["sum"] == "AddV2(parts, _arg_parts_1_0/_6)"
    assert by_device["0"]["_arg_parts_1_0/_5"] == "_Send(_arg_parts_1_0)"


def test_variable_is_read_after_the_control_inputs_of_its_reader() -> None:
    g = GraphBuilder()
    g("v", "VariableV2", shape=PartialTensorShape(()), dtype=F)
    g.const("one", np.float32(1))
    g("assign", "Assign", "v", "one", T=F)
    g("n", "NoOp", device="/cpu:2")
    g("r", "AddV2", "v", "one", "^assign", "^n", device="/cpu:1", T=F)
    g("s", "Neg", "v", device="/cpu:1", T=F)
    first, _third, second = parts(g, [], targets=["r", "s"])
    reads = [node for node in first.nodes.values() if node.op == "_Send" and node.inputs[0][0] == 0]
    assert len(reads) == 2  # one for each reader
    waited_for = {name for name in reads[0].input_names() if name.startswith("^")}
    assert {"^one", "^assign"} < waited_for
    (signal,) = waited_for - {"^one", "^assign"}
    assert by_name(first)[signal[1:]].op == "Identity"
    assert reads[1].input_names() == ["v"]
    assert len(by_name(second)["r"].input_names()) == 4


def test_variable_of_another_device_is_not_assigned_to() -> None:
    g = GraphBuilder()
    g("v", "VariableV2", shape=PartialTensorShape(()), dtype=F)
    g.const("one", np.float32(1))
    g("assign", "Assign", "v", "one", device="/cpu:1", T=F)
    with pytest.raises(errors.InvalidArgumentError, match="0-th input expects a ref type, which does not leave"):
        parts(g, [], targets=["assign"])


def scattered_loop(**places: int) -> GraphBuilder:
    """The counting loop, with some nodes on other devices."""
    g = counting_loop()
    for node in g.graph_def.node:
        node.device = f"/cpu:{places.get(node.name, 0)}"
    return g


def test_loop_over_two_devices_has_a_control_loop_on_the_second() -> None:
    first, second = parts(scattered_loop(add=1), ["result:0"], ["n:0"])
    # Enter of the constant stays with its consumer; what comes back runs on the first device again.
    nodes = by_name(second)
    assert listing(second)["add"].startswith("AddV2(body/_")
    assert nodes["enter_one"].op == "Enter"
    loops = [n for n in nodes.values() if n.name.startswith("_cloop")]
    assert sorted(n.op for n in loops) == ["Const", "Enter", "Merge", "NextIteration", "Switch"]
    (merge,) = (n for n in loops if n.op == "Merge")
    (enter,) = (n for n in loops if n.op == "Enter")
    assert (enter.attrs["frame_name"], enter.attrs["parallel_iterations"]) == (b"loop", 10)
    inside = [n for n in nodes.values() if n.op == "_Recv" and "one" not in n.name]
    assert {n.name.partition("/")[0] for n in inside} == {"body", "cond"}  # the predicate is sent over
    assert all(n.input_names() == [f"^{merge.name}"] for n in inside)
    # The first device gets `add`, and so has a control loop too; there the predicate is its own.
    (switch,) = (n for n in first.nodes.values() if n.op == "Switch" and n.name.startswith("_cloop"))
    assert switch.input_names()[1] == "cond"


def test_frame_has_one_control_loop_per_device() -> None:
    _, second = parts(scattered_loop(add=1, body=1), ["result:0"], ["n:0"])
    assert sum(n.op == "LoopCond" for n in second.nodes.values()) == 0
    assert sum(n.op == "Merge" for n in second.nodes.values()) == 1


def test_loop_on_one_device_stays_as_it_is() -> None:
    places = dict.fromkeys(("merge", "less", "cond", "body", "add"), 1)
    _, second = parts(scattered_loop(**places), ["result:0"], ["n:0"])
    assert not any(name.startswith("_cloop") for name in listing(second))
    # Control flow goes where its values are.
    assert {"enter", "enter_n", "enter_one", "switch", "next", "result"} < set(listing(second))


def test_loop_without_condition_stays_on_its_device() -> None:
    g = GraphBuilder()
    g.const("a", np.float32(1))
    g("enter", "Enter", "a", frame_name=b"w", T=F)
    g("inside", "Neg", "enter", T=F)
    g("there", "Neg", "inside", device="/cpu:1", T=F)
    g("out", "Exit", "there", T=F)
    with pytest.raises(errors.InvalidArgumentError, match="A cross-device loop must have a pivot predicate: w"):
        parts(g, ["out:0"])


def test_control_loop_of_an_inner_loop_is_entered_from_that_of_the_outer_one() -> None:
    g = GraphBuilder()
    int32 = dtypes.int32
    g.const("zero", 0, int32)
    g.const("two", 2, int32)
    outer = {"frame_name": b"outer", "T": int32}
    inner = {"frame_name": b"inner", "T": int32}
    g("i", "Enter", "zero", **outer)
    g("i_merge", "Merge", "i", "i_next", T=int32, N=2)
    g("two_outer", "Enter", "two", is_constant=True, **outer)
    g("i_less", "Less", "i_merge", "two_outer", T=int32)
    g("i_cond", "LoopCond", "i_less")
    g("i_switch", "Switch", "i_merge", "i_cond", T=int32)
    g("j", "Enter", "i_switch:1", **inner)
    g("two_inner", "Enter", "two_outer", is_constant=True, **inner)
    g("j_merge", "Merge", "j", "j_next", T=int32, N=2)
    g("j_less", "Less", "j_merge", "two_inner", T=int32)
    g("j_cond", "LoopCond", "j_less")
    g("j_switch", "Switch", "j_merge", "j_cond", T=int32)
    g("j_add", "AddV2", "j_switch:1", "j_switch:1", device="/cpu:1", T=int32)
    g("j_next", "NextIteration", "j_add", T=int32)
    g("j_exit", "Exit", "j_switch", T=int32)
    g("i_next", "NextIteration", "j_exit", T=int32)
    g("result", "Exit", "i_switch", T=int32)
    _, second = parts(g, ["result:0"])
    frames = {n.attrs["frame_name"]: n for n in second.nodes.values() if n.op == "Enter"}
    assert set(frames) == {b"outer", b"inner"}
    merges = [n for n in second.nodes.values() if n.op == "Merge"]
    outer_merge = next(n for n in merges if n.inputs[0][0] == frames[b"outer"].id)
    assert frames[b"inner"].inputs == ((outer_merge.id, 0),)
    assert second.nodes[frames[b"outer"].inputs[0][0]].op == "Const"


A0, A1 = (f"/device:{Accelerator.type}:{number}" for number in range(2))


def ops_by_device(partitions: Sequence[Partition]) -> dict[str, list[str]]:
    """The ops of each device's nodes, sorted; devices as `CPU:0`."""
    return {
        p.device.name.rpartition("device:")[2]: sorted(node.op for node in p.nodes.values() if node.op != "Neg")
        for p in partitions
    }


def test_values_in_and_out_of_a_devices_memory() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("n", dtypes.int32)
    g("y", "Neg", "x", device=A0, T=F)
    g("m", "Neg", "n", device=A0, T=dtypes.int32)
    g("z", "Neg", "y", device=A1, T=F)
    assert ops_by_device(parts(g, ["z:0", "m:0"], ["x:0", "n:0"])) == {
        f"{Accelerator.type}:0": ["_HostRecv", "_HostSend", "_Recv", "_Send"],
        f"{Accelerator.type}:1": ["_Recv", "_Send"],
        "CPU:0": ["_Arg", "_Arg", "_Recv", "_Recv", "_Send", "_Send"],
    }


def test_between_the_memories_of_one_device() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device=A0, T=F)
    g("on_host", "Neg", "y", device=A0, T=F, _input_hostmem=[0], _output_hostmem=[0])
    g("also", "Neg", "y", device=A0, T=F, _input_hostmem=[0])
    g("back", "Neg", "on_host", device=A0, T=F)
    accelerator, _ = parts(g, [], ["x:0"], ["back", "also"])
    nodes = by_name(accelerator)
    (out,) = nodes["on_host"].input_names()
    assert nodes["also"].input_names() == [out]  # one transfer for each memory, too
    (sent,) = nodes[out].input_names()
    assert nodes[out].op == "_HostRecv"
    assert (nodes[sent[1:]].op, nodes[sent[1:]].input_names()) == ("_Send", ["y"])
    (into,) = nodes["back"].input_names()
    (sent,) = nodes[into].input_names()
    assert nodes[into].op == "_Recv"
    assert (nodes[sent[1:]].op, nodes[sent[1:]].input_names()) == ("_HostSend", ["on_host"])


def test_constants_are_in_both_memories_of_their_device() -> None:
    g = GraphBuilder()
    g.const("c", np.float32(1))
    g("y", "Neg", "c", device=A0, T=F)
    g("on_host", "Neg", "c", device=A0, T=F, _input_hostmem=[0])
    g("there", "Neg", "c", T=F)
    g.graph_def.node[0].device = A0
    assert ops_by_device(parts(g, [], targets=["y", "on_host", "there"])) == {
        f"{Accelerator.type}:0": ["Const", "_HostSend"],
        "CPU:0": ["_Recv"],
    }


def test_control_signal_stays_on_the_host() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device=A0, T=F)
    g("after", "Neg", "x", "^y", T=F)
    g("last", "Neg", "x", "^after", device=A1, T=F)
    assert ops_by_device(parts(g, [], ["x:0"], ["last"])) == {
        f"{Accelerator.type}:0": ["Const", "_HostSend", "_Recv"],
        f"{Accelerator.type}:1": ["Identity", "_HostRecv", "_Recv"],
        "CPU:0": ["Const", "Identity", "_Arg", "_Recv", "_Send", "_Send", "_Send"],
    }


def test_loop_over_memories() -> None:
    g = scattered_loop()
    for node in g.graph_def.node:
        if node.name == "add":
            node.device = A0
    accelerator, host = parts(g, ["result:0"], ["n:0"])[::-1]
    assert {n.op for n in accelerator.nodes.values() if n.name.startswith("_cloop")} == {
        "Const", "Enter", "Merge", "NextIteration", "Switch",
    }  # fmt: skip
    assert host.fetches


def test_transfers_are_compressed_between_devices() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device="/cpu:1", T=F)
    g("also", "Neg", "x", "^y", device="/cpu:1", T=F)
    g("wide", "Cast", "y", device="/cpu:1", SrcT=F, DstT=dtypes.float64)
    host, other = parts(g, ["also:0", "wide:0"], ["x:0"], compress=True)[::-1]
    nodes = by_name(other)
    (cast,) = nodes["y"].input_names()
    assert nodes["also"].input_names()[0] == cast
    attrs = {"SrcT": dtypes.bfloat16, "DstT": F, "Truncate": True}
    assert (nodes[cast].op, nodes[cast].attrs) == ("Cast", attrs)
    assert by_name(other)[nodes[cast].input_names()[0]].attrs["tensor_type"] is dtypes.bfloat16
    (narrow,) = (n for n in host.nodes.values() if n.op == "Cast" and n.attrs["DstT"] is dtypes.bfloat16)
    assert narrow.input_names() == ["_arg_x_0_0"]
    received = {n.attrs["tensor_type"] for n in host.nodes.values() if n.op == "_Recv"}
    assert received == {dtypes.bfloat16, dtypes.float64}  # what is not float32 travels as it is


def test_value_on_a_device_is_not_compressed() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device=A0, T=F)
    g("on_host", "Neg", "y", device=A0, T=F, _input_hostmem=[0], _output_hostmem=[0])
    by_op = ops_by_device(parts(g, ["on_host:0"], ["x:0"], compress=True))
    assert by_op[f"{Accelerator.type}:0"] == ["Cast", "_HostCast", "_HostRecv", "_HostSend", "_Recv", "_Send"]


def test_receives_are_held_back_until_they_are_needed() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("early", "Neg", "x", device="/cpu:1", T=F)
    previous = "x"
    for number in range(300):
        previous = g(f"n{number}", "Neg", previous, T=F)
    g("late", "AddV2", previous, "early", T=F)
    g("soon", "AddV2", "n3", "early", T=F)
    costs = Costs(lambda node: requested(node).name, lambda node: 1.0, lambda endpoint: 10.0)
    for fetches, held in ((["late:0"], True), (["late:0", "soon:0"], False)):
        host = parts(g, fetches, ["x:0"], costs=costs)[-1]
        nodes = by_name(host)
        receive = nodes[nodes["late"].input_names()[1]]
        assert bool(receive.control_inputs) is held  # by the first that needs it
        if held:
            (trigger,) = receive.input_names()
            assert nodes[trigger[1:]].op == "ControlTrigger"
            (after,) = nodes[trigger[1:]].input_names()
            assert after in {f"^n{number}" for number in range(250, 300)}


def test_receives_in_loops_are_not_held_back() -> None:
    costs = Costs(lambda node: requested(node).name, lambda node: 1000.0 if node.op == "Neg" else 1.0, lambda e: 10.0)
    g = scattered_loop(add=1, body=1)
    previous = "n"
    for number in range(300):
        previous = g(f"n{number}", "Neg", previous, T=dtypes.int32)
    for node in g.graph_def.node:
        if node.name == "enter_n":
            node.input[0] = previous
    for partition in parts(g, ["result:0"], ["n:0"], costs=costs):
        for node in partition.nodes.values():
            if node.op == "_Recv" and node.control_inputs:
                (waited_for,) = node.input_names()
                assert waited_for.startswith(("^_cloop", "^synch"))


def test_values_enter_and_leave_where_they_are_used_and_made() -> None:
    """As those of functions do: nothing travels that is where it is wanted."""
    one, two = ACCELERATORS
    g = GraphBuilder()
    for name in ("x", "y", "h"):
        g.placeholder(name)
    g("a", "Neg", "x", device=f"/device:{Accelerator.type}:0", T=F)
    g("b", "Neg", "y", device=f"/device:{Accelerator.type}:0", T=F)
    g("c", "Neg", "h", device="/cpu:1", T=F)
    g("d", "Neg", "h", device="/cpu:2", T=F)
    names = ["a:0", "b:0", "c:0", "d:0", "h:0"]
    found = parts(g, names, ["x:0", "y:0", "h:0"], ends=Ends([one, None, None], None))
    assert {p.device.name.rpartition("/device:")[2]: (list(p.feeds), p.fetched_from) for p in found} == {
        one.name.rpartition("/device:")[2]: ([0, 1], {0: one, 1: one}),
        "CPU:1": ([2], {2: None, 4: None}),
        "CPU:2": ([2], {3: None}),
    }
    # Only what was in the host's memory is copied in.
    assert [sorted(n.op for n in p.nodes.values() if p.added >= {n.id}) for p in found] == [
        ["_Arg", "_Arg", "_HostSend", "_Recv"],
        ["_Arg"],
        ["_Arg"],
    ]
    wanted = parts(g, ["a:0", "c:0", "x:0"], ["x:0", "y:0", "h:0"], ends=Ends([one, None, None], [two, two, None]))
    assert {p.device.name.rpartition("/device:")[2]: (list(p.feeds), p.fetched_from) for p in wanted} == {
        one.name.rpartition("/device:")[2]: ([0], {2: None}),
        "CPU:1": ([2], {}),
        two.name.rpartition("/device:")[2]: ([], {0: two, 1: two}),
    }


def test_constant_that_leaves_in_a_devices_memory_is_copied_there() -> None:
    (accelerator, _) = ACCELERATORS
    g = GraphBuilder()
    g.const("c", np.float32(1))
    g.graph_def.node[-1].device = f"/device:{Accelerator.type}:0"
    (part,) = parts(g, ["c:0"], ends=Ends([], [accelerator]))
    assert part.fetched_from == {0: accelerator}
    assert listing(part)["c/_1"] == "Identity(c)"
    (part,) = parts(g, ["c:0"], ends=Ends([], None))
    assert part.fetched_from == {0: None}
