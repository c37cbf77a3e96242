"""Tensors that a session keeps under handles: made by graphs, fed to graphs, listed and deleted from Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.resource_manager import ResourceHandle
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

pytestmark = pytest.mark.both_executors

F = dtypes.float32
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def graph() -> aexec.Graph:
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("name", dtypes.string)
    g("double", "AddV2", "x", "x", T=F)
    g("h", "GetSessionHandle", "double", T=F)
    g("h2", "GetSessionHandleV2", "double", T=F)
    g("get", "GetSessionTensor", "name", dtype=F)
    g("get_int", "GetSessionTensor", "name", dtype=dtypes.int32)
    g("delete", "DeleteSessionTensor", "name")
    g("square", "Square", "x", T=F)
    return g.graph()


async def test_fetched_handle_keeps_its_tensor() -> None:
    async with aexec.Session(graph()) as session:
        handle = await session.run("h:0", {"x:0": [1, 2]})
        assert handle == f"h;0;{CPU}".encode()
        assert (await session.run("get:0", {"name:0": handle})).tolist() == [2, 4]
        assert [dataclasses.astuple(info) for info in session.tensors.list()] == [(handle.decode(), F, (2,), 8)]
        await session.run([], {"name:0": handle}, targets=["delete"])
        assert len(session.tensors) == session.tensors.num_bytes == 0
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            await session.run("get:0", {"name:0": handle})
        with pytest.raises(errors.InvalidArgumentError, match="Failed to delete a tensor with handle"):
            await session.run([], {"name:0": handle}, targets=["delete"])


async def test_unfetched_handle_keeps_nothing() -> None:
    async with aexec.Session(graph()) as session:
        await session.run([], {"x:0": [1]}, targets=["h", "h2"])
        assert len(session.tensors) == 0
        assert await session.run("h:0", {"x:0": [1]}) == f"h;2;{CPU}".encode()


async def test_failed_step_keeps_no_tensor() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("h", "GetSessionHandle", "x", T=F)
    g("fail", "TestFail", "x", "^h", T=F)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError):
            await session.run(["h:0", "fail:0"], {"x:0": [1]})
        assert len(session.tensors) == 0


async def test_resource_handles_are_fed_in_place_of_their_tensors() -> None:
    async with aexec.Session(graph()) as session:
        handle = await session.run("h2:0", {"x:0": [1, 2]})
        assert isinstance(handle, ResourceHandle)
        assert (handle.name, handle.type_name) == (f"h2;0;{CPU}", "TensorHandle")
        assert (await session.run("square:0", {"x:0": handle})).tolist() == [4, 16]
        boxed = np.empty((), object)
        boxed[()] = handle
        assert (await session.run("square:0", {"x:0": boxed})).tolist() == [4, 16]
        session.tensors.delete(handle)
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            await session.run("square:0", {"x:0": handle})
        with pytest.raises(errors.InvalidArgumentError):
            await session.run("square:0", {"x:0": ResourceHandle(name="v", type_name="Var")})


async def test_handles_are_fed_as_tensorflows_client_feeds_them() -> None:
    """The client's handles have the container `TensorHandle` and no type; it feeds them as an array of the message."""
    async with aexec.Session(graph()) as session:
        text = (await session.run("h:0", {"x:0": [1, 2]})).decode()
        message = proto.ResourceHandleProto(device=CPU, container="TensorHandle", name=text)
        array = np.frombuffer(message.SerializeToString(), np.dtype([("resource", np.ubyte)]))
        for handle in (ResourceHandle.from_proto(message), array):
            assert (await session.run("square:0", {"x:0": handle})).tolist() == [4, 16]
        session.tensors.delete(text)
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            await session.run("square:0", {"x:0": array})
        other = np.frombuffer(b"\xff" * 8, array.dtype)
        with pytest.raises(errors.InvalidArgumentError, match="ResourceHandleProto"):
            await session.run("square:0", {"x:0": other})


async def test_errors() -> None:
    async with aexec.Session(graph()) as session:
        handle = await session.run("h:0", {"x:0": [1, 2]})
        with pytest.raises(
            errors.InvalidArgumentError, match="Output 0 of type float does not match declared output type int32"
        ):
            await session.run("get_int:0", {"name:0": handle})
        with pytest.raises(errors.InvalidArgumentError, match="handle must be scalar"):
            await session.run("get:0", {"name:0": [handle, handle]})
        integers = await session.tensors.put([1, 2])
        with pytest.raises(errors.InvalidArgumentError, match="to be float but int64 is provided"):
            await session.run("square:0", {"x:0": integers})


async def test_tensors_are_kept_from_python() -> None:
    async with aexec.Session(graph()) as session:
        mine = np.array([1, 2], np.float32)
        handle = await session.tensors.put(mine, "mine")
        mine[0] = 99
        assert handle.name == f"mine;0;{CPU}"
        assert (await session.run("square:0", {"x:0": handle})).tolist() == [1, 4]
        assert (await session.run("get:0", {"name:0": handle.name})).tolist() == [1, 2]
        for key in (handle, handle.name, handle.name.encode()):
            got = session.tensors.get(key)
            with pytest.raises(ValueError, match="read-only"):
                got[0] = 5
        assert session.tensors.get(await session.tensors.put(["é", "b"])).tolist() == ["é".encode(), b"b"]
        assert repr(session.tensors) == f"<SessionTensors 2 tensors, {session.tensors.num_bytes} bytes>"
        with pytest.raises(errors.InvalidArgumentError, match="';'"):
            await session.tensors.put(1, "a;b")
        with pytest.raises(errors.InvalidArgumentError, match="no TensorFlow counterpart"):
            await session.tensors.put(np.array("2020", "M8[D]"))
        with pytest.raises(errors.InvalidArgumentError, match="Failed to delete"):
            session.tensors.delete("nothing")
    assert len(session.tensors) == 0


