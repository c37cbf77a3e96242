"""The header by which a front process tells the processes behind it who sent a request; clients cannot write it.

The front (`hosts/front.py`) checks tokens, and passes none on.  Its header begins with a key that only these processes
know; a client's header of this name is removed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from functools import lru_cache

from multidict import istr

from aexec_server.clients.callers import Caller, Quotas, Refusal, Scope

__all__ = ["CALLER_HEADER", "authorization_of", "caller_value", "new_key", "read_caller", "with_caller"]

CALLER_HEADER = istr("Aexec-Caller")
_NONE = "-"
# A client's heads are alike, so results for heads of up to this many bytes are remembered.
_SHORT = 2048
# The header `Authorization`, with its value as a group.
_AUTHORIZATION = re.compile(rb"\r\nauthorization:[ \t]*([^\r\n]*?)[ \t]*(?=\r)", re.IGNORECASE)
_OURS = re.compile(rb"\r\n(?:authorization|aexec-caller):[^\r\n]*", re.IGNORECASE)


def new_key() -> str:
    """A key of 128 random bits."""
    return secrets.token_hex(16)


def authorization_of(head: bytes) -> str | None:
    """The value of `Authorization`, or None; for several of them a value that is no token."""
    values = _AUTHORIZATION.findall(head)
    return b", ".join(values).decode("latin-1") if values else None


def with_caller(head: bytes, key: str, who: Caller | Refusal) -> bytes:
    """The head of a request with its caller added, and without its token."""
    return _signed(head, key, who) if len(head) <= _SHORT else _signed.__wrapped__(head, key, who)


def caller_value(key: str, who: Caller | Refusal) -> str:
    """Return the value of the front's header for a caller."""
    if isinstance(who, Refusal):
        retry = _NONE if who.retry_after is None else str(who.retry_after)
        return f"{key} refused {'unknown' if who.token_given else 'none'} {retry} {who.reason or _NONE}"
    quotas = who.quotas
    counts = [_NONE if n is None else str(n) for n in (quotas.sessions, quotas.runs, quotas.memory_bytes)]
    scopes = ",".join(scope.value for scope in who.scopes)
    return f"{key} caller {who.name} {who.address} {scopes} {' '.join(counts)}"


@lru_cache(512)
def _signed(head: bytes, key: str, who: Caller | Refusal) -> bytes:
    line_end = head.index(b"\r\n")
    return b"%b\r\n%b: %b%b" % (
        head[:line_end],
        CALLER_HEADER.encode(),
        caller_value(key, who).encode(),
        _OURS.sub(b"", head[line_end:]),
    )


def read_caller(value: str | None, key: str) -> Caller | Refusal:
    """The caller in a front's header; a refusal if the header is not from the front."""
    given, _, said = (value or "").partition(" ")
    if not hmac.compare_digest(given.encode(), key.encode()):
        return Refusal(token_given=False)
    return _read(said)


@lru_cache(4096)
def _read(said: str) -> Caller | Refusal:
    kind, *fields = said.split(" ")
    if kind == "refused":
        return Refusal(token_given=fields[0] == "unknown", retry_after=_count(fields[1]), reason=fields[2].strip(_NONE))
    name, address, scopes, *counts = fields
    sessions, runs, memory = map(_count, counts)
    granted = frozenset(map(Scope, scopes.split(","))) if scopes else frozenset()
    return Caller(name, granted, Quotas(sessions, runs, memory), address)


def _count(text: str) -> int | None:
    return None if text == _NONE else int(text)
