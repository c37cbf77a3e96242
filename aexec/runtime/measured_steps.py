"""Which steps of a session are measured for its cost model.

As TensorFlow's `GraphOptions.build_cost_model` says: every n-th step of each signature, after so many that are
left alone.  Next to read: `cost_model.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from google.protobuf.message import Message

from aexec.runtime.config import RunOptions

__all__ = ["MeasuredSteps"]


class MeasuredSteps:
    """Counts the steps of each signature.

    Args:
        every: the last of each so many is measured.
        after: how many of each signature come before.
    """

    def __init__(self, every: int, after: int) -> None:
        self._every = every
        self._after = after
        self._steps: Counter[Hashable] = Counter()

    def options(self, signature: Hashable, options: RunOptions | Message | None) -> RunOptions | Message | None:
        """The options of the next step of a signature: the caller's, or the same and that it is measured."""
        step = self._steps[signature] - self._after
        self._steps[signature] += 1
        if step < 0 or (step + 1) % self._every:
            return options
        return replace(RunOptions() if options is None else RunOptions.of(options), cost_graph=True)
