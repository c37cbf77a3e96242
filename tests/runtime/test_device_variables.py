"""Variables on devices: updates happen there, in the stream's order, completely or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.simulated_device import SimulatedDevice, simulated_devices
from aexec.framework.types import DEVICE_GPU
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

pytestmark = pytest.mark.both_executors

F = aexec.float32
X = np.arange(3, dtype=np.float32)


@pytest.fixture(params=["SIM", "GPU"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device type; sessions have one device of it."""
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))
    return str(request.param)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes for which devices copied something to the host."""
    names: list[str] = []
    for device_class in (SimulatedDevice, CudaDevice):
        plain = device_class.copy_out

        def copy_out(self: Any, value: Any, *, node: str, _plain: Any = plain) -> Any:
            names.append(node)
            return _plain(self, value, node=node)

        monkeypatch.setattr(device_class, "copy_out", copy_out)
    return names


def session(graph: aexec.Graph, kind: str) -> aexec.Session:
    return aexec.Session(graph, config=aexec.SessionConfig(device_count={"SIM": 0, "GPU": 0, kind: 1}))


def variables(kind: str) -> aexec.Graph:
    """A variable of each sort on a device, with what is done to it, and a placeholder `x` of its shape."""
    with aexec.Graph() as graph, aexec.device(f"/device:{kind}:0"):
        x = aexec.placeholder(F, [3], name="x")
        handle = ops.var_handle_op(dtype=F, shape=[3], shared_name="r", name="r")
        ops.assign_variable_op(handle, x, name="r/assign")
        ops.assign_add_variable_op(handle, ops.exp(x, name="exp"), name="r/add")
        ops.read_variable_op(handle, dtype=F, name="r/read")
        cell = ops.variable_v2(shape=[3], dtype=F, name="v")
        ops.assign(cell, x, name="v/assign")
        ops.assign_add(cell, ops.exp(x, name="exp2"), name="v/add")
        ops.identity(cell, name="v/read")
        ops.is_variable_initialized(cell, name="v/is_initialized")
        ops.neg(cell, name="v/neg")
    return graph


@pytest.mark.parametrize("name", ["r", "v"])
async def test_read_value_does_not_change_with_an_update(kind: str, name: str) -> None:
    graph = variables(kind)
    with graph, aexec.device(f"/device:{kind}:0"):
        before = ops.add_v2(graph.tensor(f"{name}/read:0"), ops.zeros_like(graph.tensor("x:0")), name="before")
        with aexec.control_dependencies([before]):
            update = (
                ops.assign_add_variable_op(graph.tensor("r:0"), graph.tensor("x:0"))
                if name == "r"
                else ops.assign_add(graph.tensor("v:0"), graph.tensor("x:0"))
            )
        with aexec.control_dependencies([update]):
            after = ops.read_variable_op(graph.tensor("r:0"), dtype=F) if name == "r" else ops.neg(graph.tensor("v:0"))
            after = after if name == "r" else ops.neg(after)
    async with session(graph, kind) as s:
        await s.run([], {"x:0": X}, targets=[f"{name}/assign"])
        old, new = await s.run([before, after], {"x:0": X})
    assert old.tolist() == X.tolist()
    assert new.tolist() == (2 * X).tolist()


async def test_uninitialised_variable_is_named(kind: str) -> None:
    async with session(variables(kind), kind) as s:
        assert not await s.run("v/is_initialized:0")
        with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized value v"):
            await s.run("v/neg:0")
        with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized value v"):
            await s.run("v/add:0", {"x:0": X})
        with pytest.raises(errors.NotFoundError):
            await s.run([], {"x:0": X}, targets=["r/add"])


@pytest.mark.parametrize("name", ["r", "v"])
async def test_failed_update_changes_nothing(name: str) -> None:
    with simulated_devices() as devices:
        async with session(variables("SIM"), "SIM") as s:
            await s.run([], {"x:0": X}, targets=[f"{name}/assign"])
            for wrong in (f"{name}/add", "exp" if name == "r" else "exp2"):
                devices[0].faults.fail(node=wrong)
                with pytest.raises(errors.InternalError, match="a fault that was planned"):
                    await s.run([], {"x:0": X}, targets=[f"{name}/add"])
                assert (await s.run(f"{name}/read:0")).tolist() == X.tolist()
            devices[0].faults.run_out_of_memory(node=f"{name}/add")
            with pytest.raises(errors.ResourceExhaustedError):
                await s.run([], {"x:0": X}, targets=[f"{name}/add"])
            assert (await s.run(f"{name}/read:0")).tolist() == X.tolist()


@pytest.mark.parametrize("name", ["r", "v"])
async def test_withdrawn_update_changes_nothing(name: str) -> None:
    """The step is cancelled while the device computes what is to be added; the next step reads at once."""
    with simulated_devices() as devices:
        async with session(variables("SIM"), "SIM") as s:
            await s.run([], {"x:0": X}, targets=[f"{name}/assign"])
            with devices[0].faults.stall(node="exp" if name == "r" else "exp2") as stall:
                step = asyncio.create_task(s.run([], {"x:0": X}, targets=[f"{name}/add"]))
                await asyncio.to_thread(stall.reached.wait)
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                read = asyncio.create_task(s.run(f"{name}/read:0"))
                stall.release()
                assert (await read).tolist() == X.tolist()
            await s.run([], {"x:0": X}, targets=[f"{name}/add"])
            assert np.allclose(await s.run(f"{name}/read:0"), X + np.exp(X))


async def test_failed_first_assignment_leaves_the_variable_without_a_value() -> None:
    with simulated_devices() as devices:
        async with session(variables("SIM"), "SIM") as s:
            devices[0].faults.fail(node="r/assign")
            with pytest.raises(errors.InternalError, match="a fault that was planned"):
                await s.run([], {"x:0": X}, targets=["r/assign"])
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
                await s.run("r/read:0")
            await s.run([], {"x:0": X}, targets=["r/assign"])
            assert (await s.run("r/read:0")).tolist() == X.tolist()


def training(device: str) -> aexec.Graph:
    """Two layers, trained by Adam and momentum on what is fed."""
    random = np.random.default_rng(3)
    with aexec.Graph() as graph, aexec.device(device):
        x, y = aexec.placeholder(F, [None, 4], name="x"), aexec.placeholder(F, [None, 2], name="y")
        w = ops.variable_v2(shape=[4, 8], dtype=F, name="w")
        moment, squares = (ops.variable_v2(shape=[4, 8], dtype=F, name=name) for name in ("m", "s"))
        out = ops.var_handle_op(dtype=F, shape=[8, 2], shared_name="out", name="out")
        velocity = ops.var_handle_op(dtype=F, shape=[8, 2], shared_name="velocity", name="velocity")
        power = ops.variable_v2(shape=[], dtype=F, name="power")
        initial = [
            ops.assign(w, random.normal(size=(4, 8)).astype(np.float32)),
            *(ops.assign(slot, np.zeros((4, 8), np.float32)) for slot in (moment, squares)),
            ops.assign_variable_op(out, random.normal(size=(8, 2)).astype(np.float32)),
            ops.assign_variable_op(velocity, np.zeros((8, 2), np.float32)),
            ops.assign(power, np.float32(0.9)),
        ]
        with aexec.control_dependencies(initial):
            ops.no_op(name="init")
        hidden = ops.tanh(ops.mat_mul(x, w))
        weights = ops.read_variable_op(out, dtype=F)
        error = ops.sub(ops.mat_mul(hidden, weights), y)
        ops.mean(ops.square(error), np.array([0, 1], np.int32), name="loss")
        d_error = ops.mul(error, np.float32(0.1))
        d_out = ops.mat_mul(hidden, d_error, transpose_a=True)
        d_hidden = ops.tanh_grad(hidden, ops.mat_mul(d_error, weights, transpose_b=True))
        d_w = ops.mat_mul(x, d_hidden, transpose_a=True)
        rates = [np.float32(value) for value in (0.05, 0.9, 0.99, 1e-7)]
        adam = ops.apply_adam(w, moment, squares, power, np.float32(0.99), *rates, d_w)
        momentum = ops.resource_apply_momentum(out, velocity, np.float32(0.05), d_out, np.float32(0.9))
        with aexec.control_dependencies([adam]):
            decay = ops.assign(power, ops.mul(power, np.float32(0.9)))
        with aexec.control_dependencies([momentum, decay]):
            ops.no_op(name="train")
    return graph


async def losses(graph: aexec.Graph, kind: str) -> list[float]:
    random = np.random.default_rng(5)
    feeds = {"x:0": random.normal(size=(16, 4)), "y:0": random.normal(size=(16, 2))}
    async with session(graph, kind) as s:
        await s.run([], targets=["init"])
        return [float(await s.run("loss:0", feeds, targets=["train"])) for _ in range(8)]


async def test_training_on_a_device_copies_nothing_but_the_loss(kind: str, copied: list[str]) -> None:
    want = await losses(training("/device:CPU:0"), kind)
    assert not copied
    got = await losses(training(f"/device:{kind}:0"), kind)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert got[-1] < got[0]
    assert len(copied) == 8, copied


async def test_device_variables_are_listed_and_traced(kind: str) -> None:
    async with session(variables(kind), kind) as s:
        await s.run([], {"x:0": X}, targets=["r/assign", "v/assign"])
        listed = {resource.name: resource.debug for resource in s.resources.resources()}
        assert f"on /job:localhost/replica:0/task:0/device:{kind}:0" in listed["r"]
        metadata = aexec.RunMetadata()
        for fetch in ("v:0", "r/read:0"):
            got = await s.run(fetch, options=aexec.RunOptions(trace=True), metadata=metadata)
            assert got.tolist() == X.tolist()
