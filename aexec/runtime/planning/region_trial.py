"""`RegionTrial`: measures a region in its delegate and by its nodes, and says which is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["RegionTrial"]

# Whose turn it is, True for the delegate's: its first call prepares things, and is not counted.
_TURNS = (True, True, False, True, False)
# The nodes must take less than this part of the delegate's time: by less, the difference may be chance.
_CLEARLY = 0.8

Shapes = tuple[tuple[int, ...], ...]


class RegionTrial:
    """A few calls of a region that are measured, some in the delegate and some by the nodes.

    Only calls on inputs of the same shapes are compared: those of the first call.
    """

    def __init__(self) -> None:
        self._shapes: Shapes | None = None
        self._times: list[float] = []

    def is_about(self, inputs: Sequence[Any]) -> bool:
        """True if a call on these inputs is one of the trial."""
        shapes = tuple([tuple(x.shape) for x in inputs])
        if self._shapes is None:
            self._shapes = shapes
        return shapes == self._shapes

    @property
    def delegate_is_next(self) -> bool:
        """True if the next call is the delegate's, False if it is the nodes'.  The trial must not have ended."""
        return _TURNS[len(self._times)]

    def took(self, seconds: float) -> None:
        """Note how long the next call took; the call must have been alone."""
        self._times.append(seconds)

    @property
    def ended(self) -> bool:
        return len(self._times) == len(_TURNS)

    @property
    def times(self) -> tuple[float, float]:
        """The least seconds of a call in the delegate, and by the nodes; the trial must have ended."""
        counted = list(zip(_TURNS, self._times, strict=True))[1:]
        return min(s for delegate, s in counted if delegate), min(s for delegate, s in counted if not delegate)

    @property
    def nodes_are_faster(self) -> bool:
        """True if the nodes are clearly faster; the trial must have ended."""
        delegate, nodes = self.times
        return nodes < _CLEARLY * delegate
