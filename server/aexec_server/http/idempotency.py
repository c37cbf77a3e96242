"""`AnsweredOnce`: carries out requests with an Idempotency-Key once, and answers repetitions with the stored answer.

It follows draft-ietf-httpapi-idempotency-key-header-07.  Such a request goes on if its client leaves, because the
client will ask again.  A repetition is refused while the first request runs, and then gets its answer.  A request that
was refused for overload was not carried out, and is tried again.

Keys belong to the client that sent them: its token, or else its address.  Without tokens the first answer has a secret;
a repetition with that secret gets the answer from another address, too.

Answers are kept for a day, as far as there is room.  The oldest of the client with most go first, so that no client
loses its own to a stranger's.  A mark stays that the request was carried out: a repetition is then refused, and never
carried out again.  If there are too many marks, the oldest of the client with most go; but the last 500 of a client are
kept for at least ten minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web
from multidict import istr

from aexec import errors
from aexec_server.clients.callers import CALLER, Caller
from aexec_server.clients.client_shares import ClientShares
from aexec_server.http.bodies import beside, media_type
from aexec_server.http.error_responses import HasHeaders, RequestError, error_response
from aexec_server.http.keyed_answer import AnswerKeeper, KeyedAnswer
from aexec_server.http.stored_answer import StoredAnswer
from aexec_server.settings.server_config import ServerConfig

__all__ = ["BEGUN", "KEYED", "MADE_DURABLE", "SECRET", "AnsweredOnce", "ForgottenError", "UnfinishedRequestError"]

# On an error answer: True if the request had begun when it failed.
BEGUN = web.ResponseKey("had it begun", bool)
# On a request with a key: what is kept of it.
KEYED = web.RequestKey("what is kept of it", KeyedAnswer)
# On the answer to a request that made a durable session.
MADE_DURABLE: web.ResponseKey[AnswerKeeper] = web.ResponseKey("the durable session that it made", AnswerKeeper)
SECRET = istr("Idempotency-Secret")
_KEEP_SECONDS = 24 * 3600.0
_MAX_KEYS = 50_000
# This many keys of a client are remembered for this long, however many other clients use.
_SURE_KEYS = 500
_SURE_SECONDS = 600.0
_HASH_NS = 2.0  # a byte
_TRY_AGAIN = (429, 503)

# Starts work, under a name, that outlives its request.
Begin = Callable[[Coroutine[Any, Any, web.Response], str], "asyncio.Task[web.Response]"]


class _InProgressError(HasHeaders, errors.AbortedError):
    """The request is being carried out."""

    reason = "in_progress"


class UnfinishedRequestError(HasHeaders, errors.AbortedError):
    """A request was in flight when the server ended: it may have been carried out in part, and is not repeated."""

    status = 409
    reason = "interrupted"


# Given the client and the digest of a key.
LookUp = Callable[[str, bytes], Awaitable[KeyedAnswer | None]]


class ForgottenError(HasHeaders, errors.FailedPreconditionError):
    """A request was carried out, and its answer is no longer kept."""

    status = 410
    reason = "answer_forgotten"


@dataclass(slots=True)
class _Entry:
    """A request with a key that was carried out or is under way.

    Attributes:
        fingerprint: a digest of the request.
        began: when it began, by the server's clock.
        answer: its answer; None before, and once it is forgotten.
        ended: True once it was carried out.
        secret: the secret in its answer; empty for none.
        durability: of the durable session that keeps the answer; None for none.
        interrupted: True if it was in flight when the server ended.
    """

    fingerprint: bytes
    began: float
    answer: StoredAnswer | None = None
    ended: bool = False
    secret: str = ""
    durability: AnswerKeeper | None = None
    interrupted: bool = False


class _Keys:
    """The keys of one client, oldest first.

    Attributes:
        entries: all entries.
        answered: the entries whose answers are kept.
    """

    __slots__ = ("answered", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.answered: OrderedDict[bytes, _Entry] = OrderedDict()


class AnsweredOnce:
    """Carries out requests with an Idempotency-Key once, and answers repeated ones with the stored answer.

    Args:
        config: the server's settings.
        begin: starts work that outlives its request.

    Attributes:
        keys: the number of known keys.
        shares: the clients' shares of the bytes of answers.
        look_up: finds a request that this process does not know, by its client and the digest of its key; None if there
            is nowhere to look.
    """

    def __init__(self, config: ServerConfig, begin: Begin) -> None:
        self._begin = begin
        self._clock = config.clock
        # No room is kept free: what a client with less needs is taken from the one with most.
        most = config.max_stored_bytes
        self.shares = ClientShares("stored_bytes", "bytes of answers", most, config.max_client_stored_bytes, unit=most)
        self.keys = ClientShares("keys", "keys of requests", _MAX_KEYS, unit=_MAX_KEYS)
        self._clients: dict[str, _Keys] = {}
        self._clients_by_secret: dict[str, str] = {}
        self.look_up: LookUp | None = None

    async def answer(
        self,
        request: web.Request,
        key: str | None,
        body: bytes,
        work: Callable[[], Awaitable[web.Response]],
        durability: AnswerKeeper | None = None,
    ) -> web.Response:
        """Return the answer to a request: the stored one, or that of `work`.

        Args:
            key: the client's key; None to always carry the request out.
            work: carries the request out.  With a key it goes on if the awaiting task is cancelled.
            durability: of the durable session that the request is for, which keeps the answer; None for any other.
                The request's `KEYED` then tells `work` what is kept of it.

        Raises:
            AbortedError: the same request is being carried out, or was when the server ended.
            FailedPreconditionError: it was carried out, and its answer is no longer kept.
            RequestError: 422, the key was used for another request.
            ResourceExhaustedError: no further key can be remembered.
        """
        if key is None:
            return await work()
        caller = request[CALLER]
        secret = None if caller.name else request.headers.get(SECRET)
        client = caller.client if secret is None else self._clients_by_secret.get(secret, "")
        name, fingerprint = await beside(len(body) * _HASH_NS, _digests, request, client, key, body)
        entry = self._find(client, name)
        if entry is None and self.look_up is not None:
            known = await self.look_up(client, name)
            if known is not None:
                self.know(known)
            entry = self._find(client, name)
        if secret is not None and (entry is None or entry.secret != secret):
            # The secret proves that there was an answer.
            raise ForgottenError(f"The answer that told this {SECRET} is not known any more, or was to another key")
        if entry is None:
            entry = self._remember(caller, name, fingerprint)
            entry.durability = durability
            return await asyncio.shield(
                self._begin(self._carry_out(request, caller, name, entry, work), "a request with a key")
            )
        if entry.fingerprint != fingerprint:
            raise RequestError(
                422, "There was another request with this Idempotency-Key: take a new key for a new request"
            )
        if not entry.ended:
            raise _InProgressError("The request of this Idempotency-Key is being carried out: ask again later")
        if entry.interrupted:
            raise UnfinishedRequestError(
                "The request of this Idempotency-Key was in flight when the server ended. It may have been carried out "
                "in part, and is not repeated: look at the session's state, and take a new key"
            )
        if entry.durability is not None:
            await entry.durability.settle()
        if entry.answer is None:
            raise ForgottenError("The request of this Idempotency-Key was carried out, and its answer is not kept")
        return entry.answer.response({"Idempotent-Replayed": "true"})

    def _find(self, client: str, name: bytes) -> _Entry | None:
        keys = self._clients.get(client)
        entry = None if keys is None else keys.entries.get(name)
        if entry is not None and entry.ended and self._clock() - entry.began > _KEEP_SECONDS:
            self._forget(client, name)
            return None
        return entry

    def _remember(self, caller: Caller, name: bytes, fingerprint: bytes) -> _Entry:
        """Add a new key.  Raises ResourceExhaustedError if there is no room for it."""
        while self.keys.refusal(caller) is not None and self._forget_one():
            pass
        self.keys.take(caller)
        entry = _Entry(fingerprint, self._clock())
        self._clients.setdefault(caller.client, _Keys()).entries[name] = entry
        return entry

    def _forget_one(self) -> bool:
        """Forget the oldest key of the client with most, if it may be forgotten; return whether it was."""
        client = self.keys.largest_holder
        if client is None:
            return False
        entries = self._clients[client].entries
        name = next((name for name, entry in entries.items() if entry.ended), None)
        if name is None:
            return False
        if len(entries) <= _SURE_KEYS and self._clock() - entries[name].began <= _SURE_SECONDS:
            return False
        self._forget(client, name)
        return True

    async def _carry_out(
        self,
        request: web.Request,
        caller: Caller,
        name: bytes,
        entry: _Entry,
        work: Callable[[], Awaitable[web.Response]],
    ) -> web.Response:
        keyed = request[KEYED] = KeyedAnswer(caller.client, name, entry.fingerprint, time.time())
        if entry.durability is not None:
            entry.durability.begin_keyed(keyed)
        try:
            response = await work()
            begun = response.get(BEGUN, True)
        except errors.OpError as error:
            response, begun = error_response(request, error), False
        except BaseException:
            self._withdraw(entry, keyed)
            raise
        if response.status in _TRY_AGAIN and not begun:
            self._withdraw(entry, keyed)
            return response
        entry.ended = True
        self._keep(caller, name, entry, StoredAnswer.of(response))
        if not caller.name:
            entry.secret = secrets.token_urlsafe(16)
            self._clients_by_secret[entry.secret] = caller.client
            response.headers[SECRET] = entry.secret
        entry.durability = response.get(MADE_DURABLE, entry.durability)
        if entry.durability is None:
            return response
        entry.durability.end_keyed(replace(keyed, answer=entry.answer, ended=True, secret=entry.secret))
        try:
            await entry.durability.settle()
        except errors.OpError as error:
            return error_response(request, error)
        return response

    def _withdraw(self, entry: _Entry, keyed: KeyedAnswer) -> None:
        """Forget a request that was not carried out."""
        self._forget(keyed.client, keyed.name)
        if entry.durability is not None:
            entry.durability.drop_keyed(keyed)

    def know(self, keyed: KeyedAnswer) -> None:
        """Take in a request that was carried out before the server's start, or was in flight when it ended.

        Of more than there is room for, those that are taken in last are forgotten.
        """
        client = Caller("", frozenset(), address=keyed.client)
        if self.keys.refusal(client) is not None or keyed.name in self._clients.get(keyed.client, _Keys()).entries:
            return
        age = max(0.0, time.time() - keyed.began)
        entry = self._remember(client, keyed.name, keyed.fingerprint)
        entry.began = self._clock() - age
        entry.ended, entry.interrupted, entry.secret = True, not keyed.ended, keyed.secret
        if keyed.answer is not None:
            self._keep(client, keyed.name, entry, keyed.answer)
        if keyed.secret:
            self._clients_by_secret[keyed.secret] = keyed.client

    def _keep(self, caller: Caller, name: bytes, entry: _Entry, answer: StoredAnswer) -> None:
        """Keep an answer, if there is room, or room can be made without dropping answers of clients with less."""
        if self._makes_room(caller, answer.size):
            entry.answer = answer
            self.shares.take(caller, answer.size)
            self._clients[caller.client].answered[name] = entry

    def _makes_room(self, caller: Caller, size: int) -> bool:
        """Drop answers to make room for `size` bytes; drops none, and return False, if that is impossible."""
        shares, client = self.shares, caller.client
        if size > shares.most_of_one:
            return False
        after, room = shares.held.get(client, 0) + size, shares.most - shares.in_use
        if after <= shares.most_of_one and size <= room:
            return True
        held, drops = dict(shares.held), []
        oldest = {whose: iter(keys.answered.items()) for whose, keys in self._clients.items()}
        while (after := held.get(client, 0) + size) > shares.most_of_one or room < size:
            holder = max(held, key=held.__getitem__, default=client)
            if after > shares.most_of_one or held[holder] < after:
                holder = client
            if not held.get(holder):
                return False
            name, entry = next(oldest[holder])
            assert entry.answer is not None
            drops.append((holder, name))
            held[holder] -= entry.answer.size
            room += entry.answer.size
        for holder, name in drops:
            self._drop_answer(holder, name)
        return True

    def _drop_answer(self, client: str, name: bytes) -> None:
        """Drop an answer; its mark stays."""
        entry = self._clients[client].answered.pop(name)
        assert entry.answer is not None
        self.shares.give_back(client, entry.answer.size)
        entry.answer = None

    def _forget(self, client: str, name: bytes) -> None:
        keys = self._clients[client]
        if name in keys.answered:
            self._drop_answer(client, name)
        self._clients_by_secret.pop(keys.entries.pop(name).secret, None)
        self.keys.give_back(client)
        if not keys.entries:
            del self._clients[client]


def _digests(request: web.Request, client: str, key: str, body: bytes) -> tuple[bytes, bytes]:
    """(digest of the key with its scope, digest of the request)."""
    named = "\0".join([client, request.method, request.path_qs, key])
    asked = hashlib.sha256(
        f"{media_type(request)}\0{request.headers.get('Inference-Header-Content-Length')}\0".encode()
    )
    asked.update(body)
    return hashlib.sha256(named.encode()).digest(), asked.digest()
