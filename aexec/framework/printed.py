"""Where graphs print to: the process's own stdout and stderr, unless its program says otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["Printer", "print_text", "set_printer"]

# Told "stdout" or "stderr", and a text that may have several lines, in whichever thread a kernel runs.
Printer = Callable[[str, str], object]


def _to_stream(stream: str, text: str) -> None:
    getattr(sys, stream).write(text)  # looked up in each call: programs replace them


_printer: Printer = _to_stream


def print_text(stream: str, text: str) -> None:
    """Print what a graph has to say.

    Args:
        stream: "stdout" or "stderr".
    """
    _printer(stream, text)


def set_printer(printer: Printer | None) -> None:
    """Say where all graphs of this process print to; None for its own streams."""
    global _printer
    _printer = _to_stream if printer is None else printer
