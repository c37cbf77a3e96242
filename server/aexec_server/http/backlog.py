"""`Backlog`: requests for runs that were read and have not begun; where the first of them waits for long, new ones are
refused before anything is made of them.

`core/admission.py` refuses runs that would wait for a slot for too long, and says when all would: then those that ask
for no priority are refused unread, which costs a tenth.  Where runs take next to nothing, no slot is waited for, and
reading requests is what takes the time: then only what is refused unread makes room.  How long a request has waited is
counted by the time in which the event loop came round: while the process had no processor, say, nobody could begin, and
what waits after that is soon done with.  `MessageFollower` knows where
requests begin, and `PassedOver` where one ends that is refused; `connections/guarded_connection.py` uses all.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from time import monotonic

from aiohttp import web
from aiohttp.hdrs import CONTENT_LENGTH

from aexec import errors
from aexec_server import aiohttp_seam
from aexec_server.http.error_responses import error_body, status_of, title_of
from aexec_server.http.framing import FramingError, SizedBody, read_request_head

__all__ = ["Backlog", "MessageFollower", "PassedOver"]

# As long may runs wait that take next to nothing: many clients of a small graph are no overload.
_PATIENCE = 0.25
# While any wait it is looked so often whether the loop comes round; of what passes between two looks so much counts.
_LOOK_SECONDS = 0.01
_MOST_SECONDS = 0.1

_RUN = re.compile(
    rb"POST /v1/sessions/[^/:? ]+:run[? ]|POST /v[12]/models/[^? ]*(?::predict|:classify|:regress|/infer)[? ]"
)


# What may be the wish for a priority, in a header or in a body.
_PRIORITY = re.compile(rb"priority", re.IGNORECASE)


class Backlog:
    """Counts requests for runs that were read and have not begun, and says when new ones are refused unread.

    Args:
        clock: seconds.
        on_refused: called for each request that is refused.

    Attributes:
        refused: how many were refused so far.
        is_full: would a run of no priority be refused with so many before it?
    """

    def __init__(self, clock: Callable[[], float] = monotonic, on_refused: Callable[[], object] = lambda: None) -> None:
        self._now = clock
        self._on_refused = on_refused
        # When each came, what the turning time was then, and whether it is over.
        self._waiting: dict[asyncio.BaseTransport, tuple[float, float, Callable[[], bool]]] = {}
        self._turning, self._turned_at = 0.0, clock()
        self._looking: asyncio.TimerHandle | None = None
        self.refused = 0
        self.is_full: Callable[[int], bool] = lambda before: False
        error = errors.ResourceExhaustedError(
            "The server has more to do than it can: requests before this one have not begun. Try again later"
        )
        body = json.dumps(error_body(error, "/")).encode()
        head = (
            f"HTTP/1.1 {status_of(error)} {title_of(error.code)}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nRetry-After: 1\r\n\r\n"
        )
        self._refusal = head.encode() + body

    def __len__(self) -> int:
        return len(self._waiting)

    def refuses(self, data: bytes) -> bool:
        """Is a request for a run that begins with this to be refused?"""
        return self.is_too_long() or (self.is_full(len(self)) and _PRIORITY.search(data) is None)

    def is_too_long(self) -> bool:
        """Has the first of them waited for too long?"""
        while self._waiting:
            transport, (came, since, has_ended) = next(iter(self._waiting.items()))
            if not has_ended():
                now = self._now()
                return now - came > _PATIENCE and self._pass_time(now) - since > _PATIENCE
            del self._waiting[transport]  # it was answered before it began, with an error
        return False

    def _pass_time(self, now: float) -> float:
        """The turning time, in seconds: how long the loop has come round while requests waited."""
        self._turning += min(now - self._turned_at, _MOST_SECONDS)
        self._turned_at = now
        return self._turning

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pass_time(self._now())
        self._looking = loop.call_later(_LOOK_SECONDS, self._look, loop) if self._waiting else None

    def refuse(self, transport: asyncio.Transport) -> None:
        """Tell a client so."""
        self.refused += 1
        self._on_refused()
        transport.write(self._refusal)

    def arrived(self, transport: asyncio.BaseTransport, has_ended: Callable[[], bool]) -> None:
        """A request for a run was read from this connection; `has_ended` says that it was answered."""
        now = self._now()
        if self._looking is None:
            self._turned_at = now
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(_LOOK_SECONDS, self._look, loop)
        self._waiting[transport] = now, self._turning, has_ended

    def arrival(self, transport: asyncio.BaseTransport | None) -> float:
        """When the request that a connection is at was read, by the clock: now, for one that was not said to be."""
        waiting = self._waiting.get(transport) if transport is not None else None
        return self._now() if waiting is None else waiting[0]

    def begun(self, transport: asyncio.BaseTransport | None) -> None:
        """The request of a connection is carried out, was answered, or is not there any more."""
        if transport is not None:
            self._waiting.pop(transport, None)


class MessageFollower:
    """Where on a connection of aiohttp's one request ends and the next begins, as long as that is plain.

    It goes by what aiohttp has read, which costs next to nothing, and not by a reading of its own.

    Attributes:
        between: what comes next begins a request.
    """

    __slots__ = ("_left", "_messages", "between")

    def __init__(self, handler: web.RequestHandler) -> None:
        self._messages = aiohttp_seam.parsed_messages(handler)
        self._left: int | None = 0  # bytes of a body that are to come; None when that is not known any more
        self.between = True

    def begins_run(self, data: bytes) -> bool:
        """Does a request for a run begin with this?"""
        return self.between and _RUN.match(data) is not None

    def follow(self, data: bytes) -> None:
        """Take note of what aiohttp was given just now."""
        if self._left is None:
            return
        self._left = self._size(data) if self.between else self._left
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:  # bytes of the next one: aiohttp keeps what it has of it
                self._left = None
        self.between = self._left == 0

    @property
    def read_just_now(self) -> aiohttp_seam.RawRequestMessage | None:
        """The message that aiohttp has read, if it was one and all of it, and that is all that there is."""
        messages = self._messages
        message = messages[0][0] if self.between and len(messages) == 1 else None
        return message if isinstance(message, aiohttp_seam.RawRequestMessage) else None

    def _size(self, data: bytes) -> int | None:
        """Of the request that begins here; None if it is not plain, or its head is not all there."""
        messages = self._messages
        if len(messages) != 1:
            return None
        message = messages[0][0]
        if not isinstance(message, aiohttp_seam.RawRequestMessage) or message.chunked or message.upgrade:
            return None
        return data.index(b"\r\n\r\n") + 4 + int(message.headers.get(CONTENT_LENGTH, 0))


class PassedOver:
    """A request that nobody reads: `of` its beginning, then `take` what comes until it has `ended`."""

    __slots__ = ("_body",)

    def __init__(self, body: SizedBody) -> None:
        self._body = body

    @staticmethod
    def of(data: bytes) -> PassedOver | None:
        """None if it cannot be told where the request ends, or something comes after it."""
        try:
            head = read_request_head(data[: data.index(b"\r\n\r\n") + 4])
        except (ValueError, FramingError):
            return None
        request = PassedOver(head.body) if isinstance(head.body, SizedBody) else None
        return request if request is not None and request.take(data[head.size :]) else None

    @property
    def ended(self) -> bool:
        return self._body.ended

    def take(self, data: bytes) -> bool:
        """Is all of this the request's?"""
        return self._body.take(data)[1] == len(data)
