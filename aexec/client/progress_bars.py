"""`progress_bars`: bars for what takes long, on the terminal or in the notebook.

Bars are those of tqdm if it is installed, else those of rich.  Next to read: `aexec/framework/progress.py`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from aexec.framework.late_dataclass import dataclass
from aexec.framework.progress import Listener, WorkBar, listening

__all__ = ["Bars", "RichBars", "make_bars", "progress_bars"]

_DELAY = 0.5


@contextmanager
def progress_bars(*, delay: float = _DELAY, file: TextIO | None = None) -> Iterator[None]:
    """Context manager: what is begun inside shows a bar while it takes long, in whatever task or thread.

    That is: importing a graph or a model of a thousand nodes or more, and reading a checkpoint.  Bars are on standard
    error, if that is a terminal, or in the notebook; they disappear at the end of the work.

    Args:
        delay: seconds that work must take before its bar appears.
        file: where to write bars, even if it is no terminal; None for the above.
    """
    bars = make_bars(delay=delay, file=file)
    try:
        with listening(bars):
            yield
    finally:
        bars.close()


class Bars(Listener, Protocol):
    """Makes bars, until `close`."""

    def close(self) -> None: ...


def make_bars(*, delay: float = _DELAY, file: TextIO | None = None) -> Bars:
    """Bars of tqdm if it is installed, else of rich.  Arguments as of `progress_bars`."""
    console = Console(file=file or sys.stderr, force_terminal=None if file is None else True)
    # Without ipywidgets, tqdm has no bars for notebooks.
    if find_spec("tqdm") is not None and (not console.is_jupyter or find_spec("ipywidgets") is not None):
        return _TqdmBars(delay, file)
    return RichBars(console, delay=delay)


@dataclass(frozen=True, slots=True)
class _TqdmBars:
    """Bars of tqdm."""

    delay: float
    file: TextIO | None

    def open(self, what: str, total: int, unit: str) -> WorkBar:
        from tqdm.auto import tqdm

        bar = tqdm(
            total=total,
            desc=what,
            unit=unit if unit == "B" else f" {unit}",
            unit_scale=unit == "B",
            leave=False,
            delay=self.delay,
            file=self.file,
            disable=None if self.file is None else False,  # None: shown on terminals only, and in notebooks
        )
        return _TqdmBar(bar)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _TqdmBar:
    bar: Any

    def advance(self, amount: int) -> None:
        self.bar.update(amount)

    def close(self) -> None:
        self.bar.close()


class RichBars:
    """Bars of rich, all in one display.

    Args:
        console: where they are shown, if it is a terminal or a notebook.
        delay: seconds that work must take before its bar appears.
        clock: returns seconds.
    """

    def __init__(self, console: Console, *, delay: float = _DELAY, clock: Callable[[], float] = time.monotonic) -> None:
        self._delay = delay
        self._clock = clock
        self._lock = threading.Lock()
        self._shown = False
        self._display = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            _Amount(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (console.is_terminal or console.is_jupyter),
        )

    def open(self, what: str, total: int, unit: str) -> WorkBar:
        task = self._display.add_task(what, total=total, visible=False, unit=unit)
        bar = _RichBar(partial(self._advance, task, self._clock() + self._delay), partial(self._remove, task))
        bar.advance(0)
        return bar

    def _advance(self, task: Any, due: float, amount: int) -> None:
        visible = self._clock() >= due
        if visible:
            self._show()
        self._display.update(task, advance=amount, visible=visible)

    def _show(self) -> None:
        with self._lock:
            if not self._shown:
                self._shown = True
                self._display.start()

    def _remove(self, task: Any) -> None:
        if self._shown:
            self._display.refresh()  # so that its last state is seen
        self._display.remove_task(task)

    def close(self) -> None:
        """Remove the display."""
        with self._lock:
            if self._shown:
                self._shown = False
                self._display.stop()


@dataclass(frozen=True, slots=True)
class _RichBar:
    advance: Callable[[int], None]
    close: Callable[[], None]


class _Amount(ProgressColumn):
    """`12/302 nodes`, `1.5 MB/2.0 GB`"""

    def render(self, task: Task) -> Text:
        unit, done, total = task.fields["unit"], int(task.completed), int(task.total or 0)
        return Text(f"{decimal(done)}/{decimal(total)}" if unit == "B" else f"{done}/{total} {unit}")
