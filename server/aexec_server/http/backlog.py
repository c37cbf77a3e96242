"""`Backlog`: counts requests for runs that were read and have not begun; if the first waits for long, new ones are
refused unread.

`core/admission.py` refuses runs that would wait too long for a slot, and tells when every new run would.  Then requests
without a priority are refused unread, which costs a tenth of reading them.  Tiny runs do not wait for slots: reading
their requests takes the time, and only refusing some unread makes room.  Waiting time counts only while the event loop
turns, so that a suspended process does not make every request look late.  `MessageFollower` finds where requests begin,
and `PassedOver` where a refused one ends; `connections/guarded_connection.py` uses all three.
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

# Seconds that tiny runs may wait: many clients of a small graph are no overload.
_PATIENCE = 0.25
# While requests wait, the loop's turning is checked at this interval; at most this much counts between two checks.
_LOOK_SECONDS = 0.01
_MOST_SECONDS = 0.1

_RUN = re.compile(
    rb"POST /v1/sessions/[^/:? ]+:run[? ]|POST /v[12]/models/[^? ]*(?::predict|:classify|:regress|/infer)[? ]"
)


# May be a priority, in a header or in a body.
_PRIORITY = re.compile(rb"priority", re.IGNORECASE)


class Backlog:
    """Counts requests for runs that were read and have not begun, and says when new ones are refused unread.

    Args:
        clock: returns seconds.
        on_refused: called for each refused request.

    Attributes:
        refused: the number of refused requests so far.
        is_full: returns whether a run without priority would be refused behind a number of others.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, on_refused: Callable[[], object] = lambda: None) -> None:
        self._now = clock
        self._on_refused = on_refused
        # By connection: when the request came, the turning time then, and a function that tells whether it has ended.
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
        """True if a request for a run that begins with `data` is to be refused."""
        return self.is_too_long() or (self.is_full(len(self)) and _PRIORITY.search(data) is None)

    def is_too_long(self) -> bool:
        """True if the first request has waited for too long."""
        while self._waiting:
            transport, (came, since, has_ended) = next(iter(self._waiting.items()))
            if not has_ended():
                now = self._now()
                return now - came > _PATIENCE and self._pass_time(now) - since > _PATIENCE
            del self._waiting[transport]  # it was answered before it began, with an error
        return False

    def _pass_time(self, now: float) -> float:
        """The turning time in seconds: for how long the loop has turned while requests waited."""
        self._turning += min(now - self._turned_at, _MOST_SECONDS)
        self._turned_at = now
        return self._turning

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pass_time(self._now())
        self._looking = loop.call_later(_LOOK_SECONDS, self._look, loop) if self._waiting else None

    def refuse(self, transport: asyncio.Transport) -> None:
        """Send the refusal to a client."""
        self.refused += 1
        self._on_refused()
        transport.write(self._refusal)

    def arrived(self, transport: asyncio.BaseTransport, has_ended: Callable[[], bool]) -> None:
        """Count a request for a run that was read from a connection; `has_ended` tells whether it was answered."""
        now = self._now()
        if self._looking is None:
            self._turned_at = now
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(_LOOK_SECONDS, self._look, loop)
        self._waiting[transport] = now, self._turning, has_ended

    def arrival(self, transport: asyncio.BaseTransport | None) -> float:
        """Return when the present request of a connection was read, by the clock; now if it is not counted."""
        waiting = self._waiting.get(transport) if transport is not None else None
        return self._now() if waiting is None else waiting[0]

    def begun(self, transport: asyncio.BaseTransport | None) -> float:
        """Stop counting the request of a connection, which has begun, was answered, or is gone.

        Returns:
            As `arrival`.
        """
        waiting = self._waiting.pop(transport, None) if transport is not None else None
        return self._now() if waiting is None else waiting[0]


class MessageFollower:
    """Finds where requests begin on a connection of aiohttp's, as long as that is certain.

    It uses what aiohttp has parsed, which costs almost nothing, and parses nothing itself.

    Attributes:
        between: True if the next bytes begin a request.
    """

    __slots__ = ("_left", "_messages", "between")

    def __init__(self, handler: web.RequestHandler) -> None:
        self._messages = aiohttp_seam.parsed_messages(handler)
        self._left: int | None = 0  # bytes of the body that are still to come; None if unknown
        self.between = True

    def begins_run(self, data: bytes) -> bool:
        """True if a request for a run begins with `data`."""
        return self.between and _RUN.match(data) is not None

    def follow(self, data: bytes) -> None:
        """Account for the data that aiohttp was just given."""
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
        """The message that aiohttp has just read, if the data was exactly one whole message."""
        messages = self._messages
        message = messages[0][0] if self.between and len(messages) == 1 else None
        return message if isinstance(message, aiohttp_seam.RawRequestMessage) else None

    def _size(self, data: bytes) -> int | None:
        """The size of the request that begins with `data`; None if it is uncertain, or the head is incomplete."""
        messages = self._messages
        if len(messages) != 1:
            return None
        message = messages[0][0]
        if not isinstance(message, aiohttp_seam.RawRequestMessage) or message.chunked or message.upgrade:
            return None
        return data.index(b"\r\n\r\n") + 4 + int(message.headers.get(CONTENT_LENGTH, 0))


class PassedOver:
    """A refused request, which is skipped: made by `of` from its beginning; `take` skips data until it has `ended`."""

    __slots__ = ("_body",)

    def __init__(self, body: SizedBody) -> None:
        self._body = body

    @staticmethod
    def of(data: bytes) -> PassedOver | None:
        """The request that begins with `data`; None if its end is unknown, or something follows it."""
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
        """Skip data; return True if all of it belongs to the request."""
        return self._body.take(data)[1] == len(data)
