"""`tensorflow.python.client.timeline`: converts a step's statistics into a Chrome trace.

Next to read: `aexec/runtime/profiling/chrome_trace.py`.
"""

from __future__ import annotations

import json

from aexec import proto

__all__ = ["Timeline"]


class Timeline:
    """Converts `run_metadata.step_stats` into a Chrome trace."""

    def __init__(self, step_stats: proto.StepStats, graph: object = None) -> None:
        self._step_stats = step_stats

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False) -> str:
        """The trace as JSON, which chrome://tracing and Perfetto read."""
        from aexec.runtime.profiling.chrome_trace import to_chrome_trace

        return json.dumps(to_chrome_trace(self._step_stats, show_dataflow=show_dataflow, show_memory=show_memory))
