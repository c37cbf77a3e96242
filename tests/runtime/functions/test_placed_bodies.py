"""Devices of nodes in functions: inlined nodes follow their own or their call's request; others run on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices.cpu_device import CpuDevice
from aexec.devices.device_registry import register_device_factory, unregister_device_factory
from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.wire.attr_value import NameAttrList
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def function(g: GraphBuilder, name: str, *nodes: tuple[str, str, str, str, dict[str, Any]]) -> None:
    """`y = name(x)`: nodes as (name, op, input, device, attrs); the last one gives the result."""
    body = GraphBuilder()
    f = g.graph_def.library.function.add()
    f.signature.name = name
    f.signature.input_arg.add(name="x", type=nodes[0][4].get("argument", F).enum)
    f.signature.output_arg.add(name="y", type=F.enum)
    for node, op, source, device, attrs in nodes:
        body(node, op, source, device=device, **{k: v for k, v in attrs.items() if k != "argument"})
        f.node_def.append(body.graph_def.node[-1])
    f.ret["y"] = f"{nodes[-1][0]}:{nodes[-1][4].get('result', 'y')}:0"


def call(g: GraphBuilder, name: str, to: str, x: str, device: str = "", dtype: dtypes.DType = F) -> str:
    return g(name, "PartitionedCall", x, device=device, Tin=[dtype], Tout=[F], f=NameAttrList(to))


async def run(g: GraphBuilder, fetches: Any, feeds: Any = None, **config: Any) -> tuple[Any, dict[str, str]]:
    """The results, and node name → device."""
    metadata = aexec.RunMetadata()
    options = aexec.RunOptions(output_partition_graphs=True)
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(**config)) as session:
        result = await session.run(fetches, feeds, options=options, metadata=metadata)
    nodes = [node for message in metadata.partition_graphs for node in message.node]
    return result, {node.name: node.device.rpartition("device:")[2] for node in nodes}


X = np.array([1.0, 2.0, 1.0], np.float32)
FOUR = {"CPU": 4}


async def test_nodes_of_a_body_go_where_they_ask_to_be_or_else_their_call() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    function(g, "Body", ("a", "Square", "x", "", {"T": F}), ("b", "Neg", "a:y:0", "/cpu:2", {"T": F}))
    call(g, "c", "Body", "x", "/cpu:1")
    result, at = await run(g, "c:0", {"x:0": X}, device_count=FOUR)
    assert result.tolist() == [-1, -4, -1]
    assert (at["c/a"], at["c/b"], at["c"]) == ("CPU:1", "CPU:2", "CPU:1")


async def test_missing_device_in_a_body_is_ignored() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    function(g, "Body", ("a", "Neg", "x", "/device:GPU:3", {"T": F}))
    call(g, "c", "Body", "x")
    result, at = await run(g, "c:0", {"x:0": X}, device_count=FOUR)
    assert (result == -X).all()
    assert at["c/a"] == "CPU:0"


async def test_groups_are_those_of_one_call() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    group = {"T": F, "_class": [b"loc:@a"]}
    function(g, "Body", ("a", "Square", "x", "", {"T": F}), ("b", "Neg", "a:y:0", "", group))
    g("a", "Neg", "x", device="/cpu:3", T=F)  # of the same name as a node of the body
    call(g, "one", "Body", "a", "/cpu:1")
    call(g, "two", "Body", "one", "/cpu:2")
    result, at = await run(g, "two:0", {"x:0": X}, device_count=FOUR)
    assert result.tolist() == [-1, -16, -1]
    assert [at[n] for n in ("a", "one/a", "one/b", "two/a", "two/b")] == ["CPU:3", *["CPU:1"] * 2, *["CPU:2"] * 2]


async def test_variable_is_read_where_it_is() -> None:
    g = GraphBuilder()
    attrs = {"argument": dtypes.resource, "dtype": F, "result": "value"}
    function(g, "Body", ("r", "ReadVariableOp", "x", "", attrs))
    g("v", "VarHandleOp", device="/cpu:1", dtype=F, shape=[])
    g.const("one", 1.0, F)
    g("assign", "AssignVariableOp", "v", "one", dtype=F)
    g.graph_def.node.add(name="c", op="Body", input=["v", "^assign"])
    result, at = await run(g, "c:0", device_count=FOUR)
    assert (result, at["c/r"]) == (1, "CPU:1")


@pytest.fixture
def asics() -> Iterator[None]:
    """Devices of the host that have variables, and no other kernel."""
    original = kernel_registry.global_registry.lookup("VarHandleOp", "CPU", {"dtype": F}, node="")
    register_device_factory("ASIC", lambda task, count: [CpuDevice(f"{task}/device:ASIC:0", "ASIC")])
    with kernel_registry.global_registry.watch() as registered:
        kernel("VarHandleOp", device="ASIC", cost=0)(original.builder)
    yield
    for each in registered:
        kernel_registry.global_registry.unregister(each)
    unregister_device_factory("ASIC")


@pytest.mark.usefixtures("asics")
async def test_node_without_a_kernel_where_its_resource_is_runs_on_the_host() -> None:
    g = GraphBuilder()
    attrs = {"argument": dtypes.resource, "dtype": F, "result": "value"}
    function(g, "Body", ("r", "ReadVariableOp", "x", "", attrs))
    g("v", "VarHandleOp", device="/device:ASIC:0", dtype=F, shape=[])
    call(g, "c", "Body", "v", dtype=dtypes.resource)
    with pytest.raises(aexec.errors.FailedPreconditionError, match="uninitialized"):
        await run(g, "c:0")


@pytest.mark.parametrize("op", ["Neg", "Unique"])  # the latter gives its second output in host memory
@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("passes", [(), "exact"])
async def test_call_runs_on_a_device_with_streams(op: str, by_name: bool, passes: Any) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    attrs = {"T": F, "out_idx": dtypes.int32} if op == "Unique" else {"T": F}
    function(g, "Body", ("e", "Square", "x", "", {"T": F}), ("u", op, "e:y:0", "", attrs))
    if by_name:
        g("c", "Body", "x", device="/device:SIM:0")
    else:
        call(g, "c", "Body", "x", "/device:SIM:0")
    result, at = await run(g, "c:0", {"x:0": X}, device_count={"SIM": 1}, graph_passes=passes)
    assert result.tolist() == ([1, 4] if op == "Unique" else [-1, -4, -1])
    assert at["c"] == "SIM:0"
    if passes:
        assert at["c/e"] == at["c/u"] == "SIM:0"


async def test_calls_that_ask_for_nothing_stay_on_the_host() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    function(g, "Body", ("a", "Neg", "x", "", {"T": F}))
    call(g, "c", "Body", "x")
    _, at = await run(g, "c:0", {"x:0": X}, device_count={"SIM": 1}, graph_passes=())
    assert set(at.values()) == {"CPU:0"}


async def test_kernels_of_bodies_are_the_same_for_every_plan() -> None:
    """Their state belongs to the session: random numbers continue where another request left off."""
    g = GraphBuilder()
    g.const("shape", np.array([2], np.int32))
    f = g.graph_def.library.function.add()
    f.signature.name = "Body"
    f.signature.is_stateful = True
    f.signature.input_arg.add(name="x", type=dtypes.int32.enum)
    f.signature.output_arg.add(name="y", type=F.enum)
    body = GraphBuilder()
    body("r", "RandomUniform", "x", device="/cpu:1", seed=1, seed2=2, T=dtypes.int32, dtype=F)
    f.node_def.append(body.graph_def.node[-1])
    f.ret["y"] = "r:output:0"
    g("c", "Body", "shape")
    g("d", "Neg", "c", T=F)
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(device_count={"CPU": 2})) as session:
        first = await session.run("c:0")
        second = -(await session.run("d:0"))
        third = await session.run("c:0")
    assert len({*map(tuple, (first.tolist(), second.tolist(), third.tolist()))}) == 3
