"""A bar that shows how many are done, at which rate, and how long the rest will take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["progress_bar"]


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.3g}/s" if task.speed else "")


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Context manager: a bar on stderr, removed at the end; call the yielded function after each of `total`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda: bars.advance(task)
