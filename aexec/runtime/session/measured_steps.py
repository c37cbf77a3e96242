"""Chooses the steps of a session that are measured for its cost model.

As with TensorFlow's `GraphOptions.build_cost_model` and `build_cost_model_after`, it chooses every n-th step of each
signature, after a number of steps that are not measured.  Next to read: `profiling/cost_model.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from google.protobuf.message import Message

from aexec.runtime.config import RunOptions

__all__ = ["MeasuredSteps"]

# Counts of at most this many signatures are kept; the least recently run one is dropped and starts from zero.
_MOST_SIGNATURES = 1000


class MeasuredSteps:
    """Counts the steps of each signature.

    Args:
        every: measure one step of this many.
        after: the number of first steps of each signature that are not measured.
    """

    def __init__(self, every: int, after: int) -> None:
        self._every = every
        self._after = after
        # Signature → steps so far; the most recently run one is last.
        self._steps: dict[Hashable, int] = {}

    def options(self, signature: Hashable, options: RunOptions | Message | None) -> RunOptions | Message | None:
        """The options of the signature's next step: the caller's, with measuring turned on if that step's turn has
        come.
        """
        done = self._steps.pop(signature, 0)
        self._steps[signature] = done + 1
        if len(self._steps) > _MOST_SIGNATURES:
            del self._steps[next(iter(self._steps))]
        if done < self._after or (done - self._after + 1) % self._every:
            return options
        return replace(RunOptions() if options is None else RunOptions.of(options), cost_graph=True)
