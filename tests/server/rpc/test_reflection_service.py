"""Reflection: what grpcurl asks a server."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from tests.server.rpc.conftest import RpcClient


async def ask(rpc: RpcClient, version: str = "v1", **asked: Any) -> ServerReflectionResponse:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    call = rpc.channel.stream_stream(
        path, ServerReflectionRequest.SerializeToString, ServerReflectionResponse.FromString
    )()
    await call.write(ServerReflectionRequest(**asked))
    answer = await call.read()
    await call.done_writing()
    assert await call.read() is not answer
    assert isinstance(answer, ServerReflectionResponse)
    return answer


async def test_services_are_listed(rpc: RpcClient) -> None:
    for version in ("v1", "v1alpha"):
        answer = await ask(rpc, version, list_services="")
        names = {service.name for service in answer.list_services_response.service}
        assert {"tensorflow.MasterService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= names


async def test_every_service_is_described_with_its_messages(rpc: RpcClient) -> None:
    listed = await ask(rpc, list_services="")
    for service in listed.list_services_response.service:
        answer = await ask(rpc, file_containing_symbol=service.name)
        pool, files = DescriptorPool(), {}
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = FileDescriptorProto.FromString(data)
            files[file.name] = file

        def add(name: str, files: dict[str, Any] = files, pool: DescriptorPool = pool) -> None:
            file = files.pop(name, None)
            if file is not None:
                for imported in file.dependency:
                    add(imported)
                pool.Add(file)

        for name in list(files):
            add(name)
        assert pool.FindServiceByName(service.name).methods


async def test_run_step_is_described(rpc: RpcClient) -> None:
    answer = await ask(rpc, file_containing_symbol="tensorflow.MasterService")
    (file,) = [
        file
        for data in answer.file_descriptor_response.file_descriptor_proto
        if (file := FileDescriptorProto.FromString(data)).service
    ]
    (method,) = [method for method in file.service[0].method if method.name == "RunStep"]
    assert (method.input_type, method.output_type) == (".aexec.RunStepRequest", ".aexec.RunStepResponse")


async def test_unknown_symbol_is_not_found(rpc: RpcClient) -> None:
    answer = await ask(rpc, file_containing_symbol="no.Such")
    assert answer.error_response.error_code == 5
