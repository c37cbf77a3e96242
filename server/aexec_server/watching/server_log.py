"""The log of a serving process: one line per record, as text or as JSON; clients cannot add lines."""

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
# aiohttp's log of requests
http_logger = logging.getLogger("aexec_server.http")
_printed = logging.getLogger("aexec_server.printed")


class _OneLineFormatter(logging.Formatter):
    """Escapes unprintable characters as Python does: a message can neither forge other lines nor control a terminal.

    Tracebacks follow on lines of their own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        record.message = _escaped(record.message)
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object on one line: time, level, logger, message, the record's fields, and the
    traceback.
    """

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
    """Log `text` at level INFO; the JSON log also gets the fields that are not empty."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", text, extra={_FIELDS: {name: value for name, value in fields.items() if value != ""}})


def _leave_out_what_was_sent(record: logging.LogRecord) -> bool:
    """Filter for errors of parsing HTTP: aiohttp quotes the bad line, which may contain a token."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, aiohttp_seam.HttpProcessingError):
        record.msg, record.args = "a client sent what is no HTTP: %s", (type(error).__name__,)
        record.exc_info = record.exc_text = None
    return True


http_logger.addFilter(_leave_out_what_was_sent)


def begin_log(level: int | str = logging.INFO, form: str = "text") -> None:
    """Log to stderr; what graphs print is logged as records of `aexec_server.printed`.

    Args:
        level: least level that is logged, as in `logging`.
        form: `text` or `json`.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if form == "json" else _OneLineFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    hosting.set_printer(lambda _stream, text: _printed.info("%s", text.removesuffix("\n")))
