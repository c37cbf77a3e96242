"""`tf.contrib.framework.arg_scope`: arguments of functions for all calls inside a `with` block.

::

    with arg_scope([conv2d], padding="VALID"):
        conv2d(x, 8, 3)  # with padding="VALID"

Next to read: `slim.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["add_arg_scope", "arg_scope", "arg_scoped_arguments", "current_arg_scope", "has_arg_scope"]

Scope = Mapping[Any, Mapping[str, Any]]

# Function that takes part → its arguments, in this task or thread; replaced as a whole, never written to.
_current: ContextVar[Scope] = ContextVar("aexec_compat_arg_scope", default={})  # noqa: B039
_arguments: dict[Any, tuple[str, ...]] = {}


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the function takes part in `arg_scope`; arguments of a call come before those of the scope."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**_current.get().get(call._key_op, {}), **kwargs})  # type: ignore[attr-defined]

    call._key_op = key = getattr(func, "_key_op", str(func))  # type: ignore[attr-defined]
    code = getattr(func, "__code__", None)
    _arguments[key] = () if code is None else code.co_varnames[: code.co_argcount]
    return call


def _key(function: Any) -> Any:
    return getattr(function, "_key_op", str(function))


def has_arg_scope(func: Any) -> bool:
    """Whether a function takes part."""
    return _key(func) in _arguments


def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """The names of a function's arguments."""
    return _arguments[_key(func)]


def current_arg_scope() -> Scope:
    """The arguments by function in this block; `arg_scope` enters them again."""
    return _current.get()


@contextmanager
def arg_scope(list_ops_or_scope: Sequence[Any] | Scope, **kwargs: Any) -> Iterator[Scope]:
    """Context manager: calls of these functions get these arguments by default, beside those of outer blocks.

    Args:
        list_ops_or_scope: functions; or what another block gave, which is entered again in place of the current one.
        kwargs: the arguments; none with a scope.

    Raises:
        ValueError: a function does not take part, or there are arguments with a scope.
        TypeError: neither a list nor a scope is given.
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        entered: Scope = dict(list_ops_or_scope)
    elif isinstance(list_ops_or_scope, list | tuple):
        for function in list_ops_or_scope:
            if not has_arg_scope(function):
                raise ValueError(f"{function!r} is not decorated with @add_arg_scope")
        before = _current.get()
        entered = {**before, **{key: {**before.get(key, {}), **kwargs} for key in map(_key, list_ops_or_scope)}}
    else:
        raise TypeError("list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict)")
    token = _current.set(entered)
    try:
        yield entered
    finally:
        _current.reset(token)
