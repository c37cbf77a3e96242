"""`RpcService`: the sessions of a server, by gRPC: its `aexec.SessionService`.

Calls are sent again as requests of HTTP are: if their connection was refused, or if they only look.  This module needs
the extra `aexec[grpc]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.wire.status_details import STATUS_DETAILS, read_status
from aexec.framework.wire.wire_format import enclosed
from aexec.graph.graph import Graph
from aexec.proto import rpc
from aexec.remote.service import Part, SessionWishes, bearer, pauses, trusting, with_reason
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

try:
    import grpc
except ImportError:
    raise errors.FailedPreconditionError(
        "A session by gRPC needs the package grpc, which is not installed: pip install 'aexec[grpc]'"
    ) from None

__all__ = ["RpcService"]

M = TypeVar("M", bound=Message)

_SERVICE = "/aexec.SessionService/"
_SESSION = proto.RunStepRequest.SESSION_HANDLE_FIELD_NUMBER
_COMPONENT = rpc.EnqueueRequest.COMPONENT_FIELD_NUMBER
_TENSOR = rpc.KeepTensorRequest.TENSOR_FIELD_NUMBER
_GRAPH = rpc.NewSessionRequest.GRAPH_DEF_FIELD_NUMBER
_NAME = re.compile(r"[a-z0-9_.-]+")
_REFUSED = "failed to connect to all addresses"  # grpcio says it in words only
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # answers are limited by the server
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 2**16),  # of errors
    ("grpc.absolute_max_metadata_size", 2**16),
    ("grpc.use_local_subchannel_pool", 1),  # sessions have connections of their own
    # A call that was refused is sent again after the first of `pauses`.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class RpcService:
    """A `Service` by gRPC.

    Args:
        url: the server's address, `grpc://host:port`, or `grpcs://host:port` for TLS.
        headers: metadata of each call.
        token: sent with each call.
        ca: PEM file of the authority that signed the server's certificate, or `grpc.ChannelCredentials`; None for the
            authorities that gRPC trusts.

    Raises:
        InvalidArgumentError: the address, the metadata or the token is invalid, or the file is not a certificate.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, token: str | None = None, ca: Any = None
    ) -> None:
        self.url = url.rstrip("/")
        self.patience = 0.0
        self._target, secure = _target(self.url)
        self._metadata = [_checked(name, value) for name, value in (headers or {}).items()]
        if token is not None:
            self._metadata.append(("authorization", bearer(token)))
        self._credentials = _credentials(ca) if secure else None
        self._channel: Any = None
        # Cancellations have a connection of their own: they must not wait until one of many runs has ended.
        self._urgent: Any = None

    def open(self) -> None:
        if self._channel is None:
            self._channel = self._new_channel()

    def _new_channel(self) -> Any:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        return grpc.aio.secure_channel(self._target, self._credentials, options=_OPTIONS)

    async def close(self) -> None:
        channels, self._channel, self._urgent = (self._channel, self._urgent), None, None
        for channel in channels:
            if channel is not None:
                await channel.close()

    # Calls

    async def _call(
        self,
        method: str,
        request: bytes,
        metadata: Sequence[tuple[str, str]] = (),
        *,
        timeout: float | None = None,
        again: bool = False,
        urgent: bool = False,
    ) -> bytes:
        """Call a method of the service.

        Args:
            timeout: seconds after which the caller stops waiting for the answer.
            again: it may be sent again if its connection breaks.
            urgent: it must not wait for others.
        """
        waits = pauses(self.patience)
        while True:
            try:
                return await self._once(method, request, metadata, timeout, urgent=urgent)
            except grpc.aio.AioRpcError as error:
                details = _details(error)
                broken = error.code() is grpc.StatusCode.UNAVAILABLE and details is None
                refused = broken and _REFUSED in (error.details() or "")
                if not broken:
                    raise self._error(error, details) from None
                pause = next(waits, None) if refused or again else None
                if pause is None:
                    done = "" if refused or again else "; whether it was done is not known"
                    raise self._unavailable(method, f"{error.details()}{done}") from None
            await asyncio.sleep(pause)

    async def _once(
        self, method: str, request: bytes, metadata: Sequence[tuple[str, str]], timeout: float | None, *, urgent: bool
    ) -> bytes:
        channel = self._channel
        if channel is None:
            raise errors.FailedPreconditionError(f"The connection to {self.url} was closed")
        if urgent:
            channel = self._urgent = self._urgent or self._new_channel()
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            call = channel.unary_unary(_SERVICE + method)
            data: bytes = await call(request, metadata=[*self._metadata, *metadata] or None, timeout=timeout)
        except asyncio.CancelledError:
            if task.cancelling() > before:
                raise
            raise self._unavailable(method, "the connection was closed") from None
        return data

    def _error(self, error: Any, details: bytes | None) -> errors.OpError:
        """The error that a status reports."""
        code, text = error.code(), error.details() or ""
        if details is None and code is grpc.StatusCode.UNIMPLEMENTED:
            return errors.UnimplementedError(f"{self.url} has no aexec.SessionService: {text}")
        told, reason = read_status(code.value[0], text, details)
        return with_reason(told, reason)

    def _unavailable(self, method: str, why: str) -> errors.OpError:
        return errors.UnavailableError(f"{method} of {self.url}: {why}")

    async def _ask(self, method: str, request: Message, kind: type[M], **settings: Any) -> M:
        """Call a method with messages."""
        data = await self._call(method, request.SerializeToString(), **settings)
        try:
            return kind.FromString(data)
        except DecodeError:
            raise self._unavailable(method, f"it answered with {len(data)} bytes that are no answer") from None

    async def _look(self, method: str, handle: str) -> dict[str, Any]:
        """Ask a question about a session that is answered in JSON."""
        answer = await self._ask(method, rpc.SessionRequest(session_handle=handle), rpc.JsonAnswer, again=True)
        found: dict[str, Any] = json.loads(answer.json)
        return found

    # Sessions

    async def create(self, graph: Graph, wishes: SessionWishes) -> proto.CreateSessionResponse:
        if wishes.durability is not None:
            raise errors.UnimplementedError("Durable sessions are not served by gRPC: connect by HTTP")

        def write() -> bytes:
            head = rpc.NewSessionRequest(name=wishes.name, ttl_seconds=wishes.ttl, config=wishes.config)
            return b"".join([head.SerializeToString(), *enclosed(_GRAPH, [graph.to_graph_def().SerializeToString()])])

        request = await run_in_thread(write, on_cancel=OnCancel.WAIT)
        return proto.CreateSessionResponse.FromString(await self._call("CreateSession", request))

    async def extend(self, handle: str, added: proto.GraphDef, version: int) -> int:
        request = proto.ExtendSessionRequest(session_handle=handle, graph_def=added, current_graph_version=version)
        return (await self._ask("ExtendSession", request, proto.ExtendSessionResponse)).new_graph_version

    async def delete(self, handle: str) -> None:
        request = proto.CloseSessionRequest(session_handle=handle)
        with contextlib.suppress(errors.NotFoundError):
            await self._ask("CloseSession", request, proto.CloseSessionResponse, again=True)

    async def reset(self, handle: str, containers: Iterable[str]) -> None:
        request = rpc.ResetSessionRequest(session_handle=handle, container=containers)
        await self._ask("ResetSession", request, proto.ResetResponse)

    async def describe(self, handle: str) -> dict[str, Any]:
        return await self._look("DescribeSession", handle)

    async def graph(self, handle: str) -> bytes:
        return await self._call("GetGraph", rpc.SessionRequest(session_handle=handle).SerializeToString(), again=True)

    async def devices(self, handle: str) -> Sequence[proto.DeviceAttributes]:
        request = proto.ListDevicesRequest(session_handle=handle)
        return (await self._ask("ListDevices", request, proto.ListDevicesResponse, again=True)).local_device

    # Runs

    def beginning(self, handle: str) -> bytes:
        return b"".join(enclosed(_SESSION, [handle.encode()]))

    async def run(self, handle: str, request: bytes, run_id: str | None, timeout: float | None = None) -> bytes:
        metadata = [] if run_id is None else [_checked("aexec-run-id", run_id)]
        return await self._call("RunStep", request, metadata, timeout=timeout)

    async def set_up(self, handle: str, request: proto.PartialRunSetupRequest, timeout_ms: int) -> str:
        request.session_handle = handle
        metadata = [("aexec-timeout-ms", str(timeout_ms))]
        answer = await self._ask("PartialRunSetup", request, proto.PartialRunSetupResponse, metadata=metadata)
        return answer.partial_run_handle

    async def runs(self, handle: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await self._look("ListRuns", handle))["runs"]
        return runs

    async def cancel(self, handle: str, run_id: str, reason: str) -> bool:
        request = rpc.CancelRunRequest(session_handle=handle, run_id=run_id, reason=reason)
        return (await self._ask("CancelRun", request, rpc.CancelRunResponse, urgent=True)).cancelled

    # What a session keeps

    async def queues(self, handle: str) -> list[dict[str, Any]]:
        queues: list[dict[str, Any]] = (await self._look("ListQueues", handle))["queues"]
        return queues

    async def enqueue(self, handle: str, queue: str, components: Sequence[Sequence[Part]], *, many: bool) -> None:
        head = rpc.EnqueueRequest(session_handle=handle, queue=queue, many=many).SerializeToString()
        parts = [part for component in components for part in enclosed(_COMPONENT, component)]
        await self._call("Enqueue", b"".join([head, *parts]))

    async def dequeue(self, handle: str, queue: str, count: int | None, *, up_to: bool) -> bytes:
        request = rpc.DequeueRequest(session_handle=handle, queue=queue, count=count, up_to=up_to)
        return await self._call("Dequeue", request.SerializeToString())

    async def close_queue(self, handle: str, queue: str, *, cancel_pending: bool) -> None:
        request = rpc.CloseQueueRequest(session_handle=handle, queue=queue, cancel_pending=cancel_pending)
        await self._ask("CloseQueue", request, rpc.QueueResponse)

    async def tensors(self, handle: str) -> list[dict[str, Any]]:
        tensors: list[dict[str, Any]] = (await self._look("ListTensors", handle))["tensors"]
        return tensors

    async def keep(self, handle: str, tensor: Sequence[Part], name: str) -> str:
        head = rpc.KeepTensorRequest(session_handle=handle, name=name).SerializeToString()
        data = await self._call("KeepTensor", b"".join([head, *enclosed(_TENSOR, tensor)]))
        return rpc.KeepTensorResponse.FromString(data).handle

    async def kept(self, handle: str, tensor: str) -> bytes:
        request = rpc.KeptTensorRequest(session_handle=handle, handle=tensor)
        return await self._call("GetTensor", request.SerializeToString(), again=True)

    async def forget(self, handle: str, tensor: str) -> None:
        request = rpc.KeptTensorRequest(session_handle=handle, handle=tensor)
        await self._ask("ForgetTensor", request, rpc.ForgetTensorResponse, again=True)


