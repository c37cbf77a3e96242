"""AEXEC_DEBUG: how much the runtime checks and prints.

Level 1: the executor checks its invariants after every slice, and every output against its op's definition; 2: also
a line per step; 3: also a line per node.
"""

from __future__ import annotations

import os

__all__ = ["DEBUG"]


def _debug_level() -> int:
    text = os.environ.get("AEXEC_DEBUG", "")
    return int(text) if text.isdigit() else 0


DEBUG = _debug_level()
