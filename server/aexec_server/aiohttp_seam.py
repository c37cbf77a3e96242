"""All uses of aiohttp's private and undocumented parts.

aiohttp may rename or drop such a part in any version, so each is looked for when this module is imported.  If one is
missing, the feature that needs it is off, requests are still answered, and `check_parts` logs it when a server starts.
Parts that protect a server from its clients are an exception: without them, a server that others can reach does not
start.

Other modules write `aiohttp_seam.awaits_request(handler)`, with the name of the module.  These functions run for each
request, so none wraps another: where a part is missing, the name is bound to a stand-in.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
from aiohttp import web

from aexec import errors

__all__ = [
    "REQUIREMENT",
    "SERVER_SOFTWARE",
    "HttpProcessingError",
    "RawRequestMessage",
    "awaits_body",
    "awaits_request",
    "can_answer_runs",
    "check_parts",
    "forget_handlers",
    "http_date",
    "is_idle",
    "keep_open_until",
    "parsed_messages",
]

logger = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])

# The versions that have all parts; the dependency in pyproject.toml is the same.
REQUIREMENT = "aiohttp>=3.14,<3.15"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of aiohttp that its documentation does not promise.

    Attributes:
        name: its path below `aiohttp`.
        without: what the server does if it is missing.
        guards: True if a server that others can reach must not start without it.
    """

    name: str
    without: str
    guards: bool = False

    @property
    def is_there(self) -> bool:
        """True if the part exists; False also for an attribute that only instances have, unless the class has slots."""
        module, *path = self.name.split(".")
        try:
            found: object = import_module(f"aiohttp.{module}")
            for name in path:
                found = getattr(found, name)
        except (ImportError, AttributeError):
            return False
        return True


_ORDINARY_RUNS = "every run takes the ordinary way through aiohttp, which is slower"
_RUNS_AFTER_RUNS = "a run whose request comes at once after another's answer takes the ordinary way"
_PARTS = (
    _Part(
        "web.RequestHandler._waiter",
        "a client may take as long for the head of a request as a connection may be idle, and its connection gives way "
        f"to no other; runs are not refused unread under overload; {_ORDINARY_RUNS}",
        guards=True,
    ),
    _Part(
        "web.RequestHandler._current_request",
        "a connection whose client is slow to send a body gives way to no other",
        guards=True,
    ),
    _Part(
        "http_exceptions.HttpProcessingError",
        "what a client sends that is no HTTP is logged, with tokens that it holds",
        guards=True,
    ),
    _Part(
        "web.RequestHandler._messages",
        f"only the first run of a connection may be refused unread under overload; {_ORDINARY_RUNS}",
    ),
    _Part(
        "http_parser.RawRequestMessage",
        f"only the first run of a connection may be refused unread under overload; {_ORDINARY_RUNS}",
    ),
    _Part("web.RequestHandler._next_keepalive_close_time", _ORDINARY_RUNS),
    _Part("web.RequestHandler._request_in_progress", _RUNS_AFTER_RUNS),
    _Part("web.RequestHandler._force_close", _RUNS_AFTER_RUNS),
    _Part("web.RequestHandler._close", _RUNS_AFTER_RUNS),
    _Part("helpers.rfc822_formatted_time", "the date of an answer is written anew for each"),
    _Part("http.SERVER_SOFTWARE", "the header Server is made of the versions of Python and aiohttp"),
    _Part("web_app._cached_build_middleware", "an application that has ended may stay in memory"),
)
_MISSING = tuple(part for part in _PARTS if not part.is_there)
_MISSING_NAMES = frozenset(part.name for part in _MISSING)


def check_parts(*, exposed: bool) -> None:
    """Log a warning for each part that the installed aiohttp lacks.

    Args:
        exposed: others than this machine can reach the server.

    Raises:
        FailedPreconditionError: the server is exposed, and a part that guards it is missing.
    """
    for part in _MISSING:
        text = f"aiohttp {aiohttp.__version__} has no {part.name}: {part.without}"
        if part.guards and exposed:
            raise errors.FailedPreconditionError(
                f"{text}. A server that others can reach needs it: install '{REQUIREMENT}', or listen on a loopback "
                "address"
            )
        logger.warning("%s; '%s' has it", text, REQUIREMENT)


