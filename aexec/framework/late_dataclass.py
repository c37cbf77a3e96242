"""`dataclass` with slots, whose methods are generated when the first instance is made.

The standard library generates up to six methods of each class as text and compiles it, half a millisecond a class: a
quarter of the time of `import aexec`, for classes of which a program uses some.  Here only the slots are made at once;
the first instance, or the first use of the fields, lets the standard library do the rest.  The result is that of
`dataclasses.dataclass(slots=True, ...)`: `fields`, `replace` and `asdict` take it, and type checkers see that
decorator.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, slots, frozen=False, eq=True, weakref_slot=False):
        """Like `dataclasses.dataclass`, for classes without bases and `ClassVar`.

        `slots` is always true, and is said because type checkers want to know.
        """
        assert slots
        return lambda plain: _Late(plain, frozen=frozen, eq=eq).with_slots("__weakref__" if weakref_slot else None)


# Attributes that a class with slots has of its own, not copied from the plain class.
_OWN = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"))


_lock = threading.RLock()  # re-entrant: a class and its base may both be late


class _Late:
    """Generates the methods of a class later; it is the class's `__dataclass_fields__` until then.

    Nothing else of the class is needed before there is an instance, and instances come from `__init__` or
    `__setstate__`.
    """

    def __init__(self, plain: type, *, frozen: bool, eq: bool) -> None:
        self._plain = plain
        self._frozen = frozen
        self._eq = eq

    def with_slots(self, weakref: str | None) -> type:
        plain, write = self._plain, self._write
        names = tuple(plain.__annotations__)
        left_out = {*names, "__dict__", "__weakref__"}
        body = {name: value for name, value in vars(plain).items() if name not in left_out}

        def first_instance(self: Any, *args: Any, **kwargs: Any) -> None:
            write(made).__init__(self, *args, **kwargs)  # the instance may be of a subclass

        def first_copy(self: Any, state: Any) -> None:
            write(made).__setstate__(self, state)

        body |= {
            "__slots__": (*names, weakref) if weakref else names,
            "__init__": first_instance,
            "__getstate__": _state,
            "__setstate__": first_copy,
            "__dataclass_fields__": self,
        }
        made: Any = type(plain)(plain.__name__, plain.__bases__, body)
        made.__qualname__ = plain.__qualname__
        self._made = made
        return cast("type", made)

    def __get__(self, instance: object, owner: type) -> dict[str, dataclasses.Field[Any]]:
        fields: dict[str, dataclasses.Field[Any]] = self._write(self._made).__dict__["__dataclass_fields__"]
        return fields

    def _write(self, made: Any) -> Any:
        """Generate the class's methods; several threads may call this at once."""
        plain: Any = self._plain
        with _lock:
            if "__dataclass_fields__" not in vars(plain):
                dataclasses.dataclass(frozen=self._frozen, eq=self._eq)(plain)
        fields = plain.__dataclass_fields__
        for name, value in vars(plain).items():
            if name not in fields and name not in _OWN and vars(made).get(name) is not value:
                setattr(made, name, value)
        made.__setstate__ = _set_state
        return made


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)
