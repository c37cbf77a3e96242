"""`ServerConfig`: everything that can be set about the server, in one frozen dataclass."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aexec
from aexec import errors

__all__ = ["GraphSource", "ServerConfig"]

# A graph to serve from the start: itself, a file, or something that makes it.
GraphSource = aexec.Graph | str | Path | Callable[[], aexec.Graph]

_POSITIVE = (
    "max_body_bytes",
    "max_answer_bytes",
    "max_sessions",
    "max_kept_bytes",
    "max_runs",
    "max_threads",
    "body_seconds",
    "sweep_seconds",
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of a server.

    Attributes:
        host, port: address to listen on; port 0 takes any free one.
        graphs: session name → graph, or the path of a graph file or SavedModel, whose variables are restored.
            These sessions are open when the server gets ready and never expire.
        max_body_bytes: largest request body, counted after decompression too.
        max_answer_bytes: largest sum of the tensors that a run answers with.
        max_sessions: sessions open at any time.
        max_kept_bytes: what a client's session may keep under handles.
        max_run_bytes: what the tensors of one run of a client's session may take of memory at a time, and
        max_session_bytes: those of all its runs together with what they leave; None for no limit.
        max_runs: runs in flight at any time, over all sessions.
        max_threads: largest thread count that a client's ConfigProto may ask for.
        max_timeout: longest deadline of a run in seconds, also for runs that ask for none; None for no limit.
        body_seconds: how long a client may take to send a body.
        session_ttl_s: seconds after which an unused session is closed, unless its creator asks for
            another time; None for never.
        drain_seconds: how long runs may go on after the server was told to stop.
        sweep_seconds: how often unused sessions are looked for.
        allow_file_ops: let graphs of clients read and write files of this machine.
        delegates: as `aexec.SessionConfig` takes them, for all sessions.  None is `"auto"` for `graphs` and none for
            what clients send: a delegate is a library in this process, written for models of one's own.
        access_log: log every request.
        clock: seconds of a monotonic clock, by which sessions age.
    """

    host: str = "127.0.0.1"
    port: int = 8500
    graphs: Mapping[str, GraphSource] = field(default_factory=dict)
    max_body_bytes: int = 64 * 2**20
    max_answer_bytes: int = 2**30
    max_sessions: int = 1000
    max_kept_bytes: int = 2**30
    max_run_bytes: int | None = None
    max_session_bytes: int | None = None
    max_runs: int = 1000
    max_threads: int = 64
    max_timeout: float | None = None
    body_seconds: float = 300.0
    session_ttl_s: float | None = 3600.0
    drain_seconds: float = 10.0
    sweep_seconds: float = 1.0
    allow_file_ops: bool = False
    delegates: str | Collection[str] | None = None
    access_log: bool = False
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise errors.InvalidArgumentError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("max_timeout", "session_ttl_s", "max_run_bytes", "max_session_bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise errors.InvalidArgumentError(f"{name} must be positive or None, got {value}")
        if self.delegates is not None:
            aexec.SessionConfig(delegates=self.delegates)
        if self.drain_seconds < 0:
            raise errors.InvalidArgumentError(f"drain_seconds must not be negative, got {self.drain_seconds}")
