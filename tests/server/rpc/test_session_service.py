"""The service of aexec's own clients: what it refuses, and what its errors tell.  `tests/remote` has the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.status_details import STATUS_DETAILS, read_status
from aexec.framework.wire.tensor_codec import to_proto
from aexec.framework.wire.wire_format import enclosed
from aexec.proto import rpc as messages
from tests.server.conftest import small_graph
from tests.server.rpc.conftest import RpcClient
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

SERVICE = "/aexec.SessionService/"
Serve = Callable[..., Awaitable[RpcClient]]


def queue_graph() -> GraphBuilder:
    """`q` has room for one number."""
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=1)
    return g


async def create(client: RpcClient, graph: GraphBuilder, **fields: Any) -> str:
    request = messages.NewSessionRequest(graph_def=graph.graph_def, **fields)
    answer = await client.call(f"{SERVICE}CreateSession", request, proto.CreateSessionResponse)
    return str(answer.session_handle)


def enqueue(handle: str, *values: Any, **fields: Any) -> messages.EnqueueRequest:
    components = [proto.NamedTensorProto(tensor=to_proto(np.float32(value))) for value in values]
    return messages.EnqueueRequest(session_handle=handle, queue="q", component=components, **fields)


async def test_name_has_to_be_the_first_field(rpc: RpcClient) -> None:
    graph = small_graph().graph_def.SerializeToString()
    late = b"".join([*enclosed(3, [graph]), *(b"\x78\x01" for _ in range(20)), *enclosed(1, [b"mine"])])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.channel.unary_unary(f"{SERVICE}CreateSession")(late)
    code, words = caught.value.code().name, caught.value.details()
    assert code == "INVALID_ARGUMENT" and "has to be the first field" in words
    assert await create(rpc, small_graph(), name="mine") == "mine"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, '"name" must be'),
        ({"name": "a/b"}, '"name" must be'),
        ({"ttl_seconds": 0.0}, "ttl"),
        ({"ttl_seconds": float("nan")}, "ttl"),
    ],
)
async def test_wrong_settings_of_a_session_are_refused(rpc: RpcClient, fields: dict[str, Any], words: str) -> None:
    request = messages.NewSessionRequest(graph_def=small_graph().graph_def, **fields)
    code, told = await rpc.refused(f"{SERVICE}CreateSession", request, proto.CreateSessionResponse)
    assert code == "INVALID_ARGUMENT" and words in told


@pytest.mark.parametrize("run_id", ["a/b", "x" * 200])
async def test_wrong_name_of_a_run_is_refused(rpc: RpcClient, run_id: str) -> None:
    request = proto.RunStepRequest(session_handle=await create(rpc, small_graph()), target=["nothing"])
    metadata = [("aexec-run-id", run_id)]
    code, words = await rpc.refused(f"{SERVICE}RunStep", request, proto.RunStepResponse, metadata=metadata)
    assert code == "INVALID_ARGUMENT" and "aexec-run-id must be" in words


async def test_wrong_time_of_a_partial_run_is_refused(rpc: RpcClient) -> None:
    request = proto.PartialRunSetupRequest(session_handle=await create(rpc, small_graph()), target=["nothing"])
    code, _ = await rpc.refused(
        f"{SERVICE}PartialRunSetup", request, proto.PartialRunSetupResponse, metadata=[("aexec-timeout-ms", "soon")]
    )
    assert code == "INVALID_ARGUMENT"


async def test_waiting_at_a_queue_ends_in_time(rpc: RpcClient) -> None:
    handle = await create(rpc, queue_graph())
    take = messages.DequeueRequest(session_handle=handle, queue="q", timeout_in_ms=1)
    assert (await rpc.refused(f"{SERVICE}Dequeue", take, proto.RunStepResponse))[0] == "DEADLINE_EXCEEDED"
    await rpc.call(f"{SERVICE}Enqueue", enqueue(handle, 7), messages.QueueResponse)
    code, words = await rpc.refused(f"{SERVICE}Enqueue", enqueue(handle, 8, timeout_in_ms=1), messages.QueueResponse)
    assert code == "DEADLINE_EXCEEDED" and "Nothing was put into 'q'" in words
    answer = await rpc.call(f"{SERVICE}Dequeue", take, proto.RunStepResponse)
    assert [named.name for named in answer.tensor] == ["q[0]"]


async def test_wrong_requests_to_queues_are_refused(rpc: RpcClient) -> None:
    handle = await create(rpc, queue_graph())
    wrong = [
        ("Enqueue", enqueue(handle), "There must be 1 feeds"),
        ("Enqueue", enqueue(handle, 1, 2), "There must be 1 feeds"),
        ("Enqueue", enqueue(handle, 1, timeout_in_ms=-1), "must not be negative"),
        ("Dequeue", messages.DequeueRequest(session_handle=handle, queue="q", count=-1), '"count" must be'),
        ("Dequeue", messages.DequeueRequest(session_handle=handle, queue="q", count=2**40), '"count" must be'),
    ]
    for method, request, words in wrong:
        code, told = await rpc.refused(SERVICE + method, request, proto.RunStepResponse)
        assert code == "INVALID_ARGUMENT" and words in told


async def test_server_s_own_session_is_not_changed(serve: Serve) -> None:
    rpc = await serve(graphs={"own": queue_graph().graph()})
    for method, request in (
        ("ExtendSession", proto.ExtendSessionRequest(session_handle="own")),
        ("ResetSession", messages.ResetSessionRequest(session_handle="own")),
        ("CloseSession", proto.CloseSessionRequest(session_handle="own")),
        ("Enqueue", enqueue("own", 1)),
        ("Dequeue", messages.DequeueRequest(session_handle="own", queue="q")),
        ("CloseQueue", messages.CloseQueueRequest(session_handle="own", queue="q")),
        ("ListTensors", messages.SessionRequest(session_handle="own")),
        ("KeepTensor", messages.KeepTensorRequest(session_handle="own")),
        ("GetTensor", messages.KeptTensorRequest(session_handle="own")),
        ("ForgetTensor", messages.KeptTensorRequest(session_handle="own")),
    ):
        code, words = await rpc.refused(SERVICE + method, request, messages.QueueResponse)
        assert code == "PERMISSION_DENIED" and "the server's own" in words, method


async def test_error_tells_its_node_to_who_reads_details(rpc: RpcClient) -> None:
    handle = await create(rpc, small_graph())
    x = proto.NamedTensorProto(name="x:0", tensor=to_proto(np.float32([1])))
    request = proto.RunStepRequest(session_handle=handle, fetch=["fails:0"], feed=[x])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.call(f"{SERVICE}RunStep", request, proto.RunStepResponse)
    status = caught.value
    error, reason = read_status(3, "", dict(status.trailing_metadata())[STATUS_DETAILS])
    assert (error.node, reason) == ("fails", "") and error.op is not None
    assert status.details().startswith(error.message) and "[[{{node fails}}]]" in status.details()


async def test_large_answers_are_refused_and_counted(serve: Serve) -> None:
    g = GraphBuilder()
    g.const("c", np.arange(2**16), dtypes.int64)
    rpc = await serve(max_answer_bytes=2**18)
    handle = await create(rpc, g)
    request = messages.SessionRequest(session_handle=handle)
    code, words = await rpc.refused(f"{SERVICE}GetGraph", request, proto.GraphDef)
    assert code == "RESOURCE_EXHAUSTED" and "more than 262144 bytes" in words
    other = await serve()
    memory = other.server.sessions.memory
    request = messages.SessionRequest(session_handle=await create(other, g))
    before = memory.in_use
    assert len((await other.call(f"{SERVICE}GetGraph", request, proto.GraphDef)).node) == 1
    await until(lambda: memory.in_use == before)


@pytest.mark.parametrize("details", [b"\xff", b"", proto.RunOptions(timeout_in_ms=7).SerializeToString()])
def test_unreadable_details_leave_the_status(details: bytes) -> None:
    error, reason = read_status(5, "gone", details)
    assert error.code == 5 and reason == "" and error.node is None
    assert error.message in ("gone", "")