async def test_kept_tensor_cannot_be_changed_through_results() -> None:
    async with aexec.Session(graph()) as session:
        handle, double = await session.run(["h:0", "double:0"], {"x:0": [1, 2]})
        double[0] = 99
        assert session.tensors.get(handle).tolist() == [2, 4]


async def test_large_tensor_is_copied_in_a_thread() -> None:
    big = np.ones(1 << 20, np.float32)
    async with aexec.Session(graph()) as session:
        handle, double = await session.run(["h:0", "double:0"], {"x:0": big})
        before = session.statistics().pool.submitted
        double[:] = 0
        assert (session.tensors.get(handle) == 2).all()
        await session.run(["h:0", "double:0"], {"x:0": big})
        assert session.statistics().pool.submitted > before


async def test_session_tensor_bytes_bounds_the_tensors() -> None:
    config = aexec.SessionConfig(session_tensor_bytes=10)
    async with aexec.Session(graph(), config=config) as session:
        await session.run("h:0", {"x:0": [1, 2]})
        with pytest.raises(errors.ResourceExhaustedError, match="would exceed the 10"):
            await session.run("h:0", {"x:0": [1, 2]})
        with pytest.raises(errors.ResourceExhaustedError):
            await session.tensors.put(np.zeros(3, np.int8))
        assert session.tensors.num_bytes == 8
    with pytest.raises(errors.InvalidArgumentError, match="must not be negative"):
        aexec.SessionConfig(session_tensor_bytes=-1)


async def test_node_in_a_loop_has_one_handle_per_step() -> None:
    g = GraphBuilder()
    int32 = dtypes.int32
    g.const("zero", 0, int32)
    g.const("n", 3, int32)
    g.const("one", 1, int32)
    frame: dict[str, Any] = {"frame_name": b"loop", "T": int32}
    g("enter", "Enter", "zero", **frame)
    g("enter_n", "Enter", "n", is_constant=True, **frame)
    g("enter_one", "Enter", "one", is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", T=int32, N=2)
    g("less", "Less", "merge", "enter_n", T=int32)
    g("cond", "LoopCond", "less")
    g("switch", "Switch", "merge", "cond", T=int32)
    g("handle", "GetSessionHandle", "switch:1", T=int32)
    g("add", "AddV2", "switch:1", "enter_one", "^handle", T=int32)
    g("next", "NextIteration", "add", T=int32)
    g("result", "Exit", "switch", T=int32)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="Failed to add a tensor with name 'handle'"):
            await session.run("result:0")


class TestSharing:
    def counter(self, container: bytes) -> aexec.Graph:
        g = GraphBuilder()
        g.const("one", np.float32(1))
        g("v", "VarHandleOp", dtype=F, shape=PartialTensorShape([]), shared_name=b"v", container=container)
        g("set", "AssignVariableOp", "v", "one", dtype=F)
        g("add", "AssignAddVariableOp", "v", "one", dtype=F)
        g("read", "ReadVariableOp", "v", dtype=F)
        return g.graph()

    async def test_sessions_share_the_containers_that_both_name(self) -> None:
        config = aexec.SessionConfig(share=["both"])
        for container, shared in [(b"both", True), (b"own", False)]:
            async with aexec.Session(self.counter(container), config=config) as one:
                async with aexec.Session(self.counter(container), config=config) as two:
                    await one.run([], targets=["set"])
                    if shared:
                        await two.run([], targets=["add"])
                        assert await one.run("read:0") == 2
                    else:
                        with pytest.raises(errors.NotFoundError):
                            await two.run([], targets=["add"])
                async with aexec.Session(self.counter(container)) as plain:
                    with pytest.raises(errors.NotFoundError):
                        await plain.run([], targets=["add"])
                assert await one.run("read:0") == (2 if shared else 1)
            async with aexec.Session(self.counter(container), config=config) as later:
                with pytest.raises(errors.FailedPreconditionError):  # it went with the last session
                    await later.run("read:0")

    def test_bad_names(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="collection of names"):
            aexec.SessionConfig(share="both")
        with pytest.raises(errors.InvalidArgumentError, match="invalid characters: _x"):
            aexec.Session(config=aexec.SessionConfig(share=["_x"]))

    async def test_reset_cancels_clears_and_closes(self) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x")
        g("wait", "TestGate", "x", key=gate.key, T=F)
        waiting = aexec.Session(g.graph())
        shared = aexec.Session(self.counter(b"both"), config=aexec.SessionConfig(share=["both"]))
        await shared.run([], targets=["set"])
        step = waiting.start("wait:0", {"x:0": 1})
        await gate.entered.wait()
        with pytest.raises(errors.InvalidArgumentError, match="invalid characters"):
            await aexec.reset(["_bad"])
        assert not waiting.closed
        await aexec.reset(["both"])
        assert waiting.closed
        assert shared.closed
        assert gate.cancelled == 1
        with pytest.raises(errors.CancelledError):
            await step
        with pytest.raises(errors.CancelledError, match="Session has been closed"):
            await shared.run("read:0")
        await aexec.reset()  # nothing is left to reset
