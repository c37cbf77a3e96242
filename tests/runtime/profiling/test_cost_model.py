"""Cost models: learning from step statistics and cost graphs, and estimates."""

from __future__ import annotations

from typing import Any

import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.graph.nodes.node import Node
from aexec.runtime.profiling.cost_model import CostModel
from tests.support.programs.graphs import GraphBuilder

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


@pytest.fixture(scope="module")
def nodes() -> dict[str, Node]:
    g = GraphBuilder()
    g.placeholder("x")
    g("a", "Neg", "x", T=dtypes.float32)
    g("b", "Neg", "a", T=dtypes.float32)
    g.const("c", 1.0, dtypes.float32)
    g("v", "VariableV2", dtype=dtypes.float32, shape=[])
    return {node.name: node for node in g.graph()}


def run_of(name: str, micros: float, *outputs: int, shape: tuple[int, ...] = (), **memory: Any) -> proto.NodeExecStats:
    """A run of a node, in microseconds; `outputs` are sizes in bytes."""
    run = proto.NodeExecStats(
        node_name=name, op_end_rel_micros=int(micros), op_end_rel_nanos=round(micros * 1e3), memory_stats=memory
    )
    for slot, size in enumerate(outputs):
        description = run.output.add(slot=slot).tensor_description
        description.allocation_description.requested_bytes = size
        description.dtype = dtypes.float32.enum
        for dim in shape:
            description.shape.dim.add(size=dim)
    return run


def step(*runs: proto.NodeExecStats, device: str = CPU) -> proto.StepStats:
    return proto.StepStats(dev_stats=[proto.DeviceStepStats(device=device, node_stats=runs)])


class TestEstimates:
    def test_unmeasured_nodes_have_default_estimates(self, nodes: dict[str, Node]) -> None:
        model = CostModel()
        assert {name: model.time_estimate(node) for name, node in nodes.items()} == {
            "x": 1.0,
            "a": 1.0,
            "b": 1.0,
            "c": 0.0,
            "v": 0.0,
        }
        assert model.size_estimate("a", 0) == 0
        assert not model.is_measured("a")
        assert model.find("a") is None

    def test_estimates_are_averages(self, nodes: dict[str, Node]) -> None:
        model = CostModel(step(run_of("a", 10, 100), run_of("a", 20, 300)), step(run_of("a", 30, 200)))
        assert model.time_estimate(nodes["a"]) == 20
        assert model.size_estimate("a", 0) == 200
        assert model.size_estimate("a", 1) == 0
        assert model.find("a").max_micros == 30
        assert model.find("a").count == 3
        assert len(model) == 1

    def test_estimates_are_a_microsecond_at_least(self, nodes: dict[str, Node]) -> None:
        assert CostModel(step(run_of("a", 0.25))).time_estimate(nodes["a"]) == 1
        assert CostModel(step(run_of("c", 0.25))).time_estimate(nodes["c"]) == 1

    def test_parts_of_microseconds_add_up(self, nodes: dict[str, Node]) -> None:
        model = CostModel(step(run_of("a", 1.25), run_of("a", 1.5)))
        assert model.time_estimate(nodes["a"]) == 1.375

    def test_statistics_that_know_microseconds_alone(self, nodes: dict[str, Node]) -> None:
        run = proto.NodeExecStats(node_name="a", op_start_rel_micros=2, op_end_rel_micros=9)
        assert CostModel(step(run)).time_estimate(nodes["a"]) == 7

    def test_time_estimates_are_kept_per_device_type(self, nodes: dict[str, Node]) -> None:
        model = CostModel(step(run_of("a", 30), run_of("b", 9)), step(run_of("a", 10), device=GPU))
        assert model.time_estimate(nodes["a"], "CPU") == 30
        assert model.time_estimate(nodes["a"], "GPU") == 10
        assert model.time_estimate(nodes["a"]) == 20
        assert model.time_estimate(nodes["a"], "SIM") == 20  # never measured there
        assert model.time_estimate(nodes["b"], "GPU") == 9

    def test_infrequent_nodes_are_taken_for_unmeasured(self, nodes: dict[str, Node]) -> None:
        model = CostModel(step(*[run_of("a", 50, 8)] * 6, *[run_of("b", 50, 8)] * 3, *[run_of("x", 50, 8)] * 9))
        model.suppress_infrequent()
        assert model.min_count == 3
        assert [model.time_estimate(nodes[name]) for name in "abx"] == [50, 1, 50]
        assert [model.is_measured(name) for name in "abx"] == [True, False, True]
        model = CostModel(step(*[run_of("a", 50, 8)] * 8, run_of("b", 50, 8)))
        model.suppress_infrequent()
        assert model.size_estimate("b", 0) == 0
        empty = CostModel()
        empty.suppress_infrequent()
        assert empty.min_count == 1

    def test_copy_time_follows_from_latency_and_bandwidth(self) -> None:
        model = CostModel(copy_micros=5, copy_gbps=8)
        assert model.copy_time(0) == 5
        assert model.copy_time(2000) == 7  # 8 Gbit/s are 1000 bytes per microsecond
        assert CostModel(memory_gbps=16).memory_time(2000) == 1

    def test_copy_time_follows_from_measured_copies(self) -> None:
        assert CostModel().copy_time(10_000) == 11  # 10 µs and 80 Gbit/s
        model = CostModel()
        for num_bytes, micros in ((1000, 30), (1000, 30), (1000, 30)):
            model.copies.add(num_bytes, micros)
        assert model.copy_time(1000) == pytest.approx(30)
        assert model.copy_time(11_000) == pytest.approx(31)  # of one size alone, a byte is what it was
        other = CostModel()
        other.copies.add(101_000, 80)
        both = CostModel(model, other)
        assert both.copy_micros == pytest.approx(29.5)
        assert both.copy_time(51_000) == pytest.approx(55)
        assert CostModel(model, other, copy_micros=5, copy_gbps=8).copy_time(2000) == 7  # told, whatever was measured


