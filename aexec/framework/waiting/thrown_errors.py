"""`forget_frames`: what a context manager that is a generator does with an error that it does not let pass.

Since Python 3.12 the frame of a generator refers to the frame that resumed it.  Here that is `__exit__`, whose argument
is the error, and the error's traceback begins with the generator's frame: a cycle, which keeps the values of all frames
that the error has passed until the garbage collector runs.  An error that passes gets its old traceback back.
"""

from __future__ import annotations

__all__ = ["forget_frames"]


def forget_frames(error: BaseException) -> None:
    """Drop the traceback of an error that was thrown into a generator, and those of its causes and contexts."""
    errors, seen = [error], set()
    while errors:
        error = errors.pop()
        if id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = None
            errors += [other for other in (error.__cause__, error.__context__) if other is not None]
