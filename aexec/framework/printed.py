"""What graphs print: where it goes, how much of it a source may print, and how a run collects its own.

A kernel prints by its context, whose step decides: a `Printer` takes the name of a stream and a text.  By default that
is `print_text`, for the whole process; a session may have a `PrintRate` before it, and a run a `Prints` in its place.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from time import monotonic

__all__ = ["LOG_LEVELS", "PrintRate", "Printer", "Prints", "print_text", "set_printer"]

# Told the name of a stream, "stdout", "stderr" or one of `LOG_LEVELS`, and a text that may have several lines, in
# whichever thread a kernel runs.
Printer = Callable[[str, str], object]

LOG_LEVELS = {"log(info)": logging.INFO, "log(warning)": logging.WARNING, "log(error)": logging.ERROR}
# What a text takes in a log besides itself.
_LINE_BYTES = 100
_SECOND = 1.0

_log = logging.getLogger("aexec")


def _to_stream(stream: str, text: str) -> None:
    getattr(sys, stream).write(text)  # looked up in each call: programs replace them


_printer: Printer = _to_stream


def print_text(stream: str, text: str) -> None:
    """Print what a graph has to say.

    Args:
        stream: "stdout" or "stderr", which go where `set_printer` says; or one of `LOG_LEVELS`, of the log `aexec`.
    """
    level = LOG_LEVELS.get(stream)
    if level is None:
        _printer(stream, text)
    else:
        _log.log(level, "%s", text)


def set_printer(printer: Printer | None) -> None:
    """Say where all graphs of this process print to; None for its own streams."""
    global _printer
    _printer = _to_stream if printer is None else printer


class PrintRate:
    """A `Printer` of one source, that may print so much in a second.

    What is beyond that is left out.  How much that was is told in a line, when the second is over.

    Args:
        source: who prints, for that line.
        most: bytes in a second.
        loop: on which that line is printed.
    """

    def __init__(self, source: str, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._most = most
        self._loop = loop
        self._lock = threading.Lock()
        self._began = -_SECOND
        self._left = 0
        self._texts = self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, stream: str, text: str) -> None:
        num_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        size = num_bytes + _LINE_BYTES
        with self._lock:
            now = monotonic()
            if now - self._began >= _SECOND:
                self._began, self._left = now, self._most
            fits = size <= self._left
            if fits:
                self._left -= size
            else:
                self._texts, self._bytes = self._texts + 1, self._bytes + num_bytes
            is_first = self._texts == 1 and not fits
        if fits:
            print_text(stream, text)
        elif is_first:
            self._loop.call_soon_threadsafe(self._tell_later)

    def close(self) -> None:
        """Nothing more is printed: tell what was left out.  On the loop."""
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(0.0, self._began + _SECOND - monotonic()), self._tell)

    def _tell(self) -> None:
        self._timer = None
        with self._lock:
            texts, size = self._texts, self._bytes
            self._texts = self._bytes = 0
        if texts:
            print_text(
                "stderr",
                f"{self._source}: {texts} texts of {size} bytes were left out: it may print {self._most} bytes a "
                "second\n",
            )


class Prints:
    """A `Printer` that keeps what a run prints, as far as that is not too much.

    Args:
        most: characters that are kept.
    """

    def __init__(self, most: int) -> None:
        self._room = most
        self._lock = threading.Lock()
        self._texts: list[str] = []
        self._left_out = 0

    def __call__(self, stream: str, text: str) -> None:
        with self._lock:
            kept = text[: self._room]
            self._room -= len(kept)
            self._left_out += len(text) - len(kept)
            if kept:
                self._texts.append(kept)

    @property
    def text(self) -> str:
        """All of it, in the order in which it was printed."""
        return "".join(self._texts)

    @property
    def left_out(self) -> int:
        """Characters that were too many."""
        return self._left_out
