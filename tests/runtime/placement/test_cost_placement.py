"""Placement by costs: small graphs whose best placement is known, and what holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.devices.cpu_device import CpuDevice
from aexec.devices.device_registry import make_devices
from aexec.framework import dtypes
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.runtime.placement.placer import Placer
from aexec.runtime.profiling.cost_model import CostModel
from tests.runtime.placement.test_placer import CPU, Nodes, broken_constraints, graphs
from tests.support.programs.graphs import counting_loop

F = dtypes.float32
FAST = "/job:localhost/replica:0/task:0/device:FAST:0"


def measured(
    times: Mapping[str, float], sizes: Mapping[str, int] | None = None, device: str = f"{CPU}0", **speeds: float
) -> CostModel:
    """Costs of nodes by name: microseconds, and bytes of the first output."""
    model = CostModel(**{"copy_micros": 10, "copy_gbps": 8, **speeds})
    graph = proto.CostGraphDef()
    for name, micros in times.items():
        node = graph.node.add(name=name, device=device, compute_time=int(micros))
        node.output_info.add(size=(sizes or {}).get(name, 0))
    model.add(graph)
    return model


def placed(
    nodes: Nodes, costs: CostModel, devices: Any = 2, *, soft: bool = False, full: bool = False
) -> dict[str, str]:
    """Node name → local name of its device, or the full one."""
    graph = nodes.graph()
    if isinstance(devices, int):
        devices = make_devices({"CPU": devices})
    placer = Placer(devices, soft=soft, costs=costs)
    placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    names = {node.name: placer.device_of(node).name for node in graph}
    return names if full else {name: device.rpartition("device:")[2] for name, device in names.items()}


def groups_of(at: Mapping[str, str]) -> set[frozenset[str]]:
    """The sets of nodes that share a device."""
    return {frozenset(name for name in at if at[name] == device) for device in at.values()}


def two_chains() -> Nodes:
    g = Nodes()
    for chain in "ab":
        g.neg(f"{chain}1", g.value(f"{chain}0"))
        g.neg(f"{chain}2", f"{chain}1")
    g.add("sum", "AddV2", "a2", "b2", T=F)
    return g


HEAVY = dict.fromkeys(["a1", "a2", "b1", "b2"], 100.0)


class TestKnownBest:
    def test_independent_chains_run_beside_each_other(self) -> None:
        at = placed(two_chains(), measured(HEAVY))
        a, b = {"a0", "a1", "a2"}, {"b0", "b1", "b2"}
        assert groups_of(at) in ({frozenset(a | {"sum"}), frozenset(b)}, {frozenset(a), frozenset(b | {"sum"})})
        assert at["a1"] == "CPU:0"  # the first among equals

    def test_node_stays_where_a_copy_costs_more_than_it_saves(self) -> None:
        """The consumer would wait for the copy; the simulation looks ahead by one node only."""
        g = Nodes()
        g.neg("a", g.value("x"))
        g.neg("b", "a")
        g.neg("c", "a")
        assert groups_of(placed(g, measured({"a": 5, "b": 50, "c": 50}, copy_micros=60))) == {frozenset("xabc")}
        assert len(groups_of(placed(g, measured({"a": 5, "b": 50, "c": 50}, copy_micros=40)))) == 2

    def test_transfer_to_another_task_costs_more_than_to_another_device(self) -> None:
        g = Nodes()
        g.neg("a", g.value("x"))
        g.neg("b", "a")
        g.neg("c", "a")
        two = [device for task in range(2) for device in make_devices({"CPU": 1}, task=f"/job:w/replica:0/task:{task}")]
        costs = {"a": 5, "b": 50, "c": 50}
        for micros, tasks in ((40, 2), (60, 1)):
            at = placed(g, measured(costs, copy_micros=0, link_micros=micros), two, full=True)
            assert len({name.partition("/device")[0] for name in at.values()}) == tasks
        model = measured(costs, {"a": 1000}, copy_micros=1, link_micros=30, link_gbps=0.8)
        assert model.transfer_time(1000, two[0].name, two[1].name) == 40
        assert model.transfer_time(1000, two[0].name, two[0].name) == model.copy_time(1000)

    def test_large_values_stay_where_they_are(self) -> None:
        g = Nodes()
        g.neg("a", g.value("x"))
        g.neg("b", "a")
        g.neg("c", "a")
        costs = {"a": 5.0, "b": 50.0, "c": 50.0}
        assert len(groups_of(placed(g, measured(costs, {"a": 1000})))) == 2  # 1 µs, and 10 for the way
        assert len(groups_of(placed(g, measured(costs, {"a": 100_000})))) == 1

    def test_nodes_without_measurements_stay_together(self) -> None:
        assert set(placed(two_chains(), CostModel()).values()) == {"CPU:0"}

    def test_three_branches_on_three_devices(self) -> None:
        g = Nodes()
        for i in range(6):
            g.neg(f"n{i}", g.value(f"x{i}"))
        at = placed(g, measured({f"n{i}": 100.0 for i in range(6)}), 3)
        assert [at[f"n{i}"] for i in range(6)] == ["CPU:0", "CPU:1", "CPU:2"] * 2
        assert all(at[f"x{i}"] == at[f"n{i}"] for i in range(6))

    def test_longer_work_first_come_is_balanced(self) -> None:
        g = Nodes()
        for name in "abcd":
            g.neg(name, g.value(f"{name}0"))
        at = placed(g, measured({"a": 300, "b": 100, "c": 100, "d": 100}))
        assert groups_of(at) == {frozenset({"a", "a0"}), frozenset({"b", "b0", "c", "c0", "d", "d0"})}

    def test_control_edge_costs_no_copy(self) -> None:
        g = Nodes()
        g.neg("a", g.value("x"))
        g.neg("b", g.value("y"))
        g.value("z", "", "^a")
        g.neg("c", "z")
        at = placed(g, measured({"a": 100, "b": 300, "c": 10}, copy_micros=1000))
        assert at["c"] == at["z"] == at["a"] != at["b"]

    def test_variable_and_its_users_are_placed_together(self) -> None:
        """Reading a variable where it is costs nothing more; two variables with their work share two devices."""
        g = Nodes()
        for name in "vw":
            g.variable(name)
            g.add(f"read_{name}", "ReadVariableOp", name, dtype=F)
            g.add(f"assign_{name}", "AssignVariableOp", name, g.value(f"value_{name}"), dtype=F)
        costs = measured({"read_v": 40, "assign_v": 60, "read_w": 50, "assign_w": 50})
        v, w = (frozenset({name, f"read_{name}", f"assign_{name}", f"value_{name}"}) for name in "vw")
        assert groups_of(placed(g, costs)) == {v, w}

    def test_requests_come_first(self) -> None:
        g = two_chains()
        for node in g.graph_def.node:
            node.device = {"a1": "/cpu:1", "b2": "/cpu:1"}.get(node.name, "")
        at = placed(g, measured(HEAVY))
        assert at["a1"] == at["a0"] == at["b2"] == "CPU:1"
        with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device for operation a1"):
            placed(g, measured(HEAVY), 1)
        assert placed(g, measured(HEAVY), 1, soft=True)["a1"] == "CPU:0"

    def test_loops(self) -> None:
        graph = counting_loop().graph()
        placer = Placer(make_devices({"CPU": 2}), costs=CostModel())
        placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
        assert {placer.device_of(node).name for node in graph} == {f"{CPU}0"}


class TestKindsOfDevices:
    @pytest.fixture
    def devices(self) -> Any:
        def never(c: Any) -> Any:
            raise AssertionError("nothing is run")

        class Accelerator(CpuDevice):
            is_host = False

        fast: Device = Accelerator(FAST, "FAST")
        with kernel_registry.global_registry.watch() as registered:
            kernel("Neg", device="FAST")(never)
        yield (fast, *make_devices({"CPU": 1}))
        for each in registered:
            kernel_registry.global_registry.unregister(each)

    def test_work_goes_where_it_is_done_faster(self, devices: Any) -> None:
        g = Nodes()
        g.placeholder("x")
        g.neg("heavy", "x")
        g.neg("light", "x")
        costs = measured({"heavy": 1000, "light": 20})
        costs.add(measured({"heavy": 100, "light": 15}, device=FAST))
        at = placed(g, costs, devices)
        # What is fed is on the host: the way there takes 10 µs, of which the light one saves only 5.
        assert at["heavy"] == "FAST:0"
        assert at["light"] == "CPU:0"

    def test_nodes_without_kernel_there_stay(self, devices: Any) -> None:
        g = Nodes()
        g.neg("a", g.value("x"))
        g.add("b", "Square", "a", T=F)
        costs = measured({"a": 100, "b": 100})
        costs.add(measured({"a": 1}, device=FAST))
        assert placed(g, costs, devices) == {"x": "FAST:0", "a": "FAST:0", "b": "CPU:0"}

    def test_ties_go_by_preference(self, devices: Any) -> None:
        g = Nodes()
        g.neg("a", g.value("x"))
        g.neg("b", "a")
        assert placed(g, CostModel(), devices) == {"x": "FAST:0", "a": "FAST:0", "b": "FAST:0"}


class TestSessions:
    async def test_placed_by_what_an_earlier_session_measured(self) -> None:
        nodes = two_chains()
        metadata = aexec.RunMetadata()
        every_node = aexec.SessionConfig(graph_passes=())
        async with aexec.Session(nodes.graph(), config=every_node) as session:
            await session.run("sum:0", options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats is not None
        for run in metadata.step_stats.dev_stats[0].node_stats:
            run.op_end_rel_nanos = run.op_start_rel_nanos + 1_000_000  # as if it had been much
        costs = aexec.CostModel(metadata.step_stats)
        config = aexec.SessionConfig(device_count={"CPU": 2}, cost_model=costs, graph_passes=())
        async with aexec.Session(nodes.graph(), config=config) as session:
            options = aexec.RunOptions(output_partition_graphs=True)
            metadata = aexec.RunMetadata()
            assert await session.run("sum:0", options=options, metadata=metadata) == 2
        at = {n.name: n.device for g in metadata.partition_graphs for n in g.node}
        assert at["a2"] != at["b2"]

    def test_invalid_cost_model_is_refused(self) -> None:
        with pytest.raises(
            errors.InvalidArgumentError, match=r"cost_model must be an aexec\.CostModel, got CostGraphDef"
        ):
            aexec.SessionConfig(cost_model=proto.CostGraphDef())  # type: ignore[arg-type]


@given(
    graphs(), st.booleans(), st.lists(st.integers(0, 60), min_size=15, max_size=15), st.sampled_from([0.0, 5.0, 50.0])
)
def test_constraints_hold(nodes: Nodes, soft: bool, times: list[int], copy: float) -> None:
    graph = nodes.graph()
    costs = measured({f"n{i}": time for i, time in enumerate(times)}, copy_micros=copy)
    placer = Placer(make_devices({"CPU": 4}), soft=soft, costs=costs)
    plain = Placer(make_devices({"CPU": 4}), soft=soft)
    try:
        plain.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    except errors.InvalidArgumentError:
        with pytest.raises(errors.InvalidArgumentError):
            placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
        return
    placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    at = {n.name: placer.device_of(n).name for n in graph}
    assert broken_constraints(graph, at, soft=soft) == []


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.data())
@settings(deadline=None, max_examples=50)
def test_parts_that_are_placed_one_after_another(cut: list[int], data: st.DataObject) -> None:
    """As in `extend`: placed nodes stay, and later nodes go beside them."""
    nodes = data.draw(graphs())
    graph = nodes.graph()
    placer = Placer(make_devices({"CPU": 4}), soft=True, costs=CostModel())
    for end in sorted(cut):
        before = {node.name: placer.device_of(node) for node in graph if placer.is_placed(node)}
        try:
            placer.place(list(graph)[:end], graph.nodes.__getitem__, graph.library)
        except errors.InvalidArgumentError:
            return
        assert all(placer.device_of(graph.find(name)) is device for name, device in before.items())
