"""Structures of tensors: lists, tuples, named tuples, dicts and tensor arrays, nested; flattening and packing them.

Dicts are in the order of their keys, so that two with the same keys have the same structure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aexec.framework import errors

__all__ = ["Composite", "check_same_structure", "leaves_of", "pack"]


class Composite(ABC):
    """An object that consists of tensors, which replace it in a flat structure."""

    @property
    @abstractmethod
    def components(self) -> Sequence[Any]:
        """The tensors that change from iteration to iteration, or from branch to branch."""

    @abstractmethod
    def with_components(self, components: Sequence[Any]) -> Any:
        """Return a copy of the object with other tensors."""


def leaves_of(structure: Any) -> list[Any]:
    """The leaves, in order; a value that is not a container is a leaf."""
    return list(_leaves(structure))


def _leaves(structure: Any) -> Iterator[Any]:
    for part in _parts(structure) or ():
        yield from _leaves(part)
    if _parts(structure) is None:
        yield structure


def _parts(structure: Any) -> Sequence[Any] | None:
    """The parts of a container; None for a leaf."""
    if isinstance(structure, Mapping):
        return [structure[key] for key in sorted(structure)]
    if isinstance(structure, Composite):
        return structure.components
    return structure if isinstance(structure, list | tuple) else None


def pack(structure: Any, leaves: Sequence[Any]) -> Any:
    """A structure of the same form with other leaves."""
    remaining = iter(leaves)
    return _packed(structure, remaining)


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    parts = _parts(structure)
    if parts is None:
        return next(leaves)
    made = [_packed(part, leaves) for part in parts]
    if isinstance(structure, Mapping):
        found = dict(zip(sorted(structure), made, strict=True))
        return {key: found[key] for key in structure}
    if isinstance(structure, Composite):
        return structure.with_components(made)
    if hasattr(structure, "_fields"):
        return type(structure)(*made)
    return type(structure)(made)


def check_same_structure(first: Any, second: Any, what: str) -> None:
    """Raise InvalidArgumentError, with `what` they are, unless both have the same form."""
    if _form(first) != _form(second):
        raise errors.InvalidValueError(f"{what} must have the same structure, got {_form(first)} and {_form(second)}")


def _form(structure: Any) -> str:
    parts = _parts(structure)
    if parts is None:
        return "."
    forms = [_form(part) for part in parts]
    if isinstance(structure, Mapping):
        forms = [f"{key!r}: {form}" for key, form in zip(sorted(structure), forms, strict=True)]
        return "{" + ", ".join(forms) + "}"
    opening, closing = "[]" if isinstance(structure, list) else "()"
    name = type(structure).__name__ if hasattr(structure, "_fields") or isinstance(structure, Composite) else ""
    return f"{name}{opening}{', '.join(forms)}{closing}"
