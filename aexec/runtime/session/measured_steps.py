"""Which steps of a session are measured for its cost model.

As TensorFlow's `GraphOptions.build_cost_model` says: every n-th step of each signature, after so many that are
left alone.  Next to read: `profiling/cost_model.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from google.protobuf.message import Message

from aexec.runtime.config import RunOptions

__all__ = ["MeasuredSteps"]

# Of a session that is asked for ever other things those that were not asked for lately begin anew.
_MOST_SIGNATURES = 1000


class MeasuredSteps:
    """Counts the steps of each signature.

    Args:
        every: the last of each so many is measured.
        after: how many of each signature come before.
    """

    def __init__(self, every: int, after: int) -> None:
        self._every = every
        self._after = after
        # The signatures of the last runs, the latest last.
        self._steps: dict[Hashable, int] = {}

    def options(self, signature: Hashable, options: RunOptions | Message | None) -> RunOptions | Message | None:
        """The options of the next step of a signature: the caller's, or the same and that it is measured."""
        done = self._steps.pop(signature, 0)
        self._steps[signature] = done + 1
        if len(self._steps) > _MOST_SIGNATURES:
            del self._steps[next(iter(self._steps))]
        if done < self._after or (done - self._after + 1) % self._every:
            return options
        return replace(RunOptions() if options is None else RunOptions.of(options), cost_graph=True)
