"""The contract of an engine, by which the processes of a cluster talk, and what all engines have in common.

An engine is one end: the client has one, and each worker.  `workers` lists the workers; `call` sends a message and
waits for the answer; `push` sends a message without waiting; `cancel` is never delayed by other messages; and `on_lost`
reports an end that will not answer any more.  A handler must not wait long: it begins long work, answers, and pushes
the outcome.

`DeliveringEngine` is the common part: each message is numbered, sent again until it is answered, and handled once.  An
end that has answered nothing for as long as its *lease* is lost, until it is readmitted or heard of.  So a message that
is lost, late or duplicated changes nothing, and nothing waits for a dead end. `memory_engine.py` and
`dask/dask_engine.py` are two that carry the messages.
"""

from __future__ import annotations

import abc
import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from aexec.distributed.cluster_messages import Message, error_fields, error_from
from aexec.framework import errors

__all__ = ["DeliveringEngine", "Engine", "Envelope", "Handler"]

# Called with the sender's address, the verb and the message; returns the answer.  It must not wait.
Handler = Callable[[str, str, Message], Awaitable["Message | None"]]
OnLost = Callable[[str, str], object]


class Engine(Protocol):
    """One end of a cluster's connections.  All methods are called on its event loop.

    Attributes:
        address: its own address, by which others reach it.
    """

    address: str

    async def workers(self) -> Sequence[str]:
        """The addresses of the present workers, in the engine's order.

        Raises:
            UnavailableError: the process that lists them does not answer.
        """
        ...

    async def call(self, address: str, verb: str, message: Message) -> Message:
        """Send a message and wait for the answer.

        Raises:
            UnavailableError: the other end is lost.
            OpError: the error that its handler raised.
        """
        ...

    def push(self, address: str, verb: str, message: Message) -> None:
        """Send a message without waiting; if it cannot be delivered, `on_lost` reports it."""
        ...

    def cancel(self, address: str, message: Message) -> None:
        """Cancel a step; not delayed by other messages to that address."""
        ...

    def on_lost(self, callback: OnLost) -> None:
        """Call `callback(address, reason)` for each end that is lost."""
        ...

    def readmit(self, address: str) -> None:
        """Accept that a new end is at an address; otherwise a lost address stays lost."""
        ...

    async def close(self) -> None:
        """Send nothing any more, and end the waits for answers."""
        ...


# One sending of a message: the sender, its number, the oldest number without an answer, the verb, and the message.
Envelope = tuple[str, int, int, str, Message]


