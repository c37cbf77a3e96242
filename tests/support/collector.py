"""The garbage collector, off for a while: a test finds out what only it would free, or how long something takes."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collector"]


@contextmanager
def no_collector() -> Iterator[None]:
    """Context manager, or decorator: the garbage collector does not run inside."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
