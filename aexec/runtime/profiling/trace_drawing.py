"""Drawings of traces for notebooks: a timeline as SVG, which needs no other package.

It has a row for each thread or stream of each device, as `chrome_trace.py` assigns them, and a bar for each run of a
node, whose colour tells the op and whose tooltip the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aexec.framework.html_repr import html_text
from aexec.runtime.profiling.profile_bars import op_colour
from aexec.runtime.profiling.trace_summary import node_runs_of

__all__ = ["timeline_svg"]

# Sizes in pixels.
_WIDTH, _LABELS, _ROW, _TICKS = 900, 150, 16, 18
_LETTER = 6.2  # width of a letter, about
_MOST_BARS = 2000
_MOST_ROWS = 40
_MOST_TICKS = 8
_FONT = "font-family='sans-serif' font-size='10'"
_TEXT = f"{_FONT} fill='currentColor'"  # light in a dark notebook
_LINE = "stroke='currentColor' stroke-opacity='0.15'"
_ON_BAR = f"{_FONT} fill='#222'"


def timeline_svg(trace: Mapping[str, Any]) -> str:
    """A trace as an SVG element: time from left to right, a row for each thread or stream, a bar for each node run.

    The shortest runs are left out if there are more than 2000, and rows beyond 40; a line says how many.

    Args:
        trace: a Chrome trace, as `to_chrome_trace` returns it.

    Raises:
        InvalidArgumentError: it is no such trace.
    """
    runs = node_runs_of(trace)
    rows = {place: number for number, place in enumerate(dict.fromkeys(sorted(map(_place, runs))))}
    shown = [run for run in runs if rows[_place(run)] < _MOST_ROWS]
    shown = sorted(shown, key=lambda run: -run["dur"])[:_MOST_BARS]
    begin = min((run["ts"] for run in runs), default=0.0)
    span = max((run["ts"] + run["dur"] for run in runs), default=0.0) - begin or 1.0
    scale = (_WIDTH - _LABELS) / span
    bottom = _TICKS + _ROW * min(len(rows), _MOST_ROWS)
    parts = [*_ticks(span, scale, bottom), *_labels(trace, rows)]
    parts += [
        _bar(run, _LABELS + (run["ts"] - begin) * scale, scale, _TICKS + _ROW * rows[_place(run)])
        for run in sorted(shown, key=lambda run: (run["ts"], _place(run)))
    ]
    if len(shown) < len(runs):
        parts.append(f"<text x='0' y='{bottom + 12}' {_TEXT}>{len(runs) - len(shown)} node runs are left out</text>")
    return f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{bottom + 16}'>{''.join(parts)}</svg>"


def _place(run: Mapping[str, Any]) -> tuple[int, int]:
    """The device and the row of a run."""
    return int(run.get("pid", 0)), int(run.get("tid", 0))


def _bar(run: Mapping[str, Any], x: float, scale: float, y: float) -> str:
    args = run.get("args")
    facts = args if isinstance(args, dict) else {}
    name, op = str(facts.get("name", run.get("name"))), str(facts.get("op", run.get("name")))
    width = max(0.5, run["dur"] * scale)
    letters = int(width / _LETTER)
    label = f"<text x='{x + 2:.1f}' y='{y + 12:.1f}' {_ON_BAR}>{html_text(name, letters)}</text>" if letters > 3 else ""
    return (
        f"<g><title>{html_text(name, 200)}\n{html_text(op)}, {run['dur'] / 1e3:.3f} ms</title>"
        f"<rect x='{x:.1f}' y='{y + 1:.1f}' width='{width:.1f}' height='{_ROW - 2}' fill='{op_colour(op)}'/>{label}</g>"
    )


def _labels(trace: Mapping[str, Any], rows: Mapping[tuple[int, int], int]) -> list[str]:
    """The names of devices, each at its first row."""
    names = {
        event.get("pid"): str(event["args"].get("name"))
        for event in trace["traceEvents"]
        if event.get("name") == "process_name" and isinstance(event.get("args"), dict)
    }
    first: dict[int, int] = {}
    for (pid, _), row in rows.items():
        first.setdefault(pid, row)
    return [
        f"<text x='0' y='{_TICKS + _ROW * row + 12}' {_TEXT}>{html_text(names.get(pid, ''), 24)}</text>"
        for pid, row in first.items()
        if row < _MOST_ROWS
    ]


def _ticks(span: float, scale: float, bottom: float) -> list[str]:
    """Lines at round times; `span` is in microseconds."""
    step = _round_step(span / _MOST_TICKS)
    parts = []
    for number in range(int(span / step) + 1):
        x = _LABELS + number * step * scale
        parts.append(
            f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{_TICKS - 4}' y2='{bottom}' {_LINE}/>"
            f"<text x='{x:.1f}' y='10' {_TEXT}>{number * step / 1e3:g} ms</text>"
        )
    return parts


def _round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= least)
