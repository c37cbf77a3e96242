"""`HttpService`: the sessions of a server, by HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from aexec import proto
from aexec.framework.wire.wire_format import enclosed
from aexec.graph.graph import Graph
from aexec.remote.http_client import KEY, PROTOBUF, HttpClient, quoted
from aexec.remote.service import Part, SessionWishes
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["HttpService"]

_SESSIONS = "/v1/sessions"
_FEED = proto.RunStepRequest.FEED_FIELD_NUMBER


class HttpService:
    """A `Service` by HTTP.

    Args:
        client: the connections to the server.
        retry_runs: True to send a run again if its connection breaks: the server runs it once.
    """

    def __init__(self, client: HttpClient, *, retry_runs: bool = False) -> None:
        self.url = client.url
        self._client = client
        self._retry_runs = retry_runs

    @property
    def patience(self) -> float:
        return self._client.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._client.patience = seconds

    def open(self) -> None:
        self._client.open()

    async def close(self) -> None:
        await self._client.close()

    # Sessions

    async def create(self, graph: Graph, wishes: SessionWishes) -> proto.CreateSessionResponse:
        def write() -> bytes:
            return proto.CreateSessionRequest(graph_def=graph.to_graph_def(), config=wishes.config).SerializeToString()

        body = await run_in_thread(write, on_cancel=OnCancel.WAIT)
        durable = None if wishes.durability is None else "true"
        query = {"ttl_s": wishes.ttl, "name": wishes.name, "durable": durable, "durability": wishes.durability}
        path = _with_query(_SESSIONS, {key: value for key, value in query.items() if value is not None})
        return proto.CreateSessionResponse.FromString(await self._once(path, body))

    async def extend(self, handle: str, added: proto.GraphDef, version: int) -> int:
        request = proto.ExtendSessionRequest(graph_def=added, current_graph_version=version)
        answer = await self._once(f"{_path(handle)}:extend", request.SerializeToString())
        return proto.ExtendSessionResponse.FromString(answer).new_graph_version

    async def _once(self, path: str, body: bytes) -> bytes:
        """Send a message that the server acts on once, however often it comes."""
        return await self._client.post_message(path, body, {KEY: secrets.token_hex(16)})

    async def delete(self, handle: str) -> None:
        await self._client.delete(_path(handle))

    async def reset(self, handle: str, containers: Iterable[str]) -> None:
        message = proto.ResetRequest(container=containers)
        await self._client.post_message(f"{_path(handle)}:reset", message.SerializeToString())

    async def describe(self, handle: str) -> dict[str, Any]:
        return await self._client.look_at(_path(handle))

    async def graph(self, handle: str) -> bytes:
        return await self._client.look(f"{_path(handle)}/graph", "application/octet-stream")

    async def devices(self, handle: str) -> Sequence[proto.DeviceAttributes]:
        data = await self._client.look(f"{_path(handle)}/devices", PROTOBUF)
        return proto.ListDevicesResponse.FromString(data).local_device

    # Runs

    def beginning(self, handle: str) -> bytes:
        return b""  # the path names the session

    async def run(self, handle: str, request: bytes, run_id: str | None, timeout: float | None = None) -> bytes:
        headers = {} if run_id is None else {"Aexec-Run-Id": run_id}
        if self._retry_runs and run_id is not None:
            headers[KEY] = secrets.token_hex(16)
        return await self._client.post_message(f"{_path(handle)}:run", request, headers)

    async def set_up(self, handle: str, request: proto.PartialRunSetupRequest, timeout_ms: int) -> str:
        answer = await self._client.post_message(
            f"{_path(handle)}:partialRunSetup", request.SerializeToString(), {"Aexec-Timeout-Ms": str(timeout_ms)}
        )
        return proto.PartialRunSetupResponse.FromString(answer).partial_run_handle

    async def runs(self, handle: str) -> list[dict[str, Any]]:
        return await self._list(handle, "runs")

    async def cancel(self, handle: str, run_id: str, reason: str) -> bool:
        path = f"{_path(handle)}/runs/{quoted(run_id)}:cancel"
        answer = await self._client.post_json(path, {"reason": reason} if reason else {})
        return bool(answer["cancelled"])

    # A session's state

    async def _list(self, handle: str, what: str) -> list[dict[str, Any]]:
        answer = await self._client.look_at(f"{_path(handle)}/{what}")
        listed: list[dict[str, Any]] = answer[what]
        return listed

    async def queues(self, handle: str) -> list[dict[str, Any]]:
        return await self._list(handle, "queues")

    async def enqueue(self, handle: str, queue: str, components: Sequence[Sequence[Part]], *, many: bool) -> None:
        body = b"".join(part for component in components for part in enclosed(_FEED, component))
        await self._client.post_message(_queue(handle, queue, "enqueue", {"many": "true"} if many else {}), body)

    async def dequeue(self, handle: str, queue: str, count: int | None, *, up_to: bool) -> bytes:
        query = {} if count is None else {"count": count, "up_to": "true" if up_to else "false"}
        return await self._client.post_message(_queue(handle, queue, "dequeue", query), b"")

    async def close_queue(self, handle: str, queue: str, *, cancel_pending: bool) -> None:
        query = {"cancel_pending": "true"} if cancel_pending else {}
        await self._client.post_message(_queue(handle, queue, "close", query), b"")

    async def tensors(self, handle: str) -> list[dict[str, Any]]:
        return await self._list(handle, "tensors")

    async def keep(self, handle: str, tensor: Sequence[Part], name: str) -> str:
        path = f"{_path(handle)}/tensors?name={quoted(name)}"
        answer = self._client.read_object(await self._client.post_message(path, b"".join(tensor)))
        return str(answer["handle"])

    async def kept(self, handle: str, tensor: str) -> bytes:
        return await self._client.look(_tensor(handle, tensor), PROTOBUF)

    async def forget(self, handle: str, tensor: str) -> None:
        await self._client.delete(_tensor(handle, tensor), missing=False)


def _path(handle: str) -> str:
    return f"{_SESSIONS}/{quoted(handle)}"


def _queue(handle: str, queue: str, call: str, query: Mapping[str, Any]) -> str:
    return _with_query(f"{_path(handle)}/queues/{quoted(queue)}:{call}", query)


def _tensor(handle: str, tensor: str) -> str:
    return f"{_path(handle)}/tensors/{quote(tensor, safe=';/:')}"


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
