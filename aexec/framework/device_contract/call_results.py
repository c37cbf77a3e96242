"""Where the results of called functions are, on devices with memory of their own.

A kernel says where it wants the results of a function that it calls.  A result that goes into the next call, as in
loops, stays in the memory in which it was made; `PlacedValues` records which that is.
Next to read: `aexec/runtime/functions/function_calls.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aexec.framework.device_contract.device import Device

__all__ = ["PlacedValues", "Results"]


class Results(enum.Enum):
    """Where a kernel wants the results of a function."""

    AS_OUTPUTS = "in the memory in which the outputs of its own node are"
    ON_HOST = "in the host's memory"
    WHERE_MADE = "wherever they are made: they go into another call, and are delivered after the last"


class PlacedValues(tuple[Any, ...]):
    """Values that are not all in the memory of the calling node's outputs.

    Attributes:
        places: for each value the device in whose memory it is; None for the host's.
    """

    places: tuple[Device | None, ...]

    @classmethod
    def of(cls, values: Sequence[Any], places: Sequence[Device | None]) -> PlacedValues:
        """Values with their places."""
        made = cls(values)
        made.places = tuple(places)
        return made

    @staticmethod
    def after(value: Any, values: Sequence[Any]) -> Sequence[Any]:
        """The values, placed or not, after a first value that is in the host's memory."""
        if isinstance(values, PlacedValues):
            return PlacedValues.of((value, *values), (None, *values.places))
        return [value, *values]
