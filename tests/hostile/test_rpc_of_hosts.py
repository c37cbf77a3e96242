"""gRPC with session hosts: the front answers, and passes on what is for a session or a model."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from aexec.proto import serving
from tests.hostile.conftest import HostileServer
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

MASTER = "/tensorflow.MasterService/"


def squares() -> GraphBuilder:
    """`y` is the square of `x`."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    return g


@contextmanager
def channel_to(server: ServerProcess) -> Iterator[grpc.Channel]:
    server.until(lambda: "serves gRPC on" in server.log)
    match = re.search(r"serves gRPC on grpc://(\S+)", server.log)
    assert match is not None
    with grpc.insecure_channel(match[1], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


class Client:
    """Calls of one client."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def call(self, path: str, request: Any, response: Any, **options: Any) -> Any:
        method = self.channel.unary_unary(path, type(request).SerializeToString, response.FromString)
        return method(request, timeout=60, **options)

    def refusal(self, path: str, request: Any, response: Any, **options: Any) -> tuple[str, str]:
        try:
            self.call(path, request, response, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        raise AssertionError(f"{path} was answered")

    def create(self, **options: Any) -> str:
        request = proto.CreateSessionRequest(graph_def=squares().graph_def)
        return str(self.call(f"{MASTER}CreateSession", request, proto.CreateSessionResponse, **options).session_handle)

    def run(self, handle: str) -> list[float]:
        answer = self.call(f"{MASTER}RunStep", step(handle), proto.RunStepResponse)
        return list(tensor_codec.from_proto(answer.tensor[0].tensor))


def step(handle: str) -> proto.RunStepRequest:
    x = proto.NamedTensorProto(name="x:0", tensor=tensor_codec.to_proto(np.float32([1, 2, 3])))
    return proto.RunStepRequest(session_handle=handle, feed=[x], fetch=["y:0"])


def test_rpc_is_answered_where_its_session_is(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts="auto", grpc_port=0, example=True)
    with channel_to(server) as channel:
        client = Client(channel)
        # Who says that it is another, by the metadata of a front, is not believed.
        said = f"{'0' * 32} caller admin  admin - - -"
        first, second = client.create(), client.create(metadata=(("aexec-caller", said),))
        assert client.run(first) == client.run(second) == [1.0, 4.0, 9.0]
        listed = [one["session_handle"] for one in server.call("GET", "/v1/sessions").body["sessions"]]
        assert listed == ["example"]
        # The server's own models are in a host too, and health tells of the whole and of each.
        for service in ("", "tensorflow.MasterService", "example"):
            health = client.call(
                "/grpc.health.v1.Health/Check", HealthCheckRequest(service=service), HealthCheckResponse
            )
            assert health.status == HealthCheckResponse.SERVING
        predict = serving.PredictRequest(model_spec=serving.ModelSpec(name="example"))
        predict.inputs["x"].CopyFrom(tensor_codec.to_proto(np.float32([[1, 2, 3]])))
        answer = client.call("/tensorflow.serving.PredictionService/Predict", predict, serving.PredictResponse)
        assert tensor_codec.from_proto(answer.outputs["y"]).shape == (1, 2)
        # The sessions of a host end with it.
        os.kill(server.host_of(first), signal.SIGKILL)
        server.until(lambda: client.refusal(f"{MASTER}RunStep", step(first), proto.RunStepResponse)[0] == "ABORTED")
        _, words = client.refusal(f"{MASTER}RunStep", step(first), proto.RunStepResponse)
        assert "its host" in words
        client.call(f"{MASTER}Reset", proto.ResetRequest(), proto.ResetResponse)
        assert client.refusal(f"{MASTER}RunStep", step(second), proto.RunStepResponse)[0] == "ABORTED"


async def why_lost(session: Any) -> str:
    """What the front says of a session whose host was killed, once it knows."""
    while True:
        try:
            await session.describe()
        except errors.NotFoundError as error:
            return error.message
        except errors.UnavailableError:
            pass


async def test_session_of_connect_is_answered_where_it_is(hostile_server: HostileServer) -> None:
    server = await asyncio.to_thread(lambda: hostile_server(hosts="auto", grpc_port=0, example=True))
    grpc.aio.init_grpc_aio()
    await until(lambda: "serves gRPC on" in server.log)
    told = re.search(r"serves gRPC on (\S+)", server.log)
    assert told is not None
    url = told[1]
    async with aexec.connect(url, squares().graph(), name="mine") as session:
        assert (await session.run("y:0", {"x:0": [1, 2]}, run_id="first")).tolist() == [1, 4]
        with pytest.raises(errors.InvalidArgumentError, match="You must feed a value for placeholder") as failed:
            await session.run("y:0")
        assert failed.value.node == "x"
        with pytest.raises(errors.AlreadyExistsError, match="There is a session 'mine'"):
            await aexec.connect(url, squares().graph(), name="mine")
        with pytest.raises(errors.AlreadyExistsError, match="There is a session 'example'"):
            await aexec.connect(url, squares().graph(), name="example")
        async with aexec.connect(url, session="mine") as joined:
            assert [run["run_id"] for run in await joined.runs()] == []
            kept = await joined.tensors.put(np.float32([3]))
            assert (await session.run("y:0", {"x:0": kept})).tolist() == [9]
        async with aexec.connect(url, squares().graph()) as other:
            assert (await other.call(x=[5]))["y"].tolist() == [25]
            os.kill(await asyncio.to_thread(server.host_of, other.handle), signal.SIGKILL)
            assert "its host" in await why_lost(other)
    async with aexec.connect(url, session="example") as example:
        assert (await example.run("y:0", {"x:0": [[1, 2, 3]]})).shape == (1, 2)
    with pytest.raises(errors.NotFoundError, match="is not found"):
        await aexec.connect(url, session="mine")
