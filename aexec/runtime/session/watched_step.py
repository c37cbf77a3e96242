"""`WatchedStep`: a step that reports each fetched value when it is computed.  `SessionCallable.prepare` makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.runtime.feeding.fetches import to_values
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.session.step import Step

__all__ = ["OnOutput", "WatchedStep"]

# Callback(name of the fetched tensor, value).
OnOutput = Callable[[str, Any], object]


class WatchedStep(Step):
    """A step that reports its fetched values before it has ended.  It is interpreted, as a traced step is."""

    __slots__ = ("_names", "_on_output")

    def watch(self, names: Sequence[str], on_output: OnOutput) -> None:
        """Set the callback.  Called before the step begins.

        Args:
            names: of the tensors that its plan fetches, in order.
            on_output: called on the event loop with each name and value.
        """
        self._names = names
        self._on_output = on_output

    @property
    def _on_result(self) -> OnResult:
        return self._arrived

    def _arrived(self, position: int, value: Any) -> None:
        if value is not NO_VALUE:  # a dead fetch: the step ends with an error that says so
            self._on_output(self._names[position], to_values([value])[0])
