"""`WatchedStep`: a step that reports each fetched value as it comes.  `SessionCallable.prepare` makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.runtime.feeding.fetches import to_values
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.session.step import Step

__all__ = ["OnOutput", "WatchedStep"]

# Told a fetched tensor's name, and its value.
OnOutput = Callable[[str, Any], object]


class WatchedStep(Step):
    """A step whose outputs are told of before it has ended: it is interpreted, as those are that are traced."""

    __slots__ = ("_names", "_on_output")

    def watch(self, names: Sequence[str], on_output: OnOutput) -> None:
        """Before it begins.

        Args:
            names: of the tensors that its plan fetches, in order.
            on_output: told of each on the event loop.
        """
        self._names = names
        self._on_output = on_output

    @property
    def _on_result(self) -> OnResult:
        return self._arrived

    def _arrived(self, position: int, value: Any) -> None:
        if value is not NO_VALUE:  # else the step ends with an error that says so
            self._on_output(self._names[position], to_values([value])[0])
