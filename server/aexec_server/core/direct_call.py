"""`DirectCall`: decodes requests for runs that have the same head; `DirectRun`: one such request.

Each protocol makes its own from an ordinary head (`handlers/runs.py`, `handlers/model_calls.py`).
`handlers/direct_runs.py` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Caller
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["DirectCall", "DirectRun", "MakeDirectCall"]


class DirectRun(Protocol):
    """A decoded request.

    Attributes:
        hosted: the session to run.
        asked: the run that it asks for.
    """

    @property
    def hosted(self) -> HostedSession: ...

    @property
    def asked(self) -> RunRequest: ...

    def check(self, served: ServedCall) -> None:
        """Raise, before the run, if the answer could not hold the outputs."""

    def write(self, run_id: str, served: ServedCall, values: Sequence[Any]) -> Answer:
        """Return the answer."""

    def passed(self, arrival: float, decoded: float, ran: float) -> None:
        """Record an answered request: when it came, was decoded, and had run, by `time.monotonic`."""


class DirectCall(Protocol):
    """The part of a request that its head determines.

    Attributes:
        media: the content type of answers without binary tensors.
        compresses: True if answers are compressed for clients that accept it.
    """

    media: str
    compresses: bool

    def read(self, body: bytes, caller: Caller) -> DirectRun | None:
        """Decode a request; return None for an unusual one.  Raises if the request is wrong."""


# Makes a DirectCall of the parameters of a path and a head; None for an unusual head.  Raises if the request is wrong.
MakeDirectCall = Callable[[Mapping[str, str], RawRequestMessage], DirectCall | None]