class TestLearning:
    def test_times_of_a_stream_are_those_of_its_device(self, nodes: dict[str, Node]) -> None:
        stats = step(run_of("a", 2), run_of("b", 3), device=GPU)
        stats.MergeFrom(step(run_of("a:Neg", 40), device=f"{GPU}/stream:all"))
        stats.MergeFrom(step(run_of("a:Neg", 40), device=f"{GPU}/stream:13"))
        stats.MergeFrom(step(run_of("b:MEMCPYHtoD", 7), device=f"{GPU}/memcpy"))
        model = CostModel(stats)
        assert model.time_estimate(nodes["a"], "GPU") == 40
        assert model.find("a").count == 1
        assert model.time_estimate(nodes["b"], "GPU") == 3

    def test_source_is_no_node(self) -> None:
        assert len(CostModel(step(run_of("_SOURCE", 3)))) == 0

    def test_memory(self) -> None:
        kept = {"temp_memory_size": 64, "persistent_memory_size": 32, "persistent_tensor_alloc_ids": [7, 0]}
        model = CostModel(step(run_of("a", 1, 100, shape=(25,)), run_of("a", 1, 40, shape=(10,), **kept)))
        cost = model.find("a")
        assert (cost.temp_bytes, cost.persistent_bytes, model.persistent_ids) == (64, 32, {7})
        largest = cost.outputs[0]
        assert (largest.max_bytes, largest.dtype, [d.size for d in largest.shape.dim]) == (
            100,
            dtypes.float32.enum,
            [25],
        )

    def test_models_are_added_up(self, nodes: dict[str, Node]) -> None:
        one, other = CostModel(step(run_of("a", 10, 8))), CostModel(step(run_of("a", 30, 16), run_of("b", 5)))
        both = CostModel(one, other)
        assert [both.time_estimate(nodes[name]) for name in "ab"] == [20, 5]
        assert both.size_estimate("a", 0) == 12
        assert both.find("a").outputs[0].max_bytes == 16
        assert one.time_estimate(nodes["a"]) == 10

    def test_cost_graph_counts_as_one_measurement(self, nodes: dict[str, Node]) -> None:
        graph = proto.CostGraphDef()
        ours = graph.node.add(name="a", device=GPU, compute_cost=50, compute_time=20, memory_time=10)
        ours.output_info.add(size=80, dtype=dtypes.float32.enum).shape.dim.add(size=20)
        graph.node.add(name="b", device=CPU, compute_cost=7)  # as TensorFlow writes it
        graph.node.add(name="x", device=CPU, compute_cost=99, inaccurate=True)
        graph.node.add(name="c", device=CPU)
        model = CostModel(graph)
        assert model.time_estimate(nodes["a"], "GPU") == 30
        assert model.find("a").max_micros == 50
        assert model.size_estimate("a", 0) == 80
        assert model.time_estimate(nodes["b"]) == 7
        assert len(model) == 2

    def test_metadata_counts_once(self, nodes: dict[str, Node]) -> None:
        metadata = proto.RunMetadata(step_stats=step(run_of("a", 10)))
        metadata.cost_graph.node.add(name="a", device=CPU, compute_cost=10)
        assert CostModel(metadata).find("a").count == 1
        metadata.ClearField("step_stats")
        assert CostModel(metadata).time_estimate(nodes["a"]) == 10

    async def test_traced_run_teaches_the_model(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("a", "Neg", "x", T=dtypes.float32)
        metadata = aexec.RunMetadata()
        async with aexec.Session(g.graph()) as session:
            options = aexec.RunOptions(trace=True)
            await session.run("a:0", {"x:0": [1.0, 2.0]}, options=options, metadata=metadata)
        model = CostModel(metadata.step_stats)
        assert model.find("a").count == 1
        assert model.find("a").max_micros > 0
        assert model.size_estimate("a", 0) == 8

    @pytest.mark.parametrize("costs", ["costs", proto.GraphDef(), None])
    def test_invalid_costs_are_refused(self, costs: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Costs are a CostModel, or a StepStats, RunMetadata or"):
            CostModel(costs)

    @pytest.mark.parametrize("wrong", [{"copy_micros": -1}, {"copy_gbps": 0}, {"memory_gbps": float("nan")}])
    def test_invalid_speeds_are_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="positive copy_gbps"):
            CostModel(**wrong)


def test_repr() -> None:
    assert repr(CostModel(step(run_of("a", 1)))) == "<CostModel of 1 nodes>"
