"""`JwtKeys`: the public keys of an identity provider, from a file or a URL, which are read again as they change."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from aexec import errors
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.settings.file_watch import FileWatch
from aexec_server.settings.jwt_rules import JwtRules, is_url

__all__ = ["JwtKey", "JwtKeys", "read_keys"]

logger = logging.getLogger(__name__)

_MAX_BYTES = 2**18
_MAX_KEYS = 100
_FETCH_SECONDS = 10.0
# The least time between two fetches, however many tokens name an unknown key; and the time until the next try.
_PAUSE_SECONDS = 10.0
# After this many refresh periods without a fetch the keys are not trusted any more.
_STALE = 12
_RSA_BITS = (2048, 8192)
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}


@dataclass(frozen=True, slots=True)
class JwtKey:
    """A public key.

    Attributes:
        name: its `kid`; None if it has none.
        key: as `cryptography` has it.
        algorithms: those of signatures that it may check.
    """

    name: str | None
    key: Any
    algorithms: tuple[str, ...]


def read_keys(data: bytes, where: str) -> list[JwtKey]:
    """Return the keys of a JSON Web Key Set that check signatures; others are left out.

    Args:
        data: its bytes.
        where: its name, for messages.

    Raises:
        InvalidArgumentError: it is malformed, has no such key, or has a private one; the message repeats no value.
    """
    try:
        found = json.loads(data)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise errors.InvalidArgumentError(f"{where} is no JSON Web Key Set") from None
    if type(found) is not list or len(found) > _MAX_KEYS:
        raise errors.InvalidArgumentError(f"{where} must have a list of at most {_MAX_KEYS} keys")
    keys = [key for one in found if type(one) is dict and (key := _read_key(one, where)) is not None]
    if not keys:
        raise errors.InvalidArgumentError(f"{where} has no key that checks signatures")
    return keys


def _read_key(given: Mapping[str, Any], where: str) -> JwtKey | None:
    import jwt

    kind, use, name = given.get("kty"), given.get("use", "sig"), given.get("kid")
    operations = given.get("key_ops", ["verify"])
    if kind not in ("RSA", "EC", "OKP") or use != "sig" or type(operations) is not list or "verify" not in operations:
        return None
    if "d" in given:
        raise errors.InvalidArgumentError(f"{where} has a private key: it must have public ones alone")
    algorithms: tuple[str, ...] = _OF_RSA if kind == "RSA" else _OF_CURVE.get(str(given.get("crv")), ())
    if "alg" in given:
        algorithms = tuple(one for one in algorithms if one == given["alg"])
    if not algorithms or (name is not None and type(name) is not str):
        return None
    try:
        key = jwt.PyJWK(dict(given), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        logger.warning("%s has a key that cannot be read", where)
        return None
    if kind == "RSA" and not _RSA_BITS[0] <= key.key_size <= _RSA_BITS[1]:
        logger.warning("%s has a key of %d bits, which is not used", where, key.key_size)
        return None
    return JwtKey(name, key, algorithms)


class JwtKeys:
    """The keys of an identity provider.

    Args:
        rules: name their place.
        clock: returns seconds.

    Attributes:
        by_url: True if they are at a URL.
        on_change: called with the keys when they have been read, and with none when they are too old.

    Raises:
        FailedPreconditionError: PyJWT or `cryptography` is not installed.
        NotFoundError, InvalidArgumentError: the file does not exist, or is malformed.
    """

    def __init__(
        self, rules: JwtRules, on_change: Callable[[Sequence[JwtKey]], object], clock: Callable[[], float] = monotonic
    ) -> None:
        _check_extra()
        self._rules = rules
        self._clock = clock
        self.by_url = is_url(rules.keys)
        self._where = _shown(rules.keys)
        self._watch = FileWatch([] if self.by_url else [rules.keys])
        self._wanted = asyncio.Event()
        self._tried = -_PAUSE_SECONDS
        self._read_at: float | None = None
        self.on_change = on_change
        if not self.by_url:
            self.on_change(self._read_file())

    def _read_file(self) -> list[JwtKey]:
        try:
            with open(self._rules.keys, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise errors.NotFoundError(f"keys cannot be read from {self._where}: {error.strerror}") from None
        return read_keys(_bounded(data, self._where), self._where)

    def want(self) -> bool:
        """Ask for a look at the keys, because a token names an unknown one; False if the last look was just now."""
        if not self.by_url or self._clock() - self._tried < _PAUSE_SECONDS:
            return self._wanted.is_set()
        self._wanted.set()
        return True

    async def watch(self) -> None:
        """Fetch keys from the URL, when they are due or wanted, until cancelled."""
        while self.by_url:
            pause = self._rules.refresh_seconds if self._read_at == self._tried else _PAUSE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._tried + pause - self._clock())):
                    await self._wanted.wait()
            await self.refresh()

    async def refresh_if_changed(self) -> None:
        """Read the file again if it has changed."""
        if not self.by_url and await run_in_thread(self._watch.changed, on_cancel=OnCancel.ABANDON):
            await self.refresh()

    async def refresh(self) -> None:
        """Read the keys; if that fails, log it and keep the known ones for some time."""
        self._tried = now = self._clock()
        try:
            if self.by_url:
                keys = read_keys(await self._fetch(), self._where)
            else:
                keys = await run_in_thread(self._read_file, on_cancel=OnCancel.ABANDON)
        except errors.OpError as error:
            logger.error("keys stay as they were: %s", error.message)
            if self.by_url and self._read_at is not None and now - self._read_at > _STALE * self._rules.refresh_seconds:
                logger.error("keys of %s are too old, and not used any more", self._where)
                self.on_change([])
            return
        finally:
            self._wanted.clear()
        self._read_at = now
        self.on_change(keys)
        logger.info("%d keys of %s were read", len(keys), self._where)

    async def _fetch(self) -> bytes:
        """Return what the URL answers.  Raises UnavailableError, InvalidArgumentError."""
        timeout = aiohttp.ClientTimeout(_FETCH_SECONDS)
        data = b""
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as client,
                client.get(self._rules.keys, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise errors.UnavailableError(f"{self._where} answers with status {answer.status}")
                async for part in answer.content.iter_any():
                    data = _bounded(data + part, self._where)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = "it does not answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            raise errors.UnavailableError(f"keys cannot be fetched from {self._where}: {reason}") from None
        return data


def _bounded(data: bytes, where: str) -> bytes:
    if len(data) > _MAX_BYTES:
        raise errors.InvalidArgumentError(f"{where} has more than {_MAX_BYTES} bytes")
    return data


def _shown(place: str) -> str:
    """Return a path, or a URL without its query, which may hold a secret."""
    if not is_url(place):
        return str(Path(place))
    return urlunsplit((*urlsplit(place)[:3], "", ""))


def _check_extra() -> None:
    """Raise FailedPreconditionError if a package of the extra is not installed."""
    try:
        import cryptography
        import jwt
    except ImportError as error:
        raise errors.FailedPreconditionError(
            f"jwt_keys needs the package {error.name}, which is not installed: pip install 'aexec[jwt]'"
        ) from None
    assert cryptography and jwt
