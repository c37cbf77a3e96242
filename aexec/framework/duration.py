"""Times as people write them: `2s`, `500ms`, `1m`."""

from __future__ import annotations

import re

__all__ = ["parse_duration"]

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds, of `2s`, `500ms`, `1m`, `1h` or a bare number.  Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration: expected a number with ms, s, m or h, e.g. 2s")
    return float(match[1]) * _SECONDS[match[2]]
