"""Placement and its refusals, compared with TensorFlow's answers for the same graphs on four CPUs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.devices.device_registry import make_devices
from aexec.framework import dtypes
from aexec.framework.device_contract.device_name import DeviceName
from aexec.runtime.placement.placer import Placer
from aexec.runtime.profiling.cost_model import CostModel
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32
CPU = "/job:localhost/replica:0/task:0/device:CPU:"
ALL = ", ".join(f"{CPU}{i}" for i in range(4))

Build = Callable[["Nodes"], None]


class Nodes(GraphBuilder):
    """Nodes of few words; `at` is the number of the CPU that is asked for, or a device name."""

    def add(self, name: str, op: str, *inputs: str, at: int | str = "", beside: str = "", **attrs: object) -> str:
        device = f"/device:CPU:{at}" if isinstance(at, int) else at
        if beside:
            attrs["_class"] = [f"loc:@{group}".encode() for group in beside.split()]
        return self(name, op, *inputs, device=device, **attrs)

    def value(self, name: str, at: int | str = "", *controls: str) -> str:
        self.const(name, np.float32(1), F, *controls)
        self.graph_def.node[-1].device = f"/device:CPU:{at}" if isinstance(at, int) else at
        return name

    def neg(self, name: str, x: str, at: int | str = "", beside: str = "") -> str:
        return self.add(name, "Neg", x, at=at, beside=beside, T=F)

    def variable(self, name: str, at: int | str = "", beside: str = "") -> str:
        return self.add(name, "VarHandleOp", at=at, beside=beside, dtype=F, shape=[])

    def ref_variable(self, name: str, at: int | str = "") -> str:
        return self.add(name, "VariableV2", at=at, dtype=F, shape=[])


def placed(build: Build, *, soft: bool = False, log: bool = False, cpus: int = 4) -> dict[str, int]:
    """Node name → number of its CPU."""
    nodes = Nodes()
    build(nodes)
    graph = nodes.graph()
    placer = Placer(make_devices({"CPU": cpus}), soft=soft, log_placement=log)
    placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    return {node.name: int(placer.device_of(node).name.removeprefix(CPU)) for node in graph}


def _generators_and_metadata(g: Nodes) -> None:
    g.value("gen", at=1)
    g.neg("y", g.value("gen2"), at=2)
    g.add("s", "Shape", "y", T=F)
    g.add("n", "Neg", g.add("sz", "Size", "y", T=F), T=dtypes.int32)
    g.value("two")
    g.neg("p", "two", at=1)
    g.neg("q", "two", at=3)


def _more_generators(g: Nodes) -> None:
    g.neg("a", g.value("x"), at=1)
    g.add("sz", "Size", g.neg("onzero", "a"), T=F)
    g.add("rk", "Rank", "a", at=3, T=F)
    g.add("nop", "NoOp")
    g.neg("z", g.value("c", "", "^nop"), at=2)
    g.neg("z2", g.value("c2", "", "^a"), at=2)
    g.value("c3")
    g.add("z3", "NoOp", "^c3")
    g.neg("z4", "c3", at=2)
    g.value("alone")


def _resource_keeps_its_device(g: Nodes) -> None:
    g.variable("v", at=1)
    g.value("value", at=2)
    g.add("assign", "AssignVariableOp", "v", "value", at=2, dtype=F)
    g.add("i", "Identity", "v", T=dtypes.resource)
    g.add("r", "ReadVariableOp", "i", at=2, dtype=F)


def _exempt_from_its_inputs_device(g: Nodes) -> None:
    g.variable("v", at=1)
    g.variable("w", at=2)
    g.add("idn", "IdentityN", "v", "w", T=[dtypes.resource, dtypes.resource])


def _refs(g: Nodes) -> None:
    g.ref_variable("v", at=1)
    g.add("assign", "Assign", "v", g.value("one"), T=F)
    g.add("read", "Identity", "v", T=F)
    g.neg("double", "v", at=2)


def _groups(g: Nodes) -> None:
    x = g.value("x")
    g.neg("a", x, beside="c")
    g.neg("b", x, at="/device:CPU:*", beside="a")
    g.neg("c", x, at=3)
    g.neg("d", x, beside="b")
    g.neg("e", x, beside="d a")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_generators_and_metadata, {"gen": 1, "gen2": 2, "y": 2, "s": 2, "sz": 2, "n": 0, "two": 0, "p": 1, "q": 3}),
        (
            _more_generators,
            {"a": 1, "x": 1, "onzero": 0, "sz": 0, "rk": 3, "nop": 0, "z": 2, "c": 2, "z2": 2, "c2": 2}
            | {"z3": 0, "z4": 2, "c3": 0, "alone": 0},
        ),
        (_resource_keeps_its_device, {"v": 1, "value": 2, "assign": 1, "i": 1, "r": 1}),
        (_exempt_from_its_inputs_device, {"v": 1, "w": 2, "idn": 0}),
        (_refs, {"v": 1, "one": 1, "assign": 1, "read": 0, "double": 2}),
        (_groups, {"x": 3, "a": 3, "b": 3, "c": 3, "d": 3, "e": 3}),
    ],
)
def test_nodes_go_to_the_expected_devices(build: Build, expected: dict[str, int]) -> None:
    assert placed(build) == placed(build, soft=True) == expected


def _no_such_number(g: Nodes) -> None:
    g.neg("a", g.value("x", at=7), at=7)


def _no_such_type(g: Nodes) -> None:
    g.neg("a", g.value("x"), at="/device:GPU:0")


def _no_such_job(g: Nodes) -> None:
    g.neg("a", g.value("x"), at="/job:worker")


def _group_of_two_numbers(g: Nodes) -> None:
    g.neg("a", g.value("x", at=1), at=1)
    g.neg("b", g.value("y", at=2), at=2, beside="a")


def _two_groups_of_two_numbers(g: Nodes) -> None:
    x = g.value("x")
    g.neg("a", x, at=1)
    g.neg("b", x, at=2)
    g.neg("c", x, beside="a b")


def _group_of_two_types(g: Nodes) -> None:
    x = g.value("x")
    g.neg("a", x, at=1, beside="b")
    g.neg("b", x, at="/device:GPU:0")


def _group_of_two_variables(g: Nodes) -> None:
    g.ref_variable("v", at=1)
    g.ref_variable("w", at=2)
    g.add("one", "Assign", "v", g.value("x"), T=F)
    g.add("two", "Assign", "w", g.value("y"), beside="v", T=F)


def _switch_of_two_variables(g: Nodes) -> None:
    g.variable("v", at=1)
    g.variable("w", at=2)
    g.add("m", "Merge", "v", "w", T=dtypes.resource, N=2)


def _variable_that_is_nowhere(g: Nodes) -> None:
    g.variable("v", at=9)
    g.add("r", "AssignVariableOp", "v", g.value("value", at=2), at=2, dtype=F)


def _variable_that_is_used_in_another_job(g: Nodes) -> None:
    g.variable("v", at=1)
    g.add("r", "AssignVariableOp", "v", g.value("value"), at="/job:worker", dtype=F)


def _debug_info(requested: str, resource: str, members: str) -> str:
    return (
        "\nColocation Debug Info:\nColocation group had the following types and supported devices: \n"
        f"Root Member(requested_device_name_='{requested}' assigned_device_name_='' resource_device_name_='{resource}' "
        "supported_device_types_=[CPU])\n"
        "VarHandleOp: CPU \nAssignVariableOp: CPU \n\n"
        "Colocation members, user-requested devices, and framework assigned devices, if any:\n"
        f"  v (VarHandleOp) {resource}\n  r (AssignVariableOp) {members}\n"
    )


REFUSED = [
    (
        _no_such_number,
        "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:CPU:7 but available "
        f"devices are [ {ALL} ]. Make sure the device specification refers to a valid device.",
        {"a": 0, "x": 0},
    ),
    (
        _no_such_type,
        "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:GPU:0 but available "
        f"devices are [ {ALL} ]. Make sure the device specification refers to a valid device. "
        "The requested device appears to be a GPU, but CUDA is not enabled.",
        {"a": 0, "x": 0},
    ),
    (
        _no_such_job,
        "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:worker but available "
        f"devices are [ {ALL} ]. Make sure the device specification refers to a valid device.",
        None,
    ),
    (
        _group_of_two_numbers,
        "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with "
        "incompatible ids: '/device:CPU:2' and '/device:CPU:1'",
        {"a": 0, "b": 0, "x": 1, "y": 2},
    ),
    (
        _two_groups_of_two_numbers,
        "Cannot colocate nodes {{colocation_node c}} and {{colocation_node b}}: Cannot merge devices with "
        "incompatible ids: '/device:CPU:1' and '/device:CPU:2'",
        {"a": 0, "b": 0, "c": 0, "x": 0},
    ),
    (
        _group_of_two_types,
        "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with "
        "incompatible types: '/device:GPU:0' and '/device:CPU:1'",
        {"a": 0, "b": 0, "x": 0},
    ),
    (
        _group_of_two_variables,
        "Cannot colocate nodes {{colocation_node two}} and {{colocation_node v}}: Cannot merge devices with "
        "incompatible ids: '/device:CPU:2' and '/device:CPU:1'",
        {"v": 1, "w": 2, "one": 1, "two": 2, "x": 1, "y": 2},
    ),
    (
        _switch_of_two_variables,
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible "
        "resource devices: /device:CPU:2 vs /device:CPU:1. The edge src node is name='w' (op='VarHandleOp'), and the "
        "dst node is name='m' (op='Merge').",
        None,
    ),
    (
        _variable_that_is_nowhere,
        "Cannot assign a device for operation r: Could not satisfy explicit device specification '/device:CPU:2' "
        "because the node {{colocation_node r}} was colocated with a group of nodes that required incompatible device "
        f"'/device:CPU:9'. All available devices [{ALL}]. "
        + _debug_info("/device:CPU:9", "/device:CPU:9", "/device:CPU:2"),
        {"v": 0, "r": 0, "value": 2},
    ),
    (
        _variable_that_is_used_in_another_job,
        "Cannot assign a device for operation r: Could not satisfy explicit device specification '/job:worker' "
        "because the node {{colocation_node r}} was colocated with a group of nodes that required incompatible device "
        f"'/job:worker/device:CPU:1'. All available devices [{ALL}]. "
        + _debug_info("/job:worker/device:CPU:1", "/device:CPU:1", "/job:worker"),
        None,
    ),
]


@pytest.mark.parametrize(("build", "message", "softly"), REFUSED)
def test_impossible_placement_is_refused_unless_soft(build: Build, message: str, softly: dict[str, int] | None) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        placed(build)
    assert caught.value.message == message
    if softly is None:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            placed(build, soft=True)
        assert caught.value.message == message
    else:
        assert placed(build, soft=True) == softly


def test_op_without_kernels_is_refused() -> None:
    def build(g: Nodes) -> None:
        g.const("i", 1, dtypes.int32)
        g.value("x")
        g.add("a", "CudnnRNNCanonicalToParams", "i", "i", "i", "x", "x", T=F, num_params=1)

    with pytest.raises(errors.InvalidArgumentError) as caught:
        placed(build)
    assert caught.value.message == (
        "No OpKernel was registered to support Op 'CudnnRNNCanonicalToParams' used by {{node a}} with these attrs: "
        '[T=DT_FLOAT, direction="unidirectional", dropout=0, input_mode="linear_input", num_params=1, '
        'rnn_mode="lstm", seed=0, seed2=0]\nRegistered devices: [CPU]\n'
        "Registered kernels:\n  <no registered kernels>\n"
    )


def test_refusal_lists_kernels_of_other_types() -> None:
    def build(g: Nodes) -> None:
        g.const("h", np.float16(1))
        g.add("a", "Rint", "h", T=dtypes.float16)

    with pytest.raises(errors.InvalidArgumentError) as caught:
        placed(build)
    assert caught.value.message.endswith("Registered kernels:\n  device='CPU'; T in [DT_FLOAT, DT_DOUBLE]\n")


class TestLog:
    def test_log_names_every_node_and_its_device(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aexec.runtime")
        placed(_no_such_number, soft=True, log=True)
        assert caplog.messages == [f"x: (Const): {CPU}0", f"a: (Neg): {CPU}0"]

    def test_ignored_requests_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aexec.runtime")
        placed(_resource_keeps_its_device, log=True)
        assert (
            "Ignoring device specification /device:CPU:2 for node 'assign' because the input edge from 'v' is a "
            "reference connection and already has a device field set to /device:CPU:1"
        ) in caplog.messages
        placed(_group_of_two_variables, soft=True, log=True)
        assert (
            "Ignoring request to colocate node 'two' with nodes in colocation group 'v' because soft placement is on "
            "and an attempt at doing so resulted in the following error: Cannot colocate nodes "
            "{{colocation_node two}} and {{colocation_node v}}: Cannot merge devices with incompatible ids: "
            "'/device:CPU:2' and '/device:CPU:1'"
        ) in caplog.messages

    def test_moved_resource_is_always_logged_as_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        placed(_variable_that_is_nowhere, soft=True)
        (message,) = caplog.messages
        listed = "".join(f"\n  {CPU}{i}" for i in range(4))
        assert message.startswith("Failed to place the graph without changing the devices of some resources.")
        assert f"Current candidate devices are [{listed}].\nSee below for details" in message
        assert caplog.records[0].levelno == logging.WARNING

    def test_first_of_many_moved_resources_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        def build(g: Nodes) -> None:
            for i in range(3):
                g.add(f"r{i}", "ReadVariableOp", g.variable(f"v{i}", at=9), dtype=F)

        placed(build, soft=True)
        (message,) = caplog.messages
        assert "v0 (VarHandleOp) /device:CPU:9" in message

    def test_placement_is_logged_on_request_only(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aexec.runtime")
        placed(_group_of_two_numbers, soft=True)
        assert caplog.messages == []


class TestNodesThatArePlacedAlready:
    def test_new_node_goes_to_its_variable(self) -> None:
        nodes = Nodes()
        _resource_keeps_its_device(nodes)
        nodes.add("again", "ReadVariableOp", "v", at=3, dtype=F)
        nodes.add("shape", "Shape", "value", T=F)
        graph = nodes.graph()
        placer = Placer(make_devices({"CPU": 4}))
        before = [node for node in graph if node.name not in ("again", "shape")]
        for each in (before, list(graph)):
            placer.place(each, graph.nodes.__getitem__, graph.library)
        assert placer.device_of(graph.find("again")).name == f"{CPU}1"
        assert placer.device_of(graph.find("shape")).name == f"{CPU}2"
        assert placer.device_of(graph.find("assign")).name == f"{CPU}1"

    def test_group_holds_without_the_node_that_names_it(self) -> None:
        nodes = Nodes()
        nodes.neg("c", nodes.value("x"), at=3)
        nodes.neg("a", "x", at=2, beside="c")
        nodes.neg("b", "x", beside="c")
        graph = nodes.graph()
        placer = Placer(make_devices({"CPU": 4}))
        placer.place([graph.find(name) for name in "xab"], graph.nodes.__getitem__, graph.library)
        assert placer.device_of(graph.find("b")).name == f"{CPU}2"
        assert not placer.is_placed(graph.find("c"))


class TestDeviceFilters:
    async def test_devices_that_match_no_filter_are_hidden(self) -> None:
        config = aexec.SessionConfig(device_count={"CPU": 4}, device_filters=["/device:CPU:2", "/job:other"])
        async with aexec.Session(aexec.Graph(), config=config) as session:
            # Feeds enter and fetches leave on the first, which stays.
            assert [device.name for device in session.devices()] == [f"{CPU}0", f"{CPU}2"]

    async def test_request_for_a_hidden_device_is_refused(self) -> None:
        nodes = Nodes()
        nodes.neg("a", nodes.value("x"), at=1)
        config = aexec.SessionConfig(device_count={"CPU": 2}, device_filters=("/cpu:0",))
        with pytest.raises(errors.InvalidArgumentError, match=rf"available devices are \[ {CPU}0 \]"):
            await aexec.Session(nodes.graph(), config=config)

    def test_malformed_filters_are_refused(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Unknown attribute 'disk'"):
            aexec.SessionConfig(device_filters=["/disk:0"])
        with pytest.raises(errors.InvalidArgumentError, match="device_filters must be a collection of names"):
            aexec.SessionConfig(device_filters="/cpu:0")


@st.composite
def graphs(draw: st.DrawFn) -> Nodes:
    """Chains of values and variables with requests, groups and edges at random."""
    g = Nodes()
    devices = st.sampled_from(["", "", "/job:localhost", "/device:CPU:*", 0, 1, 2, 3, 5])
    values, variables, names = [g.value("start")], [], ["start"]
    for i in range(draw(st.integers(1, 14))):
        at = draw(devices)
        beside = draw(st.sampled_from(["", "", "", *names]))
        kind = draw(st.sampled_from(["neg", "const", "variable", "read", "size"]))
        name = f"n{i}"
        if kind == "variable":
            variables.append(g.variable(name, at=at, beside=beside))
        elif kind == "read" and variables:
            values.append(
                g.add(name, "ReadVariableOp", draw(st.sampled_from(variables)), at=at, beside=beside, dtype=F)
            )
        elif kind == "size":
            g.add(name, "Size", draw(st.sampled_from(values)), at=at, beside=beside, T=F)
        elif kind == "const":
            values.append(g.value(name, at))
        else:
            values.append(g.neg(name, draw(st.sampled_from(values)), at, beside))
        names.append(name)
    return g


def broken_constraints(graph: aexec.Graph, at: dict[str, str], *, soft: bool) -> list[str]:
    """The constraints that a placement violates; with soft placement, requests and groups may be violated."""
    found = []
    for node in graph:
        device = DeviceName.parse(at[node.name])
        made_elsewhere = any(t is dtypes.resource for t in node.input_types)
        if not soft and node.device and not made_elsewhere and not DeviceName.parse(node.device).matches(device):
            found.append(f"{node.name} asks for {node.device}")
        found += [f"{node.name} beside {g}" for g in node.colocation_groups if not soft and at[g] != at[node.name]]
        for (source, slot), dtype in zip(node.inputs, node.input_types, strict=True):
            producer = graph.nodes[source]
            if dtype is dtypes.resource and at[producer.name] != at[node.name]:
                found.append(f"{node.name} uses {producer.name}:{slot}")
    return found


@given(graphs(), st.booleans())
def test_constraints_hold(nodes: Nodes, soft: bool) -> None:
    graph = nodes.graph()
    placer = Placer(make_devices({"CPU": 4}), soft=soft)
    try:
        placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    except errors.InvalidArgumentError:
        assert not any(placer.is_placed(node) for node in graph)
        return
    assert broken_constraints(graph, {n.name: placer.device_of(n).name for n in graph}, soft=soft) == []


@pytest.mark.soak
@pytest.mark.parametrize("by_cost", [False, True])
def test_large_graph_is_placed_in_seconds(by_cost: bool) -> None:
    g = Nodes()
    values, variables = [g.value("start")], []
    for i in range(100_000):
        at = (i % 5) if i % 5 < 4 and i % 3 == 0 else ""
        near = values[-1 - i * 7919 % min(len(values), 50)]
        if i % 50 == 0:
            variables.append(g.variable(f"n{i}", at=at))
        elif i % 10 == 1:
            values.append(g.add(f"n{i}", "ReadVariableOp", variables[i % len(variables)], at=at, dtype=F))
        elif i % 10 == 2:
            values.append(g.value(f"n{i}"))
        elif i % 10 == 3:
            values.append(g.neg(f"n{i}", near, beside=near))
        else:
            values.append(g.add(f"n{i}", "AddV2", near, values[-1], at=at, T=F))
    graph = g.graph()
    costs = CostModel()
    measured = proto.CostGraphDef()
    for i, node in enumerate(graph):
        measured.node.add(name=node.name, compute_time=1 + i % 100).output_info.add(size=1000)
    costs.add(measured)
    placer = Placer(make_devices({"CPU": 4}), soft=True, costs=costs if by_cost else None)
    began = time.process_time()
    placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    assert time.process_time() - began < 5
    at = {n.name: placer.device_of(n).name for n in graph}
    assert len(set(at.values())) == 4
    assert broken_constraints(graph, at, soft=True) == []
