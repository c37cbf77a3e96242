"""How many files, and so connections, the process may have open."""

from __future__ import annotations

from aexec_server.settings.server_config import ServerConfig

__all__ = ["FILES_OF_A_HOST", "files_for_hosts", "most_connections", "raise_file_limit"]

# Kept for what is no client's connection: libraries, graphs, a few hosts.
_RESERVED = 256
# That the front has open for each host: pipes, the channel, what the kernel says of it, two connections.
FILES_OF_A_HOST = 8
# Of the files that there may be, for hosts.
_HOSTS_SHARE = 0.5
_WITHOUT_LIMIT = 100_000


def raise_file_limit() -> None:
    """Let the process have as many files as the system allows it; for a process that is the server's own."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(config: ServerConfig, files_each: int, others: int = 0) -> int:
    """How many connections of clients may be open: as configured, and what the process may have of files.

    Args:
        config: of the server.
        files_each: that one connection takes, with what it is for.
        others: files that something else takes.
    """
    return min(config.max_connections, max(1, (_file_limit() - _RESERVED - others) // files_each))


def files_for_hosts() -> int:
    """For how many hosts there are files, if half of the files are for hosts."""
    return int((_file_limit() - _RESERVED) * _HOSTS_SHARE) // FILES_OF_A_HOST


def _file_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _WITHOUT_LIMIT
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft
