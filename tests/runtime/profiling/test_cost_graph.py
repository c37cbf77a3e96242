"""Cost graphs of runs: which runs are measured, and the content of the messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.devices.device_registry import make_devices
from aexec.framework import dtypes
from aexec.graph.partitioning.partition import Partition
from aexec.runtime.profiling.cost_graph import cost_graph
from aexec.runtime.profiling.cost_model import CostModel
from aexec.runtime.session.measured_steps import MeasuredSteps
from tests.support.programs.graphs import GraphBuilder, counting_loop

F = dtypes.float32
CPU = "/job:localhost/replica:0/task:0/device:CPU:"
MEASURED = aexec.RunOptions(cost_graph=True)


def two_devices() -> GraphBuilder:
    """`n = -reshape(x · w)` on another device, after `m`."""
    g = GraphBuilder()
    g.placeholder("x", F, [None, 4])
    g.const("w", np.ones((4, 3), np.float32))
    g("m", "MatMul", "x", "w", T=F)
    g.const("flat", np.array([-1], np.int32))
    g("r", "Reshape", "m", "flat", T=F)
    g("i", "Identity", "r", "^m", T=F)
    g("n", "Neg", "i", device="/cpu:1", T=F)
    return g


X = np.ones((2, 4), np.float32)


async def measured(
    g: GraphBuilder, fetches: Any, feeds: Any, config: aexec.SessionConfig, options: Any = MEASURED
) -> tuple[aexec.RunMetadata, CostModel]:
    metadata = aexec.RunMetadata()
    async with aexec.Session(g.graph(), config=config) as session:
        await session.run(fetches, feeds, options=options, metadata=metadata)
        return metadata, session.cost_model


PLAIN = aexec.SessionConfig(graph_passes=(), device_count={"CPU": 2})


async def test_cost_graph_has_every_node_with_device_inputs_and_outputs() -> None:
    metadata, _ = await measured(two_devices(), ["n:0", "i:0"], {"x:0": X}, PLAIN)
    graph = metadata.cost_graph
    assert graph is not None
    assert [node.id for node in graph.node] == list(range(len(graph.node)))
    by_id = {node.id: node for node in graph.node}
    named = {node.name: node for node in graph.node}
    assert {named[name].device for name in "wmri"} == {f"{CPU}0"}
    assert named["n"].device == f"{CPU}1"

    def inputs(name: str) -> list[tuple[str, int]]:
        return [(by_id[i.preceding_node].name, i.preceding_port) for i in named[name].input_info]

    assert inputs("m") == [("_arg_x_0_0", 0), ("w", 0)]
    assert inputs("r") == [("m", 0), ("flat", 0)]
    assert [by_id[i].name for i in named["i"].control_input] == ["m"]
    (product,) = named["m"].output_info
    assert (product.size, product.dtype, [d.size for d in product.shape.dim]) == (24, F.enum, [2, 3])
    assert product.alias_input_port == -1
    assert named["r"].output_info[0].alias_input_port == 0  # the same buffer in another shape
    sends = [node for node in graph.node if node.is_final]
    assert {node.name.partition("/")[0] for node in sends} == {"i", "n"}
    assert named["n"].input_info[0].preceding_node in {n.id for n in graph.node if n.device == f"{CPU}1"}


async def test_times_are_microseconds() -> None:
    metadata, costs = await measured(two_devices(), "n:0", {"x:0": X}, PLAIN)
    assert metadata.step_stats is not None and metadata.cost_graph is not None
    micros = {
        run.node_name: (run.op_end_rel_nanos - run.op_start_rel_nanos) / 1e3
        for device in metadata.step_stats.dev_stats
        for run in device.node_stats
    }
    for node in metadata.cost_graph.node:
        if node.name in "mrin":
            assert node.compute_cost - 1 < micros[node.name] <= node.compute_cost
            assert node.compute_time + node.memory_time == round(max(1.0, micros[node.name]))
            assert not node.inaccurate
            assert costs.find(node.name).max_micros == micros[node.name]
    assert next(node.inaccurate for node in metadata.cost_graph.node if node.name == "_arg_x_0_0")
    total = {cost.dimension: cost.cost for cost in metadata.cost_graph.cost}
    assert total["compute"] == sum(node.compute_time for node in metadata.cost_graph.node)
    assert total["memory"] == sum(node.memory_time for node in metadata.cost_graph.node)
    sends = sum(node.is_final for node in metadata.cost_graph.node)
    assert total["network"] >= sends * costs.copy_micros > 0


async def test_steps_add_up_and_the_longest_counts() -> None:
    g = two_devices()
    longest = 0.0
    async with aexec.Session(g.graph(), config=PLAIN) as session:
        for rows in (2, 4, 3):
            metadata = aexec.RunMetadata()
            await session.run("m:0", {"x:0": X[:1].repeat(rows, 0)}, options=MEASURED, metadata=metadata)
            longest = max(longest, session.cost_model.find("m").max_micros)
        await session.run("m:0", {"x:0": X}, options=aexec.RunOptions(trace=True))
        assert session.cost_model.find("m").count == 3
        assert session.cost_model.size_estimate("m", 0) == 36
    (entry,) = [node for node in metadata.cost_graph.node if node.name == "m"]
    assert entry.output_info[0].size == 48
    assert entry.compute_cost - 1 < longest <= entry.compute_cost


async def test_loops_count_iterations() -> None:
    _, costs = await measured(counting_loop(), "result:0", {"n:0": 5}, PLAIN)
    assert (costs.find("add").count, costs.find("less").count) == (5, 6)


async def test_failed_step_is_not_measured() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("a", "Neg", "x", T=F)
    g("b", "CheckNumerics", "a", T=F, message=b"no number")
    metadata = aexec.RunMetadata()
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError):
            await session.run("b:0", {"x:0": np.float32("nan")}, options=MEASURED, metadata=metadata)
        assert len(session.cost_model) == 0
    assert metadata.cost_graph is None


async def test_runs_are_measured_on_request_only() -> None:
    metadata, costs = await measured(two_devices(), "n:0", {"x:0": X}, PLAIN, aexec.RunOptions(trace=True))
    assert (metadata.cost_graph, len(costs)) == (None, 0)


class TestEveryStep:
    """As `GraphOptions.build_cost_model`, which counts the steps of each signature."""

    async def test_every_nth_run_is_measured(self) -> None:
        config = proto.ConfigProto(device_count={"CPU": 2})
        config.graph_options.build_cost_model = 2
        config.graph_options.build_cost_model_after = 1
        async with aexec.Session(two_devices().graph(), config=config) as session:

            async def is_measured(fetch: str) -> bool:
                metadata = aexec.RunMetadata()
                await session.run(fetch, {"x:0": X}, metadata=metadata)
                assert (metadata.cost_graph is None) == (metadata.step_stats is None)
                return metadata.cost_graph is not None

            # What TensorFlow measures of two signatures.
            assert [await is_measured("m:0") for _ in range(6)] == [False, False, True, False, True, False]
            assert [await is_measured("r:0") for _ in range(4)] == [False, False, True, False]
            assert session.cost_model.find("m").count == 3

    async def test_calls_steps_and_given_options_are_measured(self) -> None:
        config = aexec.SessionConfig(build_cost_model=2, device_count={"CPU": 2})
        async with aexec.Session(two_devices().graph(), config=config) as session:
            call = session.make_callable("m:0", ["x:0"])
            step = call.start(X)
            await step
            assert step.metadata is None
            metadata = aexec.RunMetadata()
            await call(X, options=proto.RunOptions(output_partition_graphs=True), metadata=metadata)
            assert metadata.cost_graph is not None and metadata.partition_graphs
            await call(X)
            step = call.start(X)
            await step
            assert step.metadata is not None and step.metadata.cost_graph is not None

    async def test_remembered_requests_and_nodes_are_bounded(self) -> None:
        """Other requests of the same nodes add nothing, and are forgotten in time."""
        steps = MeasuredSteps(2, 0)
        options = [steps.options(("n", i), None) for i in (*range(1001), 1, 0)]
        assert [i for i, each in enumerate(options) if each is not None] == [1001]
        config = aexec.SessionConfig(build_cost_model=1, device_count={"CPU": 2}, graph_passes=())
        async with aexec.Session(two_devices().graph(), config=config) as session:
            await session.run("n:0", {"x:0": X})
            known = len(session.cost_model)
            await session.run(["n:0", "i:0"], {"x:0": X})
            await session.run("n:0", {"x:0": X}, ["r"])
            assert len(session.cost_model) == known

    def test_negative_numbers_are_refused(self) -> None:
        for field in ("build_cost_model", "build_cost_model_after"):
            with pytest.raises(errors.InvalidArgumentError, match="must not be negative"):
                aexec.SessionConfig(**{field: -1})


async def test_cost_model_learns_from_a_cost_graph() -> None:
    g = two_devices()
    metadata, costs = await measured(g, "n:0", {"x:0": X}, PLAIN)
    assert metadata.cost_graph is not None
    other = CostModel(proto.RunMetadata(cost_graph=metadata.cost_graph))
    node = g.graph().find("m")
    assert other.time_estimate(node) == round(costs.time_estimate(node))
    assert other.size_estimate("m", 0) == 24
    assert not other.is_measured("_arg_x_0_0")


def test_unmeasured_node_has_shapes_and_no_times() -> None:
    graph = two_devices().graph()
    partition = Partition(graph, make_devices({})[0])  # type: ignore[arg-type]  # the whole graph is all it looks at
    partition.nodes.update({node.id: node for node in graph})
    message = cost_graph([partition], CostModel())
    m = next(node for node in message.node if node.name == "m")
    assert m.inaccurate
    assert (m.compute_cost, m.compute_time, m.memory_time) == (0, 1, 0)
    (output,) = m.output_info
    assert (output.size, output.alias_input_port) == (-1, -1)
    assert [dim.size for dim in output.shape.dim] == [-1, 3]
    w = next(node for node in message.node if node.name == "w")
    assert (w.compute_time, w.memory_time) == (0, 0)


def test_persistent_memory_of_a_node_counts_once() -> None:
    graph = two_devices().graph()
    partition = Partition(graph, make_devices({})[0])  # type: ignore[arg-type]
    partition.nodes.update({node.id: node for node in graph})
    run = proto.NodeExecStats(node_name="w", op_end_rel_micros=3)
    run.memory_stats.persistent_memory_size = 48
    run.memory_stats.persistent_tensor_alloc_ids.append(7)
    kept = run.output.add(slot=0).tensor_description.allocation_description
    kept.requested_bytes, kept.allocation_id = 48, 7
    stats = proto.StepStats(dev_stats=[proto.DeviceStepStats(device=f"{CPU}0", node_stats=[run])])
    entry = next(node for node in cost_graph([partition], CostModel(stats)).node if node.name == "w")
    assert (entry.persistent_memory_size, entry.output_info[0].size, entry.compute_cost) == (48, 0, 3)
