"""`tensorflow.python.util.deprecation`: functions that warn when they are called.

Next to read: `decorators.py`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from aexec.framework import errors

__all__ = [
    "deprecated",
    "deprecated_alias",
    "deprecated_arg_values",
    "deprecated_args",
    "deprecated_argument_lookup",
    "deprecated_endpoints",
    "silence",
]

_LOGGER = logging.getLogger("tensorflow")
_silent = False


def deprecated(date: str | None, instructions: str, warn_once: bool = True) -> Callable[[Any], Any]:
    """Decorator: calls are warned of, once or always.

    Args:
        date: `YYYY-MM-DD`, when it will be removed; None for some time.
        instructions: what to do instead.

    Raises:
        ValueError: of the decorator, if the date is none, or the instructions are empty.
    """
    _check(date, instructions)

    def decorate(function: Any) -> Any:
        warn = _Warning(date, instructions, warn_once)
        removed = f"THIS FUNCTION IS DEPRECATED. It will be removed {_when(date)}."

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            warn(_called(function))
            return function(*args, **kwargs)

        call.__doc__ = (
            f"{inspect.getdoc(function) or function.__name__} (deprecated)\n\n"
            f"Deprecated: {removed}\nInstructions for updating:\n{instructions}"
        )
        return call

    return decorate


def deprecated_args(date: str | None, instructions: str, *deprecated_arg_names_or_tuples: Any, **kwargs: Any) -> Any:
    """Decorator: calls that give one of some arguments are warned of.

    Args:
        deprecated_arg_names_or_tuples: names; or a name with the value that is not warned of.
        kwargs: `warn_once`.

    Raises:
        ValueError: of the decorator, as of `deprecated`; or if the function has no such argument.
    """
    _check(date, instructions)
    fine: dict[str, Any] = dict(one if isinstance(one, tuple) else (one, ...) for one in deprecated_arg_names_or_tuples)

    def decorate(function: Any) -> Any:
        parameters = inspect.signature(function).parameters
        if unknown := [name for name in fine if name not in parameters]:
            raise errors.InvalidValueError(
                f"The following deprecated arguments are not present in the function signature: {unknown}. "
                f"Expected arguments from the following list: {list(parameters)}."
            )
        return _warning_of(function, date, instructions, kwargs.get("warn_once", True), _given(fine))

    return decorate


def _given(fine: dict[str, Any]) -> Callable[[dict[str, Any]], Iterator[str]]:
    def names(given: dict[str, Any]) -> Iterator[str]:
        return (name for name, value in given.items() if name in fine and value is not fine[name])

    return names


def deprecated_arg_values(date: str | None, instructions: str, warn_once: bool = True, **deprecated_kwargs: Any) -> Any:
    """Decorator: calls that give an argument one value are warned of.  Raises ValueError as `deprecated`."""
    _check(date, instructions)

    def values(given: dict[str, Any]) -> Iterator[str]:
        for name, value in given.items():
            if name in deprecated_kwargs and deprecated_kwargs[name] == value:
                yield f"{name}={value}"

    return lambda function: _warning_of(function, date, instructions, warn_once, values)


def _warning_of(function: Any, date: Any, instructions: str, once: bool, found: Callable[..., Any]) -> Any:
    """The function, which warns of what `found` says of the arguments of a call."""
    signature = inspect.signature(function)
    warnings: dict[str, _Warning] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(TypeError):  # the call itself says better what is wrong with its arguments
            for argument in found(signature.bind(*args, **kwargs).arguments):
                key = argument.partition("=")[0]
                warn = warnings.setdefault(key, _Warning(date, instructions, once))
                warn(f"calling {_called(function)} with {argument}")
        return function(*args, **kwargs)

    return call


def deprecated_alias(deprecated_name: str, name: str, func_or_class: Any, warn_once: bool = True) -> Any:
    """A function that is another's old name; of a class a subclass."""
    warn = _Warning(None, f"Please use {name} instead.\n", warn_once)
    if isinstance(func_or_class, type):

        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            warn(f"The name {deprecated_name} is deprecated; it")
            func_or_class.__init__(self, *args, **kwargs)  # type: ignore[misc]

        return type(func_or_class.__name__, (func_or_class,), {"__init__": begin, "__doc__": func_or_class.__doc__})

    @functools.wraps(func_or_class)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn(f"The name {deprecated_name} is deprecated; it")
        return func_or_class(*args, **kwargs)

    return call


def deprecated_endpoints(*args: str) -> Callable[[Any], Any]:
    """Decorator: notes the old names of a function, and changes nothing."""
    return lambda function: function


def deprecated_argument_lookup(new_name: str, new_value: Any, old_name: str, old_value: Any) -> Any:
    """The value of an argument that has an old name, too.  Raises ValueError if both are given."""
    if old_value is None:
        return new_value
    if new_value is not None:
        raise errors.InvalidValueError(f"Cannot specify both '{old_name}' and '{new_name}'.")
    return old_value


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Nothing is warned of in the block."""
    global _silent
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


class _Warning:
    """Warns of calls, of all or of the first."""

    def __init__(self, date: str | None, instructions: str, once: bool) -> None:
        self._words = f"is deprecated and will be removed {_when(date)}.\nInstructions for updating:\n{instructions}"
        self._once = once
        self._done = False

    def __call__(self, what: str) -> None:
        if not (_silent or (self._once and self._done)):
            self._done = True
            _LOGGER.warning("From %s: %s %s", _caller(), what, self._words)


def _caller() -> str:
    """`file:line` of the program that called the decorated function."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _called(function: Any) -> str:
    return f"{getattr(function, '__qualname__', function)} (from {getattr(function, '__module__', None)})"


def _when(date: str | None) -> str:
    return "in a future version" if date is None else f"after {date}"


def _check(date: str | None, instructions: str) -> None:
    if date is not None and not re.fullmatch(r"20\d\d-[01]\d-[0123]\d", date):
        raise errors.InvalidValueError(f"Date must be in format YYYY-MM-DD. Received: {date}")
    if not instructions:
        raise errors.InvalidValueError(
            "Don't deprecate things without conversion instructions! Specify the `instructions` argument."
        )
