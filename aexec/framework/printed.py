"""Printing by graphs: where it goes, how much a source may print, and how a run collects its own prints.

A kernel prints through its context, with the step's `Printer`, which takes the name of a stream and a text.  The
default is `print_text`, for the whole process; a session may put a `PrintRate` before it, and a run may replace it by a
`Prints`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from time import monotonic

__all__ = ["LOG_LEVELS", "PrintRate", "Printer", "Printers", "Prints", "print_text", "set_printer"]

# Callback(stream, text), called in the thread of the kernel; the stream is "stdout", "stderr" or one of `LOG_LEVELS`,
# and # the text may have several lines.
Printer = Callable[[str, str], object]

LOG_LEVELS = {"log(info)": logging.INFO, "log(warning)": logging.WARNING, "log(error)": logging.ERROR}
# Overhead of a text in a log, in bytes.
_LINE_BYTES = 100
_SECOND = 1.0

_log = logging.getLogger("aexec")


def _to_stream(stream: str, text: str) -> None:
    getattr(sys, stream).write(text)  # looked up in each call: programs replace them


_printer: Printer = _to_stream


def print_text(stream: str, text: str) -> None:
    """Print a text of a graph.

    Args:
        stream: "stdout" or "stderr", which go to the printer set by `set_printer`; or one of `LOG_LEVELS`, for the
            logger `aexec`.
    """
    level = LOG_LEVELS.get(stream)
    if level is None:
        _printer(stream, text)
    else:
        _log.log(level, "%s", text)


def set_printer(printer: Printer | None) -> None:
    """Set the printer of all graphs of this process; None for the process's own streams."""
    global _printer
    _printer = _to_stream if printer is None else printer


class PrintRate:
    """A `Printer` that limits how many bytes a second one source prints.

    Further texts are dropped; at the end of the second a line says how much.

    Args:
        source: the name of the source, for that line.
        most: bytes in a second.
        loop: the event loop on which that line is printed.
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
        """Called when nothing more is printed, on the loop: print how much was dropped."""
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
    """A `Printer` that keeps the beginning of a run's output.

    Args:
        most: the most characters that are kept.
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
        """The kept text, in the order in which it was printed."""
        return "".join(self._texts)

    @property
    def left_out(self) -> int:
        """The number of characters that were dropped."""
        return self._left_out


class Printers:
    """The printers of one source's steps.

    Args:
        source: the name of the source.
        most: bytes that it may print in a second; None for no limit.
    """

    __slots__ = ("_most", "_rate", "_source")

    def __init__(self, source: str, most: int | None) -> None:
        self._source = source
        self._most = most
        self._rate: PrintRate | None = None

    def of_step(self, loop: asyncio.AbstractEventLoop) -> Printer:
        """The printer of a step that runs on this loop; all steps together keep the limit."""
        if self._most is None:
            return print_text
        if self._rate is None:
            self._rate = PrintRate(self._source, self._most, loop)
        return self._rate

    def close(self) -> None:
        """Called when no step prints any more, on the loop."""
        if self._rate is not None:
            self._rate.close()