class DeliveringEngine(abc.ABC):
    """The common part of engines: numbers messages, sends them again, handles each once, and detects lost ends.

    Args:
        address: its own address.
        handler: called once for each message; None for an end that only asks.
        lease: seconds without an answer after which an end is lost.
        retry: seconds after which a message is sent again; None if only a broken connection loses messages.
    """

    def __init__(self, address: str, handler: Handler | None, *, lease: float, retry: float | None) -> None:
        self.address = address
        self._handler = handler
        self._lease, self._retry = lease, retry
        # Unique, so that the numbers of a new end at the same address are not mistaken for the old one's.
        self._sender = f"{address}#{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._waiting: dict[str, set[int]] = {}
        self._answers: dict[str, dict[int, asyncio.Future[Message]]] = {}
        self._answered_below: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._lost: dict[str, str] = {}
        # Address → the time limits of the messages that are being sent there.
        self._sending: dict[str, set[asyncio.Timeout]] = {}
        self._told_of_lost: list[OnLost] = []
        self._pushes: set[asyncio.Task[None]] = set()
        self._closed = False

    @abc.abstractmethod
    async def workers(self) -> Sequence[str]:
        """Like `Engine.workers`."""

    @abc.abstractmethod
    async def exchange(self, address: str, envelope: Envelope) -> Message:
        """Send a message once and wait for the answer, for as long as it takes.

        Raises:
            ConnectionError: the message or the answer may not have arrived.
        """

    async def call(self, address: str, verb: str, message: Message) -> Message:
        """Like `Engine.call`."""
        number = next(self._numbers)
        waiting = self._waiting.setdefault(address, set())
        waiting.add(number)
        try:
            answer = await self._delivered(address, number, verb, message)
        finally:
            waiting.discard(number)
        if "error" in answer.fields:
            raise error_from(answer.fields["error"])
        return answer

    async def _delivered(self, address: str, number: int, verb: str, message: Message) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            if self._closed:
                raise errors.UnavailableError(f"{verb}: this end is closed")
            if address in self._lost:
                raise errors.UnavailableError(f"{address} is lost: {self._lost[address]}")
            envelope = (self._sender, number, min(self._waiting[address]), verb, message)
            scope = asyncio.timeout(self._retry)
            try:
                async with scope:
                    self._sending.setdefault(address, set()).add(scope)
                    answer = await self.exchange(address, envelope)
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
                if scope.expired():
                    why = f"it has not answered for {self._lease:g} s"
            else:
                self._heard[address] = loop.time()
                return answer
            finally:
                self._sending[address].discard(scope)
            if address in self._lost or self._closed:
                continue
            if loop.time() - max(began, self._heard.get(address, began)) >= self._lease:
                self.lose(address, why)
            else:
                await asyncio.sleep(min(self._lease / 20, 0.05))

    def _stop_sending(self, address: str) -> None:
        """Stop waiting for answers from an address."""
        now = asyncio.get_running_loop().time()
        for scope in self._sending.get(address, ()):
            if not scope.expired():
                scope.reschedule(now)

    def push(self, address: str, verb: str, message: Message) -> None:
        """Like `Engine.push`."""
        if self._closed or address in self._lost:
            return
        task = asyncio.get_running_loop().create_task(self._pushed(address, verb, message), name=f"push {verb}")
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _pushed(self, address: str, verb: str, message: Message) -> None:
        # The end is lost, which is reported; or its handler does not know any more what the message is about.
        with suppress(errors.OpError):
            await self.call(address, verb, message)

    def cancel(self, address: str, message: Message) -> None:
        """Like `Engine.cancel`."""
        self.push(address, "cancel_step", message)

    def on_lost(self, callback: OnLost) -> None:
        """Like `Engine.on_lost`."""
        self._told_of_lost.append(callback)

    def lose(self, address: str, why: str) -> None:
        """Declare an end lost, and report it."""
        if address in self._lost or self._closed:
            return
        self._lost[address] = why
        self._stop_sending(address)
        for callback in list(self._told_of_lost):
            callback(address, why)

    def readmit(self, address: str) -> None:
        """Like `Engine.readmit`."""
        if self._lost.pop(address, None) is not None:
            self._heard.pop(address, None)

    async def receive(self, envelope: Envelope) -> Message:
        """The answer to a message that has arrived; to a repeated message, the same answer."""
        sender, number, oldest, verb, message = envelope
        # A sender that is heard is not lost: otherwise it would wait for pushed messages, which are dropped.
        self.readmit(sender.rpartition("#")[0])
        answers = self._answers.setdefault(sender, {})
        if oldest > self._answered_below.get(sender, 0):
            self._answered_below[sender] = oldest
            for old in [each for each in answers if each < oldest]:
                del answers[old]
        known = answers.get(number)
        if known is not None:
            return await asyncio.shield(known)
        if number < self._answered_below.get(sender, 0):
            return Message()  # it has its answer
        answers[number] = answer = asyncio.get_running_loop().create_future()
        try:
            made = await self._handled(sender.rpartition("#")[0], verb, message)
        except BaseException:
            answers.pop(number, None)
            answer.cancel()
            raise
        answer.set_result(made)
        return made

    async def _handled(self, sender: str, verb: str, message: Message) -> Message:
        try:
            if self._handler is None or self._closed:
                raise errors.UnavailableError(f"{self.address} handles no '{verb}'")
            return await self._handler(sender, verb, message) or Message()
        except errors.OpError as error:
            return Message({"error": error_fields(error)})
        except Exception as error:
            failure = errors.InternalError(f"{verb}: {type(error).__name__}: {error}")
            return Message({"error": error_fields(failure)})

    async def close(self) -> None:
        """Like `Engine.close`."""
        self._closed = True
        pushes = list(self._pushes)
        for task in pushes:
            task.cancel()
        if pushes:
            await asyncio.wait(pushes)
        for address in self._sending:
            self._stop_sending(address)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"
