"""`TraceTable`: traces of a session's last runs, by run id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import aexec

__all__ = ["Phases", "TraceTable"]

_MAX_TRACES = 64
_MAX_BYTES = 32 * 2**20


@dataclass(slots=True)
class Phases:
    """Seconds that the phases of a run took.

    Attributes:
        receiving: from the first byte of its request to the last.
        in_line: waiting for a slot.
        preparing: reading the request, and planning.
        running: the step.
        encoding: writing the answer; for a run that is answered with events, its outputs, in part while it runs.
    """

    receiving: float = 0.0
    in_line: float = 0.0
    preparing: float = 0.0
    running: float = 0.0
    encoding: float = 0.0


class TraceTable:
    """The newest traces, by id of their run, within limits on number and bytes."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, tuple[aexec.RunMetadata, Phases, int]] = OrderedDict()
        self._bytes = 0

    def add(self, run_id: str, metadata: aexec.RunMetadata, phases: Phases) -> None:
        """Keep the trace of a run, if it has one."""
        if metadata.step_stats is None:
            return
        self.drop(run_id)
        size = metadata.step_stats.ByteSize()
        self._traces[run_id] = metadata, phases, size
        self._bytes += size
        while self._traces and (len(self._traces) > _MAX_TRACES or self._bytes > _MAX_BYTES):
            self.drop(next(iter(self._traces)))

    def drop(self, run_id: str) -> None:
        """Drop the trace of a run, if there is one."""
        *_, size = self._traces.pop(run_id, (0,))
        self._bytes -= size

    def find(self, run_id: str) -> tuple[aexec.RunMetadata, Phases] | None:
        """Return the trace of a run; None if it was not traced or its trace was dropped."""
        found = self._traces.get(run_id)
        return None if found is None else found[:2]
