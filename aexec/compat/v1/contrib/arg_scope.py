"""`tf.contrib.framework.arg_scope`: default arguments of functions inside a `with` block.

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

# Key of a decorated function → default arguments, in this task or thread.  Replaced as a whole, never mutated.
_current: ContextVar[Scope] = ContextVar("aexec_compat_arg_scope", default={})  # noqa: B039
_arguments: dict[Any, tuple[str, ...]] = {}


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: calls of the function get default arguments from `arg_scope`; arguments of the call override them."""

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
    """Whether a function is decorated with `add_arg_scope`."""
    return _key(func) in _arguments


def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """The names of a decorated function's positional parameters.  Raises KeyError if it is not decorated."""
    return _arguments[_key(func)]


def current_arg_scope() -> Scope:
    """The current default arguments by function; pass the result to `arg_scope` to restore them elsewhere."""
    return _current.get()


@contextmanager
def arg_scope(list_ops_or_scope: Sequence[Any] | Scope, **kwargs: Any) -> Iterator[Scope]:
    """Context manager: set default arguments of functions, in addition to those of outer blocks.

    Args:
        list_ops_or_scope: a list of decorated functions; or a scope that another block yielded, which replaces the
            current one.
        kwargs: the default arguments; none with a scope.

    Yields:
        The new scope.

    Raises:
        ValueError: a function is not decorated with `add_arg_scope`, or both a scope and arguments are given.
        TypeError: `list_ops_or_scope` is neither a list nor a scope.
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
