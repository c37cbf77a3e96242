"""TensorFlow's master service, with calls recorded from TensorFlow's own."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from aexec_server.rpc import rpc_callables

from aexec import proto
from aexec.errors import Code
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from tests.server.conftest import small_graph
from tests.server.requests.test_protobuf import TRACES, decode, feed, plain
from tests.server.rpc.conftest import RpcClient
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

MASTER = "/tensorflow.MasterService/"
# A wrong type is answered as a session in process answers it.
OUR_CODES = {"wrong type fed": Code.INVALID_ARGUMENT}


class Recorded:
    """Calls in the order in which they were recorded, with the handles of this server."""

    def __init__(self, rpc: RpcClient) -> None:
        self.rpc = rpc
        self.handles: dict[Any, Any] = {}

    async def replay(self, recorded: dict[str, Any]) -> None:
        request = decode(recorded, "request")
        for name in ("session_handle", "partial_run_handle", "handle"):
            if getattr(request, name, None):
                setattr(request, name, self.handles.get(getattr(request, name), getattr(request, name)))
        if "status" in recorded:
            await self.check_refusal(recorded, request)
        else:
            expected = decode(recorded, "response")
            self.check(recorded["note"], expected, await self.rpc.call(recorded["method"], request, type(expected)))

    async def check_refusal(self, recorded: dict[str, Any], request: Any) -> None:
        code, words = await self.rpc.refused(recorded["method"], request, type(request))
        expected = OUR_CODES.get(recorded["note"], Code(recorded["status"]["number"]))
        assert code == expected.name, recorded["note"]
        if recorded["note"] not in OUR_CODES:
            theirs = recorded["status"]["message"]
            for ours, handle in self.handles.items():
                theirs = theirs.replace(f"Session {ours} ", f"Session {handle} ")
            assert theirs.partition(" for node")[0] in words

    def check(self, note: str, expected: Any, got: Any) -> None:
        if isinstance(expected, proto.RunStepResponse):
            assert got.HasField("metadata")
            assert sorted(map(plain, got.tensor)) == sorted(map(plain, expected.tensor)), note
        elif isinstance(expected, proto.ListDevicesResponse):
            (ours,), (theirs,) = got.local_device, expected.local_device
            assert (ours.name, ours.device_type) == (theirs.name, theirs.device_type)
        else:
            for name in ("session_handle", "partial_run_handle", "handle"):
                if hasattr(expected, name):
                    self.handles[getattr(expected, name)] = getattr(got, name)
                    setattr(got, name, getattr(expected, name))
            assert got == expected, note


async def test_recorded_calls_are_answered_as_they_were(rpc: RpcClient) -> None:
    recorded = Recorded(rpc)
    for call in TRACES:
        await recorded.replay(call)
    assert len(TRACES) == 43


async def test_probe_is_told_the_devices(rpc: RpcClient) -> None:
    request = proto.GetStatusRequest()
    (device,) = (
        await rpc.call("/tensorflow.WorkerService/GetStatus", request, proto.GetStatusResponse)
    ).device_attributes
    listed = await rpc.call(f"{MASTER}ListDevices", proto.ListDevicesRequest(), proto.ListDevicesResponse)
    assert (device.name, device.device_type) == (listed.local_device[0].name, "CPU")


async def create(rpc: RpcClient, graph: GraphBuilder, config: proto.ConfigProto | None = None) -> str:
    request = proto.CreateSessionRequest(graph_def=graph.graph_def, config=config)
    answer = await rpc.call(f"{MASTER}CreateSession", request, proto.CreateSessionResponse)
    return str(answer.session_handle)


def run_step(rpc: RpcClient, handle: str, *fetches: str, **fields: Any) -> Any:
    timeout = fields.pop("timeout", None)
    request = proto.RunStepRequest(session_handle=handle, fetch=fetches, **fields)
    return rpc.call(f"{MASTER}RunStep", request, proto.RunStepResponse, timeout=timeout)


def gate_graph() -> tuple[gates.Gate, GraphBuilder]:
    """`small_graph`, with `waits`, which waits at the gate."""
    gate, g = gates.Gate(), small_graph()
    g.const("c", 1.5, dtypes.float32)
    g("waits", "TestGate", "c", key=gate.key, T=dtypes.float32)
    return gate, g


class TestCancelledCalls:
    async def test_cancelled_call_cancels_its_step(self, rpc: RpcClient) -> None:
        gate, graph = gate_graph()
        call = run_step(rpc, await create(rpc, graph), "waits:0")
        await gate.entered.wait()
        call.cancel()
        await until(lambda: gate.cancelled)
        await until(lambda: rpc.server.sessions.live_runs == 0)
        with pytest.raises(asyncio.CancelledError):
            await call

    async def test_passed_deadline_cancels_the_step(self, rpc: RpcClient) -> None:
        gate, graph = gate_graph()
        call = run_step(rpc, await create(rpc, graph), "waits:0", timeout=0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: gate.cancelled)
        await until(lambda: rpc.server.sessions.live_runs == 0)

    async def test_lost_connection_cancels_its_steps(self, rpc: RpcClient) -> None:
        gate, graph = gate_graph()
        call = run_step(rpc, await create(rpc, graph), "waits:0")
        await gate.entered.wait()
        await rpc.channel.close()
        await until(lambda: gate.cancelled)
        with pytest.raises(asyncio.CancelledError):
            await call

    async def test_closed_session_ends_its_runs(self, rpc: RpcClient) -> None:
        gate, graph = gate_graph()
        handle = await create(rpc, graph)
        call = run_step(rpc, handle, "waits:0")
        await gate.entered.wait()
        request = proto.CloseSessionRequest(session_handle=handle)
        await rpc.call(f"{MASTER}CloseSession", request, proto.CloseSessionResponse)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.CANCELLED


class TestErrors:
    async def test_error_names_its_node(self, rpc: RpcClient) -> None:
        request = proto.RunStepRequest(
            session_handle=await create(rpc, small_graph()), fetch=["fails:0"], feed=[feed("x:0", np.float32([1]))]
        )
        code, words = await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse)
        assert code == "INVALID_ARGUMENT" and "[[{{node fails}}]]" in words

    async def test_error_is_in_the_response_for_who_asks_for_it_there(self, rpc: RpcClient) -> None:
        answer = await run_step(rpc, "nope", store_errors_in_response_body=True)
        assert answer.status_code == Code.ABORTED
        assert answer.status_error_message == "Session nope is not found."

    async def test_long_words_are_cut(self, rpc: RpcClient) -> None:
        request = proto.RunStepRequest(session_handle=await create(rpc, small_graph()), fetch=[f"{'n' * 9000}:0"])
        _, words = await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse)
        assert len(words.encode()) <= 3072

    async def test_op_that_reaches_for_files_is_refused(self, rpc: RpcClient) -> None:
        graph = GraphBuilder()
        graph.const("name", b"/etc/passwd", dtypes.string)
        graph("read", "ReadFile", "name")
        request = proto.CreateSessionRequest(graph_def=graph.graph_def)
        code, words = await rpc.refused(f"{MASTER}CreateSession", request, proto.CreateSessionResponse)
        assert code == "PERMISSION_DENIED" and "'read' (ReadFile)" in words

    async def test_message_that_is_none_is_refused(self, rpc: RpcClient) -> None:
        call = rpc.channel.unary_unary(f"{MASTER}RunStep")(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_reset_closes_the_sessions_that_its_caller_has_made(rpc: RpcClient) -> None:
    first, second = await create(rpc, small_graph()), await create(rpc, small_graph())
    await rpc.call(f"{MASTER}Reset", proto.ResetRequest(container=["c"]), proto.ResetResponse)
    for handle in (first, second):
        request = proto.RunStepRequest(session_handle=handle, target=["nothing"])
        assert (await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse))[0] == "ABORTED"


async def test_traced_run_reports_its_nodes(rpc: RpcClient) -> None:
    options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE, output_partition_graphs=True)
    handle = await create(rpc, small_graph())
    answer = await run_step(rpc, handle, "y:0", feed=[feed("x:0", np.float32([3]))], options=options)
    nodes = [node.node_name for device in answer.metadata.step_stats.dev_stats for node in device.node_stats]
    assert "y" in nodes and len(answer.metadata.partition_graphs) == 1


class TestCallables:
    async def make(self, rpc: RpcClient, handle: str, **fields: Any) -> int:
        options = proto.CallableOptions(**fields)
        request = proto.MakeCallableRequest(session_handle=handle, options=options)
        return int((await rpc.call(f"{MASTER}MakeCallable", request, proto.MakeCallableResponse)).handle)

    async def test_callable_takes_values_in_the_order_of_its_feeds(self, rpc: RpcClient) -> None:
        handle = await create(rpc, small_graph())
        number = await self.make(rpc, handle, feed=["x:0", "m:0"], fetch=["m_out:0", "y:0"])
        values = [tensor_codec.to_proto(np.float32([3])), tensor_codec.to_proto(np.float32(7))]
        request = proto.RunCallableRequest(session_handle=handle, handle=number, feed=values)
        answer = await rpc.call(f"{MASTER}RunCallable", request, proto.RunCallableResponse)
        assert [tensor_codec.from_proto(tensor).tolist() for tensor in answer.fetch] == [7.0, [9.0]]
        code, words = await rpc.refused(
            f"{MASTER}RunCallable",
            proto.RunCallableRequest(session_handle=handle, handle=number, feed=values[:1]),
            proto.RunCallableResponse,
        )
        assert code == "INVALID_ARGUMENT" and "Expected 2 feed tensors" in words

    async def test_released_callable_is_refused(self, rpc: RpcClient) -> None:
        handle = await create(rpc, small_graph())
        number = await self.make(rpc, handle, target=["nothing"])
        request = proto.ReleaseCallableRequest(session_handle=handle, handle=number)
        await rpc.call(f"{MASTER}ReleaseCallable", request, proto.ReleaseCallableResponse)
        run = proto.RunCallableRequest(session_handle=handle, handle=number)
        code, words = await rpc.refused(f"{MASTER}RunCallable", run, proto.RunCallableResponse)
        assert code == "INVALID_ARGUMENT" and "No such callable handle" in words

    async def test_options_that_would_be_ignored_are_refused(self, rpc: RpcClient) -> None:
        handle = await create(rpc, small_graph())
        options = proto.CallableOptions(target=["nothing"], feed_devices={"x:0": "/device:CPU:0"})
        request = proto.MakeCallableRequest(session_handle=handle, options=options)
        code, words = await rpc.refused(f"{MASTER}MakeCallable", request, proto.MakeCallableResponse)
        assert code == "UNIMPLEMENTED" and "feed_devices" in words

    async def test_options_that_are_kept_have_a_limit(self, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rpc_callables, "_MAX_BYTES", 200_000)
        handle = await create(rpc, small_graph())
        options = proto.CallableOptions(target=["nothing"] * 4000)
        request = proto.MakeCallableRequest(session_handle=handle, options=options)
        for _ in range(rpc_callables._MAX_BYTES // options.ByteSize()):
            made = await rpc.call(f"{MASTER}MakeCallable", request, proto.MakeCallableResponse)
        code, words = await rpc.refused(f"{MASTER}MakeCallable", request, proto.MakeCallableResponse)
        assert code == "RESOURCE_EXHAUSTED" and "release some" in words
        release = proto.ReleaseCallableRequest(session_handle=handle, handle=made.handle)
        await rpc.call(f"{MASTER}ReleaseCallable", release, proto.ReleaseCallableResponse)
        await rpc.call(f"{MASTER}MakeCallable", request, proto.MakeCallableResponse)
        # What no field has is not kept.
        unknown = proto.MakeCallableRequest(session_handle=await create(rpc, small_graph()))
        unknown.options.target.append("nothing")
        unknown.options.MergeFromString(b"\xfa\x7f" + b"\x80\x80\x80\x04" + bytes(8 << 20))
        await rpc.call(f"{MASTER}MakeCallable", unknown, proto.MakeCallableResponse)
