"""`HostTotals`: adds up what all session hosts of a server have counted, ended hosts included."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import Any

from aexec_server.handlers.status import LASTING
from aexec_server.hosts.session_host import SessionHost
from aexec_server.watching.activity import OtherProcesses
from aexec_server.watching.metrics import Snapshot, Totals, is_gauge, snapshot_from_json

__all__ = ["HostTotals", "largest_shares"]

_KEPT_ERRORS = 50
_LARGEST = "aexec_shared_largest"


class HostTotals:
    """The sum of what all session hosts of a server have counted, ended hosts included.

    Attributes:
        tensor_bytes: the bytes of tensors in live hosts, by their last reports.
        restarts: the number of hosts that ended unasked.
    """

    def __init__(self) -> None:
        self.tensor_bytes = 0
        self.restarts = 0
        self._counted = Totals()
        self._tensor_bytes: dict[SessionHost, int] = {}
        self._ended: Counter[str] = Counter()
        self._errors: deque[dict[str, Any]] = deque(maxlen=_KEPT_ERRORS)

    def note(self, host: SessionHost, report: dict[str, Any]) -> None:
        """Take in a host's report."""
        told = snapshot_from_json(report.get("metrics", {}))
        self._counted.add({name: samples for name, samples in told.items() if not is_gauge(name)})
        host.gauges = {**host.gauges, **{name: samples for name, samples in told.items() if is_gauge(name)}}
        self._errors.extend(report.get("errors", ()))
        self._count_tensors(host, host.tensor_bytes)

    def remove(self, host: SessionHost) -> None:
        """Take in an ended host."""
        self._count_tensors(host, 0)
        del self._tensor_bytes[host]
        if host.status is not None:
            self._ended.update({name: host.status[name] for name in LASTING})

    def _count_tensors(self, host: SessionHost, num_bytes: int) -> None:
        self.tensor_bytes += num_bytes - self._tensor_bytes.get(host, 0)
        self._tensor_bytes[host] = num_bytes

    def metrics(self, hosts: Iterable[SessionHost]) -> list[Snapshot]:
        """Snapshots to be added up, of live hosts and of ended ones together."""
        return [self._counted.sums, *(host.gauges for host in hosts)]

    def status(self, hosts: Iterable[SessionHost]) -> OtherProcesses:
        """The state of the hosts by their last reports."""
        return OtherProcesses(
            hosts={host.name: host.status for host in hosts if host.status is not None},
            ended=dict(self._ended),
            recent_errors=list(self._errors),
        )


def largest_shares(front: Snapshot, hosts: Iterable[SessionHost]) -> dict[tuple[str, ...], float]:
    """For each shared resource the most that one client holds.

    Hosts that clients share do not report names, so each host's largest holder counts as the same client.

    Args:
        front: the front's own metrics.
    """
    of_clients: defaultdict[str | None, Totals] = defaultdict(Totals)
    of_clients[None].add({_LARGEST: front.get(_LARGEST, {})})
    for host in hosts:
        of_clients[host.client].add({_LARGEST: host.gauges.get(_LARGEST, {})})
    largest: dict[tuple[str, ...], float] = {}
    for totals in of_clients.values():
        for kind, held in totals.sums[_LARGEST].items():
            assert not isinstance(held, list)
            largest[kind] = max(held, largest.get(kind, 0.0))
    return largest
