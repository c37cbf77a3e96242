"""gRPC serves no durable sessions, whose answers have to wait for the disk: these are HTTP's."""

from __future__ import annotations

from aexec import errors
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["refuse_durable"]


def refuse_durable(hosted: HostedSession) -> HostedSession:
    """Return the session.  Raises UnimplementedError if it is durable."""
    if hosted.durable is not None:
        raise errors.UnimplementedError("Durable sessions are not served by gRPC: use HTTP")
    return hosted
