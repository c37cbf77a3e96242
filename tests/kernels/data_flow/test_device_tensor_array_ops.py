"""TensorArrays in a device's memory: as the host's, with nothing fetched between, and errors that name the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.devices import device_registry
from aexec.framework.types import DEVICE_GPU
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


@pytest.fixture(params=["SIM", "GPU"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "GPU":
        monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))
    return f"/device:{request.param}:0"


async def run(graph: aexec.Graph, device: str, fetches: Any, metadata: aexec.RunMetadata | None = None) -> Any:
    """What is fetched of a graph on a device, which is the only one that its nodes have to ask for."""
    config = aexec.SessionConfig(device_count={device[8:11]: 1}, allow_soft_placement=True, graph_passes=())
    options = aexec.RunOptions(output_partition_graphs=metadata is not None)
    async with aexec.Session(graph, config=config) as session:
        return await session.run(fetches, {"x:0": VALUES}, options=options, metadata=metadata)


def array_of(x: Any, size: int = 4, **attrs: Any) -> tuple[Any, Any]:
    """Handle and flow of an array with the rows of x."""
    handle, flow = ops.tensor_array_v3(size, dtype="float32", **attrs)
    return handle, ops.tensor_array_scatter_v3(handle, np.arange(4, dtype=np.int32), x, flow)


def looping(device: str) -> aexec.Graph:
    """Loops that read and write arrays, forwards and backwards."""
    with aexec.Graph() as graph, aexec.device(device):
        x = aexec.placeholder("float32", [4, 3], name="x")
        y = aexec.map_fn(lambda row: ops.tanh(row) * 2.0, x)
        ops.identity(y, name="y")
        (gradient,) = aexec.gradients([ops.sum(ops.square(y), [0, 1])], [x])
        ops.identity(gradient, name="gradient")
    return graph


async def test_loops_and_their_gradients_keep_their_elements_there(device: str) -> None:
    fetches = ["y:0", "gradient:0"]
    want = await run(looping("/cpu:0"), "/device:CPU:0", fetches)
    metadata = aexec.RunMetadata()
    got = await run(looping(device), device, fetches, metadata)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)
    by_device = {part.node[0].device[-5:]: part for part in metadata.partition_graphs}
    there = {node.op for node in by_device[device[8:]].node if node.op.startswith("TensorArray")}
    names = "Gather Grad Read Scatter Size Write"
    assert there == {"TensorArrayV3", *(f"TensorArray{name}V3" for name in names.split())}
    # The host keeps what loops count and decide by.
    writes = [node for node in by_device["CPU:0"].node if node.op == "TensorArrayWriteV3"]
    assert all(node.attr["T"].type in (aexec.int32.enum, aexec.bool_.enum) for node in writes)


async def test_parts_of_any_length_are_put_together_again(device: str) -> None:
    with aexec.Graph() as graph, aexec.device(device):
        x = aexec.placeholder("float32", [4, 3], name="x")
        handle, flow = ops.tensor_array_v3(2, dtype="float32")
        flow = ops.tensor_array_split_v3(handle, x, np.array([1, 3]), flow)
        joined, lengths = ops.tensor_array_concat_v3(handle, flow, dtype="float32")
        ops.identity(joined, name="joined")
        ops.identity(lengths, name="lengths")
        ops.identity(ops.tensor_array_size_v3(handle, flow), name="size")
    joined, lengths, size = await run(graph, device, ["joined:0", "lengths:0", "size:0"])
    assert (joined.tolist(), lengths.tolist(), size) == (VALUES.tolist(), [1, 3], 2)


async def test_gradients_are_added_up_and_what_is_not_written_is_zero(device: str) -> None:
    with aexec.Graph() as graph, aexec.device(device):
        x = aexec.placeholder("float32", [4, 3], name="x")
        handle, flow = array_of(x)
        gradients, flow = ops.tensor_array_grad_v3(handle, flow, source="gradients")
        for _ in range(2):
            flow = ops.tensor_array_write_v3(gradients, 1, ops.ones_like(x[0]), flow)
        values = ops.tensor_array_gather_v3(
            gradients, np.arange(4, dtype=np.int32), flow, dtype="float32", element_shape=[3]
        )
        shaped, flow = ops.tensor_array_grad_with_shape(handle, flow, [2], source="other")
        flow = ops.tensor_array_write_v3(shaped, 3, ops.ones_like(x[:2]), flow)
        with aexec.control_dependencies([values]):
            ops.identity(ops.tensor_array_read_v3(shaped, 3, flow, dtype="float32"), name="shaped")
        ops.identity(values, name="values")
    values, shaped = await run(graph, device, ["values:0", "shaped:0"])
    assert values.tolist() == [[0, 0, 0], [2, 2, 2], [0, 0, 0], [0, 0, 0]]
    assert shaped.shape == (2, 3)


async def test_error_names_the_node(device: str) -> None:
    def graph_of(make: Any, **attrs: Any) -> aexec.Graph:
        with aexec.Graph() as graph, aexec.device(device):
            x = aexec.placeholder("float32", [4, 3], name="x")
            handle, flow = array_of(x, **attrs)
            ops.identity(make(handle, flow, x), name="out")
        return graph

    def read(handle: Any, flow: Any, x: Any) -> Any:
        return ops.tensor_array_read_v3(handle, 4, flow, dtype="float32", name="wrong")

    def write(handle: Any, flow: Any, x: Any) -> Any:
        return ops.tensor_array_write_v3(handle, 0, x, flow, name="wrong")

    def closed(handle: Any, flow: Any, x: Any) -> Any:
        with aexec.control_dependencies([flow]):
            close = ops.tensor_array_close_v3(handle)
        with aexec.control_dependencies([close]):
            return ops.tensor_array_read_v3(handle, 0, flow, dtype="float32", name="wrong")

    for make, attrs, message in (
        (read, {}, "Tried to read from index 4 but array size is: 4"),
        (write, {}, "it has already been written to"),
        (closed, {}, "has already been closed"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message) as refused:
            await run(graph_of(make, **attrs), device, "out:0")
        assert refused.value.node == "wrong"


async def test_arrays_of_int32_are_the_hosts(device: str) -> None:
    with aexec.Graph() as graph, aexec.device(device):
        aexec.placeholder("float32", [4, 3], name="x")
        handle, flow = ops.tensor_array_v3(1, dtype="int32")
        flow = ops.tensor_array_write_v3(handle, 0, aexec.constant(7), flow)
        ops.identity(ops.tensor_array_read_v3(handle, 0, flow, dtype="int32"), name="out")
    assert await run(graph, device, "out:0") == 7
