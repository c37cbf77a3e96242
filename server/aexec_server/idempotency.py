"""`AnsweredOnce`: requests with a key are carried out once, and answered again and again.

draft-ietf-httpapi-idempotency-key-header-07.  Such a request goes on if its client leaves, who will ask again: it is
refused as long as the first runs, and then gets its answer.  What was refused because there is too much to do was not
carried out, and is tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from aexec import errors
from aexec_server.bodies import beside, media_type
from aexec_server.callers import caller_of
from aexec_server.error_responses import RequestError, error_response
from aexec_server.stored_answer import StoredAnswer

__all__ = ["BEGUN", "AnsweredOnce"]

# Of an answer: what was asked for had begun when it failed.
BEGUN = web.ResponseKey("had it begun", bool)
_KEEP_SECONDS = 24 * 3600.0
_MAX_ENTRIES = 10_000
_HASH_NS = 2.0  # a byte
_TRY_AGAIN = (429, 503)

# Begins what goes on without the request that asked for it.
Begin = Callable[[Coroutine[Any, Any, web.Response], str], "asyncio.Task[web.Response]"]


@dataclass(slots=True)
class _Entry:
    """A request that was carried out, or is being; `answer` is None until then."""

    fingerprint: bytes
    began: float
    answer: StoredAnswer | None = None


class AnsweredOnce:
    """See the module's head.

    Args:
        most: bytes that the answers may take; older ones go for newer ones.
        clock: seconds.
        begin: begins what goes on without the request that asked for it.

    Attributes:
        num_bytes: that they take.
    """

    def __init__(self, most: int, clock: Callable[[], float], begin: Begin) -> None:
        self._begin = begin
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def answer(
        self, request: web.Request, key: str | None, body: bytes, work: Callable[[], Awaitable[web.Response]]
    ) -> web.Response:
        """The answer to a request: that of `work`, or the one that was given before.

        Args:
            key: chosen by the client; those of others are others.  None for no key, and an answer made anew.
            work: carries it out.  With a key it goes on if who awaits this is cancelled.

        Raises:
            AbortedError: the same request is being carried out.
            RequestError: 422: there was another request of that key.
        """
        if key is None:
            return await work()
        name, fingerprint = await beside(len(body) * _HASH_NS, lambda: _digests(request, key, body))
        entry = self._entries.get(name)
        if entry is not None and entry.answer is not None and self._clock() - entry.began > _KEEP_SECONDS:
            self._forget(name)
            entry = None
        if entry is None:
            entry = self._entries[name] = _Entry(fingerprint, self._clock())
            self._make_room()
            return await asyncio.shield(
                self._begin(self._carry_out(request, name, entry, work), "a request with a key")
            )
        if entry.fingerprint != fingerprint:
            raise RequestError(
                422, "There was another request with this Idempotency-Key: take a new key for a new request"
            )
        if entry.answer is None:
            raise errors.AbortedError("The request of this Idempotency-Key is being carried out: ask again later")
        return entry.answer.response({"Idempotent-Replayed": "true"})

    async def _carry_out(
        self, request: web.Request, name: bytes, entry: _Entry, work: Callable[[], Awaitable[web.Response]]
    ) -> web.Response:
        try:
            response = await work()
            begun = response.get(BEGUN, True)
        except errors.OpError as error:
            response, begun = error_response(request, error), False
        except BaseException:
            del self._entries[name]
            raise
        if response.status in _TRY_AGAIN and not begun:
            del self._entries[name]
            return response
        answer = StoredAnswer.of(response)
        if answer.size > self._most:
            answer = StoredAnswer.of(
                error_response(
                    request,
                    errors.FailedPreconditionError(
                        f"It was carried out, but its answer of {answer.size} bytes is more than is kept"
                    ),
                )
            )
        entry.answer = answer
        self.num_bytes += answer.size
        self._make_room()
        return response

    def _make_room(self) -> None:
        """Forget the oldest answers."""
        for name, entry in list(self._entries.items()):
            if self.num_bytes <= self._most and len(self._entries) <= _MAX_ENTRIES:
                return
            if entry.answer is not None:
                self._forget(name)

    def _forget(self, name: bytes) -> None:
        answer = self._entries.pop(name).answer
        assert answer is not None
        self.num_bytes -= answer.size


def _digests(request: web.Request, key: str, body: bytes) -> tuple[bytes, bytes]:
    """Of what makes two requests the same one, and of what they ask for."""
    who = caller_of(request).name
    named = "\0".join([who, request.method, request.path_qs, key])
    asked = hashlib.sha256(
        f"{media_type(request)}\0{request.headers.get('Inference-Header-Content-Length')}\0".encode()
    )
    asked.update(body)
    return hashlib.sha256(named.encode()).digest(), asked.digest()
