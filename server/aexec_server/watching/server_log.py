"""The log of a process that serves: a line for each record, whatever clients put into it, as text or as JSON."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from aexec import hosting
from aexec_server import aiohttp_seam

__all__ = ["begin_log", "http_logger", "log_fields"]

_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
_FIELDS = "aexec_fields"
# aiohttp's words on requests.
http_logger = logging.getLogger("aexec_server.http")
_printed = logging.getLogger("aexec_server.printed")


class _OneLineFormatter(logging.Formatter):
    """Writes what cannot be printed as Python does: a message can neither feign other lines nor talk to a terminal.

    Tracebacks follow in lines of their own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        record.message = _escaped(record.message)
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    """An object in a line: when, how grave, who says what, and the fields that the record has; a traceback too."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Any] = {
            "time": when,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= getattr(record, _FIELDS, {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def log_fields(logger: logging.Logger, text: str, fields: Mapping[str, object]) -> None:
    """Log a line of level INFO which is `text`, or with `json` has these fields too, empty ones left out."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", text, extra={_FIELDS: {name: value for name, value in fields.items() if value != ""}})


def _leave_out_what_was_sent(record: logging.LogRecord) -> bool:
    """Of a request that is no HTTP aiohttp tells the line that is wrong, which may have a token in it."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, aiohttp_seam.HttpProcessingError):
        record.msg, record.args = "a client sent what is no HTTP: %s", (type(error).__name__,)
        record.exc_info = record.exc_text = None
    return True


http_logger.addFilter(_leave_out_what_was_sent)


def begin_log(level: int | str = logging.INFO, form: str = "text") -> None:
    """Log to stderr, what graphs print too: as records of `aexec_server.printed`.

    Args:
        level: of what is logged at least, as `logging` has it.
        form: `text` or `json`.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if form == "json" else _OneLineFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    hosting.set_printer(lambda _stream, text: _printed.info("%s", text.removesuffix("\n")))
