"""Limits on open files, and hence on connections and session hosts."""

from __future__ import annotations

from aexec_server.settings.server_config import ServerConfig

__all__ = ["FILES_OF_A_HOST", "files_for_hosts", "most_connections", "raise_file_limit"]

# Descriptors kept back for everything but clients' connections: libraries, graphs, a few hosts.
_RESERVED = 256
# Descriptors that the front has open per host: pipes, the channel, the host's `/proc` entry, two connections.
FILES_OF_A_HOST = 8
# Fraction of the file limit that may go to hosts.
_HOSTS_SHARE = 0.5
_WITHOUT_LIMIT = 100_000


def raise_file_limit() -> None:
    """Raise the soft limit on open files to the hard limit.  Only for a process that is the server's own."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(config: ServerConfig, files_each: int, others: int = 0) -> int:
    """Return how many client connections may be open: `max_connections`, or what the file limit allows if that is less.

    Args:
        config: the server's configuration.
        files_each: descriptors that one connection needs, with what is opened for it.
        others: descriptors that are in use for something else.
    """
    return min(config.max_connections, max(1, (_file_limit() - _RESERVED - others) // files_each))


def files_for_hosts() -> int:
    """Return how many hosts may run if half of the file limit is for hosts."""
    return int((_file_limit() - _RESERVED) * _HOSTS_SHARE) // FILES_OF_A_HOST


def _file_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _WITHOUT_LIMIT
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft
