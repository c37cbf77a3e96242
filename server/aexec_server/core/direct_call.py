"""`DirectCall`: a call for runs whose requests all have the same head, and `DirectRun`, one of them.

Each protocol makes its own (`handlers/runs.py`, `handlers/model_calls.py`) of the head of a request, if that says
nothing out of the ordinary.  `handlers/direct_runs.py` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Caller
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.store import HostedSession

__all__ = ["DirectCall", "DirectRun", "MakeDirectCall"]


class DirectRun(Protocol):
    """A request that was read.

    Attributes:
        hosted: the session that it is for.
        asked: the run.
    """

    @property
    def hosted(self) -> HostedSession: ...

    @property
    def asked(self) -> RunRequest: ...

    def check(self, served: ServedCall) -> None:
        """Refuse before the run what its answer could not hold."""

    def write(self, run_id: str, served: ServedCall, values: Sequence[Any]) -> Answer:
        """The answer."""

    def passed(self, arrival: float, decoded: float, ran: float) -> None:
        """It was answered; when it came, was decoded and had run, by `time.monotonic`."""


class DirectCall(Protocol):
    """What is known of a request by its head.

    Attributes:
        media: the type of answers that are not followed by tensors as bytes.
        compresses: answers go compressed, if their client reads that.
    """

    media: str
    compresses: bool

    def read(self, body: bytes, caller: Caller) -> DirectRun | None:
        """Decode a request; None for one that is not as most are.  Raises what is wrong with it."""


# Makes one of the parameters of a path, and a head.  Raises what is wrong with that.
MakeDirectCall = Callable[[Mapping[str, str], RawRequestMessage], DirectCall | None]
