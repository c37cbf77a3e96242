"""`AnswerDoor`: sends every answer that may be large.

Handlers pass answers made from a session's contents (a graph, a kept tensor, a trace, a list) to `send` as an iterator
of small parts.  Up to `PIECE` bytes are an ordinary answer.  A larger answer takes a *place*, of which there are
`ServerConfig.max_answers`, and is sent with chunked coding while it is made.  A part is made when the client has taken
the earlier ones, so an answer takes `_WINDOW` bytes of memory, however large it is.  One thread at a time makes parts:
all need the interpreter's lock, and more threads would only keep it from the event loop.  Clients get it in turn.

An answer that is made as a whole, such as a run's, counts as long as any of it is in memory (`reserve`, `check_out`),
and is written in pieces, too.  A client must take each piece within `ServerConfig.slow_seconds`.  Otherwise its
connection is closed, which frees place and memory, so that a client that does not read keeps nothing for long.

Next to read: `answer_parts.py`, which writes whole answers in pieces.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from time import perf_counter

from aiohttp import web
from aiohttp.hdrs import CONTENT_TYPE, METH_GET, METH_HEAD

from aexec import errors
from aexec.hosting import MemoryAccount, OnCancel, forget_frames, loop_budget, run_in_thread
from aexec_server.clients.callers import CALLER
from aexec_server.clients.client_shares import ClientShares
from aexec_server.clients.client_turns import ClientTurns
from aexec_server.handles import shortened
from aexec_server.http.answer_parts import PIECE, AnswerParts, slices, taking
from aexec_server.http.error_responses import say_ids
from aexec_server.settings.server_config import ServerConfig

__all__ = ["AnswerDoor", "Holding", "Part"]

logger = logging.getLogger(__name__)

Part = str | bytes | memoryview
# See `AnswerDoor.holding`.
Holding = Callable[[int], AbstractContextManager[object]]

# The memory of an answer that is sent in pieces: the parts of a piece, the piece, and the connection's buffer.
_WINDOW = 8 * PIECE
_LOOKING = (METH_GET, METH_HEAD)
_RESERVED = web.ResponseKey("gives its memory back", weakref.finalize)


class AnswerDoor:
    """Sends answers that may be large: in chunks while they are made, a bounded number at a time.

    Args:
        config: the server's settings.
        memory: the account of all sessions, in which answers count.

    Attributes:
        shares: the clients' shares of the places.
    """

    def __init__(self, config: ServerConfig, memory: MemoryAccount) -> None:
        self.shares = ClientShares("answers", "large answers that are being sent", config.max_answers)
        self._patience = config.slow_seconds
        self._most = config.max_answer_bytes
        self._memory = memory
        self._turns = ClientTurns()

    # Answers in pieces

    async def send(
        self,
        request: web.Request,
        parts: Iterable[Part],
        content_type: str,
        *,
        headers: dict[str, str] | None = None,
        length: int | None = None,
        in_thread: bool = True,
    ) -> web.StreamResponse:
        """Answer with these parts, one after another; makes none for HEAD.

        Args:
            parts: the parts; a thread makes them, and calls `let_others_run` between them.
            length: the bytes of all parts together, if known.
            in_thread: False for parts that take almost no time, or must be made on the event loop; then each takes less
                than a slice.

        Raises:
            ResourceExhaustedError: there is no place, or not enough memory.
            ConnectionError: the client has left or was too slow, or making a part failed after others were sent.
        """
        said = {**(headers or {}), CONTENT_TYPE: content_type}
        if request.method == METH_HEAD:
            if length is not None:
                said["Content-Length"] = str(length)
            return web.Response(headers=said)
        pieces, client = _Pieces(parts), request[CALLER].client
        first = await self._made(pieces, client, in_thread=in_thread)
        if pieces.ended:
            return web.Response(body=first, headers=said)
        with self._place(request), self.holding(_WINDOW):
            response = web.StreamResponse(headers=said)
            response.content_length = length
            say_ids(request, response)
            await response.prepare(request)
            with _cut_off_by_errors(request):
                await self._write(response, request, first)
                while not pieces.ended:
                    await self._write(response, request, await self._made(pieces, client, in_thread=in_thread))
                async with taking(request.transport, self._patience):
                    await response.write_eof()
        return response

    async def write(
        self, response: web.StreamResponse, request: web.Request, parts: Iterable[Part], *, nanoseconds: float
    ) -> None:
        """Write parts of an answer that has begun, such as events, which need no place.

        Args:
            nanoseconds: the time that making them takes.

        Raises:
            ConnectionError: as `send`.
        """
        pieces, in_thread = _Pieces(parts), not loop_budget.DEFAULT.allows(nanoseconds)
        client = request[CALLER].client
        with _cut_off_by_errors(request):
            first = await self._made(pieces, client, in_thread=in_thread)
            with self.holding(0 if pieces.ended else _WINDOW):
                await self._write(response, request, first)
                while not pieces.ended:
                    await self._write(response, request, await self._made(pieces, client, in_thread=in_thread))

    async def whole(self, parts: Iterable[Part], *, client: str, in_thread: bool = True) -> tuple[bytes, object]:
        """Join the parts of an answer that has to be one message.

        Args:
            parts, in_thread: as of `send`.
            client: whom the message is for, `Caller.client`.

        Returns:
            The answer, and what counts its memory as long as it is kept.

        Raises:
            ResourceExhaustedError: it is larger than answers may be, or there is not enough memory.
        """
        pieces, made, counted, size = _Pieces(parts), [], [], 0
        while not pieces.ended:
            made.append(await self._made(pieces, client, in_thread=in_thread))
            size += len(made[-1])
            if size > self._most:
                raise errors.ResourceExhaustedError(f"The answer would have more than {self._most} bytes, the limit")
            if size > PIECE:
                counted.append(_Reservation(self._memory, len(made[-1])))
        return b"".join(made), counted

    async def _write(self, response: web.StreamResponse, request: web.Request, piece: bytes) -> None:
        async with taking(request.transport, self._patience):
            await response.write(piece)

    async def _made(self, pieces: _Pieces, client: str, *, in_thread: bool) -> bytes:
        if not in_thread:
            return await pieces.take_on_loop()
        async with self._turns.turn(client):
            return await run_in_thread(pieces.take, on_cancel=OnCancel.ABANDON)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Context manager: count bytes of memory inside.  Raises ResourceExhaustedError if they exceed the limit."""
        self._memory.reserve(size)
        try:
            yield
        finally:
            self._memory.give_back(size)

    @contextmanager
    def _place(self, request: web.Request) -> Iterator[None]:
        caller = request[CALLER]
        self.shares.take(caller)
        try:
            yield
        finally:
            self.shares.give_back(caller.client)

    # Answers that are made whole

    def reserve(self, size: int) -> Callable[[web.Response], web.Response]:
        """Count the memory that a large answer will take, until it is sent or dropped.

        Returns:
            A function to call with the answer.  If it is never called, dropping it gives the memory back.

        Raises:
            ResourceExhaustedError: the answer exceeds the limit.
        """
        return _Reservation(self._memory, size) if size > PIECE else _as_it_is

    def check_out(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """The answer to send for a handler's: a large one is counted, unless it is already, and written in pieces.

        Raises:
            ResourceExhaustedError: the answer to a request that changes nothing exceeds the memory limit.  Requests
                that change something are always answered; their large answers are counted before the change.
        """
        body = response.body if isinstance(response, web.Response) else None
        if not isinstance(body, bytes | AnswerParts) or len(body) <= PIECE:
            return response
        assert isinstance(response, web.Response)
        if _RESERVED not in response:
            with suppress(*(() if request.method in _LOOKING else (errors.ResourceExhaustedError,))):
                self.reserve(len(body))(response)
        if isinstance(body, bytes):
            response.body = body = AnswerParts([body])
        body.patience = self._patience
        if _RESERVED in response:
            body.when_sent = response[_RESERVED]
        return response


def _as_it_is(response: web.Response) -> web.Response:
    """Return a small answer as it is, uncounted."""
    return response


class _Reservation:
    """Reserved bytes of an account; see `AnswerDoor.reserve`."""

    def __init__(self, memory: MemoryAccount, size: int) -> None:
        memory.reserve(size)
        self._given_back = weakref.finalize(self, memory.give_back, size)
        self._given_back.atexit = False

    def __call__(self, response: web.Response) -> web.Response:
        """Tie the bytes to an answer: they are given back once it is sent or dropped."""
        found = self._given_back.detach()
        if found is not None:
            _, give_back, args, _ = found
            response[_RESERVED] = kept = weakref.finalize(response, give_back, *args)
            kept.atexit = False
        return response


class _Pieces:
    """Joins parts to pieces.

    Attributes:
        ended: True when all parts were taken.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = _sliced(parts)
        self.ended = False

    def take(self) -> bytes:
        """Return the next piece, or the rest.  Other threads get their turn once in a slice."""
        taken: list[bytes | memoryview] = []
        while not self._add(taken):
            loop_budget.let_others_run()
        return b"".join(taken)

    async def take_on_loop(self) -> bytes:
        """Like `take`, on an event loop."""
        taken: list[bytes | memoryview] = []
        while not self._add(taken):
            await asyncio.sleep(0)
        return b"".join(taken)

    def _add(self, taken: list[bytes | memoryview]) -> bool:
        """Add parts for the time of a slice; return True if they make a piece."""
        began, size = perf_counter(), sum(map(len, taken))
        for data in self._parts:
            taken.append(data)
            size += len(data)
            if size >= PIECE:
                return True
            if perf_counter() - began > loop_budget.SLICE_SECONDS:
                return False
        self.ended = True
        return True


def _sliced(parts: Iterable[Part]) -> Iterator[bytes | memoryview]:
    """Yield the parts, cut so that none is larger than a piece."""
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        if len(data) <= PIECE:
            yield data
        else:
            yield from slices(data, PIECE)


@contextmanager
def _cut_off_by_errors(request: web.Request) -> Iterator[None]:
    """Context manager: an error closes the connection of an answer that has begun, the only way to tell the client."""
    try:
        yield
    except ConnectionError:
        raise
    except Exception as error:
        why = error.code.name if isinstance(error, errors.OpError) else "a fault of the server"
        fault = None if isinstance(error, errors.OpError) else error
        logger.error("%s %s was cut off: %s", request.method, shortened(request.path), why, exc_info=fault)
        if request.transport is not None:
            request.transport.abort()
        forget_frames(error)
        raise ConnectionResetError("The answer could not be made to its end") from error
