"""Imported by the process from which session hosts are forked: whatever a graph may need, so that they share it.

Importing it ignores SIGTERM: service managers tell all processes of a service to stop, but hosts need the one from
which they were forked until the one that started it has ended them.
"""

from __future__ import annotations

import importlib
import signal

from aexec.hosting import collect_garbage, freeze_heap, load_kernels
from aexec_server.hosts.host_rehearsal import rehearse

__all__: list[str] = []

signal.signal(signal.SIGTERM, signal.SIG_IGN)
importlib.import_module("aexec_server.hosts.host_process")
load_kernels()
rehearse()
collect_garbage()
# The collector marks the objects that it looks at, by which their pages would be copied in each host.
freeze_heap()
