"""Decorators of `tensorflow.python.util` that programs put on their functions, and modules that load when used.

`tf_export` and its kin, `tf_decorator`, `tf_contextlib`, `tf_should_use`, `lazy_loader`.
Next to read: `deprecation.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = [
    "LazyLoader",
    "contextmanager",
    "estimator_export",
    "keras_export",
    "make_decorator",
    "rewrap",
    "should_use_result",
    "tf_export",
    "unwrap",
]

contextmanager = contextlib.contextmanager


def tf_export(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Decorator: a function or class stays as it is, since names are given to none here."""
    return lambda decorated: decorated


estimator_export = keras_export = tf_export


def should_use_result(fn: Any = None, warn_in_eager: bool = False, error_in_function: bool = False) -> Any:
    """Decorator: a function stays as it is; results that are not used are not warned of."""
    return (lambda decorated: decorated) if fn is None else fn


def make_decorator(
    target: Any,
    decorator_func: Any,
    decorator_name: str | None = None,
    decorator_doc: str = "",
    decorator_argspec: Any = None,
) -> Any:
    """Give a function the name, words and signature of the one that it wraps; return it."""
    made = functools.update_wrapper(decorator_func, target)
    if decorator_doc:
        made.__doc__ = decorator_doc
    return made


def unwrap(maybe_tf_decorator: Any) -> tuple[list[Any], Any]:
    """The wrappers of a function, the outermost first, and the function itself."""
    wrappers, found = [], maybe_tf_decorator
    while hasattr(found, "__wrapped__"):
        wrappers.append(found)
        found = found.__wrapped__
    return wrappers, found


def rewrap(decorator_func: Any, previous_target: Any, new_target: Any) -> Any:
    """Put another function inside the innermost wrapper, and return the outermost."""
    wrappers, _ = unwrap(decorator_func)
    if not wrappers:
        return new_target
    wrappers[-1].__wrapped__ = new_target
    return decorator_func


class LazyLoader(ModuleType):
    """A module that is imported when a name of it is first asked for.

    Args:
        local_name: its name among `parent_module_globals`, where the module itself then takes its place.
        name: of the module.
    """

    def __init__(self, local_name: str, parent_module_globals: dict[str, Any], name: str) -> None:
        super().__init__(name)
        self._place = parent_module_globals, local_name

    def _load(self) -> ModuleType:
        module = importlib.import_module(self.__name__)
        names, name = self._place
        names[name] = module
        self.__dict__.update(module.__dict__)
        return module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def __dir__(self) -> list[str]:
        return dir(self._load())
