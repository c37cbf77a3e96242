"""`TokenSource`: the tokens that the configuration names, read again when their files change."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from aexec import errors
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.clients.callers import Caller, Refusal
from aexec_server.clients.jwt_keys import JwtKeys
from aexec_server.clients.jwt_tokens import JwtTokens
from aexec_server.clients.tokens import Token, TokenTable, read_tokens
from aexec_server.settings.file_watch import FileWatch
from aexec_server.settings.server_config import ServerConfig

__all__ = ["TokenSource", "add_line"]

logger = logging.getLogger(__name__)

_MAX_BYTES = 2**20
# Three parts with points between them; the server's own tokens have none.
_JWT = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]{1,6000}\.[A-Za-z0-9_-]{1,1500})")


class TokenSource:
    """The tokens of the configuration, and the keys of JWTs, read again when their files change.

    Attributes:
        table: the known tokens.

    Raises:
        NotFoundError, InvalidArgumentError: a file does not exist, or is malformed.
        FailedPreconditionError: JWTs need a package that is not installed.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._text = config.tokens
        self._path = None if config.token_file is None else Path(config.token_file)
        self._watch = FileWatch([] if self._path is None else [self._path])
        self._has_table = config.tokens is not None or self._path is not None
        self.table = TokenTable(self._read(), config.clock)
        self._jwt_keys: JwtKeys | None = None
        self._jwt_tokens: JwtTokens | None = None
        rules = config.jwt_rules
        if rules is not None:
            self._jwt_tokens = JwtTokens(rules, lambda: self._jwt_keys is not None and self._jwt_keys.want())
            self._jwt_keys = JwtKeys(rules, self._jwt_tokens.replace, config.clock)

    def identify(self, header: str | None, *, counted: bool = True) -> Caller | Refusal:
        """The caller with this `Authorization`, or a refusal; counts the request for the token's rate.

        Args:
            counted: False to count nothing, and to refuse tokens that have a rate.
        """
        if self._jwt_tokens is not None and header is not None:
            match = _JWT.fullmatch(header)
            if match is not None:
                return self._jwt_tokens.identify(match[1])
        return self.table.identify(header, counted=counted)

    async def begin(self) -> None:
        """Fetch the keys of JWTs, if they are at a URL; if that fails, log it, and try again in `watch`."""
        if self._jwt_keys is not None and self._jwt_keys.by_url:
            await self._jwt_keys.refresh()

    async def watch(self) -> None:
        """Fetch the keys of JWTs when they are due, until cancelled."""
        if self._jwt_keys is not None:
            await self._jwt_keys.watch()

    def _read(self) -> list[Token]:
        tokens = [] if self._text is None else read_tokens(self._text, "the setting tokens")
        if self._path is not None:
            text = _read_file(self._path)
            tokens += read_tokens(text, str(self._path))
        names = [token.caller.name for token in tokens]
        if len(names) != len(set(names)):
            raise errors.InvalidArgumentError("a name has tokens in both the file and the setting")
        if not tokens and self._has_table:
            raise errors.InvalidArgumentError(
                "neither the file nor the setting has a token: `aexec token NAME` makes one, and its line"
            )
        return tokens

    async def reload_if_changed(self) -> None:
        """Read the files that have changed."""
        if await run_in_thread(self._watch.changed, on_cancel=OnCancel.ABANDON):
            await self._reload_tokens()
        if self._jwt_keys is not None:
            await self._jwt_keys.refresh_if_changed()

    async def reload(self) -> None:
        """Read tokens and keys; what cannot be read is logged, and stays as it was."""
        if self._has_table:
            await self._reload_tokens()
        if self._jwt_keys is not None:
            await self._jwt_keys.refresh()

    async def _reload_tokens(self) -> None:
        try:
            tokens = await run_in_thread(self._read, on_cancel=OnCancel.ABANDON)
        except errors.OpError as error:
            logger.error("tokens stay as they were: %s", error.message)
            return
        self.table.replace(tokens)
        logger.info("tokens of %d names were read", len(tokens))


def add_line(path: Path, line: str) -> None:
    """Add the line of a new token to a file, which is created if necessary.

    Raises:
        InvalidArgumentError: the file is malformed, or has tokens of that name.
        NotFoundError: the file cannot be written.
    """
    text = _read_file(path) if path.exists() else ""
    separator = "" if not text or text.endswith("\n") else "\n"
    name = line.partition(" ")[0]
    if any(token.caller.name == name for token in read_tokens(text, str(path))):
        raise errors.InvalidArgumentError(
            f"{path} has tokens of '{name}': for one more make a line without --file, and add its sha256 to theirs"
        )
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{separator}{line}\n")
    except OSError as error:
        raise errors.NotFoundError(f"{path} cannot be written: {error.strerror}") from None


def _read_file(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise errors.NotFoundError(f"tokens cannot be read from {path}: {reason}") from None
    if len(text) > _MAX_BYTES:
        raise errors.InvalidArgumentError(f"{path} has more than {_MAX_BYTES} characters")
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        logger.warning("%s may be read or written by others: chmod 600 %s", path, path)
    return text
