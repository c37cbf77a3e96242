"""What a person at a terminal sees besides the answer: progress, on stderr, and colour.  Others see neither."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["counted_progress", "progress", "say_error"]


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """A spinner while `what` goes on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


@contextlib.contextmanager
def counted_progress(what: str, total: int) -> Iterator[Callable[[], object]]:
    """A bar with rate and time left while `total` of something go on; call what is given after each of them."""
    if total == 1 or not sys.stderr.isatty():
        with progress(what):
            yield lambda: None
        return
    from aexec.commands.progress_bar import progress_bar

    with progress_bar(what, total) as advance:
        yield advance


def say_error(message: str) -> None:
    """One line on stderr, its first word red where colours are shown (NO_COLOR is respected)."""
    if not sys.stderr.isatty():
        print(f"aexec: {message}", file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(("aexec:", "bold red"), " ", message))
