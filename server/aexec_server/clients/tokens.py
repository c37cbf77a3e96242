"""Bearer tokens: who may use the server.  Their file keeps digests, from which no token can be found.

The file is TOML, a table for each name; `aexec token NAME` makes a token and its line:

    alice = {sha256 = "9f86d0…", scopes = ["run", "manage"], max_sessions = 4, rate = 50}

Several digests under one name are tokens of the same owner, so that a new token can replace an old one.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aexec import errors
from aexec_server.clients.callers import Caller, Quotas, Refusal, Scope

__all__ = ["Token", "TokenTable", "new_token", "new_token_line", "read_tokens"]

_PREFIX = "aexec_"
_BYTES = 32
_PREFIX_BYTES = 8  # of a digest; a collision is as unlikely as guessing a token
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]{1,512}=*)")
_SCOPES = {scope.value: scope for scope in (Scope.RUN, Scope.MANAGE, Scope.ADMIN)}
_COUNTS = ("max_sessions", "max_runs")
_NUMBERS = ("max_memory_mb", "rate", "burst")
_FIELDS = ("sha256", "scopes", *_COUNTS, *_NUMBERS)
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Token:
    """A name in the file, with its tokens and limits.

    Attributes:
        caller: the caller with these tokens.
        digests: the SHA-256 of each token.
        rate: requests per second; None for no limit.
        burst: the most requests at once.
    """

    caller: Caller
    digests: tuple[bytes, ...] = field(repr=False)
    rate: float | None = None
    burst: float = 1.0


def new_token() -> tuple[str, str]:
    """Return a new token, and its digest for the file.

    A token is 256 random bits, too many to try.  So one round of SHA-256, which is fast, hides it as well as a slow
    hash would; slow hashes are for passwords that people choose.
    """
    token = _PREFIX + secrets.token_urlsafe(_BYTES)
    return token, hashlib.sha256(token.encode()).hexdigest()


def new_token_line(name: str, scopes: list[str], limits: Mapping[str, float]) -> tuple[str, str]:
    """Return a new token, and its line for the file.

    Raises:
        InvalidArgumentError: as `read_tokens`.
    """
    token, digest = new_token()
    numbers = "".join(f", {key} = {value}" for key, value in limits.items())
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    _check_name(name, "the token")
    line = f'{name} = {{sha256 = "{digest}", scopes = [{listed}]{numbers}}}'
    read_tokens(line, "the token")
    return token, line


def read_tokens(text: str, where: str) -> list[Token]:
    """The tokens of a file.

    Args:
        text: the file's text.
        where: the file's name, for messages.

    Raises:
        InvalidArgumentError: it is malformed; the message repeats no value of it.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise errors.InvalidArgumentError(f"{where} is no TOML: {error}") from None
    tokens = [_read(name, table, f"{where}: {name}") for name, table in tables.items()]
    digests = [digest for token in tokens for digest in token.digests]
    if len(digests) != len(set(digests)):
        raise errors.InvalidArgumentError(f"{where} has the same token twice")
    return tokens


def _check_name(name: str, where: str) -> None:
    """Raise InvalidArgumentError if a token cannot have this name."""
    if not _NAME.fullmatch(name):
        raise errors.InvalidArgumentError(f"{where}: a name is 1 to 64 letters, digits, _ or -")