def _has(*names: str) -> bool:
    return _MISSING_NAMES.isdisjoint(names)


def _needs(*names: str, otherwise: Callable[..., object]) -> Callable[[_Function], _Function]:
    """Decorator: return the function itself if these parts exist, else `otherwise`."""

    def bound(function: _Function) -> _Function:
        return function if _has(*names) else cast(_Function, otherwise)

    return bound


# A connection


@_needs("web.RequestHandler._waiter", otherwise=lambda handler: False)
def awaits_request(handler: web.RequestHandler) -> bool:
    """True if no request, or not all of a request's head, has come."""
    waiter = handler._waiter
    return waiter is not None and not waiter.done()


@_needs("web.RequestHandler._current_request", otherwise=lambda handler: False)
def awaits_body(handler: web.RequestHandler) -> bool:
    """True if a request is being answered whose body has not come to its end."""
    request = handler._current_request
    return request is not None and not request.content.is_eof()


@_needs(
    "web.RequestHandler._request_in_progress",
    "web.RequestHandler._messages",
    "web.RequestHandler._force_close",
    "web.RequestHandler._close",
    otherwise=lambda handler: False,
)
def is_idle(handler: web.RequestHandler) -> bool:
    """True if no request is read or being answered, and the connection stays open.

    It is already true when the last request has been answered and aiohttp does not yet wait for the next.
    """
    return not (handler._request_in_progress or handler._messages or handler._force_close or handler._close)


@_needs("web.RequestHandler._messages", otherwise=lambda handler: deque())
def parsed_messages(handler: web.RequestHandler) -> deque[tuple[Any, Any]]:
    """Return the requests that were read and not begun, each a message and its body; one queue per connection."""
    return handler._messages


@_needs("web.RequestHandler._next_keepalive_close_time", otherwise=lambda handler, when: None)
def keep_open_until(handler: web.RequestHandler, when: float) -> None:
    """Make aiohttp close the connection, if it is still idle, no earlier than at this time of the loop's clock."""
    handler._next_keepalive_close_time = when


# True if requests for runs may be answered without aiohttp; see `handlers/direct_runs.py`.
can_answer_runs = _has(
    "web.RequestHandler._waiter",
    "web.RequestHandler._messages",
    "web.RequestHandler._next_keepalive_close_time",
    "http_parser.RawRequestMessage",
)


# Requests and answers


if TYPE_CHECKING or _has("http_parser.RawRequestMessage"):
    from aiohttp.http_parser import RawRequestMessage
else:

    class RawRequestMessage:
        """Stand-in: no message is one."""


if TYPE_CHECKING or _has("http_exceptions.HttpProcessingError"):
    from aiohttp.http_exceptions import HttpProcessingError
else:

    class HttpProcessingError(Exception):
        """Stand-in: never raised."""


if TYPE_CHECKING or _has("helpers.rfc822_formatted_time"):
    from aiohttp.helpers import rfc822_formatted_time as http_date
else:

    def http_date() -> str:
        """Return the current time in the form of the header Date."""
        return formatdate(usegmt=True)


if TYPE_CHECKING or _has("http.SERVER_SOFTWARE"):
    from aiohttp.http import SERVER_SOFTWARE
else:
    SERVER_SOFTWARE = f"Python/{sys.version_info[0]}.{sys.version_info[1]} aiohttp/{aiohttp.__version__}"


# The process


@_needs("web_app._cached_build_middleware", otherwise=lambda: None)
def forget_handlers() -> None:
    """Empty aiohttp's cache of the last 1024 handlers of the process, which holds applications that have ended."""
    from aiohttp import web_app

    web_app._cached_build_middleware.cache_clear()
