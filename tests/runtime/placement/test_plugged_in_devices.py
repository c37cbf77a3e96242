"""Device types that are plugged in: factories, kernels of their own, and where the placer puts nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices.cpu_device import CpuDevice
from aexec.devices.device_registry import register_device_factory, unregister_device_factory
from aexec.framework import types
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support.programs.graphs import GraphBuilder, counting_loop

TASK = "/job:localhost/replica:0/task:0"

for op in ("TestOnBoth", "TestPrefersCpu", "TestPrefersAsic", "TestOnAsicOnly", "TestOnCpuOnly"):
    register_op(f"{op}() -> name: string")
register_op("TestAnywhere() -> name: string")


def _asics(task: str, count: int | None) -> list[CpuDevice]:
    return [CpuDevice(f"{task}/device:ASIC:{i}", "ASIC") for i in range(count or 0)]


def _name_of_device(c: Any) -> Callable[[], Any]:
    return lambda: np.array(c.device.encode(), object)


@pytest.fixture
def asic() -> Iterator[None]:
    """A device type of less priority than CPUs, and some kernels of it."""
    register_device_factory("ASIC", _asics)
    with kernel_registry.global_registry.watch() as registered:
        kernel("TestOnBoth", device=("CPU", "ASIC"), cost=0)(_name_of_device)
        kernel("TestPrefersCpu", device="CPU", priority=2, cost=0)(_name_of_device)
        kernel("TestPrefersCpu", device="ASIC", priority=1, cost=0)(_name_of_device)
        kernel("TestPrefersAsic", device="CPU", cost=0)(_name_of_device)
        kernel("TestPrefersAsic", device="ASIC", priority=1, cost=0)(_name_of_device)
        kernel("TestOnAsicOnly", device="ASIC", cost=0)(_name_of_device)
        kernel("TestOnCpuOnly", device="CPU", cost=0)(_name_of_device)
        kernel("TestAnywhere", device="DEFAULT", cost=0)(_name_of_device)
    yield
    for each in registered:
        kernel_registry.global_registry.unregister(each)
    unregister_device_factory("ASIC")


async def places(
    *nodes: tuple[str, str, str], groups: Mapping[str, str] | None = None, asics: int = 2
) -> dict[str, str]:
    """Where nodes given as (name, op, requested device) ran; `groups`: node → the one that it is colocated with."""
    g = GraphBuilder()
    for name, op, device in nodes:
        g(name, op, device=device)
        if groups and name in groups:
            g.graph_def.node[-1].attr["_class"].list.s.append(f"loc:@{groups[name]}".encode())
    config = aexec.SessionConfig(device_count={"ASIC": asics})
    async with aexec.Session(g.graph(), config=config) as session:
        got = await session.run([f"{name}:0" for name, _, _ in nodes])
    return {name: at.decode().rpartition("device:")[2] for (name, _, _), at in zip(nodes, got, strict=True)}


@pytest.mark.usefixtures("asic")
class TestPlacement:
    async def test_order_of_devices_decides_between_equal_priorities(self) -> None:
        assert await places(("a", "TestOnBoth", ""), ("b", "TestAnywhere", "")) == {"a": "CPU:0", "b": "CPU:0"}

    async def test_kernel_priorities_decide_the_device(self) -> None:
        got = await places(("a", "TestPrefersCpu", ""), ("b", "TestPrefersAsic", ""), ("c", "TestOnAsicOnly", ""))
        assert got == {"a": "CPU:0", "b": "ASIC:0", "c": "ASIC:0"}

    async def test_requested_device_comes_before_priorities(self) -> None:
        got = await places(
            ("a", "TestPrefersCpu", "/device:ASIC:*"),
            ("b", "TestPrefersAsic", "/cpu:0"),
            ("c", "TestAnywhere", "/device:ASIC:1"),
            ("d", "TestPrefersAsic", "/job:localhost"),
        )
        assert got == {"a": "ASIC:0", "b": "CPU:0", "c": "ASIC:1", "d": "ASIC:0"}

    async def test_missing_device_type_is_ignored_or_refused(self) -> None:
        assert await places(("a", "TestPrefersAsic", ""), asics=0) == {"a": "CPU:0"}
        with pytest.raises(
            errors.InvalidArgumentError, match=r"No OpKernel was registered to support Op 'TestOnAsicOnly'"
        ):
            await places(("a", "TestOnAsicOnly", ""), asics=0)

    @pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
    async def test_group_goes_where_all_its_nodes_can(self, order: tuple[str, str]) -> None:
        ops = {"first": "TestOnBoth", "second": "TestOnAsicOnly"}
        got = await places(*((name, ops[name], "") for name in order), groups={"first": "second"})
        assert got == {"first": "ASIC:0", "second": "ASIC:0"}

    async def test_one_node_with_priorities_decides_for_its_group(self) -> None:
        got = await places(("a", "TestOnBoth", ""), ("b", "TestPrefersAsic", ""), groups={"b": "a"})
        assert got == {"a": "ASIC:0", "b": "ASIC:0"}

    async def test_priorities_that_contradict_each_other_do_not_count(self) -> None:
        got = await places(("a", "TestPrefersAsic", ""), ("b", "TestPrefersCpu", ""), groups={"b": "a"})
        assert got == {"a": "CPU:0", "b": "CPU:0"}

    async def test_group_without_a_common_device_type_is_refused(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="because no device type supports both of those nodes"):
            await places(("a", "TestOnCpuOnly", ""), ("b", "TestOnAsicOnly", ""), groups={"b": "a"})

    async def test_control_flow_runs_where_the_session_prefers(self) -> None:
        async with aexec.Session(counting_loop().graph(), config=aexec.SessionConfig(device_count={"ASIC": 1})) as s:
            assert await s.run("result:0", {"n:0": 3}) == 3

    async def test_extension_that_cannot_be_placed_changes_nothing(self) -> None:
        g = GraphBuilder()
        g("a", "TestOnBoth")
        config = aexec.SessionConfig(device_count={"ASIC": 1})
        async with aexec.Session(g.graph(), config=config) as session:
            more = GraphBuilder()
            more("b", "TestOnBoth", device="/device:ASIC:0")
            more("c", "TestOnBoth", device="/device:ASIC:7")
            with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device for operation c"):
                await session.extend(more.graph_def)
            again = GraphBuilder()
            again("b", "TestOnBoth")
            await session.extend(again.graph_def)
            assert await session.run("b:0") == f"{TASK}/device:CPU:0".encode()

    # Node: op, requested device, the nodes that it is colocated with.
    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (
                {"c": ("TestOnBoth", "/device:ASIC:0", ["a"])},
                r"nodes {{colocation_node c}} and {{colocation_node a}}: Cannot merge devices with incompatible types: "
                r"'/device:ASIC:0' and '.*CPU:0'",
            ),
            (
                {"c": ("TestOnAsicOnly", "", ["a"])},
                "node c}} was colocated with a group of nodes that required incompatible device '.*/device:CPU:0'",
            ),
            ({"c": ("TestOnBoth", "", ["a", "b"])}, "node c}} and {{colocation_node b}}: .*CPU:0' and '.*ASIC:0'"),
            (
                {"c": ("TestOnBoth", "", ["a"]), "d": ("TestOnBoth", "", ["b", "c"])},
                "node d}} and {{colocation_node c}}: .*(ASIC:0' and '.*CPU:0|CPU:0' and '.*ASIC:0)",
            ),
            (
                {"c": ("TestOnBoth", "", ["b"]), "d": ("TestOnBoth", "", ["a", "c"])},
                "node d}} and {{colocation_node c}}: .*(ASIC:0' and '.*CPU:0|CPU:0' and '.*ASIC:0)",
            ),
        ],
    )
    async def test_extension_that_contradicts_placed_nodes_is_refused(
        self, more: dict[str, tuple[str, str, list[str]]], message: str
    ) -> None:
        """`a` is on the CPU, `b` on the accelerator; in a whole graph the same is refused."""
        nodes = {"a": ("TestOnBoth", "/device:CPU:0", []), "b": ("TestOnBoth", "/device:ASIC:0", [])}
        config = aexec.SessionConfig(device_count={"ASIC": 1})
        with pytest.raises(errors.InvalidArgumentError, match=r"Cannot (colocate nodes|assign a device)"):
            # Opened, since a busy machine places the graph only then.
            await aexec.Session(_colocated({**nodes, **more}).graph(), config=config)
        async with aexec.Session(_colocated(nodes).graph(), config=config) as session:
            with pytest.raises(errors.InvalidArgumentError, match=message):
                await session.extend(_colocated(more).graph_def)
            assert len(session.graph) == 2

    async def test_extension_joins_placed_groups(self) -> None:
        config = aexec.SessionConfig(device_count={"ASIC": 1})
        nodes = {"b": ("TestOnBoth", "/device:ASIC:0", [])}
        more = {"c": ("TestOnBoth", "", ["b"]), "d": ("TestOnBoth", "/job:localhost", ["c"])}
        async with aexec.Session(_colocated(nodes).graph(), config=config) as session:
            await session.extend(_colocated(more).graph_def)
            assert await session.run(["c:0", "d:0"]) == [f"{TASK}/device:ASIC:0".encode()] * 2

    async def test_soft_placement_gives_way_to_placed_nodes(self) -> None:
        config = aexec.SessionConfig(device_count={"ASIC": 1}, allow_soft_placement=True)
        async with aexec.Session(_colocated({"a": ("TestOnBoth", "/cpu:0", [])}).graph(), config=config) as session:
            await session.extend(_colocated({"c": ("TestOnBoth", "/device:ASIC:0", ["a"])}).graph_def)
            assert await session.run("c:0") == f"{TASK}/device:CPU:0".encode()


def _colocated(nodes: Mapping[str, tuple[str, str, list[str]]]) -> GraphBuilder:
    """Nodes by name: op, requested device, the nodes that each is colocated with."""
    g = GraphBuilder()
    for name, (op, device, groups) in nodes.items():
        g(name, op, device=device)
        if groups:
            g.graph_def.node[-1].attr["_class"].list.s.extend(f"loc:@{group}".encode() for group in groups)
    return g


async def test_constants_in_host_memory_are_traced_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(types, "_device_types", dict(types._device_types))
    register_device_factory("FAST", lambda task, count: [CpuDevice(f"{task}/device:FAST:0", "FAST")], priority=300)
    try:
        with aexec.Graph() as graph:
            aexec.constant(1.0, name="c")
        metadata = aexec.RunMetadata()
        async with aexec.Session(graph) as session:
            assert [device.type for device in session.devices()] == ["FAST", "CPU"]
            assert (await session.tensors.put(np.ones(1))).name.endswith(f";{TASK}/device:CPU:0")
            await session.run("c:0", options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats is not None
        assert [stats.device for stats in metadata.step_stats.dev_stats] == [f"{TASK}/device:CPU:0"]
    finally:
        unregister_device_factory("FAST")
