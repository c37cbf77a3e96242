"""`grpc.reflection`: tells tools such as grpcurl which services exist, and what their messages look like.

It answers under the names of both versions, whose messages are the same on the wire.  Like the description of the HTTP
API, it needs no token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

from aexec_server.clients.callers import Scope
from aexec_server.rpc.method import Call, Method

__all__ = ["reflection_methods"]

_VERSIONS = ("v1", "v1alpha")


def reflection_methods(calls: Iterable[Method]) -> list[Method]:
    """Return the rows of both versions.

    Args:
        calls: the rows of all other services.
    """

    def answer(call: Call, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return servicer.ServerReflectionInfo(requests, None)  # type: ignore[no-any-return]

    own = [
        Method(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest,
            reflection_pb2.ServerReflectionResponse,
            answer,
            Scope.OPEN,
            request_streams=True,
            response_streams=True,
            traced=False,
        )
        for version in _VERSIONS
    ]
    services = _by_service([*calls, *own])
    servicer = aio.ReflectionServicer(services, pool=_pool(services))
    return own


def _by_service(calls: Iterable[Method]) -> dict[str, list[Method]]:
    services: dict[str, list[Method]] = {}
    for method in calls:
        services.setdefault(method.service, []).append(method)
    return services


def _pool(services: dict[str, list[Method]]) -> DescriptorPool:
    """Return the descriptions of the services, each in a file of its own, with those of their messages."""
    pool = DescriptorPool()
    added: set[str] = set()
    for name, methods in services.items():
        file = FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
        file.package, _, service_name = name.rpartition(".")
        service = file.service.add(name=service_name)
        for method in methods:
            service.method.append(_described(method))
            for message in (method.request.DESCRIPTOR, method.response.DESCRIPTOR):
                _add(pool, message.file, added)
                if message.file.name not in file.dependency:
                    file.dependency.append(message.file.name)
        pool.Add(file)
    return pool


def _described(method: Method) -> MethodDescriptorProto:
    return MethodDescriptorProto(
        name=method.name,
        input_type=f".{method.request.DESCRIPTOR.full_name}",
        output_type=f".{method.response.DESCRIPTOR.full_name}",
        client_streaming=method.request_streams,
        server_streaming=method.response_streams,
    )


def _add(pool: DescriptorPool, file: Any, added: set[str]) -> None:
    """Add a file to the pool, after the files that it imports, without the services in the file itself."""
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependencies:
        _add(pool, imported, added)
    copy = FileDescriptorProto()
    file.CopyToProto(copy)
    del copy.service[:]
    pool.Add(copy)
