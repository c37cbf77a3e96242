"""Imports all that a graph may need, in the process from which session hosts are forked, so that they share it.

Importing this module ignores SIGTERM and SIGHUP.  Service managers and terminals send these to all processes, but hosts
need the process that they were forked from until the front has ended them.
"""

from __future__ import annotations

import importlib
import signal

from aexec.hosting import collect_garbage, freeze_heap, load_kernels
from aexec_server.hosts.host_rehearsal import rehearse

__all__: list[str] = []

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
importlib.import_module("aexec_server.hosts.host_process")
load_kernels()
rehearse()
collect_garbage()
# The collector writes to the objects that it visits, so their pages would be copied in each host.
freeze_heap()
