"""`Figure`: one measurement of a benchmark group; a line of the table of `benchmarks.py` without the group's name."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Figure"]


class Figure(NamedTuple):
    """A figure, its unit, its baseline, and its target."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    target: str = ""
    reached: bool | None = None
