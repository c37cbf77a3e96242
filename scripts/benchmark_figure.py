"""`Figure`: what a group of `benchmarks.py` has measured, a line of its table without the group's name."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Figure"]


class Figure(NamedTuple):
    """A figure, its unit, its baseline, and the target that it is held against."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    target: str = ""
    reached: bool | None = None
