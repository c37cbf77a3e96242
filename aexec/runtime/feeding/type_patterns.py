"""`TypePatterns`: registered objects for types of Python values, looked up by value.

A pattern is a class, which includes its subclasses; the full name of a class, such as `"torch.Tensor"`, whose module
need not be installed; or a predicate of values.  A look-up returns the last registered object whose pattern matches, so
that a program's own come before built-in ones.
Next to read: `feeds.py` and `fetches.py`, the users.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from aexec.framework import errors

__all__ = ["Pattern", "TypePatterns"]

T = TypeVar("T")

Pattern = type[Any] | str | Callable[[Any], bool]


class _Entry(NamedTuple, Generic[T]):
    """A pattern and the object registered for it.

    Attributes:
        exact: True if subclasses are excluded.
    """

    pattern: Pattern
    exact: bool
    registered: T

    def matches_type(self, cls: type[Any]) -> bool:
        """True if this entry is for all instances of a class."""
        wanted = self.pattern
        if isinstance(wanted, str):
            found = _class_named(wanted)
            if found is None:
                return False
            wanted = found
        if not isinstance(wanted, type):
            return False
        return cls is wanted if self.exact else issubclass(cls, wanted)

    @property
    def predicate(self) -> Callable[[Any], bool] | None:
        return None if isinstance(self.pattern, type | str) else self.pattern


class TypePatterns(Generic[T]):
    """Registered objects by pattern, the last registered first."""

    def __init__(self) -> None:
        self._entries: tuple[_Entry[T], ...] = ()
        # Type → the entries that may match its instances: predicates, and the first entry that matches all of them.
        self._candidates: WeakKeyDictionary[type[Any], tuple[_Entry[T], ...]] = WeakKeyDictionary()
        # Builtin types without an entry, which most looked-up values have.
        self._nothing: set[type[Any]] = set()

    def register(self, pattern: Pattern, registered: T, *, exact: bool = False) -> None:
        """Register an object for a pattern, in place of an earlier one for the same pattern.

        Args:
            pattern: a class; a class's full name, `"package.module.Class"`; or a predicate of values.
            exact: True to exclude instances of subclasses.

        Raises:
            InvalidArgumentError: `pattern` is no pattern.
        """
        if not (isinstance(pattern, str) or callable(pattern)):
            raise errors.InvalidArgumentError(
                f"A pattern of types must be a class, the full name of one or a predicate, got {pattern!r}"
            )
        if isinstance(pattern, str) and not ("." in pattern and all(map(str.isidentifier, pattern.split(".")))):
            raise errors.InvalidArgumentError(f"{pattern!r} is no full name of a class, such as 'package.Class'")
        if exact and not isinstance(pattern, type | str):
            raise errors.InvalidArgumentError(f"Only a class can be meant exactly, not the predicate {pattern!r}")
        entry = _Entry(pattern, exact, registered)
        others = [one for one in self._entries if (one.pattern, one.exact) != (pattern, exact)]
        self._entries = (entry, *others)
        self._candidates, self._nothing = WeakKeyDictionary(), set()

    def find(self, value: Any) -> T | None:
        """The last registered object whose pattern matches a value, or None."""
        cls = type(value)
        if cls in self._nothing:
            return None
        candidates = self._candidates.get(cls)
        if candidates is None:
            candidates = self._candidates[cls] = self._for_type(cls)
            if not candidates and cls.__module__ == "builtins":
                self._nothing.add(cls)
        for entry in candidates:
            predicate = entry.predicate
            if predicate is None or predicate(value):
                return entry.registered
        return None

    def _for_type(self, cls: type[Any]) -> tuple[_Entry[T], ...]:
        found = []
        for entry in self._entries:
            if entry.predicate is not None:
                found.append(entry)
            elif entry.matches_type(cls):
                found.append(entry)
                break
        return tuple(found)


def _class_named(name: str) -> type[Any] | None:
    """A class by its full name; None if its module was not imported, so that no instance exists."""
    path, _, rest = name.rpartition(".")
    while path and path not in sys.modules:
        path, _, more = path.rpartition(".")
        rest = f"{more}.{rest}"
    found: Any = sys.modules.get(path)
    for part in rest.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None