def _target(url: str) -> tuple[str, bool]:
    """The host and port of an address, and True if it wants TLS."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or not port or parts.path or "@" in parts.netloc:
        raise errors.InvalidArgumentError(f"{url!r} is no address of a server: expected grpc://host:port")
    return parts.netloc, parts.scheme == "grpcs"


def _checked(name: str, value: str) -> tuple[str, str]:
    """Metadata.  Raises InvalidArgumentError for what gRPC does not carry."""
    key = name.lower()
    if not _NAME.fullmatch(key) or key.startswith("grpc-") or key.endswith("-bin"):
        raise errors.InvalidArgumentError(f"{name!r} is no name of gRPC's metadata")
    if not (value.isascii() and value.isprintable()):
        raise errors.InvalidArgumentError(f"The value of {name!r} must be printable ASCII")
    return key, value


def _credentials(ca: str | Path | Any) -> Any:
    if isinstance(ca, grpc.ChannelCredentials):
        return ca
    if isinstance(ca, ssl.SSLContext):
        raise errors.InvalidArgumentError(
            "gRPC takes no ssl.SSLContext: give ca a PEM file, or grpc.ssl_channel_credentials(...)"
        )
    if ca is None:
        return grpc.ssl_channel_credentials()
    trusted = trusting(ca).get_ca_certs(binary_form=True)
    return grpc.ssl_channel_credentials("".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode())


def _details(error: Any) -> bytes | None:
    """What the server says of an error besides its status; None if it is not aexec's server that answers."""
    found = dict(error.trailing_metadata() or ()).get(STATUS_DETAILS)
    return found if isinstance(found, bytes) else None
