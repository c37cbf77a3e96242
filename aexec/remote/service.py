"""`Service`: the calls that a remote session makes, for any protocol.

`http_service.py` asks by HTTP, `rpc_service.py` by gRPC.  Runs and tensors are TensorFlow's messages in both, which
their callers write and read, in threads if they are large.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aexec import proto
from aexec.framework import errors
from aexec.graph.graph import Graph

__all__ = [
    "InterruptedRequestError",
    "NotBegunError",
    "Part",
    "ServerRestartedError",
    "Service",
    "SessionWishes",
    "bearer",
    "pauses",
    "trusting",
    "with_reason",
]

# The bytes of a message are written in parts, so that those of large tensors are copied once.
Part = bytes | memoryview
# Seconds before a request is sent again.
_PAUSES = (0.05, 0.2, 0.8)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class ServerRestartedError(errors.NotFoundError):
    """The server was restarted, and the object of a handle is gone."""


class InterruptedRequestError(errors.AbortedError):
    """The server of a durable session ended while it processed a request with a key, which it may have carried out in
    part.  It does not repeat it.
    """


class NotBegunError(errors.UnavailableError):
    """The server has not begun the request, because it ends, or another process takes its durable sessions over."""


_KINDS: dict[str, type[errors.OpError]] = {
    "interrupted": InterruptedRequestError,
    "handed_over": NotBegunError,
    "shutting_down": NotBegunError,
}


def with_reason(error: errors.OpError, reason: str) -> errors.OpError:
    """The error for an answer of the server.

    Args:
        error: its code and its message.
        reason: its word for programs; "" for none.
    """
    if reason == "server_restarted":
        return ServerRestartedError(f"{error.message}. Connect again: a new session has a new graph and new variables")
    kind = _KINDS.get(reason)
    return error if kind is None else kind(error.message)


def pauses(patience: float) -> Iterator[float]:
    """The seconds to wait before a request is sent for the second time, for the third time, and so on.

    Args:
        patience: seconds from the first time after which it is not sent any more, except three times in all.
    """
    until = time.monotonic() + patience
    yield from _PAUSES
    while time.monotonic() < until:
        yield _PAUSES[-1]


def bearer(token: str) -> str:
    """What a request says of a token.  Raises InvalidArgumentError for what is none."""
    if not _TOKEN.fullmatch(token):
        raise errors.InvalidArgumentError("a token has letters, digits and any of ._~+/-= only")
    return f"Bearer {token}"


def trusting(ca: str | Path) -> ssl.SSLContext:
    """A context that trusts the authority of a PEM file.  Raises InvalidArgumentError for what is none."""
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise errors.InvalidArgumentError(f"ca {str(ca)!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class SessionWishes:
    """What a new session is to be, besides its graph.

    Attributes:
        config: its settings.
        name: its handle, if that is free; None for one that cannot be guessed.
        ttl: seconds without use after which the server may close it; None for the server's own.
        durability: when its requests are answered, `strict` or `relaxed`, if it is to be durable; None if it is not.
    """

    config: proto.ConfigProto
    name: str | None = None
    ttl: float | None = None
    durability: str | None = None


class Service(Protocol):
    """A server of sessions.  Each coroutine raises an OpError that the server answers with, or UnavailableError if it
    cannot be reached; cancelling it cancels what the server does for it.

    Attributes:
        url: the server's address.
        patience: seconds for which a request that may be sent again is sent again while the server cannot be reached.
    """

    url: str
    patience: float

    def open(self) -> None:
        """Accept calls from the running event loop.  Idempotent."""
        ...

    async def close(self) -> None:
        """End all connections.  Idempotent."""
        ...

    # Sessions

    async def create(self, graph: Graph, wishes: SessionWishes) -> proto.CreateSessionResponse:
        """Make a session."""
        ...

    async def extend(self, handle: str, added: proto.GraphDef, version: int) -> int:
        """Add nodes to a graph that has this version; return the new version."""
        ...

    async def delete(self, handle: str) -> None:
        """Cancel a session's runs, wait for their end, and free it.  It is no error if there is no such session."""
        ...

    async def reset(self, handle: str, containers: Iterable[str]) -> None:
        """Cancel a session's runs, and drop containers of its resources."""
        ...

    async def describe(self, handle: str) -> dict[str, Any]:
        """Return the description of a session, with its handle."""
        ...

    async def graph(self, handle: str) -> bytes:
        """A session's GraphDef."""
        ...

    async def devices(self, handle: str) -> Sequence[proto.DeviceAttributes]:
        """The devices that a session runs on."""
        ...

    # Runs

    def beginning(self, handle: str) -> Part:
        """The first bytes of a RunStepRequest for this session."""
        ...

    async def run(self, handle: str, request: bytes, run_id: str | None, timeout: float | None = None) -> bytes:
        """Run a step, or a part of a partial run.

        Args:
            request: a RunStepRequest, which begins with `beginning`.
            run_id: the run's name in the server; None for one of the server's, as a part of a partial run has.
            timeout: seconds after which the caller stops waiting for the answer; None for never.

        Returns:
            A RunStepResponse.
        """
        ...

    async def set_up(self, handle: str, request: proto.PartialRunSetupRequest, timeout_ms: int) -> str:
        """Start a partial run, with a limit in milliseconds, or 0 for none; return its handle."""
        ...

    async def runs(self, handle: str) -> list[dict[str, Any]]:
        """Descriptions of the runs in flight."""
        ...

    async def cancel(self, handle: str, run_id: str, reason: str) -> bool:
        """Cancel a run; True unless it had ended.  A run that is not there yet is cancelled when it comes."""
        ...

    # A session's state

    async def queues(self, handle: str) -> list[dict[str, Any]]:
        """Descriptions of the queues."""
        ...

    async def enqueue(self, handle: str, queue: str, components: Sequence[Sequence[Part]], *, many: bool) -> None:
        """Put an element into a queue, or with `many` the rows of its components.

        Args:
            components: each a NamedTensorProto in parts.
        """
        ...

    async def dequeue(self, handle: str, queue: str, count: int | None, *, up_to: bool) -> bytes:
        """Take an element out of a queue, or a number of elements; return a RunStepResponse."""
        ...

    async def close_queue(self, handle: str, queue: str, *, cancel_pending: bool) -> None:
        """Close a queue."""
        ...

    async def tensors(self, handle: str) -> list[dict[str, Any]]:
        """Descriptions of the kept tensors."""
        ...

    async def keep(self, handle: str, tensor: Sequence[Part], name: str) -> str:
        """Keep a tensor, a TensorProto in parts; return its handle, which begins with `name`."""
        ...

    async def kept(self, handle: str, tensor: str) -> bytes:
        """The TensorProto of a kept tensor.  Raises NotFoundError for an unknown handle."""
        ...

    async def forget(self, handle: str, tensor: str) -> None:
        """Delete a kept tensor.  Raises NotFoundError for an unknown handle."""
        ...
