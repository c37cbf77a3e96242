"""`HttpClient`: sends requests to a server of sessions by HTTP, and returns answers or raises aexec's errors.

A request is sent again only if it has certainly had no effect, or will have it once: its connection was refused, it
only reads, it has a key, by which the server recognises it, or the server said that it has not begun it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from aexec.framework import errors
from aexec.framework.errors import Code
from aexec.remote.service import NotBegunError, bearer, pauses, trusting, with_reason

__all__ = ["KEY", "PROTOBUF", "HttpClient", "quoted"]

PROTOBUF = "application/x-protobuf"
KEY = "Idempotency-Key"
_CONNECT_SECONDS = 10.0
# A server's word for a request with a key that it is carrying out, and the seconds before it is asked again.
_IN_PROGRESS = "in_progress"
_ASK_AGAIN_SECONDS = 0.8
# Status → code, for an answer without a body of ours, such as a proxy's.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    410: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
_MAX_TEXT = 500


class _InProgressError(errors.AbortedError):
    """The server is carrying the request out, though its connection broke."""


def _payload(body: bytes | None) -> BytesIO | None:
    """A stream, which aiohttp sends in pieces."""
    return None if body is None else BytesIO(body)


def quoted(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


class HttpClient:
    """One server, and the connections to it.

    Args:
        url: its address, `http://host:port`, with the path of a proxy if there is one.
        headers: sent with each request.
        token: sent with each request, but not to an address that a request is redirected to.
        ca: PEM file of the authority that signed the server's certificate, or an SSL context; None for the authorities
            that the system trusts.

    Attributes:
        url: as given.
        patience: as of `Service`.

    Raises:
        InvalidArgumentError: the address is invalid, or the file is not a certificate.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        ca: str | Path | ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.InvalidArgumentError(f"{url!r} is no address of a server: expected http://host:port")
        self.url = url.rstrip("/")
        self.patience = 0.0
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = bearer(token)
        self._ssl = ca if ca is None or isinstance(ca, ssl.SSLContext) else trusting(ca)
        self._client: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Accept requests of the running event loop."""
        if self._client is None:
            # No limit of connections, so that runs do not wait for runs: the server limits them.
            connector = aiohttp.TCPConnector(limit=0, ssl=True if self._ssl is None else self._ssl)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._client = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def look(self, path: str, accept: str = "application/json") -> bytes:
        """GET; sent again if a connection breaks.  Raises OpError."""
        return await self._request("GET", path, None, {"Accept": accept}, again=True)

    async def look_at(self, path: str) -> dict[str, Any]:
        """`look` for a JSON object."""
        return self.read_object(await self.look(path))

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """POST; sent once, unless its connection was refused, or it has a key.  Raises OpError."""
        return await self._request("POST", path, body, headers, again=KEY in headers)

    async def post_json(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(fields).encode()
        return self.read_object(await self.post(path, body, {"Content-Type": "application/json"}))

    async def post_message(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        return await self.post(path, body, {"Content-Type": PROTOBUF, **(headers or {})})

    async def delete(self, path: str, *, missing: bool = True) -> None:
        """DELETE; with `missing`, it is no error if there is nothing to delete.  Raises OpError."""
        with contextlib.suppress(*([errors.NotFoundError] if missing else [])):
            await self._request("DELETE", path, None, {}, again=True)

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, again: bool = False
    ) -> bytes:
        waits = pauses(self.patience)
        while True:
            try:
                return await self._once(method, path, body, headers)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                refused = isinstance(error, aiohttp.ClientConnectorError)
                pause = next(waits, None) if refused or again else None
                if pause is None:
                    raise self._unavailable(method, path, error, acted=not (refused or again)) from None
            except aiohttp.ClientError as error:
                raise self._unavailable(method, path, error, acted=True) from None
            except errors.UnavailableError as error:  # the server says so
                may_come_again = again or isinstance(error, NotBegunError)
                pause = next(waits, None) if may_come_again and self.patience else None
                if pause is None:
                    raise
            except _InProgressError:
                pause = _ASK_AGAIN_SECONDS
            await asyncio.sleep(pause)

    async def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        client = self._client
        if client is None:
            raise errors.FailedPreconditionError(f"The connection to {self.url} was closed")
        async with client.request(
            method, URL(self.url + path, encoded=True), data=_payload(body), headers=headers
        ) as response:
            data = await response.read()
            if response.status >= 400:
                raise self._error(response.status, data, f"{method} {path}")
            return data

    def _error(self, status: int, data: bytes, what: str) -> errors.OpError:
        """The error that an answer reports."""
        try:
            fields = json.loads(data)
            code = Code[fields["code"]]
            message = str(fields["error"])
        except (ValueError, KeyError, TypeError):
            text = data[:_MAX_TEXT].decode(errors="replace").strip()
            code, message = _CODES.get(status, Code.UNKNOWN), f"{self.url} answered {what} with {status}: {text}"
            return errors.from_code(code, message)
        reason = fields.get("reason")
        if reason == _IN_PROGRESS:
            return _InProgressError(message)
        error = with_reason(errors.from_code(code, message), str(reason))
        if isinstance(fields.get("node"), str):
            op = fields.get("op")
            error.attach_node(fields["node"], None if op is None else str(op))
        return error

    def _unavailable(self, method: str, path: str, error: Exception, *, acted: bool) -> errors.OpError:
        done = "; whether it was done is not known" if acted else ""
        return errors.UnavailableError(f"{method} {self.url}{path}: {error or type(error).__name__}{done}")

    def read_object(self, data: bytes) -> dict[str, Any]:
        """The JSON object of an answer.  Raises UnavailableError if it is not one."""
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise errors.UnavailableError(f"{self.url} is no server of sessions: it answered {data[:80]!r}")
        return value
