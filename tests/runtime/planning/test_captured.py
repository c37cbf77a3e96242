"""Regions captured on a GPU: the same results as without, from memory of their own."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices import device_registry
from aexec.framework.types import DEVICE_GPU
from tests.support.stand_ins.fake_cupy import Graph, fake_cupy, gpu_factory
from tests.support.waiting import until

CAPTURED = aexec.SessionConfig(capture_graphs=True)


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_cupy()
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(module)))
    return module


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    graphs: list[Graph] = []
    launch = Graph.launch

    def note(self: Graph, stream: Any = None) -> None:
        graphs.append(self)
        launch(self, stream)

    monkeypatch.setattr(Graph, "launch", note)
    return graphs


def chain() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = y = aexec.placeholder("float32", [None], name="x")
        for _ in range(8):
            y = aexec.ops.add(aexec.ops.tanh(y), x)
        aexec.ops.mul(y, 2.0, name="y")
    return graph


def expected(x: Any) -> Any:
    y = x
    for _ in range(8):
        y = np.tanh(y) + x
    return y * np.float32(2)


async def test_region_is_captured_once_per_shape(launched: list[Graph], cupy: Any) -> None:
    async with aexec.Session(chain(), config=CAPTURED) as session:
        for x in ([1, 2], [3, 4], [5, 6, 7], [0, 1]):
            fed = np.array(x, np.float32)
            np.testing.assert_allclose(await session.run("y:0", {"x:0": fed}), expected(fed), rtol=1e-6)
    assert [launched.index(graph) for graph in launched] == [0, 0, 2, 0]
    cupy.gpus.checker.check()


async def test_parts_of_complex_numbers_are_written_at_each_launch(launched: list[Graph]) -> None:
    with aexec.Graph() as graph:
        x = y = aexec.placeholder("float32", [None], name="x")
        for _ in range(8):
            y = aexec.ops.tanh(y)
        aexec.ops.complex(y, x, name="y")
    async with aexec.Session(graph, config=CAPTURED) as session:
        for x in ([1, 2], [3, 4]):
            got = await session.run("y:0", {"x:0": np.array(x, np.float32)})
            assert got.imag.tolist() == x
    assert len(launched) == 2


async def test_region_is_one_row_of_a_trace(launched: list[Graph]) -> None:
    metadata = aexec.RunMetadata()
    async with aexec.Session(chain(), config=CAPTURED) as session:
        for _ in range(2):
            metadata = aexec.RunMetadata()
            await session.run("y:0", {"x:0": [1.0]}, options=aexec.RunOptions(trace=True), metadata=metadata)
    events = metadata.chrome_trace()["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    (region,) = [e for e in events if e["ph"] == "X" and e["name"] == "_CapturedRegion"]
    assert rows[region["pid"], region["tid"]] == "aexec-GPU:0 compute stream"
    assert region["args"]["name"] == "y/captured"
    assert sum("(Tanh)" in str(value) for value in region["args"].values()) == 8


async def test_fetched_output_of_a_recording_is_not_overwritten(launched: list[Graph]) -> None:
    there = {"y:0": "/device:GPU:0"}
    async with aexec.Session(chain(), config=CAPTURED) as session:
        one = await session.run("y:0", {"x:0": np.float32([1, 2])}, fetch_devices=there)
        await session.run("y:0", {"x:0": np.float32([3, 4])}, fetch_devices=there)
        np.testing.assert_allclose(one.get(), expected(np.float32([1, 2])), rtol=1e-6)
    assert len(launched) == 2


@pytest.mark.parametrize("call", ["looks", "brings"])
async def test_nodes_that_cannot_be_captured_run_by_themselves(
    call: str, launched: list[Graph], cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tanh = cupy.tanh

    def uncaptured(x: Any, *more: Any, **named: Any) -> Any:
        return tanh(x if call == "looks" and bool(x[0]) else x + cupy.asarray(np.zeros(2, "float32")), *more, **named)

    monkeypatch.setattr(cupy, "tanh", uncaptured)
    with caplog.at_level(logging.WARNING, "aexec"):
        async with aexec.Session(chain(), config=CAPTURED) as session:
            for x in ([1, 2], [3, 4]):
                fed = np.array(x, np.float32)
                np.testing.assert_allclose(await session.run("y:0", {"x:0": fed}), expected(fed), rtol=1e-6)
    assert not launched
    assert len(caplog.records) == 1
    assert "is captured without its nodes of op tanh, which run: {{node tanh" in caplog.text.lower()


def doubtful(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> aexec.Graph:
    """A chain with one node that reads values on the host."""
    sin = cupy.sin
    monkeypatch.setattr(cupy, "sin", lambda x, *more, **named: sin(x, *more, **named) if bool(x[0]) else x)
    with aexec.Graph() as graph:
        x = y = aexec.placeholder("float32", [None], name="x")
        for _ in range(4):
            y = aexec.ops.add(aexec.ops.tanh(y), 1.0)
        y = aexec.ops.sin(y, name="looks")
        for _ in range(4):
            y = aexec.ops.add(aexec.ops.tanh(y), x)
        aexec.ops.mul(y, 2.0, name="y")
    return graph


def doubtful_answer(x: Any) -> Any:
    y = x
    for _ in range(4):
        y = np.tanh(y) + np.float32(1)
    y = np.sin(y)
    for _ in range(4):
        y = np.tanh(y) + x
    return y * np.float32(2)


async def test_neighbours_of_a_refused_node_are_captured_apart(
    launched: list[Graph], cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aexec.Session(doubtful(cupy, monkeypatch), config=CAPTURED) as session:
        for x in ([1, 2], [3, 4], [5, 6, 7]):
            fed = np.array(x, np.float32)
            np.testing.assert_allclose(await session.run("y:0", {"x:0": fed}), doubtful_answer(fed), rtol=1e-5)
        (report,) = await session.captured_regions(session.make_callable("y:0", ["x:0"]))
    # Two graphs for each shape, one before the node and one after it.
    assert [launched.index(graph) for graph in launched] == [0, 1, 0, 1, 4, 5]
    assert list(report.refused) == ["looks"]
    assert report.refused["looks"].startswith("{{node looks}}")
    assert (report.device[-5:], report.recordings) == ("GPU:0", 4)
    assert report.ops == {"Tanh": 8, "Add": 8, "Sin": 1, "Mul": 1}
    cupy.gpus.checker.check()


async def test_four_recordings_are_kept(launched: list[Graph]) -> None:
    async with aexec.Session(chain(), config=CAPTURED) as session:
        for size in (1, 2, 3, 4, 5, 2, 1):
            fed = np.ones(size, np.float32)
            np.testing.assert_allclose(await session.run("y:0", {"x:0": fed}), expected(fed), rtol=1e-6)
        (report,) = await session.captured_regions(session.make_callable("y:0", ["x:0"]))
    # The one for a single element had gone, as it was not used for longest; that for two was still there.
    assert [launched.index(graph) for graph in launched] == [0, 1, 2, 3, 4, 1, 6]
    assert report.recordings == 4
    assert not report.refused


@pytest.mark.parametrize("arrays", [3, 4])  # too few to make a recording, and to replay it
async def test_nodes_run_by_themselves_without_memory_for_a_recording(arrays: int) -> None:
    size = 1 << 20
    config = aexec.SessionConfig(capture_graphs=True, memory_limits={"GPU": (4 * arrays + 1) * size})
    async with aexec.Session(chain(), config=config) as session:
        fed = np.ones(size, np.float32)
        for _ in range(2):
            np.testing.assert_allclose(await session.run("y:0", {"x:0": fed}), expected(fed), rtol=1e-6)
        (report,) = await session.captured_regions(session.make_callable("y:0", ["x:0"]))
    assert report.recordings == 0
    (reason,) = report.refused.values()
    assert "ut of memory allocating" in reason


async def test_cancelled_step_leaves_its_recording_to_the_next(launched: list[Graph], cupy: Any) -> None:
    fed = {"x:0": np.float32([1, 2])}
    async with aexec.Session(chain(), config=CAPTURED) as session:
        await session.run("y:0", fed)
        held = [stream for stream in cupy.gpus.streams if not stream.name.startswith("the null")]
        for stream in held:
            stream.hold()
        step = session.start("y:0", fed)
        await until(lambda: len(launched) == 2)
        step.cancel()
        with pytest.raises(aexec.errors.CancelledError):
            await step
        for stream in held:
            stream.release()
        np.testing.assert_allclose(await session.run("y:0", fed), expected(fed["x:0"]), rtol=1e-6)
    cupy.gpus.checker.check()


def test_capture_graphs_is_refused_without_a_capturing_device() -> None:
    config = aexec.SessionConfig(capture_graphs=True, device_count={"GPU": 0})
    with pytest.raises(aexec.errors.InvalidArgumentError, match=r"none of .*CPU:0 captures graphs"):
        aexec.Session(chain(), config=config)
