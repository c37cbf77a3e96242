"""`HostLimits`: the number of session hosts, and each host's part of the server's limits.

A fixed number of hosts divides the server's limits equally.  If sessions have hosts of their own, each host has the
server's limits, and the front bounds the sessions and the memory of all together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from aexec.hosting import total_memory
from aexec_server.settings.file_limit import files_for_hosts
from aexec_server.settings.memory_limits import memory_limits
from aexec_server.settings.server_config import ServerConfig

__all__ = ["HostLimits"]

# The part of the machine's memory for all hosts together.
_MEMORY_SHARE = 0.8
# The part of that for idle hosts, and also for one host.
_EMPTY_SHARE = 0.5
_ONE_SHARE = 0.5
_EMPTY_BYTES = 16 << 20
_MOST_HOSTS = 500
# The number of hosts if the amount of memory is unknown.
_HOSTS_OF_UNKNOWN_MEMORY = 64
# Unused hosts that are kept ready: one for each `_WARM_SHARE` hosts of the limit, and at most `_MOST_WARM`.
_WARM_SHARE = 16
_MOST_WARM = 4


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The number of session hosts, and each host's part of the server's limits.

    Attributes:
        own: True if each session of a client has a host of its own, as long as there are hosts.
        most: the most hosts for clients' sessions.
        warm: how many of them are started ahead of need, if sessions have hosts of their own.
        most_bytes: the most memory of all hosts together, in bytes, without what they share; None for no limit.
        tensor_bytes: the most bytes of tensors in all hosts together; None for no limit.
        host: the settings of one host.
    """

    own: bool
    most: int
    warm: int
    most_bytes: int | None
    tensor_bytes: int | None
    host: ServerConfig

    @staticmethod
    def of(config: ServerConfig) -> HostLimits:
        of_clients = replace(config, graphs={}, models={}, model_repository=None)
        total = total_memory()
        share = None if math.isinf(total) else int(total * _MEMORY_SHARE)
        if config.hosts is not None:
            return _fixed(of_clients, config.hosts, share)
        return _own(of_clients, share)


def _fixed(config: ServerConfig, hosts: int, share: int | None) -> HostLimits:
    host = replace(
        config,
        max_sessions=math.ceil(config.max_sessions / hosts),
        max_runs=math.ceil(config.max_runs / hosts),
        max_host_bytes=config.max_host_bytes or (None if share is None else share // hosts),
        max_memory_bytes=None if config.max_memory_bytes is None else config.max_memory_bytes / hosts,
    )
    all_hosts = replace(config, max_host_bytes=host.max_host_bytes and hosts * host.max_host_bytes)
    tensor_bytes = memory_limits(all_hosts).server
    return HostLimits(own=False, most=hosts, warm=0, most_bytes=None, tensor_bytes=tensor_bytes, host=host)


def _own(config: ServerConfig, share: int | None) -> HostLimits:
    if share is None:
        most = _HOSTS_OF_UNKNOWN_MEMORY
        host = config
    else:
        most = min(_MOST_HOSTS, int(share * _EMPTY_SHARE) // _EMPTY_BYTES)
        host = replace(config, max_host_bytes=config.max_host_bytes or int(share * _ONE_SHARE))
    most = max(1, min(most, config.max_sessions, files_for_hosts()))
    all_hosts = replace(config, max_host_bytes=share)
    return HostLimits(
        own=True,
        most=most,
        warm=max(1, min(_MOST_WARM, most // _WARM_SHARE)),
        most_bytes=share,
        tensor_bytes=memory_limits(all_hosts).server,
        host=host,
    )