def _read(name: str, table: Any, where: str) -> Token:
    _check_name(name, where)
    if type(table) is not dict:
        raise errors.InvalidArgumentError(f"{where}: expected {{sha256 = …, scopes = […]}}")
    for key in table:
        if key not in _FIELDS:
            raise errors.InvalidArgumentError(f"{where}: {key!r} is none of {', '.join(_FIELDS)}")
    digests = table.get("sha256")
    digests = digests if type(digests) is list else [digests]
    if not digests or not all(type(digest) is str and _DIGEST.fullmatch(digest) for digest in digests):
        raise errors.InvalidArgumentError(f"{where}: sha256 must be 64 hexadecimal digits, or a list of such")
    scopes = table.get("scopes")
    if type(scopes) is not list or not scopes or not all(type(s) is str and s in _SCOPES for s in scopes):
        raise errors.InvalidArgumentError(f"{where}: scopes must be a list of {', '.join(_SCOPES)}")
    numbers = {key: _number(table, key, where) for key in (*_COUNTS, *_NUMBERS)}
    memory, rate, burst = (numbers[key] for key in _NUMBERS)
    if burst is not None and (rate is None or burst < 1):
        raise errors.InvalidArgumentError(f"{where}: burst must be at least 1, and needs a rate")
    sessions, runs = (None if numbers[key] is None else int(table[key]) for key in _COUNTS)
    quotas = Quotas(sessions, runs, None if memory is None else int(memory * _MB))
    caller = Caller(name, frozenset(_SCOPES[scope] for scope in scopes), quotas)
    return Token(caller, tuple(map(bytes.fromhex, digests)), rate, max(1.0, rate or 1.0) if burst is None else burst)


def _number(table: dict[str, Any], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if type(value) is not int and (type(value) is not float or key in _COUNTS):
        raise errors.InvalidArgumentError(f"{where}: {key} must be a {'whole ' * (key in _COUNTS)}number")
    if not 0 < value < 1e15:
        raise errors.InvalidArgumentError(f"{where}: {key} must be positive")
    return float(value)


class _Bucket:
    """A token bucket: `rate` requests a second, and `burst` at once."""

    __slots__ = ("_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> float:
        """Take a request if one is allowed: returns 0; otherwise the seconds until one is."""
        left = min(self.burst, self._left + (now - self._at) * self.rate)
        self._at = now
        if left >= 1.0:
            self._left = left - 1.0
            return 0.0
        self._left = left
        return (1.0 - left) / self.rate


class TokenTable:
    """The tokens that a server knows, and the rate of each.

    Args:
        clock: returns seconds.
    """

    def __init__(self, tokens: Iterable[Token], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self.replace(tokens)

    def replace(self, tokens: Iterable[Token]) -> None:
        """Replace all tokens; the rates used so far stay."""
        buckets = self._buckets
        self._tokens = list(tokens)
        self._by_prefix = {d[:_PREFIX_BYTES]: (d, token) for token in self._tokens for d in token.digests}
        self._buckets = {}
        for token in self._tokens:
            if token.rate is not None:
                name, old = token.caller.name, buckets.get(token.caller.name)
                same = old is not None and (old.rate, old.burst) == (token.rate, token.burst)
                self._buckets[name] = old if same and old else _Bucket(token.rate, token.burst, self._clock())

    def __len__(self) -> int:
        return len(self._tokens)

    def identify(self, header: str | None, *, counted: bool = True) -> Caller | Refusal:
        """The caller with this `Authorization`, or a refusal; counts the request for the token's rate.

        Args:
            counted: False to count nothing, and to refuse tokens that have a rate.
        """
        if header is None:
            return Refusal(token_given=False)
        match = _BEARER.fullmatch(header)
        if match is None:
            return Refusal(token_given=True)
        digest = hashlib.sha256(match[1].encode()).digest()
        # The time of the look-up may reveal some bits of a digest, but nobody can make a token from these.
        known, token = self._by_prefix.get(digest[:_PREFIX_BYTES], (b"", None))
        if not hmac.compare_digest(digest, known) or token is None:
            return Refusal(token_given=True)
        bucket = self._buckets.get(token.caller.name)
        if not counted and bucket is not None:
            return Refusal(token_given=True)
        seconds = 0.0 if bucket is None else bucket.take(self._clock())
        return Refusal(token_given=True, retry_after=math.ceil(seconds)) if seconds else token.caller

    def __repr__(self) -> str:
        return f"<TokenTable of {', '.join(sorted(token.caller.name for token in self._tokens)) or 'nobody'}>"
