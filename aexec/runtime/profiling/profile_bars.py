"""A profile as an HTML table with bars, for notebooks.  It needs no other package."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from aexec.framework.html_repr import html_text

__all__ = ["Bar", "bars_table", "op_colour"]

_LEFT = "style='text-align: left; padding-right: 12px'"
_WIDTH = 200  # pixels of the bar of all


class Bar(NamedTuple):
    """A row of the table: what it is about, its calls and seconds, and the share that its bar shows."""

    name: str
    op: str
    calls: int
    seconds: float
    share: float


def bars_table(steps: int, by: str, bars: Iterable[Bar]) -> str:
    """The table of a profile of some steps, by node or by op."""
    head = "".join(f"<th {_LEFT}>{name}</th>" for name in (by, "calls", "self ms", "share"))
    rows = "".join(map(_row, bars))
    return (
        f"<div><b>Profile</b> of {steps} {'step' if steps == 1 else 'steps'}<table><tr>{head}</tr>{rows}</table></div>"
    )


def _row(bar: Bar) -> str:
    style = f"width: {bar.share * _WIDTH:.0f}px; height: 10px; background: {op_colour(bar.op or bar.name)}"
    drawn = f"{bar.share:.1%}<div style='{style}'></div>"
    cells = (html_text(bar.name), str(bar.calls), f"{bar.seconds * 1e3:.3f}", drawn)
    return "<tr>" + "".join(f"<td {_LEFT}>{cell}</td>" for cell in cells) + "</tr>"


def op_colour(op: str) -> str:
    """The colour of an op, always the same."""
    return f"hsl({zlib.crc32(op.encode()) % 360},55%,75%)"
