"""`tf.make_template`: functions whose calls share variables.

Next to read: `variables.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aexec.variables.variable_scope import variable_scope

__all__ = [
    "make_template",
]


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Callable[..., Any]:
    """`tf.make_template`: a function whose variables are made by the first call and shared by later ones."""
    return _Template(name_, partial(func_, **kwargs), unique_name_, custom_getter_, create_scope_now_)


class _Template:
    def __init__(self, name: str, func: Callable[..., Any], unique_name: str | None, getter: Any, now: bool) -> None:
        self._func = func
        self._names = (unique_name, name)
        self._getter = getter
        self._called = False
        self._scope: Any = None
        if now:
            self._open()

    def _open(self) -> None:
        if self._scope is None:
            with variable_scope(*self._names, custom_getter=self._getter) as self._scope:
                pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._open()
        with variable_scope(self._scope, reuse=self._called or None):
            found = self._func(*args, **kwargs)
        self._called = True
        return found

    @property
    def variable_scope(self) -> Any:
        """The scope of its variables; None before the first call."""
        return self._scope

    @property
    def name(self) -> str:
        """Its name."""
        return self._names[0] or self._names[1]

    @property
    def variables(self) -> list[Any]:
        """All variables that it made."""
        return self._scope.global_variables() if self._scope is not None else []

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that training changes."""
        return self._scope.trainable_variables() if self._scope is not None else []
