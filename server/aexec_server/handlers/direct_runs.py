"""`DirectRuns`: answers small runs where the bytes of their requests are read.

Most requests to a model server have the same head as the one before, a body that came with it, and a step that takes
some microseconds. The task, request, route and response of aiohttp cost several times as much as the step. Therefore
this class remembers what aiohttp's parser made of a head. When the same bytes come again, with the whole body, it
decodes and runs the request and writes the answer at once: a direct run.  If the session is durable, the run ends at
once, too, and its answer is written when a commit has what it tells of (`unwritten_answers.py`).

Every other request goes to aiohttp unchanged: one with an unknown head or with preferences, one with a wrong body, and
one whose run would have to wait for a slot.  If a step turns out not to end at once, `RunHandlers.begin_early` keeps
it, and the ordinary handler continues it.  Next to read: `connections/guarded_connection.py`, which calls this.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.hdrs import ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY
from multidict import CIMultiDictProxy

from aexec.hosting import loop_budget
from aexec_server import aiohttp_seam
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Caller
from aexec_server.core.access_log import log_access
from aexec_server.core.direct_call import DirectCall, DirectRun
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.handlers.run_execution import run_options
from aexec_server.handlers.runs import RunHandlers
from aexec_server.handlers.unwritten_answers import EndedRun, UnwrittenAnswer, UnwrittenAnswers
from aexec_server.http.compression import INLINE_BYTES, LEAST_BYTES, coding_of, compressed
from aexec_server.requests.run_response import JSON_LENGTH, check_answer_size
from aexec_server.requests.run_table import RUN_ID, StartedRun
from aexec_server.requests.served_call import ServedCall
from aexec_server.requests.tensors import size_of, write_ns

__all__ = ["DIRECT_RUNS", "DirectRuns", "Fate"]

# Requests with any other header are left to aiohttp.
_DIRECT_HEADERS = frozenset(
    (
        "accept",
        "accept-encoding",
        "accept-language",
        "aexec-caller",
        "authorization",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "host",
        "inference-header-content-length",
        "origin",
        "pragma",
        "referer",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "user-agent",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
    )
)
_MAX_HEAD = 2048
# Number of heads remembered; as many older ones are kept until they are used, or replaced.
_MAX_KNOWN = 512
_BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class _Known:
    """A head that has come before.

    Attributes:
        call: what it asks for.
        length: of its body.
        headers: its headers, from which the caller is identified.
        caller: the caller named by a front; None if the caller is identified anew at each request.
        coding, binary_coding: compression of answers in JSON, and of those with binary tensors; None for none.
        path: for the log.
    """

    call: DirectCall
    length: int
    headers: CIMultiDictProxy[str]
    caller: Caller | None
    coding: str | None
    binary_coding: str | None
    path: str


class Fate(enum.Enum):
    """The fate of a request: it was answered, goes to aiohttp, is tried again in its turn, or was carried out, and its
    answer waits for the disk.
    """

    ANSWERED = enum.auto()
    ORDINARY = enum.auto()
    LATER = enum.auto()
    SETTLING = enum.auto()


class DirectRuns:
    """Answers requests for small runs where their bytes are read; leaves all others to aiohttp.

    Args:
        server: the server.
        runs: the handlers of its runs.
        routes: all routes.

    Attributes:
        turns: shares the turns of the loop among requests that come at once.
    """

    def __init__(self, server: Server, runs: RunHandlers, routes: Iterable[Route]) -> None:
        self._server = server
        self._runs = runs
        self.turns = runs.turns
        self._access = server.access
        self._most = server.config.max_body_bytes
        self._most_answer = server.config.max_answer_bytes
        self._calls = [(r.expression, r.direct) for r in routes if r.direct is not None]
        self._passed_on: set[asyncio.BaseTransport] = set()
        self._unwritten = UnwrittenAnswers(server, runs)
        self._known: dict[bytes, _Known] = {}
        self._known_before: dict[bytes, _Known] = {}

    @staticmethod
    def of(app: web.Application) -> DirectRuns | None:
        """Return the application's instance; None if a middleware or a signal has to see all requests or answers.

        None too if aiohttp lacks the parts that it needs.
        """
        own = len(app.middlewares) == 1 and not app.on_response_prepare
        return app[DIRECT_RUNS] if own and aiohttp_seam.can_answer_runs else None

    # Heads

    def learn(self, data: bytes, message: RawRequestMessage) -> None:
        """Remember the head of a request.  `data` holds the whole request, of which aiohttp's parser made `message`.

        The body must not have chunked coding.
        """
        size = data.index(b"\r\n\r\n") + 4
        if size > _MAX_HEAD or data[:size] in self._known:
            return
        try:
            known = self._read(message)
        except Exception:  # the ordinary handler reports the error
            return
        if known is not None:
            self._remember(data[:size], known)

    def _remember(self, head: bytes, known: _Known) -> None:
        if len(self._known) >= _MAX_KNOWN:
            self._known_before, self._known = self._known, {}
        self._known[head] = known

    def _read(self, message: RawRequestMessage) -> _Known | None:
        names = [name.lower() for name in message.headers]
        if message.version != HttpVersion11 or message.should_close or message.compression or message.upgrade:
            return None
        if len(set(names)) != len(names) or not _DIRECT_HEADERS.issuperset(names):
            return None
        self._access.site.check(message)
        call = self._call(message)
        accepted = message.headers.get(ACCEPT_ENCODING)
        if call is None:
            return None
        coding = binary_coding = None
        if call.compresses and accepted is not None:
            coding, binary_coding = coding_of(accepted, binary=False), coding_of(accepted, binary=True)
        length = int(message.headers.get(CONTENT_LENGTH, 0))
        caller = self._access.caller(message.headers) if self._access.front_says else None
        return _Known(call, length, message.headers, caller, coding, binary_coding, message.path)

    def _call(self, message: RawRequestMessage) -> DirectCall | None:
        for pattern, make in self._calls:
            match = pattern.fullmatch(message.path)
            if match is not None:
                return make(match.groupdict(), message)
        return None

    # Requests

    def answer(
        self,
        transport: asyncio.Transport,
        data: bytes,
        arrival: float,
        *,
        again: bool,
        on_settled: Callable[[bool], object],
    ) -> Fate:
        """Answer a request, or leave it to the ordinary handler, for which its run may already have begun.

        Args:
            transport: of a connection without a request under way.
            data: the data received, which begins with a request.
            arrival: when it came, by `time.monotonic`.
            again: True if the request was told to wait, and its turn has come.
            on_settled: called at the end of `SETTLING`: with True if the answer was written, with False if the request
                goes to aiohttp now.  Not called if `go_on_ordinarily` or `ended` comes first.
        """
        size = data.find(b"\r\n\r\n") + 4
        head = data[:size]
        known = self._known.get(head)
        if known is None:
            known = self._known_before.pop(head, None)
            if known is None:
                return Fate.ORDINARY
            self._remember(head, known)
        if len(data) - size != known.length or known.length > self._most or transport.get_write_buffer_size():
            return Fate.ORDINARY
        runs = self._runs
        if self._server.leaving or runs.execution.sample_is_due:
            return Fate.ORDINARY
        loop = asyncio.get_running_loop()
        if perf_counter() >= (self.turns.open(loop) if again else self.turns.enter(loop)):
            return Fate.LATER
        try:
            caller = known.caller or self._access.caller(known.headers)
            if caller is None or caller.quotas.runs is not None:
                return Fate.ORDINARY
            run = known.call.read(data[size:], caller)
            if run is None:
                return Fate.ORDINARY
            hosted, asked = run.hosted, run.asked
            served = hosted.served(asked, by_admin=caller.is_admin)
            if not (hosted.runs_at_once(served) and runs.admission.passes(hosted)):
                return Fate.ORDINARY
            run.check(served)
            fed = asked.values(served.inputs, served.input_dtypes)
            deadline = runs.execution.deadline(hosted.session, asked, arrival)
            options = run_options(asked, deadline, trace=asked.trace)
            decoded = time.monotonic()
            if deadline is not None and decoded >= deadline:
                return Fate.ORDINARY
            begun = served.call.begin_at_once(*fed, options=options)
        except Exception:  # the ordinary handler reports the error
            return Fate.ORDINARY
        if begun is None:  # for example because another session has used up the slice
            return Fate.ORDINARY if again or served.call.line is None else Fate.LATER
        values, step, rest = begun
        if rest is None:
            ran = time.monotonic()
            run_id = hosted.runs.add_ended(hosted.runs_owner(caller))
            answer = self._written(known, run_id, run, served, values)
            if answer is not None:
                ended = EndedRun(hosted, caller, StartedRun(served, values, None, None), run_id, arrival, deadline)
                run.passed(arrival, decoded, ran)
                return self._send(transport, known, answer, ended, on_settled)
        caller = self._access.located(caller, transport, known.headers)
        runs.begin_early(transport, hosted, caller, arrival, deadline, StartedRun(served, values, step, rest))
        return Fate.ORDINARY

    def _send(
        self,
        transport: asyncio.Transport,
        known: _Known,
        answer: bytes,
        ended: EndedRun,
        on_settled: Callable[[bool], object],
    ) -> Fate:
        """Write an answer, or have it written when the disk has what it tells of."""
        waits = ended.hosted.ended_at_once(ended.run.served)
        if waits is not None:
            ended.caller = self._access.located(ended.caller, transport, known.headers)
            self._unwritten.add(transport, UnwrittenAnswer(answer, known.path, ended, on_settled), waits)
            return Fate.SETTLING
        transport.write(answer)
        seconds = time.monotonic() - ended.arrival
        self._runs.execution.passed(ended.hosted, ended.run_id, seconds)
        if self._server.config.access_log:
            log_access("POST", known.path, 200, seconds, ended.run_id)
        return Fate.ANSWERED

    def _written(self, known: _Known, run_id: str, run: DirectRun, served: ServedCall, values: Any) -> bytes | None:
        """Return the whole answer; None if writing it takes too long or fails."""
        size, nanoseconds = 0, 0.0
        for value in values:
            size += size_of(value)
            nanoseconds += write_ns(value, binary=False)
        if not loop_budget.DEFAULT.allows(nanoseconds):
            return None
        try:
            check_answer_size(size, self._most_answer)
            written, json_length = run.write(run_id, served, values)
            body = bytes(written)
        except Exception:  # the ordinary handler reports the error
            return None
        more = ""
        if json_length is None:
            media, coding = known.call.media, known.coding
        else:
            media, coding = _BINARY, known.binary_coding
            more = f"{JSON_LENGTH}: {json_length}\r\n"
        if coding is not None and len(body) >= LEAST_BYTES:
            if len(body) > INLINE_BYTES:
                return None
            body = compressed(body, coding)
            more += f"{CONTENT_ENCODING}: {coding}\r\n{VARY}: {ACCEPT_ENCODING}\r\n"
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n{more}{RUN_ID}: {run_id}\r\nContent-Length: {len(body)}\r\n"
            f"Date: {aiohttp_seam.http_date()}\r\nServer: {aiohttp_seam.SERVER_SOFTWARE}\r\n\r\n"
        )
        return head.encode() + body

    # State of aiohttp's handlers

    def go_on_ordinarily(self, transport: asyncio.BaseTransport) -> None:
        """Leave the answer that waits for the disk to the ordinary handler, which is about to get its request."""
        self._unwritten.pass_on(transport)

    def passed_on(self, transport: asyncio.BaseTransport) -> None:
        """Note that aiohttp answers a request of this connection."""
        self._passed_on.add(transport)

    def is_over(self, transport: asyncio.BaseTransport) -> bool:
        """True if the handler of the connection's last request has ended."""
        return transport not in self._passed_on

    def ended(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the handler has ended or the connection is closed: a run begun for its request is stopped."""
        if transport is not None:
            self._passed_on.discard(transport)
            if self._unwritten.waiting:
                self._unwritten.drop(transport)
            self._runs.drop_early(transport)


DIRECT_RUNS: web.AppKey[DirectRuns] = web.AppKey("direct_runs", DirectRuns)
