"""`tensorflow.python.util.tf_inspect`: Python's `inspect`, which looks through decorators.

Next to read: `decorators.py`.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

__all__ = ["ArgSpec", "getargspec", "getfullargspec"]


class ArgSpec(NamedTuple):
    """The arguments of a function."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getfullargspec(obj: Any) -> inspect.FullArgSpec:
    """`inspect.getfullargspec` of the decorated function itself."""
    return inspect.getfullargspec(inspect.unwrap(obj))


def getargspec(obj: Any) -> ArgSpec:
    """Names, `*` and `**` of a function's arguments, and their defaults."""
    found = getfullargspec(obj)
    return ArgSpec(found.args, found.varargs, found.varkw, found.defaults)


def __getattr__(name: str) -> Any:
    return getattr(inspect, name)
