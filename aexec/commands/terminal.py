"""What only a person at a terminal sees: progress, on stderr, and colour."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["counted_progress", "progress", "say_error"]


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Context manager: shows a spinner."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


@contextlib.contextmanager
def counted_progress(what: str, total: int) -> Iterator[Callable[[], object]]:
    """Context manager: shows a bar with rate and remaining time; call the yielded function after each of `total`."""
    if total == 1 or not sys.stderr.isatty():
        with progress(what):
            yield lambda: None
        return
    from aexec.commands.progress_bar import progress_bar

    with progress_bar(what, total) as advance:
        yield advance


def say_error(message: str) -> None:
    """Print one line to stderr, its first word red if colours are shown (NO_COLOR is respected)."""
    if not sys.stderr.isatty():
        print(f"aexec: {message}", file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(("aexec:", "bold red"), " ", message))
