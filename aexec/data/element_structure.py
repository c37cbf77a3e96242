"""Structures of elements: tuples, named tuples and dicts, nested.

Unlike in control flow, a list is a leaf, which is converted to one tensor.  A sparse tensor is a leaf.  Dicts are
traversed in the order of their keys.
Next to read: `element_spec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aexec.framework import errors

__all__ = ["flattened", "is_nested", "is_sparse", "leaves_up_to", "map_leaves", "repacked"]

_SPARSE_FIELDS = ("indices", "values", "dense_shape")


def is_sparse(value: Any) -> bool:
    """True for a sparse tensor, or for a triple of arrays that represents one."""
    return getattr(value, "_fields", None) == _SPARSE_FIELDS


def is_nested(value: Any) -> bool:
    """True for a container of parts."""
    return isinstance(value, Mapping) or (isinstance(value, tuple) and not is_sparse(value))


def _parts(structure: Any) -> list[Any]:
    if isinstance(structure, Mapping):
        return [structure[key] for key in sorted(structure)]
    return list(structure)


def flattened(structure: Any) -> list[Any]:
    """The leaves, in order."""
    if not is_nested(structure):
        return [structure]
    return [leaf for part in _parts(structure) for leaf in flattened(part)]


def repacked(structure: Any, leaves: Sequence[Any]) -> Any:
    """A structure of the same form with other leaves."""
    return _packed(structure, iter(leaves))


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    parts = [_packed(part, leaves) for part in _parts(structure)]
    if isinstance(structure, Mapping):
        made = dict(zip(sorted(structure), parts, strict=True))
        ordered = {key: made[key] for key in structure}
        return ordered if type(structure) is dict else type(structure)(ordered)  # type: ignore[call-arg]
    return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """A structure of the same form whose leaves are the results of a function."""
    return repacked(structure, [function(leaf) for leaf in flattened(structure)])


def leaves_up_to(structure: Any, other: Any, what: str) -> list[Any]:
    """For each leaf of a structure, the part at the same position in another structure; it may be a container.

    Raises:
        InvalidArgumentError: the structures differ; `what` names the other one in the message.
    """
    if not is_nested(structure):
        return [other]
    if isinstance(structure, Mapping):
        if not isinstance(other, Mapping) or set(structure) != set(other):
            raise errors.InvalidValueError(f"{what} must have the keys {sorted(structure)}, got {other!r:.200}")
        pairs = [(structure[key], other[key]) for key in sorted(structure)]
    else:
        if not isinstance(other, list | tuple) or len(other) != len(structure):
            raise errors.InvalidValueError(f"{what} must have {len(structure)} parts, got {other!r:.200}")
        pairs = list(zip(structure, other, strict=True))
    return [leaf for part, theirs in pairs for leaf in leaves_up_to(part, theirs, what)]
