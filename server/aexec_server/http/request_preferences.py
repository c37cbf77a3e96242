"""Preferences: what a request asks for by headers, to be answered later, in events, once, or within some time.

A preference is honoured or refused.  `Prefer: respond-async` and `wait` are RFC 7240's, `Priority` is RFC 9218's,
`Idempotency-Key` is of draft-ietf-httpapi-idempotency-key-header, `Aexec-Timeout-Ms` ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from multidict import istr

from aexec import errors
from aexec_server.headed import Headed
from aexec_server.http.bodies import accepts

__all__ = [
    "EVENT_STREAM",
    "NDJSON",
    "PRIORITY",
    "TIMEOUT",
    "Preferences",
    "read_key",
    "read_preferences",
    "read_priority_header",
    "read_timeout_header",
    "refuse_preferences",
]

EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"
TIMEOUT = istr("Aexec-Timeout-Ms")
PRIORITY = istr("Priority")
_ACCEPT = istr("Accept")
_KEY = istr("Idempotency-Key")
_PREFER = istr("Prefer")
_KEY_TEXT = re.compile(r'"[ !#-\[\]-~]{1,255}"|[!#-~]{1,255}')
_WAIT = re.compile(r'"?([0-9]{1,9})"?')
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
# The urgency, 0 to 7, in RFC 9218's dictionary of parameters; its parameter for incremental answers is ignored.
_URGENCY = re.compile(r"(?:^|,)[ \t]*u=([0-7])[ \t]*(?=[,;]|$)")
_LEVELS = (25, 50, 75, 100, 200, 300, 400, 500)


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of a request for a run.

    Attributes:
        key: the Idempotency-Key; None to carry the request out each time.
        respond_async: True to answer with an operation, which will have the result.
        wait: seconds to wait for the run's end before that.
        events: the media type of events to send while the run goes on; None for one answer.
    """

    key: str | None = None
    respond_async: bool = False
    wait: float = 0.0
    events: str | None = None


def read_preferences(request: Headed) -> Preferences | None:
    """The preferences of a request for a run; None without any.

    Raises:
        InvalidArgumentError: they contradict each other, or cannot be read.
    """
    headers = request.headers
    events = _events(headers)
    if events is None and _KEY not in headers and _PREFER not in headers:
        return None
    key = read_key(request)
    respond_async, wait = _preferences(headers)
    if events is not None and (key is not None or respond_async):
        raise errors.InvalidArgumentError(f"Accept: {events} is for answers at once, which are not stored")
    return Preferences(key, respond_async, wait, events) if events or key or respond_async else None


def _events(headers: Any) -> str | None:
    accept = headers.get(_ACCEPT)
    if accept is None or accept == "*/*":
        return None
    lower = accept.lower()
    return EVENT_STREAM if EVENT_STREAM in lower else NDJSON if NDJSON in lower else None


def read_key(request: Headed) -> str | None:
    """The header Idempotency-Key, or None.  Raises InvalidArgumentError if it is malformed."""
    given = request.headers.getall(_KEY, ())
    if not given:
        return None
    if len(given) > 1 or not _KEY_TEXT.fullmatch(given[0]):
        raise errors.InvalidArgumentError('Idempotency-Key must be one key of up to 255 characters, such as "8e03978e"')
    return str(given[0])


def _preferences(headers: Any) -> tuple[bool, float]:
    """(answer later, seconds to wait before) of the Prefer header; unknown preferences are ignored."""
    respond_async, wait = False, None
    for value in headers.getall(_PREFER, ()):
        for preference in value.split(","):
            name, _, argument = preference.partition(";")[0].partition("=")
            name = name.strip().lower()
            if name == "respond-async":
                respond_async = True
            elif name == "wait":
                match = _WAIT.fullmatch(argument.strip())
                if match is None:
                    raise errors.InvalidArgumentError(
                        f"Prefer: wait must be a number of seconds, got {argument[:40]!r}"
                    )
                wait = float(match[1])
    if wait is not None and not respond_async:
        raise errors.InvalidArgumentError("Prefer: wait goes with respond-async only; a deadline is in the options")
    return respond_async, wait or 0.0


def refuse_preferences(request: Headed, *, key: bool = True) -> None:
    """Refuse preferences, for calls that honour none.

    Args:
        key: True to refuse keys, too.

    Raises:
        UnimplementedError: the request has a preference.
    """
    headers = request.headers
    if key and _KEY in headers:
        raise errors.UnimplementedError("Idempotency-Key is for making and extending sessions, and for their runs only")
    if _PREFER in headers and _preferences(headers)[0]:
        raise errors.UnimplementedError("Prefer: respond-async is for runs at /v1/sessions only")
    if _events(headers) is not None:
        raise errors.UnimplementedError(f"Accept: {accepts(request)[0][:80]}: this call has no events")


def read_timeout_header(text: str) -> float | None:
    """The header's seconds; None for 0, which means no timeout.  Raises InvalidArgumentError."""
    if not _MILLISECONDS.fullmatch(text):
        raise errors.InvalidArgumentError(f"{TIMEOUT} must be a whole number and not negative, got {text[:40]!r}")
    return int(text) / 1e3 or None


def read_priority_header(text: str) -> int | None:
    """A run's priority from the header's urgency, lower ones first; `u=3` is the default.

    None without an urgency.  Browsers send this header by themselves, so a malformed one is ignored, as RFC 9218 asks.
    """
    found = _URGENCY.findall(text)
    return _LEVELS[int(found[-1])] if found else None
