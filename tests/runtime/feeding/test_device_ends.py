"""Feeds and fetches in the memory of devices: no needless copy through the host, and no shared memory by surprise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.simulated_device import SimulatedArray, SimulatedDevice
from aexec.framework import errors
from aexec.framework.types import DEVICE_GPU
from aexec.framework.waiting.inline_call import check_inline
from aexec.runtime.feeding import feeds
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory
from tests.support.stand_ins.strict_arrays import StrictArray

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
SIM = "/device:SIM:0"


class Copies:
    """Records copies between host and devices."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        self.made: list[str] = []
        for name in ("copy_in", "copy_out", "copy_across"):
            self._count(monkeypatch, kind, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        plain = getattr(kind, name)

        def counted(device: Any, *arguments: Any, node: str) -> Any:
            self.made.append(name)
            return plain(device, *arguments, node=node)

        monkeypatch.setattr(kind, name, counted)


@pytest.fixture
def cupy() -> Iterator[Any]:
    """A stand-in for CuPy, whose GPU is that of sessions."""
    module = fake_cupy()
    before = device_registry._factories.pop("GPU")
    device_registry.register_device_factory("GPU", gpu_factory(module), priority=DEVICE_GPU.priority)
    yield module
    device_registry.unregister_device_factory("GPU")
    device_registry._factories["GPU"] = before


def graph_on(device: str) -> aexec.Graph:
    """`y = 2 x` on a device, `z = y + 1` on the host, `s` a text."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        with aexec.device(device):
            y = aexec.ops.mul(x, 2.0, name="y")
        with aexec.device("/device:CPU:0"):
            aexec.ops.add(y, 1.0, name="z")
            aexec.ops.neg(x, name="host")
            aexec.ops.identity(aexec.constant(b"text"), name="s")
    return graph


def sim_session(count: int = 1) -> aexec.Session:
    return aexec.Session(graph_on("/device:SIM:0"), config=aexec.SessionConfig(device_count={"SIM": count, "GPU": 0}))


def values(array: Any) -> Any:
    return array.get()


async def out(session: aexec.Session, value: Any) -> Any:
    device = next(d for d in session.devices() if d.holds(value))
    return await asyncio.wrap_future(device.copy_out(value, node="test"))


# On a simulated device


async def test_value_fetched_to_a_device_is_fed_there_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sim_session() as session:
        y = await session.run("y:0", {"x:0": np.float32([1, 2])}, fetch_devices={"y:0": "/device:SIM:0"})
        assert isinstance(y, SimulatedArray)
        copies = Copies(monkeypatch, SimulatedDevice)
        again = await session.run("y:0", {"x:0": y}, fetch_devices={"y:0": "/device:SIM:0"})
        assert copies.made == []
        np.testing.assert_array_equal(await out(session, again), [4, 8])


async def test_value_needed_on_another_device_is_copied_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sim_session(2) as session:
        y = await session.run("y:0", {"x:0": np.float32([1, 2])}, fetch_devices={"y:0": "/device:SIM:0"})
        copies = Copies(monkeypatch, SimulatedDevice)
        host = await session.run("host:0", {"x:0": y})
        np.testing.assert_array_equal(host, [-2, -4])
        assert copies.made == ["copy_out"]
        copies.made.clear()
        y1 = await session.run("y:0", {"x:0": y}, fetch_devices={"y:0": "/device:SIM:1"})
        assert copies.made == ["copy_across"]
        copies.made.clear()
        np.testing.assert_array_equal(await session.run("y:0", {"x:0": y1}), [8, 16])
        assert copies.made == ["copy_across", "copy_out"]


async def test_fetches_of_one_run_may_be_in_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sim_session() as session:
        fetches = {"twice": ["y:0", "z:0"], "x": "x:0"}
        got = await session.run(fetches, {"x:0": np.float32([1])}, fetch_devices=dict.fromkeys(("y:0", "x:0"), SIM))
        np.testing.assert_array_equal(got["twice"][1], [3])
        np.testing.assert_array_equal(await out(session, got["twice"][0]), [2])
        np.testing.assert_array_equal(await out(session, got["x"]), [1])
        back = await session.run(["x:0", "y:0"], {"x:0": got["x"]})
        np.testing.assert_array_equal(back, [[1], [2]])


async def test_constants_variables_and_values_of_the_host_can_be_fetched_to_a_device() -> None:
    with aexec.Graph() as graph:
        with aexec.device("/device:SIM:0"):
            aexec.constant(np.float32([5, 6]), name="c")
            aexec.constant(np.int32([5, 6]), name="integers")
            variable = aexec.ops.var_handle_op(dtype=aexec.float32, shape=[2], name="v")
            aexec.ops.assign_variable_op(variable, aexec.constant(np.float32([7, 8])), name="assign")
            aexec.ops.read_variable_op(variable, dtype=aexec.float32, name="read")
        with aexec.device("/device:CPU:0"):
            aexec.ops.neg(aexec.constant(np.float32([1, 2])), name="neg")
            aexec.ops.shape(aexec.constant(np.zeros((2, 3), np.float32)), name="shape")
    async with aexec.Session(graph, config=aexec.SessionConfig(device_count={"SIM": 1})) as session:
        await session.run([], targets=["assign"])
        for name, want in {
            "c:0": [5, 6],
            "integers:0": [5, 6],
            "read:0": [7, 8],
            "neg:0": [-1, -2],
            "shape:0": [2, 3],
        }.items():
            got = await session.run(name, fetch_devices={name: "/device:SIM:0"})
            np.testing.assert_array_equal(await out(session, got), want)


async def test_callable_takes_devices_of_feeds_and_fetches() -> None:
    async with sim_session() as session:
        call = session.make_callable(
            ["y:0", "z:0"], ["x:0"], feed_devices={"x:0": "/device:SIM:0"}, fetch_devices={"y:0": "/device:SIM:0"}
        )
        x = await session.run("y:0", {"x:0": np.float32([1])}, fetch_devices={"y:0": "/device:SIM:0"})
        for _ in range(2):
            y, z = await call(x)
            np.testing.assert_array_equal(await out(session, y), [4])
            np.testing.assert_array_equal(z, [5])
        step = call.start(x)
        await step
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await call(np.float32([1]))
        assert caught.value.message == (
            "Expected the value fed for x:0 in the memory of /job:localhost/replica:0/task:0/device:SIM:0, "
            "got ndarray which is not there"
        )


async def test_callable_options_name_devices_of_feeds_and_fetches() -> None:
    async with sim_session() as session:
        options = aexec.proto.CallableOptions(
            feed=["x:0"], fetch=["y:0"], target=["host"], fetch_devices={"y:0": SIM}, fetch_skip_sync=True
        )
        (y,) = await session.make_callable(options)([1.0])
        np.testing.assert_array_equal(await out(session, y), [2])
        options.fetch_skip_sync = False
        with pytest.raises(errors.UnimplementedError, match=r"fetch_skip_sync = false is not implemented"):
            session.make_callable(options)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        (
            {"feed_devices": {"x:0": "/device:SIM:7"}},
            errors.InvalidArgumentError,
            "Device '/device:SIM:7' specified for tensor 'x:0' in CallableOptions does not exist; there are /job:",
        ),
        (
            {"fetch_devices": {"y:0": "over there"}},
            errors.InvalidArgumentError,
            "Invalid device name ('over there') provided for the tensor 'y:0' in CallableOptions",
        ),
        (
            {"fetch_devices": {"z:0": "/device:SIM:0"}},
            errors.InvalidArgumentError,
            "Tensor z:0, specified in either feed_devices or fetch_devices, is not fed or fetched: expected one of y:0",
        ),
        (
            {"fetch_devices": {"s:0": "/device:SIM:0"}},
            errors.UnimplementedError,
            "Cannot feed or fetch tensor 's:0' from device /job:localhost/replica:0/task:0/device:SIM:0 as "
            "feeding/fetching from SIM devices is not supported for string tensors: they are in host memory",
        ),
    ],
)
async def test_impossible_devices_are_refused_by_name(keywords: Any, error: type[Exception], message: str) -> None:
    async with sim_session() as session:
        with pytest.raises(error) as caught:
            session.make_callable(["y:0", "s:0"], ["x:0"], **keywords)
        assert str(caught.value).startswith(message)


async def test_host_is_named_like_any_device() -> None:
    async with sim_session() as session:
        cpu = "/device:CPU:0"
        call = session.make_callable("y:0", ["x:0"], feed_devices={"x:0": cpu}, fetch_devices={"y:0": cpu})
        np.testing.assert_array_equal(await call([1.0]), [2])


async def test_wrong_types_and_shapes_are_refused(cupy: Any) -> None:
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("y:0", {"x:0": StrictArray(np.zeros(2))})
        assert caught.value.message == (
            f"Expects arg[0] to be float but float64 is provided (feed x:0): values on {GPU} are not converted"
        )
        with pytest.raises(errors.InvalidArgumentError, match=r"Cannot feed value of shape \(2, 1\) for Tensor x:0"):
            await session.run("y:0", {"x:0": StrictArray(np.zeros((2, 1), np.float32))})


async def test_feed_on_a_device_that_the_session_lacks_is_refused() -> None:
    async with aexec.Session(graph_on("/device:CPU:0")) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("y:0", {"x:0": StrictArray(np.zeros(2, np.float32))})
        assert caught.value.message == (
            "The value fed for x:0, of type StrictArray, is in the memory of a device (DLPack's type 2, number 0) "
            "from which it cannot be fed here: expected an array in host memory"
        )


# On a GPU, whose place is taken


async def test_feed_of_a_registered_type_is_taken_where_its_array_is(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Batch:
        def __init__(self, array: Any) -> None:
            self.array = array

    patterns = type(feeds._converters)()
    monkeypatch.setattr(feeds, "_converters", patterns)
    patterns.register(Batch, lambda batch: batch.array)
    patterns.register(lambda value: type(value) is Batch and batch_is_slow(value.array), slow)
    copies = Copies(monkeypatch, CudaDevice)
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        batch = Batch(StrictArray(np.float32([1, 2])))
        await session.run("y:0", {"x:0": batch}, fetch_devices={"y:0": "/device:GPU:0"})
        copies.made.clear()
        y = await session.run("y:0", {"x:0": batch}, fetch_devices={"y:0": "/device:GPU:0"})
        assert copies.made == [] and values(y).tolist() == [2, 4]
        assert (await session.run("y:0", {"x:0": Batch(np.float32([3]))})).tolist() == [6]


def batch_is_slow(array: Any) -> bool:
    return type(array) is np.ndarray


def slow(batch: Any) -> Any:
    check_inline(1e9)
    return batch.array


async def test_arrays_of_a_gpu_are_fed_and_fetched_there(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch, CudaDevice)
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        x = StrictArray(np.float32([1, 2]))
        await session.run("y:0", {"x:0": x}, fetch_devices={"y:0": "/device:GPU:0"})
        copies.made.clear()  # of the constant, once
        y = await session.run("y:0", {"x:0": x}, fetch_devices={"y:0": "/device:GPU:0"})
        assert copies.made == []
        np.testing.assert_array_equal(values(y), [2, 4])
        np.testing.assert_array_equal(values(x), [1, 2])
        np.testing.assert_array_equal(await session.run("z:0", {"x:0": y}), [5, 9])
        assert copies.made == ["copy_out"]


async def test_fetched_device_array_belongs_to_the_caller(cupy: Any) -> None:
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        x = aexec.placeholder("float32", [2], name="x")
        aexec.ops.identity(x, name="same")
        aexec.ops.reshape(x, [2, 1], name="view")
        aexec.constant(np.float32([5, 6]), name="c")
    async with aexec.Session(graph) as session:
        mine = StrictArray(np.float32([1, 2]))
        for name in ("same:0", "view:0", "c:0"):
            got = await session.run(name, {"x:0": mine}, fetch_devices={name: "/device:GPU:0"})
            got.fill(9)
            again = await session.run(name, {"x:0": mine}, fetch_devices={name: "/device:GPU:0"})
            np.testing.assert_array_equal(values(again).ravel(), [5, 6] if name == "c:0" else [1, 2])
        np.testing.assert_array_equal(values(mine), [1, 2])


async def test_streams_wait_for_one_another_and_the_host_for_none(cupy: Any) -> None:
    """Users of a feed wait for the user's stream, which waits for the fetched values."""
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        call = session.make_callable(
            "y:0", ["x:0"], feed_devices={"x:0": GPU}, fetch_devices={"y:0": GPU}, fetch_skip_sync=True
        )
        x = StrictArray(np.float32([1]))
        await call(x)
        stream = cupy.cuda.Stream()
        gpu = session.devices()[0]
        assert isinstance(gpu, CudaDevice)
        compute = gpu.streams.compute
        compute.hold()  # nothing on it passes
        try:
            before = len(stream.waited_for), len(compute.waited_for)
            with stream:
                y = await call(x)
            assert len(stream.waited_for) == before[0] + 1
            assert not stream.waited_for[-1].done, "what computes it"
            assert len(compute.waited_for) == before[1] + 1
        finally:
            compute.release()
        np.testing.assert_array_equal(values(y), [2])


async def test_array_lent_to_a_users_stream_is_kept_until_the_stream_has_used_it(cupy: Any) -> None:
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        stream = cupy.cuda.Stream()
        stream.hold()
        gpu = session.devices()[0]
        assert isinstance(gpu, CudaDevice)
        with stream:
            await session.run("y:0", {"x:0": [1.0]}, fetch_devices={"y:0": GPU})
        await gpu.synchronise()
        assert len(gpu._exchange._lent) == 1
        stream.release()
        await session.run("y:0", {"x:0": [1.0]})
        await gpu.synchronise()
        assert not gpu._exchange._lent


async def test_failing_kernel_fails_the_step_that_skips_the_sync(cupy: Any) -> None:
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.add(x, aexec.placeholder("float32", [None], name="other"), name="y")
    async with aexec.Session(graph) as session:
        for skip in (False, True):
            call = session.make_callable("y:0", ["x:0", "other:0"], fetch_devices={"y:0": GPU}, fetch_skip_sync=skip)
            with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
                await call(StrictArray(np.zeros(2, np.float32)), StrictArray(np.zeros(3, np.float32)))
            got = await call(StrictArray(np.ones(2, np.float32)), StrictArray(np.ones(2, np.float32)))
            np.testing.assert_array_equal(values(got), [2, 2])


class Exported:
    """An array of another library, by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        place: tuple[int, int] = self.array.__dlpack_device__()
        return place

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        if isinstance(self.array, StrictArray):
            assert stream is not None, "whose stream it will be used on"
            return self.array
        if self.array.dtype == np.float16:
            raise BufferError("not this one")
        return self.array.__dlpack__()


async def test_arrays_of_other_libraries_are_fed(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch, CudaDevice)
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        there = Exported(StrictArray(np.float32([1, 2])))
        here = Exported(np.float32([1, 2]))
        for value in (there, here, there):
            copies.made.clear()
            np.testing.assert_array_equal(await session.run("y:0", {"x:0": value}), [2, 4])
        assert copies.made == ["copy_out"], "of the result"
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("y:0", {"x:0": Exported(np.float16([1]))})
        assert caught.value.message == (
            "The value fed for x:0, of type Exported, cannot be taken by DLPack: not this one"
        )


async def test_partition_graphs_show_where_values_enter_and_leave(cupy: Any) -> None:
    async with aexec.Session(graph_on("/device:GPU:0")) as session:
        metadata = aexec.RunMetadata()
        await session.run(
            ["z:0", "y:0"],
            {"x:0": StrictArray(np.float32([1]))},
            fetch_devices={"y:0": GPU},
            options=aexec.RunOptions(output_partition_graphs=True),
            metadata=metadata,
        )
        ops = {part.node[0].device[-5:]: sorted(node.op for node in part.node) for part in metadata.partition_graphs}
        assert ops["GPU:0"] == ["Const", "Mul", "_Arg", "_Retval", "_Send"]
        assert ops["CPU:0"] == ["Add", "Const", "_Recv", "_Retval"]
